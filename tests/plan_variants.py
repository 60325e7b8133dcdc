"""Capacity plans of every kind: without prices, without an upper end, with nothing to buy."""

from __future__ import annotations

import copy

from plan_document import Json, document


def without_prices() -> Json:
    """No GPU has a price."""
    made = document()
    for plan in made["plans"]:
        for key in ("usd_per_hour", "usd_per_day", "usd_per_million_tokens"):
            plan[key] = None
        plan["usd_per_million_band"] = None
    for row in made["search"]:
        row["usd_per_day"] = None
    return made


def with_power() -> Json:
    """Electricity is priced too."""
    made = document()
    for plan in made["plans"]:
        plan["power"] = {"kw": 0.91 * plan["gpus"], "usd_per_day": 3.3 * plan["gpus"]}
    return made


def no_upper_end() -> Json:
    """The fleet chosen may need any number of GPUs."""
    made = document()
    made["plans"][0]["gpus_band"]["hi"] = made["plans"][0]["usd_per_million_band"]["hi"] = None
    made["plans"][0]["gpus_for_confidence"] = made["tornado"][0]["gpus_lo"] = None
    return made


def nothing_runs() -> Json:
    """Only a hypothetical strategy meets the SLO."""
    made = document(chosen=None, check=None, tornado=[], confidence=None)
    made["plans"] = made["plans"][-1:]
    return made


def nothing_at_all() -> Json:
    """No candidate meets the SLO."""
    return document(chosen=None, check=None, tornado=[], plans=[], search=[], inputs=[])


def bare() -> Json:
    """No check, no tornado, no confidence, no failure, nothing known of the worst window."""
    made = document(
        check=None, tornado=[], confidence=None, inputs=[], impossible=[], question=None
    )
    made["demand"]["uncertainty"] = None
    for plan in made["plans"]:
        plan |= {"worst": None, "headroom": None, "confidence": None, "gpus_for_confidence": None}
        plan |= {"fleet_peak_req_s": None, "gpus_band": None, "settings": {}}
        plan |= {"usd_per_million_band": None, "limited_by": None, "launch": ""}
        plan["replica_capacity_req_s"] = {"value": 9.0, "lo": None, "hi": None}
    return made


def missed() -> Json:
    """The full day shows windows over the bound, and some without a request."""
    made = document()
    made["check"] |= {"met": False, "back_at_s": None}
    for each in made["check"]["series"][840:860]:
        each["tpot_s_p95"] = 0.0291
    made["check"]["worst"] = dict(made["check"]["series"][850])
    for each in made["check"]["series"][200:230]:
        each["ttft_s_p95"] = each["tpot_s_p95"] = None
    return made


def many() -> Json:
    """Each strategy on six GPUs."""
    made = document()
    plans = []
    for plan in made["plans"]:
        for index, gpu in enumerate(("h100_sxm", "h200_sxm", "b200_sxm", "l40s", "a100", "l4")):
            other = copy.deepcopy(plan) | {"gpu": gpu}
            other["usd_per_day"] *= 1 + index / 7
            other["pareto"] = plan["pareto"] and not index
            plans.append(other)
    made["plans"] = plans
    return made


VARIANTS = {
    made.__name__: made
    for made in (
        *(document, without_prices, with_power, no_upper_end, nothing_runs),
        *(nothing_at_all, bare, missed, many),
    )
}
