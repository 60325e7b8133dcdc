"""What ``calibrate acceptance`` does, between its options and its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from calibration.acceptance.check import Check, Distances, check, check_together, fitted_tau
from calibration.acceptance.entries import Measured, entries_of, measure
from calibration.acceptance.interval import acceptance_rate
from calibration.acceptance.runs import Runs
from models.acceptance_file import VERSION, AcceptanceFile, Entry, dump
from models.schema import ModelError
from models.strict_yaml import MAX_BYTES, InputError
from sim.interrupts import held
from sim.staging import obstacle, staged

SUFFIXES = (".yaml", ".yml")

OnProgress = Callable[[str, int, int], None]


class Row(NamedTuple):
    """One strategy in one domain.

    Attributes
    ----------
    measured : Measured
    rate : float or None
        Accepted over drafted tokens; None where nothing was drafted.
    fitted_tau : float
        Of the fitted sampler, for the very requests it was fitted to.
    distances : Distances or None
        None without ``--check``, or where half of the requests are too few.
    """

    measured: Measured
    rate: float | None
    fitted_tau: float
    distances: Distances | None

    @property
    def check(self) -> Check | None:
        """Of this domain alone; None where there is none."""
        return None if self.distances is None else self.distances.check

    @property
    def tau_holds(self) -> bool:
        """Whether the fitted sampler's tau is within the measured interval."""
        interval = self.measured.interval
        return interval.lo <= self.fitted_tau <= interval.hi


class Fitted(NamedTuple):
    """The rows of the table, and the file."""

    rows: list[Row]
    file: AcceptanceFile

    @property
    def together(self) -> dict[str, Check]:
        """Check of each strategy over all domains that could be checked."""
        found: dict[str, list[Distances]] = {}
        for row in self.rows:
            if row.distances is not None:
                found.setdefault(row.measured.label, []).append(row.distances)
        return {label: check_together(several) for label, several in found.items()}


def check_out(file: str, runs: Path) -> Path:
    """Refuse a place for the file that cannot be written, before anything is fitted.

    Raises
    ------
    InputError
        If the name does not end in ``.yaml``, or what lies there may not be replaced.
    """
    path = Path(file)
    if path.suffix not in SUFFIXES:
        raise InputError(file, None, "--out", "must end in .yaml")
    inputs = [runs] if runs.exists() else []
    problem = obstacle(path.parent, [path.name], *inputs)
    if problem is not None:
        raise InputError(file, None, "--out", problem)
    return path


def fit(runs: Runs, checked: bool, update: OnProgress) -> Fitted:
    """Fit every strategy in every domain.

    Parameters
    ----------
    runs : Runs
    checked : bool
        Also fit on every other request and check on the rest.
    update : callable
        Called with (what is fitted, pairs done, pairs in all).

    Raises
    ------
    InputError
        If the steps of a strategy are none it can take.
    """
    pairs = [(label, domain) for label in runs.strategies for domain in runs.traces[label]]
    rows: list[Row] = []
    for done, (label, domain) in enumerate(pairs):
        update(f"{label} {domain}", done, len(pairs))
        rows.append(_row(runs, label, domain, checked))
    update("", len(pairs), len(pairs))
    entries: dict[str, Entry] = {}
    for label, strategy in runs.strategies.items():
        domains = [row.measured for row in rows if row.measured.label == label]
        try:
            made = entries_of(label, runs.blocks[label], strategy, domains)
        except ModelError as error:
            raise InputError(str(runs.path), None, label, str(error)) from None
        entries |= made
    return Fitted(rows, _file(runs, rows, entries))


def _row(runs: Runs, label: str, domain: str, checked: bool) -> Row:
    strategy, trace = runs.strategies[label], runs.traces[label][domain]
    try:
        one = measure(label, domain, strategy, trace)
    except ModelError as error:
        raise InputError(str(runs.path), None, label, str(error)) from None
    found = check(one, strategy) if checked else None
    return Row(one, acceptance_rate(trace), fitted_tau(one, strategy), found)


def _file(runs: Runs, rows: list[Row], entries: dict[str, Entry]) -> AcceptanceFile:
    steps = sum(row.measured.interval.steps for row in rows)
    return AcceptanceFile(
        version=VERSION,
        title=f"Acceptance measured on {runs.target}",
        target=runs.target,
        date=runs.date,
        source=f"{steps} decoding steps recorded on {runs.machine}; speccast calibrate acceptance",
        entries=entries,
    )


def write(file: AcceptanceFile, path: Path) -> bool:
    """Write the file at once or not at all; the same runs give the same bytes.

    Returns
    -------
    bool
        Whether the recorded requests went with it: a file over 1 MB could not be read back.
    """
    text, whole = readable(file)
    with staged(path.parent) as scratch:
        (scratch / path.name).write_text(text, encoding="utf-8")
        with held():
            (scratch / path.name).replace(path)
    return whole


def readable(file: AcceptanceFile) -> tuple[str, bool]:
    """The file as YAML that can be read back, and whether the recorded requests are in it."""
    text = dump(file)
    if len(text.encode()) <= MAX_BYTES:
        return text, True
    bare = {key: one.model_copy(update={"replay": {}}) for key, one in file.entries.items()}
    return dump(file.model_copy(update={"entries": bare})), False


def as_json(fitted: Fitted) -> dict[str, Any]:
    """What ``--json`` prints: the table as plain data."""
    return {
        "target": fitted.file.target,
        "rows": [_plain(row) for row in fitted.rows],
        "together": {label: _verdicts(found) for label, found in fitted.together.items()},
    }


def _plain(row: Row) -> dict[str, Any]:
    one = row.measured
    slope = one.fit.slope
    return {
        "strategy": one.label,
        "domain": one.domain,
        **one.interval._asdict(),
        "acceptance_rate": row.rate,
        "fitted_tau": row.fitted_tau,
        "fitted_tau_within_interval": row.tau_holds,
        "fit": one.fit.stated,
        "standard_errors": one.fit.errors(),
        "context_slope": None if slope is None else {"value": slope[0], "se": slope[1]},
        "assumed": list(one.fit.assumed),
        "check": None if row.check is None else _verdicts(row.check),
    }


def _verdicts(found: Check) -> dict[str, Any]:
    return {
        "fitted": found.fitted._asdict(),
        "independent": found.independent._asdict(),
        "is_independent": found.is_independent.p,
    }
