"""Names and defaults of a scenario become objects and numbers: the deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from models import catalog
from models.engine import Engine
from models.hardware import Accelerator
from models.kernel_table import KernelTable
from models.kernels import Backend, Kernels
from models.kv_layout import TreeKv
from models.kv_memory import KvBudget, kv_budget
from models.kv_policy import AnyPolicy, KvLoss
from models.kv_use import KvUse, kv_use
from models.launches import NO_LAUNCHES, Launches
from models.laws import Law
from models.profile import Profile
from models.residuals import Residuals
from models.schema import Basis, Dtype, KvDtype, ModelError
from models.strategies import Strategy
from models.thinning import ThinnedLaw
from models.transformer import Transformer
from sim.scenario.checks import (
    blame,
    check_classes,
    check_fleet,
    check_split,
    check_strategies,
)
from sim.scenario.device import device_of
from sim.scenario.dump import plain
from sim.scenario.fleet import Client, Failure, RouterPolicy
from sim.scenario.schema import Scenario
from sim.scenario.workload_checks import check_workload

LONGEST_DEFAULT_TOKENS = 32_768


@dataclass(frozen=True)
class Deployment:
    """What a scenario serves with, every name and default resolved.

    Attributes
    ----------
    profile_basis : str
        ``validated`` when the constants were measured on this GPU, else ``extrapolated``.
    residuals : Residuals
        Errors seen against real runs, which the bands carry.
    kernel_table : KernelTable or None
        Measured rows of this GPU, where they are wanted.
    kernel_backend : str
        Closed forms, measured rows, or each where it is better.
    kv_loss : KvLoss or None
        What quantised KV costs, as in the scenario; None for bf16.
    gpus : int
        GPUs paid for; ``tp`` x ``replicas`` of them work.
    max_num_seqs : int
        Most sequences a step; ``max_num_seqs_for`` says how many beside a strategy.
    max_num_seqs_given : bool
        The user set it, so it holds for every strategy.
    max_num_batched_tokens, max_model_len : int
        Most tokens a step, and of prompt and output together.
    router, router_refresh_s, queue_limit, client, failures
        What surrounds the engines, as in the scenario.
    tree_kv, kv_policy, launches
        KV of trees, what is kept of contexts, and launch overhead, as in the scenario.
    top_p : bool
        Top-p sampling is on.
    price_per_gpu_hour : float
        Price of one GPU for an hour [USD]; 0: not known.
    """

    accelerator: Accelerator
    target: Transformer
    engine: Engine
    profile: Profile
    profile_basis: Basis
    residuals: Residuals
    kernel_table: KernelTable | None
    kernel_backend: Backend
    weights: Dtype
    kv: KvDtype
    kv_loss: KvLoss | None
    tp: int
    replicas: int
    gpus: int
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_seqs_given: bool
    max_num_batched_tokens: int
    max_model_len: int
    tree_kv: TreeKv
    kv_policy: AnyPolicy | None
    launches: Launches
    router: RouterPolicy
    router_refresh_s: float
    queue_limit: int | None
    client: Client
    failures: tuple[Failure, ...]
    top_p: bool
    price_per_gpu_hour: float

    def max_num_seqs_for(self, strategy: Strategy) -> int:
        """Most sequences a step beside this strategy.

        Where the user set none, engines cap it for speculation, and the verify tokens of all
        sequences must fit into one step.
        """
        if self.max_num_seqs_given:
            return self.max_num_seqs
        seqs = self.max_num_seqs
        if strategy.drafted and self.engine.max_num_seqs_speculative is not None:
            seqs = min(seqs, self.engine.max_num_seqs_speculative)
        return min(seqs, self.max_num_batched_tokens // strategy.verify_tokens)

    def beyond_engine(self, strategy: Strategy) -> bool:
        """Whether it asks for what no engine version was measured with, beside this strategy.

        Chains lie inline, whatever layout is asked for trees.
        """
        measured = self.kv != "int4" or "int4" in self.profile.attention
        moved = self.kv_use(strategy).layout.tree_kv != "inline"
        return bool(self.kv_policy or self.launches != NO_LAUNCHES or moved or not measured)

    def shown(self, scenario: Scenario) -> dict[str, Any]:
        """The scenario as plain data, with the GPU, and the GPUs and replicas it comes to."""
        data = plain(scenario)
        named = {"gpu": self.accelerator.name}
        data["hardware"] = {**named, **data["hardware"], "gpus": self.gpus}
        data["model"]["replicas"] = self.replicas
        return data

    @property
    def kernels(self) -> Kernels:
        """Times of its kernels."""
        return Kernels(
            self.accelerator,
            self.profile,
            self.kernel_table,
            self.kernel_backend,
            engine=self.engine,
        )

    def kv_use(self, strategy: Strategy) -> KvUse:
        """KV blocks its sequences hold, and what they read and fetch."""
        extra = strategy.memory(self.target, self.weights, self.kv, self.tp).kv_bytes_per_token
        size = self.target.kv_bytes_per_token(self.kv, self.tp) + extra
        return kv_use(self.engine, strategy, self.tree_kv, self.kv_policy, size)

    def thinned(self, law: Law, domains: tuple[str, ...]) -> Law:
        """A law of acceptance with the losses that the scenario states for its KV."""
        loss = self.kv_loss.acceptance_loss if self.kv_loss else 0.0
        return ThinnedLaw.of(law, loss, len(domains), self.kv_policy)

    @property
    def quality_loss(self) -> float | None:
        """Sum of the losses of quality that are stated; None where none is."""
        stated = [loss.quality_loss for loss in (self.kv_loss, self.kv_policy) if loss is not None]
        return sum(stated) if stated else None

    def kv_budget(self, strategy: Strategy) -> KvBudget:
        """KV blocks left beside this strategy; ModelError if there is none."""
        return kv_budget(
            self.accelerator,
            self.target,
            strategy,
            self.engine,
            weights=self.weights,
            kv=self.kv,
            tp=self.tp,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )


def build(scenario: Scenario) -> Deployment:
    """Resolve a scenario and refuse what cannot run.

    Raises
    ------
    ModelError
        For unknown names and contradictions, with the dotted key at fault; ``strategies[i]``
        counts as in ``scenario.strategies``.
    InputError
        For a profile file of the user's own that is wrong.
    """
    hardware, model, asked = scenario.hardware, scenario.model, scenario.engine
    with blame("model.transformer"):
        target = catalog.transformer(model.transformer)
    with blame("engine.name"):
        engine = catalog.engine(asked.name)
    with blame("engine.constants"):
        engine = engine.with_constants(asked.constants)
    device = device_of(hardware, engine.family)
    accelerator, profile = device.accelerator, device.profile
    check_split(scenario.model, accelerator, profile, target)
    check_workload(scenario.workload)
    check_classes(scenario.slo, scenario.workload.streams)
    replicas, gpus = _gpus(scenario)
    check_fleet(scenario, replicas)
    size: Literal["large", "small"] = "large" if accelerator.large_batch_defaults else "small"
    price = hardware.price_per_gpu_hour
    deployment = Deployment(
        accelerator=accelerator,
        target=target,
        engine=engine,
        profile=profile,
        profile_basis=device.basis,
        residuals=catalog.residuals(),
        kernel_table=device.table,
        kernel_backend=hardware.kernels,
        weights=model.weights,
        kv=model.kv,
        kv_loss=None if model.kv == "bf16" else model.kv_loss,
        tp=model.tp,
        replicas=replicas,
        gpus=gpus,
        gpu_memory_utilization=asked.gpu_memory_utilization,
        max_num_seqs=asked.max_num_seqs or engine.max_num_seqs[size],
        max_num_seqs_given=asked.max_num_seqs is not None,
        max_num_batched_tokens=asked.max_num_batched_tokens or engine.max_num_batched_tokens[size],
        max_model_len=_max_model_len(scenario, target),
        tree_kv=asked.tree_kv,
        kv_policy=asked.kv_policy,
        launches=asked.launches or NO_LAUNCHES,
        router=asked.router,
        router_refresh_s=asked.router_refresh_s,
        queue_limit=asked.queue_limit,
        client=scenario.workload.client,
        failures=scenario.failures,
        top_p=_top_p(scenario, target),
        price_per_gpu_hour=accelerator.price_per_gpu_hour if price is None else price,
    )
    check_strategies(scenario.strategies, scenario.workload.domain_names, deployment)
    return deployment


def _gpus(scenario: Scenario) -> tuple[int, int]:
    """Replicas, and GPUs paid for."""
    tp, replicas, gpus = scenario.model.tp, scenario.model.replicas, scenario.hardware.gpus
    if gpus is None:
        replicas = replicas or 1
        return replicas, tp * replicas
    needed = tp * (replicas or 1)
    if gpus < needed:
        raise ModelError(
            f"must be at least model.tp x model.replicas = {needed}, got {gpus}", "hardware.gpus"
        )
    return replicas or gpus // tp, gpus


def _max_model_len(scenario: Scenario, target: Transformer) -> int:
    asked = scenario.engine.max_model_len
    if asked is not None and asked > target.max_position:
        raise ModelError(
            f"{target.name} reaches {target.max_position} tokens, got {asked}",
            "engine.max_model_len",
        )
    return asked or min(target.max_position, LONGEST_DEFAULT_TOKENS)


def _top_p(scenario: Scenario, target: Transformer) -> bool:
    sampling = scenario.workload.sampling
    return target.top_p_default if sampling == "default" else sampling == "top_p"
