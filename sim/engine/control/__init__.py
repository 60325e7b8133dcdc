"""Who decides in which mode each sequence runs its next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from numpy.typing import NDArray

from sim.engine.path import Counts

if TYPE_CHECKING:
    from sim.engine.slot_batch import SlotBatch


class Outcome(NamedTuple):
    """What a step did, by sequence: arrays of shape (n,).

    Attributes
    ----------
    mode, accepted, drafted : int64
        Mode it ran in, draft tokens accepted (before the cut at the end) and verified.
    offered : int64
        Most it could have accepted: K of a chain, depth of a tree; 0 where nothing was drafted, or
        a window of Lookahead only filled.
    """

    mode: Counts
    accepted: Counts
    offered: Counts
    drafted: Counts


class Control(Protocol):
    """Chooses modes; what it knows of a sequence moves with its slot.

    Attributes
    ----------
    by_slot : list of arrays
        State whose first axis is the slot.
    """

    by_slot: list[NDArray[Any]]

    @property
    def entering(self) -> int:
        """Mode whose step computes prompts while nothing decodes."""
        ...

    def enter(self, slot: int) -> None:
        """A request decodes for the first time; its state is zero."""
        ...

    def choose(self, batch: SlotBatch) -> tuple[Counts, Counts | None]:
        """Mode of each sequence in its next step, and its most draft tokens if fewer are wanted.

        May be asked again before the step runs, and then answers the same.
        """
        ...

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """Learn what the step from ``start_s`` to ``end_s`` did."""
        ...
