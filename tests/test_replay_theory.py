"""Replayed acceptance against its record, and its time from end to end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from invariants import run as run_scenario
from passages import draw, of_each, shares
from scipy.stats import chisquare
from server import Cost, closed_loop, serve

from models.strict_yaml import load_yaml
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import prepare

RECORD = """\
version: 1
title: By hand
target: llama-2-7b
date: '2026-01-01'
source: made up
entries:
  chain:
    strategy: {kind: draft_model, draft: llama-68m, k: 3}
    tau: {code: {value: %(tau).9f, lo: 1.0, hi: 4.0, steps: %(steps)d, requests: %(requests)d}}
    standard_errors: {code: {alpha_by_pos: [0.1, 0.1, 0.1]}}
    acceptance: {by_domain: {code: {alpha_by_pos: [0.5, 0.5, 0.5], spread: 0.0, basis: validated}}}
    replay: {code: {accepted: [%(accepted)s]}}
"""
SCENARIO = """\
hardware: {gpu: a100_80g_sxm}
model: {transformer: llama-2-7b}
engine: {name: vllm_0.15, max_num_seqs: 1}
workload:
  arrivals: {kind: closed_loop, users: 1}
  requests: 12
  streams:
    - domain: code
      prompt_tokens: {kind: fixed, value: 16}
      output_tokens: {kind: fixed, value: 201}
strategies:
  - {kind: draft_model, draft: llama-68m, k: 3, acceptance: {file: %s, entry: chain, replay: true}}
