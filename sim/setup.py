"""One strategy on one deployment, ready to run: memory, step time, acceptance and rules."""

from __future__ import annotations

from dataclasses import dataclass

from models.acceptance import Law
from models.kv_memory import KvBudget, kv_slots
from models.step_time import Deployed, StepTime
from models.strategies import Strategy
from sim.engine.fleet import Fleet, Outage
from sim.engine.rules import Rules
from sim.engine.simulate import Plan
from sim.scenario.build import Deployment
from sim.scenario.fleet import Failure


@dataclass(frozen=True)
class Setup:
    """Everything the engine and the reports need of one strategy."""

    strategy: Strategy
    deployment: Deployment
    budget: KvBudget
    step_time: StepTime
    law: Law
    rules: Rules

    @property
    def hypothetical(self) -> bool:
        """Whether this engine version cannot run it."""
        return not self.strategy.runs_on(self.deployment.engine)

    @property
    def is_async(self) -> bool:
        """Whether its host work is hidden behind the GPU."""
        return self.strategy.scheduled_ahead(self.deployment.engine)

    def plan(self, scale: float = 1.0) -> Plan:
        """What the engine simulates, every step time multiplied by ``scale``."""
        deployment, strategy = self.deployment, self.strategy
        return Plan(
            rules=self.rules,
            cost=self.step_time,
            law=self.law,
            drafted=strategy.drafted,
            varies_width=strategy.varies_width(deployment.engine),
            fleet=self.fleet(),
            scale=scale,
        )

    def fleet(self) -> Fleet:
        """Replicas, and what surrounds them."""
        deployment = self.deployment
        return Fleet(
            replicas=deployment.replicas,
            router=deployment.router,
            refresh_s=deployment.router_refresh_s,
            queue_limit=deployment.queue_limit,
            client=deployment.client,
            outages=tuple(self._outage(failure) for failure in deployment.failures),
        )

    def _outage(self, failure: Failure) -> Outage:
        """A replica that restarts reads the weights of target and draft first."""
        up_s, restart = None, failure.restart
        if restart is not None:
            weights = self.deployment.tp * (self.budget.weights_bytes + self.budget.draft_bytes)
            up_s = failure.at_s + restart.boot_s + weights / restart.load_bytes_per_s
        return Outage(failure.replica, failure.at_s, up_s, failure.in_flight == "resend")


def prepare(deployment: Deployment, strategy: Strategy, domains: tuple[str, ...]) -> Setup:
    """Price memory and steps of a strategy.

    Parameters
    ----------
    deployment : Deployment
    strategy : Strategy
    domains : tuple of str
        Domains of the workload, by index.

    Raises
    ------
    ModelError
        If the model, or its draft, does not fit.
    """
    budget = deployment.kv_budget(strategy)
    deployed = Deployed(
        kernels=deployment.kernels,
        target=deployment.target,
        engine=deployment.engine,
        weights=deployment.weights,
        kv=deployment.kv,
        tp=deployment.tp,
        top_p=deployment.top_p,
        max_num_seqs=deployment.max_num_seqs_for(strategy),
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        launches=deployment.launches,
    )
    return Setup(
        strategy=strategy,
        deployment=deployment,
        budget=budget,
        step_time=StepTime(deployed, strategy),
        law=strategy.law(deployment.engine, domains),
        rules=_rules(deployment, strategy, budget),
    )


def _rules(deployment: Deployment, strategy: Strategy, budget: KvBudget) -> Rules:
    engine = deployment.engine
    return Rules(
        max_num_seqs=deployment.max_num_seqs_for(strategy),
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        max_model_len=deployment.max_model_len,
        block_tokens=engine.block_tokens,
        n_blocks=budget.n_blocks,
        slots=kv_slots(engine, strategy),
        kv=deployment.kv_use(strategy),
        width=strategy.verify_tokens,
        async_scheduling=strategy.scheduled_ahead(engine),
        prefix_cache=engine.prefix_cache and deployment.kv_policy is None,
        drop_matched_block=engine.drop_matched_block and strategy.drops_matched_block,
        preemption=engine.preemption,
        exclusive_prefill=engine.prefill == "exclusive",
        watermark_blocks=int(engine.watermark * budget.n_blocks),
        request_s=engine.request_us.value * 1e-6,
        swap_s_per_block=budget.block_bytes / deployment.accelerator.host_link_bytes_per_s,
    )
