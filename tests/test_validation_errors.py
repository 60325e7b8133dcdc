"""What is stored of the measured runs: promises it keeps, and the residuals made of it."""

from __future__ import annotations

from write_residuals import FOLDER, stored_figures

from calibration.validation import guard, residual_file
from calibration.validation.bounds import check, held_out
from models import catalog


def test_every_promise_speaks_of_figures_and_is_kept_or_says_why_not():
    for one in check(held_out(stored_figures(), guard.stored_held_out())):
        assert one.n, one
        assert one.kept or one.excused, one


def test_the_residuals_of_the_catalogue_are_those_of_the_stored_errors():
    texts = residual_file.texts(stored_figures())
    assert set(texts) == set(catalog.names("residuals"))
    for name, text in texts.items():
        assert (FOLDER / f"{name}.yaml").read_text("utf-8") == text, name
