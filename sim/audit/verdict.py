"""The verdict on a claim, computed from what was predicted for it in every case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sim.audit.words import either, range_text, span_text

Kind = Literal["reproduced", "only_if", "contradicts", "not_decidable"]
Case = Mapping[str, Any]

KINDS: dict[Kind, str] = {
    "reproduced": "reproduced",
    "only_if": "reproduced only if",
    "contradicts": "contradicts the model",
    "not_decidable": "not decidable",
}


class Verdict(NamedTuple):
    """What became of a claim.

    Attributes
    ----------
    kind : str
    text : str
        A sentence, with what was predicted instead.
    short : str
        As much of it as a table holds.
    """

    kind: Kind
    text: str
    short: str


def agrees(value: float | None, lo: float | None, hi: float | None, claimed: Any) -> bool | None:
    """Whether a prediction, or its band, meets the claimed range with its tolerance.

    Parameters
    ----------
    value, lo, hi : float or None
        The prediction and the ends of its band; an end that is None is open.
    claimed : Claimed
        Its ``ends`` are compared with.

    Returns
    -------
    bool or None
        None where nothing was predicted.
    """
    if value is None:
        return None
    least, most = claimed.ends
    banded = lo is not None or hi is not None
    low, high = (lo, hi) if banded else (value, value)
    below = high is not None and max(high, value) < least
    above = low is not None and min(low, value) > most
    return not (below or above)


def together(parts: Sequence[bool | None]) -> bool | None:
    """All of several: False where any is, else None where any is unknown or there are none."""
    if False in parts:
        return False
    return True if parts and None not in parts else None


def judge(
    cases: Sequence[Case],
    stated: int = 0,
    varied: str | None = None,
    because: str | None = None,
    missing: str | None = None,
) -> Verdict:
    """Verdict of a claim.

    Reproduced: it agrees in every plausible case. Only if: in some of them. Contradicts: in none.
    Not decidable: the model predicts nothing of it in any plausible case.

    Parameters
    ----------
    cases : sequence of mapping
        ``label``, ``plausible``, ``agrees`` and ``figures`` of each.
    stated : int
        Which of them makes the prediction.
    varied : str, optional
        What the cases differ in.
    because : str, optional
        Why the model says otherwise, figures filled in.
    missing : str, optional
        What the model cannot decide of it.
    """
    rest = f"; not decidable: {missing}" if missing else ""
    plausible = [case for case in cases if case["plausible"]]
    known = [case for case in plausible if case["agrees"] is not None]
    if not known:
        text = f"not decidable: {missing or _unknown(cases)}"
        return Verdict("not_decidable", text, KINDS["not_decidable"])
    agreeing = [case for case in known if case["agrees"]]
    if len(agreeing) == len(plausible):
        how = _how(cases[stated])
        text = f"reproduced{how}{_range(cases, varied)}{rest}"
        return Verdict("reproduced", text, KINDS["reproduced"])
    if agreeing:
        text = f"reproduced only if {varied} = {either(case['label'] for case in agreeing)}"
        others = [case for case in plausible if not case["agrees"]]
        sure = _only_by_band(agreeing)
        return Verdict("only_if", f"{text}{sure}; {_at(others[0], varied)}{rest}", text)
    reason = f" because {because}" if because else ""
    first = cases[stated] if cases[stated] in known else known[0]
    said = f"{KINDS['contradicts']}{reason}: {_at(first, varied if len(cases) > 1 else None)}"
    text = f"{said}{_elsewhere(cases, plausible, varied)}{rest}"
    return Verdict("contradicts", text, KINDS["contradicts"])


def _how(case: Case) -> str:
    """Whether it is only the band that reaches the claim."""
    outside = [
        figure["title"] for figure in _figures(case) if not figure["inside"] and figure["agrees"]
    ]
    return f" within the band of {', '.join(dict.fromkeys(outside))}" if outside else ""


def _only_by_band(agreeing: Sequence[Case]) -> str:
    """Which of the agreeing cases do so by the prediction itself, where not all do."""
    inside = [
        case["label"] for case in agreeing if all(figure["inside"] for figure in _figures(case))
    ]
    if len(inside) == len(agreeing):
        return ""
    return f" (by the prediction itself: {either(inside)})" if inside else " (only by its band)"


def _range(cases: Sequence[Case], varied: str | None) -> str:
    """Which of the values tried that holds for, where there are several."""
    plausible = [case["label"] for case in cases if case["plausible"]]
    return f", whether {varied} = {either(plausible)}" if len(plausible) > 1 else ""


def _at(case: Case, varied: str | None) -> str:
    """What does not agree in a case."""
    wrong = [figure for figure in _figures(case) if figure["agrees"] is False]
    parts = []
    for title in dict.fromkeys(figure["title"] for figure in wrong):
        same = [figure for figure in wrong if figure["title"] == title]
        unit, claimed = same[0]["unit"], same[0]["claimed"]
        values = [figure["value"] for figure in same]
        parts.append(
            f"{title} {span_text(values, unit)} predicted, {range_text(claimed, unit)} claimed"
        )
    place = f"at {varied} = {either([case['label']])}, " if varied else ""
    return place + ("; ".join(parts) if parts else f"nothing is predicted: {_unknown([case])}")


def _elsewhere(cases: Sequence[Case], plausible: Sequence[Case], varied: str | None) -> str:
    """Values that are not plausible but would agree."""
    others = [case["label"] for case in cases if case["agrees"] and not case["plausible"]]
    if others:
        usual = either(case["label"] for case in plausible)
        return f"; it would take {varied} = {either(others)}, plausible: {usual}"
    return f"; at no {varied} tried does it agree" if len(cases) > 1 else ""


def _unknown(cases: Sequence[Case]) -> str:
    reasons = dict.fromkeys(figure["why"] for case in cases for figure in _figures(case))
    return "; ".join(reason for reason in reasons if reason) or "nothing is predicted"


def _figures(case: Case) -> list[Mapping[str, Any]]:
    return [figure for figure in case["figures"] if figure["claimed"] is not None]
