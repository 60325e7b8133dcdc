"""Lengths drawn in pairs from a trace: each with its own output, as often as in the file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from models.strict_yaml import InputError, load_yaml
from sim import experiment
from sim.analysis import describe
from sim.analysis.assumptions import assumptions
from sim.scenario.dump import plain, resolved_yaml
from sim.scenario.load import ScenarioFile, load_scenario, parse_scenario
from sim.scenario.requests import Requests
from sim.scenario.workload import generate

AZURE = Path(__file__).parent.parent / "examples/traces/azure_llm_2023_conversation.csv.gz"
ROWS = [(100, 7), (200, 5), (200, 5), (3000, 1)]
N = 8000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"{at},{prompt},{output}" for at, (prompt, output) in enumerate(ROWS)]
    header = "arrival_s,prompt_tokens,output_tokens"
    (tmp_path / "mine.csv").write_text("\n".join([header, *lines, ""]))
    return tmp_path


def asked(folder: Path, *streams: dict[str, Any], requests: int = N, seed: int = 1) -> ScenarioFile:
    data = {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 4},
            "requests": requests,
            "streams": list(streams or [paired()]),
        },
        "strategies": [{"kind": "autoregressive"}],
        "run": {"seed": seed, "band": False},
    }
    (folder / "scenario.yaml").write_text(yaml.safe_dump(data))
    return load_scenario(folder / "scenario.yaml")


def paired(file: str = "mine.csv", **keys: Any) -> dict[str, Any]:
    return {"lengths": {"kind": "trace", "file": file}, **keys}


def drawn(loaded: ScenarioFile, replication: int = 0) -> Requests:
    scenario = loaded.points[0].scenario
    return generate(scenario.workload, scenario.run.seed, replication)


def test_rows_in_their_order_are_those_of_the_file_again_and_again(folder: Path) -> None:
    stream = {"lengths": {"kind": "trace", "file": "mine.csv", "order": "recorded"}}
    requests = drawn(asked(folder, stream, requests=10), replication=3)
    seen = list(zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True))
    assert seen == [*ROWS, *ROWS, *ROWS[:2]]


def pairs(requests: Requests) -> list[tuple[int, int]]:
    return list(zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True))


def test_each_row_comes_as_often_as_any_other_with_its_own_output(folder: Path) -> None:
    counts = Counter(pairs(drawn(asked(folder))))
    assert counts.keys() == set(ROWS)
    seen = [counts[pair] for pair in sorted(counts)]
    assert stats.chisquare(seen, [N / 4, N / 2, N / 4]).pvalue > 0.01


def test_the_law_of_the_published_trace_is_kept(folder: Path) -> None:
    requests = drawn(asked(folder, paired(str(AZURE)), requests=40_000))
    # Means of the 19,366 rows of the published file.
    assert requests.prompt_tokens.mean() == pytest.approx(1154.7, rel=0.02)
    assert requests.output_tokens.mean() == pytest.approx(211.1, rel=0.02)
    lengths = asked(folder, paired(str(AZURE))).points[0].scenario.workload.streams[0].lengths
    assert lengths is not None
    rows = lengths.pairs()
    for column, ours in zip(rows, (requests.prompt_tokens, requests.output_tokens), strict=True):
        assert stats.ks_2samp(column, ours).pvalue > 0.01
    together = np.corrcoef(*rows)[0, 1]
    ours = np.corrcoef(requests.prompt_tokens, requests.output_tokens)[0, 1]
    assert abs(together) > 0.05
    assert ours == pytest.approx(together, abs=0.02)


def test_seeds_and_replications_differ_and_more_requests_begin_with_the_same(folder: Path) -> None:
    once = drawn(asked(folder))
    assert pairs(once) == pairs(drawn(asked(folder)))
    assert pairs(once) != pairs(drawn(asked(folder), replication=1))
    assert pairs(once) != pairs(drawn(asked(folder, seed=2)))
    assert pairs(once)[:500] == pairs(drawn(asked(folder, requests=500)))


def test_nothing_else_moves(folder: Path) -> None:
    fixed = {"prompt_tokens": {"kind": "fixed", "value": 9}}
    two = (paired(name="a", share=0.5), {"name": "b", "share": 0.5, "prefix": None})
    own, mixed = drawn(asked(folder, fixed)), drawn(asked(folder, *two))
    assert np.array_equal(own.arrival_s, mixed.arrival_s)
    drawn_by_b = drawn(asked(folder, {"name": "a", "share": 0.5}, two[1]))
    of_b = mixed.stream == 1
    assert np.array_equal(mixed.prompt_tokens[of_b], drawn_by_b.prompt_tokens[of_b])
    assert np.array_equal(mixed.output_tokens[of_b], drawn_by_b.output_tokens[of_b])


def test_a_prefix_is_shared_by_the_prompts_that_hold_it(folder: Path) -> None:
    requests = drawn(asked(folder, paired(prefix={"tokens": 150, "groups": 3})))
    shares = np.diff(requests.prefixes.offsets) == 1
    assert np.array_equal(shares, requests.prompt_tokens >= 150)


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"prompt_tokens": {"kind": "fixed", "value": 5}}, "prompt_tokens", "leave this key out"),
        ({"output_tokens": {"kind": "fixed", "value": 5}}, "output_tokens", "leave this key out"),
        ({"session": {}}, "session", "leave lengths out"),
        ({"prefix": {"tokens": "all", "groups": 2}}, "prefix.tokens", "must be a number"),
        ({"prefix": {"tokens": 3001, "groups": 2}}, "prefix.tokens", "longest are 3000 tokens"),
    ],
)
def test_keys_that_contradict_it_are_refused(
    folder: Path, keys: dict[str, Any], key: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        asked(folder, paired(**keys))
    assert caught.value.key == f"workload.streams[0].{key}"
    assert message in str(caught.value)


def test_a_bad_line_is_told_with_its_file_and_number(folder: Path) -> None:
    with (folder / "mine.csv").open("a") as file:
        file.write("4,many,2\n")
    with pytest.raises(InputError) as caught:
        asked(folder)
    assert str(caught.value).startswith(f"{folder / 'mine.csv'}:6: prompt_tokens: ")


def test_a_file_that_is_not_there_is_told_with_the_line_that_names_it(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        asked(folder, paired("none.csv"))
    assert caught.value.key == "workload.streams[0].lengths.file"
    assert caught.value.line


def test_beside_replayed_arrivals_it_is_refused(folder: Path) -> None:
    loaded = yaml.safe_load((asked(folder), folder / "scenario.yaml")[1].read_text())
    loaded["workload"]["arrivals"] = {"kind": "trace", "file": "mine.csv"}
    loaded["workload"].pop("requests")
    with pytest.raises(InputError, match="comes from the trace; leave this key out"):
        parse_scenario(load_yaml(yaml.safe_dump(loaded), str(folder / "scenario.yaml")))


def test_resolved_and_described_it_names_the_file(folder: Path) -> None:
    loaded = asked(folder, requests=20)
    text = resolved_yaml(loaded.resolved)
    assert "prompt_tokens" not in text
    again = parse_scenario(load_yaml(text, "elsewhere.yaml"))
    assert again.points[0].scenario == loaded.points[0].scenario
    assert "lengths of mine.csv" in describe.load(plain(loaded.resolved))
    document = experiment.run(loaded).document
    told = [one for one in assumptions(document) if one.what == "lengths of all"]
    assert told[0].value.endswith("drawn anew from mine.csv")
