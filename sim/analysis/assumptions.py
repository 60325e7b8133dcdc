"""What a result rests on: versions, constants, acceptance and prices, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from models import catalog
from models.schema import weakest
from sim.analysis.grid import points
from sim.scenario.fleet import ROUTER_SIGNALS
from sim.scenario.vary import values_of

Document = Mapping[str, Any]
Row = Mapping[str, Any]

STATED = ("tau", "tau_at_k", "at_k", "alpha", "alpha_by_pos", "match_rate", "file", "entry")
OWN = "file of the user's own"


class Assumption(NamedTuple):
    """One thing taken as given: what it is, its value, how well founded, and from where."""

    what: str
    value: str
    basis: str
    source: str


def assumptions(document: Document) -> list[Assumption]:
    """Everything a result takes as given, those of all points of a grid.

    Parameters
    ----------
    document : mapping
        The document of ``speccast run --json``.
    """
    scenario = document["scenario"]
    return [
        *_entries("engine", "engines", _named(scenario, "engine", "name")),
        *_profile(document),
        *_gpus(scenario),
        *_routers(scenario),
        *_lengths(scenario),
        *_entries("model", "transformers", _named(scenario, "model", "transformer")),
        *_entries("draft model", "transformers", _drafts(scenario)),
        *_acceptance(document),
        *_memory(scenario),
        *_prices(scenario),
    ]


def _routers(scenario: Mapping[str, Any]) -> Iterator[Assumption]:
    """What the router goes by, and how fresh it is; nothing to say of one replica."""
    if (scenario["model"].get("replicas") or 1) == 1:
        return
    age_s = scenario["engine"].get("router_refresh_s") or 0
    fresh = f"read anew after {age_s:g} s" if age_s else "exact at every choice"
    for name in _named(scenario, "engine", "router"):
        known = "nothing that could be stale" if name == "round_robin" else fresh
        yield Assumption("router", f"{name}: {ROUTER_SIGNALS[name]}", "", known)


def _lengths(scenario: Mapping[str, Any]) -> Iterator[Assumption]:
    """Traces that lengths are drawn from, with the streams that use them."""
    for stream in scenario["workload"]["streams"]:
        if stream.get("lengths"):
            file = PurePath(stream["lengths"]["file"]).name
            value = f"pairs of prompt and output drawn anew from {file}"
            yield Assumption(f"lengths of {stream['name']}", value, "", "stated in the scenario")


def _named(scenario: Mapping[str, Any], block: str, key: str) -> list[str]:
    """Value of a key and those it takes in the grid."""
    varied = values_of(scenario.get("vary", {}), f"{block}.{key}")
    values = [scenario[block].get(key), *varied]
    return list(dict.fromkeys(value for value in values if value is not None))


def _entry(section: str, name: str) -> dict[str, Any]:
    """A catalogue entry; of what the catalogue does not have, only where it is from."""
    known = name in catalog.names(section)
    return catalog.entry(section, name) if known else {"title": name, "source": OWN}


def _entries(what: str, section: str, names: Sequence[str]) -> Iterator[Assumption]:
    for name in names:
        entry = _entry(section, name)
        yield Assumption(what, f"{name}: {entry['title']}", "", entry["source"])


def _profile(document: Document) -> Iterator[Assumption]:
    scenario = document["scenario"]
    asked = _named(scenario, "hardware", "profile")
    entries = {gpu: _entry("hardware", gpu) for gpu in _named(scenario, "hardware", "gpu")}
    used = dict.fromkeys(asked or [document["profile"]])
    if not asked:
        used = dict.fromkeys(entry["profile"] for entry in entries.values())
    for name in used:
        entry = _entry("profiles", name)
        dated = ", ".join(str(entry[key]) for key in ("device", "engine", "date") if key in entry)
        users = [gpu for gpu, own in entries.items() if asked or own["profile"] == name]
        basis = ""
        if "device" in entry:
            basis = "validated" if users == [entry["device"]] else "extrapolated"
        yield Assumption("kernel times", f"{name}: {dated or OWN}", basis, entry["source"])


def _gpus(scenario: Mapping[str, Any]) -> Iterator[Assumption]:
    yield from _entries("GPU", "hardware", _named(scenario, "hardware", "gpu"))


def _drafts(scenario: Mapping[str, Any]) -> list[str]:
    strategies = scenario.get("strategies", [])
    drafts = [part.get("draft") for strategy in strategies for _, part in _parts(strategy)]
    return list(dict.fromkeys(draft for draft in drafts if isinstance(draft, str)))


def _acceptance(document: Document) -> Iterator[Assumption]:
    """Catalogue entries with the strategies that use them, then what the scenario states."""
    users: dict[str, dict[str, None]] = {}
    for row in document["rows"]:
        for name in row.get("acceptance_entries", []):
            users.setdefault(name, {})[row["strategy"]] = None
    for name, strategies in users.items():
        entry = _entry("acceptance", name)
        what = f"acceptance of {', '.join(strategies)}"
        measured = entry.get("measured_with")
        value = f"{name}: {entry['title']}" + (f" ({measured})" if measured else "")
        elsewhere = entry["target"] not in _named(document["scenario"], "model", "transformer")
        basis = weakest([entry["basis"], "extrapolated"]) if elsewhere else entry["basis"]
        yield Assumption(what, value, basis, entry["source"])
    first = next(iter(points(document["rows"])), [])
    for row, strategy in zip(first, document["scenario"].get("strategies", []), strict=False):
        for key, part in _parts(strategy):
            stated = part.get("acceptance") or {}
            numbers = ", ".join(f"{name} {stated[name]}" for name in STATED if name in stated)
            if numbers:
                what = f"acceptance of {row['strategy']}{f' ({key})' if key else ''}"
                yield Assumption(what, numbers, stated.get("basis", ""), "stated in the scenario")


def _parts(strategy: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A strategy, or those it switches between by the key they stand under."""
    inner = {key: strategy[key] for key in ("primary", "fallback") if strategy.get(key)}
    inner |= {f"among[{place}]": one for place, one in enumerate(strategy.get("among", ()))}
    yield from inner.items() or [("", strategy)]


