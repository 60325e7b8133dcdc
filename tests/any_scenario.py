"""Scenarios nobody wrote: built from the schema, so that a new key is tried once it exists."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from models import catalog
from sim.scenario.template import json_schema

SCHEMA = json_schema()
TRACE = Path(__file__).parent.parent / "examples/traces/azure_llm_2023_conversation.csv.gz"
SMALL_MODELS = ["llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b"]
NAMES: dict[str, list[str]] = {
    "hardware.gpu": ["h100_sxm", "h200_sxm", "a100_80g_sxm"],
    "hardware.profile": list(catalog.names("profiles")),
    "model.transformer": SMALL_MODELS,
    "engine.name": list(catalog.names("engines")),
    "strategies.draft": ["llama-3.2-1b", "llama-68m"],
    "strategies.tree": ["medusa_63"],
    "lengths.file": [str(TRACE)],
    "acceptance.catalog": list(catalog.names("acceptance")),
}
WORDS = ["chat", "sql", "a b", "é", "0", "no", "~"]
MOST_REQUESTS = 40
WITHOUT_LENGTHS = ("prompt_tokens", "output_tokens", "session")
USUAL = [0, 0.3, 0.5, 1, 1.5, 2, 3, 8, 20, 60, 200]
CHANGES: list[dict[str, Any]] = [
    *[{}] * 6,
    {"share": {"at": [[0, 0.3], [0.5, 1], [0.5, 0.1]], "unit": "share"}},
    {"share": {"at": [[2, 0.9], [8, 0.2]]}},
    {"domain": {"kind": "step", "before": "chat", "after": "sql", "at": 0.5, "unit": "share"}},
    {"domain": {"kind": "linear", "before": "chat", "after": "no", "start": 0, "end": 8}},
    {"domain": {"kind": "regimes", "domains": ["é", "sql", "é"], "dwell": 0.2, "unit": "share"}},
    {"domain": {"kind": "regimes", "domains": ["chat", "a b"], "dwell": [3, 20], "dwell_cv": 0}},
]
"""What changes in a stream that makes sense; mostly nothing."""


def whole_scenarios() -> st.SearchStrategy[dict[str, Any]]:
    """Mappings that fit the schema; a third of them also make sense."""
    fitting = _values(SCHEMA, ())
    return st.one_of(fitting, fitting.flatmap(_mended))


def small_scenarios() -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of which half make sense, with a few requests each."""
    return _values(SCHEMA, ()).flatmap(_mended).flatmap(_shortened)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into nested data."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [path, *(place for key in keys for place in places(data[key], (*path, key)))]


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Copy of nested data with one value replaced."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = put(data[path[0]], path[1:], value)
    return copy


def at(data: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path."""
    for part in path:
        data = data[part]
    return data


def _values(schema: dict[str, Any], path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Values of one part of the schema; ``path`` names it, list positions left out."""
    if "$ref" in schema:
        return _values(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    branches = schema.get("oneOf") or schema.get("anyOf")
    if branches:
        some = [branch for branch in branches if branch.get("type") != "null"]
        return st.deferred(lambda: st.one_of([_values(branch, path) for branch in some]))
    kind = schema["type"]
    if kind == "object":
        return _mappings(schema, path)
    if kind == "array":
        return _lists(schema, path)
    if kind == "string":
        return st.sampled_from(NAMES.get(".".join(path[-2:]), WORDS))
    return st.booleans() if kind == "boolean" else _numbers(schema, kind == "integer")


@st.composite
def _mappings(draw: st.DrawFn, schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Keys that must be there, and a few of the others."""
    if "properties" not in schema:
        keys = draw(st.lists(st.sampled_from(WORDS), max_size=2, unique=True))
        return {key: draw(_values(schema["additionalProperties"], path)) for key in keys}
    fields = schema["properties"]
    needed = [key for key in fields if key in schema.get("required", ()) or key == "kind"]
    others = [key for key in fields if key not in needed and key != "vary"]
    least = 0 if needed else 1
    few = st.lists(st.sampled_from(others), min_size=least, max_size=3, unique=True)
    chosen = [*needed, *(draw(few) if others else ())]
    return {key: draw(_values(fields[key], (*path, key))) for key in chosen}


def _lists(schema: dict[str, Any], path: tuple[str, ...]) -> st.SearchStrategy[list[Any]]:
    if "prefixItems" in schema:
        return st.tuples(*(_values(item, path) for item in schema["prefixItems"])).map(list)
    least = schema.get("minItems", 0)
    return st.lists(_values(schema["items"], path), min_size=least, max_size=max(2, least))


def _numbers(schema: dict[str, Any], whole: bool) -> st.SearchStrategy[Any]:
    """Everyday numbers within the limits, and now and then a limit itself."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    numbers = [*USUAL * 4, *(n for n in (low, high) if math.isfinite(n))]
    fitting = [n for n in numbers if low <= n <= high and above < n < below]
    return st.sampled_from([n for n in fitting if not whole or n == int(n)] or [1])


@st.composite
def _mended(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """Take out what contradicts itself by chance alone."""
    workload = dict(data["workload"])
    if workload["arrivals"]["kind"] == "closed_loop" or "requests" in workload:
        workload.pop("duration_s", None)
    if "duration_s" not in workload:
        workload.setdefault("requests", 60)
    streams = workload.get("streams", [{}])
    workload["streams"] = [
        {
            **{key: s[key] for key in s if "lengths" not in s or key not in WITHOUT_LENGTHS},
            "share": 1 / len(streams),
            "name": f"s{i}",
            **draw(st.sampled_from(CHANGES)),
        }
        for i, s in enumerate(streams)
    ]
    strategies = [
        {**strategy, "label": f"s{index}", "hypothetical": True}
        for index, strategy in enumerate(data["strategies"])
    ]
    for strategy in strategies:
        if draw(st.booleans()):
            strategy.pop("acceptance", None)
    hardware = {"gpu": data["hardware"].get("gpu", "h100_sxm"), "kernels": "auto"}
    model = {**data["model"], "tp": 1, "weights": "bf16"}
    return data | {
        "workload": workload,
        "strategies": strategies,
        "hardware": hardware,
        "model": model,
    }


@st.composite
def _shortened(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """Ask for few requests, once or twice, and mostly without a band."""
    workload = {**data["workload"], "requests": draw(st.integers(1, MOST_REQUESTS))}
    workload.pop("duration_s", None)
    run = {**data.get("run", {}), "replications": draw(st.integers(1, 2))}
    run["band"] = draw(st.integers(0, 4)) == 0
    return data | {"workload": workload, "run": run, "strategies": data["strategies"][:2]}
