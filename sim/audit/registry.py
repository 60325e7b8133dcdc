"""What can be measured of a scenario: named figures of a run, of one step, or of the memory."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

from sim.audit.view import Look, Measured

Function = Callable[[Look], Measured]


class Measure(NamedTuple):
    """One figure that can be asked for.

    Attributes
    ----------
    function : callable
    unit : str
        ``x``, ``%`` (of a share from 0 to 1), ``s``, ``byte``, ``tok/s`` or a plain name.
    simulated : bool
        It needs a run; else it is arithmetic of one step or of the memory.
    about : str
        One line.
    by_stream : bool
        It can be asked of the requests of one stream.
    """

    function: Function
    unit: str
    simulated: bool
    about: str
    by_stream: bool = False


MEASURES: dict[str, Measure] = {}


def suggestion(name: str) -> str:
    """The nearest name of a measure, worded."""
    near = difflib.get_close_matches(name, MEASURES, 1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(MEASURES)}"


def register(unit: str, simulated: bool, by_stream: bool = False) -> Callable[[Function], Function]:
    """Make a function a measure of its own name; its docstring says what it measures."""

    def add(function: Function) -> Function:
        about = " ".join((function.__doc__ or "").split()).rstrip(".")
        MEASURES[function.__name__] = Measure(function, unit, simulated, about, by_stream)
        return function

    return add
