"""The folder of trained parts: weights, and what they were trained for and on.

``heads.json`` says everything; ``medusa.safetensors``, ``eagle.safetensors`` and
``draft/layers.safetensors`` hold what is the parts' own, ``draft/config.json`` the draft's shape.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from calibration.decoding.heads import modules
from calibration.decoding.heads.modules import Eagle
from calibration.decoding.heads.parts import PARTS
from calibration.decoding.network import Network
from models.schema import ModelError
from models.strict_yaml import InputError

INFO = "heads.json"

FILES = {
    "medusa": "medusa.safetensors",
    "eagle": "eagle.safetensors",
    "draft": "draft/layers.safetensors",
}


class Trained(NamedTuple):
    """Trained parts on their target; None for one the folder does not have.

    Attributes
    ----------
    medusa : torch.nn.Module or None
        Heads, as of ``modules.medusa_heads``.
    eagle : Eagle or None
    draft : Network or None
        The target's first layers.
    info : mapping
        ``heads.json``.
    """

    medusa: Any
    eagle: Eagle | None
    draft: Network | None
    info: Mapping[str, Any]


def target_facts(network: Network, name: str) -> dict[str, Any]:
    """What parts must agree with their target in: name, hidden size, layers, vocabulary."""
    config = network.model.config
    return {
        "name": name,
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "vocabulary": config.vocab_size,
    }


def read_info(folder: Path | str) -> dict[str, Any]:
    """Read ``heads.json``; what it says of no parts where there is none.

    Raises
    ------
    InputError
        If it is no such file.
    """
    file = Path(folder) / INFO
    try:
        info = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {"parts": {}}
    except (OSError, ValueError) as error:
        raise InputError(str(file), None, "", f"cannot be read: {error}") from error
    parts = info.get("parts") if isinstance(info, dict) else None
    if not isinstance(parts, dict) or not isinstance(info.get("target", {}), dict):
        raise InputError(str(file), None, "parts", "is missing: no file of trained parts")
    for part, size in (("medusa", "heads"), ("eagle", ""), ("draft", "layers")):
        said = parts.get(part, {size: 1})
        if not isinstance(said, dict) or (size and not isinstance(said.get(size), int)):
            raise InputError(
                str(file), None, f"parts.{part}", f"does not say its {size or 'shape'}"
            )
    return dict(info)


def load(
    folder: Path | str, network: Network, needed: Collection[str] = (), name: str = ""
) -> Trained:
    """Load trained parts onto their target, in its type and place.

    Parameters
    ----------
    folder : path-like
        What ``speccast calibrate train-heads --out`` wrote.
    network : Network
        The target.
    needed : collection of str
        Parts that must be there: ``medusa``, ``eagle``, ``draft``.
    name : str
        Name of the target, where it is to be checked too.

    Raises
    ------
    ModelError
        If the parts are another target's or one is missing; key ``--heads``.
    InputError
        If a file cannot be read.
    """
    info = read_info(folder)
    check_target(folder, info, target_facts(network, name))
    for part in needed:
        if part not in info["parts"]:
            raise ModelError(
                f"'{folder}' has no part '{part}'; run: speccast calibrate train-heads "
                f"--model {info.get('target', {}).get('name', name) or 'M'} --parts {part} "
                f"--out {folder}",
                "--heads",
            )
    found = {part: _load_part(Path(folder), network, part, info["parts"]) for part in PARTS}
    eagle = None if found["eagle"] is None else Eagle(network, found["eagle"])
    draft = None if found["draft"] is None else Network(found["draft"])
    return Trained(found["medusa"], eagle, draft, info)


def check_target(
    folder: Path | str, info: Mapping[str, Any], facts: Mapping[str, Any], option: str = "--heads"
) -> None:
    """Refuse parts of another target.

    Raises
    ------
    ModelError
        With what differs; its key is the option that named the folder.
    """
    theirs = info.get("target", facts)
    for key, value in facts.items():
        if value and theirs.get(key) != value:
            raise ModelError(
                f"'{folder}' was trained for another target: {key} {theirs.get(key)}, here {value}",
                option,
            )


def save_part(folder: Path, part: str, trained: Any) -> None:
    """Write the own weights of a part, and the shape of a draft.

    Parameters
    ----------
    folder : Path
    part : str
    trained : Part
        With ``module`` and ``weights()``.
    """
    from safetensors.torch import save_file

    file = folder / FILES[part]
    file.parent.mkdir(parents=True, exist_ok=True)
    if part == "draft":
        config = trained.module.config
        config.architectures = [type(trained.module).__name__]
        file.with_name("config.json").write_text(config.to_json_string(use_diff=False), "utf-8")
    own = {name: one.detach().contiguous() for name, one in trained.weights().items()}
    save_file(own, file)


def write_info(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write ``heads.json``; it is whole at any time."""
    file = folder / INFO
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(info, indent=2) + "\n", "utf-8")
    beside.replace(file)
    return file


def _load_part(folder: Path, network: Network, part: str, parts: Mapping[str, Any]) -> Any:
    if part not in parts:
        return None
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    said = parts[part]
    if part == "medusa":
        module = modules.medusa_heads(network, said["heads"])
    elif part == "eagle":
        module = modules.eagle_layer(network)
    else:
        module = modules.truncated(network, said["layers"])
    file = folder / FILES[part]
    try:
        own = load_file(file)
        missing, unexpected = module.load_state_dict(own, strict=False)
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(str(file), None, "", f"cannot be loaded: {reason}") from error
    if unexpected or (part != "draft" and missing):
        raise InputError(str(file), None, "", "does not hold the weights of this part")
    return module
