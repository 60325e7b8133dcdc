"""As many draft tokens as lately paid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from calibration.decoding.decoder import Row, Step, Watch
from calibration.decoding.rolling import Limited, Rolling


class DynamicK:
    """Chooses the draft tokens of each step from what was accepted lately.

    K is the one that emits most tokens in the time of a step, if each draft token is accepted with
    the rolling chance: see `best_k`. Before anything was drafted it is the most.

    Parameters
    ----------
    inner : Limited
        Drafts a chain; ``k`` of its strategy is the most.
    draft_cost : float
        Time of a draft token over that of a verify pass: see `measured_cost`.
    window_tokens : int
        Tokens the chance is taken over.

    Attributes
    ----------
    limit : int or None
        Most tokens to draft in the next steps; 0 is plain decoding.
    """

    def __init__(self, inner: Limited, draft_cost: float, window_tokens: int = 50) -> None:
        k_max = int(inner.strategy["k"])
        self.label, self.most_rows = f"dynamic_k_{inner.label}", inner.most_rows
        self.strategy = {
            "kind": "dynamic_k",
            "primary": dict(inner.strategy),
            "k_max": k_max,
            "draft_cost": draft_cost,
            "window_tokens": window_tokens,
        }
        self._inner, self._k_max, self._draft_cost = inner, k_max, draft_cost
        self._rolling = Rolling(window_tokens)
        self.limit: int | None = None
        self.note = ""

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """See `Decoder.prefill`; what was accepted lately stays known."""
        return self._inner.prefill(prompts, seeds, watch)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        alpha = self._rolling.alpha
        k = self._k_max if alpha is None else best_k(alpha, self._draft_cost, self._k_max)
        k = k if self.limit is None else min(k, self.limit)
        self._inner.limit, self.note = k, f"k={k}"
        rows = self._inner.step(watch)
        self._rolling.add(rows)
        return rows

    def retain(self, rows: Sequence[int]) -> None:
        """See `Decoder.retain`."""
        self._inner.retain(rows)

    def state(self) -> Any:
        """What it knows of acceptance, as JSON."""
        return self._rolling.state()

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave; None: with nothing."""
        self._rolling.restore(state or ())


def best_k(alpha: float, draft_cost: float, k_max: int) -> int:
    """Draft tokens, at least one, that emit most tokens in the time of a step.

    Maximises (1 - alpha^(K+1)) / ((1 - alpha) (1 + K draft_cost)), theorem 3.8 of Leviathan et al.
    2023 (arXiv:2211.17192); the fewest where several do.

    Parameters
    ----------
    alpha : float
        Chance of each draft token once reached.
    draft_cost : float
        Time of a draft token over that of a verify pass.
    k_max : int
        The most.
    """

    def gain(k: int) -> float:
        return sum(alpha**level for level in range(k + 1)) / (1 + k * draft_cost)

    return max(range(1, k_max + 1), key=gain)


def measured_cost(steps: Iterable[Step]) -> float:
    """Time of a draft token over that of a verify pass: the median of steps with drafts.

    Parameters
    ----------
    steps : iterable of Step
        Of a decoder whose sequences draft equally many tokens in a step.

    Raises
    ------
    ValueError
        If no step drafted anything.
    """
    ratios = [
        step.times.draft_s / step.rows[0].drafted / step.times.verify_s
        for step in steps
        if step.rows[0].drafted
    ]
    if not ratios:
        raise ValueError("no step drafted anything: its cost is not known")
    return median(ratios)
