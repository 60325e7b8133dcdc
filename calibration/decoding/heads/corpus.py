"""Text the target writes itself, with its hidden states: what its trained parts learn from.

Prompts of the training side are continued greedily, as decoding is when it is measured. The text is
kept as it comes, a batch at a time, so an interrupted run goes on where it was. Whole sequences are
held out, one in `HELD_OUT` of each domain: none is on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.decoding.network import Network
from calibration.decoding.weights import import_transformers
from models.strict_yaml import InputError
from sim.progress import OnProgress

BATCH = 48
"""Sequences written side by side: some seconds of work, which an interruption loses."""

HELD_OUT = 8

SPLIT = f"by prompt: one in {HELD_OUT} of a domain is held out, no sequence is on both sides"


class Written(NamedTuple):
    """A prompt and what the target made of it.

    Attributes
    ----------
    domain : str
    held_out : bool
        Not trained on.
    prompt, text : tuple of int
        Tokens of the prompt, and of what follows it.
    """

    domain: str
    held_out: bool
    prompt: tuple[int, ...]
    text: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole sequence."""
        return self.prompt + self.text


class Example(NamedTuple):
    """A sequence with what the target computed on it.

    Attributes
    ----------
    written : Written
    states : torch.Tensor, shape (tokens - 1, hidden)
        After the last norm, bf16; the last token has none.
    choices : torch.Tensor of int, shape (tokens - 1,)
        What the target would say after each token; within the text that is the next token.
    """

    written: Written
    states: Any
    choices: Any


class Prompted(NamedTuple):
    """A prompt yet to be continued: its domain, place within the domain, tokens."""

    domain: str
    place: int
    tokens: tuple[int, ...]


class Corpus:
    """A folder with the text (``corpus.jsonl``) and a file of hidden states a batch.

    Parameters
    ----------
    folder : Path
    run : mapping
        What decides the text: target, prompts, tokens.

    Raises
    ------
    InputError
        If text of another run is kept there; it is left as it is.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder, self.file = folder, folder / "corpus.jsonl"
        self._batches: list[list[Written]] = []
        self._head = {"run": dict(run), "split": SPLIT}
        folder.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            self.file.write_text(json.dumps(self._head) + "\n", "utf-8")
            return
        self._read()

    def _read(self) -> None:
        """Take over whole batches; a last line cut short is left out."""
        lines = self.file.read_text("utf-8").split("\n")
        try:
            head = json.loads(lines[0])
            batches = [
                [Written(d, h, tuple(p), tuple(t)) for d, h, p, t in json.loads(line)]
                for line in lines[1:-1]
            ]
        except (ValueError, TypeError) as error:
            message = "holds no text that can be read; remove it to start anew"
            raise InputError(str(self.file), None, "", message) from error
        if head != self._head:
            message = "is text of another target or other options; use another --out, or remove it"
            raise InputError(str(self.file), None, "", message)
        self._batches = batches
        if lines[-1]:
            self.file.write_text("\n".join([*lines[:-1], ""]), "utf-8")

    def write(
        self,
        network: Network,
        prompts: Sequence[Prompted],
        new_tokens: int,
        stop_tokens: Collection[int],
        on_progress: OnProgress | None = None,
    ) -> None:
        """Continue all prompts that are not continued yet.

        Parameters
        ----------
        network : Network
            The target.
        prompts : sequence of Prompted
            The same on every call.
        new_tokens : int
            Tokens to write for each, unless it stops before.
        stop_tokens : collection of int
        """
        from safetensors.torch import save_file

        for index, first in enumerate(range(0, len(prompts), BATCH)):
            if index < len(self._batches):
                continue
            batch = prompts[first : first + BATCH]

            def update(share: float, first: int = first, rows: int = len(batch)) -> None:
                if on_progress is not None:
                    on_progress("writing text", first + int(share * rows), len(prompts))

            found = list(_continued(network, batch, new_tokens, stop_tokens, update))
            tensors = dict[str, Any]()
            for place, one in enumerate(found):
                tensors |= {f"states.{place}": one.states, f"choices.{place}": one.choices}
            save_file(tensors, self._states_file(index))
            self._batches.append([one.written for one in found])
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._batches[-1]) + "\n")

    def examples(self) -> list[Example]:
        """All sequences with their states, in the order of their prompts.

        Raises
        ------
        InputError
            If states were removed.
        """
        from safetensors.torch import load_file

        found = []
        for index, batch in enumerate(self._batches):
            file = self._states_file(index)
            if not file.exists():
                message = f"has no hidden states any more; remove '{self.folder}' to start anew"
                raise InputError(str(self.file), None, "", message)
            tensors = load_file(file)
            found += [
                Example(one, tensors[f"states.{place}"], tensors[f"choices.{place}"])
                for place, one in enumerate(batch)
            ]
        return found

    @property
    def sequences(self) -> list[Written]:
        """What is written so far."""
        return [one for batch in self._batches for one in batch]

    def _states_file(self, index: int) -> Path:
        return self.folder / f"states-{index:04d}.safetensors"


def drop_states(folder: Path) -> None:
    """Remove hidden states and what trainings left, once nothing is left to train."""
    for file in (*folder.glob("states-*.safetensors"), *folder.glob("*.training")):
        file.unlink()


def _continued(
    network: Network,
    prompts: Sequence[Prompted],
    new_tokens: int,
    stop_tokens: Collection[int],
    update: Callable[[float], None],
) -> Iterator[Example]:
    """Decode a batch greedily, hidden states kept."""
    torch, _ = import_transformers()
    with torch.inference_mode():
        cache = network.new_cache(len(prompts))
        prefilled = network.prefill([one.tokens for one in prompts], cache)
        states = [[one[0]] for one in prefilled]
        choices = [network.logits(one[0]).argmax(dim=-1) for one in prefilled]
        texts = [[int(one[-1])] for one in choices]
        alive = list(range(len(prompts)))
        while True:
            stay = [
                place
                for place, index in enumerate(alive)
                if len(texts[index]) < new_tokens and texts[index][-1] not in stop_tokens
            ]
            update(max(map(len, texts)) / new_tokens)
            if not stay:
                break
            if len(stay) < len(alive):
                cache.retain(stay)
                alive = [alive[place] for place in stay]
            hidden = network.hidden([texts[index][-1:] for index in alive], cache)
            cache.commit([[0]] * len(alive))
            said = network.logits(hidden[:, -1]).argmax(dim=-1).tolist()
            for place, index in enumerate(alive):
                states[index].append(hidden[place])
                texts[index].append(said[place])
    for index, one in enumerate(prompts):
        held_out = one.place % HELD_OUT == HELD_OUT // 2 - 1
        written = Written(one.domain, held_out, one.tokens, tuple(texts[index]))
        chosen = torch.tensor([*choices[index][:-1].tolist(), *texts[index]], dtype=torch.int32)
        kept = torch.cat(states[index]).to(device="cpu", dtype=torch.bfloat16).contiguous()
        yield Example(written, kept, chosen)
