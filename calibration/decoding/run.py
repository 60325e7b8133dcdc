"""Decode a plan with real decoders, keeping each finished batch in the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from calibration.decoding.decoder import Decoder, Watch, decode
from calibration.decoding.journal import Done, Journal
from calibration.decoding.plan import Batch
from calibration.kernels.device.machine import Machine
from sim.progress import OnProgress

WARM_UP_TOKENS = 6
"""Tokens a prompt that every strategy decodes first, unrecorded: kernels load, memory is taken."""


@runtime_checkable
class Learning(Protocol):
    """A decoder that carries over what it saw of one prompt to the next."""

    def state(self) -> Any:
        """What it has learned, as JSON."""
        ...

    def restore(self, state: Any) -> None:
        """Take up what it had learned; None: nothing yet."""
        ...


class Lengths(NamedTuple):
    """When texts end, and the seed of what is sampled for them."""

    max_new_tokens: int
    stop_tokens: Collection[int]
    seed: int


def run(
    batches: Sequence[Batch],
    decoders: Mapping[str, Decoder],
    journal: Journal,
    lengths: Lengths,
    now: Callable[[], float],
    on_progress: OnProgress | None = None,
) -> None:
    """Decode batches in order. An exception loses the batch at hand, nothing else.

    Parameters
    ----------
    batches : sequence of Batch
        From `plan`.
    decoders : mapping
        By label.
    journal : Journal
        Also knows what decoders learned in an earlier run; they go on from there.
    lengths : Lengths
    now : callable
        From `clock_of`.
    on_progress : callable, optional
        Told the strategy, prompts done and prompts in all.
    """
    done, total, warm = 0, sum(len(batch.prompts) for batch in batches), set[str]()
    watch = Watch(now)
    for batch in batches:
        if on_progress is not None:
            on_progress(batch.label, done, total)
        decoder = decoders[batch.label]
        if batch.label not in warm:
            _decode(decoder, batch, lengths._replace(max_new_tokens=WARM_UP_TOKENS), watch)
            if isinstance(decoder, Learning):
                decoder.restore(journal.state(batch.label))
            warm.add(batch.label)
        journal.append(_decode(decoder, batch, lengths, watch))
        done += len(batch.prompts)


def _decode(decoder: Decoder, batch: Batch, lengths: Lengths, watch: Watch) -> Done:
    generation = decode(
        decoder,
        [prompt.tokens for prompt in batch.prompts],
        [prompt.seed(lengths.seed) for prompt in batch.prompts],
        lengths.max_new_tokens,
        lengths.stop_tokens,
        watch,
    )
    return Done.of(batch, generation, decoder.state() if isinstance(decoder, Learning) else None)


def clock_of(machine: Machine, torch: Any) -> Callable[[], float]:
    """Seconds as they count on this device: a CPU thread's own, or once the GPU is through."""
    if machine.device == "cpu":
        return time.thread_time if machine.threads == 1 else time.perf_counter

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now
