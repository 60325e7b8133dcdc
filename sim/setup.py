"""One strategy on one deployment, ready to run: memory, step time, acceptance and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.acceptance import Law
from models.kv_memory import KvBudget, kv_slots
from models.mixed_modes import MixedModes
from models.step_time import Deployed, StepTime
from models.strategies import Strategy
from models.strategies.adaptive import Adaptive, Proxy
from models.strategies.dynamic_k import DynamicK, ProxyK
from models.strategies.modes import Switching
from models.strategies.oracle import Oracle
from sim.engine.fleet import Fleet, Outage
from sim.engine.modes import Mode, Modes
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
    modes: Modes | None = None

    @property
    def laws(self) -> tuple[Law, ...]:
        """Of every strategy it is made of."""
        return (self.law,) if self.modes is None else self.modes.laws

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
            modes=self.modes,
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
    law = deployment.thinned(strategy.law(deployment.engine, domains), domains)
    rules = _rules(deployment, strategy, budget)
    if not strategy.switches and rules.kv.plain:
        return Setup(strategy, deployment, budget, StepTime(deployed, strategy), law, rules)
    bound = isinstance(strategy, Oracle)  # it hides what each of its modes would alone
    if not bound and not strategy.scheduled_ahead(deployment.engine):
        deployed = replace(deployed, engine=deployment.engine.synchronous())
    times = [StepTime(deployed, mode) for mode in strategy.modes]
    modes = modes_of(strategy, times, domains)
    laws = tuple(deployment.thinned(one, domains) for one in modes.laws)
    modes = replace(modes, laws=laws)
    return Setup(strategy, deployment, budget, times[modes.start], law, rules, modes)


def modes_of(strategy: Strategy, times: Sequence[StepTime], domains: tuple[str, ...]) -> Modes:
    """Modes of a strategy whose sequences switch, and what is drawn in each.

    Parameters
    ----------
    strategy : Strategy
    times : sequence of StepTime
        Of each mode.
    domains : tuple of str
        Domains of the workload, by index.
    """
    deployed, loaded = times[0].deployed, list(strategy.parts.values())
    engine, oracle = deployed.engine, isinstance(strategy, Oracle)
    reserved = kv_slots(engine, strategy)
    own_slots = isinstance(strategy, DynamicK) and strategy.reserve == "active"
    modes: list[Mode] = []
    for mode in strategy.modes:
        # The K of a dynamic K all take what its largest draws, and run the same network.
        place = min(len(modes), len(loaded) - 1)
        passes = mode.draft_passes(deployed.target, engine, deployed.weights, deployed.tp)
        fills = not oracle and any(one.covers_prefill for one in passes)
        taken = any(one.name == mode.name for one in modes)
        modes.append(
            Mode(
                f"{mode.name} ({len(modes) + 1})" if taken else mode.name,
                law=place,
                levels=mode.depth,
                drafted=mode.drafted,
                width=mode.verify_tokens,
                slots=kv_slots(engine, mode) if own_slots else reserved,
                refill_steps=0 if oracle else mode.refill_steps,
                network=place if fills else None,
            )
        )
    start = strategy.start if isinstance(strategy, Switching) else 0
    return Modes(
        strategy,
        tuple(modes),
        tuple(part.law(engine, domains) for part in loaded),
        MixedModes(times, start, deployed.max_num_batched_tokens, [mode.network for mode in modes]),
        start,
        reads_others=_reads_others(strategy),
    )


def _reads_others(strategy: Strategy) -> bool:
    if isinstance(strategy, Adaptive):
        return isinstance(strategy.return_, Proxy)
    return isinstance(strategy, DynamicK) and isinstance(strategy.rule, ProxyK)


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
