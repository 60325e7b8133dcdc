"""Fit of the factors: what recorded stages say beyond what was known before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.live.fit.knobs import Factors, Serving
from calibration.live.fit.stages import Case, Pool, Seen, pools, seen

Floats = NDArray[np.float64]

PRIOR = Factors(request=3.0, launches=0.15, host=1.0, memory=0.25, compute=0.25, draft=20.0)
"""Standard deviation of each factor before anything is measured; of shares that of the logarithm.
Host times differ several-fold between machines, those for drafts most; shares of bandwidth and peak
rate were timed, and differ by a quarter between versions of an engine (published kernel tables of
one GPU). Assumed."""

EAGER_LAUNCHES = 1.0
"""The same of launches, where kernels were timed one by one: a compiled graph pays none."""

SHARES = ("memory", "compute")
"""Factors that multiply a rate; the others are times, which add up and may vanish."""

LEAST = 1e-3
"""Least factor of a time."""

STEPS = (0.1, 0.4)
"""Distances that slopes are taken over, as shares of what was uncertain: a simulated mean jumps
where a request slips a step, so that the flatter of two slopes counts."""

IDENTIFIED = 0.5
"""A factor counts as told by the stages if they leave at most this share of what was uncertain."""

CONTRADICTED = 4.0
"""Rise of chi squared above which the stages contradict a factor of 1: two standard deviations."""


class Estimate(NamedTuple):
    """One factor.

    Attributes
    ----------
    name : str
        A field of ``Factors``.
    factor : float
        Measured over known before.
    error : float
        Standard error of ``factor``, with all others as uncertain as they are.
    left : float
        Share of the earlier uncertainty that the stages leave.
    identified : bool
        Whether the stages tell it apart from the others. Where they do not, it is 1, or if they
        contradict that, what together with the others meets them best.
    """

    name: str
    factor: float
    error: float
    left: float
    identified: bool


@dataclass(frozen=True)
class Fit:
    """Factors with what is known of them, and how well the stages are met.

    Attributes
    ----------
    estimates : tuple of Estimate
        In the order of ``Factors``; ``host`` only where the GPU waits for it, ``draft`` only where
        drafts were served.
    pools : tuple of Pool
        What was met: figures of all repeats of a load.
    residuals, before : ndarray, shape (pools,)
        Logarithm of measured over fitted, and the same before the fit.
    """

    estimates: tuple[Estimate, ...]
    pools: tuple[Pool, ...]
    residuals: Floats
    before: Floats

    @property
    def factors(self) -> Factors:
        """All factors."""
        return Factors(**{one.name: one.factor for one in self.estimates})

    def of(self, metric: str, before: bool = False) -> Floats:
        """Residuals of one metric."""
        mine = np.array([pool.metric == metric for pool in self.pools])
        every = self.before if before else self.residuals
        return np.asarray(every[mine])


def fit(
    cases: Sequence[Case], serving: Serving, on_progress: Callable[[int], None] = lambda _: None
) -> Fit:
    """Fit the factors to recorded stages.

    Parameters
    ----------
    cases : sequence of Case
        At least one.
    serving : Serving
        As device and engine are known so far.
    on_progress : callable
        Called with how often the stages were simulated.

    Notes
    -----
    The most likely factors given all figures, weighted by their errors, and what was known of the
    factors. Errors are those of all factors together. A factor that the stages hardly narrow down,
    and do not contradict, is set back to 1 and the rest is fitted again.
    """
    fitting = _Fitting(cases, serving, on_progress)
    names = _names(cases, serving)
    first = fitting.at(Factors())
    fitting.weight = 1.0 / first.errors
    best = fitting.most_likely(names, Factors())
    fitting.weight = 1.0 / fitting.at(best.factors).errors
    best = fitting.most_likely(names, best.factors)
    deviations = fitting.deviations(names, best.factors)
    left = {name: deviations[name] / fitting.prior(name) for name in names}
    free, vague = list(names), [name for name in names if left[name] > IDENTIFIED]
    for name in sorted(vague, key=left.__getitem__, reverse=True):
        rest = fitting.most_likely([one for one in free if one != name], best.factors)
        if rest.cost - best.cost < CONTRADICTED:
            free.remove(name)
            best = rest
    estimates = tuple(
        Estimate(
            name,
            getattr(best.factors, name),
            float(deviations[name]) * (getattr(best.factors, name) if name in SHARES else 1.0),
            float(left[name]),
            name not in vague,
        )
        for name in names
    )
    return Fit(estimates, fitting.pools, fitting.at(best.factors).ratios, first.ratios)


def _names(cases: Sequence[Case], serving: Serving) -> tuple[str, ...]:
    """Factors that show in the stages at all."""
    waits = any(not case.strategy.scheduled_ahead(serving.engine) for case in cases)
    drafts = any(case.strategy.drafted for case in cases)
    hidden = {"host": not waits, "draft": not drafts}
    return tuple(name for name in Factors._fields if not hidden.get(name, False))


class _Best(NamedTuple):
    """Most likely factors, and chi squared with what was known."""

    factors: Factors
    cost: float


class _Fitting:
    """Simulations of the stages, and the weights of their figures."""

    def __init__(
        self, cases: Sequence[Case], serving: Serving, on_progress: Callable[[int], None]
    ) -> None:
        self.pools = pools(cases)
        self.weight = np.ones(len(self.pools))
        self._cases, self._serving, self._report = cases, serving, on_progress
        self._known: dict[Factors, Floats] = {}

    def at(self, factors: Factors) -> Seen:
        """Every pool at these factors."""
        self._report(len(self._known))
        found = seen(self._cases, self.pools, self._serving, factors)
        self._known[factors] = found.ratios
        return found

    def prior(self, name: str) -> float:
        """How uncertain a factor was."""
        if name == "launches" and self._serving.eager:
            return EAGER_LAUNCHES
        return float(getattr(PRIOR, name))

    def most_likely(self, names: Sequence[str], start: Factors) -> _Best:
        """Vary these factors; the others are 1."""
        prior = np.array([self.prior(name) for name in names])
        begin = _moves(names, start) / prior
        least = [(-np.inf if name in SHARES else LEAST - 1) / self.prior(name) for name in names]

        def residuals(moves: Floats) -> Floats:
            return np.append(self.weight * self._ratios(names, moves * prior), moves)

        def slopes(moves: Floats) -> Floats:
            own = self.weight[:, None] * self._slopes(names, moves * prior, prior, STEPS[:1])
            return np.vstack([own, np.eye(len(names))])

        if not names:
            return _Best(Factors(), float((residuals(np.zeros(0)) ** 2).sum()))
        begin = np.maximum(begin, np.array(least) + 1e-9)
        found = least_squares(residuals, begin, slopes, (least, np.inf), xtol=1e-3, ftol=1e-5)
        return _Best(_factors(names, found.x * prior), 2.0 * float(found.cost))

    def deviations(self, names: Sequence[str], factors: Factors) -> dict[str, float]:
        """Standard deviations of factors (of shares, of their logarithms), all of them free.

        Where the stages scatter more than their errors say, so do the factors.
        """
        prior = np.array([self.prior(name) for name in names])
        moves = _moves(names, factors)
        slope = self.weight[:, None] * self._slopes(names, moves, prior, STEPS)
        off = self.weight * self._ratios(names, moves)
        scatter = max(1.0, float((off**2).sum()) / max(1, off.size - len(names)))
        covariance = np.linalg.inv(slope.T @ slope / scatter + np.eye(len(names)))
        return dict(zip(names, (prior * np.sqrt(np.diag(covariance))).tolist(), strict=True))

    def _slopes(
        self, names: Sequence[str], moves: Floats, prior: Floats, steps: Sequence[float]
    ) -> Floats:
        """Change of every ratio a unit of uncertainty: central, the flatter of several steps."""
        columns = []
        for place, unit in enumerate(np.eye(len(names))):
            each = []
            for step in steps:
                down = step
                if names[place] not in SHARES:
                    down = min(step, (moves[place] + 1 - LEAST) / prior[place])
                up, low = (moves + by * prior * unit for by in (step, -down))
                each.append((self._ratios(names, up) - self._ratios(names, low)) / (step + down))
            flattest = np.min(np.abs(each), axis=0)
            agree = np.abs(np.sum(np.sign(each), axis=0)) == len(each)
            columns.append(np.where(agree, np.sign(each[0]) * flattest, 0.0))
        return np.stack(columns, axis=1)

    def _ratios(self, names: Sequence[str], moves: Floats) -> Floats:
        factors = _factors(names, moves)
        if factors not in self._known:
            self.at(factors)
        return self._known[factors]


def _factors(names: Sequence[str], moves: Floats) -> Factors:
    """Factors at some distance from 1: added to a time, of a share that of the logarithm."""
    pairs = zip(names, moves.tolist(), strict=True)
    return Factors(
        **{n: float(np.exp(by)) if n in SHARES else max(LEAST, 1.0 + by) for n, by in pairs}
    )


def _moves(names: Sequence[str], factors: Factors) -> Floats:
    """The other way round."""
    values = {name: getattr(factors, name) for name in names}
    return np.array([np.log(v) if n in SHARES else v - 1.0 for n, v in values.items()])
