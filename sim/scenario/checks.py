"""Contradictions in a scenario, found before anything runs, each with the key at fault."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from models.hardware import Accelerator
from models.profile import Profile
from models.schema import Dtype, ModelError
from models.strategies import Strategy
from models.strategies.draft_model import DraftModel
from models.strict_yaml import InputError
from models.transformer import Transformer
from sim.scenario.schema import Model, Scenario
from sim.scenario.service_level import Slo
from sim.scenario.streams import Stream

if TYPE_CHECKING:
    from sim.scenario.build import Deployment


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
        raise ModelError(message, ".".join(filter(None, (key, inner)))) from error


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
        _check_compute(model.weights, accelerator, profile)
    if model.kv not in profile.attention and not (
        model.kv == "int4" and "fp8" in profile.attention
    ):
        have = ", ".join(profile.attention)
        raise ModelError(
            f"profile {profile.name} has attention constants for {have}, got '{model.kv}'",
            "model.kv",
        )
    if target.experts and profile.moe is None:
        raise ModelError(
            f"profile {profile.name} has no constants of experts, got '{target.name}'",
            "model.transformer",
        )
    with blame("model.tp"):
        target.check_tp(model.tp)
        _check_group(model.tp, accelerator, profile)


def _check_compute(weights: Dtype, accelerator: Accelerator, profile: Profile) -> None:
    computed_in = accelerator.compute_dtype(weights)
    if computed_in not in profile.gemm:
        raise ModelError(f"profile {profile.name} has no {computed_in} GEMM constants")


def _check_group(tp: int, accelerator: Accelerator, profile: Profile) -> None:
    accelerator.check_group(tp)
    if tp > 1 and tp not in profile.all_reduce:
        sizes = ", ".join(str(size) for size in sorted(profile.all_reduce))
        have = f"all-reduce constants for {sizes}" if sizes else "no all-reduce constants"
        raise ModelError(f"profile {profile.name} has {have}, got {tp}")


def check_fleet(scenario: Scenario, replicas: int) -> None:
    """Refuse failures of replicas there are not, and a refresh of what the router never reads.

    Raises
    ------
    ModelError
        With the dotted key at fault.
    """
    engine = scenario.engine
    if engine.router_refresh_s and engine.router in ("round_robin", "shared_queue"):
        raise ModelError(
            f"router {engine.router} does not read loads now and then, "
            f"got {engine.router_refresh_s:g}",
            "engine.router_refresh_s",
        )
    client, failures = scenario.workload.client, scenario.failures
    lossy = any(failure.in_flight == "lose" for failure in failures)
    if client.retries and not (client.deadlines or engine.queue_limit or lossy):
        raise ModelError(
            "never come about: there is no time-out, no queue_limit and no failure that loses "
            f"requests, got {client.retries}",
            "workload.client.retries",
        )
    gone: dict[int, float] = {}
    for index in sorted(range(len(failures)), key=lambda index: failures[index].at_s):
        failure = failures[index]
        if failure.replica in gone:
            raise ModelError(
                f"replica {failure.replica} is down for good since {gone[failure.replica]:g} s, "
                f"got {failure.at_s:g}",
                f"failures[{index}].at_s",
            )
        if failure.restart is None:
            gone[failure.replica] = failure.at_s
        if failure.replica >= replicas:
            raise ModelError(
                f"there are {replicas} replicas, counted from 0, got {failure.replica}",
                f"failures[{index}].replica",
            )


def check_classes(slo: Slo, streams: Sequence[Stream]) -> None:
    """Refuse a class that is not there, and bounds no stream is under.

    Raises
    ------
    ModelError
        With the dotted key at fault.
    """
    for index, stream in enumerate(streams):
        name = stream.slo_class
        if name is not None and name not in slo.classes:
            there = f"there is {', '.join(slo.classes)}" if slo.classes else "slo.classes is empty"
            raise ModelError(
                f"unknown SLO class, got '{name}'; {_closest(name, slo.classes, there)}",
                f"workload.streams[{index}].slo_class",
            )
    named = {stream.slo_class for stream in streams}
    unused = next((name for name in slo.classes if name not in named), None)
    if unused is not None:
        raise ModelError(f"no stream has the slo_class '{unused}'", f"slo.classes.{unused}")
    if slo.stated and None not in named:
        raise ModelError("bounds no request: every stream has a class", f"slo.{slo.stated[0]}")


def _closest(name: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else otherwise


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
            for key, part in strategy.parts.items():
                with blame(key):
                    _check_draft(part, deployment)
                    _check_domains(part, domains)
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


def _check_draft(strategy: Strategy, deployment: Deployment) -> None:
    """A draft model of its own needs what the target needs: units and constants for its type."""
    if not isinstance(strategy, DraftModel):
        return
    with blame("draft_weights"):
        _check_compute(strategy.draft_weights, deployment.accelerator, deployment.profile)
    with blame("draft_tp"):
        _check_group(strategy.draft_tp, deployment.accelerator, deployment.profile)


def _check_domains(strategy: Strategy, domains: tuple[str, ...]) -> None:
    acceptance = getattr(strategy, "acceptance", None)
    for domain in getattr(acceptance, "by_domain", None) or {}:
        if domain not in domains:
            hint = _closest(domain, domains, f"there is {', '.join(domains)}")
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
