"""Work of ``speccast calibrate train-heads``: write text, train the parts, keep them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from calibration.decoding.heads import modules, store
from calibration.decoding.heads.corpus import Corpus, Example, Prompted, drop_states
from calibration.decoding.heads.data import Vocabulary
from calibration.decoding.heads.parts import PARTS, DraftPart, EaglePart, MedusaPart
from calibration.decoding.heads.train import Training
from calibration.decoding.network import Network
from calibration.decoding.prompts import DOMAINS, available, prompts
from calibration.decoding.weights import TRANSFORMER, Target, import_transformers, load
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.progress import OnProgress
from sim.staging import obstacle

VERSION = 1


class Sizes(NamedTuple):
    """How much text: prompts of each domain, tokens written for each, most tokens of a prompt."""

    prompts: int
    new_tokens: int
    prompt_tokens: int


USUAL = Sizes(prompts=80, new_tokens=96, prompt_tokens=250)
QUICK = Sizes(prompts=4, new_tokens=16, prompt_tokens=64)
QUICK_MINUTES = 0.08
USUAL_MINUTES = 4.0


class Options(NamedTuple):
    """What is trained, and for how long.

    Attributes
    ----------
    model : str
        As `weights.load` takes it.
    heads : int
        Medusa heads.
    parts : tuple of str
        Of ``medusa``, ``eagle``, ``draft``.
    draft_layers : int or None
        Layers of the draft; None: about a sixth of the target's.
    minutes : float or None
        Of training, for each part.
    threads : int
        CPU threads.
    quick : bool
        Little text and seconds of training, to try it out.
    seed : int
    """

    model: str = TRANSFORMER
    heads: int = 4
    parts: tuple[str, ...] = PARTS
    draft_layers: int | None = None
    minutes: float | None = None
    threads: int = 1
    quick: bool = False
    seed: int = 0

    @property
    def budget_s(self) -> float:
        """Seconds of training, for each part."""
        usual = QUICK_MINUTES if self.quick else USUAL_MINUTES
        return 60 * (usual if self.minutes is None else self.minutes)


def parse_parts(text: str) -> tuple[str, ...]:
    """Names of parts, split at commas; in the order they are trained.

    Raises
    ------
    ModelError
        If one is unknown; key ``--parts``.
    """
    asked = [one.strip() for one in text.split(",")]
    for one in asked:
        if one not in PARTS:
            raise ModelError(f"must be some of {','.join(PARTS)}, got '{one}'", "--parts")
    return tuple(part for part in PARTS if part in asked)


def check_out(folder: str) -> Path:
    """Refuse a folder that cannot be written, before anything is loaded.

    Raises
    ------
    InputError
    """
    problem = obstacle(Path(folder), [store.INFO]) if folder else "needs a folder, got ''"
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return Path(folder)


def train_heads(options: Options, folder: Path, on_progress: OnProgress) -> dict[str, Any]:
    """Load the target and train what the folder does not have yet.

    Parameters
    ----------
    options : Options
    folder : Path
        Where everything is kept. Interrupted, the same call goes on.
    on_progress : callable
        Called with (what runs, done, in all).

    Returns
    -------
    dict
        ``heads.json``.

    Raises
    ------
    ModelError, InputError
        If the folder holds parts of another target, or trained otherwise.
    RuntimeError
        If an extra is missing.
    """
    on_progress("loading the model", 0, 1)
    target = load(options.model, "fp32")
    with computing(options.threads):
        return train_on(target, options, folder, on_progress)


def train_on(
    target: Target, options: Options, folder: Path, on_progress: OnProgress
) -> dict[str, Any]:
    """Train on a target at hand, in fp32; see `train_heads`."""
    network = Network(target.model.requires_grad_(False))
    facts = store.target_facts(network, target.name)
    info = store.read_info(folder)
    store.check_target(folder, info, facts)
    shapes = _shapes(options, network)
    missing = {
        part: shapes[part]
        for part in options.parts
        if not _finished(folder, info, part, shapes[part])
    }
    if missing:
        info = _train_missing(target, network, options, folder, missing, on_progress)
    if set(info["parts"]) == set(PARTS):
        drop_states(folder / "corpus")
    return info


def _train_missing(
    target: Target,
    network: Network,
    options: Options,
    folder: Path,
    missing: Mapping[str, dict[str, Any]],
    on_progress: OnProgress,
) -> dict[str, Any]:
    facts, parts = store.target_facts(network, target.name), store.read_info(folder)["parts"]
    sizes = QUICK if options.quick else USUAL
    corpus = Corpus(folder / "corpus", {"target": facts, **sizes._asdict()})
    asked = _prompted(target, sizes)
    corpus.write(network, asked, sizes.new_tokens, target.stop_tokens, on_progress)
    examples = corpus.examples()
    words = Vocabulary(examples, target.model.get_output_embeddings().weight)
    info = _about(options, facts, examples, sizes) | {"parts": parts}
    for part, shape in missing.items():
        made = _part(part, network, words, shape, options.seed)
        training = Training(made, examples, _file(folder, part), options.seed, shape)
        said = shape | _trained(part, training, options, on_progress)
        store.save_part(folder, part, made)
        info["parts"][part] = said
        store.write_info(folder, info)
        _file(folder, part).unlink()
    return info


@contextlib.contextmanager
def computing(threads: int) -> Iterator[None]:
    """Compute on so many CPU threads within the block."""
    torch, _ = import_transformers()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _shapes(options: Options, network: Network) -> dict[str, dict[str, Any]]:
    """What decides each part's weights besides the text."""
    layers = network.model.config.num_hidden_layers
    draft = modules.draft_layers(layers) if options.draft_layers is None else options.draft_layers
    if "draft" in options.parts and not 1 <= draft < layers:
        raise ModelError(f"must be 1 to {layers - 1} layers, got {draft}", "--draft-layers")
    common = {"quick": options.quick, "seed": options.seed}
    return {
        "medusa": {"heads": options.heads} | common,
        "eagle": dict(common),
        "draft": {"layers": draft} | common,
    }


