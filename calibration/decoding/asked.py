"""What ``speccast calibrate decode`` is asked for, and what is refused before it begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from calibration.decoding import prompts as texts
from calibration.decoding import weights
from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.plan import Encoded
from calibration.decoding.strategies import ALL, Knobs
from calibration.kernels.device.accelerator import name_of
from calibration.kernels.device.machine import Machine
from models import catalog
from models.schema import ModelError
from models.strict_yaml import InputError


class Options(NamedTuple):
    """What is decoded, by what, and how; named as the options of the command line."""

    out: Path
    model: str = weights.TRANSFORMER
    strategies: str = ALL
    prompts: str = ",".join(texts.DOMAINS)
    device: str = "cpu"
    heads: Path = Path("heads")
    draft: str | None = None
    knobs: Knobs = Knobs()
    per_domain: int = 16
    max_new_tokens: int = 64
    batch: int = 1
    dtype: str = "bf16"
    threads: int = 1
    seed: int = 0
    profile: str | None = None


def check_profile(options: Options) -> None:
    """Refuse a profile that is none, or runs that it cannot be asked about.

    Raises
    ------
    InputError, ModelError
    """
    if options.profile is None:
        return
    if options.batch > 1:
        message = "only runs of one prompt at a time are predicted: goes with --batch 1"
        raise InputError("", None, "--profile", message)
    try:
        catalog.profile(options.profile)
    except ModelError as error:
        raise ModelError(str(error), "--profile") from error


def other_device(options: Options, machine: Machine) -> str:
    """What to say where the profile is of a device other than the one at hand; else nothing."""
    if options.profile is None:
        return ""
    theirs, here = catalog.profile(options.profile).device, name_of(machine)
    return "" if theirs == here else f"--profile: of another device, {theirs}; here is {here}"


def check_baseline(options: Options, labels: Collection[str]) -> None:
    """Refuse to predict runs without plain decoding, before any is made.

    Raises
    ------
    InputError
    """
    if options.profile is not None and BASELINE not in labels:
        message = f"predicts beside plain decoding: add {BASELINE} to --strategies"
        raise InputError("", None, "--profile", message)


def encoded(options: Options, target: weights.Target) -> dict[str, list[Encoded]]:
    """Prompts as tokens, by domain.

    Raises
    ------
    ModelError
        If one is empty or does not fit into the model with what is to be decoded.
    """
    found = {
        domain: [
            Encoded(domain, number, tuple(target.encode(text))) for number, text in enumerate(own)
        ]
        for domain, own in texts_of(options).items()
    }
    _check_lengths(found, target, options)
    return found


def texts_of(options: Options) -> dict[str, list[str]]:
    """Texts by domain: of a file, or of the domains named.

    Raises
    ------
    InputError, ModelError
        If the file cannot be read, or there is no such domain or too few prompts of it.
    """
    if options.prompts.endswith(".jsonl"):
        found: dict[str, list[str]] = {}
        for one in texts.read_prompts(options.prompts):
            own = found.setdefault(one.domain, [])
            if len(own) < options.per_domain:
                own.append(one.text)
        return found
    domains = dict.fromkeys(name.strip() for name in options.prompts.split(","))
    try:
        return {name: texts.prompts(name, "test", options.per_domain) for name in domains}
    except ModelError as error:
        option = {"count": "--per-domain"}.get(error.key or "", "--prompts")
        raise ModelError(str(error), option) from error


def _check_lengths(
    prompts: Mapping[str, Sequence[Encoded]], target: weights.Target, options: Options
) -> None:
    most = getattr(target.model.config, "max_position_embeddings", None)
    for prompt in (one for own in prompts.values() for one in own):
        length = len(prompt.tokens)
        if not length:
            message = f"prompt {prompt.number} of {prompt.domain} has no token"
            raise ModelError(message, "--prompts")
        if most is not None and length + options.max_new_tokens > most:
            message = (
                f"prompt {prompt.number} of {prompt.domain} has {length} tokens: with "
                f"{options.max_new_tokens} new ones they exceed the {most} of the model"
            )
            raise ModelError(message, "--max-new-tokens")
