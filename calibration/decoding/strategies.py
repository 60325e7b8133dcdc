"""Which decoders there are, by label, and how each is made."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.costs import Costs
from calibration.decoding.decoder import Decoder
from calibration.decoding.network import Network
from calibration.decoding.sampling import Sampling
from models.schema import ModelError
from models.strict_yaml import InputError
from models.trees import Tree


class Knobs(NamedTuple):
    """What a user can set of strategies.

    Attributes
    ----------
    k : int
        Draft tokens of chains.
    tree : Tree or None
        Of Medusa; None: its own.
    lookahead : tuple of int
        W, N and G.
    temperature : float
        Where a strategy samples.
    """

    k: int = 4
    tree: Tree | None = None
    lookahead: tuple[int, int, int] = (5, 4, 5)
    temperature: float = 0.8


class Parts(Protocol):
    """Trained parts of the target; each is loaded when it is first asked for."""

    def medusa(self) -> Any:
        """Medusa heads."""
        ...

    def eagle(self) -> Any:
        """An EAGLE layer."""
        ...

    def draft(self) -> tuple[Network, str]:
        """A draft model, and what ``draft`` of a scenario says."""
        ...

    def costs(self, drafting: Decoder) -> Costs:
        """What drafting costs here, beside plain decoding."""
        ...


Maker = Callable[[Network, Parts, Knobs], Decoder]


class Kind(NamedTuple):
    """How a decoder is made, and what it asks for.

    Attributes
    ----------
    make : callable
    part : str
        Trained part of the target it needs; empty: none.
    batched : bool
        Decodes several prompts side by side.
    streaming : bool
        Learns from prompt to prompt, and so takes them as a stream.
    sampled : bool
        Draws its texts: they are not plain decoding's.
    """

    make: Maker
    part: str = ""
    batched: bool = False
    streaming: bool = False
    sampled: bool = False


def _autoregressive(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    return Autoregressive(target)


def _draft_model(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.draft_model import DraftModel

    return DraftModel(target, *_draft(parts, knobs))


def _draft_model_sampled(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.draft_model import DraftModel

    return DraftModel(target, *_draft(parts, knobs), Sampling(knobs.temperature))


def _draft(parts: Parts, knobs: Knobs) -> tuple[Network, int, str]:
    draft, name = parts.draft()
    return draft, knobs.k, name


def _medusa(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.medusa import DEFAULT_TREE, Medusa

    heads = parts.medusa()
    usual = tuple(path for path in DEFAULT_TREE if len(path) <= len(heads.blocks))
    try:
        return Medusa(target, heads, knobs.tree or usual)
    except ValueError as error:
        raise ModelError(str(error), "--tree") from error


def _lookahead(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.lookahead import Lookahead

    return Lookahead(target, *knobs.lookahead)


def _ngram(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.ngram import Ngram

    return Ngram(target, knobs.k)


def _eagle(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.eagle import Eagle

    return Eagle(target, parts.eagle(), knobs.k)


def _adaptive(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.adaptive import Adaptive
    from calibration.decoding.ngram import Ngram

    inner = Ngram(target, knobs.k)
    return Adaptive(inner, parts.costs(inner).step)


def _dynamic_k(target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    from calibration.decoding.draft_model import DraftModel
    from calibration.decoding.dynamic_k import DynamicK

    inner = DraftModel(target, *_draft(parts, knobs))
    return DynamicK(inner, parts.costs(inner).draft)


KINDS = {
    "autoregressive": Kind(_autoregressive, batched=True),
    "draft_model": Kind(_draft_model, "draft", batched=True),
    "draft_model_sampled": Kind(_draft_model_sampled, "draft", batched=True, sampled=True),
    "medusa": Kind(_medusa, "medusa"),
    "lookahead": Kind(_lookahead),
    "ngram": Kind(_ngram),
    "eagle": Kind(_eagle, "eagle"),
    "adaptive": Kind(_adaptive, streaming=True),
    "dynamic_k": Kind(_dynamic_k, "draft", streaming=True),
}
"""By label; ``all`` runs them in this order."""

ALL = "all"


def labels_of(asked: str, batch: int = 1) -> tuple[str, ...]:
    """Labels of ``--strategies``, in the order given; those of ``all`` are what ``batch`` allows.

    Raises
    ------
    InputError
        If there is no such strategy, or a named one cannot decode so many prompts side by side.
    """
    if asked == ALL:
        return tuple(label for label, kind in KINDS.items() if batch == 1 or kind.batched)
    labels = tuple(dict.fromkeys(label.strip() for label in asked.split(",")))
    for label in labels:
        if label not in KINDS:
            close = difflib.get_close_matches(label, KINDS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(KINDS)}"
            raise InputError("", None, "--strategies", f"no strategy '{label}'; {hint}")
        if batch > 1 and not KINDS[label].batched:
            able = ", ".join(label for label, kind in KINDS.items() if kind.batched)
            message = f"'{label}' decodes one prompt at a time, got {batch}; more can {able}"
            raise InputError("", None, "--batch", message)
    return labels


def make(label: str, target: Network, parts: Parts, knobs: Knobs) -> Decoder:
    """The decoder of a label.

    Raises
    ------
    ModelError
        If its trained parts are missing or do not fit the target.
    """
    return KINDS[label].make(target, parts, knobs)
