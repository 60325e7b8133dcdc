"""Where the times of a step come from: closed forms, or measured rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from models.forward_pass import head_parts, layer_parts
from models.kernel_log import Use
from models.step_time import StepTime

Source = Literal["closed form", "measured rows", "both"]


def kernel_uses(
    step_time: StepTime, n: int, query_tokens: int, prompt_tokens: int = 0
) -> dict[str, list[Use]]:
    """Kernels of a step that could have measured rows, by component of ``StepTime.breakdown``.

    Parameters
    ----------
    step_time : StepTime
    n : int
        Decoding sequences.
    query_tokens, prompt_tokens : int
        Their query tokens, and those of prompts beside them.
    """
    deployed = step_time.deployed
    layers, head, draft = (deployed.kernels.traced() for _ in range(3))
    target, tp, rows = deployed.target, deployed.tp, np.array([query_tokens])
    m = step_time.padded(n, query_tokens + prompt_tokens)
    layer_parts(layers, target, deployed.weights, deployed.kv, tp, m)
    head_parts(head, target, tp, rows)
    for one in step_time.strategy.draft_passes(target, deployed.engine, deployed.weights, tp):
        drafting = m if one.covers_prefill else np.array([n * one.rows])
        if one.head_only:
            draft.medusa_head(drafting, target.hidden, target.vocab, one.tp)
            continue
        layer_parts(draft, one.net, one.weights, deployed.kv, one.tp, drafting)
        head_parts(draft, one.net, one.tp, np.array([n * one.rows]))
    return {
        "weights": [use for use in layers.log or () if not use.collective],
        "lm_head": [use for use in head.log or () if not use.collective],
        "collectives": [use for use in (*(layers.log or ()), *(head.log or ())) if use.collective],
        "draft": draft.log or [],
    }


def source(uses: Iterable[Use]) -> Source:
    """Where their times come from, all together."""
    found = {use.measured for use in uses}
    if found == {True}:
        return "measured rows"
    return "both" if True in found else "closed form"


def missing(uses: Iterable[Use]) -> list[str]:
    """Kernels whose measured rows were wanted and do not reach so far, each named once."""
    return list(dict.fromkeys(use.kernel for use in uses if use.wanted and not use.measured))
