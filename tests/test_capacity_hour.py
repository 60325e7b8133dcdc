"""Every window of the busiest hour against every bound, and runs that end once that is clear."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from models.schema import ModelError
from models.strict_yaml import load_yaml
from sim.analysis import metrics
from sim.engine.simulate import simulate
from sim.planning import certain, hour
from sim.planning.busy_hour import Stretch, placed
from sim.planning.hour import Judge, Judged, judge, quantile
from sim.scenario.load import parse_scenario
from sim.scenario.schema import Scenario
from sim.tables import Columns

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
engine: {max_num_seqs: 48}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  streams:
    - prompt_tokens: {kind: lognormal, mean: 400, cv: 1}
      output_tokens: {kind: lognormal, mean: 60, cv: 0.8}
strategies: [{kind: autoregressive}]
slo: {ttft_s: {p95: 0.2}, tpot_s: {p90: 0.012}, e2e_s: {p99: 3}, attainment: 0.9}
"""
SHORT = Stretch(4.0, 20.0, 10.0)
CLASSES = (
    "workload.streams=[{name: chat, share: 0.8, slo_class: quick, output_tokens: {kind: fixed, "
    "value: 50}}, {name: batch, share: 0.2, slo_class: slow, output_tokens: {kind: fixed, value: "
    "120}}]",
    "slo={attainment: 0.9, classes: {quick: {ttft_s: {p95: 0.2}}, slow: {e2e_s: {p50: %g}}}}",
)
CLOSED = ("workload.arrivals={kind: closed_loop, users: 8, think_s: 1, think_cv: 1}",)
SESSIONS = (
    "workload.streams=[{session: {turns: {kind: fixed, value: 3}, think_s: 2}, prompt_tokens: "
    "{kind: fixed, value: 200}, output_tokens: {kind: lognormal, mean: 60, cv: 1}}]",
)
BURSTS = ("workload.arrivals={kind: gamma, rate_per_s: 8, cv: 1.5}",)
GIVE_UP = ("workload.client={first_token_timeout_s: 1, timeout_s: 4}", "engine.queue_limit=40")
OUTAGE = (
    "hardware.gpus=2",
    "model.replicas=2",
    "failures=[{replica: 1, at_s: 8, restart: {load_bytes_per_s: 2e9, boot_s: 5}}]",
)
CASES = {
    "poisson": ((), 24.0),
    "bursts": (BURSTS, 18.0),
    "classes": ((CLASSES[0], CLASSES[1] % 1.5), 24.0),
    "closed": (CLOSED, 60.0),
    "sessions": (SESSIONS, 14.0),
    "clients give up": (GIVE_UP, 28.0),
    "replica lost": (OUTAGE, 30.0),
}


def scenario(*overrides: str) -> Scenario:
    return parse_scenario(load_yaml(TEXT, "x.yaml"), overrides).points[0].scenario


def judge_of(*overrides: str, stretch: Stretch = SHORT, early: bool = True) -> Judge:
    asked = scenario(*overrides)
    return Judge(asked, asked.strategies[0], stretch, early=early)


# Every window, by hand


def windows(begin: float, end: float, length: float) -> Iterator[tuple[float, float]]:
    hop, number = length / 5, 0
    while begin + number * hop + length <= end + 1e-6:
        yield begin + number * hop, begin + number * hop + length
        number += 1


