"""The decoding sequences of a replica: what the scheduler and the clock ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from models.step_cost import StepCost
from sim.engine.request import Request

if TYPE_CHECKING:
    from sim.engine.scheduler import Prefill


class Batch(Protocol):
    """Sequences that decode together; `DecodeBatch` and `SlotBatch` are such.

    Attributes
    ----------
    step, n, decoded : int
        Decode steps run so far, sequences decoding, tokens their steps have emitted.
    width : int
        Most query tokens of a sequence.
    varies_width : bool
    """

    step: int
    n: int
    decoded: int
    width: int
    varies_width: bool

    @property
    def ctx(self) -> int:
        """Sum of the contexts of all sequences."""
        ...

    @property
    def growth(self) -> int:
        """KV blocks the next step adds."""
        ...

    @property
    def emitted(self) -> int:
        """Tokens the next step emits."""
        ...

    @property
    def query_tokens(self) -> int:
        """Query tokens of the next step."""
        ...

    def mixed_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> float:
        """Seconds of a step in which ``n`` sequences decode beside prefill chunks [s]."""
        ...

    def parts_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> tuple[float, float]:
        """Draft and host part of such a step [s]."""
        ...

    def join(self, request: Request) -> None:
        """Start decoding a request with the next step."""
        ...

    def leave(self, request: Request) -> None:
        """Take a request out before its end and book the steps it has run."""
        ...

    def advance(self, start_s: float, end_s: float) -> list[Request]:
        """Run the next step, from ``start_s`` to ``end_s``; the requests it finishes."""
        ...

    def check(self) -> None:
        """Assert that an idle batch holds nothing."""
        ...
