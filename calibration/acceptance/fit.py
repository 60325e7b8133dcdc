"""One fit: what a measurement states, with standard errors, and how uncertain it is as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration.acceptance.maximum import Maximum
from models.paths import Floats

Value = float | list[float]
Stated = dict[str, Value]
"""Keys of an acceptance block."""

_STEP = 1e-4


@dataclass(frozen=True)
class Fit:
    """A domain's acceptance as a block of numbers.

    Attributes
    ----------
    best : Maximum
        Parameters the likelihood knows, and their covariance.
    state : callable
        Parameters -> what the block says.
    independent : callable
        What the block says -> the same marginal rates for steps that know nothing of each other.
    slope : (float, float or None) or None
        Change of the logit an octave of context, and its standard error, whether or not it was
        far enough from 0 to be used; None where it was not fitted.
    assumed : tuple of str
        Keys left to their default, because there were too few requests.
    """

    best: Maximum
    state: Callable[[Floats], Stated]
    independent: Callable[[Stated], Stated]
    slope: tuple[float, float | None] | None = None
    assumed: tuple[str, ...] = ()

    @property
    def stated(self) -> Stated:
        """The block at the best parameters."""
        return self.state(self.best.vector)

    def errors(self) -> dict[str, float | list[float | None] | None]:
        """Standard error of every number of the block (delta method); None where unknown."""
        keys, values = zip(*self.stated.items(), strict=True)
        sizes = [np.atleast_1d(value).size for value in values]
        jacobian = self._jacobian()
        variances = np.einsum("ip,pq,iq->i", jacobian, self.best.covariance, jacobian)
        flat = [float(np.sqrt(v)) if v > 0 else None for v in variances]
        errors: dict[str, float | list[float | None] | None] = {}
        for key, value, end in zip(keys, values, np.cumsum(sizes), strict=True):
            own = flat[end - np.atleast_1d(value).size : end]
            errors[key] = own if isinstance(value, list) else own[0]
        return errors

    def drawn(self, rng: np.random.Generator, count: int) -> list[Stated]:
        """Blocks at parameters drawn from the fit's own uncertainty, shape (count,)."""
        moved = rng.multivariate_normal(
            self.best.vector, self.best.covariance, count, method="eigh"
        )
        return [self.state(vector) for vector in moved]

    def _jacobian(self) -> Floats:
        vector = self.best.vector
        columns = []
        for step in _STEP * np.eye(vector.size):
            above, below = _flat(self.state(vector + step)), _flat(self.state(vector - step))
            columns.append((above - below) / (2 * _STEP))
        return np.stack(columns, axis=1)


def _flat(stated: Stated) -> Floats:
    return np.concatenate([np.atleast_1d(np.asarray(value)) for value in stated.values()])
