"""Results of AIPerf: ``profile_export.jsonl``, a line a request, a stage a profiling phase.

Every metric names its unit. The length of an answer is ``output_sequence_length``:
``output_token_count`` lacks the tokens of reasoning. An answer ends ``request_latency`` after it
was sent: ``request_end_ns`` waits for the last line, and of a failed request it may be any number.
What set the load stands in ``profile_export_aiperf.json`` beside it.

Source: aiperf 0.13 (common/models/record_models.py, spec_decode_models.py, config/phases.py,
metrics/types); ``loadgen`` and ``model_names`` are of its earlier releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.live.address import public
from calibration.live.imports.choices import Mode
from calibration.live.imports.fields import MISSING, Fields, checked, documents
from calibration.live.imports.requests import Load, Request, ended, gaps, left_out, utc
from calibration.live.server.per_request import KEY, Speculated, speculated
from models.strict_yaml import InputError, one_line
from sim.histogram import LogHistogram
from sim.tables import Status

PER_S = {"ns": 1e9, "us": 1e6, "ms": 1e3, "sec": 1.0, "s": 1.0}
"""Units of time, by how many make a second."""

TTFT = ("time_to_first_token", "ttft")
PROMPT = ("usage_prompt_tokens", "input_sequence_length")
OUTPUT = ("usage_completion_tokens", "output_sequence_length")
CACHED = ("usage_prompt_cache_read_tokens",)

CANCELLED = 499
"""Its code for a request that it gave up itself."""

RATED = ("poisson", "gamma", "constant")


def is_result(document: Any) -> bool:
    """Whether a document is a line of one of these."""
    about = document.get("metadata") if isinstance(document, dict) else None
    return isinstance(about, dict) and "request_start_ns" in about


def is_summary(document: Any) -> bool:
    """Whether a document is the summary beside it."""
    return isinstance(document, dict) and ("input_config" in document)


def read(path: Path, lines: Sequence[Fields]) -> list[Load]:
    """The stages of an export.

    Raises
    ------
    InputError
        If every line is of the warm-up, or holds values that cannot be.
    """
    kept = [line for line in lines if not _warms_up(line.inside("metadata"))]
    if not kept:
        raise lines[0].error("metadata", f"all {len(lines)} requests are of the warm-up")
    phases: dict[str, list[Fields]] = {}
    for line in kept:
        about = line.inside("metadata")
        phases.setdefault(about.text("phase_name") or "profiling", []).append(line)
    summary = _summary(path)
    notes = left_out(len(lines) - len(kept), "of the warm-up")
    return [_stage(path, name, rows, summary, notes) for name, rows in phases.items()]


def _warms_up(about: Fields) -> bool:
    return "warmup" in (about.text("benchmark_phase"), about.text("phase_kind"))


def _summary(path: Path) -> Fields:
    """What set the load; empty where the file is not there."""
    beside = path.with_name(path.name.removesuffix(".jsonl") + "_aiperf.json")
    if not beside.is_file():
        return Fields({}, str(path))
    found = documents(beside)
    if not found:
        raise InputError(str(beside), None, "", "is empty")
    return Fields(found[0][1], str(beside))


def _stage(
    path: Path, name: str, lines: Sequence[Fields], summary: Fields, notes: tuple[str, ...]
) -> Load:
    # Whole nanoseconds since 1970 are more than a float holds.
    begin = min(line.inside("metadata").needed("request_start_ns") for line in lines)
    itl = LogHistogram()
    requests = tuple(_request(line, begin, itl) for line in lines)
    config = summary.inside("input_config")
    mode, point = _set_by(config, name)
    when = utc(begin / 1e9)
    said = set()
    if any(line.inside("metadata").count("turn_index") for line in lines):
        said.add("turns of a conversation count as requests of their own")
    if summary.data.get("is_complete") is False or summary.data.get("was_cancelled"):
        said.add("the run was cut short")
    endpoint = config.inside("endpoint")
    models = [item.text("name") for item in config.inside("models").each("items")]
    return Load(
        str(path),
        "aiperf",
        mode,
        point,
        requests,
        model=next(filter(None, models), "") or _first(endpoint, "model_names"),
        base_url=public(_first(endpoint, "urls") or endpoint.text("url")),
        api=_api(endpoint.text("type")),
        date=when[:10],
        started=when,
        itl=itl,
        notes=(*notes, *sorted(said)),
    )


def _request(line: Fields, begin_ns: int, itl: LogHistogram) -> Request:
    about, metrics, error = (line.inside(key) for key in ("metadata", "metrics", "error"))
    sent = (about.needed("request_start_ns") - begin_ns) / 1e9
    issued = about.data.get("credit_issued_ns")
    due = None if issued is None else (about.count("credit_issued_ns") - begin_ns) / 1e9
    prompt, output, cached = (_tokens(metrics, names) for names in (PROMPT, OUTPUT, CACHED))
    given_up = bool(about.data.get("was_cancelled")) or error.data.get("code") == CANCELLED
    if given_up or error.data:
        code = error.count("code") or None
        message = error.text("message", "type") or "cancelled"
        status = Status.UNFINISHED if given_up else ended(f"{error.text('type')} {message}", code)
        bad = Request(sent, prompt, output, due_s=due, status=status, cached_tokens=cached)
        return bad._replace(http_status=code, message=message)
    ttft = _seconds(metrics, *TTFT)
    chunks = metrics.inside("inter_chunk_latency")
    values = chunks.listed("value")
    gaps(itl, [checked(value, chunks, "value") / _per_s(chunks) for value in values])
    done = _seconds(metrics, "request_latency")
    return Request(
        sent,
        prompt,
        output,
        MISSING if ttft is None else sent + ttft,
        MISSING if done is None else sent + done,
        due_s=due,
        cached_tokens=cached,
        speculation=_speculated(line, prompt, output),
    )


def _first(of: Fields, key: str) -> str:
    """The first text of a list; empty without any."""
    return next((one_line(one) for one in of.listed(key) if isinstance(one, str) and one), "")


def _speculated(line: Fields, prompt: int, output: int) -> Speculated | None:
    """What the server told of its speculation; AIPerf keeps the histogram without its zeros."""
    said = line.inside("spec_decode_acceptance")
    counts = {int(j): said.inside("acceptance_histogram").count(j) for j in _histogram(said)}
    dense = [counts.get(j, 0) for j in range(max(counts, default=-1) + 1)]
    if not said.data:
        return None
    return speculated({KEY: {**said.data, "acceptance_histogram": dense}}, prompt, output)


def _histogram(said: Fields) -> list[str]:
    names = [str(name) for name in said.inside("acceptance_histogram").data]
    wrong = next((name for name in names if not name.isdecimal() or len(name) > 4), None)
    if wrong is not None:
        raise said.error("acceptance_histogram", f"must count accepted tokens, got '{wrong}'")
    return names


def _seconds(metrics: Fields, *names: str) -> float | None:
    metric = metrics.inside(*names)
    return metric.number("value") / _per_s(metric) if metric.data else None


def _per_s(metric: Fields) -> float:
    unit = metric.text("unit")
    if unit not in PER_S:
        raise metric.error("unit", f"must be one of {', '.join(PER_S)}, got '{unit}'")
    return PER_S[unit]


def _tokens(metrics: Fields, names: tuple[str, ...]) -> int:
    return metrics.inside(*names).count("value")


def _set_by(config: Fields, phase: str) -> tuple[Mode | None, dict[str, Any]]:
    """What set the load of a phase; nothing where it is not said."""
    phases = [one for one in config.each("phases") if one.text("kind", "name") != "warmup"]
    named = [one for one in phases if one.text("name") == phase]
    block = next(iter(named or phases), config.inside("loadgen"))
    rate, users = block.maybe("rate", "request_rate"), block.count("concurrency")
    kind = block.text("type")
    if kind == "fixed_schedule":
        return "trace", {"rate_scale": 1.0}
    if rate is not None and (not kind or kind in RATED):
        return "open_loop", {"rate_per_s": rate}
    if kind == "concurrency" or (users and not kind):
        # Its default of one user is not written.
        return "closed_loop", {"concurrency": users or 1}
    return None, {}


def _api(kind: str) -> str:
    return kind if kind in ("chat", "completions") else "unknown"
