"""Service levels with their latency bounds changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sim.scenario.service_level import LatencyBounds, Slo

Part = TypeVar("Part", bound=LatencyBounds)
Change = Callable[[str, float], float]


def changed(slo: Slo, change: Change) -> Slo:
    """The same service levels with other bounds, those of classes too.

    Parameters
    ----------
    slo : Slo
    change : callable
        From (metric, bound [s]) to the bound in its place [s].
    """
    classes = {name: _changed(part, change) for name, part in slo.classes.items()}
    return _changed(slo, change).model_copy(update={"classes": classes})


def _changed(part: Part, change: Change) -> Part:
    bounds = {}
    for metric in part.stated:
        own = getattr(part, metric)
        stated = own.model_dump(exclude_none=True)
        made = {name: change(metric, bound_s) for name, bound_s in stated.items()}
        bounds[metric] = own.model_copy(update=made)
    return part.model_copy(update=bounds)
