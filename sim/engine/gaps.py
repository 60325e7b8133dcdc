"""Gaps between the chunks a sequence streams, when some sequences sit a step out."""

from __future__ import annotations

from sim.engine.request import Request
from sim.histogram import LogHistogram


class Gaps:
    """Who last emitted before the previous step of a replica, and when.

    Sequences emit in every step but when a prefill or a swap makes them wait; only those are
    noted here.

    Attributes
    ----------
    uneven : bool
        Whether anybody is noted.
    """

    def __init__(self, histogram: LogHistogram) -> None:
        self.add = histogram.add
        self.uneven = False
        self._stalled: list[tuple[float, int]] = []
        self._returned: dict[Request, float] = {}

    def stall(self, since_s: float, sequences: int) -> None:
        """All ``sequences`` decoding sit out a step; they last emitted at ``since_s``."""
        self._stalled.append((since_s, sequences - self._late()))
        self.uneven = True

    def come_back(self, request: Request) -> None:
        """A sequence decodes again after its blocks were swapped in."""
        self._returned[request] = request.last_emit_s
        self.uneven = True

    def _late(self) -> int:
        return len(self._returned) + sum(count for _, count in self._stalled)

    def emit(self, start_s: float, end_s: float, sequences: int) -> None:
        """Everybody emits at ``end_s``: those not noted last did at ``start_s``."""
        back = [(since, 1) for since in self._returned.values()]
        for since, count in [*self._stalled, *back, (start_s, sequences - self._late())]:
            if count:
                self.add(end_s - since, count)
        self._stalled, self._returned, self.uneven = [], {}, False

    def forget(self, request: Request, now_s: float) -> None:
        """A sequence leaves the batch: note in it when it last emitted."""
        joined, request.last_emit_s = request.last_emit_s, now_s
        if request in self._returned:
            request.last_emit_s = self._returned.pop(request)
            return
        for index, (since, count) in enumerate(self._stalled):
            if since >= joined:
                self._stalled[index] = (since, count - 1)
                request.last_emit_s = since
                return
