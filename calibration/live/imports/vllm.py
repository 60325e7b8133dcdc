"""Results of ``vllm bench serve --save-result --save-detailed``.

One JSON document a run (one a line with ``--append-result``), times in seconds. ``itls`` are gaps
between chunks: a speculative step gives one, whatever it emits. ``spec_decode_acceptance_rate`` is
a percentage, so only the counts beside it are read. ``queue_times`` is how long a request waited in
the client; with a rate, that wait counts. A failed request keeps an output of 0 tokens.

Source: vllm/benchmarks/serve.py and lib/endpoint_request_func.py, vLLM 0.32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calibration.live.imports.choices import Mode
from calibration.live.imports.fields import MISSING, Fields, checked, whole
from calibration.live.imports.requests import Load, Request, ended, gaps
from models.strict_yaml import show
from sim.histogram import LogHistogram

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
"""What only ``--save-detailed`` keeps."""

JUST_BELOW_S = 1e-3
"""By so much may a wait come out below zero: it is taken from two clocks (assumed)."""

SPREAD = 0.5
"""Share of a run over which requests are sent that were not all due at once: a timed trace."""

_API = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}


def is_result(document: Any) -> bool:
    """Whether a document is one of these."""
    return isinstance(document, dict) and {"backend", "duration", "completed"} <= document.keys()


def read(result: Fields) -> list[Load]:
    """The stage one result holds.

    Raises
    ------
    InputError
        If it holds no row a request, or values that cannot be.
    """
    lists = _lists(result)
    waits = _numbers(result, "queue_times", len(lists["ttfts"]))
    mode, point = _set_by(result, lists["start_times"])
    itl = LogHistogram()
    requests = [_request(result, lists, index, waits, mode, itl) for index in range(len(waits))]
    date = result.text("date")
    day = f"{date[:4]}-{date[4:6]}-{date[6:8]}" if date[:8].isdigit() else ""
    load = Load(
        result.path,
        "vllm bench serve",
        mode,
        point,
        tuple(requests),
        model=result.text("model_id"),
        api=_API.get(result.text("backend"), "unknown"),
        date=day,
        itl=itl,
        counters=_counters(result),
        notes=_notes(result, mode),
    )
    return [load]


def _lists(result: Fields) -> dict[str, Sequence[Any]]:
    for key in LISTS:
        if key not in result.data:
            needs = "`vllm bench serve --save-result --save-detailed` keeps a row a request"
            if key == "start_times" and "ttfts" in result.data:
                needs = "this vLLM did not keep when requests were sent, a newer one does"
            raise result.error(key, f"is missing, and a summary cannot be imported: {needs}")
    lists = {key: result.items(key) for key in LISTS}
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise result.error("ttfts", f"must be as long as the other lists, got {lengths}")
    return lists


def _numbers(result: Fields, key: str, n: int) -> list[float | None]:
    """A list that not every version keeps; None for each without it."""
    found = result.listed(key)
    if len(found) != n:
        return [None] * n
    return [_wait(value, result, f"{key}[{index}]") for index, value in enumerate(found)]


def _wait(value: Any, result: Fields, key: str) -> float:
    # A wait of nothing can come out just below zero.
    nothing = isinstance(value, float) and -JUST_BELOW_S < value < 0
    return checked(0.0 if nothing else value, result, key)


def _request(
    result: Fields,
    lists: dict[str, Sequence[Any]],
    index: int,
    waits: Sequence[float | None],
    mode: Mode,
    itl: LogHistogram,
) -> Request:
    def number(key: str) -> float:
        return checked(lists[key][index], result, f"{key}[{index}]")

    sent, wait = number("start_times"), waits[index]
    due = None if mode == "closed_loop" or wait is None else sent - wait
    prompt, output = (
        whole(lists[key][index], result, f"{key}[{index}]") for key in ("input_lens", "output_lens")
    )
    error = str(lists["errors"][index] or "")
    if error or not output:
        message = error or "answered without a token"
        return Request(sent, prompt, output, due_s=due, status=ended(message), message=message)
    chunks = lists["itls"][index]
    if not isinstance(chunks, list):
        raise result.error(f"itls[{index}]", f"must be a list, got {show(chunks)}")
    between = [checked(gap, result, f"itls[{index}]") for gap in chunks]
    gaps(itl, between)
    first = sent + number("ttfts")
    return Request(sent, prompt, output, first, first + math.fsum(between), due)


def _set_by(result: Fields, sent: Sequence[Any]) -> tuple[Mode, dict[str, Any]]:
    """What set the load. Everything at once is as many users as there are requests."""
    rate, users = result.data.get("request_rate"), result.data.get("max_concurrency")
    if result.data.get("ramp_up_strategy"):
        return "trace", {"rate_scale": 1.0}
    if rate not in (None, "inf", math.inf):
        return "open_loop", {"rate_per_s": checked(rate, result, "request_rate")}
    if users is not None:
        return "closed_loop", {"concurrency": whole(users, result, "max_concurrency")}
    times = [checked(value, result, "start_times") for value in sent] or [MISSING]
    if max(times) - min(times) > SPREAD * result.number("duration"):
        return "trace", {"rate_scale": 1.0}
    return "closed_loop", {"concurrency": len(times)}


def _counters(result: Fields) -> dict[str, float]:
    names = {
        "spec_drafts": "spec_decode_num_drafts",
        "spec_drafted": "spec_decode_draft_tokens",
        "spec_accepted": "spec_decode_accepted_tokens",
    }
    found = {name: result.maybe(key) for name, key in names.items()}
    counters = {name: value for name, value in found.items() if value is not None}
    rates = result.listed("spec_decode_per_position_acceptance_rates")
    for place, share in enumerate(rates if "spec_drafts" in counters else []):
        part = checked(share, result, f"spec_decode_per_position_acceptance_rates[{place}]")
        counters[f"spec_accepted_at_{place}"] = float(round(part * counters["spec_drafts"]))
    return counters


def _notes(result: Fields, mode: Mode) -> tuple[str, ...]:
    notes = []
    users = result.data.get("max_concurrency")
    if mode == "open_loop" and users is not None:
        notes.append(f"at most {users} requests were in flight at once")
    if mode == "open_loop" and not result.data.get("queue_times"):
        notes.append("does not say how long requests waited in the client")
    burstiness = result.maybe("burstiness")
    if mode == "open_loop" and burstiness not in (None, 1.0):
        notes.append(f"arrivals are no Poisson process: burstiness {burstiness:g}")
    return tuple(notes)


__all__ = ["LISTS", "is_result", "read"]
