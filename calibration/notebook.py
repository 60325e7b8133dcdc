"""What notebooks call of calibration: profiles and their constants."""

from __future__ import annotations

import pandas as pd

from calibration.kernels import report, show
from calibration.kernels.show import Shown


def profile(name: str) -> Shown:
    """A profile by its catalogue name or file, and the rows it rests on.

    Raises
    ------
    ModelError, InputError
        If there is none, or it or its rows are wrong.
    """
    return show.load(name)


def constants(found: Shown) -> pd.DataFrame:
    """Every constant of a profile: value, standard error, and whether it was measured."""
    lines = [
        {
            "constant": one.key,
            "value": one.constant.value,
            "standard error": one.constant.se,
            "basis": "assumed" if one.constant.source.startswith("assumed") else "measured",
        }
        for one in report.constants(found.profile)
    ]
    return pd.DataFrame(lines).set_index("constant")
