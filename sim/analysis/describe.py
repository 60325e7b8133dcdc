"""A scenario in one or two lines: what runs where, and what is sent to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from sim.analysis.verdict import number, percent
from sim.scenario.overrides import canonical
from sim.scenario.shapes import DAY_S
from sim.scenario.workload import DEFAULT_REQUESTS
from sim.tables import text_of

Scenario = Mapping[str, Any]

MOST_VALUES = 12


def deployment(scenario: Scenario) -> str:
    """Model, precision, GPUs and engine of a resolved scenario."""
    model, hardware, engine = scenario["model"], scenario["hardware"], scenario["engine"]
    replicas, gpus = model.get("replicas"), hardware.get("gpus")
    split = [f"TP {model['tp']}"]
    if replicas and replicas > 1:
        split.append(f"{replicas} replicas")
    return (
        f"{_name(model['transformer'])} ({model['weights']} weights, {model['kv']} KV) on "
        f"{gpus or model['tp']} x {hardware['gpu']} ({', '.join(split)}), {engine['name']}"
    )


def _name(transformer: str) -> str:
    """A catalogue name as it is; of a config.json or its folder that folder's."""
    path = PurePath(transformer)
    folder = path.parent if path.suffix == ".json" else path
    return transformer if len(path.parts) == 1 else folder.name


def load(scenario: Scenario, trace: Mapping[str, Any] | None = None) -> str:
    """Arrivals, number of requests and lengths of a resolved scenario.

    Parameters
    ----------
    scenario : mapping
    trace : mapping, optional
        ``trace`` of the result document, where one was replayed.
    """
    workload = scenario["workload"]
    arrivals, streams = workload["arrivals"], workload["streams"]
    if arrivals["kind"] == "trace":
        return _replay(arrivals, trace or {}) + _streams_of(arrivals, streams)
    texts = [f"{_named(streams, at)}{_stream(stream)}" for at, stream in enumerate(streams)]
    sessions = [stream for stream in streams if stream.get("session")]
    mixed = "sessions" if len(sessions) == len(streams) else "req or sessions"
    what = mixed if sessions else "req"
    waits = "; answers delay later turns" if sessions else ""
    return f"{_arrivals(arrivals, what)}, {_amount(workload)}: {'; '.join(texts)}{waits}"


def _replay(arrivals: Mapping[str, Any], trace: Mapping[str, Any]) -> str:
    scales = (("rate_scale", "{} x the requests"), ("time_scale", "gaps x {}"))
    said = [trace["format"]] if trace else []
    said += [text.format(_plain(arrivals[k])) for k, text in scales if arrivals.get(k, 1) != 1]
    text = f"replay of {PurePath(arrivals['file']).name}"
    text += f" ({', '.join(said)})" if said else ""
    if not trace:
        return text
    used, span_s = trace["used"], trace["span_s"]
    text += f": {used:,} requests over {span(span_s)}"
    text += f", mean {number(used / span_s, 2)}/s" if span_s else ""
    text += f", ~{trace['mean_prompt_tokens']:.0f} in / ~{trace['mean_output_tokens']:.0f} out"
    for key, what in (("failures", "failure"), ("skipped", "bad line")):
        many = "s" * (trace[key] > 1)
        text += f", {trace[key]:,} {what}{many} left out" if trace[key] else ""
    return text


def _streams_of(arrivals: Mapping[str, Any], streams: Sequence[Mapping[str, Any]]) -> str:
    if arrivals.get("stream_from"):
        return f"; streams by {arrivals['stream_from']}"
    told = ", ".join(_named(streams, at).strip() for at in range(len(streams)))
    return f"; {told}" if told else ""


def _named(streams: Sequence[Mapping[str, Any]], at: int) -> str:
    """Share and name of a stream among others, the share first and last where it changes."""
    if len(streams) == 1:
        return ""
    shares = [stream["share"] for stream in streams]
    told = []
    for end in (0, -1) if any(isinstance(share, Mapping) for share in shares) else (0,):
        now = [share["at"][end][1] if isinstance(share, Mapping) else share for share in shares]
        told.append(percent(now[at] / sum(now)) if sum(now) else "-")
    return f"{' to '.join(told)} {streams[at]['name']} "


