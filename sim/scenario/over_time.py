"""Shares of streams that change in the course of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from models.schema import Frozen, ModelError
from sim.scenario.distributions import Floats

LATEST = 1e9
Unit = Literal["s", "share"]
Place = Annotated[float, Field(ge=0, le=LATEST)]
Pair = Annotated[tuple[float, ...], Field(min_length=2, max_length=2)]


def number_or_block(value: object) -> str:
    """Tell which form a key takes that is either a number or a block of keys."""
    return "block" if isinstance(value, (dict, Frozen)) else "number"


def _points(points: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    for index, (place, share) in enumerate(points):
        if not 0 <= place <= LATEST:
            raise ValueError(f"must lie between 0 and {LATEST:g}, got {place:g}")
        if not 0 <= share <= 1:
            raise ValueError(f"a share must be from 0 to 1, got {share:g}")
        if index and place < points[index - 1][0]:
            raise ValueError(f"must not go back, got {place:g} after {points[index - 1][0]:g}")
    return points


class Changing(Frozen):
    """Base of all that changes: what its places count."""

    unit: Unit = Field(
        default="s",
        description="What places count: seconds since the start (not known in a closed loop), or "
        "`share` of the requests of the run sent before, 0 to 1.",
    )

    @property
    def places(self) -> dict[str, float]:
        """Places stated, by key."""
        return {}

    @model_validator(mode="after")
    def _within_the_run(self) -> Self:
        for key, place in self.places.items():
            if self.unit == "share" and place > 1:
                raise ModelError(f"must be at most 1 with unit: share, got {place:g}", key)
        return self


class ShareOverTime(Changing):
    """A share along straight lines between points, constant before and after them."""

    at: Annotated[tuple[Pair, ...], AfterValidator(_points)] = Field(
        min_length=2,
        max_length=10_000,
        description="Points [place, share]; two of the same place are a step.",
    )

    @property
    def places(self) -> dict[str, float]:
        """The last point's place: the others come before it."""
        return {"at": self.at[-1][0]}

    def weights(self, x: Floats) -> Floats:
        """Share at each place, at a step the later one; shape of ``x``."""
        places, shares = np.array(self.at).T
        weights: Floats = np.interp(x, places, shares)
        return weights


Share = Annotated[
    Annotated[float, Field(gt=0, le=1), Tag("number")] | Annotated[ShareOverTime, Tag("block")],
    Discriminator(number_or_block),
]


def weights_at(shares: Sequence[float | ShareOverTime], x: Floats) -> list[Floats | float]:
    """Relative weight of each stream at places ``x``."""
    return [share.weights(x) if isinstance(share, ShareOverTime) else share for share in shares]


def unit_of(shares: Sequence[float | ShareOverTime]) -> Unit | None:
    """What the places of changing shares count; None where no share changes."""
    return next((share.unit for share in shares if isinstance(share, ShareOverTime)), None)


def check_shares(shares: Sequence[Any]) -> None:
    """Refuse changing shares of two units, or none of which is above 0 somewhere.

    Raises
    ------
    ValueError
    """
    curves = [share for share in shares if isinstance(share, ShareOverTime)]
    if len({curve.unit for curve in curves}) > 1:
        raise ValueError("shares that change must count in one unit, some in s, some in share")
    if len(curves) < len(shares):
        return
    places = np.unique([place for curve in curves for place, _ in curve.at])
    # Lines are lowest at their ends: on either side of each point, where one may step.
    for around in (places, np.nextafter(places, -np.inf), np.nextafter(places, np.inf)):
        total = np.sum([curve.weights(around) for curve in curves], axis=0)
        if not total.all():
            raise ValueError(f"all shares are 0 at {around[total == 0][0]:g}")
