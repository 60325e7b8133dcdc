"""What a server tells of the speculation of one request.

vLLM since 0.30, started with ``--per-request-spec-decode-metrics summary`` or ``detailed``, ends an
answer with ``metrics.speculative_decoding``; in a stream it stands in the chunk of the usage. Read
in vLLM 0.32, v1/core/sched/scheduler.py (update_from_output) and v1/metrics/stats.py
(RequestSpecDecodeMetrics), and seen from a server:

* A step counts that had draft tokens. The prefill, whose token comes first, had none, and neither
  had a step for which n-gram lookup found no match: such steps are told nowhere, but each emitted
  one token, so the length of the output tells how many they were.
* Accepted tokens are counted before the output is cut at its end: the last step may have accepted
  tokens that max_tokens or the end of text cut off.
* Draft tokens that a grammar ruled out are not in ``num_draft_tokens``.
* A request ended by a ``stop`` string has none of it, as the scheduler does not see the end, and
  neither has one with ``n`` above 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from sim.tables import Columns

KEY = "speculative_decoding"
COUNTS = ("undrafted", "n_steps")
MOST_UNDRAFTED = 0.01
"""Share of steps without a draft that a strategy that always drafts may show (assumed): those after
a preemption."""

MOST = 10**9
"""Of one request: more is no count of tokens or steps (assumed)."""


class Speculated(NamedTuple):
    """Speculation of one request.

    Attributes
    ----------
    n_steps : int
        Decode steps, those without a draft included.
    drafted, accepted : int
        Draft tokens verified, and accepted before the cut at the end.
    undrafted : int
        Decode steps without a draft, from the length of the output; up to as many as the last step
        accepted may be missing where the end was cut.
    steps : tuple of (int, int, int)
        Context [tokens], drafted and accepted of each step; empty where they are not told, or not
        all of them are.
    note : str
        What was left out, and why; empty for nothing.
    """

    n_steps: int
    drafted: int
    accepted: int
    undrafted: int = 0
    steps: tuple[tuple[int, int, int], ...] = ()
    note: str = ""


def speculated(
    metrics: Mapping[str, Any] | None, prompt_tokens: int, output_tokens: int
) -> Speculated | None:
    """Read the ``metrics`` of an answer.

    Parameters
    ----------
    metrics : mapping or None
        As the server sent it.
    prompt_tokens, output_tokens : int
        Of the request, by the server's ``usage``.

    Returns
    -------
    Speculated or None
        None where the server tells nothing. Numbers that contradict each other or the output are
        left out, zeros in their place, and the note says so.
    """
    said = metrics.get(KEY) if isinstance(metrics, Mapping) else None
    if not isinstance(said, Mapping):
        return None
    totals = _totals(said)
    if totals is None:
        return _left_out("its totals are missing or contradict each other")
    # The first token is of the prefill; each step emits one more than it accepted.
    unsaid = max(0, output_tokens - 1) - totals.steps - totals.accepted
    # Nothing but the last step can be cut, and of it at least one token was emitted.
    if unsaid < -totals.most:
        return _left_out(f"its steps emitted more than its {output_tokens} output tokens can hold")
    undrafted = max(0, unsaid)
    told = Speculated(totals.steps + undrafted, totals.drafted, totals.accepted, undrafted)
    accepted, drafted = said.get("per_step_accepted"), said.get("per_step_drafted")
    if accepted is None and drafted is None:
        return told
    cut = max(0, -unsaid)
    if not (_whole(accepted) and _whole(drafted) and _agree(accepted, drafted, totals, cut)):
        return told._replace(note="steps are left out: they contradict the totals")
    if undrafted:
        note = f"steps are left out: {undrafted} without a draft lie somewhere between them"
        return told._replace(note=note)
    return told._replace(steps=_steps(accepted, drafted, prompt_tokens))


def _left_out(why: str) -> Speculated:
    return Speculated(0, 0, 0, note=f"what the server tells of its speculation is left out: {why}")


class _Totals(NamedTuple):
    steps: int
    drafted: int
    accepted: int
    counts: list[int] | None

    @property
    def most(self) -> int:
        """Most that any step may have accepted."""
        if self.counts is None:
            return self.accepted
        return max((j for j, count in enumerate(self.counts) if count), default=0)


def _totals(said: Mapping[str, Any]) -> _Totals | None:
    keys = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    numbers = [said.get(key) for key in keys]
    counts = said.get("acceptance_histogram")
    if not _whole(numbers) or (counts is not None and not _whole(counts)):
        return None
    steps, drafted, accepted = (int(number or 0) for number in numbers)
    if accepted > drafted or (drafted > 0 and steps == 0):
        return None
    if counts is not None and (
        sum(counts) != steps or sum(j * count for j, count in enumerate(counts)) != accepted
    ):
        return None
    return _Totals(steps, drafted, accepted, counts)


def _agree(accepted: list[int], drafted: list[int], totals: _Totals, cut: int) -> bool:
    return (
        len(accepted) == len(drafted) == totals.steps
        and sum(accepted) == totals.accepted
        and sum(drafted) == totals.drafted
        and all(a <= d for a, d in zip(accepted, drafted, strict=True))
        and cut <= (accepted[-1] if accepted else 0)
        and (totals.counts is None or _counts(accepted, len(totals.counts)) == totals.counts)
    )


def _counts(accepted: list[int], length: int) -> list[int]:
    return [accepted.count(j) for j in range(length)]


def _steps(
    accepted: list[int], drafted: list[int], prompt_tokens: int
) -> tuple[tuple[int, int, int], ...]:
    contexts = accumulate((1 + n for n in accepted), initial=prompt_tokens + 1)
    return tuple(zip(contexts, drafted, accepted, strict=False))


def _whole(numbers: Any) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST for n in numbers
    )


def acceptance_columns(
    strategy: str, told: Iterable[tuple[int, str, Speculated]]
) -> tuple[Columns | None, str]:
    """Rows of the acceptance table, and what is not in it.

    Where more than ``MOST_UNDRAFTED`` of all steps had no draft there are none at all: the requests
    whose steps are told whole would be those in which every lookup found a match.

    Parameters
    ----------
    strategy : str
        Label.
    told : iterable of (int, str, Speculated)
        Id and domain of each request, and what the server told of it.

    Returns
    -------
    columns : Columns or None
        None where no steps are told.
    note : str
        What was left out, and why; empty for nothing.
    """
    every = list(told)
    kept = [(request, domain, one.steps) for request, domain, one in every if one.steps]
    undrafted, steps = (sum(getattr(one, name) for *_, one in every) for name in COUNTS)
    if kept and undrafted > MOST_UNDRAFTED * steps:
        note = f"{undrafted} of {steps} steps had no draft, and where they lie is not told"
        return None, f"no steps of requests are kept: {note}"
    lost = sum(bool(one.note) for *_, one in every)
    note = f"steps of {lost} of {len(every)} requests are left out" if kept and lost else ""
    return (_columns(strategy, kept) if kept else None), note


def _columns(
    strategy: str, kept: list[tuple[int, str, tuple[tuple[int, int, int], ...]]]
) -> Columns:
    lengths = [len(steps) for _, _, steps in kept]
    rows = np.array([step for _, _, steps in kept for step in steps], dtype=np.int64)
    return {
        "strategy": np.full(len(rows), strategy, dtype=object),
        "request": np.repeat(np.array([request for request, _, _ in kept], np.int64), lengths),
        "step": np.concatenate([np.arange(length, dtype=np.int64) for length in lengths]),
        "domain": np.repeat(np.array([domain for _, domain, _ in kept], dtype=object), lengths),
        "context": rows[:, 0],
        "drafted": rows[:, 1],
        "accepted": rows[:, 2],
        "ranks": np.full(len(rows), "", dtype=object),
    }
