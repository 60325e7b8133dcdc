"""Real decoding runs recorded on a CPU: forecast again from its kernels, fitted again, shown as is.

The record is made by ``make decoding-record``; docs/decoding.md shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import decoding_page as page
import pytest

from calibration.acceptance import command as acceptance
from calibration.acceptance.runs import read
from calibration.decoding.forecast import report
from calibration.decoding.strategies import KINDS
from models import acceptance_file

DRAFTED = ("draft_model", "draft_model_sampled", "medusa", "lookahead", "ngram", "eagle")
DOMAINS = ("code", "prose", "json_sql", "maths", "extract")
PROMISED = 0.12
"""Mean absolute error of the mean step of a strategy in a domain."""


@pytest.fixture(scope="module")
def compared():
    return page.comparison()


@pytest.fixture(scope="module")
def fitted() -> acceptance.Fitted:
    return acceptance.fit(read(page.RUNS), True, lambda *_: None)


def test_every_strategy_ran_in_every_domain(fitted):
    assert {row.measured.label for row in fitted.rows} == set(DRAFTED)
    for label in DRAFTED:
        own = [row.measured for row in fitted.rows if row.measured.label == label]
        assert {one.domain for one in own} == set(DOMAINS)
        assert min(one.interval.requests for one in own) >= 8
    about = json.loads((page.RUNS / "run.json").read_text("utf-8"))
    assert set(about["strategies"]) == set(KINDS)


def test_mean_steps_are_forecast_within_twelve_percent(compared):
    found = report.figures(compared)
    assert found["mean_step_mape"] <= PROMISED
    by_strategy = compared.cells.groupby("strategy")["error"].apply(lambda own: own.abs().mean())
    assert (by_strategy <= PROMISED).all(), by_strategy


def test_single_steps_are_forecast_within_twelve_percent(compared):
    assert report.figures(compared)["step_mape"] <= PROMISED


def test_it_is_told_right_what_pays_on_this_cpu(compared):
    for how in ("replayed", "fitted"):
        sides = report.figures(compared)[f"{how}_sides"]
        assert sides["told"] >= 15
        assert sides["right"] / sides["told"] >= 0.95, (how, sides)


def test_tau_of_the_fitted_sampler_is_within_every_measured_interval(fitted):
    outside = [row.measured[:2] for row in fitted.rows if not row.tau_holds]
    assert not outside


def test_a_fit_of_half_the_requests_is_not_refuted_by_the_rest(fitted):
    """One in a hundred right fits fails at 1 %; of thirty, three fail once in 3,000 times."""
    checked = [row for row in fitted.rows if row.check is not None]
    assert len(checked) == len(fitted.rows)
    assert sum(row.check.fitted.p < 0.01 for row in checked) <= 2


def test_over_all_domains_the_fit_holds_and_independent_steps_are_refuted(fitted):
    """Where the steps of a strategy are not independent; in a domain alone they are too few."""
    assert set(fitted.together) == set(DRAFTED)
    bursty = [label for label, found in fitted.together.items() if found.is_independent.p < 0.01]
    assert set(bursty) == set(DRAFTED)
    assert not [label for label in bursty if fitted.together[label].independent.p >= 0.01]
    assert not [label for label, found in fitted.together.items() if found.fitted.p < 0.01]


def test_texts_in_fp32_are_those_of_plain_decoding():
    about = json.loads(page.EXACT.read_text("utf-8"))
    assert about["dtype"] == "fp32"
    assert about["prompts"] >= 20
    assert set(about["domains"]) == set(DOMAINS)
    greedy = {label for label, kind in KINDS.items() if not kind.sampled}
    assert set(about["differs"]) == greedy
    assert set(about["differs"].values()) == {0}


def test_the_shipped_fit_is_that_of_the_record(fitted):
    assert acceptance_file.read(page.FITTED).entries.keys() == fitted.file.entries.keys()
    for label, entry in acceptance_file.read(page.FITTED).entries.items():
        assert entry.tau == fitted.file.entries[label].tau
        assert entry.replay == fitted.file.entries[label].replay


def shown(name: str) -> str:
    text = page.PAGE.read_text("utf-8")
    return text.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]


def lines(found: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in found)


@pytest.mark.parametrize("name", ["run", "active", "exact", "trained"])
def test_the_page_shows_the_record(name):
    written = {"run": page.about, "active": page.active, "exact": page.exact}
    assert shown(name) == lines({**written, "trained": page.trained}[name]())


def test_the_page_shows_tau_and_its_intervals(fitted):
    assert shown("tau") == lines(page.taus(fitted))


def test_the_page_shows_the_steps(compared):
    assert shown("steps") == lines(page.steps(compared))
