"""Streams and SLO classes: each has its own requests, bounds and target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import requests

from models.strict_yaml import InputError, load_yaml
from sim import experiment
from sim.analysis import metrics
from sim.analysis.metrics import Window
from sim.analysis.slo import goodput_req_s, objectives, row_slo, within
from sim.analysis.streams import Kind
from sim.analysis.summary import measure
from sim.analysis.verdict import verdict
from sim.histogram import LogHistogram
from sim.scenario.load import parse_scenario
from sim.tables import Columns, Status

KINDS = (Kind("chat", "interactive"), Kind("code", "interactive"), Kind("batch", "batch"))
CLASSES = {
    "attainment": 0.9,
    "classes": {
        "interactive": {"ttft_s": {"p95": 1.5}},
        "batch": {"e2e_s": {"p50": 10.0}, "attainment": 0.5},
    },
}


def mixed(late: int = 0, slow: int = 0, n: int = 300) -> Columns:
    """Streams 0, 1, 2 in turn; ``late`` first tokens of stream 0, ``slow`` requests of stream 2."""
    stream = np.arange(n, dtype=np.int32) % 3
    table = requests(n, stream=stream)
    for name in ("first_token_s", "finish_s"):
        table[name][np.flatnonzero(stream == 0)[:late]] += 1.0
    table["finish_s"][np.flatnonzero(stream == 2)[:slow]] += 20.0
    return table


def measured(table: Columns, slo: Any = CLASSES, **options: Any) -> dict[str, Any]:
    asked = {"open_loop": True, "warmup": 0.0, "streams": KINDS, "slo": slo, **options}
    return measure([table], LogHistogram(), gpus=1, **asked)


# SLO classes


def test_every_class_has_its_own_bounds_and_target() -> None:
    slo = measured(mixed(late=30, slow=40))["slo"]
    interactive, batch = slo["classes"]["interactive"], slo["classes"]["batch"]
    assert interactive == {
        "attainment": pytest.approx(170 / 200),
        "target": 0.9,
        "missed": ["TTFT p95 over 1500 ms", "85 % of requests within it, 90 % asked"],
        "met": False,
    }
    assert batch == {"attainment": pytest.approx(0.6), "target": 0.5, "missed": [], "met": True}
    assert slo["missed"] == [
        "class interactive: TTFT p95 over 1500 ms",
        "class interactive: 85 % of requests within it, 90 % asked",
    ]
    assert slo["met"] is False


def test_a_row_meets_its_slo_only_if_every_class_does() -> None:
    assert measured(mixed())["slo"]["met"]
    assert not measured(mixed(late=21))["slo"]["met"]
    assert not measured(mixed(slow=51))["slo"]["met"]
    assert measured(mixed(late=5, slow=45))["slo"]["met"]


def test_the_rows_attainment_is_the_share_within_the_bounds_of_their_own_class() -> None:
    slo = measured(mixed(late=30, slow=40))["slo"]
    assert slo["attainment"] == pytest.approx(230 / 300)
    assert slo["target"] == 0.9
    assert slo["goodput_req_s"] == pytest.approx(slo["attainment"], rel=0.03)


def test_bounds_outside_the_classes_hold_for_streams_without_one() -> None:
    kinds = (Kind("chat", "interactive"), Kind("code"), Kind("batch"))
    slo = {
        "e2e_s": {"p50": 2.0},
        "attainment": 0.9,
        "classes": {"interactive": {"ttft_s": {"p95": 1.5}}},
    }
    found = measured(mixed(), slo, streams=kinds)["slo"]
    assert found["missed"] == ["E2E p50 over 2000 ms", "90 % asked"]
    assert found["classes"]["interactive"]["met"]
    assert found["attainment"] == pytest.approx(1 / 3)


def test_requests_no_bound_concerns_are_left_out_of_the_share() -> None:
    kinds = (Kind("chat", "interactive"), Kind("code"), Kind("batch"))
    slo = {"attainment": 0.9, "classes": {"interactive": {"ttft_s": {"p95": 1.5}}}}
    found = measured(mixed(late=50), slo, streams=kinds)["slo"]
    assert found["attainment"] == pytest.approx(0.5)
    table = mixed(late=50)
    asked = objectives(slo, [kind.slo_class for kind in kinds])
    assert goodput_req_s(table, asked, Window(-1.0, 400.0)) == pytest.approx(50 / 401)


@pytest.mark.parametrize("gone", [s for s in Status if s is not Status.FINISHED])
def test_every_request_that_did_not_finish_is_a_miss_of_its_class(gone: Status) -> None:
    table = mixed()
    table["status"][2:60:3] = gone
    found = row_slo(objectives(CLASSES, [k.slo_class for k in KINDS]), table, 0.9, False)
    assert found["classes"]["batch"]["attainment"] == pytest.approx(0.8)
    assert found["classes"]["interactive"]["attainment"] == 1.0


def test_a_class_of_which_nothing_was_measured_is_not_met() -> None:
    table = metrics.select(mixed(), np.arange(300) % 3 < 2)
    found = measured(table)["slo"]
    assert found["classes"]["batch"]["attainment"] is None
    assert found["missed"] == ["class batch: no request measured"]


def test_the_verdict_names_the_class_that_misses() -> None:
    row = {"hypothetical": False, "speedup": None, "baseline": True, "band": {}}
    text = verdict({**row, **measured(mixed(late=30))})
    late = "class interactive: TTFT p95 over 1500 ms"
    assert f"SLO missed ({late}, class interactive: 85 % of requests within it, 90 % asked)" in text
    assert "90 % of requests within it" in text


def test_without_classes_the_bounds_hold_for_all() -> None:
    slo = {"ttft_s": {"p95": 1.5}, "attainment": 0.99}
    found = measured(mixed(late=30), slo, streams=(Kind("a"), Kind("b"), Kind("c")))["slo"]
    assert found["attainment"] == pytest.approx(0.9)
    assert found["missed"] == ["TTFT p95 over 1500 ms", "99 % asked"]
    assert found["classes"] == {}
    assert measured(mixed(), {"attainment": 0.99})["slo"] is None


def test_a_request_must_meet_the_loosest_bound_of_each_latency() -> None:
    slo = {"ttft_s": {"p50": 1.2, "p95": 2.5}, "attainment": 0.9}
    found = measured(mixed(late=30), slo, streams=(Kind("a"), Kind("b"), Kind("c")))["slo"]
    assert (found["attainment"], found["met"]) == (1.0, True)


def test_bounds_nobody_is_under_ask_nothing() -> None:
    asked = objectives({**CLASSES, "tpot_s": {"p95": 1.0}}, ["batch", "batch"])
    assert [(part.name, part.target, part.streams) for part in asked] == [("batch", 0.5, (0, 1))]


@given(st.lists(st.sampled_from([None, "interactive", "batch"]), min_size=3, max_size=3))
def test_any_assignment_of_classes_leaves_every_request_under_one_objective(
    classes: list[str | None],
) -> None:
    slo = {**CLASSES, "tpot_s": {"p95": 1.0}}
    table = mixed(late=30, slow=40)
    asked = objectives(slo, classes)
    held = sum(objective.rows(table).astype(int) for objective in asked)
    assert (np.asarray(held) == 1).all()
    met, bound = within(table, asked)
    assert bound.all()
    parts = [metrics.select(table, objective.rows(table)) for objective in asked]
    by_part = [metrics.meets(p, o.limits).sum() for p, o in zip(parts, asked, strict=True)]
    assert sum(by_part) == met.sum()


# Streams


def test_every_stream_has_its_own_row_in_the_order_of_the_scenario() -> None:
    row = measured(mixed(late=30, slow=40))
    chat, code, batch = row["streams"]
    assert [part["stream"] for part in row["streams"]] == ["chat", "code", "batch"]
    assert [part["slo_class"] for part in row["streams"]] == ["interactive", "interactive", "batch"]
    assert [part["requests"] for part in row["streams"]] == [100] * 3
    assert chat["ttft_s"]["p95"] == pytest.approx(2.0)
    assert code["ttft_s"]["p95"] == pytest.approx(1.0)
    assert batch["e2e_s"]["p95"] == pytest.approx(23.0)
    assert [part["slo"]["attainment"] for part in row["streams"]] == pytest.approx([0.7, 1, 0.6])
    # The class misses because of chat: code on its own holds it.
    assert [part["slo"]["met"] for part in row["streams"]] == [False, True, True]


def test_one_stream_is_the_row_itself() -> None:
    assert measured(requests(50), {"attainment": 0.9}, streams=(Kind("all"),))["streams"] == []


def test_counts_of_streams_add_up_to_the_rows() -> None:
    table = mixed()
    table["status"][:7] = Status.TIMED_OUT
    row = measured(table, warmup=0.5)
    assert sum(part["requests"] for part in row["streams"]) == 300
    assert sum(part["finished"] for part in row["streams"]) == row["finished"] == 293


def test_latencies_of_streams_leave_the_warmup_out_as_the_rows_do() -> None:
    table = mixed()
    table["first_token_s"][:150] += 1.5
    row = measured(table, warmup=0.5)
    assert [part["ttft_s"]["p99"] for part in row["streams"]] == pytest.approx([1.0] * 3)
    assert row["ttft_s"]["p99"] == pytest.approx(1.0)


def test_a_stream_without_a_request_has_nothing_to_tell() -> None:
    kinds = (*KINDS, Kind("rare"))
    rare = measured(mixed(), streams=kinds)["streams"][3]
    assert (rare["requests"], rare["finished"], rare["slo"]) == (0, 0, None)
    assert set(rare["e2e_s"].values()) == {None}


def test_a_saturated_row_promises_no_latency_of_a_stream_either() -> None:
    table = mixed()
    table["status"][-30:] = Status.UNFINISHED
    row = measured(table)
    assert row["saturated"]
    for part in row["streams"]:
        assert set(part["ttft_s"].values()) == {None}
        assert part["slo"]["met"] is False
    assert row["slo"]["met"] is False


# In a run

SCENARIO = """
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 10}
  requests: 300
  streams:
    - {name: chat, share: 0.7, slo_class: interactive, output_tokens: {kind: fixed, value: 40}}
    - {name: batch, share: 0.3, output_tokens: {kind: fixed, value: 200}}
