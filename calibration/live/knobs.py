"""What a live server can tell of its device and engine: four factors, and how they are applied."""

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

ENTRIES = {"launch_us": "fixed", "fixed_us": "fixed", "compute": "compute", "memory": "memory"}
"""Constants of kernels that a factor moves, and which."""

MOVED = ("gemm", "attention", "prefill_attention", "verify_attention", "elementwise", "head", "moe")
"""Parts of a profile whose constants are moved; links between GPUs are not."""

Rows = Mapping[str, NDArray[Any]]


class Factors(NamedTuple):
    """Measured over what profile and engine said before; 1 leaves a constant as it was.

    Attributes
    ----------
    request : float
        Time of a request outside the engine.
    fixed : float
        Time of a step that does not depend on what is in it: launches of kernels, and the host
        where the GPU waits for it.
    memory, compute : float
        Share of the bandwidth, and of the peak rate, that kernels reach.
    draft : float
        Time of the host for drafts, a step or a pass.
    """

    request: float = 1.0
    fixed: float = 1.0
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

    def launches_us(self) -> float:
        """Time of a step's kernels that does not depend on sizes [us]."""

        def step_s(profile: Profile) -> float:
            kernels, one = Kernels(self.accelerator, profile), np.array([1])
            layers = layer_parts(kernels, self.target, self.weights, self.kv, self.tp, one)
            head = head_parts(kernels, self.target, self.tp, one)
            return float((total(layers) + total(head))[0])

        return (step_s(self.profile) - step_s(_moved(self.profile, Factors(fixed=0.0)))) / US

    def host_us(self, kind: str) -> float:
        """Time of the host a step of plain decoding waits for [us]; 0 where it is hidden."""
        return 0.0 if self.engine.is_async(kind) else self.engine.host_plain.per_step_us.value

    def moved(self, factors: Factors, kind: str = "autoregressive") -> Serving:
        """The same with its constants moved.

        Parameters
        ----------
        factors : Factors
        kind : str
            Kind of strategy the fixed time was seen with: whether the host is part of it.

        Notes
        -----
        A fixed time beyond that of the kernels' launches is the host's, where the GPU waits for
        it. Less than the launches, or a host that is hidden, and it is theirs: kernels timed one
        by one pay launches that a compiled graph does not. Measured rows are scaled as their
        closed form is.
        """
        launches, host = self.launches_us(), self.host_us(kind)
        fixed = factors.fixed * (launches + host)
        if self.engine.is_async(kind):
            share, host = fixed / launches, self.engine.host_plain.per_step_us.value
        else:
            share, host = min(1.0, fixed / launches), max(0.0, fixed - launches)
        profile = _moved(self.profile, factors._replace(fixed=share))
        engine = _engine(self.engine, factors, host)
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
        if isinstance(value, Constant) and name in ENTRIES:
            moved = value.value * getattr(factors, ENTRIES[name])
            update[name] = value.model_copy(update={"value": moved})
        elif name == "large" and value is not None:
            update[name] = _part(value, factors)
    return part.model_copy(update=update)


def _engine(engine: Engine, factors: Factors, host_us: float) -> Engine:
    plain, drafting = engine.host_plain.per_step_us, engine.host_speculative.per_step_us
    more = drafting.value - plain.value
    values = {
        "request_us": factors.request * engine.request_us.value,
        "host_plain.per_step_us": host_us,
        "host_speculative.per_step_us": max(0.0, host_us + more),
        "sampling_us": factors.draft * engine.sampling_us.value,
        "draft_pass_us": factors.draft * engine.draft_pass_us.value,
    }
    changed = {name: us for name, us in values.items() if us != engine.constants[name].value}
    return engine.with_constants(changed).model_copy(update={"given": engine.given})


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
