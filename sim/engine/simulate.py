"""Run one workload through the replicas of one deployment."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import simpy

from models.acceptance import Law
from models.step_cost import StepCost
from sim.engine.arrivals import Arrivals
from sim.engine.batch import Batch
from sim.engine.control.making import control_of
from sim.engine.decode_batch import DecodeBatch
from sim.engine.fleet import Fleet
from sim.engine.intake import Intake
from sim.engine.modes import Modes
from sim.engine.recorder import Recorder
from sim.engine.replica import Replica
from sim.engine.router import Router
from sim.engine.rules import Rules
from sim.engine.slot_batch import SlotBatch
from sim.engine.slot_intake import SlotIntake
from sim.engine.step_rows import OnSteps
from sim.scenario.requests import Requests


@dataclass(frozen=True)
class Plan:
    """Everything a run needs besides its workload and seed.

    Attributes
    ----------
    rules : Rules
    cost : StepCost
    law : Law
        How many tokens each step emits.
    drafted : int
        Draft tokens a step, where the law leaves them constant.
    varies_width : bool
    fleet : Fleet
    scale : float
        Factor on every step time.
    modes : Modes or None
        Where sequences switch between modes; ``law``, ``drafted`` and ``cost`` then are those of
        the mode they start in.
    """

    rules: Rules
    cost: StepCost
    law: Law
    drafted: int
    varies_width: bool = False
    fleet: Fleet = field(default_factory=Fleet)
    scale: float = 1.0
    modes: Modes | None = None


def simulate(
    plan: Plan,
    requests: Requests,
    seed: int,
    *,
    on_steps: OnSteps | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_look: Callable[[Recorder, float], None] | None = None,
) -> Recorder:
    """Serve all requests and return what was recorded.

    Parameters
    ----------
    plan : Plan
    requests : Requests
    seed : int
        Seed of the acceptance draws, of routing, of retries and of blocks given back.
    on_steps : callable, optional
        Gets the step rows, chunk by chunk.
    on_progress : callable, optional
        Called with (requests done, requests in all) at least every hundredth of the run. It may
        raise KeyboardInterrupt.
    on_look : callable, optional
        Called as often, and likewise, with what was recorded and a time [s] up to which nothing is
        missing: a request without a first token in it has none until then.

    Notes
    -----
    KeyboardInterrupt ends the run where it stands: the recorder says ``interrupted``, and what it
    holds until then is complete.
    """
    env = simpy.Environment()
    total, replicas = len(requests.prompt_tokens), range(plan.fleet.replicas)
    recorder = Recorder(total, plan.fleet.replicas, on_steps)
    engines = [
        Replica(
            env,
            number,
            plan.rules,
            plan.cost,
            plan.scale,
            partial(_batch, plan, requests, recorder, number),
            recorder,
            random.Random(f"{seed} {number}"),
        )
        for number in replicas
    ]
    intake = _intake(plan, requests, seed)
    router = Router(
        env, Arrivals(requests), intake, engines, plan.fleet, plan.rules, recorder, seed
    )
    done = env.event()
    recorder.on_done(done, _reporting(env, recorder, on_progress, on_look))
    for engine in engines:
        engine.attach(router)
    try:
        _run(env, done, engines)
    except KeyboardInterrupt:
        recorder.interrupted = True
    for engine, bins in zip(engines, recorder.bins, strict=True):
        bins.finish(engine.batch.decoded)
    if recorder.rows is not None:
        recorder.rows.flush()
    return recorder


def _reporting(
    env: simpy.Environment,
    recorder: Recorder,
    on_progress: Callable[[int, int], None] | None,
    on_look: Callable[[Recorder, float], None] | None,
) -> Callable[[int, int], None] | None:
    """What the recorder calls now and then; steps that end when SimPy stands now may miss."""
    if on_look is None:
        return on_progress

    def report(answered: int, total: int) -> None:
        if on_progress is not None:
            on_progress(answered, total)
        on_look(recorder, env.now)

    return report


def _batch(plan: Plan, requests: Requests, recorder: Recorder, replica: int, decoded: int) -> Batch:
    """An empty batch whose count of tokens decoded goes on from ``decoded``."""
    longest, rules, modes = int(np.max(requests.output_tokens)), plan.rules, plan.modes
    if modes is None:
        return DecodeBatch(longest, rules.width, plan.varies_width, decoded)
    log = recorder.modes_of(replica, tuple(mode.name for mode in modes.modes))
    control = control_of(modes, rules, len(requests.stream_names), longest, log)
    return SlotBatch(modes, rules, longest, control, log, decoded)


def _intake(plan: Plan, requests: Requests, seed: int) -> Intake:
    if plan.modes is not None:
        return SlotIntake(requests, plan.modes, plan.rules, seed)
    return Intake(requests, plan.law, plan.rules, seed, plan.drafted)


def _run(env: simpy.Environment, done: simpy.Event, engines: list[Replica]) -> None:
    """Let time pass until every request has ended."""
    env.run(until=done)
    # Whoever finished last was ahead of SimPy: let the steps end that ended before.
    last_s = max(engine.now_s for engine in engines)
    if last_s > env.now:
        env.run(until=last_s)
    for engine in engines:
        engine.close()
