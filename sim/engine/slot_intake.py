"""Requests whose steps are drawn in every mode they may be in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from models.paths import SIGNAL, STRANGER, request_keys, uniforms_at
from sim.engine.intake import Intake
from sim.engine.modes import Drawn, Latent, Modes, drawn
from sim.engine.request import Request
from sim.engine.rules import Rules
from sim.engine.slot_request import SlotRequest
from sim.scenario.requests import Requests

_STRANGERS = 1 << 40
"""Number of the first unrelated request: beyond all that are sent."""


class SlotIntake(Intake):
    """Requests for a `sim.engine.slot_batch.SlotBatch`.

    Parameters
    ----------
    requests : Requests
    modes : Modes
    rules : Rules
    seed : int
        Seed of the acceptance draws; modes share them with a strategy that is one of them alone.
    """

    def __init__(self, requests: Requests, modes: Modes, rules: Rules, seed: int) -> None:
        super().__init__(requests, modes.laws[0], rules, seed, 0)
        self._modes = modes

    def _made(self, first: int, last: int) -> Iterator[Request]:
        rows, ids = self._requests, np.arange(first, last)
        prompt, output = rows.prompt_tokens[first:last], rows.output_tokens[first:last]
        laws, seed = self._modes.laws, self._seed
        own = drawn(laws, seed, ids, output - 1, rows.domain[first:last], prompt)
        others: list[tuple[Latent, ...]] = [()] * len(ids)
        if self._modes.reads_others:
            # Another request of this traffic: its domain and prompt, numbers of nobody.
            told = uniforms_at(request_keys(seed, ids, STRANGER), np.zeros(1, dtype=np.int64))
            other = (told * len(rows.domain)).astype(np.int64)
            others = drawn(
                laws,
                seed,
                ids + _STRANGERS,
                output - 1,
                rows.domain[other],
                rows.prompt_tokens[other],
            )
        keys = request_keys(seed, ids, SIGNAL)
        for place, number in enumerate(ids.tolist()):
            yield SlotRequest(
                number,
                int(prompt[place]),
                int(output[place]),
                Drawn(own[place], others[place]),
                int(keys[place]),
                int(rows.stream[number]),
            )
