"""What to know before a recording is used, worked out from its journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calibration.live.observe.journal import Journal, Measured
from calibration.live.server.per_request import KEY as SPECULATION
from calibration.live.stated import Drafts, contradiction, drafts_told

MOST_CACHED = 0.02
"""Share of prompt tokens from the prefix cache above which times of prefill mislead; assumed."""
COUNTS_ALL = "vllm"
"""Engine that counts every position it is configured for from the start."""


def remarks(journal: Journal, same_prompts: bool) -> Iterator[str]:
    """What is odd about the stages measured so far.

    Parameters
    ----------
    journal : Journal
    same_prompts : bool
        Whether prompts are sent as they are, so that a prefix cache is meant to know them.
    """
    for (name, replication), stage in journal.stages.items():
        label = f"{name}, repeat {replication}"
        share = None if same_prompts else cached_share(stage)
        if share is not None and share > MOST_CACHED:
            yield (
                f"{label}: {100 * share:.0f} % of the prompt tokens were answered by the prefix "
                "cache: use another --seed, unless it is what all prompts begin with"
            )
        parts = [size for size in stage.sizes if size]
        if len(parts) > 1:
            yield (
                f"{label} was interrupted after {' and '.join(map(str, parts[:-1]))} of "
                f"{sum(parts)} requests: its load was lower around the break"
            )


def contradicted(journal: Journal, block: Mapping[str, Any]) -> str:
    """What the server told against the strategy of ``block``; empty where it bears it out."""
    every = journal.server.get("engine") == COUNTS_ALL
    for stage in journal.stages.values():
        told = [_told_by_requests(stage)]
        told += [
            drafts_told(end["counters"], end["gauges"], every_position=every) for end in stage.ends
        ]
        for wrong in (contradiction(block, one) for one in told):
            if wrong:
                return wrong
    return ""


def cached_share(stage: Measured) -> float | None:
    """Share of prompt tokens that the prefix cache answered; None where it is not told."""
    counters = [end["counters"] for end in stage.ends]
    asked = sum(one.get("prefix_queries", 0.0) for one in counters)
    if asked:
        hits = sum(one.get("prefix_hits", 0.0) for one in counters if "prefix_queries" in one)
        return float(hits / asked)
    prompt = sum(row.prompt_tokens for row in stage.rows.values())
    cached = sum(row.cached_tokens for row in stage.rows.values())
    return cached / prompt if prompt else None


def _told_by_requests(stage: Measured) -> Drafts:
    """As vLLM ends each answer with."""
    said = [dict((row.metrics or {}).get(SPECULATION, {})) for row in stage.rows.values()]
    drafted = sum(_whole(one.get("num_draft_tokens")) for one in said)
    k = max((_whole(one.get("num_spec_tokens")) for one in said), default=0)
    return Drafts(drafted > 0, k or None, k)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
