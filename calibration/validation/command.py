"""What ``speccast validate`` does: which cases, their scenarios, and predictions as they come."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from calibration.validation import anchors, own_cases, predict, side_by_side, suites
from calibration.validation.case import Case, Suite
from calibration.validation.predict import Outcome
from models.schema import ModelError
from sim.progress import OnProgress

Which = Literal["serving", "prefill", "speculation", "kernels", "all"]
SUITES: tuple[Suite, ...] = get_args(Suite)


class Predicted(NamedTuple):
    """Outcomes of the cases that are complete, and how many were asked for.

    ``interrupted`` is true where a signal came before the last.
    """

    outcomes: list[Outcome]
    done: int
    asked: int
    interrupted: bool


def select(which: Which = "all", file: Path | None = None) -> list[Case]:
    """Cases of a suite, or those of a user's file.

    Raises
    ------
    InputError
        If the file is wrong.
    ModelError
        If there are none.
    """
    if file is not None:
        found = own_cases.read(file)
        found = [case for case in found if which in ("all", case.suite)]
    else:
        names = SUITES if which == "all" else (which,)
        found = [case for name in names for case in suites.cases(name)]
    if not found:
        raise ModelError(f"there is no case of suite {which}", "validate")
    return found


def scenario(cases: Sequence[Case], name: str) -> str:
    """Scenario of one case as YAML: ``speccast run`` on it gives what was predicted.

    Where acceptance comes from another figure, tau is solved first.

    Raises
    ------
    ModelError
        If there is no such case.
    """
    known = {case.name: case for case in cases}
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "see --list"
        raise ModelError(f"there is no case '{name}'; {hint}", "--scenario")
    case = known[name]
    if case.suite == "kernels":
        raise ModelError(f"'{name}' is one kernel call; there is nothing to simulate", "--scenario")
    if case.anchor:
        case = anchors.solved([replace(known[case.anchor], anchor=case.anchor), case])[-1]
    return predict.replayed(case).yaml()


def run(
    cases: Sequence[Case],
    band: bool = False,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> Predicted:
    """Predict cases; a KeyboardInterrupt leaves those that are complete.

    Parameters
    ----------
    cases, band, jobs, on_progress
        As in ``side_by_side.predict_all``.
    """
    outcomes: list[Outcome] = []
    complete: set[str] = set()
    interrupted = False
    if on_progress:
        on_progress("starting", 0, len(cases))
    try:
        with contextlib.closing(side_by_side.predicted(cases, band, jobs)) as groups:
            for found in groups:
                outcomes += found
                complete |= {outcome.case.name for outcome in found}
                if on_progress:
                    on_progress(found[-1].case.name, len(complete), len(cases))
    except KeyboardInterrupt:
        interrupted = True
    ordered = side_by_side.in_order(cases, outcomes)
    return Predicted(ordered, len(complete), len(cases), interrupted)
