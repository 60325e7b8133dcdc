"""What a recorded server is said to be: its device, model, engine and strategy as a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from calibration.acceptance import command as acceptance
from calibration.acceptance import runs as recorded
from calibration.live.recording import STEPS_TABLE, Observation
from calibration.live.server.by_position import ByPosition, acceptance_by_position
from models import catalog
from models.acceptance_file import AcceptanceFile
from models.schema import ModelError
from models.strategies import fixed_types
from models.strategies.autoregressive import Autoregressive
from models.strict_yaml import InputError, load_yaml
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
    """

    hardware: str
    transformer: str
    tp: int = 1
    engine: str = ENGINE
    overrides: tuple[str, ...] = ()
    gpu_memory_utilization: float | None = None
    sampling: str = "default"

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

    def with_kv_cache(self, observation: Observation) -> Deployed:
        """The same with a KV cache as large as the server says, where it says so."""
        info = (observation.about.get("server") or {}).get("info") or {}
        try:
            tokens = int(info["num_gpu_blocks"]) * int(info["block_size"])
        except (KeyError, TypeError, ValueError):
            return self
        deployment = build(self.scenario([{"kind": BASELINE}]))
        budget = deployment.kv_budget(Autoregressive())
        token_bytes = deployment.target.kv_bytes_per_token(deployment.kv, deployment.tp)
        needed = budget.weights_bytes + budget.reserve_bytes + tokens * token_bytes
        share = round(needed / deployment.accelerator.memory_bytes, 4)
        return replace(self, gpu_memory_utilization=share) if 0 < share <= 1 else self

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


def engine_for(observation: Observation) -> str:
    """The engine entry that speaks for the server observed; the default where it did not say."""
    server = observation.about.get("server") or {}
    name, version = server.get("engine"), server.get("version")
    if not name or name == "unknown":
        return ENGINE
    known = catalog.names("engines")
    wanted = f"{name}_{'.'.join(str(version or '').split('.')[:2])}"
    if wanted in known:
        return wanted
    try:
        catalog.engine(wanted)
    except ModelError as error:
        raise ModelError(f"{error} (the server is {name} {version})", "--engine") from None
    return wanted


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
    observation: Observation, block: Mapping[str, Any], place: Path, name: str
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
    """
    if block["kind"] == BASELINE or "acceptance" in block:
        return Accepted(dict(block.get("acceptance", {})))
    if observation.acceptance is not None:
        label = observation.label
        given = f"{label}={yaml.safe_dump(dict(block), default_flow_style=True, width=10**6)}"
        runs = recorded.read(observation.folder / STEPS_TABLE, [given])
        fitted = acceptance.fit(runs, False, lambda *_: None)
        acceptance.write(fitted.file, place)
        return Accepted({"file": name, "entry": label}, fitted.file)
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
