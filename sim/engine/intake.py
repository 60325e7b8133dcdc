"""Turns rows of a workload into requests, with acceptance paths drawn in chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.acceptance import Law
from sim.engine.path import Counts, Path, Totals, flat_path
from sim.engine.request import Request
from sim.engine.rules import Rules
from sim.scenario.workload import Requests

CHUNK = 128


TOO_LONG = "longer than max_model_len"
TOO_LARGE = "larger than the whole KV pool"


class Intake:
    """Requests in order of their row; the reason in place of one the engine must reject.

    Parameters
    ----------
    requests : Requests
    law : Law
    rules : Rules
    seed : int
        Seed of the acceptance draws; requests with the same id share them across strategies.
    drafted : int
        Draft tokens a step, where the law leaves them constant.
    """

    def __init__(self, requests: Requests, law: Law, rules: Rules, seed: int, drafted: int) -> None:
        self._requests, self._law, self._rules = requests, law, rules
        self._seed, self._drafted = seed, drafted

    def __iter__(self) -> Iterator[Request | str]:
        total = len(self._requests.prompt_tokens)
        for first in range(0, total, CHUNK):
            yield from self._chunk(first, min(first + CHUNK, total))

    def _chunk(self, first: int, last: int) -> Iterator[Request | str]:
        rows, ids = self._requests, np.arange(first, last)
        prompt, output = rows.prompt_tokens[first:last], rows.output_tokens[first:last]
        paths = self._law.paths(self._seed, ids, output - 1, rows.domain[first:last])
        flat = flat_path(paths, prompt, self._rules, self._drafted)
        shared = self._shared_blocks(prompt, rows.prefix_tokens[first:last])
        columns = zip(
            self._refused(prompt, output).tolist(),
            prompt.tolist(),
            output.tolist(),
            rows.group[first:last].tolist(),
            shared.tolist(),
            paths.offsets.tolist(),
            paths.offsets[1:].tolist(),
            _totals(flat, paths.offsets),
            strict=False,
        )
        for number, column in enumerate(columns, first):
            reason, prompt_tokens, output_tokens, group, blocks, begin, end, totals = column
            if reason:
                yield reason
                continue
            path = flat.cut(begin, end)
            request = Request(number, prompt_tokens, output_tokens, path, totals)
            if blocks:
                request.group, request.group_blocks = (group, blocks), blocks
            yield request

    def _refused(self, prompt: Counts, output: Counts) -> NDArray[np.str_]:
        """Why a request can never be served, by its length or its blocks when alone; else empty."""
        rules = self._rules
        blocks = -(-(prompt + output - 1 + rules.slots) // rules.block_tokens)
        large = np.where(blocks > rules.n_blocks, TOO_LARGE, "")
        return np.where(prompt + output > rules.max_model_len, TOO_LONG, large)

    def _shared_blocks(self, prompt: Counts, prefix: Counts) -> Counts:
        """Full prefix blocks a hit can reach: never the last prompt token, nor a dropped block."""
        rules = self._rules
        blocks = np.minimum(prefix, prompt - 1) // rules.block_tokens - rules.drop_matched_block
        return np.maximum(blocks, 0) if rules.prefix_cache else np.zeros_like(blocks)


def _totals(flat: Path, offsets: Counts) -> list[Totals]:
    """Sums over each request's steps."""
    starts, some = offsets[:-1], np.diff(offsets) > 0
    sums = np.zeros((3, len(starts)), dtype=np.int64)
    if some.any():
        for row, column in enumerate((flat.accepted, flat.drafted, flat.growth)):
            sums[row, some] = np.add.reduceat(column, starts[some])
    return [Totals(*values) for values in sums.T.tolist()]
