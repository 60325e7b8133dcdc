"""Write the residual rows of the catalogue anew, from the stored errors of the measured runs."""

from __future__ import annotations

from pathlib import Path

from calibration.validation import command, guard, residual_file, score
from calibration.validation.residual_rules import figures

FOLDER = Path(__file__).parent.parent / "models" / "catalog" / "residuals"


def stored_figures() -> object:
    """Stored errors as the table the rules choose from."""
    outcomes = guard.outcomes_of(guard.read_stored(), command.select("all"))
    return figures(score.table(outcomes))


if __name__ == "__main__":
    residual_file.write(stored_figures(), FOLDER)
