"""Metrics: pure functions of a request table, simulated or recorded from a live endpoint.

Latencies are arrays of shape (requests,), NaN where a request has none; a rate or a ratio is a
float, None where it is undefined. Warm-up and the measured window come from ``steady``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.histogram import LogHistogram
from sim.scenario.service_level import PERCENTILES
from sim.tables import Columns, Status

Floats = npt.NDArray[np.float64]

QUANTILES = PERCENTILES


class Summary(NamedTuple):
    """Mean and quantiles of one quantity, in its own unit; all None when nothing was measured."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


NO_LATENCY = dict.fromkeys(Summary._fields)


class Window(NamedTuple):
    """The measured stretch of a run [s]."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """How long it is [s]."""
        return self.end_s - self.start_s


def select(columns: Columns, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Columns:
    """The rows of a table where ``rows``, of shape (requests,), is true, or those it lists.

    Columns of which all rows are wanted are not copied.
    """
    if rows.dtype == np.bool_ and rows.all():
        return dict(columns)
    return {name: column[rows] for name, column in columns.items()}


def joined(tables: Sequence[Columns]) -> Columns:
    """The rows of several tables, one after another; a single one is not copied."""
    if len(tables) == 1:
        return tables[0]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def finished(columns: Columns) -> npt.NDArray[np.bool_]:
    """Which requests finished, shape (requests,)."""
    return np.equal(columns["status"], Status.FINISHED)


def ttft_s(columns: Columns) -> Floats:
    """Time to first token: first token - arrival, queue included [s]."""
    return _finished_only(columns, columns["first_token_s"] - columns["arrival_s"])


def e2e_s(columns: Columns) -> Floats:
    """End-to-end time: finish - arrival [s]."""
    return _finished_only(columns, columns["finish_s"] - columns["arrival_s"])


def queue_s(columns: Columns) -> Floats:
    """Time in the queue: first schedule - arrival [s]."""
    return _finished_only(columns, columns["schedule_s"] - columns["arrival_s"])


def tpot_s(columns: Columns) -> Floats:
    """Time per output token after the first: (finish - first token)/(output - 1) [s].

    NaN for a request of one token.
    """
    later = columns["output_tokens"] - 1
    stretch = columns["finish_s"] - columns["first_token_s"]
    per_token = np.divide(stretch, later, out=np.full(len(later), np.nan), where=later > 0)
    return _finished_only(columns, per_token)


def _finished_only(columns: Columns, values: Floats) -> Floats:
    return np.where(finished(columns), values, np.nan)


def summary(values: Floats) -> Summary:
    """Mean, p50, p90, p95 and p99 of ``values``, ignoring NaN."""
    known = values[~np.isnan(values)]
    if not known.size:
        return Summary(None, None, None, None, None)
    quantiles = np.quantile(known, list(QUANTILES.values()))
    return Summary(float(known.mean()), *(float(q) for q in quantiles))


def histogram_summary(histogram: LogHistogram) -> Summary:
    """Mean (exact) and quantiles (within 0.25 %) of a histogram of gaps [s]."""
    return Summary(histogram.mean(), *(histogram.quantile(q) for q in QUANTILES.values()))


def tok_per_s_per_user(columns: Columns) -> float | None:
    """Mean over requests of the rate tokens stream in after the first one [token/s]."""
    tpot = tpot_s(columns)
    rates = 1.0 / tpot[tpot > 0]
    return float(rates.mean()) if rates.size else None


def tok_per_s(columns: Columns, window: Window) -> float | None:
    """Output tokens a second within the window [token/s].

    A request's tokens after the first are spread evenly between its first token and its finish,
    so requests that only overlap the window count with the part inside it.
    """
    done = finished(columns)
    first, finish = columns["first_token_s"][done], columns["finish_s"][done]
    if window.length_s <= 0 or not len(finish):
        return None
    overlap = np.clip(finish, window.start_s, window.end_s) - np.clip(
        first, window.start_s, window.end_s
    )
    stretch = finish - first
    inside = np.divide(overlap, stretch, out=np.zeros_like(stretch), where=stretch > 0)
    tokens = ((columns["output_tokens"][done] - 1) * inside).sum() + _within(first, window).sum()
    return float(tokens / window.length_s)


def req_per_s(columns: Columns, window: Window) -> float | None:
    """Requests finished a second within the window [1/s]."""
    if window.length_s <= 0:
        return None
    done = columns["finish_s"][finished(columns)]
    return float(_within(done, window).sum() / window.length_s)


def offered_req_per_s(columns: Columns, window: Window) -> float | None:
    """Requests that arrived a second within the window [1/s].

    All turns of a session count where it began, however late their answers let them be sent.
    ``columns`` is the whole table of a run.
    """
    if window.length_s <= 0:
        return None
    began = columns["arrival_s"][np.searchsorted(columns["id"], columns["session"])]
    return float(_within(began, window).sum() / window.length_s)


def _within(times: Floats, window: Window) -> npt.NDArray[np.bool_]:
    return (times > window.start_s) & (times <= window.end_s)


def tau(columns: Columns) -> float | None:
    """Mean tokens a step emits, step-weighted and before the cut at the last step."""
    steps = int(columns["n_steps"].sum())
    return (int(columns["accepted"].sum()) + steps) / steps if steps else None


def acceptance_rate(columns: Columns) -> float | None:
    """Accepted over drafted tokens; None when nothing was drafted."""
    drafted = int(columns["drafted"].sum())
    return int(columns["accepted"].sum()) / drafted if drafted else None


def prefix_hit_rate(columns: Columns) -> float | None:
    """Share of the prompt tokens of finished requests found in the prefix cache."""
    done = finished(columns)
    prompt = int(columns["prompt_tokens"][done].sum())
    return int(columns["cached_tokens"][done].sum()) / prompt if prompt else None


def preemptions(columns: Columns) -> int:
    """How often a request was moved back from running to waiting."""
    return int(columns["preemptions"].sum())


def resent(columns: Columns) -> int:
    """How often a request was sent again: attempts beyond the first of each."""
    return int(np.maximum(columns["attempts"] - 1, 0).sum())


def resent_e2e_s(columns: Columns) -> float | None:
    """Mean end-to-end time of requests sent more than once that finished [s]; None without any."""
    again = e2e_s(columns)[finished(columns) & (columns["attempts"] > 1)]
    return float(again.mean()) if again.size else None


def counts(columns: Columns) -> dict[str, int]:
    """Requests by status: finished, rejected, unfinished, timed_out, failed."""
    tally = np.bincount(columns["status"], minlength=len(Status))
    return {status.name.lower(): int(tally[status]) for status in Status}


def meets(columns: Columns, bounds: Mapping[str, float]) -> npt.NDArray[np.bool_]:
    """Which requests finished within every bound, shape (requests,).

    Parameters
    ----------
    columns : Columns
        The request table.
    bounds : mapping
        Upper bound [s] by metric: ``ttft_s``, ``tpot_s``, ``e2e_s`` or ``queue_s``. A request of
        one token has no TPOT and meets that bound.

    Raises
    ------
    KeyError
        For any other metric.
    """
    within = finished(columns)
    for name, bound in bounds.items():
        within &= ~(LATENCIES[name](columns) > bound)
    return within


def slo_attainment(columns: Columns, bounds: Mapping[str, float]) -> float | None:
    """Share of the requests meeting every bound; those that did not finish are misses."""
    met = meets(columns, bounds)
    return float(met.mean()) if met.size else None


LATENCIES = {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s, "queue_s": queue_s}
