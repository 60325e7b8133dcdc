"""What every decoder does: take prompts, then step until they are done, its time told apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

RANKS = 10
"""How many guesses of a level are looked through for the token the target chose."""


class Row(NamedTuple):
    """What one step did for one sequence.

    Attributes
    ----------
    prompt : int
        Place of its prompt in the batch as it began.
    tokens : tuple of int
        Tokens the step emits, before any cut.
    drafted, accepted : int
        Draft tokens verified, and accepted.
    width : int
        Query tokens of the verify pass.
    context : int
        Tokens of the sequence before the step: prompt and emitted ones, the first included.
    ranks : tuple of int or None
        For each level reached, the accepted ones and the one that failed: rank of the target's
        token among the guesses there, None when it was not among the first ``RANKS``. Empty where
        a level has one guess.
    """

    prompt: int
    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    width: int
    context: int
    ranks: tuple[int | None, ...] = ()


class Times(NamedTuple):
    """Seconds of one step: drafting, the target's pass, choosing tokens, everything else."""

    draft_s: float
    verify_s: float
    sample_s: float
    host_s: float

    @property
    def total_s(self) -> float:
        """The whole step."""
        return sum(self)


class Watch:
    """Tells the parts of a step apart; what no part claims is the host's.

    Parameters
    ----------
    now : callable
        Seconds; on a GPU it waits for the GPU first.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._parts = dict.fromkeys(("draft", "verify", "sample"), 0.0)
        self._start = now()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block as ``draft``, ``verify`` or ``sample``; such blocks do not nest."""
        start = self._now()
        yield
        self._parts[name] += self._now() - start

    def lap(self) -> Times:
        """Times since the last lap."""
        now = self._now()
        draft_s, verify_s, sample_s = self._parts.values()
        host_s = max(0.0, now - self._start - draft_s - verify_s - sample_s)
        self._parts = dict.fromkeys(self._parts, 0.0)
        self._start = now
        return Times(draft_s, verify_s, sample_s, host_s)


class Decoder(Protocol):
    """One way to decode, over a batch of sequences.

    Attributes
    ----------
    label : str
        Name in tables.
    strategy : mapping
        Its block in a scenario, acceptance left out.
    most_rows : int
        Sequences it can decode side by side.
    note : str
        What was active in the last step, where that changes.
    """

    label: str
    most_rows: int
    note: str

    @property
    def strategy(self) -> Mapping[str, Any]:
        """See above."""
        ...

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """Take a new batch and forget the last one; the first token of each prompt."""
        ...

    def step(self, watch: Watch) -> list[Row]:
        """One step of every sequence in the batch."""
        ...

    def retain(self, rows: Sequence[int]) -> None:
        """Keep only the sequences at these places of the batch."""
        ...


class Step(NamedTuple):
    """One step: what it did by sequence, tokens that count after the cut, and its time."""

    rows: tuple[Row, ...]
    emitted: tuple[int, ...]
    times: Times
    note: str = ""


class Generation(NamedTuple):
    """Texts decoded side by side.

    Attributes
    ----------
    tokens : tuple of tuple of int
        What each prompt got, the first token included, cut at a stop token or the most allowed.
    prefill : Times
        Of taking in the prompts.
    steps : tuple of Step
    """

    tokens: tuple[tuple[int, ...], ...]
    prefill: Times
    steps: tuple[Step, ...]


def decode(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    max_new_tokens: int,
    stop_tokens: Collection[int],
    watch: Watch,
) -> Generation:
    """Decode a batch until every text has stopped.

    Parameters
    ----------
    decoder : Decoder
    prompts : sequence of sequences of int
        Tokens; at most ``decoder.most_rows`` of them.
    seeds : sequence of int
        One a prompt, for what it samples.
    max_new_tokens : int
        Tokens of each text, the first included.
    stop_tokens : collection of int
        A text ends with any of them, which still belongs to it.
    watch : Watch
    """
    watch.lap()
    first = decoder.prefill(prompts, seeds, watch)
    prefill = watch.lap()
    texts = [[token] for token in first]

    def goes_on(index: int) -> bool:
        text = texts[index]
        return len(text) < max_new_tokens and text[-1] not in stop_tokens

    batch, steps = list(range(len(prompts))), list[Step]()
    while True:
        stay = [place for place, index in enumerate(batch) if goes_on(index)]
        if not stay:
            return Generation(tuple(map(tuple, texts)), prefill, tuple(steps))
        if len(stay) < len(batch):
            decoder.retain(stay)
            batch = [batch[place] for place in stay]
        watch.lap()
        rows = decoder.step(watch)
        times = watch.lap()
        emitted = []
        for row in rows:
            kept = _cut(row.tokens, max_new_tokens - len(texts[row.prompt]), stop_tokens)
            texts[row.prompt] += kept
            emitted.append(len(kept))
        steps.append(Step(tuple(rows), tuple(emitted), times, decoder.note))


def _cut(tokens: Sequence[int], most: int, stop_tokens: Collection[int]) -> Sequence[int]:
    for place, token in enumerate(tokens[:most]):
        if token in stop_tokens:
            return tokens[: place + 1]
    return tokens[:most]
