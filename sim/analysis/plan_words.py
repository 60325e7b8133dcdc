"""A capacity plan in sentences: what to buy, how sure that is, and what to measure next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.analysis import describe, slo_words
from sim.analysis.report import BASIS
from sim.analysis.verdict import number, percent

Document = Mapping[str, Any]
Plan = Mapping[str, Any]

TOLD_OTHERWISE = ("hardware.gpu", "hardware.gpus", "model.tp", "model.replicas")
PRECISIONS = {"model.weights": "weights", "model.kv": "KV"}
FEW_ALONE = 100
"""Requests of a window whose p95 hangs on the five slowest: with fewer a capacity is of chance."""
LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "queue_s": "queueing"}


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
        f"req/s, peak {asked['peak_factor']:g} x at {clock(3600 * asked['peak_hour'])}: "
        f"{number(asked['peak_req_s'])} req/s"
        + (f"; the demand itself is uncertain by {percent(unsure)}" if unsure else "")
    )


def clock(seconds: float) -> str:
    """Time of day, from midnight on: ``14:05``."""
    minutes = round(seconds / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def setup(document: Document) -> str:
    """Model, engine and SLO."""
    bounds = slo_words.slo({"slo": document.get("slo")})
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


def whole_percent(share: float) -> int:
    """Whole percent; short of all it never reads 100."""
    return 100 if share >= 1 else min(round(100 * share), 99)


def sureness(document: Document, plan: Plan) -> str:
    """How likely these GPUs are enough, and how many are for the confidence asked."""
    sure, asked, more = (
        plan.get("confidence"),
        document.get("confidence"),
        plan.get("gpus_for_confidence"),
    )
    if sure is None:
        return ""
    text = f"{whole_percent(sure)} % sure that {plan['gpus']} are enough"
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
        of = _of_basis(document, basis)
        texts.append(f"The band holds {level} of outcomes; it is {basis}{of}: {BASIS[basis]}.")
    if plan is not None and plan.get("headroom") is not None:
        day = document.get("check") or {}
        killed = document.get("killed", day.get("killed_at_s") is not None)
        left = " with one replica killed" if killed else ""
        texts.append(
            f"The fleet holds a peak of {number(plan['fleet_peak_req_s'])} req/s{left}, "
            f"{headroom(plan)} than expected; first to give is "
            f"{latencies(plan.get('limited_by'))}."
        )
    alone = ((plan or {}).get("replica_capacity_req_s") or {}).get("value")
    if alone is not None and alone * document["window_s"] < FEW_ALONE:
        seen = f"{alone * document['window_s']:.0f}"
        window = describe.duration(document["window_s"])
        texts.append(
            f"One replica alone sees few requests in {window} ({seen}): its capacity is of chance, "
            "and may be far from the fleet's share."
        )
    return texts


def _of_basis(document: Document, basis: str) -> str:
    """The inputs that give a band its basis: `` by acceptance``; demand is no part of it."""
    rows = document.get("tornado") or ()
    names = [row["input"] for row in rows if row["basis"] == basis and row["input"] != "demand"]
    return f" by {', '.join(names)}" if names else ""


def headroom(plan: Plan) -> str:
    """How much more or less than the peak a fleet holds."""
    share = plan["headroom"]
    return f"{percent(abs(share))} {'more' if share >= 0 else 'less'}"
