"""What a row means, in words: pure functions of the rows ``speccast run --json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.refusals import LOAD

Row = Mapping[str, Any]

WATCH = (
    "tau on a live vLLM = 1 + vllm:spec_decode_num_accepted_tokens_total"
    " / vllm:spec_decode_num_drafts_total"
)


SHED = 0.01
"""Share of the requests a deployment may leave unserved and still carry its load."""

FEW = 100
"""Measured requests below which percentiles are said to rest on few."""


def verdict(row: Row) -> str:
    """One sentence for one row.

    The band of the speedup decides: all above 1, all below 1, or undecided. A saturated row
    promises nothing. Notes follow: the engine cannot run it, the SLO, preemptions.
    """
    return "; ".join([_judgement(row), *_notes(row)])


def _judgement(row: Row) -> str:
    if row["saturated"]:
        return (
            "saturated: no latency promised; "
            f"offered {number(row.get('offered_req_per_s'))} req/s, "
            f"served {number(row.get('served_req_per_s', row['req_per_s']))}"
        )
    if not row["finished"]:
        return "served nothing"
    if not carries(row):
        return f"does not carry this load: {percent(shed(row))} of the requests get nothing"
    if row.get("baseline"):
        return "baseline"
    speedup = row["speedup"]
    if not compared(row):
        return "not compared with plain decoding"
    if speedup is None:
        return "keeps up where plain decoding does not"
    band = row["band"].get("speedup")
    if band is None:
        return f"{gain(row, speedup)}, no band computed"
    if band["lo"] is None:
        return "undecided: at the slow end of its band it saturates"
    if band["lo"] > 1:
        return f"worth it: {gain(row, speedup)}"
    if band["hi"] < 1:
        return f"do not use at this load: {gain(row, speedup)}"
    return "undecided: the band straddles 1; measure tau on your traffic"


def compared(row: Row) -> bool:
    """Whether plain decoding ran beside it, or is it."""
    return row.get("baseline", False) is not None


def shed(row: Row) -> float:
    """Share of the requests that ended unserved for want of room, time or a replica."""
    reasons = row.get("rejected_because") or {}
    lost = row["timed_out"] + row["failed"] + sum(reasons.get(reason, 0) for reason in LOAD)
    total = lost + row["finished"] + row["unfinished"]
    return lost / total if total else 0.0


def carries(row: Row) -> bool:
    """Whether a deployment carries its load: nearly all is served, or as much as the SLO asks."""
    slo = row.get("slo") or {}
    enough = shed(row) <= SHED or bool(slo.get("met") and slo.get("for_all"))
    return bool(row["finished"]) and not row["saturated"] and enough


def gain(row: Row, speedup: float) -> str:
    """A speedup in words: time per token at an equal rate, tokens a second at equal users."""
    if row.get("offered_req_per_s") is None:
        more, less = f"{percent(speedup - 1)} more", f"{percent(1 - speedup)} fewer"
        return f"{more if speedup >= 1 else less} tokens a second at equal users"
    less, more = f"{percent(1 - 1 / speedup)} less", f"{percent(1 / speedup - 1)} more"
    return f"{less if speedup >= 1 else more} time per token"


def _notes(row: Row) -> list[str]:
    notes = []
    if row.get("hypothetical"):
        notes.append("hypothetical (this engine cannot run it)")
    slo = row.get("slo")
    if slo and not row["saturated"]:
        notes.append(_slo(slo))
    if row.get("short_run") and not row["saturated"]:
        notes.append("short run: no steady state yet; send more requests")
    elif row.get("measured", FEW) < FEW:
        notes.append(f"only {row['measured']} request{'s' * (row['measured'] != 1)} measured")
    if row.get("kv_tokens", 0) < row.get("max_model_len", 0):
        notes.append(
            f"KV holds {row['kv_tokens']} tokens, under max_model_len {row['max_model_len']}: "
            "engines refuse to start"
        )
    if row["preemptions"]:
        notes.append(f"KV memory full: {row['preemptions']} preemptions")
    return notes + _gone(row)


def _gone(row: Row) -> list[str]:
    """Requests that were refused, given up, lost, or sent again."""
    notes = []
    if row["rejected"]:
        reasons = row.get("rejected_because") or {}
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        plural = "s" * (row["rejected"] != 1)
        notes.append(f"{row['rejected']} request{plural} rejected" + (f": {why}" if why else ""))
    if row["timed_out"]:
        notes.append(f"{row['timed_out']} request{'s' * (row['timed_out'] != 1)} timed out")
    if row["failed"]:
        notes.append(f"{row['failed']} failed: lost with a replica, or none was left")
    if row["resent"]:
        mean_s = row.get("resent_e2e_s")
        slow = f", E2E {number(1e3 * mean_s)} ms on average" if mean_s else ""
        times = "once" if row["resent"] == 1 else f"{row['resent']} times"
        notes.append(f"sent again {times}{slow}")
    return notes


def _slo(slo: Mapping[str, Any]) -> str:
    within = f"{percent(slo['attainment'])} of requests within it"
    if slo["met"]:
        return f"SLO met: {within}"
    return f"SLO missed ({', '.join(slo['missed'])}): {within}"


def switch_off(row: Row) -> str | None:
    """Below which tau the strategy loses to plain decoding; None where that is unknown."""
    limit = row.get("break_even_tau")
    if limit is None or row.get("baseline"):
        return None
    most = row.get("tau_max")
    if most is not None and limit > most:
        return f"cannot pay off at this batch: needs tau {number(limit)}, {most} at most"
    if row["tau"] is not None and row["tau"] < limit:
        return f"would need tau {number(limit)}, has {number(row['tau'])}"
    return f"switch off below tau {number(limit)}"


def best(rows: Sequence[Row]) -> Row | None:
    """The row to choose among the strategies of one point; None where none carries the load.

    The engine must be able to run it. Rows that meet the SLO go before rows that miss it; then
    the largest speedup wins whose band is entirely above 1, else the baseline; without a
    baseline the shortest time per token.
    """
    usable = [row for row in rows if carries(row) and not row.get("hypothetical")]
    meeting = [row for row in usable if not row.get("slo") or row["slo"]["met"]]
    candidates = meeting or usable
    if not candidates:
        return None
    faster = [row for row in candidates if proven(row)]
    if faster:
        return max(faster, key=lambda row: float(row["speedup"]))
    baseline = [row for row in candidates if row.get("baseline")]
    return baseline[0] if baseline else min(candidates, key=_tpot)


def proven(row: Row) -> bool:
    """Whether all of its band is faster than plain decoding."""
    if row["speedup"] is None:
        return False
    band = row["band"].get("speedup")
    least = band["lo"] if band else row["speedup"]
    return least is not None and bool(least > 1)


def _tpot(row: Row) -> float:
    mean = row["tpot_s"]["mean"]
    return float("inf") if mean is None else float(mean)


def number(value: float | None, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, never in powers of ten; "-" for None.

    Digits before the decimal point are never dropped.
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    size = abs(value)
    before_point = len(str(int(size))) if size >= 1 else _exponent(size) + 1
    return f"{value:.{min(max(digits - before_point, 0), 12)}f}"


def _exponent(size: float) -> int:
    return int(f"{size:e}".partition("e")[2])


def percent(share: float | None) -> str:
    """A share as a percentage; short of all it never reads 100 %."""
    if share is None:
        return "-"
    text = f"{100 * share:.{0 if share >= 0.1 else 1}f}"
    return f"{text} %" if share >= 1 or text != "100" else f"{100 * share:.2f} %"