run: {warmup: 0, band: false}
"""
EVEN = ("3 3 3 3 3", "0 1 0 2 0 1 0 0 0 0 0 0 0 0 0 0", "1 2 1 2 1 2 1 2")
"""Twenty tokens each, as where every answer has the same length."""
UNEVEN = ("3 3", "0 1 0 2 0 1 0 0 0 0 0 0 0 0 0 0 1 0 0 1 0 0 0", "1 2 1 2 1 2 1 2")


def counts(record):
    return [[int(count) for count in one.split()] for one in record]


def recorded_tau(record) -> float:
    return 1.0 + float(np.mean(np.concatenate(counts(record))))


def scenario(tmp_path, record=EVEN) -> str:
    path = tmp_path / "acceptance.yaml"
    accepted = ", ".join(f'"{one}"' for one in record)
    steps, requests = sum(map(len, counts(record))), len(record)
    about = {"accepted": accepted, "steps": steps, "requests": requests}
    path.write_text(RECORD % {**about, "tau": recorded_tau(record)})
    return SCENARIO % path


def replayed(tmp_path, record=EVEN):
    file = parse_scenario(load_yaml(scenario(tmp_path, record), "scenario.yaml"), [])
    point = file.points[0].scenario
    strategy = next(one for one in point.strategies if one.kind == "draft_model")
    return prepare(build(point), strategy, point.workload.domain_names).law


@pytest.mark.parametrize("record", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_a_long_replay_has_the_recorded_tau(record, tmp_path):
    law = replayed(tmp_path, record)
    assert law.tau == pytest.approx(recorded_tau(record), abs=1e-9)
    paths = draw(law, 300, 20_000)
    shares(of_each(paths, paths.accepted + 1), np.diff(paths.offsets), law.tau, 0.01)


def in_order(mine: list[int], recorded: list[list[int]]) -> bool:
    """Whether it is recorded requests one after another, begun and left off anywhere."""
    states = {(row, at) for row, one in enumerate(recorded) for at in range(len(one))}
    for count in mine:
        here = {(row, at) for row, at in states if recorded[row][at] == count}
        states = {(row, at + 1) for row, at in here if at + 1 < len(recorded[row])}
        if any(at + 1 == len(recorded[row]) for row, at in here):
            states |= {(row, 0) for row in range(len(recorded))}
        if not here:
            return False
    return True


@pytest.mark.parametrize("record", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_a_replayed_request_does_what_recorded_ones_did_in_their_order(record, tmp_path):
    """Within a recorded request steps follow as they did; only its end may meet a beginning."""
    paths = draw(replayed(tmp_path, record), 400, 15)
    for begin, end in pairwise(paths.offsets):
        assert in_order(paths.accepted[begin:end].tolist(), counts(record))
    firsts = Counter(paths.accepted[paths.offsets[:-1]].tolist())
    assert len(firsts) >= 3, "requests replay different recorded ones"


def test_an_answer_as_long_as_the_recorded_ones_is_one_of_them(tmp_path):
    """Twenty tokens: each of the three whole, as often as the others."""
    paths = draw(replayed(tmp_path), 900, 20)
    found = Counter(
        tuple(paths.accepted[begin:end].tolist()) for begin, end in pairwise(paths.offsets)
    )
    assert set(found) == set(map(tuple, counts(EVEN)))
    assert chisquare(list(found.values())).pvalue > 1e-3
    shares(of_each(paths, paths.emitted), np.diff(paths.offsets), recorded_tau(EVEN), 0.1)


def test_one_recorded_request_is_replayed_over_and_over(tmp_path):
    cycle = "0 2 1 3 0 0 1"
    law = replayed(tmp_path, (cycle,))
    paths = draw(law, 20, 500)
    around = (counts((cycle,))[0]) * 200
    turns = [around[start : start + 400] for start in range(7)]
    for r in range(20):
        mine = paths.accepted[paths.offsets[r] : paths.offsets[r + 1]].tolist()
        assert any(mine == turn[: len(mine)] for turn in turns)


def test_a_replay_emits_what_is_asked_and_fewer_tokens_begin_alike(tmp_path):
    law, ids = replayed(tmp_path, UNEVEN), np.array([9, 2, 77, 4, 5])
    tokens = np.array([900, 0, 300, 1, 40])
    whole = law.paths(1, ids, tokens, 0 * ids, 0 * ids)
    for r, wanted in enumerate(tokens):
        part = slice(*whole.offsets[[r, r + 1]])
        emitted, accepted = whole.emitted[part], whole.accepted[part]
        assert emitted.sum() == wanted and (emitted >= 1).all()
        assert (emitted[:-1] == accepted[:-1] + 1).all() and (emitted <= accepted + 1).all()
    for few in (1, 13, 200, 299):
        alone = law.paths(1, ids[2:3], np.array([few]), 0 * ids[2:3])
        assert (alone.accepted == whole.accepted[whole.offsets[2] :][: alone.accepted.size]).all()


# From end to end


def test_a_lone_user_waits_for_the_steps_of_the_replay(tmp_path):
    """With steps of one length TPOT is that length times steps over tokens."""
    law, requests = replayed(tmp_path), closed_loop(1, 60)
    requests.output_tokens[:] = 201
    run = serve(requests, Cost(0.01), law)
    paths = law.paths(1, np.arange(60), np.full(60, 200), requests.domain, requests.prompt_tokens)
    decode_s = np.array(run.log.finish_s) - np.array(run.log.first_token_s)
    assert decode_s == pytest.approx(0.01 * np.diff(paths.offsets), rel=1e-9)


def test_tpot_of_a_scenario_is_the_time_of_its_replayed_steps_over_its_tokens(tmp_path):
    """One user: no queue, no prefill of anyone else in a step, and each step can be priced."""
    text = scenario(tmp_path)
    (ran,) = [one for one in run_scenario(text) if one.setup.strategy.kind == "draft_model"]
    requests, steps = ran.requests, ran.steps
    decoding = steps["n_decode"] == 1
    emitted = steps["emitted"][decoding]
    assert emitted.sum() == 12 * 200
    seconds, at = [], 0
    for number in range(12):
        mine = emitted[at : at + requests["n_steps"][number]]
        at += mine.size
        assert mine.sum() == 200
        assert in_order((mine - 1).tolist()[:-1], counts(EVEN))
        contexts = 17 + np.cumsum(mine) - mine
        took = [ran.setup.step_time.decode(1, int(context)) for context in contexts]
        seconds.append(sum(took))
        passed = requests["finish_s"][number] - requests["first_token_s"][number]
        assert passed == pytest.approx(sum(took), rel=1e-9)
    assert ran.row["tpot_s"]["mean"] == pytest.approx(np.mean(seconds) / 200, rel=1e-9)
    uncut = 1.0 + requests["accepted"].sum() / requests["n_steps"].sum()
    assert ran.row["tau"] == pytest.approx(uncut, rel=1e-9)
