"""A capacity plan in sentences: what to buy, how sure that is, and what to measure next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis import describe
from sim.analysis.report import BASIS
from sim.analysis.verdict import number, percent

Document = Mapping[str, Any]
Plan = Mapping[str, Any]

MEASURE_FIRST = 3
"""Uncertainties named as worth measuring."""
LITTLE_GPUS = 0.05
"""An input that moves the answer by less is not worth measuring."""
TOLD_OTHERWISE = ("hardware.gpu", "hardware.gpus", "model.tp", "model.replicas")
PRECISIONS = {"model.weights": "weights", "model.kv": "KV"}
LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "queue_s": "queueing"}
UNSURE = ("published", "extrapolated", "assumed")


def chosen(document: Document) -> Plan | None:
    """The plan to buy; None where nothing that runs meets the SLO."""
    index = document.get("chosen")
    return None if index is None else document["plans"][index]


def money(value: float | None) -> str:
    """US dollars with three digits, thousands with commas; "-" without a price."""
    return f"{value:,.0f}" if value is not None and value >= 1000 else number(value)


def range_text(band: Mapping[str, Any] | None) -> str:
    """Ends of a band, ``?`` for one that is not known; empty without a band."""
    if not band or (band.get("lo") is None and band.get("hi") is None):
        return ""
    return "-".join("?" if band[end] is None else _short(band[end]) for end in ("lo", "hi"))


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else number(value)


def fleet(plan: Plan) -> str:
    """Replicas and how each is split: ``2 replicas of TP 4``."""
    return f"{plan['replicas']} replica{'s' * (plan['replicas'] != 1)} of TP {plan['tp']}"


def precisions(document: Document, plan: Plan) -> list[str]:
    """Types of weights and KV: ``fp8 weights``."""
    found = {**_model(document), **(plan.get("settings") or {})}
    return [f"{found[key]} {what}" for key, what in PRECISIONS.items() if found.get(key)]


def _model(document: Document) -> dict[str, Any]:
    return {f"model.{key}": value for key, value in document["model"].items()}


def settings(document: Document, plan: Plan) -> list[str]:
    """What the search settled on, apart from GPUs and how they are split."""
    told = precisions(document, plan)
    for key, value in (plan.get("settings") or {}).items():
        name = key.rpartition(".")[2]
        named = f"{name.upper()}={value}" in plan["strategy"]
        if key not in PRECISIONS and key not in TOLD_OTHERWISE and not named:
            told.append(f"{name} {str(value).lower() if isinstance(value, bool) else value}")
    return told


def common(document: Document) -> list[str]:
    """Settings that all plans share."""
    each = [settings(document, plan) for plan in document["plans"]]
    return [text for text in each[0] if all(text in other for other in each)] if each else []


def latencies(text: str | None) -> str:
    """Names of latencies as people write them: ``TPOT p95`` of ``tpot_s p95``."""
    if text == "saturated":
        return "saturation"
    return re.sub(r"\w+_s\b", lambda found: LATENCIES.get(found[0], found[0]), text or "-")


def demand(document: Document) -> str:
    """The traffic planned for."""
    asked = document["demand"]
    unsure = asked.get("uncertainty")
    return (
        f"{asked['requests_per_day']:,.0f} requests a day, mean {number(asked['mean_req_s'])} "
        f"req/s, peak {asked['peak_factor']:g} x at {_clock(3600 * asked['peak_hour'])}: "
        f"{number(asked['peak_req_s'])} req/s"
        + (f"; the demand itself is uncertain by {percent(unsure)}" if unsure else "")
    )


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def setup(document: Document) -> str:
    """Model, engine and SLO."""
    bounds = describe.slo({"slo": document.get("slo")})
    text = f"{document['model'].get('transformer', 'model')}, {document['engine']}"
    window = describe.duration(document["window_s"])
    return f"{text}; {bounds}, in the worst {window} of the peak" if bounds else text


def answer(document: Document) -> str:
    """What to buy, what it costs and how sure it is that this is enough."""
    plan = chosen(document)
    if plan is None:
        return _nothing(document)
    how = ", ".join([plan["strategy"], fleet(plan), *precisions(document, plan)])
    cost = _cost(plan)
    sure = sureness(document, plan)
    return (
        f"Buy {plan['gpus']} {plan['gpu']}{_band(document, plan)}: {how}"
        f"{': ' if cost else ''}{cost}{'; ' if sure else ''}{sure}."
    )


def _nothing(document: Document) -> str:
    asked = f"{document['demand']['requests_per_day']:,.0f} requests a day within the SLO"
    if not document["plans"]:
        return f"Nothing that was tried carries {asked}: see why below."
    plan = document["plans"][0]
    return (
        f"Nothing that {document['engine']} runs carries {asked}; {plan['strategy']}, which it "
        f"does not run, would with {plan['gpus']} {plan['gpu']}."
    )


def _band(document: Document, plan: Plan) -> str:
    band = plan.get("gpus_band") or {}
    if band.get("lo") is None:
        return ""
    level = percent(band.get("level") or document["level"])
    if band["hi"] is None:
        return f" ({level}: {band['lo']} or more, with no upper end among those tried)"
    return f" ({level}: {range_text(band)})"


def _cost(plan: Plan) -> str:
    if plan.get("usd_per_hour") is None:
        return ""
    tokens = plan.get("usd_per_million_tokens")
    each = f", {money(tokens)} USD per million output tokens" if tokens is not None else ""
    return f"{money(plan['usd_per_hour'])} USD/h{each}"


def sureness(document: Document, plan: Plan) -> str:
    """How likely these GPUs are enough, and how many are for the confidence asked."""
    sure, asked, more = (
        plan.get("confidence"),
        document.get("confidence"),
        plan.get("gpus_for_confidence"),
    )
    if sure is None:
        return ""
    text = f"{percent(sure)} sure that {plan['gpus']} are enough"
    if asked is None:
        return text
    if sure >= asked:
        return f"{text}, where {percent(asked)} was asked"
    if more is None:
        return f"{text}; no fleet that was tried makes it {percent(asked)}"
    return f"{text}; {more} for {percent(asked)}"


def notes(document: Document) -> list[str]:
    """What to keep in mind about the answer: what its band rests on."""
    plan = chosen(document)
    band = (plan or {}).get("gpus_band") or {}
    texts = []
    if band.get("basis") in BASIS:
        level = percent(band.get("level") or document["level"])
        basis = band["basis"]
        texts.append(f"The band holds {level} of outcomes; it is {basis}: {BASIS[basis]}.")
    if plan is not None and plan.get("headroom") is not None:
        killed = (document.get("check") or {}).get("killed_at_s") is not None
        left = " with one replica killed" if killed else ""
        texts.append(
            f"The fleet holds a peak of {number(plan['fleet_peak_req_s'])} req/s{left}, "
            f"{headroom(plan)} than expected; first to give is "
            f"{latencies(plan.get('limited_by'))}."
        )
    return texts


def headroom(plan: Plan) -> str:
    """How much more or less than the peak a fleet holds."""
    share = plan["headroom"]
    return f"{percent(abs(share))} {'more' if share >= 0 else 'less'}"


def check(document: Document) -> str | None:
    """The simulated day of the plan chosen; None without one."""
    day = document.get("check")
    if not day:
        return None
    text = f"{day['requests']:,} requests over {describe.span(day['duration_s'])} were simulated"
    if day.get("killed_at_s") is not None:
        back = day.get("back_at_s")
        down = f"back {describe.span(back - day['killed_at_s'])} later" if back else "never back"
        text += f", a replica killed at {_clock(day['killed_at_s'])} and {down}"
    worst = day.get("worst") or {}
    within = f"; {percent(day['attainment'])} of requests within the bounds" * (
        day.get("attainment") is not None
    )
    return (
        f"{text}. The SLO is {'met' if day['met'] else 'MISSED'}{_worst(worst, document['window_s'])}{within}; "
        f"{day.get('preemptions') or 0:,} preemptions."
    )


def _worst(worst: Mapping[str, Any], window_s: float) -> str:
    told = [
        f"{name} {number(1e3 * worst[f'{key}_p95'])} ms"
        for key, name in LATENCIES.items()
        if worst.get(f"{key}_p95") is not None
    ]
    if not told:
        return ""
    start = worst.get("start_s")
    since = f" from {_clock(start)}" if start is not None else ""
    return f": p95 in the worst {describe.duration(window_s)}{since} {', '.join(told)}"


def percentiles(document: Document) -> list[tuple[str, list[str]]]:
    """Latencies of the whole day [ms]: mean, p50, p95, p99."""
    day = document.get("check") or {}
    return [
        (name, [number(None if v is None else 1e3 * v) for v in map(day[key].get, STATISTICS)])
        for key, name in LATENCIES.items()
        if day.get(key)
    ]


STATISTICS = ("mean", "p50", "p95", "p99")


def measure_next(document: Document) -> list[str]:
    """The inputs whose uncertainty moves the answer most, in words."""
    rows = [
        row
        for row in document.get("tornado") or ()
        if abs(row["gpus_hi"] - row["gpus_lo"]) >= LITTLE_GPUS
    ]
    return [moved(row) for row in rows[:MEASURE_FIRST]]


def moved(row: Mapping[str, Any]) -> str:
    """What one uncertain input does to the number of GPUs."""
    needed = sorted((row["gpus_lo"], row["gpus_hi"]))
    return (
        f"{row['what']} ({row['basis']}): alone it moves the answer from {needed[0]:.1f} to "
        f"{needed[1]:.1f} GPUs, between {factor(row['lo'])} and {factor(row['hi'])} of what is "
        "expected"
    )


def factor(relative: float) -> str:
    """A value relative to its prediction."""
    return percent(relative) if relative < 10 else f"{relative:.0f} x"


def rests_on(document: Document) -> str:
    """How many inputs are measured, published or assumed."""
    bases = Counter(row["basis"] for row in document.get("inputs") or ())
    total = sum(bases.values())
    told = ", ".join(f"{count} {basis}" for basis, count in bases.most_common())
    return f"{total} input{'s' * (total != 1)}: {told}"


def assumed(document: Document) -> Sequence[Mapping[str, Any]]:
    """The inputs nothing was measured for."""
    return [row for row in document.get("inputs") or () if row["basis"] == "assumed"]


def counts(document: Document) -> str:
    """What the search looked at."""
    found = document["counts"]
    return (
        f"{found['candidates']:,} candidates: {found['estimated_out']:,} ruled out by the "
        f"estimate, {found['searched']:,} searched with {found['simulations']:,} simulations of "
        f"{found['requests']:,} requests in all"
    )
