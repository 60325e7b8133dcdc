"""Training one part: Adam over the text until its time is over or held-out loss stops falling."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calibration.decoding.heads.corpus import Example
from calibration.decoding.heads.data import batch_of, batches, shuffled
from calibration.decoding.heads.parts import Part

CHECKS = 2
"""Held-out loss is looked at so often in a pass over the text."""

PATIENCE = 3
"""Checks in a row without a lower held-out loss that end the training."""

CHECKPOINT_S = 12.0
"""An interruption loses about so much."""

WARM_STEPS = 20

COOLING = 0.25
"""Share of the time in which the learning rate falls to zero, where time is what ends it."""


@dataclass
class State:
    """How far a training is; everything that decides how it goes on.

    Attributes
    ----------
    step : int
        Optimizer steps done.
    spent_s : float
        Of training, checks included, over all tries.
    best_loss : float
        Lowest held-out loss; infinite before the first check.
    first_loss : float
        Held-out loss before training.
    worse : int
        Checks since the lowest one.
    stopped : str
        Why it is over; empty while it is not.
    """

    step: int = 0
    spent_s: float = 0.0
    best_loss: float = math.inf
    first_loss: float = math.inf
    worse: int = 0
    stopped: str = ""
    best: dict[str, Any] = field(default_factory=dict)


class Training:
    """One part in training, kept in a file between two tries.

    Parameters
    ----------
    part : Part
    examples : sequence of Example
        Trained ones and held-out ones.
    file : Path
        Where it is kept until it is over.
    seed : int
        Order of sequences.
    run : mapping, optional
        What it is: one kept under other words is begun anew.
    """

    def __init__(
        self,
        part: Part,
        examples: Sequence[Example],
        file: Path,
        seed: int = 0,
        run: Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        import torch

        self.part, self._file, self._seed, self._now = part, file, seed, now
        self._run = dict(run or {})
        self._trained = [one for one in examples if not one.written.held_out]
        self._held_out = [one for one in examples if one.written.held_out]
        self._weights = part.weights()
        self._adam = torch.optim.Adam(self._weights.values(), lr=part.pace.rate)
        self.state = State()
        self._load()

    @property
    def steps(self) -> int:
        """Optimizer steps if nothing ends it before."""
        return self.part.pace.passes * self._of_a_pass

    @property
    def _of_a_pass(self) -> int:
        return len(list(batches(self._trained)))

    def run(self, budget_s: float, on_step: Callable[[int, int], None] | None = None) -> State:
        """Train until it is over; the part then has its best weights.

        Parameters
        ----------
        budget_s : float
            Of training, what earlier tries spent included.
        on_step : callable, optional
            Called with (steps done, steps in all).
        """
        state, begun, kept = self.state, self._now() - self.state.spent_s, self._now()
        if not state.best:
            self._check()
            state.first_loss = state.best_loss
        for batch in self._left():
            state.spent_s = self._now() - begun
            if state.stopped or state.spent_s >= budget_s:
                break
            if self._now() - kept >= CHECKPOINT_S:
                self._save()
                kept = self._now()
            self._step(batch, 1.0 - state.spent_s / budget_s)
            if on_step is not None:
                on_step(state.step, self.steps)
            if state.step % max(1, self._of_a_pass // CHECKS) == 0 or state.step == self.steps:
                self._check()
        state.spent_s = self._now() - begun
        over = "passes" if state.step >= self.steps else "time"
        state.stopped = state.stopped or over
        if state.step and state.stopped == "time":
            self._check()
            state.stopped = "time"
        self._restore_best()
        self._save()
        return state

    def accuracies(self) -> dict[str, float | None]:
        """Share of first guesses that are right on held-out text, by label; None without any."""
        import torch

        sums = [[0, 0] for _ in self.part.labels]
        with torch.inference_mode():
            for batch in batches(self._held_out):
                for total, found in zip(sums, self.part.right(batch_of(batch)), strict=False):
                    total[0] += found[0]
                    total[1] += found[1]
        return {
            label: right / guesses if guesses else None
            for label, (right, guesses) in zip(self.part.labels, sums, strict=True)
        }

    def held_out_loss(self) -> float:
        """Mean loss of held-out batches."""
        import torch

        with torch.inference_mode():
            losses = [float(self.part.loss(batch_of(batch))) for batch in batches(self._held_out)]
        return sum(losses) / len(losses)

    def _left(self) -> Iterator[list[Example]]:
        """Batches yet to come, from where the training is: a matter of step and seed alone."""
        while self.state.step < self.steps:
            done, place = divmod(self.state.step, self._of_a_pass)
            yield from shuffled(self._trained, self._seed + done)[place:]

    def _step(self, batch: list[Example], time_left: float) -> None:
        import torch

        step, rate = self.state.step, self.part.pace.rate
        warm, cold = min(1.0, (step + 1) / WARM_STEPS), 1.0 - step / self.steps
        for group in self._adam.param_groups:
            group["lr"] = rate * min(warm, cold, time_left / COOLING)
        self._adam.zero_grad()
        self.part.loss(batch_of(batch)).backward()
        torch.nn.utils.clip_grad_norm_(self._weights.values(), 1.0)
        self._adam.step()
        self.state.step += 1

    def _check(self) -> None:
        state, loss = self.state, self.held_out_loss()
        if loss < state.best_loss:
            state.best_loss, state.worse = loss, 0
            state.best = {name: one.detach().clone() for name, one in self._weights.items()}
            return
        state.worse += 1
        if state.worse >= PATIENCE:
            state.stopped = "held-out loss"

    def _restore_best(self) -> None:
        import torch

        with torch.no_grad():
            for name, one in self._weights.items():
                one.copy_(self.state.best[name])

    def _save(self) -> None:
        import torch

        kept = {
            "run": self._run,
            "state": asdict(self.state),
            "weights": {name: one.detach() for name, one in self._weights.items()},
            "adam": self._adam.state_dict(),
        }
        beside = self._file.with_suffix(".new")
        torch.save(kept, beside)
        beside.replace(self._file)

    def _load(self) -> None:
        import torch

        if not self._file.exists():
            return
        kept = torch.load(self._file, weights_only=True)
        if kept["run"] != self._run:
            return
        self.state = State(**kept["state"])
        with torch.no_grad():
            for name, one in self._weights.items():
                one.copy_(kept["weights"][name])
        self._adam.load_state_dict(kept["adam"])
