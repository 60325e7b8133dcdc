"""The picture of every claim, made of what its audit found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.analysis import audit_plots
from sim.audit.verdict import KINDS
from sim.audit.words import scaled

Finding = Mapping[str, Any]


class Picture(NamedTuple):
    """A picture, the claim it belongs to, and what it shows in words."""

    name: str
    id: str
    figure: Any
    label: str


def pictures(findings: Sequence[Finding]) -> Iterator[Picture]:
    """One for each claim that has figures, and one of its curve where it has one."""
    for finding in findings:
        panels = _panels(finding)
        if panels:
            varied = finding["varied"] or _points_vary(finding)
            question = (
                f"Does {finding['id']} hold? {KINDS[finding['verdict']['kind']].capitalize()}"
            )
            drawn = audit_plots.claim(panels, question, varied)
            label = f"{finding['id']}: {finding['verdict']['short']}"
            yield Picture(file_name(finding["id"]), finding["id"], drawn, label)
        if any(case["curve"] for case in finding["cases"]):
            yield _curve(finding)


def _curve(finding: Finding) -> Picture:
    cases = [case for case in finding["cases"] if case["curve"]]
    first = cases[0]["curve"][0]
    values = [dot["value"] for case in cases for dot in case["curve"]]
    factor, unit = scaled(first["unit"], values)
    lines = {
        case["label"]: [
            (dot["batch"], None if dot["value"] is None else factor * dot["value"])
            for dot in case["curve"]
        ]
        for case in cases
    }
    drawn = audit_plots.over_batch(lines, first["title"], unit)
    label = f"{finding['id']}: {first['title']} by batch"
    return Picture(f"{file_name(finding['id'])}_curve", finding["id"], drawn, label)


def file_name(claim: str) -> str:
    """A claim's name as a part of a file name."""
    return re.sub(r"[^a-z0-9]+", "_", claim.lower()).strip("_") or "claim"


def _points_vary(finding: Finding) -> str:
    points = [figure["point"] for figure in _figures(finding["cases"][finding["stated"]])]
    return ", ".join(dict.fromkeys(key for point in points for key in point)) or "as stated"


def _panels(finding: Finding) -> list[dict[str, Any]]:
    cases = finding["cases"]
    titles = dict.fromkeys(figure["title"] for case in cases for figure in _figures(case))
    return [_panel(cases, title) for title in titles]


def _figures(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The figures a claim gives; where it gives none, those the model answers with."""
    beside = [figure for parts in case["arithmetic"].values() for figure in parts]
    return case["figures"] or beside


def _panel(cases: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    found = [
        (case, figure) for case in cases for figure in _figures(case) if figure["title"] == title
    ]
    first = found[0][1]
    claimed = first["claimed"] or {"min": None, "max": None, "tolerance": 0.0}
    values = [figure["value"] for _, figure in found]
    factor, unit = scaled(first["unit"], [*values, claimed["min"], claimed["max"]])
    tolerance = claimed["tolerance"]
    ends = [claimed["min"], claimed["max"]]
    slack = [None if end is None else tolerance * abs(end) for end in ends]
    outer = [
        None if end is None or room is None else factor * (end + sign * room)
        for end, room, sign in zip(ends, slack, (-1, 1), strict=True)
    ]
    return {
        "title": title,
        "unit": unit,
        "claimed": [None if end is None else factor * end for end in ends],
        "outer": outer,
        "dots": [_dot(case, figure, factor, len(cases) > 1) for case, figure in found],
    }


def _dot(
    case: Mapping[str, Any], figure: Mapping[str, Any], factor: float, several: bool
) -> dict[str, Any]:
    where = ", ".join(str(value) for value in figure["point"].values())
    scaled_to = {
        key: None if figure[key] is None else factor * figure[key] for key in ("value", "lo", "hi")
    }
    return {
        "case": case["label"] if several else where or case["label"],
        "point": where if several else "",
        **scaled_to,
        "agrees": figure["agrees"],
        "plausible": case["plausible"],
    }