def span(seconds: float) -> str:
    """Seconds up to two minutes, minutes up to two hours, hours up to two days, then days."""
    sizes = (("days", DAY_S), ("h", 3600), ("min", 60))
    unit, size = next(((u, size) for u, size in sizes if seconds >= 2 * size), ("s", 1))
    return f"{_plain(float(number(seconds / size, 2)))} {unit}"


def fleet(scenario: Scenario) -> str:
    """Router, limits, patience and failures of a resolved scenario; empty where all are usual."""
    engine, client = scenario["engine"], scenario["workload"].get("client", {})
    parts = [f"router {engine['router']}"] if _routed(scenario) else []
    if engine.get("router_refresh_s"):
        parts.append(f"loads read every {number(engine['router_refresh_s'])} s")
    if engine.get("queue_limit") is not None:
        parts.append(f"more than {engine['queue_limit']} waiting in a replica refused")
    for key, what in (("first_token_timeout_s", "a first token"), ("timeout_s", "an answer")):
        if client.get(key):
            parts.append(f"clients wait {number(client[key])} s for {what}")
    if client.get("retries"):
        plural = "y" if client["retries"] == 1 else "ies"
        parts.append(f"{client['retries']} retr{plural} from {number(client['backoff_s'])} s on")
    parts += [_failure(failure) for failure in scenario.get("failures", ())]
    return "; ".join(parts)


def _routed(scenario: Scenario) -> bool:
    replicas = scenario["model"].get("replicas") or 1
    return replicas > 1 and "router" in scenario["engine"]


def _failure(failure: Mapping[str, Any]) -> str:
    restart, lost = failure.get("restart"), failure.get("in_flight") == "lose"
    text = f"replica {failure['replica']} dies at {number(failure['at_s'])} s"
    text += " with all it was serving" if lost else ""
    if not restart:
        return f"{text} and stays down"
    boot_s = restart.get("boot_s")
    boots = f"boots for {number(boot_s)} s and " if boot_s else ""
    return f"{text}, {boots}reloads at {number(restart['load_bytes_per_s'] / 1e9)} GB/s"


def _amount(workload: Mapping[str, Any]) -> str:
    """How many requests are sent, or for how long."""
    if workload.get("duration_s") is not None:
        return f"for {span(workload['duration_s'])}"
    return f"{workload.get('requests') or DEFAULT_REQUESTS} requests"


def _arrivals(arrivals: Mapping[str, Any], what: str) -> str:
    kind = arrivals["kind"]
    if kind == "closed_loop":
        think = arrivals.get("think_s")
        pause = f" thinking {_about(arrivals)}{_plain(think)} s" if think else ""
        return f"{arrivals['users']} concurrent users{pause}"
    return f"{_KINDS.get(kind, _steady)(arrivals, f'{what}/s')}"


def _steady(arrivals: Mapping[str, Any], unit: str) -> str:
    spread = f" (cv {number(arrivals['cv'])})" if "cv" in arrivals else ""
    return f"{arrivals['kind']} arrivals{spread} at {_plain(arrivals['rate_per_s'])} {unit}"


def _diurnal(arrivals: Mapping[str, Any], unit: str) -> str:
    spread = f" (cv {number(arrivals['cv'])})" if arrivals.get("cv", 1) != 1 else ""
    period = arrivals.get("period_s", DAY_S)
    day = "" if period == DAY_S else f", a day of {span(period)}"
    return (
        f"diurnal arrivals{spread}, mean {_plain(arrivals['mean_rate_per_s'])} {unit}, "
        f"peak {_plain(arrivals['peak_factor'])}x at {_clock(arrivals.get('peak_hour', 14))}, "
        f"from {_clock(arrivals.get('start_hour', 0))}{day}"
    )


