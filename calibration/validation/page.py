"""The page of a validation and its pictures: ``validation.md``, with ``images`` beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from calibration.validation import guard, page_tables
from calibration.validation.bounds import check, held_out, shipped
from calibration.validation.extras import Extras
from calibration.validation.tables import answers_of
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.staging import obstacle, staged

PAGE, IMAGES, TEMPLATE = "validation.md", "images", "validation.md.j2"


class Written(NamedTuple):
    """Where a validation is to be written."""

    folder: Path | None
    store: Path | None

    def write(self, frame: pd.DataFrame, extras: Extras) -> list[Path]:
        """Write what was asked for; the same outcomes give the same bytes.

        Parameters
        ----------
        frame : DataFrame
            As from ``score.table`` and ``groups.with_groups``.
        extras : Extras
            Empty where no page is written.

        Returns
        -------
        list of Path
            The page, and the stored errors.
        """
        written = []
        if self.folder is not None:
            write(frame, extras, self.folder)
            written.append(self.folder / PAGE)
        if self.store is not None:
            self._refuse_worse(frame)
            with staged(self.store.parent) as scratch:
                (scratch / self.store.name).write_text(
                    guard.stored_text(frame, extras.held_out), "utf-8"
                )
                (scratch / self.store.name).replace(self.store)
            written.append(self.store)
        return written

    def _refuse_worse(self, frame: pd.DataFrame) -> None:
        """Stored errors may only go down; delete the file to store what is worse all the same."""
        if self.store is None or not self.store.exists():
            return
        worse = guard.worsened(guard.read_stored(self.store.read_text("utf-8")), frame)
        if worse:
            groups = "; ".join(f"{one.group} {one.why}" for one in worse[:3])
            raise RuntimeError(f"{self.store} is kept: {groups} ({len(worse)} in all)")


def check_out(out: str | None, store: str | None, cases: Path | None) -> Written:
    """Refuse what cannot be written, before anything is simulated.

    Raises
    ------
    InputError
        If ``--out`` or ``--store`` cannot be written, or would replace the user's own file, or the
        page is asked for the user's own cases.
    """
    inputs = [cases] if cases is not None and cases.exists() else []
    folder = None if out is None else Path(out)
    if folder is not None and cases is not None:
        raise InputError("", None, "--out", "the page is of the published runs, not of --cases")
    if folder is not None:
        from calibration.validation.figures import FILES

        problem = None if out else "needs a folder, got ''"
        problem = problem or obstacle(folder, [PAGE]) or obstacle(folder / IMAGES, FILES)
        if problem is not None:
            raise InputError(str(out), None, "--out", problem)
    path = None if store is None else Path(store)
    if path is not None:
        problem = obstacle(path.parent, [path.name], *inputs) if store else "needs a file, got ''"
        if problem is not None:
            raise InputError(str(store), None, "--store", problem)
        if path.exists():
            try:
                guard.read_stored(path.read_text("utf-8"))
            except ValueError as error:
                raise InputError(str(store), None, "--store", str(error)) from None
    return Written(folder, path)


def write(frame: pd.DataFrame, extras: Extras, folder: Path) -> None:
    """Write the page and its pictures into a folder; all files appear together."""
    from calibration.validation.figures import pictures
    from sim.analysis import plots

    drawn = list(pictures(frame, extras.peers))
    images = folder / IMAGES
    with staged(images) as scratch:
        for picture in drawn:
            (scratch / f"validation_{picture.name}.svg").write_bytes(
                plots.save(picture.figure, "svg")
            )
        text = render(frame, extras, {picture.name: picture.label for picture in drawn})
        (scratch / PAGE).write_text(text, "utf-8")
        with held():
            for picture in drawn:
                name = f"validation_{picture.name}.svg"
                (scratch / name).replace(images / name)
            (scratch / PAGE).replace(folder / PAGE)


def render(frame: pd.DataFrame, extras: Extras, pictures: dict[str, str]) -> str:
    """The page as Markdown.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table`` and ``groups.with_groups``.
    extras : Extras
    pictures : dict
        Label of every picture by its name.
    """
    known = shipped()
    scored = frame[frame["scored"]]
    shown = set(answers_of(scored, known.answers))
    environment = Environment(
        loader=PackageLoader("calibration.validation", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    text = environment.get_template(TEMPLATE).render(
        pictures=pictures,
        cases=scored["case"].nunique(),
        figures=len(scored),
        publications=scored["origin"].nunique(),
        in_sample=int(scored["in_sample"].sum()),
        example=scored["case"].iloc[0] if len(scored) else "NAME",
        kinds=[one for one in known.answers if one.name in shown],
        answers=page_tables.answers(frame, known.answers),
        statistics=page_tables.statistics(frame),
        by_strategy=page_tables.by_strategy(frame),
        harnesses=page_tables.harnesses(frame),
        by_model=page_tables.main_figures(frame, "model"),
        by_engine=page_tables.main_figures(frame, "engine"),
        promises=page_tables.promises(check(held_out(frame, extras.held_out))),
        worst=page_tables.worst(frame),
        peers=page_tables.peers(extras.peers),
        scalars=page_tables.scalars(extras.scalars),
        coverage=page_tables.coverage(extras.coverage),
        not_validated=page_tables.not_validated(known),
    )
    return re.sub(r"\n{3,}", "\n\n", text)
