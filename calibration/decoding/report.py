"""The printed report of ``speccast calibrate decode``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.decoder import Times
from calibration.decoding.measures import Active, Measured
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent


def decode_report(
    title: str,
    measured: Sequence[Measured],
    streams: Sequence[Active],
    width: int,
    colour: bool = False,
) -> str:
    """Text of decoding runs: acceptance and times of every strategy in every domain.

    Parameters
    ----------
    title : str
        What was run, where.
    measured, streams
        From `measures`.
    width, colour
        As in ``report.run_report``.
    """
    return render(_lines(title, measured, streams, width), colour)


def _lines(
    title: str, measured: Sequence[Measured], streams: Sequence[Active], width: int
) -> Iterator[Line]:
    yield from paragraph(title, width, "title")
    yield Line("")
    if not measured:
        yield Line("No prompt is finished yet.")
        return
    yield from _table(measured, width)
    yield Line("")
    yield from paragraph(
        f"tau: tokens a step with 95 % interval. Speedup: time a token of {BASELINE} on the same "
        "prompts over that of the strategy, both without prefill. Differs: prompts whose text is "
        f"not that of {BASELINE}.",
        width,
        "note",
    )
    if streams:
        yield Line("")
        yield Line("What was active, along the stream of prompts", "title")
        yield from _streams(streams, width)


def _table(measured: Sequence[Measured], width: int) -> Iterator[Line]:
    keys = [
        Column("strategy", [one.label for one in measured], left=True),
        Column("domain", [one.domain for one in measured], left=True),
    ]

    def ms(name: str) -> list[str]:
        return [_ms(None if one.step is None else getattr(one.step, name)) for one in measured]

    rates = [one.accepted / one.drafted if one.drafted else None for one in measured]
    groups = [
        Group("", [Column("requests", [str(one.requests) for one in measured])]),
        Group("", [Column("steps", [str(one.steps) for one in measured])]),
        Group("", [Column("tau", [_tau(one) for one in measured])]),
        Group("accepted/", [Column("drafted", [percent(rate) for rate in rates])]),
        Group(
            "ms a step",
            [
                *(Column(name.removesuffix("_s"), ms(name)) for name in Times._fields),
                Column("all", ms("total_s")),
            ],
        ),
        Group("ms a", [Column("token", [_ms(one.token_s) for one in measured])]),
        Group("", [Column("speedup", [number(one.speedup) for one in measured])]),
        Group("", [Column("differs", [percent(one.differs) for one in measured])]),
    ]
    return table(keys, groups, width, [False] * len(measured))


def _streams(streams: Sequence[Active], width: int) -> Iterator[Line]:
    keys = [
        Column("strategy", [one.label for one in streams], left=True),
        Column("domain", [one.domain for one in streams], left=True),
    ]
    groups = [
        Group("", [Column("steps", [str(one.steps) for one in streams])]),
        Group("", [Column("speculating", [percent(one.speculating) for one in streams])]),
        Group("", [Column("mean k", [number(one.k) for one in streams])]),
        Group("", [Column("share of steps", [_notes(one) for one in streams], left=True)]),
    ]
    return table(keys, groups, width, [False] * len(streams))


def _tau(one: Measured) -> str:
    if one.tau is None:
        return MISSING
    if one.tau.se is None:
        return f"{one.tau.value:.2f}"
    return f"{one.tau.value:.2f} ({one.tau.lo:.2f}-{one.tau.hi:.2f})"


def _ms(seconds: float | None) -> str:
    return MISSING if seconds is None else number(1e3 * seconds)


def _notes(one: Active) -> str:
    return ", ".join(f"{note} {percent(share)}" for note, share in one.notes.items())


def as_json(
    about: dict[str, Any], measured: Sequence[Measured], streams: Sequence[Active]
) -> dict[str, Any]:
    """What ``calibrate decode --json`` prints: ``run``, ``rows`` and ``streams``."""
    return {
        "run": about,
        "rows": [_row(one) for one in measured],
        "streams": [one._asdict() for one in streams],
    }


def _row(one: Measured) -> dict[str, Any]:
    return {
        **one._asdict(),
        "tau": None if one.tau is None else one.tau._asdict(),
        "step": None if one.step is None else one.step._asdict(),
    }
