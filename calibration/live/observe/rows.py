"""What became of each request, as a line of the journal and as a row of the request table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.live import rows as shared
from calibration.live.observe.load import Sent
from calibration.live.observe.schedule import Planned
from calibration.live.server.per_request import Speculated, speculated
from sim.histogram import LogHistogram
from sim.tables import Columns, Status

NO_USAGE = "sent no usage: tokens are not counted"
STOPPED = "was in flight when the observation was stopped"


class Row(NamedTuple):
    """One request; times since the start of its stage [s], None where there is none.

    Attributes
    ----------
    id : int
        Within its stage, from 0.
    domain : str
    status : int
        A ``Status``.
    arrival_s, first_token_s, finish_s : float or None
    prompt_tokens, cached_tokens, output_tokens : int
        As the server counts; of a request that failed the output asked for.
    attempts : int
    late_s : float
        How much later than due it was sent.
    gaps : tuple of float
        Between its chunks with tokens.
    http_status : int or None
    message : str
        What went wrong.
    metrics : mapping or None
        What the server said of this request, unread.
    """

    id: int
    domain: str
    status: int
    arrival_s: float
    first_token_s: float | None = None
    finish_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    attempts: int = 1
    late_s: float = 0.0
    gaps: tuple[float, ...] = ()
    http_status: int | None = None
    message: str = ""
    metrics: Mapping[str, Any] | None = None


def row_of(sent: Sent, zero_s: float, planned: Planned, gone: str = "") -> Row:
    """The row of a request; what a server that is ``gone`` left in flight has failed."""
    outcome, tokens, domain = sent.outcome, sent.ready.max_tokens, sent.ready.prompt.domain
    if outcome is None:
        status = Status.FAILED if gone else Status.UNFINISHED
        return Row(
            *(sent.number, domain, int(status), _rounded(sent.arrival_s)),
            output_tokens=tokens,
            message=gone or STOPPED,
        )
    status, usage, message = outcome.status, outcome.usage, outcome.message
    if status == Status.FINISHED and usage is None:
        status, message = Status.FAILED, NO_USAGE
    done = status == Status.FINISHED and usage is not None
    first_s, end_s = outcome.first_s, _rounded(outcome.end_s - zero_s)
    if first_s is None and done and usage is not None and usage.output_tokens == 1:
        # The one token was the end of the text: it came with the reason.
        first_s = outcome.end_s
    late_s = outcome.sent_s - zero_s - sent.arrival_s if planned.due_s is not None else 0.0
    return Row(
        sent.number,
        domain,
        int(status),
        _rounded(sent.arrival_s),
        None if first_s is None else _rounded(first_s - zero_s),
        end_s if done else None,
        usage.prompt_tokens if usage is not None and done else 0,
        usage.cached_tokens if usage is not None and done else 0,
        usage.output_tokens if usage is not None and done else tokens,
        outcome.attempts,
        _rounded(max(late_s, 0.0)),
        tuple(map(_rounded, outcome.gaps)),
        outcome.http_status,
        message,
        outcome.metrics,
    )


def _rounded(time_s: float) -> float:
    """To a microsecond: a stream over a network tells no more."""
    return round(time_s, 6)


def speculation(row: Row) -> Speculated | None:
    """What the server told of the speculation of a request that finished."""
    if row.status != Status.FINISHED:
        return None
    return speculated(row.metrics, row.prompt_tokens, row.output_tokens)


def columns(rows: Sequence[Row], told: Sequence[Speculated | None]) -> Columns:
    """The request table of a stage, every column of shape (rows,).

    Parameters
    ----------
    rows : sequence of Row
    told : sequence of Speculated or None
        Of each row.
    """
    known: Columns = {
        "id": np.array([row.id for row in rows], dtype=np.int64),
        "domain": np.array([row.domain for row in rows], dtype=object),
        "status": np.array([row.status for row in rows], dtype=np.int8),
        **shared.taken(rows, ("arrival_s", "first_token_s", "finish_s"), np.float64),
        **shared.taken(rows, (*shared.COUNTS, "attempts"), np.int64),
    }
    return shared.columns(known, told)


def histogram(rows: Sequence[Row]) -> LogHistogram:
    """Gaps between chunks of the requests that finished."""
    gaps = LogHistogram()
    for row in rows:
        if row.status == Status.FINISHED:
            for gap_s in row.gaps:
                gaps.add(gap_s)
    return gaps


def itl(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Count, mean and quantiles of the gaps between chunks [s]."""
    return shared.itl(histogram(rows))
