"""The plan file: what is to be served and held, and what may be bought; every key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from models.schema import Fraction, Frozen, ModelError, Positive
from models.strategies import Strategy
from models.strict_yaml import Label, show
from sim.analysis.windows import FEW
from sim.scenario.distributions import word_or_number
from sim.scenario.fleet import Client, Restart
from sim.scenario.schema import AnyStrategy, EngineChoice, Hardware, Model, Price
from sim.scenario.service_level import Slo
from sim.scenario.shapes import DAY_S, Hour
from sim.scenario.streams import Stream
from sim.scenario.workload import Workload

RESTART = Restart(load_bytes_per_s=2e9, boot_s=90.0)
"""Assumed: weights from a disk or a network at 2 GB/s, 90 s to start, compile and capture graphs;
no source. A plan file states its own in `failure.restart`."""

MAX_VALUES = 1000

Searched = Annotated[tuple[Any, ...], Field(min_length=1, max_length=MAX_VALUES)]


class Demand(Frozen):
    """How many requests come."""

    requests_per_day: float = Field(ge=1, le=1e11, description="Requests a day, mean over the day.")
    peak_factor: float = Field(
        ge=1, le=100, description="Rate at the peak of the day over the mean rate."
    )
    peak_hour: Hour = Field(default=14.0, description="Hour of the peak, 0 to 24.")
    uncertainty: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="Relative standard deviation of the requests that will come; default: as "
        "stated for certain.",
    )

    @property
    def mean_req_s(self) -> float:
        """Requests a second over the day [1/s]."""
        return self.requests_per_day / DAY_S

    @property
    def peak_req_s(self) -> float:
        """Requests a second at the peak [1/s]."""
        return self.mean_req_s * self.peak_factor


class Traffic(Frozen):
    """What is asked: a scenario's `workload` without its arrivals, which follow from the demand."""

    sampling: Literal["default", "greedy", "top_p"] = Field(
        default="default",
        description="Decoding at temperature 0, with top-p, or as the model's own config says.",
    )
    client: Client = Field(default=Client(), description="Patience of clients.")
    streams: tuple[Stream, ...] = Field(
        min_length=1, max_length=1000, description="Kinds of traffic; shares sum to 1."
    )

    @model_validator(mode="after")
    def _whole(self) -> Traffic:
        Workload.model_validate(
            {"arrivals": {"kind": "constant", "rate_per_s": 1.0}, "streams": self.streams}
        )
        return self


class Kill(Frozen):
    """The replica that is killed at the peak."""

    restart: Restart = Field(
        default=RESTART, description="How it comes back; the default is assumed."
    )
    in_flight: Literal["resend", "lose"] = Field(
        default="resend", description="Requests it had: sent again, or lost."
    )


def _none(value: object) -> object:
    """``none`` in every way it may be written."""
    if value is None or value is False:
        return "none"
    if value != "none" and not isinstance(value, (dict, Kill)):
        raise ValueError(f"must be none or {{restart: {{...}}}}, got {show(value)}")
    return value


Failing = Annotated[
    Annotated[Literal["none"], Tag("word")] | Annotated[Kill, Tag("number")],
    Discriminator(word_or_number),
    BeforeValidator(_none),
]
Watts = Annotated[
    Annotated[dict[Label, Positive], Tag("by_gpu")] | Annotated[Positive, Tag("number")],
    Discriminator(lambda value: "by_gpu" if isinstance(value, dict) else "number"),
]


class Power(Frozen):
    """What power costs; told beside the price of the GPUs, not added to it."""

    watts_per_gpu: Watts = Field(
        description="Draw of a GPU with its share of the server [W]; a number, or by GPU."
    )
    pue: float = Field(default=1.0, ge=1, le=10, description="Power of the site over the servers'.")
    usd_per_kwh: float = Field(ge=0, le=100, description="Price of power [USD/kWh].")

    def watts(self, gpu: str) -> float | None:
        """Draw of one GPU, without the site's share [W]; None where it is not stated."""
        if isinstance(self.watts_per_gpu, dict):
            return self.watts_per_gpu.get(gpu)
        return self.watts_per_gpu


