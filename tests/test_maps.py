"""Maps of a sweep: the fastest strategy, what lies between points, what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.strict_yaml import InputError, read_yaml
from sim.analysis import map_figures, map_grid, maps
from sim.analysis.map_report import write_report
from sim.analysis.map_words import answer, lines, notes
from sim.planning.sweep.at import operating_point
from sim.scenario.load import expand, load_scenario

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/map_acceptance_by_users.yaml"
USERS, ALPHA = "workload.arrivals.users", "strategies[1].acceptance.alpha"
K = "strategies[1].k"


def row(point: int, strategy: str, rate: float | None, **more: Any) -> dict[str, Any]:
    plain = strategy == "plain"
    base: dict[str, Any] = {
        "point": point,
        "strategy": strategy,
        "baseline": plain,
        "hypothetical": False,
        "best": plain,
        "saturated": rate is None,
        "tok_per_s_per_gpu": rate,
        "offered_req_per_s": None,
        "speedup": None if plain or rate is None else rate / 100.0,
        "speedup_lo": None if plain or rate is None else 0.9 * rate / 100.0,
        "speedup_hi": None if plain or rate is None else 1.1 * rate / 100.0,
        "tpot_s_mean": 0.01,
        "ttft_s_mean": 0.1,
        "tau": 1.0 if plain else 2.0,
        "break_even_tau": None if plain else 1.5,
    }
    return base | more


def table(rows: list[dict[str, Any]], varied: tuple[str, ...]) -> pa.Table:
    order = ["point", *varied, "strategy"]
    names = [*order, *(name for name in rows[0] if name not in order)]
    return pa.table({name: pa.array([each[name] for each in rows]) for name in names})


def two(gain: Any, names: tuple[str, str] = ("one", "two"), key: str = ALPHA) -> pa.Table:
    """Plain decoding at 100 tokens a second, and two strategies as ``gain`` says."""
    rows = []
    for point, (users, y) in enumerate(
        (users, y) for users in (1, 4, 16, 64) for y in (0.2, 0.4, 0.6, 0.8)
    ):
        where = {USERS: users, key: y}
        rows.append(row(point, "plain", 100.0, **where))
        for place, name in enumerate(names):
            rows.append(row(point, name, gain(place, users, y), **where))
    return table(rows, (USERS, key))


def crossing(place: int, users: float, alpha: float) -> float:
    """The first falls with users, the second rises with acceptance."""
    return 100 * (2.0 - 0.16 * np.log2(users) if place == 0 else 0.4 + 2 * alpha)


@pytest.fixture
def sweep() -> maps.Sweep:
    return maps.read(two(crossing))


# The table taken apart


def test_axes_strategies_and_baseline_are_read_from_the_table(sweep: maps.Sweep) -> None:
    assert [(axis.kind, axis.title) for axis in sweep.axes] == [
        ("users", "users"),
        ("acceptance", "acceptance alpha"),
    ]
    assert sweep.strategies == ("plain", "one", "two")
    assert sweep.baseline == 0
    assert sweep.closed_loop
    np.testing.assert_allclose(sweep.gains()[1][0], 2.0)


def test_speedups_in_an_open_loop_are_of_time_per_token() -> None:
    fast = {"tpot_s_mean": 0.004, "offered_req_per_s": 3.0}
    rows = [row(0, "plain", 100.0, offered_req_per_s=3.0, rate_per_s=3.0)]
    rows += [row(0, "one", 100.0, rate_per_s=3.0, **fast)]
    read = maps.read(table(rows, ("rate_per_s",)))
    assert read.gains()[1][0] == pytest.approx(2.5)


def test_what_varies_is_left_out_of_a_name() -> None:
    rows = []
    for point, k in enumerate((1, 3)):
        where = {K: k}
        rows += [row(point, "plain", 100.0, **where), row(point, f"eagle3 K={k}", 150.0, **where)]
    assert maps.read(table(rows, (K,))).strategies == ("plain", "eagle3")


def test_a_band_whose_slow_end_saturates_reaches_below_one() -> None:
    rows = [row(0, "plain", 100.0, a=1), row(0, "one", 150.0, a=1, speedup_lo=None)]
    lo, hi = maps.read(table(rows, ("a",))).band()
    assert lo[1][0] <= 0.99
    assert hi[1][0] == pytest.approx(1.65)


# Between the points


def test_the_fastest_strategy_changes_where_the_speedups_cross(sweep: maps.Sweep) -> None:
    field = map_grid.grid(sweep, *sweep.axes)
    for users, alpha in ((1, 0.8), (3, 0.75), (40, 0.7), (64, 0.2)):
        at = field.at(users, alpha)
        assert at is not None
        expected = 1 + int(crossing(1, users, alpha) > crossing(0, users, alpha))
        assert int(at.fastest()[0, 0]) == expected


def test_interpolation_meets_the_points_and_stays_between_them(sweep: maps.Sweep) -> None:
    field = map_grid.grid(sweep, *sweep.axes)
    at = field.at(16, 0.6)
    assert at is not None
    np.testing.assert_allclose(at.rates[:, 0, 0], field.rates[:, 2, 2])
    fine = field.finer()
    assert fine.rates.max() <= field.rates.max() + 1e-12
    assert field.at(100, 0.5) is None


def test_half_way_to_a_saturated_point_the_map_is_blank() -> None:
    read = maps.read(two(lambda p, u, a: None if u == 64 else crossing(p, u, a)))
    fine = map_grid.grid(read, *read.axes).finer()
    ends = fine.x.values[np.isnan(fine.rates[1]).any(axis=0)]
    assert ends.min() == pytest.approx(32, rel=0.05)
    assert not np.isnan(fine.rates[0]).any()


def test_a_strategy_that_saturates_is_behind_those_that_do_not() -> None:
    read = maps.read(two(lambda p, u, a: None if p == 0 else crossing(p, u, a)))
    fine = map_grid.grid(read, *read.axes).finer()
    assert (fine.lead(1) < 0).all()
    assert ((fine.lead(0) > 0) != (fine.lead(2) > 0)).mean() > 0.95


def test_it_is_undecided_where_the_band_of_the_fastest_holds_one(sweep: maps.Sweep) -> None:
    field = map_grid.grid(sweep, *sweep.axes)
    doubtful = field.undecided() > 0
    best = np.exp(np.fmax(field.rates[1], field.rates[2]) - field.rates[0])
    np.testing.assert_array_equal(doubtful, (0.9 * best < 1) & (1.1 * best > 1))
    assert doubtful.any()
    assert not doubtful.all()


# Which pictures


def names(results: pa.Table, **at: float) -> list[str]:
    return [picture.name for picture in map_figures.pictures(maps.read(results), at)]


def test_two_numbers_give_maps_of_what_they_change_and_break_even_curves() -> None:
    assert names(two(crossing)) == ["map_fastest", "map_speedup_2", "break_even"]


def test_one_strategy_over_k_needs_no_map_of_the_fastest() -> None:
    rows = []
    for point, (users, k) in enumerate((u, k) for u in (1, 8) for k in (1, 2, 4)):
        where = {USERS: users, K: k}
        rows.append(row(point, "plain", 100.0, **where))
        rows.append(row(point, f"eagle3 K={k}", 100.0 + 10 * k - users, **where, tau=1 + k / 4))
    assert names(table(rows, (USERS, K))) == ["map_speedup_1", "break_even"]


def one(values: tuple[Any, ...], key: str) -> pa.Table:
    rows = []
    for point, value in enumerate(values):
        rows += [
            row(point, "plain", 100.0, **{key: value}),
            row(point, "one", 150.0, **{key: value}),
        ]
    return table(rows, (key,))


def test_one_number_gives_lines_and_words_give_a_table() -> None:
    assert names(one((1, 2, 4), USERS)) == ["line_speedup", "break_even"]
    assert names(one(("h100", "h200"), "hardware.gpu")) == []


def test_without_plain_decoding_there_are_no_maps() -> None:
    rows = [{**each, "baseline": False, "speedup": None} for each in two(crossing).to_pylist()]
    read = maps.read(table(rows, (USERS, ALPHA)))
    assert map_figures.pictures(read, {}) == []
    assert answer(read, {USERS: 8, ALPHA: 0.5}).startswith("Fastest of 16 points:")


# What it says


def test_the_answer_is_that_of_the_operating_point(sweep: maps.Sweep) -> None:
    assert "one is fastest: speedup 2.00, band 1.80 to 2.20" in answer(
        sweep, {USERS: 1, ALPHA: 0.4}
    )
    assert "(interpolated)" not in answer(sweep, {USERS: 1, ALPHA: 0.4})
    doubtful = answer(sweep, {USERS: 64, ALPHA: 0.3})
    assert "(interpolated); undecided, for the band holds 1: until tau is" in doubtful
    assert doubtful.endswith("choose plain.")
    assert answer(sweep, {USERS: 900, ALPHA: 0.3}).endswith("outside what was simulated.")
    assert answer(sweep, {USERS: 9}).startswith("Fastest of 16 points:")
    assert "largest speedup 2.00: one" in answer(sweep, {})


def test_saturated_runs_are_counted() -> None:
    read = maps.read(two(lambda p, u, a: None if u == 64 else crossing(p, u, a)))
    assert any("8 of 48 runs saturate" in note for note in notes(read))


def test_every_row_is_a_line_of_the_table() -> None:
    found = lines(two(crossing).to_pylist(), (USERS, ALPHA))
    assert len(found) == 48
    assert [line.point for line in found[:3]] == ["users=1 alpha=0.2", "", ""]
    assert found[1].cells[0] == "2.00 (1.80 to 2.20)"


def test_the_report_is_one_page_and_pictures_with_the_same_bytes(tmp_path: Path) -> None:
    scenario = load_scenario(EXAMPLE)
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        written = write_report(tmp_path / place, two(crossing), scenario, {USERS: 8, ALPHA: 0.5})
    for name in written:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    page = (tmp_path / "a/report.html").read_text("utf-8")
    assert written[0] == "report.html"
    assert page.count("<svg") == len(written) - 1 == 3
    assert "your operating point" in page
    assert not re.search(r'(src|href)="http', page)


def test_a_table_without_rows_still_makes_a_page(tmp_path: Path) -> None:
    empty = two(crossing).slice(0, 0)
    assert write_report(tmp_path, empty, load_scenario(EXAMPLE)) == ["report.html"]


# Where the user is


def point(text: str | None) -> dict[str, float]:
    return operating_point(text, expand(read_yaml(EXAMPLE)).unfolded)


def test_an_operating_point_names_any_key_that_varies() -> None:
    assert point(None) == {}
    given = point("workload.arrivals.users=20, strategies.2.acceptance.alpha=0.7")
    assert given == {"workload.arrivals.users": 20.0, "strategies.2.acceptance.alpha": 0.7}
    x, y = maps.read(two(crossing)).axes
    assert x.chosen(given) == 20.0
    assert y._replace(column=f"{ALPHA}, strategies[2].acceptance.alpha").chosen(given) == 0.7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("users", "must read key=value,key=value, got 'users'"),
        ("workload.arrivals.user=3", "did you mean 'workload.arrivals.users'?"),
        ("model.tp=2", "it does not vary"),
        ("workload.arrivals.users=90000", "must lie in what is simulated, "),
        ("workload.arrivals.users=many", "must be a number, got 'many'"),
    ],
)
def test_a_wrong_operating_point_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match="--at") as raised:
        point(text)
    assert said in str(raised.value)
