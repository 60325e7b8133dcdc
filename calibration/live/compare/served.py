"""Which strategy of a scenario an observed server ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from calibration.live.recording import Observation
from calibration.live.repeated import told
from calibration.live.stated import drafts_told
from models.strategies import Strategy, fixed_types
from models.strict_yaml import InputError, one_line, show
from sim.analysis import metrics
from sim.analysis.metrics import finished
from sim.scenario.load import ScenarioFile
from sim.scenario.schema import BASELINE

APART = frozenset({"kind", "label", "hypothetical", "acceptance"})
"""Keys that say nothing of how a server was set up, or are compared by themselves."""


def served(observation: Observation, file: ScenarioFile, asked: str | None = None) -> Strategy:
    """The strategy of a scenario that predicts an observation.

    Parameters
    ----------
    observation : Observation
    file : ScenarioFile
    asked : str, optional
        Name of the strategy to take, whatever the server ran.

    Raises
    ------
    InputError
        If no strategy, or more than one, has the block or the label of the observation; none has
        the name asked for; or the observation is said to be of plain decoding and the server
        drafted.
    """
    known = file.points[0].scenario.strategies
    named = {strategy.name: strategy for strategy in known}
    listed = ", ".join(show(name) for name in named)
    if asked is not None:
        if asked not in named:
            raise InputError("", None, "--strategy", f"must be one of {listed}, got {show(asked)}")
        return named[asked]
    if drafted_unsaid(observation):
        raise file.document.error(
            "strategies",
            f"the recording names {show(observation.label)}, but its server drafted; choose one of "
            f"{listed} with --strategy",
        )
    same = [strategy for strategy in known if matches(strategy, observation.block)]
    called = named.get(observation.label)
    if len(same) == 1:
        return same[0]
    if called is not None and (called in same or called.kind == observation.block.get("kind")):
        return called
    which = "several of its strategies are" if same else "none of its strategies is"
    raise file.document.error(
        "strategies",
        f"{which} what the server ran, {show(observation.label)}; take it from the recording with "
        f"--as-recorded, or choose one of {listed} with --strategy",
    )


def as_recorded(observation: Observation) -> Strategy:
    """The strategy the server ran, with the mean acceptance its requests had.

    Raises
    ------
    InputError
        If the server told no steps of every request, or the observation names no strategy that can
        be simulated, or plain decoding where the server drafted.
    """
    block, where = dict(observation.block), str(observation.folder)
    kind = fixed_types().get(str(block.get("kind")))
    if kind is None:
        known = ", ".join(sorted(fixed_types()))
        raise InputError(where, None, "strategies", f"must be one of {known}, got {show(block)}")
    if drafted_unsaid(observation):
        message = (
            f"names {show(observation.label)}, but the server drafted; choose a strategy of the "
            "scenario with --strategy"
        )
        raise InputError(where, None, "strategies", message)
    if block["kind"] != BASELINE:
        rows = [metrics.select(run.columns, finished(run.columns)) for run in observation.runs]
        if not all(map(told, rows)):
            message = "were not told for every request; state acceptance in the scenario instead"
            raise InputError(where, None, "steps of requests", message)
        block["acceptance"] = {"tau": metrics.tau(metrics.joined(rows)) or 1.0}
    try:
        return kind.model_validate(block | {"label": observation.label})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("strategies", observation.label, *first["loc"])))
        raise InputError(where, None, key, one_line(first["msg"])) from None


def drafted_unsaid(observation: Observation) -> bool:
    """Whether a server drafted that is recorded as one of plain decoding."""
    if observation.block.get("kind") != BASELINE:
        return False
    told = any(drafts_told(stage.counters, stage.gauges).seen for stage in observation.stages)
    return told or any(bool(run.columns["drafted"].any()) for run in observation.runs)


def matches(strategy: Strategy, block: Mapping[str, Any]) -> bool:
    """Whether a block, as an observation records it, sets a strategy up alike.

    Acceptance is left aside, and a key at its default is as good as none.
    """
    if strategy.kind != block.get("kind"):
        return False
    standard = {
        key: one.get_default(call_default_factory=True)
        for key, one in type(strategy).model_fields.items()
        if not one.is_required()
    }
    given = {key: value for key, value in block.items() if key not in APART}
    set_up = strategy.model_dump(mode="json", exclude_defaults=True, exclude=set(APART))
    return set_up == {k: v for k, v in given.items() if k not in standard or v != standard[k]}