class PlanRun(Frozen):
    """How it is simulated and judged."""

    seed: int = Field(default=1, ge=0, lt=2**63, description="Same seed, same plan.")
    replications: int = Field(
        default=3,
        ge=2,
        le=100,
        description="Independent repeats of the capacity of one replica, for its interval.",
    )
    window_s: float = Field(
        default=300.0, ge=1, le=1e6, description="Sliding windows, each of which must hold [s]."
    )
    hour_s: float = Field(
        default=3600.0,
        ge=1,
        le=86_400,
        description="Length of the busiest stretch that is judged, around the peak [s].",
    )
    lead_s: float = Field(
        default=300.0, ge=0, le=1e5, description="Load before it, so that it does not begin empty."
    )

    @model_validator(mode="after")
    def _windows(self) -> PlanRun:
        if self.hour_s < self.window_s:
            raise ModelError(
                f"must be at least run.window_s ({self.window_s:g}), got {self.hour_s:g}", "hour_s"
            )
        return self


class Plan(Frozen):
    """What to buy for a demand: the cheapest fleet that holds the SLO, by strategy and GPU."""

    demand: Demand = Field(description="How many requests come.")
    hardware: Hardware = Field(
        default=Hardware(), description="gpu, profile and kernels, where they are not searched."
    )
    model: Model = Field(description="What is served; its replicas are what is looked for.")
    engine: EngineChoice = Field(
        default=EngineChoice(), description="Which engine version serves it, with which limits."
    )
    workload: Traffic = Field(description="What is asked.")
    strategies: tuple[AnyStrategy, ...] = Field(
        min_length=1, max_length=64, description="Strategies compared."
    )
    slo: Slo = Field(description="What every window of the busiest hour must hold.")
    search: dict[str, Searched] = Field(
        default={},
        description="Dotted keys of hardware, model, engine and strategies[i] that take each of "
        "their values; a key of one strategy multiplies that strategy's candidates only.",
    )
    failure: Failing = Field(
        default=Kill(),
        description="The replica killed in the middle of the busiest hour; `none` (or null, false) "
        "plans without, and then one replica may be enough.",
    )
    prices: dict[Label, Price] = Field(
        default={},
        description="Price of a GPU for an hour by GPU [USD]; default a dated list price; 0: not "
        "known, and plans are ranked by GPUs.",
    )
    power: Power | None = Field(default=None, description="What power costs; default untold.")
    confidence: Fraction | None = Field(
        default=None, lt=1, description="Also tell the GPUs that suffice with this probability."
    )
    run: PlanRun = Field(default=PlanRun(), description="How it is simulated and judged.")

    @field_validator("strategies")
    @classmethod
    def _distinct(cls, strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
        names = [strategy.name for strategy in strategies]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two strategies are called '{twice}'; tell them apart by label")
        return strategies

    @model_validator(mode="after")
    def _enough_to_judge_by(self) -> Plan:
        busiest = self.demand.peak_req_s * self.run.hour_s
        if busiest < FEW:
            raise ModelError(
                f"makes {busiest:.2g} requests in the busiest {self.run.hour_s:g} s; needs {FEW} "
                f"to judge by, got {self.demand.requests_per_day:g}",
                "demand.requests_per_day",
            )
        return self

    @model_validator(mode="after")
    def _left_to_the_plan(self) -> Plan:
        found = {
            "model.replicas": self.model.replicas,
            "hardware.gpus": self.hardware.gpus,
        }
        for key, value in found.items():
            if value is not None:
                raise ModelError(f"is what the plan looks for; leave it out, got {value}", key)
        if self.hardware.price_per_gpu_hour is not None:
            raise ModelError(
                f"prices are stated by GPU in prices, got {self.hardware.price_per_gpu_hour:g}",
                "hardware.price_per_gpu_hour",
            )
        if not self.slo.stated and not self.slo.classes:
            raise ModelError("needs at least one bound: ttft_s, tpot_s, e2e_s", "slo")
        return self
