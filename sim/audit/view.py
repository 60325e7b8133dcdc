"""What a measure looks at: one strategy at one point of a scenario, run or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from models.schema import ModelError
from models.strategies import Strategy
from sim.explain import explain
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.build import Deployment, build
from sim.scenario.load import Point, ScenarioFile
from sim.scenario.workload import generate
from sim.setup import Setup, prepare

Row = Mapping[str, Any]

LENGTH_SAMPLE = 500
"""Requests drawn to find the mean lengths of a workload."""


class Measured(NamedTuple):
    """A figure, its band where there is one, and why there is none.

    Attributes
    ----------
    value : float or None
        In the unit of the measure.
    lo, hi : float or None
        Ends of the 90 % band; None where there is no band, or an end saturates.
    basis : str or None
        What the band rests on; None without a band.
    why : str or None
        Why there is no value.
    """

    value: float | None
    lo: float | None = None
    hi: float | None = None
    basis: str | None = None
    why: str | None = None


@dataclass
class View:
    """One point of a scenario: its result rows where it was run, and what is priced on demand."""

    file: ScenarioFile
    point: Point
    rows: Mapping[str, Row] | None = None
    _setups: dict[str, Setup] = field(default_factory=dict)
    _steps: dict[tuple[str, int, int], Row] = field(default_factory=dict)

    @property
    def deployment(self) -> Deployment:
        """What the scenario comes to."""
        return build(self.point.scenario)

    def strategy(self, name: str) -> Strategy:
        """A strategy by its name in tables."""
        return next(one for one in self.point.scenario.strategies if one.name == name)

    def setup(self, strategy: str) -> Setup:
        """Memory and step time of a strategy by its name in tables."""
        if strategy not in self._setups:
            domains = self.point.scenario.workload.domain_names
            chosen = self.strategy(strategy)
            self._setups[strategy] = prepare(self.deployment, chosen, domains)
        return self._setups[strategy]

    def step(self, strategy: str, batch: int, context: int) -> Row:
        """Row of ``speccast explain`` of a strategy at a batch and a context.

        Raises
        ------
        ModelError
            If it cannot hold that many sequences.
        """
        at = strategy, batch, context
        if at not in self._steps:
            scenario = self.point.scenario
            plain = scenario.plain
            both = (self.strategy(strategy), *([] if plain.name == strategy else [plain]))
            alone = scenario.model_copy(update={"strategies": both})
            file = ScenarioFile(self.file.document, (Point({}, alone),), self.file.resolved)
            document = explain(file, batch=batch, context=context)
            if document["batch"] < batch:
                held = document["batch"]
                raise ModelError(f"a replica runs {held} sequences at most, asked for {batch}")
            self._steps[at] = document["rows"][0]
        return self._steps[at]

    @property
    def users(self) -> int:
        """Users of a closed loop; 1 where requests come by themselves."""
        arrivals = self.point.scenario.workload.arrivals
        return arrivals.users if isinstance(arrivals, ClosedLoop) else 1

    @property
    def lengths(self) -> tuple[float, float]:
        """Mean prompt and output of a request [token]."""
        scenario = self.point.scenario
        short = scenario.workload.model_copy(update={"requests": LENGTH_SAMPLE, "duration_s": None})
        drawn = generate(short, scenario.run.seed, 0)
        return float(drawn.prompt_tokens.mean()), float(drawn.output_tokens.mean())


@dataclass(frozen=True)
class Look:
    """One strategy of a view, and where on its curve it is looked at.

    Attributes
    ----------
    view : View
    strategy : str
        Its name in tables.
    asked_batch, asked_context : int or None
        As the quantity states them.
    stream : str or None
        Only the requests of this stream; None means all.
    """

    view: View
    strategy: str
    asked_batch: int | None = None
    asked_context: int | None = None
    stream: str | None = None

    @property
    def row(self) -> Row:
        """Its result row, with the figures of a stream in place of its own where one is asked."""
        assert self.view.rows is not None
        row = self.view.rows[self.strategy]
        parts = row["streams"] if self.stream is not None else ()
        return {**row, **next((part for part in parts if part["stream"] == self.stream), {})}

    @property
    def chosen(self) -> Strategy:
        """The strategy itself."""
        return self.view.strategy(self.strategy)

    @property
    def setup(self) -> Setup:
        """Its memory and step time."""
        return self.view.setup(self.strategy)

    @property
    def plain(self) -> Setup:
        """Memory and step time of plain decoding."""
        return self.view.setup(self.baseline)

    @property
    def baseline(self) -> str:
        """Name of plain decoding."""
        return self.view.point.scenario.plain.name

    @property
    def batch(self) -> int:
        """Sequences decoding."""
        return self.asked_batch or self.view.users

    @property
    def context(self) -> int:
        """Tokens of context of each: the prompt and half the output unless stated."""
        if self.asked_context is not None:
            return self.asked_context
        prompt, output = self.view.lengths
        return round(prompt + output / 2)

    @property
    def step(self) -> Row:
        """Its row of ``speccast explain``."""
        return self.view.step(self.strategy, self.batch, self.context)
