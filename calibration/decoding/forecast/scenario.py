"""Recorded decoding runs as a scenario: the very prompts, their acceptance, this machine."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast.constants import ENGINE
from calibration.decoding.forecast.recorded import Recorded
from calibration.decoding.places import seen_from
from models.acceptance_file import AcceptanceFile
from models.strategies import fixed_types
from sim.scenario.dump import to_yaml

WHAT_IF, TRACES = "whatif.yaml", "traces"
ROOM = 2.0
"""Prompts are sent this many times as far apart as the slowest took: each is alone, on slower
machines as well."""


class Deployed(NamedTuple):
    """What the runs are said to have run on.

    Attributes
    ----------
    profile : str
        Profile of the device: catalogue name or file.
    acceptance : Path
        File of fits and records.
    constants : mapping
        Of the engine, from `constants.of_runs`.
    """

    profile: str
    acceptance: Path
    constants: Mapping[str, float]


class Chosen(NamedTuple):
    """Strategies that are forecast, and why others are not.

    Attributes
    ----------
    blocks : dict
        Label -> block of the scenario without acceptance; drafted strategies only.
    left_out : dict
        Label -> reason.
    """

    blocks: dict[str, dict[str, Any]]
    left_out: dict[str, str]


def choose(recorded: Recorded, file: AcceptanceFile) -> Chosen:
    """Strategies the simulator knows and the acceptance file covers."""
    blocks: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for label in recorded.labels:
        if label == BASELINE:
            continue
        block = _block(recorded, label, file)
        reason = _unknown(block, label, file)
        if reason:
            left_out[label] = reason
        else:
            blocks[label] = block
    return Chosen(blocks, left_out)


def _block(recorded: Recorded, label: str, file: AcceptanceFile) -> dict[str, Any]:
    """As the fit states it, which knows how full a pool of guesses was; else as it was run."""
    entry = file.entries.get(label)
    return dict(entry.strategy if entry is not None else recorded.blocks.get(label, {}))


def _unknown(block: Mapping[str, Any], label: str, file: AcceptanceFile) -> str:
    kind = fixed_types().get(str(block.get("kind")))
    if kind is None:
        return "the simulator has no such strategy"
    if label.endswith("_sampled"):
        return "plain decoding has not run at its temperature"
    if label not in file.entries:
        return "the acceptance file has no such entry"
    try:
        kind.model_validate(block)
    except ValidationError as error:
        first = error.errors()[0]
        return (
            f"no {block['kind']} of a scenario: {'.'.join(map(str, first['loc']))} {first['msg']}"
        )
    return ""


def document(
    recorded: Recorded, deployed: Deployed, chosen: Chosen, replay: bool = True
) -> dict[str, Any]:
    """The scenario with all strategies, over the prompts as plain decoding answered them.

    Parameters
    ----------
    recorded : Recorded
    deployed : Deployed
    chosen : Chosen
    replay : bool
        Repeat recorded requests in their order; else draw from the fit.

    Notes
    -----
    Prompts come domain by domain in their order, one after another, each when the last is long
    finished: one user, whose every request is as long as it was. A closed loop would draw lengths.
    """
    strategies = [
        strategy(recorded, deployed, label, block, replay) for label, block in chosen.blocks.items()
    ]
    return {
        "hardware": {"profile": seen_from(recorded.folder, deployed.profile, "profiles")},
        "model": {"transformer": recorded.target},
        "engine": {"name": ENGINE, "max_num_seqs": 1, "constants": dict(deployed.constants)},
        "workload": {
            "arrivals": {
                "kind": "trace",
                "file": trace_name(BASELINE),
                "format": "csv",
                "stream_from": "stream",
            },
            "sampling": "greedy",
            "streams": streams(recorded.of(BASELINE)["domain"].unique()),
        },
        "strategies": [{"kind": BASELINE}, *strategies],
        "run": {"warmup": 0},
    }


def streams(domains: Iterable[str]) -> list[dict[str, str]]:
    """A stream a domain, as the traces name them."""
    return [{"name": domain, "domain": domain} for domain in domains]


def strategy(
    recorded: Recorded, deployed: Deployed, label: str, block: Mapping[str, Any], replay: bool
) -> dict[str, Any]:
    """Block of one strategy with its acceptance, files as seen from the folder of the runs."""
    acceptance = {"file": seen_from(recorded.folder, str(deployed.acceptance)), "entry": label}
    # A name of kind and numbers is made from the block; the label of the runs is shorter.
    return {
        **block,
        "label": label,
        "acceptance": acceptance | ({"replay": True} if replay else {}),
    }


def write(recorded: Recorded, deployed: Deployed, chosen: Chosen) -> Path:
    """Write ``whatif.yaml`` beside the runs, and the prompts of each strategy as a trace."""
    head = (
        "# The decoding runs recorded here, as a what-if: same prompts, lengths and acceptance.\n"
        "# Host constants are those of its plain decoding; kernels are those of the profile.\n"
    )
    (recorded.folder / TRACES).mkdir(exist_ok=True)
    for label in (BASELINE, *chosen.blocks):
        _write_trace(recorded, label)
    path = recorded.folder / WHAT_IF
    path.write_text(head + to_yaml(document(recorded, deployed, chosen)), "utf-8")
    return path


def trace_name(label: str) -> str:
    """Trace of a strategy's requests, as seen from the folder of the runs."""
    return f"{TRACES}/{label}.csv"


def gap_s(recorded: Recorded) -> int:
    """Time between two prompts [s], whole seconds."""
    return max(1, math.ceil(ROOM * float(recorded.requests["e2e_s"].max())))


def _write_trace(recorded: Recorded, label: str) -> None:
    """Requests in the order of their ids, which is domain by domain."""
    own, gap = recorded.of(label), gap_s(recorded)
    with (recorded.folder / trace_name(label)).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens", "stream"])
        columns = (own["prompt_tokens"], own["output_tokens"], own["domain"])
        for place, row in enumerate(zip(*columns, strict=True)):
            rows.writerow([place * gap, *row])
