"""What a recorded server is said to be: its device, model, engine and strategy as a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from calibration.acceptance import command as acceptance
from calibration.acceptance import runs as recorded
from calibration.live.recording import STEPS_TABLE, Observation
from calibration.live.server.by_position import ByPosition, acceptance_by_position
from models import catalog
from models.acceptance_file import AcceptanceFile, dump
from models.schema import ModelError
from models.strategies import Strategy, fixed_types
from models.strategies.autoregressive import Autoregressive
from models.strict_yaml import MAX_BYTES, InputError, load_yaml, one_line
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.scenario.schema import BASELINE, Scenario

ENGINE = "vllm_0.15"
LOOKUP = "ngram"


@dataclass(frozen=True)
class Deployed:
    """What the user says of the server.

    Attributes
    ----------
    hardware : str
        GPU or profile: catalogue name, or a profile file.
    transformer : str
        Catalogue name or ``config.json``.
    tp : int
    engine : str
        Catalogue name or file; default the newest entry that covers the version observed.
    overrides : tuple of str
        Further keys of a scenario, as ``--set`` takes them.
    gpu_memory_utilization : float or None
        Share of the memory at which the KV cache is as large as the server says.
    sampling : str
        How its answers were sampled, as a workload states it.
    note : str
        What to know of its KV cache; empty for nothing.
    """

    hardware: str
    transformer: str
    tp: int = 1
    engine: str = ENGINE
    overrides: tuple[str, ...] = ()
    gpu_memory_utilization: float | None = None
    sampling: str = "default"
    note: str = ""

    def document(self) -> dict[str, Any]:
        """Hardware, model and engine as a scenario states them."""
        known = self.hardware in catalog.names("hardware")
        engine: dict[str, Any] = {"name": self.engine}
        if self.gpu_memory_utilization is not None:
            engine["gpu_memory_utilization"] = self.gpu_memory_utilization
        return {
            "hardware": {"gpu" if known else "profile": self.hardware},
            "model": {"transformer": self.transformer, "tp": self.tp},
            "engine": engine,
        }

    def with_kv_cache(
        self, observation: Observation, block: Mapping[str, Any] | None = None
    ) -> Deployed:
        """The same with a KV cache as large as the server says, where it says so.

        Parameters
        ----------
        observation : Observation
        block : mapping, optional
            The strategy its server ran, whose weights and drafts take memory too; default as
            recorded.
        """
        info = (observation.about.get("server") or {}).get("info") or {}
        try:
            tokens = int(info["num_gpu_blocks"]) * int(info["block_size"])
        except (KeyError, TypeError, ValueError):
            return self
        deployment = build(self.scenario([{"kind": BASELINE}]))
        budget = deployment.kv_budget(_built(observation.block if block is None else block))
        needed = budget.weights_bytes + budget.draft_bytes + budget.reserve_bytes
        needed += tokens * budget.block_bytes / deployment.engine.block_tokens
        share = round(needed / deployment.accelerator.memory_bytes, 4)
        if 0 < share <= 1:
            return replace(self, gpu_memory_utilization=share)
        note = (
            f"The KV cache of {tokens} tokens the server tells of does not fit beside its weights: "
            f"{100 * share:.0f} % of the memory; it is left at the engine's default."
        )
        return replace(self, note=note)

    def scenario(
        self, strategies: Sequence[Mapping[str, Any]], texts: Sequence[str] = ("general",)
    ) -> Scenario:
        """A scenario of it, to be given the workload of a stage.

        Parameters
        ----------
        strategies : sequence of mapping
        texts : sequence of str
            Domains of its requests: acceptance may be known of some only.

        Raises
        ------
        InputError
            If an option names what there is not, or the strategy cannot run on it.
        """
        data = {
            **self.document(),
            "workload": {
                "arrivals": {"kind": "closed_loop", "users": 1},
                "sampling": self.sampling,
                "streams": [
                    {"name": text, "domain": text, "share": 1 / len(texts)} for text in texts
                ],
            },
            "strategies": [dict(one) for one in strategies],
            "run": {"baseline": False, "band": False},
        }
        described = load_yaml(yaml.safe_dump(data, sort_keys=False), "the server as described")
        return parse_scenario(described, self.overrides).points[0].scenario


def _built(block: Mapping[str, Any]) -> Strategy:
    """The strategy of a block; what is none is told when it is to be simulated."""
    kind = fixed_types().get(str(block.get("kind")), Autoregressive)
    try:
        return kind.model_validate(dict(block))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("--strategy", *first["loc"])))
        raise ModelError(one_line(first["msg"]), where) from None


def sampling_of(observation: Observation) -> str:
    """How answers were sampled: greedily at temperature 0; else as the model's own config says."""
    body = (observation.about.get("options") or {}).get("body") or {}
    return "greedy" if body.get("temperature") == 0 else "default"


