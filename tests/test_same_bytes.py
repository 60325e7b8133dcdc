"""The same scenario and seed give the same bytes, and common random numbers stay common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.strict_yaml import load_yaml
from sim import experiment
from sim.output import FILES
from sim.scenario.load import parse_scenario
from sim.tables import Columns

EAGLE = "{kind: eagle3, k: 3, acceptance: {tau: 2.4}}"
NGRAM = "{kind: ngram, k: 4, acceptance: {match_rate: 0.3, alpha: 0.7}}"
PLAIN = "{kind: autoregressive}"
CHAT = "prompt_tokens: {kind: lognormal, mean: 300, cv: 0.8}"
CODE = "prompt_tokens: {kind: lognormal, mean: 900, cv: 0.5}"


def scenario(*strategies: str, chat: str = CHAT, code: str = CODE) -> str:
    return f"""\
# Does it come out the same twice?
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-8b, replicas: 2}}
workload:
  arrivals: {{kind: poisson, rate_per_s: 30}}
  requests: 150
  streams:
    - {{name: chat, share: 0.6, {chat}, prefix: {{tokens: 50, groups: 4}}}}
    - {{name: code, share: 0.4, domain: code, {code}}}
strategies: [{", ".join(strategies)}]
run: {{seed: 11, replications: 2}}
"""


def command(path: Path, out: Path, hash_seed: str, *arguments: str) -> bytes:
    """Run the command line in a process of its own; its stdout."""
    start = [sys.executable, "-c", "from sim.cli import main; main()", "run", str(path)]
    done = subprocess.run(
        [*start, "--out", str(out), *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, Path]]:
    folder = tmp_path_factory.mktemp("bytes")
    path = folder / "whatif.yaml"
    path.write_text(scenario(PLAIN, EAGLE, NGRAM), "utf-8")
    asked: dict[str, tuple[str, ...]] = {
        "first": ("1",),
        "again": ("2",),
        "other": ("3", "--json", "--set", "run.seed=12"),
    }
    return {
        name: (command(path, folder / name, hash_seed, *arguments), folder / name)
        for name, (hash_seed, *arguments) in asked.items()
    }


def test_stdout_is_the_same_to_the_byte(runs):
    assert runs["first"][0] == runs["again"][0]
    assert b"eagle3" in runs["first"][0]


def test_files_are_the_same_to_the_byte(runs):
    for name in (*FILES, "figures/distribution_ttft.svg", "figures/step.png"):
        first, again = ((runs[run][1] / name).read_bytes() for run in ("first", "again"))
        assert first == again, name


def test_json_on_stdout_is_the_summary(runs):
    stdout, folder = runs["other"]
    assert stdout == (folder / "summary.json").read_bytes()


def test_another_seed_gives_other_requests(runs):
    for name in ("requests.parquet", "steps.parquet", "summary.json"):
        other = (runs["other"][1] / name).read_bytes()
        assert other != (runs["first"][1] / name).read_bytes(), name


def tables(text: str) -> tuple[dict[str, Any], dict[tuple[str, int], Columns]]:
    """Rows by strategy, and request tables by strategy and replication."""
    result = experiment.run(parse_scenario(load_yaml(text, "x.yaml"), ["run.band=false"]))
    rows = {row["strategy"]: row for row in result.document["rows"]}
    return rows, {(run.strategy, run.replication): run.columns for run in result.requests}


def same(one: Columns, two: Columns, *names: str) -> bool:
    return all(np.array_equal(one[name], two[name]) for name in names)


def test_strategies_share_arrivals_and_lengths():
    rows, runs = tables(scenario(PLAIN, EAGLE, NGRAM))
    shared = ("arrival_s", "prompt_tokens", "output_tokens", "stream")
    for replication in (0, 1):
        plain = runs["autoregressive", replication]
        for strategy in rows:
            assert same(plain, runs[strategy, replication], *shared), strategy
        assert not same(plain, runs["eagle3 K=3", replication], "finish_s")
    for name in shared:
        assert not same(runs["autoregressive", 0], runs["autoregressive", 1], name)


def test_the_order_of_strategies_changes_nothing():
    rows, runs = tables(scenario(PLAIN, EAGLE, NGRAM))
    turned_rows, turned_runs = tables(scenario(NGRAM, EAGLE, PLAIN))
    assert list(turned_rows) == list(rows)[::-1]
    assert turned_rows == rows
    for key, run in runs.items():
        assert same(run, turned_runs[key], *run)


def test_a_strategy_alone_gives_what_it_gives_beside_others():
    rows, runs = tables(scenario(PLAIN, NGRAM, EAGLE))
    alone_rows, alone_runs = tables(scenario(PLAIN, EAGLE))
    assert alone_rows["eagle3 K=3"] == rows["eagle3 K=3"]
    assert same(runs["eagle3 K=3", 1], alone_runs["eagle3 K=3", 1], "finish_s", "accepted")


def test_lengths_of_one_stream_move_nothing_else():
    _, runs = tables(scenario(PLAIN))
    _, changed = tables(scenario(PLAIN, code="prompt_tokens: {kind: fixed, value: 40}"))
    before, after = runs["autoregressive", 0], changed["autoregressive", 0]
    assert same(before, after, "arrival_s", "stream", "output_tokens")
    chat = before["stream"] == 0
    assert 0 < chat.sum() < len(chat)
    assert (before["prompt_tokens"][chat] == after["prompt_tokens"][chat]).all()
    assert (after["prompt_tokens"][~chat] == 40).all()


def test_the_rate_moves_arrivals_only():
    text = scenario(PLAIN)
    _, runs = tables(text)
    _, faster = tables(text.replace("rate_per_s: 30", "rate_per_s: 60"))
    before, after = runs["autoregressive", 1], faster["autoregressive", 1]
    assert same(before, after, "prompt_tokens", "output_tokens", "stream")
    np.testing.assert_allclose(before["arrival_s"], 2 * after["arrival_s"])
