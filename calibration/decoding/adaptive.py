"""A gate: speculation while it pays, plain decoding while it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.rolling import Limited, Rolling


class Adaptive:
    """Leaves a strategy for plain decoding while too little is accepted, and probes it again.

    The gate is open until a whole window of tokens has a mean of less than ``leave_below`` a step.
    It then decodes plainly for ``probe_tokens`` tokens and tries ``probe_steps`` steps: unless
    these reach ``leave_below``, it waits as long again; if they do, a new window begins with them.
    Its state goes on over texts, as in a server, and is one for all sequences of a batch.

    Parameters
    ----------
    inner : Limited
        The strategy; its own plain steps are the fallback, so both have the same KV cache.
    leave_below : float
        Tokens a step with drafts below which plain decoding is faster: its time over that of a
        plain step.
    window_tokens : int
        Tokens of the window, emitted by steps with drafts.
    probe_tokens : int
        Tokens of plain decoding between two probes.
    probe_steps : int
        Steps of a probe.
    """

    def __init__(
        self,
        inner: Limited,
        leave_below: float,
        window_tokens: int = 50,
        probe_tokens: int = 100,
        probe_steps: int = 4,
    ) -> None:
        self.label, self.most_rows = f"adaptive_{inner.label}", inner.most_rows
        self.strategy = {
            "kind": "adaptive",
            "primary": dict(inner.strategy),
            "fallback": {"kind": "autoregressive"},
            "leave_below": leave_below,
            "window_tokens": window_tokens,
            "return": {"kind": "probe", "every_tokens": probe_tokens, "steps": probe_steps},
        }
        self._inner, self._leave_below = inner, leave_below
        self._probe_tokens, self._probe_steps = probe_tokens, probe_steps
        self._rolling = Rolling(window_tokens)
        self._plain_left = self._probe_left = 0
        self.note = ""

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """See `Decoder.prefill`; the gate stays as it is."""
        return self._inner.prefill(prompts, seeds, watch)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        closed = self._plain_left > 0
        self._inner.limit = 0 if closed else None
        self.note = "autoregressive" if closed else self._inner.label
        rows = self._inner.step(watch)
        if closed:
            self._wait(rows)
        else:
            self._judge(rows)
        return rows

    def retain(self, rows: Sequence[int]) -> None:
        """See `Decoder.retain`."""
        self._inner.retain(rows)

    def state(self) -> Any:
        """Where the gate stands, as JSON."""
        return [self._rolling.state(), self._plain_left, self._probe_left]

    def restore(self, state: Any) -> None:
        """Go on where `state` was taken; None: with the gate open and nothing known."""
        steps, self._plain_left, self._probe_left = state or ((), 0, 0)
        self._rolling.restore(steps)

    def _wait(self, rows: Sequence[Row]) -> None:
        self._plain_left -= len(rows)
        if self._plain_left <= 0:
            self._probe_left = self._probe_steps

    def _judge(self, rows: Sequence[Row]) -> None:
        """Close the gate at the end of a failed probe, or of a window that does not pay."""
        self._rolling.add(rows)
        if self._probe_left:
            self._probe_left -= 1
            decided = not self._probe_left
        else:
            decided = self._rolling.full
        tau = self._rolling.tau
        if decided and tau is not None and tau < self._leave_below:
            self._rolling.clear()
            self._plain_left = self._probe_tokens