def strategy_block(observation: Observation, kind: str | None, k: int | None) -> dict[str, Any]:
    """The strategy the server ran: as recorded, or as the user says now.

    Parameters
    ----------
    observation : Observation
    kind : str or None
        A kind, or a block in YAML.
    k : int or None
        Draft tokens a step.

    Raises
    ------
    ModelError
        If there is no such kind; key ``--strategy``.
    """
    if kind is None:
        block = observation.block
    elif kind.lstrip().startswith("{"):
        data = load_yaml(kind, "--strategy").data
        block = dict(data) if isinstance(data, dict) else {}
    else:
        block = {"kind": kind}
    if block.get("kind") not in fixed_types():
        known = ", ".join(sorted(fixed_types()))
        raise ModelError(f"must be one of {known}, got '{block.get('kind')}'", "--strategy")
    return block | ({} if k is None else {"k": k})


@dataclass(frozen=True)
class Accepted:
    """Acceptance as the server told it.

    Attributes
    ----------
    block : dict
        For the strategy in a scenario; empty where nothing was told.
    file : AcceptanceFile or None
        Fit and recorded steps, where it told the steps of every request.
    told : ByPosition or None
        Acceptance by position, where only counters told it.
    """

    block: dict[str, Any]
    file: AcceptanceFile | None = None
    told: ByPosition | None = None


def accepted(
    observation: Observation,
    block: Mapping[str, Any],
    place: Path,
    name: str,
    target: str | None = None,
) -> Accepted:
    """Acceptance of an observation: its steps fitted, or else its counters by position.

    Parameters
    ----------
    observation : Observation
    block : mapping
        The strategy, without acceptance.
    place : Path
        Where a file of fits is written.
    name : str
        Of the file as the scenario is to name it.
    target : str, optional
        Model served, by the name the catalogue has of it; default as the server called it.
    """
    if block["kind"] == BASELINE or "acceptance" in block:
        return Accepted(dict(block.get("acceptance", {})))
    if observation.acceptance is not None:
        label = observation.label
        runs = recorded.read(observation.folder / STEPS_TABLE, stated={label: block})
        if target is not None:
            runs = runs._replace(target=target)
        file = _readable(acceptance.fit(runs, False, lambda *_: None).file)
        place.write_text(dump(file), "utf-8")
        return Accepted({"file": name, "entry": label}, file)
    counters = summed(observation)
    told = acceptance_by_position(counters, block.get("k"))
    if told is None:
        where = str(observation.folder)
        message = (
            "was not told by the server; state it: --strategy '{kind: .., acceptance: {tau: ..}}'"
        )
        raise InputError(where, None, "acceptance", message)
    rates: dict[str, Any] = {"alpha_by_pos": [round(one, 4) for one in told.alpha]}
    if block["kind"] == LOOKUP:
        rates = {"match_rate": _match_rate(counters, str(observation.folder))} | rates
    return Accepted(rates, None, told)


def _readable(file: AcceptanceFile) -> AcceptanceFile:
    """A file that can be read back: without its recorded requests where they are too many."""
    if len(dump(file).encode()) <= MAX_BYTES:
        return file
    bare = {key: one.model_copy(update={"replay": {}}) for key, one in file.entries.items()}
    return file.model_copy(update={"entries": bare})


def summed(observation: Observation) -> dict[str, float]:
    """Counters of the server over all stages; those that every stage has."""
    counters = [stage.counters for stage in observation.stages]
    names = set(counters[0]).intersection(*counters[1:]) if counters else set()
    return {name: sum(one[name] for one in counters) for name in sorted(names)}


def _match_rate(counters: Mapping[str, float], where: str) -> float:
    """Share of the decode steps in which a lookup found a draft.

    Servers count steps with a draft; each step emits the tokens it accepted and one more, and each
    prompt's first token comes of none.
    """
    needed = ("spec_drafts", "generation_tokens", "requests", "spec_accepted")
    if missing := [name for name in needed if name not in counters]:
        message = f"cannot be told, the server does not count {', '.join(missing)}"
        raise InputError(where, None, "acceptance.match_rate", message)
    drafts, generated, requests, kept = (counters[name] for name in needed)
    steps = generated - requests - kept
    return round(min(0.9999, drafts / max(steps, drafts)), 4)
