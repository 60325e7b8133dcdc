"""What ``speccast calibrate decode`` does, between its options and its text."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from calibration.acceptance.runs import ABOUT
from calibration.decoding import measures, tables, weights
from calibration.decoding.asked import (
    Options,
    check_baseline,
    check_profile,
    encoded,
    other_device,
    texts_of,
)
from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.costs import Costs, measure_costs
from calibration.decoding.decoder import Decoder, Watch
from calibration.decoding.journal import FILE, Journal
from calibration.decoding.network import Network
from calibration.decoding.parts import StoredParts, fingerprint
from calibration.decoding.places import block_seen_from, seen_from
from calibration.decoding.plan import Encoded, plan, stream_of
from calibration.decoding.run import Lengths, clock_of, run
from calibration.decoding.strategies import ALL, KINDS, labels_of, make
from calibration.kernels.device import machine as machines
from calibration.kernels.device.machine import Machine
from calibration.kernels.device.resume import Note, silent
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.manifest import speccast_version
from sim.output import to_json
from sim.progress import OnProgress
from sim.staging import obstacle, staged

if TYPE_CHECKING:
    from calibration.decoding.forecast.command import Comparison

COST_PROMPTS = 2
"""Prompts that the cost of drafting is measured on."""
ACCEPTANCE = "acceptance.yaml"
FILES = (FILE, ABOUT, *tables.SCHEMAS)


class Prepared(NamedTuple):
    """Decoders that are ready, and what is left to decode."""

    options: Options
    machine: Machine
    target: weights.Target
    decoders: Mapping[str, Decoder]
    prompts: Mapping[str, Sequence[Encoded]]
    journal: Journal

    @property
    def title(self) -> str:
        """What was run, where, in a line."""
        on = self.machine
        threads = f", {on.threads} thread{'s' * (on.threads != 1)}" if on.threads else ""
        side = f", {self.options.batch} side by side" if self.options.batch > 1 else ""
        return (
            f"{self.target.name} ({self.target.dtype}) on {on.name}{threads}, torch {on.torch}: "
            f"at most {self.options.max_new_tokens} tokens a prompt{side}"
        )


def prepare(options: Options, note: Note = silent) -> Prepared:
    """Load models and read what earlier runs have left; refuse what cannot be done.

    Raises
    ------
    InputError, ModelError
        That name the option at fault, or what differs from an earlier run.
    RuntimeError
        If the extra ``decoding`` is missing.
    """
    labels = labels_of(options.strategies, options.batch)
    check_profile(options)
    texts_of(options)
    problem = obstacle(options.out, FILES)
    if problem is not None:
        raise InputError(str(options.out), None, "--out", problem)
    if options.strategies == ALL and len(labels) < len(KINDS):
        note(f"--batch {options.batch}: only {', '.join(labels)}; others take one prompt at a time")
    weights.import_transformers()
    machine = _machine(options)
    elsewhere = other_device(options, machine)
    if elsewhere:
        note(elsewhere)
    target = weights.load(options.model, options.dtype, options.device)
    prompts = encoded(options, target)
    common, today = _common(options, machine, target), datetime.date.today().isoformat()
    journal = Journal(options.out / FILE, common, today)
    check_baseline(options, {*labels, *(key[0] for key in journal.keys)})
    journal.check(one for own in prompts.values() for one in own)
    decoders = _decoders(labels, options, machine, target, prompts, journal)
    if journal.done:
        note(f"{journal.path}: {len(journal.keys)} prompts of an earlier run are kept")
    return Prepared(options, machine, target, decoders, prompts, journal)


def _machine(options: Options) -> Machine:
    try:
        return machines.find(options.device, options.threads)
    except ModelError as error:
        raise ModelError(str(error), f"--{error.key}") from error


def _decoders(
    labels: Sequence[str],
    options: Options,
    machine: Machine,
    target: weights.Target,
    prompts: Mapping[str, Sequence[Encoded]],
    journal: Journal,
) -> dict[str, Decoder]:
    """Decoders of the labels, each entered in the journal; costs an earlier run knew are kept."""
    import torch

    network = Network(target.model)
    known = {
        own["block"]["primary"]["kind"]: Costs(**own["costs"])
        for own in journal.strategies.values()
        if "costs" in own
    }
    some = [one.tokens for one in next(iter(prompts.values()))[:COST_PROMPTS]]

    def measure(drafting: Decoder) -> Costs:
        if drafting.strategy["kind"] in known:
            return known[drafting.strategy["kind"]]
        watch = Watch(clock_of(machine, torch))
        return measure_costs(Autoregressive(network), drafting, some, watch)

    parts = StoredParts(target, network, options.heads, options.draft, measure)
    decoders: dict[str, Decoder] = {}
    with machines.held(machine), torch.inference_mode():
        for label in labels:
            decoders[label] = make(label, network, parts, options.knobs)
            journal.enter(label, _settings(label, decoders[label], parts, options))
    return decoders


def decode(prepared: Prepared, on_progress: OnProgress | None = None) -> None:
    """Decode what is left. An exception loses the batch at hand, nothing else."""
    import torch

    options = prepared.options
    streaming = [label for label in prepared.decoders if KINDS[label].streaming]
    batches = plan(
        prepared.prompts, list(prepared.decoders), streaming, options.batch, prepared.journal.keys
    )
    lengths = Lengths(options.max_new_tokens, prepared.target.stop_tokens, options.seed)
    now = clock_of(prepared.machine, torch)
    with machines.held(prepared.machine), torch.inference_mode():
        run(batches, prepared.decoders, prepared.journal, lengths, now, on_progress)


def write(prepared: Prepared) -> list[Path]:
    """Write tables and ``run.json`` from what is finished."""
    folder, domains = prepared.options.out, list(prepared.prompts)
    written = tables.write(prepared.journal.done, domains, folder)
    with staged(folder) as scratch:
        (scratch / ABOUT).write_text(to_json(about(prepared)), "utf-8")
        return [*written, (scratch / ABOUT).replace(folder / ABOUT)]


def about(prepared: Prepared) -> dict[str, Any]:
    """What ``run.json`` says: strategies, settings, versions, machine, what differed."""
    journal = prepared.journal
    streaming = any(KINDS[label].streaming for label in journal.strategies)
    found = {one.label: one.differs for one in measured(prepared) if one.differs is not None}
    return {
        "target": prepared.target.name,
        "date": journal.date,
        "speccast": speccast_version(),
        **journal.run,
        "strategies": {label: own["block"] for label, own in journal.strategies.items()},
        "settings": journal.strategies,
        "domains": list(dict.fromkeys(one.domain for one in journal.done)),
        "stream": list(stream_of(list(prepared.prompts))) if streaming else [],
        "prompts": len({key[1:] for key in journal.keys}),
        "differs": found,
    }


def measured(prepared: Prepared) -> list[measures.Measured]:
    """Acceptance and times of every strategy in every domain."""
    blocks = {label: own["block"] for label, own in prepared.journal.strategies.items()}
    sampled = [label for label, kind in KINDS.items() if kind.sampled]
    return measures.measure(prepared.journal.done, blocks, list(prepared.prompts), sampled)


def streams(prepared: Prepared) -> list[measures.Active]:
    """What was active in strategies that change."""
    return measures.active(prepared.journal.done, list(prepared.prompts))


def forecast(prepared: Prepared, on_progress: OnProgress) -> Comparison:
    """Fit acceptance to the runs, predict them with it, and lay both side by side.

    Writes ``acceptance.yaml``, a scenario and what it needs into the folder.
    """
    from calibration.acceptance import command as acceptance
    from calibration.acceptance.runs import read
    from calibration.decoding.forecast.command import compare

    folder, profile = prepared.options.out, prepared.options.profile
    assert profile is not None
    acceptance.write(acceptance.fit(read(folder), False, on_progress).file, folder / ACCEPTANCE)
    return compare(folder, profile, folder / ACCEPTANCE, on_progress)


def interruption(prepared: Prepared) -> str:
    """What an interrupted run leaves, in one line."""
    kept = len(prepared.journal.keys)
    if not kept:
        return "interrupted: no prompt was finished yet"
    path = prepared.journal.path
    return f"interrupted: {kept} prompts are kept in {path}; the same command goes on from there"


def _common(options: Options, machine: Machine, target: weights.Target) -> dict[str, Any]:
    """What every line of a journal shares."""
    import transformers

    return {
        "model": target.name,
        "transformer": seen_from(options.out, target.transformer, "transformers"),
        "weights": fingerprint(target.model),
        "dtype": target.dtype,
        "device": machine.device,
        "machine": machine.name,
        "threads": machine.threads,
        "torch": machine.torch,
        "transformers": transformers.__version__,
        "max_new_tokens": options.max_new_tokens,
        "batch": options.batch,
        "seed": options.seed,
    }


def _settings(label: str, decoder: Decoder, parts: StoredParts, options: Options) -> dict[str, Any]:
    """What a strategy's prompts share, as JSON gives it back."""
    kind = KINDS[label]
    own: dict[str, Any] = {"block": block_seen_from(options.out, dict(decoder.strategy))}
    if kind.sampled:
        own["temperature"] = options.knobs.temperature
    if kind.streaming:
        own["costs"] = parts.costs_of(decoder.strategy["primary"]["kind"])._asdict()
    if kind.part:
        own[kind.part] = parts.digest(kind.part)
    given: dict[str, Any] = json.loads(json.dumps(own))
    return given
