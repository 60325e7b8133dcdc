"""Acceptance that a server told with an answer: vLLM's own object, and what AIPerf makes of it.

vLLM counts a step only where something was drafted, so a request may have had more decode steps
(``RequestSpecDecodeMetrics`` of vllm/v1/metrics/stats.py, 0.32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibration.live.imports.fields import Fields
from calibration.live.imports.requests import Request, Steps


def steps_of(said: Fields, output_tokens: int) -> tuple[Steps, str]:
    """The decode steps of one request, and what is wrong with what was said of them.

    Parameters
    ----------
    said : Fields
        ``num_spec_steps``, ``num_draft_tokens``, ``num_accepted_draft_tokens``, and at the detailed
        level ``per_step_drafted`` and ``per_step_accepted``; may be empty.
    output_tokens : int
        Of the answer.
    """
    spec, drafted, accepted = (
        said.count(key)
        for key in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    )
    if not spec:
        return Steps(), ""
    if accepted > drafted or spec > output_tokens:
        return Steps(), "drafts that cannot be were left out"
    # The prefill emits the first token, an undrafted step one.
    undrafted = max(0, output_tokens - 1 - spec - accepted)
    totals = Steps(spec + undrafted, drafted, accepted)
    lists = [said.data.get(f"per_step_{name}") or [] for name in ("drafted", "accepted")]
    if not any(lists):
        return totals, ""
    each = tuple(zip(*lists, strict=False))
    sums = (len(each), sum(d for d, _ in each), sum(a for _, a in each))
    uneven = len(lists[0]) != len(lists[1]) or any(a > d or a < 0 for d, a in each)
    if uneven or sums != (spec, drafted, accepted):
        return totals, "steps that contradict their totals were left out"
    if undrafted:
        return totals, "steps between which others drafted nothing were left out"
    return totals._replace(each=each), ""


def acceptance_rows(
    requests: Sequence[Request], first: int, strategy: str
) -> list[Mapping[str, object]]:
    """Rows of the acceptance table, the requests numbered from ``first`` on."""
    rows: list[Mapping[str, object]] = []
    for number, request in enumerate(requests, first):
        context = request.prompt_tokens + 1
        for step, (drafted, accepted) in enumerate(request.steps.each):
            row = {"strategy": strategy, "request": number, "step": step, "ranks": ""}
            counts = {"context": context, "drafted": drafted, "accepted": accepted}
            rows.append({**row, "domain": request.domain, **counts})
            context += accepted + 1
    return rows
