"""Contradictions in a scenario, found before anything runs, each with the key at fault."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from models.hardware import Accelerator
from models.profile import Profile
from models.schema import ModelError
from models.strategies import Strategy
from models.strict_yaml import InputError
from models.transformer import Transformer
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.schema import Model
from sim.scenario.shapes import Ramp
from sim.scenario.workload import MAX_REQUESTS, Workload

if TYPE_CHECKING:
    from sim.scenario.build import Deployment

LONGEST_RUN_S = 1e9
SURE_SIGMAS = 5
MOST_EARLIER_TURNS = 100_000_000


@contextmanager
def blame(key: str) -> Iterator[None]:
    """Name the key at fault in every error raised inside.

    Raises
    ------
    ModelError
        In place of any ValueError; its own key, if it has one, is appended.
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        inner = getattr(error, "key", "")
        message = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(message, f"{key}.{inner}" if inner else key) from error


def check_split(
    model: Model, accelerator: Accelerator, profile: Profile, target: Transformer
) -> None:
    """Refuse types and tensor-parallel sizes without hardware or constants behind them.

    Raises
    ------
    ModelError
        With the dotted key at fault.
    """
    with blame("model.weights"):
        computed_in = accelerator.compute_dtype(model.weights)
        if computed_in not in profile.gemm:
            raise ModelError(f"profile {profile.name} has no {computed_in} GEMM constants")
    if model.kv not in profile.attention:
        have = ", ".join(profile.attention)
        raise ModelError(
            f"profile {profile.name} has attention constants for {have}, got '{model.kv}'",
            "model.kv",
        )
    with blame("model.tp"):
        target.check_tp(model.tp)
        accelerator.check_group(model.tp)
        if model.tp > 1 and model.tp not in profile.all_reduce:
            sizes = ", ".join(str(size) for size in sorted(profile.all_reduce))
            raise ModelError(
                f"profile {profile.name} has all-reduce constants for {sizes}, got {model.tp}"
            )


def check_workload(workload: Workload) -> None:
    """Refuse users who never send anything, and amounts of traffic that never arrive.

    Raises
    ------
    ModelError
        With the dotted key at fault.
    """
    arrivals, turns = workload.arrivals, workload.mean_turns
    if isinstance(arrivals, ClosedLoop):
        _check_users(workload, arrivals.users, turns)
    elif workload.duration_s is None:
        asked, come = workload.expected_requests, arrivals.mean_count(LONGEST_RUN_S)
        if asked / turns > come - SURE_SIGMAS * come**0.5:
            fades = isinstance(arrivals, Ramp) and not arrivals.to_per_s
            until = "before the rate is 0" if fades else "in 30 years"
            raise ModelError(
                f"only about {come:.3g} arrivals come {until}, got {asked}", "workload.requests"
            )
    else:
        come = arrivals.mean_count(workload.duration_s)
        if not 1 <= come <= MAX_REQUESTS / turns:
            raise ModelError(
                f"sees about {come:.3g} arrivals, {come * turns:.3g} requests; "
                f"1 to {MAX_REQUESTS} can be simulated, got {workload.duration_s:g}",
                "workload.duration_s",
            )
    _check_sessions(workload)


def _check_sessions(workload: Workload) -> None:
    """Refuse sessions so long that the list of their earlier turns would fill the memory."""
    turns = max(stream.mean_turns for stream in workload.streams)
    most = int(2 * MOST_EARLIER_TURNS / turns)
    if workload.expected_requests > most:
        key = "requests" if workload.duration_s is None else "duration_s"
        raise ModelError(
            f"must be at most {most} with sessions of {turns:g} turns, "
            f"got {workload.expected_requests}",
            f"workload.{key}",
        )


def _check_users(workload: Workload, users: int, turns: float) -> None:
    if workload.duration_s is not None:
        raise ModelError(
            "is for arrivals at a rate; users of a closed loop send as many requests as "
            f"`requests` says, got {workload.duration_s:g}",
            "workload.duration_s",
        )
    if workload.expected_requests < users * turns:
        each = f" x {turns:.3g} turns of a session" if turns > 1 else ""
        raise ModelError(
            f"must be at least the {users} users{each}, got {workload.expected_requests}",
            "workload.requests",
        )


def check_strategies(
    strategies: Sequence[Strategy], domains: tuple[str, ...], deployment: Deployment
) -> None:
    """Refuse strategies the target, the engine or the GPU cannot carry.

    Raises
    ------
    ModelError
        With the dotted key at fault.
    """
    for index, strategy in enumerate(strategies):
        with blame(f"strategies[{index}]"):
            _check_engine(strategy, deployment)
            strategy.check(deployment.target, deployment.tp)
            _check_domains(strategy, domains)
            strategy.law(deployment.engine, domains)
        _check_batch(strategy, deployment)
        _check_memory(index, strategy, deployment)


def _check_engine(strategy: Strategy, deployment: Deployment) -> None:
    """Refuse what this engine version cannot run, unless it is asked for as hypothetical."""
    engine = deployment.engine
    if strategy.hypothetical:
        return
    advice = "set hypothetical: true to simulate it all the same"
    if strategy.kind not in engine.supports:
        runs = ", ".join(engine.supports)
        raise ModelError(
            f"{engine.name} cannot run it (it runs {runs}); {advice}, got '{strategy.kind}'", "kind"
        )
    if strategy.needs_tree and not engine.tree_verify:
        raise ModelError(
            f"{engine.name} verifies chains only, no trees; {advice}, got '{strategy.name}'"
        )


def _check_domains(strategy: Strategy, domains: tuple[str, ...]) -> None:
    acceptance = getattr(strategy, "acceptance", None)
    for domain in getattr(acceptance, "by_domain", None) or {}:
        if domain not in domains:
            close = difflib.get_close_matches(domain, domains, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there is {', '.join(domains)}"
            raise ModelError(
                f"no stream has the domain '{domain}'; {hint}", f"acceptance.by_domain.{domain}"
            )


def _check_batch(strategy: Strategy, deployment: Deployment) -> None:
    """One verify pass of a full batch must fit into a step."""
    budget, width = deployment.max_num_batched_tokens, strategy.verify_tokens
    if width > budget:
        raise ModelError(
            f"'{strategy.name}' verifies {width} tokens a sequence, got {budget}",
            "engine.max_num_batched_tokens",
        )
    seqs = deployment.max_num_seqs_for(strategy)
    if seqs * width > budget:
        raise ModelError(
            f"'{strategy.name}' verifies {width} tokens a sequence, so at most {budget // width} "
            f"fit into max_num_batched_tokens {budget}, got {seqs}",
            "engine.max_num_seqs",
        )


def _check_memory(index: int, strategy: Strategy, deployment: Deployment) -> None:
    """Weights, drafts and the engine's reserve must leave room for a KV block."""
    try:
        deployment.kv_budget(strategy)
    except ModelError as error:
        key = f"strategies[{index}]" if strategy.drafted else error.key or "model"
        raise ModelError(str(error), key) from error