def _bursts(arrivals: Mapping[str, Any], unit: str) -> str:
    share = arrivals.get("off_share")
    lull = f" at {percent(share)} of that rate" if share else ""
    return (
        f"bursts of ~{_plain(arrivals['on_s'])} s, lulls of ~{_plain(arrivals['off_s'])} s{lull}, "
        f"mean {_plain(arrivals['rate_per_s'])} {unit}"
    )


def _ramp(arrivals: Mapping[str, Any], unit: str) -> str:
    ends = f"{_plain(arrivals['from_per_s'])} to {_plain(arrivals['to_per_s'])} {unit}"
    return f"a ramp from {ends} over {span(arrivals['over_s'])}"


_KINDS = {"diurnal": _diurnal, "on_off": _bursts, "ramp": _ramp}


def _clock(hour: float) -> str:
    minutes = round(60 * hour) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _stream(stream: Mapping[str, Any]) -> str:
    if paired := stream.get("lengths"):
        lengths = f"lengths of {PurePath(paired['file']).name}"
    else:
        lengths = f"{_length(stream['prompt_tokens'])} in / {_length(stream['output_tokens'])} out"
    prefix = stream.get("prefix")
    shared = f", {prefix['groups']} prefixes of {prefix['tokens']}" if prefix else ""
    session = stream.get("session")
    return f"{lengths}{' new' if session else ''}{shared}{_session(session)}"


def _session(session: Mapping[str, Any] | None) -> str:
    if not session:
        return ""
    turns = f", sessions of {_length(session['turns'])} turns"
    return f"{turns}, thinking {_about(session)}{_plain(session['think_s'])} s"


def _about(pause: Mapping[str, Any]) -> str:
    return "~" if pause.get("think_cv") else ""


def _length(length: Mapping[str, Any]) -> str:
    if length["kind"] == "fixed":
        return _plain(length["value"])
    return f"~{_plain(length['mean'])}" if "mean" in length else str(length["kind"])


def _plain(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else number(value)


def point(values: Mapping[str, Any]) -> str:
    """The varied keys of one point, by as few of their last parts as tell them apart.

    ``rate_per_s=8 tp=4``, but ``strategies[1].k=3 strategies[2].k=5``.
    """
    keys = [canonical(key) for key in values]
    shown = zip(keys, values.values(), strict=True)
    return " ".join(f"{_short(key, keys)}={_value(value)}" for key, value in shown)


def run(strategy: str, values: Mapping[str, Any]) -> str:
    """A strategy, and the point it runs at where there are several."""
    return " at ".join(filter(None, (strategy, point(values))))


def _short(key: str, keys: Iterable[str]) -> str:
    others = [f".{other}" for other in keys if other != key]
    parts = key.split(".")
    tails = (".".join(parts[start:]) for start in range(len(parts) - 1, 0, -1))
    return next((t for t in tails if not any(o.endswith(f".{t}") for o in others)), key)


def varied(points: Iterable[Mapping[str, Any]]) -> str:
    """Every varied key with the values it takes; empty where nothing varies."""
    taken: dict[str, dict[str, None]] = {}
    for values in points:
        for key, value in values.items():
            taken.setdefault(canonical(key), {})[_value(value)] = None
    return "; ".join(f"{key} = {_listed(list(values))}" for key, values in taken.items())


def _listed(values: list[str]) -> str:
    if len(values) > MOST_VALUES:
        values = [*values[:3], "...", f"{values[-1]} ({len(values)} values)"]
    return ", ".join(values)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else text_of(value)


def duration(seconds: float) -> str:
    """A length of time in words: ``5 minutes``, ``1 hour``, ``90 seconds``."""
    sizes = {"hour": 3600, "minute": 60}
    unit = next((u for u, size in sizes.items() if seconds and seconds % size == 0), "second")
    count = seconds / sizes.get(unit, 1)
    return f"{count:g} {unit}{'s' * (count != 1)}"


def clock(seconds: float) -> str:
    """A moment of simulated time: ``0:05:00`` is five minutes after the start."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
