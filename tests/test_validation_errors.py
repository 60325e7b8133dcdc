"""No prediction of a measured run may get worse: errors as stored, and the promises of the page."""

from __future__ import annotations

import pytest
import validated
from write_residuals import FOLDER, stored_figures

from calibration.validation import guard, residual_file, suites
from calibration.validation.bounds import check, held_out
from calibration.validation.groups import with_groups
from models import catalog

PUBLICATIONS = [
    pytest.param(name, marks=validated.group(group))
    for group, names in validated.GROUPS.items()
    for name in names
]


def test_every_publication_is_in_a_group():
    grouped = {name for names in validated.GROUPS.values() for name in names}
    assert grouped == {name for names in suites.PUBLICATIONS.values() for name in names}


@pytest.mark.parametrize("publication", PUBLICATIONS)
def test_errors_are_no_more_than_a_tenth_of_themselves_above_the_stored_ones(publication):
    now = with_groups(validated.frame(publication))
    stored = guard.read_stored()
    stored = stored[stored["case"].isin({case.name for case in validated.cases(publication)})]
    assert len(stored) == int(now["scored"].sum()) > 0
    assert guard.worsened(stored, now) == []


def test_every_promise_speaks_of_figures_and_is_kept_or_says_why_not():
    without = held_out(stored_figures(), guard.stored_held_out())
    for one in check(without):
        assert one.n, one
        assert one.kept or one.cause, one


def test_the_residuals_of_the_catalogue_are_those_of_the_stored_errors():
    texts = residual_file.texts(stored_figures())
    assert set(texts) == set(catalog.names("residuals"))
    for name, text in texts.items():
        assert (FOLDER / f"{name}.yaml").read_text("utf-8") == text, name