strategies: [{kind: autoregressive}]
slo: {e2e_s: {p95: 1.0}, classes: {interactive: {tpot_s: {p95: 0.5}}}}
run: {band: false, warmup: 0}
"""


def test_a_run_tells_of_each_stream_and_class() -> None:
    result = experiment.run(parse_scenario(load_yaml(SCENARIO, "x"), []))
    (row,) = result.document["rows"]
    chat, batch = row["streams"]
    table = result.requests[0].columns
    e2e = metrics.e2e_s(metrics.select(table, table["stream"] == 1))
    assert batch["e2e_s"]["p95"] == np.quantile(e2e, 0.95)
    assert batch["e2e_s"]["mean"] > 3 * chat["e2e_s"]["mean"]
    assert (chat["slo"]["met"], batch["slo"]["met"], row["slo"]["met"]) == (True, False, False)
    assert row["slo"]["missed"] == ["E2E p95 over 1000 ms", "95 % asked"]


def complaint(*overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_scenario(load_yaml(SCENARIO, "what-if.yaml"), overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "workload.streams[0].slo_class=interactiv",
            "workload.streams[0].slo_class: unknown SLO class, got 'interactiv'; did you mean "
            "'interactive'?",
        ),
        ("workload.streams[1].slo_class=x", "got 'x'; there is interactive"),
        ("slo.classes={}", "slo_class: unknown SLO class, got 'interactive'; slo.classes is empty"),
        (
            "slo.classes.nobody={ttft_s: {p95: 1}}",
            "slo.classes.nobody: no stream has the slo_class 'nobody'",
        ),
        (
            "workload.streams[1].slo_class=interactive",
            "slo.e2e_s: bounds no request: every stream has a class",
        ),
        (
            "slo.classes.interactive={attainment: 0.9}",
            "slo.classes.interactive: needs at least one of ttft_s, tpot_s, e2e_s",
        ),
        ("slo.classes.interactive.tpot_s={}", "needs at least one of p50, p90, p95, p99"),
        ("slo.classes.interactive.ttf_s={p95: 1}", "unknown key; did you mean 'ttft_s'"),
        ("run.window_s=0.5", "run.window_s: must be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(override: str, expected: str) -> None:
    assert expected in complaint(override)
