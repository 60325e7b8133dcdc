"""Small traces of every format, and how tests read them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.schema import ModelError
from models.strict_yaml import InputError
from sim.scenario.trace.reading import TraceFile, read_trace
from sim.scenario.workload import Prefixes, Requests, Workload, generate, request_count

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,14050,55
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:10+00:00,2399,6
"""
BURSTGPT_1 = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
118,GPT-4,0,0,0,API log
"""
BURSTGPT_3 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log
19440161.0,,2,ChatGPT,36,29,65,API log
"""
MOONCAKE = """\
{"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 1024, "output_length": 26, "hash_ids": [46, 47]}
"""
PLAIN = """\
arrival_s,prompt_tokens,output_tokens,session,prefix,prefix_tokens
0.25,100,10,a,system,64
1e1,130,1,a,system,64
12,7,3,,,
"""


def read(path: str, wanted: str = "auto", bad_lines: Any = "refuse") -> TraceFile:
    return read_trace(path, wanted, bad_lines)


def complaint(path: str, *how: Any) -> str:
    with pytest.raises((InputError, ModelError)) as caught:
        read(path, *how)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(path, "FILE")


def numbered(folder: Path) -> Any:
    """Return a function that writes each trace to a file of its own and returns the path."""
    names = iter(range(1_000_000))

    def write(content: str | bytes) -> str:
        path = folder / f"trace{next(names)}.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def workload(path: str, streams: Any = None, requests: int | None = None, **how: Any) -> Workload:
    data = {"arrivals": {"kind": "trace", "file": path, **how}, "requests": requests}
    return Workload.model_validate(data | ({"streams": streams} if streams else {}))


def replay(path: str, seed: int = 1, replication: int = 0, **how: Any) -> Requests:
    spec = workload(path, **how)
    made = generate(spec, seed, replication)
    assert len(made) == request_count(spec, seed, replication)
    assert (np.diff(made.arrival_s) >= 0).all()
    check_chains(made.prefixes)
    return made


def check_chains(prefixes: Prefixes) -> None:
    """Equal keys mean an equal start and end, and equal nodes before."""
    seen: dict[int, tuple[int, int, int]] = {}
    for begin, end in pairwise(prefixes.offsets.tolist()):
        before, start = 0, 0
        nodes = zip(
            prefixes.keys[begin:end].tolist(), prefixes.ends[begin:end].tolist(), strict=True
        )
        for key, reach in nodes:
            assert key > 0
            assert reach >= start
            assert seen.setdefault(key, (before, start, reach)) == (before, start, reach)
            before, start = key, reach


def chain(requests: Requests, row: int) -> list[tuple[int, int]]:
    """Nodes of one request as (key, end)."""
    part = slice(*requests.prefixes.offsets[row : row + 2])
    keys, ends = requests.prefixes.keys[part], requests.prefixes.ends[part]
    return list(zip(keys.tolist(), ends.tolist(), strict=True))


def ends(requests: Requests, row: int) -> list[int]:
    return [end for _, end in chain(requests, row)]
