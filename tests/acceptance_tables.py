"""Tables of docs/decoding.md about acceptance: what was measured, fitted and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pages import Lines, table

from calibration.acceptance.check import Check
from calibration.acceptance.command import Fitted

REFUTED = 0.01
"""A p value below this refutes a sampler."""


def taus(fitted: Fitted) -> Lines:
    """Tokens a step by strategy and domain, with intervals."""
    cells = {
        (row.measured.label, row.measured.domain): "{:.2f} ({:.2f}-{:.2f})".format(
            *row.measured.interval[:3]
        )
        for row in fitted.rows
    }
    yield from crossed(cells)


def crossed(cells: dict[tuple[str, str], str]) -> Lines:
    """A line a strategy, a column a domain."""
    domains = list(dict.fromkeys(domain for _, domain in cells))
    labels = list(dict.fromkeys(label for label, _ in cells))
    rows = ((label, *(cells.get((label, d), "") for d in domains)) for label in labels)
    yield from table(("strategy", *domains), rows)


def fits(fitted: Fitted) -> Lines:
    """What was fitted, with standard errors."""
    header = ("strategy", "domain", "rates by position (or match)", "spread", "step spread")

    def rows() -> Iterator[Sequence[str]]:
        for row in fitted.rows:
            fit, errors = row.measured.fit, row.measured.fit.errors()
            stated = fit.stated

            def number(key: str, stated: Any = stated, errors: Any = errors) -> str:
                return with_error(stated[key], errors.get(key)) if key in stated else ""

            rates, deviations = stated["alpha_by_pos"], errors["alpha_by_pos"]
            by_position = " ".join(map(with_error, rates, deviations))
            if "match_rate" in stated:
                by_position = f"match {number('match_rate')}, goes on {number('match_stay')}; " + (
                    by_position
                )
            slope = "" if fit.slope is None else with_error(*fit.slope)
            yield (
                *(row.measured.label, row.measured.domain, by_position),
                *(number(key) for key in ("spread", "step_spread", "step_memory")),
                slope,
            )

    yield from table((*header, "step memory", "slope an octave"), rows())


def with_error(value: float, error: float | None) -> str:
    """``0.61±.03``."""
    return f"{value:.2f}" + ("" if error is None else f"±{error:.2f}".replace("0.", "."))


def heads(fitted: Fitted) -> Lines:
    """Conditional accuracy of Medusa heads by rank."""
    entry = fitted.file.entries["medusa_heads"]
    by_domain = entry.acceptance.by_domain

    def rows() -> Iterator[Sequence[str]]:
        for domain, block in by_domain.items():
            errors = entry.standard_errors[domain]["heads"]
            for place, (rates, deviations) in enumerate(
                zip(block.heads or (), errors, strict=True), start=1
            ):
                ranks = [*map(with_error, rates[:4], deviations[:4]), *[""] * 4][:4]
                yield (domain, str(place), *ranks)

    yield from table(("domain", "head", *(f"rank {n}" for n in range(1, 5))), rows())


def checks(fitted: Fitted) -> Lines:
    """Fitted on odd requests, checked on even ones."""

    def rows() -> Iterator[Sequence[str]]:
        for row in fitted.rows:
            found = row.check
            told = ("", "", "") if found is None else tuple(f"{one.p:.3f}" for one in found)
            interval = row.measured.interval
            inside = "yes" if row.tau_holds else "no"
            yield (
                *(row.measured.label, row.measured.domain, str(interval.requests)),
                *(f"{interval.value:.3f}", f"{row.fitted_tau:.3f}", inside, *told),
            )

    header = ("strategy", "domain", "requests", "tau", "tau of the sampler", "inside")
    verdicts = ("p fitted", "p i.i.d.", "p steps are i.i.d.")
    yield from table((*header, *verdicts), rows())
    yield ""
    yield from table(
        ("all domains of a strategy at once", *verdicts),
        ((label, *(f"{one.p:.3f}" for one in found)) for label, found in fitted.together.items()),
    )


def verdicts(where: str, found: Sequence[Check]) -> Iterator[Sequence[str]]:
    """How often samplers fitted on odd requests are refuted by even ones, at 1 %."""
    bursty = [one for one in found if one.is_independent.p < REFUTED]
    passed = sum(one.fitted.p >= REFUTED for one in found)
    failed = sum(one.independent.p < REFUTED for one in bursty)
    yield f"fitted on odd requests {where}, not refuted by even ones", f"{passed} of {len(found)}"
    what = f"steps of the even ones {where} are not i.i.d., and refute an i.i.d. sampler"
    yield what, f"{len(bursty)}, of them {failed}"
