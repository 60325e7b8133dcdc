"""Results of GuideLLM: ``benchmarks.json``, a stage a benchmark.

Times are seconds since 1970. Of what it computes nothing is read but where a time is missing:
``time_per_output_token_ms`` has the first token in it. Its lists of requests include those of its
own warm-up and cool-down, which lie outside the measured stretch and are left out here. A sweep
mixes closed and open loop.

Source: guidellm 0.8.1 (schemas/base/request_stats.py, info.py, scheduler/strategies.py); older
reports keep times beside the tokens (0.3, benchmark/benchmark.py) and name lists otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from calibration.live.address import public
from calibration.live.imports.choices import Mode
from calibration.live.imports.fields import MISSING, Fields
from calibration.live.imports.requests import Load, Request, ended, left_out, utc
from calibration.live.server.per_request import speculated
from sim.tables import Status

FINISHED = ("successful", "completed")
FAILED = ("errored", "error", "errors")
UNFINISHED = ("incomplete", "cancelled")


class _Times(NamedTuple):
    """Names of one moment, newest first; the first is under ``info.timings``."""

    sent: tuple[str, ...] = ("request_start", "request_start_time", "start_time", "resolve_start")
    first: tuple[str, ...] = ("first_token_iteration", "first_iteration", "first_token_time")
    last: tuple[str, ...] = ("last_token_iteration", "last_iteration", "last_token_time")
    end: tuple[str, ...] = ("request_end", "request_end_time", "end_time", "resolve_end")


NAMES = _Times()


def is_result(document: Any) -> bool:
    """Whether a document is one of these."""
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list)


def read(report: Fields) -> list[Load]:
    """The stages of a report.

    Raises
    ------
    InputError
        If one keeps no row a request or only a sample of them, or values that cannot be.
    """
    found = [_stage(report, benchmark) for benchmark in report.each("benchmarks")]
    if not found:
        raise report.error("benchmarks", "is empty")
    return found


def _stage(report: Fields, benchmark: Fields) -> Load:
    requests = list(_requests(benchmark.inside("requests")))
    if not requests:
        needs = "write it as JSON and keep every request"
        raise benchmark.error("requests", f"is empty, and a summary cannot be imported: {needs}")
    _refuse_sample(benchmark, len(requests))
    inside = _measured(benchmark, requests)
    mode, point = _set_by(benchmark)
    backend = benchmark.inside("config").inside("backend")
    top = report.inside("config", "args").inside("backend")
    sent = min((request.sent_s for request in inside), default=math.nan)
    started = "" if math.isnan(sent) else utc(sent)
    return Load(
        report.path,
        "guidellm",
        mode,
        point,
        tuple(inside),
        model=backend.text("model") or top.text("model"),
        base_url=public(backend.text("target") or top.text("target")),
        api=_api(backend.text("request_format") or top.text("request_format")),
        date=started[:10],
        started=started,
        notes=left_out(len(requests) - len(inside), "of warm-up and cool-down"),
    )


def _requests(lists: Fields) -> Iterator[Request]:
    names = {Status.FINISHED: FINISHED, Status.FAILED: FAILED, Status.UNFINISHED: UNFINISHED}
    for status, keys in names.items():
        key = next((key for key in keys if lists.data.get(key) is not None), keys[0])
        for one in lists.each(key):
            yield _request(one, status)


def _request(one: Fields, status: Status) -> Request:
    info = one.inside("info", "scheduler_info")
    times = info.inside("timings")

    def moment(keys: tuple[str, ...]) -> float | None:
        return next((t for t in (times.maybe(*keys), one.maybe(*keys)) if t is not None), None)

    sent = moment(NAMES.sent)
    first, last = moment(NAMES.first), moment(NAMES.last) or moment(NAMES.end)
    said = one.maybe("time_to_first_token_ms")
    if first is None and sent is not None and said:
        first = sent + said / 1000
    prompt, output = (
        one.count(f"{name}_tokens") or one.inside(f"{part}_metrics").count("text_tokens")
        for name, part in (("prompt", "input"), ("output", "output"))
    )
    message = info.text("error") or one.text("error")
    done = status == Status.FINISHED
    return Request(
        MISSING if sent is None else sent,
        prompt,
        output,
        first if done and first is not None else MISSING,
        last if done and last is not None else MISSING,
        due_s=times.maybe("targeted_start"),
        status=ended(message) if status == Status.FAILED else status,
        cached_tokens=one.count("cached_tokens"),
        speculation=speculated(one.data.get("response_metrics"), prompt, output) if done else None,
        message=message,
    )


def _refuse_sample(benchmark: Fields, kept: int) -> None:
    """A sample of the requests is not the load that the server was under."""
    made = benchmark.inside("scheduler_metrics").inside("requests_made").maybe("total")
    total = benchmark.inside("request_totals").maybe("total") if made is None else made
    if total is not None and total > kept:
        message = f"keeps {kept} of {total:.0f} requests: run it without a sample size"
        raise benchmark.error("requests", message)


def _measured(benchmark: Fields, requests: list[Request]) -> list[Request]:
    """Those sent while it measured; all where it does not say when that was."""
    metrics = benchmark.inside("scheduler_metrics")
    begin, end = metrics.maybe("measure_start_time"), metrics.maybe("measure_end_time")
    lo, hi = -math.inf if begin is None else begin, math.inf if end is None else end
    return [one for one in requests if math.isnan(one.sent_s) or lo <= one.sent_s <= hi]


def _set_by(benchmark: Fields) -> tuple[Mode | None, dict[str, Any]]:
    """What set the load; nothing where it is not said, or was as much as the client could."""
    for block in ("config", "args", "scheduler"):
        strategy = benchmark.inside(block).inside("strategy")
        if strategy.data:
            break
    kind = strategy.text("type_", "kind")
    if kind == "synchronous":
        return "closed_loop", {"concurrency": 1}
    if kind in ("concurrent", "throughput"):
        users = strategy.count("streams", "max_concurrency")
        return "closed_loop", {"concurrency": users} if users else {}
    if kind in ("constant", "poisson", "async"):
        return "open_loop", {"rate_per_s": strategy.number("rate")}
    if kind == "trace":
        return "trace", {"rate_scale": 1 / (strategy.maybe("time_scale") or 1.0)}
    return None, {}


def _api(form: str) -> str:
    return "chat" if "chat" in form else "completions" if "completions" in form else "unknown"
