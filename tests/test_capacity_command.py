"""``speccast capacity``: roots over replications, the table, the document, and Ctrl-C."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from models.strict_yaml import InputError, load_yaml
from sim.analysis.capacity_report import capacity_report
from sim.analysis.report import BASIS
from sim.analysis.verdict import number
from sim.cli import main
from sim.planning import by_strategy
from sim.planning.busy_hour import Stretch
from sim.planning.by_strategy import Asked, Interrupted, capacities
from sim.planning.capacity import Capacity, capacity
from sim.planning.hour import Judge, Judged
from sim.scenario.load import ScenarioFile, parse_scenario

TEXT = """\
# How much does it carry?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
engine: {max_num_seqs: 8}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  sampling: greedy
  streams:
    - prompt_tokens: {kind: lognormal, mean: 400, cv: 1}
      output_tokens: {kind: fixed, value: 60}
strategies: [{kind: eagle3, k: 3}]
slo: {ttft_s: {p95: 0.2}, tpot_s: {p95: 0.012}, e2e_s: {p95: 0.9}, attainment: 0.9}
run: {window_s: 5}
"""
SHORT = Stretch(2.0, 10.0, 5.0)


def load(*overrides: str) -> ScenarioFile:
    return parse_scenario(load_yaml(TEXT, "x.yaml"), overrides)


def searched(*overrides: str, **how: Any) -> Capacity:
    scenario = load(*overrides).points[0].scenario
    return capacity(scenario, scenario.strategies[0], **{"stretch": SHORT, **how})


class Roots:
    """Stands in for the judge: loads up to the root of a replication hold."""

    def __init__(self, *roots: float, arrivals: str = "{kind: poisson, rate_per_s: 10}") -> None:
        self.scenario = load(f"workload.arrivals={arrivals}").points[0].scenario
        self.stretch = SHORT
        self.roots, self.asked = roots, list[tuple[int, float]]()

    def __call__(self, load: float, *, replication: int, scale: float, on_answers: Any) -> Judged:
        self.asked.append((replication, load))
        met = load * scale <= self.roots[replication]
        return Judged(met, 0.9 if met else math.inf, "ttft_s p95", {"load": load}, 100, not met)

    def search(self, **how: Any) -> Capacity:
        strategy = self.scenario.strategies[0]
        asked: Any = self
        how = {"replications": len(self.roots), "guess": 10.0, **how}
        return capacity(self.scenario, strategy, judge=asked, **how)


# Over replications


def test_the_interval_is_students_over_the_roots() -> None:
    found = Roots(10.0, 12.0, 11.0).search(tolerance=1e-6)
    assert found.per_replication == pytest.approx((10.0, 12.0, 11.0), rel=1e-5)
    half = stats.t.ppf(0.95, 2) * 1.0 / math.sqrt(3)
    assert (found.value, found.lo, found.hi) == pytest.approx((11, 11 - half, 11 + half), rel=1e-5)
    assert found.level == 0.9


def test_the_interval_reaches_to_the_loads_that_failed() -> None:
    found = Roots(10.0, 10.0, 10.0).search(tolerance=0.1)
    assert found.value is not None and found.lo is not None and found.hi is not None
    assert found.lo <= found.value <= 10.0 < found.hi <= 1.2 * found.value


def test_later_replications_begin_at_the_roots_before() -> None:
    roots = Roots(80.0, 82.0, 79.0)
    found = roots.search()
    tries = [sum(one == number for one, _ in roots.asked) for number in range(3)]
    assert tries[0] > max(tries[1:])
    assert sum(tries) == found.simulations == found.simulated / 100
    later = [load for number, load in roots.asked if number]
    assert min(later) > 60
    assert max(later) < 110


def test_enough_is_not_exceeded() -> None:
    roots = Roots(80.0, 82.0, 79.0)
    found = roots.search(enough=20.0)
    assert roots.asked == [(0, 20.0), (1, 20.0), (2, 20.0)]
    assert (found.value, found.per_replication) == (20.0, (20.0, 20.0, 20.0))
    below = Roots(12.0, 12.0).search(enough=20.0)
    assert below.value == pytest.approx(12.0, rel=0.02)


def test_nothing_holds() -> None:
    found = Roots(0.0, 0.0).search()
    assert (found.value, found.lo, found.per_replication, found.limited_by) == (
        None,
        None,
        (),
        None,
    )


def test_an_slo_that_no_idle_engine_meets_has_no_capacity() -> None:
    found = searched("slo.tpot_s.p95=0.001", replications=2)
    assert (found.value, found.limited_by) == (None, None)
    assert found.simulations < 8


def test_users_are_counted_whole() -> None:
    loop = "{kind: closed_loop, users: 3}"
    found = Roots(37.5, 37.5, arrivals=loop).search(tolerance=1e-3)
    assert found.per_replication == (37.0, 37.0)
    assert Roots(37.5, arrivals=loop).search(enough=20.7).value == 20.0


# Of real engines


def test_the_same_seed_gives_the_same_capacity_early_or_not() -> None:
    found = searched(replications=2)
    assert found == searched(replications=2)
    scenario = load().points[0].scenario
    whole = Judge(scenario, scenario.strategies[0], SHORT, early=False)
    slow = searched(replications=2, judge=whole)
    assert slow[:7] == found[:7]
    assert slow.simulated > found.simulated
    assert found.value != searched("run.seed=2", replications=2).value


def test_looser_bounds_and_faster_steps_carry_more() -> None:
    once = {"replications": 1, "tolerance": 0.05}
    values = [
        searched("slo.ttft_s.p95=0.05", **once).value,
        searched(**once).value,
        searched(**once, scale=0.8).value,
    ]
    assert all(values)
    assert values == sorted(values)
    assert values[0] < values[1] < values[2]


# The command


def short(file: Path, *arguments: str) -> list[str]:
    return ["capacity", str(file), "--hour", "10", "--lead", "2", *arguments]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return capacities(load(), Asked((), 2, SHORT))


class Known:
    """Stands in for a search: the row known of each strategy, until one that is interrupted."""

    def __init__(self, document: dict[str, Any], until: str = "") -> None:
        self.rows, self.until = {row["strategy"]: row for row in document["rows"]}, until

    def __call__(self, point: Any, strategy: Any, *rest: Any) -> dict[str, Any]:
        if strategy.name == self.until:
            raise KeyboardInterrupt
        return self.rows[strategy.name]


def test_rows_state_each_strategy_and_its_band(document: dict[str, Any]) -> None:
    plain, eagle = document["rows"]
    assert (plain["strategy"], plain["ratio"], plain["baseline"]) == ("autoregressive", 1.0, True)
    assert eagle["ratio"] == eagle["capacity"] / plain["capacity"]
    assert document["stretch"] == {"lead_s": 2.0, "length_s": 10.0, "window_s": 5.0}
    assert document["unit"] == "req/s"
    for row in document["rows"]:
        assert row["band"]["lo"] < row["capacity"] < row["band"]["hi"]
        assert row["interval"]["lo"] <= row["capacity"] <= row["interval"]["hi"]
        assert row["per_gpu"] == row["capacity"] / row["gpus"]
        assert row["worst"]["e2e_s_p95"] <= 0.9


def test_table_and_document_say_the_same(
    document: dict[str, Any],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(by_strategy, "_row", Known(document))
    main_exits(short(file, "--json", "--replications", "2"), None)
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out) == document
    main_exits(short(file, "--replications", "2", "--width", "100"), None)
    text = capsys.readouterr().out
    assert text == capacity_report(document, 100)
    assert text.startswith("How much does it carry?\n")
    bounds = (
        "TTFT p95 within 200 ms, TPOT p95 within 12 ms, E2E p95 within 900 ms, and 90 % of requests"
    )
    assert bounds in " ".join(text.split())
    for row in document["rows"]:
        assert number(row["capacity"]) in text
    for width in (60, 100):
        lines = capacity_report(document, width).splitlines()
        assert max(map(len, lines)) <= width
    assert capacity_report(document, 100, colour=True).count("\x1b") > 4


def main_exits(arguments: list[str], status: int | None) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "eagle"], "--only: no strategy 'eagle'; there are 'autoregressive'"),
        (["--set", "workload.arrivals={kind: ramp, from_per_s: 1, to_per_s: 2, over_s: 9}"],
         "workload.arrivals.kind: no single load to search for"),
        (["--set", "model.tp=3"], "model.tp"),
        (["--hour", "nan"], "'--hour': must be 1 to 1e+06 seconds, got nan"),
        (["--hour", "0"], "'--hour': must be 1 to 1e+06 seconds, got 0"),
        (["--lead", "-1"], "'--lead': must be 0 to 1e+06 seconds, got -1"),
        (["--set", "workload.arrivals={kind: closed_loop, users: 2}", "--set", "slo={}"],
         "slo: needs at least one bound: ttft_s, tpot_s, e2e_s"),
        (["--set", "slo={attainment: 0.9}"], "slo={attainment: 0.9}: slo: needs at least one"),
        (["--set", "workload.arrivals={kind: diurnal, mean_rate_per_s: 1, peak_factor: 2}",
          "--set", "slo={}"], "slo={}: slo: needs at least one bound"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    arguments: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_exits(short(file, *arguments), 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_file_without_bounds_is_refused_with_its_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in TEXT.splitlines(True) if not line.startswith("slo:")]
    for slo, at in (("", 2), ("slo: {}\n", len(lines) + 1)):
        file.write_text("".join(lines) + slo)
        main_exits(short(file), 2)
        bounds = "slo: needs at least one bound: ttft_s, tpot_s, e2e_s"
        assert capsys.readouterr().err == f"{file}:{at}: {bounds}\n"


def test_only_what_the_table_shows_is_explained(document: dict[str, Any]) -> None:
    plain, eagle = document["rows"]
    bases = {row["band"]["basis"] for row in document["rows"]}
    text = capacity_report(document, 200)
    for row in document["rows"]:
        (line,) = [line for line in text.splitlines() if line[2:].startswith(row["strategy"])]
        assert row["band"]["basis"] in line.split()
    assert {basis for basis in BASIS if f"{basis} ({BASIS[basis]})" in text} == bases
    nothing = {"capacity": None, "per_gpu": None, "ratio": None, "band": None, "worst": None}
    nothing |= {"limited_by": None, "interval": plain["interval"] | {"lo": None, "hi": None}}
    none = capacity_report(document | {"rows": [plain | nothing, eagle | nothing]}, 100)
    assert "Loosen its bounds, or serve with more GPUs or a larger model.tp." in " ".join(
        none.split()
    )
    for word in ("band", "basis", "largest", "90 %:", ". ."):
        assert word not in none
    assert "Loosen" not in text
    some = capacity_report(document | {"rows": [plain, eagle | nothing]}, 100)
    assert "Loosen" in some
    assert "largest: " in some


def test_a_single_window_is_no_sliding_one(document: dict[str, Any]) -> None:
    assert "Must hold in every 5 seconds of 10 seconds after 2 sec" in capacity_report(document, 99)
    whole = document | {"stretch": {"lead_s": 0.0, "length_s": 60.0, "window_s": 60.0}}
    assert "Must hold in the minute: TTFT" in capacity_report(whole, 100)


def test_the_help_has_no_holes(capsys: pytest.CaptureFixture[str]) -> None:
    main_exits(["capacity", "--help"], 0)
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Seconds that must hold; from 1." in words
    assert " ." not in words


def test_an_interrupted_search_keeps_the_strategies_that_are_complete() -> None:
    scenario = load("slo.tpot_s.p95=0.001")  # soon found to hold at no load

    def second(label: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if label == "eagle3 K=3":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        capacities(scenario, Asked((), 1, SHORT), second)
    document = caught.value.document
    assert [row["strategy"] for row in document["rows"]] == ["autoregressive"]
    assert (document["interrupted"], document["asked"]) == (True, 2)
    assert "not even the least load" in capacity_report(document, 100)

    def first(label: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as bare:
        capacities(scenario, Asked((), 1, SHORT), first)
    assert not isinstance(bare.value, Interrupted)


def test_ctrl_c_prints_what_is_complete(
    document: dict[str, Any],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(by_strategy, "_row", Known(document, until="eagle3 K=3"))
    main_exits(short(file), 130)
    said = capsys.readouterr()
    assert "* autoregressive" in said.out
    assert said.err == "interrupted: 1 of 2 strategies\n"


def test_points_of_a_grid_are_rows() -> None:
    with pytest.raises(InputError):
        by_strategy.check(load(), Asked(("nobody",)))
    varied = load_yaml(TEXT + "vary: {engine.max_num_seqs: [4, 8]}\n", "x.yaml")
    grid = parse_scenario(varied, ["strategies=[{kind: autoregressive}]"])
    document = capacities(grid, Asked((), 1, SHORT))
    few, many = document["rows"]
    assert few["point"] == {"engine.max_num_seqs": 4}
    assert few["capacity"] < many["capacity"]
    assert few["ratio"] == many["ratio"] == 1.0
    assert "max_num_seqs=4" in capacity_report(document, 100)