def _finished(folder: Path, info: dict[str, Any], part: str, shape: dict[str, Any]) -> bool:
    """Whether a part is trained; refused where it was trained otherwise."""
    said = info["parts"].get(part)
    if said is None:
        return False
    for key, value in shape.items():
        if said.get(key) != value:
            raise ModelError(
                f"'{folder}' has the part '{part}' trained otherwise: {key} {said.get(key)}, now "
                f"{value}; give the same options, or another folder",
                "--out",
            )
    return True


def _prompted(target: Target, sizes: Sizes) -> list[Prompted]:
    """Prompts of the training side as tokens, domains taking turns."""
    by_domain = {
        domain: prompts(domain, "train", min(sizes.prompts, available(domain, "train")))
        for domain in DOMAINS
    }
    return [
        Prompted(domain, place, tuple(target.encode(texts[place])[: sizes.prompt_tokens]))
        for place in range(sizes.prompts)
        for domain, texts in by_domain.items()
        if place < len(texts)
    ]


def _about(
    options: Options, facts: dict[str, Any], examples: Sequence[Example], sizes: Sizes
) -> dict[str, Any]:
    torch, transformers = import_transformers()
    held_out = sum(one.written.held_out for one in examples)
    return {
        "version": VERSION,
        "target": facts,
        "model": options.model,
        "versions": {
            "speccast": version("speccast"),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "text": sizes._asdict()
        | {
            "written_by": "the target, greedily, in fp32, after prompts of the training side",
            "trained_sequences": len(examples) - held_out,
            "held_out_sequences": held_out,
            "tokens": sum(len(one.written.text) for one in examples),
        },
    }


def _part(
    part: str, network: Network, words: Vocabulary, shape: dict[str, Any], seed: int
) -> MedusaPart | EaglePart | DraftPart:
    if part == "medusa":
        return MedusaPart(network, words, shape["heads"])
    if part == "eagle":
        return EaglePart(network, words, seed)
    return DraftPart(network, words, shape["layers"])


def _trained(
    part: str, training: Training, options: Options, on_progress: OnProgress
) -> dict[str, Any]:
    label = f"training {part}"
    on_progress(label, training.state.step, training.steps)
    state = training.run(options.budget_s, lambda done, total: on_progress(label, done, total))
    return {
        "top1": training.accuracies(),
        "held_out_loss": state.best_loss,
        "held_out_loss_before": state.first_loss,
        "steps": state.step,
        "stopped": state.stopped,
        "threads": options.threads,
        "training_s": round(state.spent_s, 1),
    }


def _file(folder: Path, part: str) -> Path:
    """Where a training is kept while it lasts."""
    return folder / "corpus" / f"{part}.training"
