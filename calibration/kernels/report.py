"""The printed reports of ``speccast calibrate kernels`` and ``speccast calibrate show``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from calibration.kernels.check import flag_summary
from calibration.kernels.fits.held_out import RANGES, Score
from models.profile import KernelResidual, Profile
from models.schema import Constant
from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent


class Named(NamedTuple):
    """One constant of a profile under its dotted key."""

    key: str
    constant: Constant


def kernels_report(
    profile: Profile,
    scores: Sequence[Score],
    rows: pd.DataFrame,
    width: int,
    colour: bool = False,
) -> str:
    """Text of a fit: held-out errors, constants, rows left out.

    Parameters
    ----------
    profile : Profile
    scores : sequence of Score
        Errors of every form that was tried.
    rows : DataFrame
        All that was timed, with its flags.
    width, colour
        As in ``report.run_report``.
    """
    reasons = rows["flag"].str.replace(r"^spread .*", "spread of its repeats", regex=True)
    flagged = flag_summary(rows.assign(flag=reasons))
    return render(_kernels_lines(profile, scores, flagged, width), colour)


def listing_report(
    found: Sequence[tuple[str, str, Sequence[str]]], width: int, colour: bool = False
) -> str:
    """Text of the tables there are: system, engine version, operations."""
    keys = [
        Column("  system", [f"  {system}" for system, _, _ in found], left=True),
        Column("engine", [version for _, version, _ in found], left=True),
    ]
    columns = [Column("operations", [", ".join(names) for _, _, names in found], left=True)]
    return render(_plain(keys, columns, width), colour)


def profile_report(profile: Profile, note: str, width: int, colour: bool = False) -> str:
    """Text of a profile: what it rests on, where it holds, constants, errors.

    Parameters
    ----------
    profile : Profile
    note : str
        Last line, on the figure.
    width, colour
        As in ``report.run_report``.
    """
    return render(_profile_lines(profile, note, width), colour)


def _kernels_lines(
    profile: Profile, scores: Sequence[Score], flagged: pd.DataFrame, width: int
) -> Iterator[Line]:
    yield from _head(profile, width)
    if scores:
        yield Line("Error on held-out shapes, median / p90 in %", "title")
        yield from _held_out(scores, width)
        yield Line("")
        ranges = ", ".join(f"{name} {lo}-{hi}" for name, (lo, hi) in RANGES.items())
        yield from paragraph(
            f"Tokens a step: {ranges}. Of several forms the first is the one taken.",
            width,
            "note",
        )
        yield Line("")
    yield from _constants(profile, width, sources=False)
    yield from _flagged(flagged, width)


def _profile_lines(profile: Profile, note: str, width: int) -> Iterator[Line]:
    yield from _head(profile, width)
    yield from _timed(profile, width)
    yield from _constants(profile, width, sources=True)
    yield from _residuals(profile.residuals, width)
    yield from paragraph(note, width, "note")


def _head(profile: Profile, width: int) -> Iterator[Line]:
    yield from paragraph(
        f"Profile {profile.name}: {profile.device}, {profile.engine}, {profile.date}",
        width,
        "title",
    )
    yield from paragraph(" ".join(profile.source.split()), width)
    yield from paragraph(f"Holds for {_valid(profile)}.", width)
    if profile.provenance is not None:
        yield from paragraph(
            f"{profile.provenance.package}, speccast {profile.provenance.speccast}: "
            f"{profile.provenance.command}",
            width,
        )
    yield Line("")


def _valid(profile: Profile) -> str:
    names = {"m": "tokens a step", "context_tokens": "tokens of context", "batch": "sequences"}
    limits = {name: getattr(profile.valid, name) for name in names}
    return ", ".join(
        f"{limit[0]:,} to {limit[1]:,} {names[name]}" for name, limit in limits.items() if limit
    )


def _timed(profile: Profile, width: int) -> Iterator[Line]:
    tables = profile.provenance.tables if profile.provenance else ()
    if not tables:
        return
    keys = [
        Column("  timed", [f"  {timed.operation}" for timed in tables], left=True),
        Column("kernel", [timed.kernel or "-" for timed in tables], left=True),
    ]
    columns = [
        Column("version", [timed.version or "-" for timed in tables], left=True),
        Column("rows", [f"{timed.rows:,}" for timed in tables]),
        Column("flagged", [f"{timed.flagged:,}" for timed in tables]),
    ]
    yield from _plain(keys, columns, width)
    yield Line("")


def _held_out(scores: Sequence[Score], width: int) -> Iterator[Line]:
    """One line a form, its ranges of tokens side by side."""
    names = list(dict.fromkeys((s.operation, s.dtype, s.what) for s in scores))
    named = {limits: name for name, limits in RANGES.items()}
    cells = {
        ((s.operation, s.dtype, s.what), named.get(s.m, "all") if s.m else "all"): (
            f"{100 * s.median:.1f} / {100 * s.p90:.1f}"
        )
        for s in scores
    }
    keys = [
        Column("  operation", [f"  {operation}" for operation, _, _ in names], left=True),
        Column("dtype", [dtype or "-" for _, dtype, _ in names], left=True),
        Column("form", [what for _, _, what in names], left=True),
    ]
    columns = [
        Column(column, [cells.get((name, column), "-") for name in names])
        for column in (*RANGES, "all")
    ]
    yield from _plain(keys, columns, width)


def constants(profile: Profile) -> list[Named]:
    """Every constant of a profile under its dotted key, in the order of the file."""
    skipped = {"accelerator", "provenance", "residuals"}
    return [
        found
        for name in type(profile).model_fields
        if name not in skipped
        for found in _constants_in(name, getattr(profile, name))
    ]


def _constants_in(key: str, value: Any) -> Iterator[Named]:
    if isinstance(value, Constant):
        yield Named(key, value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _constants_in(f"{key}.{name}", inner)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _constants_in(f"{key}.{name}", getattr(value, name))


def _constants(profile: Profile, width: int, sources: bool) -> Iterator[Line]:
    found = constants(profile)
    texts = list(dict.fromkeys(_source(named.constant) for named in found)) if sources else []
    where = {text: f"[{index}]" for index, text in enumerate(texts, 1)}
    keys = [Column("  constant", [f"  {named.key}" for named in found], left=True)]
    columns = [
        Column("value", [number(named.constant.value, 4) for named in found]),
        Column("se", [number(named.constant.se, 2) for named in found]),
        Column("from", [where.get(_source(named.constant), "-") for named in found]),
    ]
    yield from _plain(keys, columns, width)
    yield Line("")
    for text, mark in where.items():
        yield from paragraph(f"{mark} {text}", width, "note")
    if where:
        yield Line("")
    whole = "best GEMM and stream" if profile.accelerator else "datasheet's peak and bandwidth"
    yield from paragraph(
        "se: standard error, - where a constant was not fitted or is at its bound. Shares of the "
        f"{whole}; _us in microseconds.",
        width,
        "note",
    )
    yield Line("")


def _source(constant: Constant) -> str:
    parts = [constant.source, constant.fitted_on]
    return "; ".join(" ".join(part.split()) for part in parts if part)


def _residuals(residuals: Sequence[KernelResidual], width: int) -> Iterator[Line]:
    if not residuals:
        return
    keys = [
        Column("  held out", [f"  {row.operation}" for row in residuals], left=True),
        Column("dtype", [row.dtype or "-" for row in residuals], left=True),
        Column("tokens", [f"{row.m[0]}-{row.m[1]}" if row.m else "any" for row in residuals]),
    ]
    columns = [
        Column("rows", [f"{row.rows:,}" for row in residuals]),
        Column("median", [percent(row.median) for row in residuals]),
        Column("p90", [percent(row.p90) for row in residuals]),
        Column("measured / fitted", [f"{row.lo:.2f}-{row.hi:.2f}" for row in residuals]),
    ]
    yield from _plain(keys, columns, width)
    yield Line("")
    yield from paragraph(
        "Relative error on shapes the fit has not seen; measured / fitted: 5 to 95 % quantile.",
        width,
        "note",
    )
    yield Line("")


def _flagged(flagged: pd.DataFrame, width: int) -> Iterator[Line]:
    if flagged.empty:
        yield Line("No rows were left out.", "note")
        return
    keys = [
        Column("  left out", [f"  {name}" for name in flagged["operation"]], left=True),
        Column("dtype", [name or "-" for name in flagged["dtype"]], left=True),
        Column("why", list(flagged["flag"]), left=True),
    ]
    columns = [
        Column("rows", [f"{count:,}" for count in flagged["rows"]]),
        Column("share", [percent(share) for share in flagged["share"]]),
    ]
    yield from _plain(keys, columns, width)


def _plain(keys: Sequence[Column], columns: Sequence[Column], width: int) -> Iterator[Line]:
    yield from table(
        keys, [Group("", [column]) for column in columns], width, [False] * len(keys[0].cells)
    )
