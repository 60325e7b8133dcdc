"""What the target's own choice leaves of a chain of drafts."""

from __future__ import annotations

from collections.abc import Sequence


def accepted_chain(drafts: Sequence[int], targets: Sequence[int]) -> int:
    """Drafts that are what the target would have chosen, up to the first that is not.

    Parameters
    ----------
    drafts : sequence of int
        Draft tokens, in order.
    targets : sequence of int
        The target's choice after the current token, after the first draft, and so on; at least as
        many as drafts.
    """
    for place, draft in enumerate(drafts):
        if draft != targets[place]:
            return place
    return len(drafts)
