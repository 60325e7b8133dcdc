"""Decoding sequences of one replica whose mode may change from step to step.

The same questions are answered as by `sim.engine.decode_batch.DecodeBatch`, which is faster where
all that a sequence will do is known when it joins. Here every sequence has a slot in numpy arrays,
and a step is worked out when it comes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.mixed_modes import Chunks, Group
from models.paths import uniforms_at
from models.step_cost import StepCost
from sim.engine.control import Control, Outcome
from sim.engine.mode_log import ModeLog
from sim.engine.modes import Modes
from sim.engine.path import Counts
from sim.engine.request import Request
from sim.engine.rules import Rules
from sim.engine.scheduler import Prefill
from sim.engine.slot_request import SlotRequest
from sim.engine.step_groups import chunks_of, groups_of

ACCEPTED, DRAFTED, WIDTH, OTHER = range(4)
_NEVER = 1 << 40


class _Step(NamedTuple):
    """What the next step does, by slot."""

    accepted: Counts
    drafted: Counts
    emitted: Counts
    width: Counts
    held: Counts


class SlotBatch:
    """Sequences by slot; the first ``n`` slots are taken.

    Parameters
    ----------
    modes : Modes
    rules : Rules
    longest : int
        Most tokens a request emits.
    control : Control
        Chooses the mode of every sequence in every step.
    log : ModeLog
    decoded : int
        Tokens decoded before.

    Attributes
    ----------
    step, n, decoded : int
        As of `DecodeBatch`.
    width : int
        Most query tokens of a sequence.
    mode, stream, steps : int64, shape (slots,)
        Mode and stream of each sequence, and steps it ran since it joined.
    """

    varies_width = True

    def __init__(
        self,
        modes: Modes,
        rules: Rules,
        longest: int,
        control: Control,
        log: ModeLog,
        decoded: int = 0,
    ) -> None:
        self.step, self.n, self.decoded = 0, 0, decoded
        self.width, self.rules, self.modes, self._log = rules.width, rules, modes, log
        self._control = control
        most, self._requests = rules.max_num_seqs, list[SlotRequest]()
        # Rows are touched as they are needed: what nobody uses takes no memory.
        self._latents = np.zeros((len(modes.laws), 4, most, longest + 1), dtype=np.int32)
        self._free_rows = list(range(most))[::-1]
        numbers = np.zeros((5, most), dtype=np.int64)
        self._prompt, self._prefilled, self._produced, self._left, self._held = numbers
        self.steps, self._accepted, self._drafted = np.zeros((3, most), dtype=np.int64)
        self.mode, self.stream, self._refill, self._row = np.zeros((4, most), dtype=np.int64)
        self._place = np.zeros(most, dtype=np.int64)
        self._missed = np.zeros((most, max(modes.networks, 1)), dtype=np.int64)
        self._away = np.zeros((most, len(modes.modes)), dtype=np.int64)
        self._key = np.zeros(most, dtype=np.uint64)
        self._state: list[NDArray[Any]] = [
            *(*numbers, self.steps, self._accepted),
            *(self._drafted, self.mode, self.stream, self._refill, self._row, self._place),
            *(self._missed, self._away, self._key, *control.by_slot),
        ]
        self._of = modes.arrays()
        self._unfilled = np.arange(self._missed.shape[1]) != self._of.network[modes.start]
        self._next: _Step | None = None

    @property
    def ctx(self) -> int:
        """Sum of the contexts of all sequences."""
        return int(self.context().sum())

    @property
    def growth(self) -> int:
        """KV blocks the next step adds; below zero where it gives some back."""
        if not self.n or self.rules.preemption == "never":
            return 0
        return int((self._coming().held - self._held[: self.n]).sum())

    @property
    def emitted(self) -> int:
        """Tokens the next step emits."""
        return int(self._coming().emitted.sum()) if self.n else 0

    @property
    def query_tokens(self) -> int:
        """Query tokens of the next step."""
        return int(self._coming().width.sum()) if self.n else 0

    def mixed_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> float:
        """Seconds of a step beside prefill chunks [s]; every mode has a ``cost`` of its own."""
        seconds = self.modes.time.step_s(self.groups(n), chunks_of(prefill))
        prompt, context = self._prefilled[:n], self.context()[:n]
        return self.rules.kv.with_fetches_s(seconds, prompt, context)

    def parts_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> tuple[float, float]:
        """Draft and host part of such a step [s]."""
        groups, chunks, time = self.groups(n), chunks_of(prefill), self.modes.time
        return time.draft_s(groups, chunks), time.host_s(groups, chunks)

    def context(self) -> Counts:
        """Context of each sequence, shape (n,)."""
        return self._prompt[: self.n] + self._produced[: self.n]

    def ids(self) -> list[int]:
        """Request of each sequence."""
        return [request.id for request in self._requests]

    def going_on(self) -> NDArray[np.bool_]:
        """Which sequences have tokens left to emit, shape (n,)."""
        left: NDArray[np.bool_] = self._left[: self.n] > 0
        return left

    def priced_s(self, mode: Counts, width: Counts | None = None) -> float:
        """A step of all sequences in these modes, beside no prefill; at full width, or this [s]."""
        prompt, context, kv = self._prefilled[: self.n], self.context(), self.rules.kv
        width = self._of.width[mode] if width is None else width
        attended, none = kv.attended(prompt, context), np.zeros_like(self._missed[: self.n])
        groups = groups_of(self.modes, mode, context, attended, width, none)
        return kv.with_fetches_s(self.modes.time.step_s(groups, Chunks()), prompt, context)

    def would_accept(self, mode: int, row: int = ACCEPTED) -> Counts:
        """Draft tokens each sequence would accept in its next step in a mode, shape (n,)."""
        n, (_, law, levels, *_) = self.n, self.modes.modes[mode]
        drawn = self._latents[law, row, self._row[:n], self._place[:n]]
        accepted: Counts = np.minimum(drawn, levels, dtype=np.int64)
        return accepted

    def reading(self, mode: int, power: float) -> Counts:
        """What a signal of some power says `would_accept` is, shape (n,)."""
        told = uniforms_at(self._key[: self.n], self._produced[: self.n]) < power
        read: Counts = np.where(told, self.would_accept(mode), self.would_accept(mode, OTHER))
        return read

    def join(self, request: Request) -> None:
        """Start decoding a request with the next step."""
        assert isinstance(request, SlotRequest)
        slot, self._next = self.n, None
        for place, values in enumerate(self._state):
            values[slot] = 0 if request.saved is None else request.saved[place]
        if request.saved is None:
            self.mode[slot], self.stream[slot] = self.modes.start, request.stream
            self._key[slot] = request.key
            self._away[slot] = _NEVER
            self._away[slot, self.modes.start] = 0
            self._control.enter(slot)
        self._prompt[slot], self._produced[slot] = request.prompt_tokens, request.produced
        self._prefilled[slot] = request.prefill_tokens
        self._left[slot] = request.output_tokens - request.produced
        self._held[slot] = request.held
        if request.prefilled:
            # By the draft of the first mode alone; a swap leaves all caches as they were.
            self._missed[slot] = request.prefill_tokens * self._unfilled
            request.prefilled = False
        self.steps[slot] = self._accepted[slot] = self._drafted[slot] = 0
        self._lay_out(slot, request)
        request.start_step, request.finish_step = self.step, self.step + 1
        self._requests.append(request)
        self.n += 1

    def _lay_out(self, slot: int, request: SlotRequest) -> None:
        self._row[slot] = row = self._free_rows.pop()
        for law, latent in enumerate(request.drawn.own):
            steps, other = len(latent.accepted), (request.drawn.other or request.drawn.own)[law]
            table = self._latents[law, :, row, :steps]
            table[ACCEPTED], table[OTHER] = latent.accepted, other.accepted
            table[DRAFTED] = -1 if latent.drafted is None else latent.drafted
            table[WIDTH] = -1 if latent.width is None else latent.width

    def leave(self, request: Request) -> None:
        """Take a request out before its end and book the steps it has run."""
        assert isinstance(request, SlotRequest)
        slot = self._requests.index(request)
        request.saved = [values[slot].copy() for values in self._state]
        self._take_out(slot)

    def _take_out(self, slot: int) -> SlotRequest:
        """Book what a sequence did and free its slot: the last sequence moves into it."""
        request, last = self._requests[slot], self.n - 1
        produced, request.held = int(self._produced[slot]), int(self._held[slot])
        request.decoded, request.produced = request.decoded + produced - request.produced, produced
        request.n_steps += int(self.steps[slot])
        request.accepted += int(self._accepted[slot])
        request.drafted += int(self._drafted[slot])
        request.finish_step = 0
        self._free_rows.append(int(self._row[slot]))
        for values in (*self._state, *(self._next or ())):
            values[slot] = values[last]
        if self._next is not None:
            self._next = _Step(*(values[:last] for values in self._next))
        self._requests[slot] = self._requests[last]
        self._requests.pop()
        self.n = last
        return request

    def advance(self, start_s: float, end_s: float) -> list[Request]:
        """Run the next step, from ``start_s`` to ``end_s``; the requests it finishes."""
        step, n, mode = self._coming(), self.n, self.mode[: self.n].copy()
        self.step += 1
        self._produced[:n] += step.emitted
        self._left[:n] -= step.emitted
        self._held[:n] = step.held
        self.steps[:n] += 1
        self._accepted[:n] += step.accepted
        self._drafted[:n] += step.drafted
        self._place[:n] += 1
        filling = self._refill[:n] > 0
        self._refill[:n] -= filling
        self._away[:n] += 1
        self._away[np.arange(n), mode] = self._refill[:n]
        self._missed[:n] += step.emitted[:, None]
        network = self._of.network[mode]
        ran = np.flatnonzero(network >= 0)
        self._missed[ran, network[ran]] = 0
        self.decoded += int(step.emitted.sum())
        offered = np.where(filling, 0, np.minimum(self._of.levels[mode], step.drafted))
        outcome = Outcome(mode, step.accepted, offered, step.drafted)
        self._log.add(start_s, end_s, outcome)
        self._control.observe(self, outcome, start_s, end_s)
        self._next = None
        finished = np.flatnonzero(self._left[:n] == 0)[::-1].tolist()
        return sorted((self._take_out(slot) for slot in finished), key=lambda one: one.id)

    def _coming(self) -> _Step:
        if self._next is None:
            self._next = self._planned()
        return self._next

    def _planned(self) -> _Step:
        n, of = self.n, self._of
        chosen, limit = self._control.choose(self)
        switched = np.flatnonzero(chosen != self.mode[:n])
        entered = chosen[switched]
        self._refill[switched] = np.minimum(of.refill_steps[entered], self._away[switched, entered])
        self.mode[:n] = chosen
        drawn = self._latents[of.law[chosen], :, self._row[:n], self._place[:n]].astype(np.int64)
        drafted = np.where(drawn[:, DRAFTED] < 0, of.drafted[chosen], drawn[:, DRAFTED])
        width = np.where(drawn[:, WIDTH] < 0, of.width[chosen], drawn[:, WIDTH])
        accepted = np.minimum(drawn[:, ACCEPTED], of.levels[chosen])
        capped = np.minimum(drafted, of.drafted[chosen] if limit is None else limit)
        width -= drafted - capped
        accepted = np.where(self._refill[:n] > 0, 0, np.minimum(accepted, capped))
        emitted = np.minimum(accepted + 1, self._left[:n])
        held = self._held[:n].copy()
        if self.rules.preemption != "never":
            held = self.rules.kv.blocks(self._prefilled[:n], self.context(), of.slots[chosen])
        return _Step(accepted, capped, emitted, width, held)

    def groups(self, n: int) -> list[Group]:
        """Sequences of the next step by mode, with the contexts their attention reads.

        Where none decode, the mode they will enter.
        """
        if not n:
            return [Group(self._control.entering, 0, 0, 0, 0)]
        step, context = self._coming(), self.context()
        attended = self.rules.kv.attended(self._prefilled[:n], context)
        numbers = self.mode[:n], context, attended, step.width, self._missed[:n]
        return groups_of(self.modes, *numbers)

    def check(self) -> None:
        """Assert that an idle batch holds nothing."""
        assert self.n == len(self._requests), (self.n, len(self._requests))
        assert len(self._free_rows) + self.n == self.rules.max_num_seqs
