"""The printed report of ``speccast calibrate train-heads``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

TITLES = {"medusa": "Medusa", "eagle": "EAGLE", "draft": "draft"}


def heads_report(info: Mapping[str, Any], folder: str, width: int, colour: bool = False) -> str:
    """Text of trained parts: held-out accuracy of each guess, steps, seconds.

    Parameters
    ----------
    info : mapping
        ``heads.json``.
    folder : str
        Where it is.
    width, colour
        As in ``report.run_report``.
    """
    text, target = info["text"], info["target"]
    rows = [
        (part, guess, share, said)
        for part, said in info["parts"].items()
        for guess, share in said["top1"].items()
    ]
    first = [place == 0 or rows[place - 1][0] != row[0] for place, row in enumerate(rows)]

    def once(cells: list[str]) -> list[str]:
        return [cell if new else "" for cell, new in zip(cells, first, strict=True)]

    keys = [
        Column("part", once([_title(part, said) for part, _, _, said in rows]), left=True),
        Column("guess", [guess for _, guess, _, _ in rows], left=True),
    ]
    columns = [
        Column("right", [percent(share) for _, _, share, _ in rows]),
        Column("steps", once([str(said["steps"]) for *_, said in rows])),
        Column("seconds", once([number(said["training_s"]) for *_, said in rows])),
        Column("ended by", once([said["stopped"] for *_, said in rows]), left=True),
    ]
    lines = [
        Line(f"Trained parts of {target['name']} in {folder}", "title"),
        Line(""),
        *table(keys, [Group("", [column]) for column in columns], width, [False] * len(rows)),
        Line(""),
        *paragraph(
            f"right: share of first guesses that are the target's own token, on "
            f"{text['held_out_sequences']} sequences held out; trained on "
            f"{text['trained_sequences']} others. Head n and step n guess n tokens past the next "
            "one, those before being right.",
            width,
            "note",
        ),
    ]
    return render(lines, colour)


def _title(part: str, said: Mapping[str, Any]) -> str:
    layers = f" ({said['layers']} layers)" if "layers" in said else ""
    return TITLES[part] + layers
