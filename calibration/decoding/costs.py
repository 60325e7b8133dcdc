"""What drafting costs on the machine at hand: gates and draft lengths are set by it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from calibration.decoding.decoder import Decoder, Step, Watch, decode
from calibration.decoding.dynamic_k import measured_cost

WARM_UP_TOKENS, TOKENS = 4, 24
"""Tokens of the text that is decoded first, and of each that costs are measured on."""


class Costs(NamedTuple):
    """Ratios of times.

    Attributes
    ----------
    step : float
        A step with drafts over one of plain decoding: it pays if it emits more tokens than this.
        1 where nothing was drafted.
    draft : float
        A draft token over a verify pass.
    """

    step: float
    draft: float


def measure_costs(
    plain: Decoder, drafting: Decoder, prompts: Sequence[Sequence[int]], watch: Watch
) -> Costs:
    """Decode a few texts both ways; medians, to three decimals.

    Parameters
    ----------
    plain, drafting : Decoder
    prompts : sequence of sequences of int
        Decoded one after another.
    watch : Watch
    """

    def steps(decoder: Decoder) -> list[Step]:
        decode(decoder, prompts[:1], [0], WARM_UP_TOKENS, (), watch)
        texts = [decode(decoder, [one], [0], TOKENS, (), watch) for one in prompts]
        return [step for text in texts for step in text.steps]

    before, after = steps(plain), steps(drafting)
    drafted = [step.times.total_s for step in after if step.rows[0].drafted]
    if not drafted:
        return Costs(1.0, 0.0)
    ratio = median(drafted) / median(step.times.total_s for step in before)
    return Costs(round(ratio, 3), round(measured_cost(after), 3))
