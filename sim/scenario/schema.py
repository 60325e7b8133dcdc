"""The scenario file: every key, its meaning, unit, range and default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field, field_validator, model_validator

from models.kernels import Backend
from models.kv_layout import TreeKv
from models.kv_policy import KvLoss, KvPolicy
from models.launches import Launches
from models.schema import Dtype, Fraction, Frozen, KvDtype, ModelError
from models.strategies import Strategy, strategy_types
from models.strict_yaml import Label
from sim.scenario.distributions import Seconds
from sim.scenario.fleet import Failure, RouterPolicy
from sim.scenario.run_block import Run
from sim.scenario.service_level import Slo
from sim.scenario.vary import Vary
from sim.scenario.workload import Workload

BASELINE = "autoregressive"

if TYPE_CHECKING:
    AnyStrategy = Strategy
else:
    AnyStrategy = Annotated[
        Union[tuple(strategy_types().values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]

Gpus = Annotated[int, Field(ge=1, le=100_000)]
Price = Annotated[float, Field(ge=0, le=1e6)]
HostConstant = Annotated[float, Field(ge=0, le=1e12)]
StepTokens = Annotated[int, Field(ge=1, le=10_000_000)]


class Hardware(Frozen):
    """What it runs on."""

    gpu: str | None = Field(
        default=None,
        description="Catalogue name of the GPU, as in `speccast catalog hardware`; default the "
        "device the profile was measured on.",
    )
    gpus: Gpus | None = Field(
        default=None, description="GPUs paid for; default tp x replicas, and at least that."
    )
    profile: str | None = Field(
        default=None,
        description="Kernel constants: catalogue name or a profile file; default the GPU's own.",
    )
    kernels: Backend = Field(
        default="auto",
        description="Times of kernels: closed forms (roofline), rows measured beside the profile "
        "wherever there are any (table), or those where they beat the closed form (auto).",
    )
    price_per_gpu_hour: Price | None = Field(
        default=None,
        description="Price of a GPU for an hour [USD]; default a dated list price; 0: not known.",
    )


class Model(Frozen):
    """What is served, and how it is split."""

    transformer: str = Field(
        description="Catalogue name, or a Hugging Face config.json (path relative to this file)."
    )
    weights: Dtype = Field(default="bf16", description="Type of the weights.")
    kv: KvDtype = Field(
        default="bf16",
        description="Type of the KV cache; int4 is read at the rate of fp8 where it was not "
        "measured, which is assumed. Needs kv_loss with int4.",
    )
    kv_loss: KvLoss | None = Field(
        default=None,
        description="What quantised KV costs, in every step: required with int4; fp8 without it is "
        "assumed to cost nothing; bf16 loses nothing.",
    )
    tp: int = Field(default=1, ge=1, le=1024, description="Tensor-parallel GPUs a replica.")
    replicas: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Independent copies behind the router; default as many as the GPUs hold.",
    )

    @model_validator(mode="after")
    def _loss_stated(self) -> Model:
        if self.kv == "int4" and self.kv_loss is None:
            raise ModelError(
                "int4 KV needs its losses stated: {acceptance_loss: .., quality_loss: ..}; "
                "0 for none",
                "kv_loss",
            )
        return self


class EngineChoice(Frozen):
    """Which engine version serves it, with which limits."""

    name: str = Field(
        default="vllm_0.15",
        description="Catalogue name of the engine version, or a file that describes one.",
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, le=100_000, description="Most sequences a step; default the engine's."
    )
    max_num_batched_tokens: StepTokens | None = Field(
        default=None, description="Most tokens a step; default the engine's [tokens]."
    )
    max_model_len: StepTokens | None = Field(
        default=None,
        description="Longest prompt plus output [tokens]; default the model's, at most 32768.",
    )
    gpu_memory_utilization: Fraction = Field(
        default=0.9, description="Share of GPU memory the engine may use."
    )
    tree_kv: TreeKv = Field(
        default="inline",
        description="Where the KV of a verified tree goes: slots behind the context (inline), a "
        "copy of the last block for every branch (copy_on_write), or one stretch of adjacent "
        "blocks a sequence (contiguous). Chains are inline.",
    )
    kv_policy: KvPolicy | None = Field(
        default=None,
        description="What is kept of each context's KV on the GPU; default all of it. Switches "
        "prefix caching off.",
    )
    launches: Launches | None = Field(
        default=None,
        description="Launch overhead of the engine's mode, on top of its constants; default none.",
    )
    constants: dict[Label, HostConstant] = Field(
        default={},
        max_length=100,
        description="Host constants of your own, replacing the engine's by name, as "
        "`host_plain.per_step_us` [unit in the name].",
    )
    router: RouterPolicy = Field(
        default="least_outstanding", description="Which replica gets the next request."
    )
    router_refresh_s: Seconds = Field(
        default=0.0,
        description="Age at which the router reads the load of the replicas anew [s]; 0: exact.",
    )
    queue_limit: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Requests waiting in a replica beyond which it refuses more (HTTP 429).",
    )


class Scenario(Frozen):
    """One what-if question: hardware, model, engine, workload, and the strategies compared."""

    hardware: Hardware = Field(description="What it runs on.")
    model: Model = Field(description="What is served, and how it is split.")
    engine: EngineChoice = Field(
        default=EngineChoice(), description="Which engine version serves it, with which limits."
    )
    workload: Workload = Field(description="What is sent to the servers.")
    strategies: tuple[AnyStrategy, ...] = Field(
        min_length=1,
        max_length=64,
        description="Strategies compared; plain decoding is put first where none is listed, unless "
        "run.baseline is false.",
    )
    failures: tuple[Failure, ...] = Field(
        default=(), max_length=1000, description="Replicas that die, and how they come back."
    )
    slo: Slo = Field(default=Slo(), description="What the service must hold.")
    run: Run = Field(default=Run(), description="How it is simulated.")
    vary: Vary = Field(
        default={},
        description="Dotted keys that take each of their values in turn, all combinations: "
        "`workload.arrivals.rate_per_s: [4, 8, 12]`; keys with commas between take the same "
        "value. Or a list of points, each a mapping of keys to values.",
    )

    @field_validator("strategies")
    @classmethod
    def _told_apart(cls, strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
        if twice := _named_twice(strategies):
            raise ValueError(twice)
        return strategies

    @model_validator(mode="after")
    def _with_baseline(self) -> Scenario:
        if self.run.baseline and self.baseline is None:
            strategies = (self.plain, *self.strategies)
            if twice := _named_twice(strategies):
                raise ModelError(twice, "strategies")
            # Frozen from here on; until now nobody has seen it.
            self.__dict__["strategies"] = strategies
        return self

    @property
    def stationary(self) -> bool:
        """Whether a run settles: not where traffic changes, nor where a policy may swing."""
        return self.workload.stationary and not any(one.switches for one in self.strategies)

    @property
    def baseline(self) -> int | None:
        """Index of what the others are compared with: the first plain decoding, if there is any."""
        return next((i for i, s in enumerate(self.strategies) if s.kind == BASELINE), None)

    @property
    def plain(self) -> Strategy:
        """Plain decoding: the baseline, or where there is none what it would be."""
        index = self.baseline
        return (
            strategy_types()[BASELINE](kind=BASELINE) if index is None else self.strategies[index]
        )


def _named_twice(strategies: tuple[Strategy, ...]) -> str | None:
    """What is wrong where two have one name; None where nothing is."""
    names = [strategy.name for strategy in strategies]
    twice = next((name for name in names if names.count(name) > 1), None)
    return twice and f"two strategies are called '{twice}'; tell them apart by label"
