"""Decoders and a clock that tests of decoding runs share. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.plan import Encoded

RUN = {"model": "tiny", "dtype": "fp32", "machine": "Some CPU (R) 9000", "seed": 0}
DATE = "2026-11-30"
LENGTHS = (9, frozenset({0}), 0)
"""Tokens a text, stop tokens, seed."""


class Ticking:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def prompts(**counts: int) -> dict[str, list[Encoded]]:
    """So many prompts a domain, prompt n of 4 + n tokens."""
    return {
        domain: [Encoded(domain, n, tuple(range(5, 9 + n))) for n in range(count)]
        for domain, count in counts.items()
    }


class Counting:
    """Continues every prompt with 100, 101, ...: ``accepted`` of ``k`` drafts a step.

    Parameters
    ----------
    label : str
    k, accepted : int
    most_rows : int
    first : int
        First token of each text.
    """

    def __init__(
        self,
        label: str = "draft_model",
        k: int = 3,
        accepted: int = 2,
        most_rows: int = 8,
        first: int = 100,
    ) -> None:
        self.label, self.k, self.accepted, self.most_rows = label, k, accepted, most_rows
        self.strategy = {"kind": "draft_model", "draft": "tiny", "k": k}
        self.first, self.note = first, ""
        self.seen: list[tuple[int, ...]] = []

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        with watch.part("verify"):
            self.seen += map(tuple, prompts)
            self.index = list(range(len(prompts)))
            self.contexts = [len(prompt) + 1 for prompt in prompts]
            self.next = [self.first + 1] * len(prompts)
        return [self.first] * len(prompts)

    def step(self, watch: Watch) -> list[Row]:
        rows = []
        for part in ("draft", "sample"):
            with watch.part(part):
                pass
        with watch.part("verify"):
            for index in self.index:
                tokens = tuple(range(self.next[index], self.next[index] + self.accepted + 1))
                context = self.contexts[index]
                rows.append(
                    Row(index, tokens, self.k, self.accepted, self.k + 1, context, (0, None))
                )
                self.next[index] += len(tokens)
                self.contexts[index] += len(tokens)
        return rows

    def retain(self, rows: Sequence[int]) -> None:
        self.index = [self.index[row] for row in rows]


class Learner(Counting):
    """Counts the steps of all its prompts and tells so in its note."""

    steps = 0

    def step(self, watch: Watch) -> list[Row]:
        self.steps += 1
        self.note = f"k={self.steps}"
        return super().step(watch)

    def state(self) -> object:
        return {"steps": self.steps}

    def restore(self, state: object) -> None:
        self.steps = state["steps"] if state else 0
