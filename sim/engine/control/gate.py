"""The gate: out of the primary on its rolling acceptance, and back on a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.strategies.adaptive import Adaptive, Dwell, Probe, Proxy
from sim.engine.control import Outcome
from sim.engine.mode_log import ModeLog, Switch
from sim.engine.path import Counts
from sim.engine.windows import Windows

if TYPE_CHECKING:
    from sim.engine.slot_batch import SlotBatch

PRIMARY, FALLBACK = 0, 1
_EVERYBODY = -1


class Gate:
    """One gate a request, a stream or an engine.

    Open until a whole window of the primary reads less than ``leave_below``; then closed, until
    the signal reads ``return_above`` or more. Between two switches lie ``dwell_steps`` steps.

    Parameters
    ----------
    strategy : Adaptive
    slots, streams, longest : int
        Most sequences, number of streams, most tokens of a request.
    log : ModeLog
    """

    def __init__(
        self, strategy: Adaptive, slots: int, streams: int, longest: int, log: ModeLog
    ) -> None:
        self._strategy, self._log, self._return = strategy, log, strategy.return_
        self._of = strategy.window_of
        gates = {"request": slots, "stream": streams, "engine": 1}[self._of]
        most = longest if self._of == "request" else None
        self._window = Windows(gates, strategy.window_tokens, most)
        back = getattr(self._return, "window_tokens", 1)
        self._signal = Windows(gates, back, most)
        self._closed = np.zeros(gates, dtype=bool)
        self._since, self._wait, self._probing = np.zeros((3, gates), dtype=np.int64)
        by_gate = [
            *(self._closed, self._since, self._wait, self._probing),
            *(*self._window.by_group, *self._signal.by_group),
        ]
        self.by_slot: list[NDArray[Any]] = by_gate if self._of == "request" else []

    @property
    def entering(self) -> int:
        """See `Control.entering`."""
        return FALLBACK if self._of == "engine" and self._closed[0] else PRIMARY

    def enter(self, slot: int) -> None:
        """See `Control.enter`: its gate is open."""

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        gate = self._gate_of(batch)
        fallback = self._closed[gate] & (self._probing[gate] == 0)
        return np.where(fallback, FALLBACK, PRIMARY), None

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """See `Control.observe`."""
        gate = self._gate_of(batch)
        here = np.unique(gate)
        probed = self._closed[here] & (self._probing[here] > 0)
        self._since[here] += 1
        drafted = (outcome.mode == PRIMARY) & (outcome.offered > 0)
        closed = self._closed[gate]
        self._take_in(self._window, gate, drafted & ~closed, outcome.accepted, outcome.offered)
        if isinstance(self._return, Probe):
            self._take_in(self._signal, gate, drafted & closed, outcome.accepted, outcome.offered)
            self._count_probes(here, probed)
        elif isinstance(self._return, Proxy):
            read = batch.reading(PRIMARY, self._return.power)
            levels = np.full_like(read, batch.modes.modes[PRIMARY].levels)
            self._take_in(self._signal, gate, closed & batch.going_on(), read, levels)
        rested = here[self._since[here] >= self._strategy.dwell_steps]
        if self._of == "request":
            rested = rested[batch.going_on()[rested]]
        leaving, back = rested[self._leaves(rested)], rested[self._returns(rested)]
        self._switch(batch, leaving, end_s, self._read(self._window))
        self._switch(batch, back, end_s, self._read(self._signal))

    def _gate_of(self, batch: SlotBatch) -> Counts:
        if self._of == "request":
            return np.arange(batch.n)
        if self._of == "stream":
            return batch.stream[: batch.n]
        return np.zeros(batch.n, dtype=np.int64)

    def _take_in(
        self,
        windows: Windows,
        gate: Counts,
        counted: NDArray[np.bool_],
        accepted: Counts,
        offered: Counts,
    ) -> None:
        """Add what the counted sequences did, one entry a gate."""
        gates, place = np.unique(gate[counted], return_inverse=True)
        if not gates.size:
            return
        accepted, offered = accepted[counted], offered[counted]
        reached = accepted + (accepted < offered)
        rows = np.stack((accepted + 1, accepted, reached, offered, np.ones_like(accepted)), axis=1)
        entries = np.zeros((gates.size, rows.shape[1]), dtype=np.int64)
        np.add.at(entries, place, rows)
        windows.add(gates, entries)

    def _count_probes(self, here: Counts, probed: NDArray[np.bool_]) -> None:
        """Closed gates wait for their next probe, or are a step nearer to its end."""
        assert isinstance(self._return, Probe)
        closed = here[self._closed[here]]
        running = here[probed]
        waiting = closed[self._probing[closed] == 0]
        self._probing[running] -= 1
        self._wait[waiting] -= 1
        due = waiting[self._wait[waiting] <= 0]
        self._probing[due] = self._return.steps
        self._wait[closed[self._probing[closed] > 0]] = self._return.every_steps

    def _read(self, windows: Windows) -> NDArray[np.float64]:
        return windows.read(self._strategy.measure)

    def _leaves(self, gates: Counts) -> NDArray[np.bool_]:
        low = self._read(self._window)[gates] < self._strategy.leave_below
        leaves: NDArray[np.bool_] = ~self._closed[gates] & self._window.full()[gates] & low
        return leaves

    def _returns(self, gates: Counts) -> NDArray[np.bool_]:
        if isinstance(self._return, Dwell):
            return self._closed[gates]
        high = self._read(self._signal)[gates] >= self._strategy.returns_at
        ready = self._signal.full()[gates] & (self._probing[gates] == 0)
        returns: NDArray[np.bool_] = self._closed[gates] & ready & high
        return returns

    def _switch(
        self, batch: SlotBatch, gates: Counts, end_s: float, read: NDArray[np.float64]
    ) -> None:
        """Open what is closed and close what is open; a new window begins."""
        for gate in gates.tolist():
            left, entered = (FALLBACK, PRIMARY) if self._closed[gate] else (PRIMARY, FALLBACK)
            owner = {"request": gate, "stream": gate, "engine": _EVERYBODY}[self._of]
            if self._of == "request":
                owner = batch.ids()[gate]
            self._log.switch(Switch(end_s, owner, left, entered, float(read[gate])))
        self._closed[gates] ^= True
        self._since[gates] = 0
        self._probing[gates] = 0
        self._wait[gates] = getattr(self._return, "every_steps", 0)
        self._window.clear(gates)
        self._signal.clear(gates)
