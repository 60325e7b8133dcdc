"""One line of figures for every entry of ``speccast catalog``: what a planner looks up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import catalog
from models.strategies import Strategy, strategy_types

_COMMON = ("kind", "label", "hypothetical", "acceptance")
_LINKS = {"nvlink": "NVLink", "pcie": "PCIe"}


def facts(section: str, name: str) -> str:
    """Figures of one catalogue entry, or of one strategy kind, in one line.

    Parameters
    ----------
    section : str
        A section of the catalogue, or ``strategies``.
    name : str
        Entry, or strategy kind.

    Raises
    ------
    ModelError
        If the entry is unknown.
    """
    return _FACTS[section](name)


def _hardware(name: str) -> str:
    gpu = catalog.hardware(name)
    peaks = ", ".join(f"{rate / 1e12:.0f} {dtype}" for dtype, rate in gpu.peak_flops.items())
    link = gpu.interconnect
    joined = (
        f"{_LINKS[link.kind]} {link.bandwidth_bytes_per_s / 1e9:.0f} GB/s between "
        f"{link.largest_group}"
        if link
        else "tp 1 only"
    )
    return (
        f"{gpu.memory_bytes / 2**30:.1f} GiB, {gpu.memory_bandwidth_bytes_per_s / 1e12:.3g} TB/s, "
        f"peak TFLOP/s {peaks}; {joined}; {gpu.price_per_gpu_hour:.2f} USD/h; "
        f"kernel profile {gpu.profile} ({gpu.profile_basis})"
    )


def _transformer(name: str) -> str:
    model = catalog.transformer(name)
    parts = [
        f"{_billions(model.params())} parameters",
        f"{model.layers} layers",
        f"{model.kv_bytes_per_token('bf16', 1):.0f} KV bytes a token (bf16)",
        f"context {model.max_position}",
        f"vocabulary {model.vocab}",
    ]
    if model.experts:
        shared = f" + {model.shared_experts} shared" if model.shared_experts else ""
        parts.append(f"{model.experts_per_token} of {model.experts}{shared} experts a token")
    if model.mtp_layers:
        parts.append(f"{model.mtp_layers} MTP layer{'s' * (model.mtp_layers > 1)}")
    return ", ".join(parts)


def _billions(params: int) -> str:
    return f"{params / 1e9:.3g} B" if params >= 1e9 else f"{params / 1e6:.3g} M"


def _engine(name: str) -> str:
    engine = catalog.engine(name)
    ahead = [kind for kind in engine.supports if engine.is_async(kind)]
    asynchronous = "all" if len(ahead) == len(engine.supports) else ", ".join(ahead) or "none"
    shapes = "chains and trees" if engine.tree_verify else "chains only"
    return f"runs {', '.join(engine.supports)} ({shapes}); asynchronous: {asynchronous}"


def _profile(name: str) -> str:
    profile = catalog.profile(name)
    return (
        f"device {profile.device}; kernel tables of {profile.engine}, "
        f"{profile.valid_m[0]} to {profile.valid_m[1]} tokens a step; residual rows: "
        f"{len(profile.residuals)} of steps, {len(profile.prefill_residuals)} of prefill"
    )


def _acceptance(name: str) -> str:
    entry = catalog.entry("acceptance", name)
    block = entry["acceptance"]
    target = entry["target"]
    parts = [
        "target not named" if target == "not named" else f"target {target}",
        _stated(block) + _shape(entry.get("shape")),
    ]
    if "by_domain" in block:
        domains = block["by_domain"].items()
        parts.append("domains " + ", ".join(f"{key}{_mean(inner)}" for key, inner in domains))
    return "; ".join(parts)


def _stated(block: dict[str, Any]) -> str:
    """How an acceptance block is stated, with its numbers."""
    if "tau" in block:
        return f"tau {block['tau']}"
    if "tau_at_k" in block:
        return f"tau {block['tau_at_k']} at K={block['at_k']}"
    if "heads" in block:
        top = ", ".join(f"{ranks[0]:.2f}" for ranks in block["heads"])
        return f"{len(block['heads'])} heads, best token right {top}"
    share = "" if block.get("conditional", True) else ", shares of steps"
    rates = ", ".join(f"{rate:.2f}" for rate in block["alpha_by_pos"])
    positions = f"accepted by position {rates}{share}"
    return f"match rate {block['match_rate']}, {positions}" if "match_rate" in block else positions


def _shape(shape: dict[str, int] | None) -> str:
    return f" with {shape['drafted']} drafted tokens in {shape['depth']} levels" if shape else ""


def _mean(block: dict[str, Any]) -> str:
    tau = block.get("tau", block.get("tau_at_k"))
    return "" if tau is None else f" {tau}"


def _strategy(kind: str) -> str:
    strategy = strategy_types()[kind]
    names = [name for name in strategy.model_fields if name not in _COMMON]
    parameters = ", ".join(_parameter(strategy, name) for name in names)
    # Not validated: a draft model's name has no default, and acceptance does not ask for it.
    default = strategy.model_construct().resolved_acceptance()
    if default is None:
        return "no parameters; drafts nothing"
    return f"{parameters}; default acceptance {default.catalog}"


def _parameter(strategy: type[Strategy], name: str) -> str:
    field = strategy.model_fields[name]
    if field.is_required():
        return f"{name} (required)"
    default = field.default
    if hasattr(default, "model_dump"):
        inner = ", ".join(f"{key}: {value}" for key, value in default.model_dump().items())
        return f"{name} {{{inner}}}"
    if isinstance(default, bool):
        return f"{name} {str(default).lower()}"
    return f"{name} none" if default is None else f"{name} {default}"


_FACTS: dict[str, Callable[[str], str]] = {
    "hardware": _hardware,
    "transformers": _transformer,
    "engines": _engine,
    "strategies": _strategy,
    "profiles": _profile,
    "acceptance": _acceptance,
}
