"""One line of figures for every entry of ``speccast catalog``: what a planner looks up."""

from __future__ import annotations

from collections.abc import Callable

from models import catalog
from models.acceptance import Acceptance
from models.hardware import Accelerator
from models.schema import Basis
from models.strategies import Strategy, strategy_types
from models.strategies.modes import Switching

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
        f"{_LINKS[link.kind]} {link.bandwidth_bytes_per_s / 1e9:.0f} GB/s among up to "
        f"{link.largest_group} GPUs"
        if link
        else "tp 1 only"
    )
    return (
        f"{gpu.memory_bytes / 2**30:.1f} GiB, {gpu.memory_bandwidth_bytes_per_s / 1e12:.3g} TB/s, "
        f"peak TFLOP/s {peaks}; {joined}; {gpu.price_per_gpu_hour:.2f} USD/h; "
        f"kernel profile {gpu.profile} ({_basis(gpu)})"
    )


def _basis(gpu: Accelerator) -> Basis:
    return "validated" if catalog.profile(gpu.profile).device == gpu.name else "extrapolated"


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
        f"{profile.valid.m[0]} to {profile.valid.m[1]} tokens a step"
    )


def _residuals(name: str) -> str:
    entry = catalog.entry("residuals", name)
    steps, prefill = (len(entry.get(key, ())) for key in ("steps", "prefill"))
    return f"rows: {steps} of steps, {prefill} of prefill"


def _acceptance(name: str) -> str:
    entry = catalog.entry("acceptance", name)
    block = Acceptance.model_validate(entry["acceptance"])
    parts = [f"target {entry['target']}", _stated(block, entry.get("shape"))]
    if block.by_domain:
        domains = (f"{domain}{_mean(inner)}" for domain, inner in block.by_domain.items())
        parts.append(f"domains {', '.join(domains)}")
    return "; ".join(part for part in parts if part)


def _stated(block: Acceptance, shape: dict[str, int] | None) -> str:
    """How an acceptance block is stated, with its numbers."""
    if block.tau is not None and shape is not None:
        return f"tau {block.tau:g} with {shape['drafted']} drafted in {shape['depth']} levels"
    if block.tau is not None or block.tau_at_k is not None:
        return f"tau{_mean(block)} at {f'K={block.at_k}' if block.at_k else 'the K in use'}"
    if block.heads is not None:
        top = ", ".join(f"{ranks[0]:.2f}" for ranks in block.heads)
        return f"{len(block.heads)} heads, best token right {top}"
    rates = block.alpha_by_pos or (() if block.alpha is None else (block.alpha,))
    if not rates:
        return ""
    matched = f"match rate {block.match_rate:g}, then " if block.match_rate is not None else ""
    meaning = "given all before" if block.conditional else "shares of steps"
    return f"{matched}accepted by position {', '.join(f'{r:.2f}' for r in rates)} ({meaning})"


def _mean(block: Acceptance) -> str:
    tau = block.tau_at_k if block.tau is None else block.tau
    return "" if tau is None else f" {tau:g}"


def _strategy(kind: str) -> str:
    strategy = strategy_types()[kind]
    names = [name for name in strategy.model_fields if name not in _COMMON]
    parameters = ", ".join(_parameter(strategy, name) for name in names)
    if issubclass(strategy, Switching):
        return f"{parameters}; acceptance as each of its strategies states it"
    # Not validated: a draft model's name has no default, and acceptance does not ask for it.
    default = strategy.model_construct(kind=kind).resolved_acceptance()
    if default is None:
        return "no parameters; drafts nothing"
    return f"{parameters}; default acceptance {default.catalog}"


def _parameter(strategy: type[Strategy], name: str) -> str:
    field = strategy.model_fields[name]
    name = field.alias or name
    if field.is_required():
        return f"{name} (required)"
    default = field.default
    if hasattr(default, "model_dump"):
        inner = ", ".join(f"{key}: {value}" for key, value in default.model_dump().items())
        return f"{name} {{{inner}}}"
    if isinstance(default, bool) or default is None:
        return f"{name} {str(default).lower()}"
    return f"{name} {default:g}" if isinstance(default, float) else f"{name} {default}"


_FACTS: dict[str, Callable[[str], str]] = {
    "hardware": _hardware,
    "transformers": _transformer,
    "engines": _engine,
    "strategies": _strategy,
    "profiles": _profile,
    "residuals": _residuals,
    "acceptance": _acceptance,
}
