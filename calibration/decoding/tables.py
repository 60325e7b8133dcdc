"""Request, step and acceptance tables of decoding runs.

Each strategy is a run of its own: one user who sends a prompt, or a batch of them, when the last
is finished. Its clock starts at 0 and shows the seconds it has spent so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.decoder import Row, Times
from calibration.decoding.journal import Done
from sim.interrupts import held
from sim.staging import staged
from sim.tables import (
    ACCEPTANCE,
    COUNT,
    REQUESTS,
    SECONDS,
    STEPS,
    TEXT,
    Status,
    field,
    to_arrow,
    write_parquet,
)

DECODE_STEPS = pa.schema(
    [
        *STEPS,
        field("request", COUNT, "", "id of the request, of a batch the first one's"),
        field("sample_s", SECONDS, "s", "choosing tokens, in it"),
        field("note", TEXT, "", "what was active, of strategies that change"),
    ]
)
"""A step row more a batch than it has steps: that of its prefill, with ``n_decode`` 0."""

SCHEMAS = {
    "requests.parquet": REQUESTS,
    "steps.parquet": DECODE_STEPS,
    "acceptance.parquet": ACCEPTANCE,
}

Record = dict[str, Any]


def write(done: Sequence[Done], domains: Sequence[str], folder: Path) -> list[Path]:
    """Write the three tables; all appear together.

    Parameters
    ----------
    done : sequence of Done
    domains : sequence of str
        In the order that numbers requests.
    folder : Path

    Returns
    -------
    list of Path
    """
    made = tables(done, domains)
    with staged(folder) as scratch:
        for name, table in made.items():
            write_parquet(table, scratch / name)
        with held():
            return [(scratch / name).replace(folder / name) for name in made]


def tables(done: Sequence[Done], domains: Sequence[str]) -> dict[str, pa.Table]:
    """The tables by file name, strategies one after another."""
    ids = request_ids(done, domains)
    labels = list(dict.fromkeys(one.label for one in done))
    records: dict[str, list[Record]] = {name: [] for name in SCHEMAS}
    for label in labels:
        now_s = 0.0
        for one in (one for one in done if one.label == label):
            own = [ids[one.domain, number] for number in one.numbers]
            records["steps.parquet"] += _steps(one, own[0], now_s)
            records["requests.parquet"] += _requests(one, own, now_s)
            records["acceptance.parquet"] += _acceptance(one, own)
            now_s += one.seconds
    return {name: _table(schema, records[name]) for name, schema in SCHEMAS.items()}


def request_ids(done: Iterable[Done], domains: Sequence[str]) -> dict[tuple[str, int], int]:
    """Id of each prompt by domain and number: the same for all strategies, from 0."""
    place = {domain: index for index, domain in enumerate(domains)}
    found = {(one.domain, number) for one in done for number in one.numbers}
    ordered = sorted(found, key=lambda pair: (place.get(pair[0], len(place)), *pair))
    return {pair: index for index, pair in enumerate(ordered)}


def _requests(one: Done, ids: Sequence[int], start_s: float) -> Iterator[Record]:
    generation = one.generation
    first_token_s = start_s + generation.prefill.total_s
    ends = first_token_s + np.cumsum([step.times.total_s for step in generation.steps])
    for place, request in enumerate(ids):
        took = [
            (end, row)
            for end, step in zip(ends, generation.steps, strict=True)
            for row in step.rows
            if row.prompt == place
        ]
        yield {
            **_run(one.label),
            "id": request,
            "session": request,
            "stream": one.domain,
            "domain": one.domain,
            "status": Status.FINISHED.name.lower(),
            "arrival_s": start_s,
            "schedule_s": start_s,
            "first_token_s": first_token_s,
            "finish_s": took[-1][0] if took else first_token_s,
            "prompt_tokens": one.prompt_tokens[place],
            "cached_tokens": 0,
            "output_tokens": len(generation.tokens[place]),
            "n_steps": len(took),
            "drafted": sum(row.drafted for _, row in took),
            "accepted": sum(row.accepted for _, row in took),
            "preemptions": 0,
            "attempts": 1,
            "discarded_tokens": 0,
        }


def _steps(one: Done, request: int, start_s: float) -> Iterator[Record]:
    prefill, rows = one.generation.prefill, len(one.numbers)
    common = _run(one.label) | {"request": request, "blocks_used": 0, "waiting": 0}
    yield {
        **common,
        **_times(prefill, start_s),
        "n_decode": 0,
        "prefill_tokens": sum(one.prompt_tokens),
        "verify_tokens": 0,
        "emitted": rows,
        "note": "",
    }
    start_s += prefill.total_s
    for step in one.generation.steps:
        yield {
            **common,
            **_times(step.times, start_s),
            "n_decode": len(step.rows),
            "prefill_tokens": 0,
            "verify_tokens": sum(row.width for row in step.rows),
            "emitted": sum(step.emitted),
            "note": step.note,
        }
        start_s += step.times.total_s


def _acceptance(one: Done, ids: Sequence[int]) -> Iterator[Record]:
    """Steps of one request after another; plain decoding, which drafts nothing, has none."""
    steps = one.generation.steps
    for place, request in enumerate(ids if one.label != BASELINE else ()):
        rows = [row for step in steps for row in step.rows if row.prompt == place]
        for number, row in enumerate(rows):
            yield {
                "strategy": one.label,
                "request": request,
                "step": number,
                "domain": one.domain,
                "context": row.context,
                "drafted": row.drafted,
                "accepted": row.accepted,
                "ranks": ranks_text(row),
            }


def ranks_text(row: Row) -> str:
    """Ranks by level as the table has them: "0 2 -"."""
    return " ".join("-" if rank is None else str(rank) for rank in row.ranks)


def _run(label: str) -> Record:
    return {"strategy": label, "point": "", "replication": 0, "replica": 0}


def _times(times: Times, start_s: float) -> Record:
    return {"start_s": start_s, "duration_s": times.total_s, **times._asdict()}


def _table(schema: pa.Schema, records: Sequence[Record]) -> pa.Table:
    columns = {}
    for column in schema:
        kind = {COUNT: np.int64, SECONDS: np.float64}.get(column.type, object)
        columns[column.name] = np.array([record[column.name] for record in records], dtype=kind)
    return to_arrow(schema, columns)