def by_hand(table: Columns, asked: Scenario, stretch: Stretch) -> list[tuple[float, str]]:
    """Every quantile over its bound, and every share of misses over those allowed."""
    end, found = stretch.lead_s + stretch.length_s, []
    streams = asked.workload.streams
    for name, part in [(None, asked.slo), *asked.slo.classes.items()]:
        codes = [code for code, one in enumerate(streams) if one.slo_class == name]
        bounds = {
            metric: getattr(part, metric).model_dump(exclude_none=True) for metric in part.stated
        }
        for begin, until in windows(stretch.lead_s, end, stretch.window_s):
            rows = [
                row
                for row in range(len(table["id"]))
                if begin <= table["arrival_s"][row] < until and table["stream"][row] in codes
            ]
            if len(rows) < 20:
                continue
            late = set()
            for metric, quantiles in bounds.items():
                latency = metrics.LATENCIES[metric](table)
                values = {row: float(latency[row]) for row in rows}
                for row in rows:
                    if table["finish_s"][row] != table["finish_s"][row]:
                        values[row] = math.inf
                    elif math.isnan(values[row]):
                        del values[row]
                late |= {row for row, value in values.items() if value > max(quantiles.values())}
                for statistic, bound in quantiles.items():
                    ordered = sorted(values.values())
                    at = metrics.QUANTILES[statistic] * (len(ordered) - 1)
                    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
                    share = at - math.floor(at)
                    value = low + share * (high - low) if share and high < math.inf else high
                    found.append((value / bound, f"{metric} {statistic}"))
            target = part.attainment or asked.slo.attainment
            share = len(late) / len(rows)
            found.append((share / (1 - target), "attainment"))
    return found


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_every_window_worked_out_by_hand(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides, load = CASES[case]
    tables: list[Columns] = []
    made = hour.request_columns
    monkeypatch.setattr(
        hour, "request_columns", lambda *both: tables.append(made(*both)) or tables[-1]
    )
    one = judge_of(*overrides, early=False)
    for factor in (0.8, 1.3):
        judged = one(float(round(load * factor)))
        nearest = by_hand(tables[-1], one.scenario, SHORT)
        assert len(nearest) > 9
        worst = max(nearest)
        assert judged.met == (worst[0] <= 1)
        if judged.limited_by != "saturated":
            assert judged.margin == pytest.approx(worst[0], rel=1e-9, abs=1e-12)
            assert worst[1] in (judged.limited_by or "")


# Ending early


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_ends_early_has_the_answer_of_the_whole_run(case: str) -> None:
    overrides, load = CASES[case]
    early, whole = judge_of(*overrides), judge_of(*overrides, early=False)
    answers = []
    for factor in (0.5, 1.0, 1.3, 2.0):
        at = float(round(load * factor))
        soon, late = early(at), whole(at)
        answers.append(soon.met)
        assert soon.met == late.met
        assert not late.stopped
        assert not (soon.stopped and soon.met)
        assert soon.simulated <= late.simulated
        if not soon.stopped:
            assert soon == late
    assert len(set(answers)) == 2, answers
    assert soon.stopped


def test_overload_is_seen_long_before_the_run_is_over() -> None:
    stretch = Stretch(5.0, 120.0, 20.0)
    soon = judge_of(stretch=stretch)(48.0)
    late = judge_of(stretch=stretch, early=False)(48.0)
    assert (soon.met, soon.margin, soon.stopped) == (False, math.inf, True)
    assert soon.limited_by in ("ttft_s p95", "tpot_s p90", "e2e_s p99", "attainment")
    assert soon.simulated < 0.25 * late.simulated


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
def test_a_quantile_is_lost_with_just_as_many_misses_as_no_other_answer_can_mend(q: float) -> None:
    """The others at once, and the misses hardly late."""
    for held in range(1, 300):
        needed = int(certain.too_many(np.array([held]), q)[0])
        for misses in (needed - 1, needed):
            values = np.append(np.zeros(held - misses), np.full(misses, 1.0))
            assert (np.quantile(values, q) == 1.0) == (misses == needed), (held, misses)


def test_a_watched_run_is_the_run() -> None:
    one = judge_of()
    at = placed(one.scenario.workload, 20.0, SHORT)
    requests, _ = hour.requests_of(at, one.setup, 1, 0, SHORT)
    looks: list[float] = []
    watched = simulate(one.setup.plan(), requests, 7, on_look=lambda _, now_s: looks.append(now_s))
    assert watched.log == simulate(one.setup.plan(), requests, 7).log
    assert looks == sorted(looks)
    assert len(looks) >= 100


def test_an_interrupt_is_no_answer() -> None:
    def stop(answered: int, total: int) -> None:
        if answered > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_of()(20.0, on_answers=stop)


# What counts


def test_each_class_is_held_by_itself() -> None:
    """A bound on the fifth of the requests that are slow, and on nobody else."""
    loose = judge_of(CLASSES[0], CLASSES[1] % 5)(16.0)
    tight = judge_of(CLASSES[0], CLASSES[1] % 0.9)(16.0)
    assert loose.met
    assert not tight.met
    whole = judge_of(CLASSES[0], CLASSES[1] % 0.9, early=False)(16.0)
    assert (whole.limited_by or "").startswith("class slow")


def test_load_before_the_stretch_is_not_judged() -> None:
    """A replica that is away during the lead alone: nobody in the stretch notices."""
    lost = (*OUTAGE[:2], "failures=[{replica: 1, at_s: 0, restart: {load_bytes_per_s: 8e8}}]")
    assert judge_of(*lost, stretch=Stretch(30.0, 30.0, 10.0))(40.0).met
    assert not judge_of(*lost, stretch=Stretch(0.0, 60.0, 10.0))(40.0).met


def test_few_requests_are_judged_over_the_whole_stretch() -> None:
    judged = judge_of()(1.5)
    assert judged.met
    assert judged.worst is not None
    assert judged.worst["start_s"] == SHORT.lead_s
    assert 20 < judged.worst["requests"] < 50


def test_the_same_draws_come_at_every_load() -> None:
    one = judge_of()
    slow, fast = (
        hour.requests_of(placed(one.scenario.workload, load, SHORT), one.setup, 1, 0, SHORT)[0]
        for load in (5.0, 10.0)
    )
    n = len(slow)
    assert n < len(fast)
    assert np.allclose(slow.arrival_s, 2 * fast.arrival_s[:n])
    assert (slow.prompt_tokens == fast.prompt_tokens[:n]).all()
    assert (slow.output_tokens == fast.output_tokens[:n]).all()
    assert one(24.0) == one(24.0)
    assert one(24.0) != one(24.0, replication=1)


def test_slower_steps_are_nearer_to_the_bounds() -> None:
    one = judge_of(early=False)
    margins = [one(16.0, scale=scale).margin for scale in (0.8, 1.0, 1.2)]
    assert margins == sorted(margins)
    assert margins[0] < 0.9 * margins[2]


def test_of_a_day_the_hour_around_its_peak_counts() -> None:
    day = (
        "workload.arrivals={kind: diurnal, mean_rate_per_s: 8, peak_factor: 3, peak_hour: %g, "
        "period_s: 3600}"
    )
    stretch = Stretch(30.0, 1440.0, 20.0)
    one = judge_of(day % 14)
    at = placed(one.scenario.workload, 6.0, stretch)
    assert at.span == pytest.approx((30.0, 90.0))
    requests, span = hour.requests_of(at, one.setup, 1, 0, stretch)
    inside = (requests.arrival_s >= span[0]) & (requests.arrival_s < span[1])
    assert inside.sum() / 60 == pytest.approx(18.0, rel=0.1)
    early = placed(judge_of(day % 0).scenario.workload, 6.0, stretch).workload.arrivals
    assert early.start_hour == pytest.approx(24 - 60 / 150)


def test_a_closed_loop_lasts_as_long_as_the_stretch() -> None:
    one = judge_of(*CLOSED)
    for users in (1.0, 20.0):
        judged = one(users)
        assert judged.met
        assert judged.simulated > users * 24 / 4


def test_a_trace_is_replayed_whole(tmp_path: Any) -> None:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2024-05-10 00:{s // 60:02d}:{s % 60:02d}.000,400,40" for s in range(120)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    one = judge_of(f"workload={{arrivals: {{kind: trace, file: {path}}}}}", stretch=SHORT)
    judged = one(3.0)
    assert judged.met
    assert judged.simulated == 360
    assert judged.worst is not None
    assert judged.worst["start_s"] >= SHORT.lead_s


def test_refused_requests_are_later_than_any_bound() -> None:
    """All that are answered are early; a fifth is refused."""
    few = (
        "engine.queue_limit=1",
        "engine.max_num_seqs=4",
        "slo={ttft_s: {p90: 1}, attainment: 0.1}",
    )
    judged = judge_of(*few, early=False)(16.0)
    assert judged.worst is not None
    assert judged.worst["ttft_s_p95"] < 1
    assert (judged.met, judged.margin, judged.limited_by) == (False, math.inf, "ttft_s p90")


def test_a_load_within_wide_bounds_must_not_saturate() -> None:
    one = judge_of("slo={e2e_s: {p95: 1000}}", stretch=Stretch(10.0, 120.0, 20.0))
    held = one(16.0)
    assert (held.met, held.stopped) == (True, False)
    full = one(80.0)
    assert (full.met, full.limited_by) == (False, "saturated")


def test_without_bounds_there_is_nothing_to_judge_by() -> None:
    with pytest.raises(ModelError, match="needs at least one bound"):
        judge_of("slo={attainment: 0.9}")


def test_a_ramp_has_no_single_load() -> None:
    ramp = (
        "workload={arrivals: {kind: ramp, from_per_s: 1, to_per_s: 2, over_s: 60}, requests: 100}"
    )
    with pytest.raises(ModelError, match="no single load"):
        asked = scenario(ramp)
        judge(asked, asked.strategies[0], 2.0, stretch=SHORT)


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([1.0, 2.0, math.inf], 0.5, 2.0),
        ([1.0, 2.0, math.inf], 0.75, math.inf),
        ([math.inf], 0.5, math.inf),
        ([], 0.5, 0.0),
    ],
)
def test_quantiles_with_answers_that_never_come(
    values: list[float], q: float, expected: float
) -> None:
    assert quantile(np.array(values), q) == expected


def test_what_is_told_is_plain() -> None:
    judged = judge_of()(8.0)
    assert isinstance(judged, Judged)
    assert judged.query_tokens is not None and judged.query_tokens > 1
    assert set(judged.worst or {}) == {
        "start_s",
        "requests",
        "ttft_s_p95",
        "tpot_s_p95",
        "e2e_s_p95",
        "attainment",
    }
