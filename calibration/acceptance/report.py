"""The printed table of ``speccast calibrate acceptance``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calibration.acceptance.check import Check
from calibration.acceptance.command import Fitted, Row
from calibration.acceptance.fit import Fit
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

FAILS = 0.01
"""A p value below this is a failure; of a hundred right samplers one still fails."""


def acceptance_report(fitted: Fitted, checked: bool, width: int, colour: bool = False) -> str:
    """Text of a fit: tau with interval, spreads, memory, slope, and p values where checked.

    Parameters
    ----------
    fitted : Fitted
    checked : bool
        Odd requests were checked against even ones.
    width, colour
        As in ``report.run_report``.
    """
    return render(_lines(fitted, checked, width), colour)


def _lines(fitted: Fitted, checked: bool, width: int) -> Iterator[Line]:
    rows = fitted.rows
    yield from paragraph(fitted.file.title, width, "title")
    yield from paragraph(fitted.file.source, width)
    yield Line("")
    keys = [
        Column("  strategy", [f"  {row.measured.label}" for row in rows], left=True),
        Column("domain", [row.measured.domain for row in rows], left=True),
    ]
    yield from table(keys, _groups(rows), width, [False] * len(rows))
    yield Line("")
    if fitted.together:
        yield from _together(fitted.together, width)
        yield Line("")
    yield from _notes(rows, checked, width)


def _together(checks: Mapping[str, Check], width: int) -> Iterator[Line]:
    """All domains of a strategy at once: sees what each by itself is too short for."""
    yield Line("All domains of a strategy at once", "title")
    keys = [Column("  strategy", [f"  {label}" for label in checks], left=True)]
    columns = [
        Column(name, [f"{getattr(one, key).p:.3f}" for one in checks.values()])
        for name, key in (("fitted", "fitted"), ("independent", "independent"))
    ]
    own = Column("p independent at all", [f"{one.is_independent.p:.3f}" for one in checks.values()])
    groups = [Group("p of unseen requests", columns), Group("", [own])]
    yield from table(keys, groups, width, [False] * len(checks))


def _groups(rows: Sequence[Row]) -> list[Group]:
    fits = [row.measured.fit for row in rows]
    intervals = [row.measured.interval for row in rows]
    return [
        Group(
            "recorded",
            [
                Column("requests", [f"{one.requests:,}" for one in intervals]),
                Column("steps", [f"{one.steps:,}" for one in intervals]),
            ],
        ),
        Group(
            "tokens a step",
            [
                Column("tau", [number(one.value) for one in intervals]),
                Column("95 %", [f"{number(one.lo)}-{number(one.hi)}" for one in intervals]),
                Column("fitted", [_fitted_tau(row) for row in rows]),
            ],
        ),
        Group("", [Column("accepted", [percent(row.rate) for row in rows])]),
        Group(
            "spread of logits",
            [
                Column("requests", [_value(fit, "spread") for fit in fits]),
                Column("steps", [_value(fit, "step_spread") for fit in fits]),
            ],
        ),
        Group("", [Column("memory", [_value(fit, "step_memory") for fit in fits])]),
        Group("", [Column("context slope", [_slope(fit) for fit in fits])]),
        Group(
            "p of unseen requests",
            [
                Column("fitted", [_p(row, "fitted") for row in rows]),
                Column("independent", [_p(row, "independent") for row in rows]),
            ],
        ),
        Group("", [Column("p independent at all", [_p(row, "is_independent") for row in rows])]),
    ]


def _fitted_tau(row: Row) -> str:
    return number(row.fitted_tau) + ("" if row.tau_holds else "!")


def _value(fit: Fit, key: str) -> str:
    if key in fit.assumed:
        return "assumed"
    value = fit.stated.get(key)
    return number(value, 2) if isinstance(value, float) else MISSING


def _slope(fit: Fit) -> str:
    if fit.slope is None:
        return MISSING
    value, error = fit.slope
    mark = "*" if "context_slope" in fit.stated else ""
    return f"{value:+.2f}{mark} ({number(error, 2)})"


def _p(row: Row, key: str) -> str:
    if row.check is None:
        return MISSING
    return f"{getattr(row.check, key).p:.3f}"


def _notes(rows: Sequence[Row], checked: bool, width: int) -> Iterator[Line]:
    notes = [
        "tau: 95 % interval with requests as clusters; fitted: the sampler's, for the same "
        "requests. Spreads: standard deviations of the acceptance logit between requests and "
        "between passages of one; memory: P(the next step is in the same passage). Context slope "
        "(standard error): change of the logit per doubling, * where it is far enough from 0 to "
        "be used.",
    ]
    if not all(row.tau_holds for row in rows):
        notes.append("! the fitted sampler's tau is outside the measured interval.")
    if any(row.measured.fit.assumed for row in rows):
        notes.append(
            "assumed: too few requests or steps to measure it (a spread needs 4 requests); the "
            "file leaves it to the default and calls the domain extrapolated."
        )
    if checked:
        notes.append(_checked(rows))
    for note in notes:
        yield from paragraph(note, width, "note")


def _checked(rows: Sequence[Row]) -> str:
    found = [row.check for row in rows if row.check is not None]
    dependent = [one for one in found if one.is_independent.p < FAILS]
    failed = sum(one.fitted.p < FAILS for one in found)
    caught = sum(one.independent.p < FAILS for one in dependent)
    left = len(rows) - len(found)
    text = (
        "p of unseen requests: fitted on the odd requests, how often data of the sampler lie as "
        "far from its mean as the even ones do; independent: a sampler with the same rates in "
        "every step. p independent at all: permutation of the even requests' steps, without a fit. "
        f"At 1 % the fitted sampler fails {failed} of {len(found)}; "
        f"{len(dependent)} traces are not independent, and the independent sampler fails "
        f"{caught} of them."
    )
    return text + (f" {left} have fewer than 8 requests and were not checked." if left else "")