def _memory(scenario: Mapping[str, Any]) -> Iterator[Assumption]:
    """What no engine was measured with: cut or quantised KV, other layouts, launch overhead."""
    stated, engine = "stated in the scenario", scenario["engine"]
    kinds, loss = _named(scenario, "model", "kv"), scenario["model"].get("kv_loss")
    if "int4" in kinds:
        value = "int4: read at the share of the bandwidth that fp8 reaches, scales included"
        yield Assumption("KV cache", value, "assumed", "bytes: LMDeploy, by head and token")
    if loss is None and "fp8" in kinds:
        value = "fp8 costs no acceptance and no quality, as no model.kv_loss is stated"
        yield Assumption("loss by fp8 KV", value, "assumed", "not stated in the scenario")
    for kind in kinds if loss else ():
        if kind != "bf16":
            keys = ", ".join(f"{key} {value}" for key, value in loss.items())
            value = f"{keys}, in every step; quality_loss changes no number"
            yield Assumption(f"loss by {kind} KV", value, "assumed", stated)
    layouts = [name for name in _named(scenario, "engine", "tree_kv") if name != "inline"]
    if layouts:
        value = f"{', '.join(layouts)}: memory only, steps take as long as inline"
        yield Assumption("KV of trees", value, "assumed", stated)
    policy = engine.get("kv_policy")
    if policy:
        keys = ", ".join(f"{key} {value}" for key, value in policy.items() if key != "kind")
        value = (
            f"{policy['kind']}: {keys}; acceptance is lost in steps whose context is cut, prefix "
            "caching is off, quality_loss changes no number"
        )
        yield Assumption("KV policy", value, "assumed", stated)
    if engine.get("launches"):
        keys = ", ".join(f"{key} {value}" for key, value in engine["launches"].items())
        yield Assumption("launch overhead", keys, "assumed", stated)


def _prices(scenario: Mapping[str, Any]) -> Iterator[Assumption]:
    for price in _named(scenario, "hardware", "price_per_gpu_hour"):
        value = f"{price:g} USD for an hour of a GPU" if price else "not known, so no cost"
        yield Assumption("price", value, "", "stated in the scenario")
        return
    for gpu in _named(scenario, "hardware", "gpu"):
        entry = _entry("hardware", gpu)
        dated = [part.strip() for part in entry["source"].split(";") if "price:" in part]
        usd = entry.get("price_per_gpu_hour")
        value = f"{usd:g} USD for an hour of a {gpu}" if usd else "not known, so no cost"
        source = dated[0].removeprefix("price:").strip() if dated else entry["source"]
        yield Assumption("price", value, "list price", source)
