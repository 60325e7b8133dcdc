"""What a plan takes as given: measured, published or assumed, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models import catalog
from sim.analysis.assumptions import Assumption, assumptions
from sim.planning.answer import Answer
from sim.planning.costs import price_per_gpu_hour
from sim.planning.schema import Kill, Plan
from sim.scenario.build import build

Json = dict[str, Any]

STATED = "stated in the plan file"
BASIS = {"validated": "measured", "extrapolated": "published", "list price": "published"}
MEASURED = ("kernel times", "GPU", "engine", "model", "draft model")
"""Catalogue entries whose numbers were measured or read from the maker's own documents."""
OWN = ("price", "router")
"""Told here, or no input; lengths of streams likewise."""


def inputs(plan: Plan, answers: Sequence[Answer]) -> list[Json]:
    """Every input of the plans found, once each."""
    found = [*_demand(plan), *_lengths(plan)]
    for answer in answers:
        if answer.candidate is not None:
            found += [_row(one) for one in _assumptions(answer)]
    found += _prices(plan, answers)
    found += _failure(plan)
    return [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in found)]


def _assumptions(answer: Answer) -> list[Assumption]:
    """As a run of the candidate would tell them."""
    assert answer.candidate is not None
    scenario = answer.candidate.scenario
    deployment = build(scenario)
    name = answer.candidate.strategy.name
    rows = [
        {"strategy": one.name, "point": {}, "acceptance_entries": list(entries)}
        for one in scenario.strategies
        for entries in [answer.entries if one.name == name else ()]
    ]
    document = {
        "scenario": deployment.shown(scenario),
        "profile": deployment.profile.name,
        "rows": rows,
    }
    return [
        one
        for one in assumptions(document)
        if one.what not in OWN and not one.what.startswith("lengths of ")
    ]


def _row(one: Assumption) -> Json:
    basis = BASIS.get(one.basis, one.basis)
    if one.what in MEASURED:
        basis = "published" if one.basis == "extrapolated" else "measured"
    source = STATED if one.source == "stated in the scenario" else one.source
    return _input(one.what, one.value, basis or "assumed", source)


def _input(name: str, value: str, basis: str, source: str) -> Json:
    return {"input": name, "value": value, "basis": basis, "source": source}


def _demand(plan: Plan) -> list[Json]:
    asked = plan.demand
    value = f"{asked.requests_per_day:,.0f} requests a day, peak {asked.peak_factor:g} x the mean"
    rows = [_input("demand", value, "assumed", STATED)]
    if asked.uncertainty:
        value = f"relative standard deviation {asked.uncertainty:.0%}"
        rows.append(_input("uncertainty of demand", value, "assumed", STATED))
    return rows


def _lengths(plan: Plan) -> list[Json]:
    """Lengths of each stream: of a recorded trace, or as stated."""
    rows = []
    for stream in plan.workload.streams:
        name = "lengths" if len(plan.workload.streams) == 1 else f"lengths of {stream.name}"
        if stream.lengths is not None:
            file = stream.lengths.file.rpartition("/")[2]
            rows.append(_input(name, "pairs of a recorded trace", "measured", file))
            continue
        kinds = f"prompts {stream.prompt_tokens.kind}, about {stream.prompt_tokens.about:.0f}"
        kinds += f"; outputs {stream.output_tokens.kind}, about {stream.output_tokens.about:.0f}"
        rows.append(_input(name, f"{kinds} tokens", "assumed", STATED))
    return rows


def _prices(plan: Plan, answers: Sequence[Answer]) -> list[Json]:
    gpus = dict.fromkeys(answer.candidate.gpu for answer in answers if answer.candidate)
    rows = []
    for gpu in gpus:
        price = price_per_gpu_hour(plan, gpu)
        value = "not known, so no cost" if price is None else f"{price:g} USD for a GPU and hour"
        if gpu in plan.prices:
            rows.append(_input(f"price of {gpu}", value, "assumed", STATED))
            continue
        source = catalog.entry("hardware", gpu)["source"] if price is not None else "no price"
        dated = [part.strip() for part in source.split(";") if "price:" in part]
        told = dated[0].removeprefix("price:").strip() if dated else source
        rows.append(_input(f"price of {gpu}", value, "published", told))
    return rows


def _failure(plan: Plan) -> list[Json]:
    if not isinstance(plan.failure, Kill):
        return []
    restart = plan.failure.restart
    value = f"weights read at {restart.load_bytes_per_s / 1e9:g} GB/s, then {restart.boot_s:g} s"
    stated = "restart" in plan.failure.model_fields_set
    source = STATED if stated else "a default without a source"
    return [_input("restart of a replica", value, "assumed", source)]
