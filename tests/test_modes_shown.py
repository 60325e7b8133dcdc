"""Modes and switches in tables and rows: they add up to what the requests and steps did."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from rows import row, saturated_row
from switching_cases import FIXED, SWITCHING, ran, scenario

from sim import explain
from sim.analysis import mode_plots, modes
from sim.analysis.modes_report import switches
from sim.analysis.report import run_report
from sim.compare import regret
from sim.experiment import Result
from sim.tables import MODES, SWITCHES, Columns, run_to_arrow


@pytest.fixture(scope="module")
def result() -> Result:
    return ran("run.replications=2", keep_steps=True)


@pytest.fixture(scope="module")
def rows(result: Result) -> dict[str, dict[str, Any]]:
    return {row["strategy"]: row for row in result.document["rows"]}


def test_modes_add_up_to_the_requests(result: Result) -> None:
    requests = {run[1:3]: run.columns for run in result.requests}
    assert [run[1:3] for run in result.modes] == [(s, n) for s in SWITCHING for n in (0, 1)]
    for run in result.modes:
        whole, table = requests[run[1:3]], run.columns
        assert table["steps"].sum() == whole["n_steps"].sum()
        for name in ("accepted", "drafted"):
            assert table[name].sum() == whole[name].sum(), (run.strategy, name)
        assert table["emitted"].sum() == table["steps"].sum() + table["accepted"].sum()
        assert (table["accepted"] <= table["offered"]).all()
        assert (table["accepted"] <= table["reached"]).all()
        assert (table["reached"] <= table["offered"]).all()
        assert (table["offered"] <= table["drafted"]).all()


def test_sequences_of_all_modes_are_those_that_decoded(result: Result) -> None:
    steps = {run[1:3]: run.columns for run in result.steps}
    for run in result.modes:
        for replica in (0, 1):
            own, all_steps = run.columns["replica"] == replica, steps[run[1:3]]
            here = all_steps["replica"] == replica
            sequence_s = (run.columns["running"] * run.columns["width_s"])[own].sum()
            decoded_s = (all_steps["duration_s"] * all_steps["n_decode"])[here].sum()
            assert sequence_s == pytest.approx(decoded_s, rel=1e-9)


def test_the_tables_fit_their_schemas(result: Result) -> None:
    for schema, runs in ((MODES, result.modes), (SWITCHES, result.switches)):
        for run in runs:
            table = run_to_arrow(schema, run)
            assert table.schema.equals(schema, check_metadata=True)
            assert table.num_rows == len(run.columns["replica"])


def test_switches_alternate_and_keep_to_the_dwell(result: Result) -> None:
    assert {run.strategy: set(run.columns["of"]) for run in result.switches} == {
        "gate": {"request"},
        "by stream": {"stream"},
        "dynamic": {"engine"},
        "oracle": set(),
    }
    for run in result.switches:
        table = run.columns
        assert (np.diff(table["at_s"]) >= 0).all()
        keys = list(zip(table["replica"], table["owner"], strict=True))
        for key in set(keys):
            own = [place for place, other in enumerate(keys) if other == key]
            for one, two in pairwise(own):
                assert table["mode_from"][two] == table["mode_to"][one]
                assert table["mode_from"][two] != table["mode_to"][two]
        if run.strategy == "dynamic":
            assert (table["owner"] == table["replica"]).all()


def test_rows_tell_shares_tau_and_switches(result: Result, rows: dict[str, Any]) -> None:
    for name in SWITCHING:
        own = rows[name]["modes"].values()
        assert sum(mode["share"] for mode in own) == pytest.approx(1.0)
        steps = sum(mode["steps"] for mode in own)
        emitted = sum(mode["tau"] * mode["steps"] for mode in own if mode["steps"])
        assert emitted / steps == pytest.approx(rows[name]["tau"])
        assert rows[name]["break_even_tau"] is None
        assert rows[name]["step_s"] is None
    assert list(rows["dynamic"]["modes"]) == ["K=0", "K=1", "K=2", "K=3"]
    assert rows["dynamic"]["modes"]["K=0"] == {
        **{"share": 0.0, "steps": 0},
        **{"alpha": None, "acceptance": None, "tau": None},
    }
    for name in SWITCHING[:3]:
        noted = [len(run.columns["at_s"]) for run in result.switches if run.strategy == name]
        assert rows[name]["switches"] == sum(noted) > 0
        assert rows[name]["switches_per_request"] == sum(noted) / 80
        assert rows[name]["switches_per_1000_tokens"] == pytest.approx(1000 * sum(noted) / 5600)
    assert {each["owner"] for each in rows["by stream"]["first_switches"]} <= {"chat", "sql"}
    assert rows["gate"]["gate"] == {
        **{"measure": "alpha", "leave_below": 0.35},
        **{"return_above": 0.35},
    }
    assert "switches" not in rows["oracle"]
    assert switches(rows["oracle"]) == ""


def test_rows_of_other_strategies_say_nothing_of_modes(rows: dict[str, Any]) -> None:
    new = {"modes", "gate", "switches", "first_switches", "regret"}
    for name in FIXED:
        assert not new - {"regret"} & set(rows[name])
    for each in ran("strategies=[{kind: ngram, k: 3}]").document["rows"]:
        assert not new & set(each)
        assert each["step_s"]


def test_every_row_tells_its_regret(rows: dict[str, Any]) -> None:
    best = rows["oracle"]
    assert best["regret"] == {"tok_per_s": 0.0, "tpot_mean": 0.0, "tpot_p95": 0.0}
    for each in rows.values():
        ratio = each["tok_per_s_per_gpu"] / best["tok_per_s_per_gpu"]
        assert each["regret"]["tok_per_s"] == pytest.approx(1 - ratio)
        ratio = each["tpot_s"]["p95"] / best["tpot_s"]["p95"]
        assert each["regret"]["tpot_p95"] == pytest.approx(ratio - 1)


def test_regret_in_an_open_loop_is_of_time_and_none_where_something_saturates() -> None:
    fast, slow = row("oracle", 2.0), row("eagle3", 1.6)
    assert regret(slow, fast) == {
        "tok_per_s": None,
        "tpot_mean": pytest.approx(0.25),
        "tpot_p95": pytest.approx(0.25),
    }
    full = saturated_row("eagle3")
    assert regret(full, fast) is None
    assert regret(fast, full) is None


def test_the_printed_report_has_modes_switches_and_regret(result: Result) -> None:
    text = run_report(result.document, 100)
    assert "time %" in text
    assert "of offered %" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "regret %" in text
    count = next(r["switches"] for r in result.document["rows"] if r["strategy"] == "gate")
    assert f"gate: {count} switches, " in text
    for name in ("gate", "oracle", "eagle3 K=3"):
        assert sum(f" {name} " in line and " sql " in line for line in text.splitlines()) >= 1
    plain = run_report(ran("strategies=[{kind: ngram, k: 3}]").document, 100)
    assert "of offered" not in plain
    assert "regret" not in plain


def table(width_s: tuple[float, float]) -> Columns:
    """Two replicas with bins of their own width, over the same 8 s; two modes."""
    parts = []
    for replica, width in enumerate(width_s):
        bins = int(8 / width)
        parts.append(
            {
                "replica": np.full(2 * bins, replica),
                "start_s": np.repeat(np.arange(bins) * width, 2),
                "width_s": np.full(2 * bins, width),
                "mode": np.tile(np.array(["a", "b"], dtype=object), bins),
                "running": np.tile([3.0, 1.0], bins),
                **{
                    name: np.tile([4, 2], bins)
                    for name in ("steps", "emitted", "reached", "offered")
                },
                "accepted": np.tile([2, 0], bins),
                "drafted": np.tile([4, 2], bins),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize(
    ("width_s", "most", "bins"), [((1, 1), 8, 8), ((1, 4), 8, 2), ((1, 2), 3, 2)]
)
def test_modes_over_time_join_replicas_and_bins(
    width_s: tuple[float, float], most: int, bins: int
) -> None:
    made = modes.course(table(width_s), most)
    assert made.edges.tolist() == np.linspace(0, 8, bins + 1).tolist()
    assert made.running == pytest.approx(np.repeat([[6.0], [2.0]], bins, axis=1))
    assert made.shares == pytest.approx(np.repeat([[0.75], [0.25]], bins, axis=1))
    assert {name: set(v) for name, v in made.readings("acceptance").items()} == {
        "a": {0.5},
        "b": {0},
    }
    assert made.counts["steps"].sum() == table(width_s)["steps"].sum()


def test_latency_along_a_run_follows_the_arrivals() -> None:
    values = np.where(np.arange(100) < 50, 1.0, 3.0)
    values[7] = np.nan
    order = np.random.default_rng(1).permutation(100)
    places, p95 = modes.p95_along(modes.sent_share(np.arange(100.0)[order]), values[order])
    assert len(places) == 4
    assert p95.tolist() == [1.0, 1.0, 3.0, 3.0]
    assert (np.diff(places) > 0).all()


def test_modes_of_one_name_are_told_apart() -> None:
    draft = "{kind: eagle3, k: 2, acceptance: {alpha: 0.7}}"
    gate = f"{{kind: adaptive, hypothetical: true, primary: {draft}, fallback: {draft}}}"
    row = ran(f"strategies=[{gate}]").document["rows"][1]
    assert list(row["modes"]) == ["eagle3 K=2", "eagle3 K=2 (2)"]
    assert sum(mode["share"] for mode in row["modes"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize(("switched", "panels"), [(0, 1), (3, 1), (40, 2)])
def test_thresholds_are_drawn_and_many_switches_as_a_rate(switched: int, panels: int) -> None:
    gate = {"measure": "tau", "leave_below": 1.2, "return_above": 1.5}
    at_s = np.linspace(0, 7, switched)
    ax = mode_plots.modes_over_time(modes.course(table((1, 1))), at_s, gate)
    upper = ax.child_axes[0]
    assert len(ax.child_axes) == panels
    assert [line.get_ydata()[0] for line in upper.lines[-2:]] == [1.2, 1.5]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["leaves below 1.2", "returns from 1.5", "a", "b"] + ["a switch"] * (
        0 < switched < 40
    )
    if panels == 2:
        assert sum(ax.lines[0].get_ydata()[:-1]) == pytest.approx(40)


def test_a_strategy_stepped_one_by_one_under_a_kv_policy_does_not_switch() -> None:
    policy = "{kind: streaming_llm, sinks: 4, window: 64, acceptance_loss: 0, quality_loss: 0}"
    changes = (f"engine.kv_policy={policy}", "strategies=[{kind: eagle3, k: 2}]")
    result = ran(*changes, "workload.requests=10")
    assert not result.modes
    for each in result.document["rows"]:
        assert "modes" not in each
        assert each["step_s"]
    assert not any("mode" in row for row in explain.explain(scenario(*changes))["rows"])
