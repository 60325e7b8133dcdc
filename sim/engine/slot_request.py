"""A request whose steps are worked out one by one, from what was drawn for it in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.modes import Drawn
from sim.engine.path import Path, Totals
from sim.engine.request import Request
from sim.engine.rules import Rules

_NO_PATH = Path(np.zeros((4, 0), dtype=np.int64))
_NOTHING = Totals(0, 0, 0)


class SlotRequest(Request):
    """A request of a `sim.engine.slot_batch.SlotBatch`.

    Attributes
    ----------
    drawn : Drawn
    key : int
        Hash state of what signals read of it.
    stream : int
        Its stream, by index.
    saved : list of arrays or None
        Where it stood when it was last taken out of the batch.
    prefilled : bool
        A prefill ended since.
    """

    __slots__ = ("drawn", "key", "prefilled", "saved", "stream")

    def __init__(
        self,
        number: int,
        prompt_tokens: int,
        output_tokens: int,
        drawn: Drawn,
        key: int,
        stream: int,
    ) -> None:
        super().__init__(number, prompt_tokens, output_tokens, _NO_PATH, _NOTHING)
        self.drawn, self.key, self.stream = drawn, key, stream
        self.saved: list[NDArray[Any]] | None = None
        self.prefilled = False

    def emit_after_prefill(self, rules: Rules) -> bool:
        """The end of a prefill emits one token; True if it is the request's very first."""
        self.produced += 1
        self.prefilled = True
        return self.produced == 1
