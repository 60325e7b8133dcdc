"""Run one workload through the replicas of one deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy

from models.acceptance import Law
from sim.engine.arrivals import Arrivals
from sim.engine.decode_batch import DecodeBatch
from sim.engine.intake import Intake
from sim.engine.recorder import Recorder
from sim.engine.replica import Replica, StepCost
from sim.engine.router import Policy, Router
from sim.engine.rules import Rules
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
    replicas : int
    router : str
    scale : float
        Factor on every step time.
    """

    rules: Rules
    cost: StepCost
    law: Law
    drafted: int
    varies_width: bool = False
    replicas: int = 1
    router: Policy = "least_outstanding"
    scale: float = 1.0


def simulate(
    plan: Plan,
    requests: Requests,
    seed: int,
    *,
    keep_steps: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Recorder:
    """Serve all requests and return what was recorded.

    Parameters
    ----------
    plan : Plan
    requests : Requests
    seed : int
        Seed of the acceptance draws.
    keep_steps : bool
        Keep a row a step.
    on_progress : callable, optional
        Called with (requests done, requests in all) about every hundredth of the run.
    """
    env = simpy.Environment()
    total = len(requests.prompt_tokens)
    recorder = Recorder(total, plan.replicas, keep_steps)
    rules, width = plan.rules, plan.rules.width
    longest = int(np.max(requests.output_tokens))
    replicas = [
        Replica(
            env,
            number,
            rules,
            plan.cost,
            plan.scale,
            DecodeBatch(longest, width, plan.varies_width),
            recorder,
        )
        for number in range(plan.replicas)
    ]
    intake = Intake(requests, plan.law, rules, seed, plan.drafted)
    arrivals = Arrivals(requests)
    router = Router(env, arrivals, intake, replicas, plan.router, recorder, rules.request_s)
    done = env.event()
    recorder.on_done(done, on_progress)
    env.process(router.run())
    for replica in replicas:
        replica.attach(router)
        env.process(replica.run())
    env.run(until=done)
    for replica in replicas:
        replica.scheduler.release_late()
        replica.scheduler.check()
    return recorder
