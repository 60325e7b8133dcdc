"""What a live server can tell of its device and engine: six factors, and how they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.engine import Engine
from models.forward_pass import head_parts, layer_parts, total
from models.gemm import US, gemm_s
from models.hardware import Accelerator
from models.kernel_table import KernelTable
from models.kernels import Kernels
from models.profile import Profile
from models.schema import Constant, Dtype, KvDtype
from models.transformer import Transformer

OF_KERNELS = {
    "launch_us": "launches",
    "fixed_us": "launches",
    "compute": "compute",
    "memory": "memory",
}
"""Constants of kernels that a factor moves, and which."""

MOVED = ("gemm", "attention", "prefill_attention", "verify_attention", "elementwise", "head", "moe")
"""Parts of a profile whose constants are moved; links between GPUs are not."""

HOST = {
    "request_us": "request",
    "host_plain.per_step_us": "host",
    "host_speculative.per_step_us": "host",
    "sampling_us": "draft",
    "draft_pass_us": "draft",
    "full_graph_pass_us": "draft",
    "tree_pass_us": "draft",
}
"""Constants of an engine that a factor moves, and which."""

Rows = Mapping[str, NDArray[Any]]


class Factors(NamedTuple):
    """Measured over what profile and engine said before; 1 leaves a constant as it was.

    Attributes
    ----------
    request : float
        Time of a request outside the engine.
    launches : float
        Time of kernels that does not depend on sizes.
    host : float
        Time of the host in a step, where the GPU waits for it.
    memory, compute : float
        Share of the bandwidth, and of the peak rate, that kernels reach.
    draft : float
        Time of the host for drafts, a step or a pass.
    """

    request: float = 1.0
    launches: float = 1.0
    host: float = 1.0
    memory: float = 1.0
    compute: float = 1.0
    draft: float = 1.0


@dataclass(frozen=True)
class Serving:
    """A device and the engine on it, as they are priced.

    Attributes
    ----------
    rows : mapping or None
        Measured kernels as columns, where they stand in for closed forms.
    weights, kv : str
        Types of the model served.
    """

    accelerator: Accelerator
    profile: Profile
    engine: Engine
    target: Transformer
    weights: Dtype
    kv: KvDtype
    tp: int
    rows: Rows | None = None

    @property
    def table(self) -> KernelTable | None:
        """Measured kernels as the model takes them."""
        return None if self.rows is None else KernelTable.of(self.rows)

    @property
    def eager(self) -> bool:
        """Whether its kernels were timed one by one, each with a launch a graph does not pay."""
        provenance = self.profile.provenance
        return provenance is not None and any(t.kernel == "eager" for t in provenance.tables)

    def launches_us(self) -> float:
        """Time of a step's kernels that does not depend on sizes [us]."""

        def step_s(profile: Profile) -> float:
            kernels, one = Kernels(self.accelerator, profile), np.array([1])
            layers = layer_parts(kernels, self.target, self.weights, self.kv, self.tp, one)
            head = head_parts(kernels, self.target, self.tp, one)
            return float((total(layers) + total(head))[0])

        return (step_s(self.profile) - step_s(_moved(self.profile, Factors(launches=0.0)))) / US

    def moved(self, factors: Factors) -> Serving:
        """The same with its constants moved; timed GEMMs as their closed form is."""
        profile = _moved(self.profile, factors)
        values = {
            name: constant.value * getattr(factors, HOST[name])
            for name, constant in self.engine.constants.items()
            if name in HOST and getattr(factors, HOST[name]) != 1.0
        }
        engine = self.engine.with_constants(values).model_copy(update={"given": self.engine.given})
        rows = self.rows and _scaled(self.rows, self.accelerator, self.profile, profile)
        return replace(self, profile=profile, engine=engine, rows=rows)


def _moved(profile: Profile, factors: Factors) -> Profile:
    parts = {name: _part(getattr(profile, name), factors) for name in MOVED}
    return profile.model_copy(update=parts)


def _part(part: Any, factors: Factors) -> Any:
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {key: _part(inner, factors) for key, inner in part.items()}
    update: dict[str, Any] = {}
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Constant) and name in OF_KERNELS:
            moved = value.value * getattr(factors, OF_KERNELS[name])
            update[name] = value.model_copy(update={"value": moved})
        elif name == "large" and value is not None:
            update[name] = _part(value, factors)
    return part.model_copy(update=update)


def _scaled(rows: Rows, accelerator: Accelerator, before: Profile, after: Profile) -> Rows:
    """Timed matrix products as long as their closed form says they became."""
    seconds = rows["time_s"].astype(np.float64).copy()
    for dtype, old in before.gemm.items():
        mine = np.flatnonzero((rows["operation"] == "gemm") & (rows["dtype"] == dtype))
        if not mine.size:
            continue
        m, n, k = (rows[name][mine] for name in ("m", "n", "k"))
        weights: Any = dtype
        was = gemm_s(old, accelerator, m, n, k, weights)
        seconds[mine] *= gemm_s(after.gemm[dtype], accelerator, m, n, k, weights) / was
    return {**rows, "time_s": seconds}
