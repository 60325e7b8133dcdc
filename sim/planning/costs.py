"""What a fleet costs, and which plans no other beats at once in cost, latency and headroom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models import catalog
from sim.planning.schema import Plan

Json = dict[str, Any]


def price_per_gpu_hour(plan: Plan, gpu: str) -> float | None:
    """As stated, or a dated list price [USD]; None where none is known."""
    if gpu in plan.prices:
        return plan.prices[gpu] or None
    if gpu not in catalog.names("hardware"):
        return None
    return catalog.hardware(gpu).price_per_gpu_hour or None


def costs(plan: Plan, gpu: str, gpus: int, output_tokens: float) -> Json:
    """Cost of so many GPUs; None everywhere where their price is not known.

    Parameters
    ----------
    plan : Plan
    gpu : str
    gpus : int
    output_tokens : float
        Mean output tokens of a request.
    """
    price = price_per_gpu_hour(plan, gpu)
    per_day = None if price is None else 24 * gpus * price
    return {
        "usd_per_hour": None if price is None else gpus * price,
        "usd_per_day": per_day,
        "usd_per_million_tokens": per_million(plan, per_day, output_tokens),
        "power": _power(plan, gpu, gpus),
    }


def per_million(plan: Plan, usd_per_day: float | None, output_tokens: float) -> float | None:
    """Cost of a million output tokens of the demand [USD]."""
    if usd_per_day is None:
        return None
    return usd_per_day / (plan.demand.requests_per_day * output_tokens) * 1e6


def _power(plan: Plan, gpu: str, gpus: int) -> Json | None:
    watts = plan.power.watts(gpu) if plan.power is not None else None
    if plan.power is None or watts is None:
        return None
    kw = gpus * watts * plan.power.pue / 1000
    return {"kw": kw, "usd_per_day": 24 * kw * plan.power.usd_per_kwh}


def rank(plans: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Cost of each plan an hour; GPUs where the price of any is not known."""
    if any(plan["usd_per_hour"] is None for plan in plans):
        return tuple(float(plan["gpus"]) for plan in plans)
    return tuple(float(plan["usd_per_hour"]) for plan in plans)


def pareto(plans: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Which plans no other is as good as in cost, worst p95 TPOT and headroom, and better in one.

    A plan without a TPOT is taken as the slowest.
    """
    each = [
        (cost, (plan["worst"] or {}).get("tpot_s_p95") or float("inf"), -plan["headroom"])
        for cost, plan in zip(rank(plans), plans, strict=True)
    ]
    return [not any(_beats(other, own) for other in each) for own in each]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
