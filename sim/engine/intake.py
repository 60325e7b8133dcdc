"""Turns rows of a workload into requests, with acceptance paths drawn in chunks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.acceptance import Law
from sim.engine.path import Counts, Totals, flat_path
from sim.engine.request import Node, Request
from sim.engine.rules import Rules
from sim.refusals import TOO_LARGE, TOO_LONG
from sim.scenario.requests import Requests

CHUNK = 128
"""Requests drawn together; 128 to 512 are equally fast, and fewer paths stay in memory."""


class Intake:
    """Requests by row; the reason in place of one the engine must reject.

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
        self._ready: dict[int, Request | str] = {}

    def take(self, row: int) -> Request | str:
        """The request of a row that was not taken yet; its neighbours are drawn along with it."""
        if row not in self._ready:
            first = row - row % CHUNK
            last = min(first + CHUNK, len(self._requests.prompt_tokens))
            self._ready.update(zip(range(first, last), self._drawn(first, last), strict=True))
        return self._ready.pop(row)

    def again(self, row: int) -> Request:
        """A fresh copy of a request that was taken and lost."""
        (request,) = self._drawn(row, row + 1)
        assert isinstance(request, Request)
        return request

    def _drawn(self, first: int, last: int) -> Iterator[Request | str]:
        rows = self._requests
        prompt, output = rows.prompt_tokens[first:last], rows.output_tokens[first:last]
        columns = zip(
            self._refused(prompt, output).tolist(),
            self._made(first, last),
            self._chains(first, last),
            rows.keeps[first:last].tolist(),
            strict=True,
        )
        for reason, request, nodes, keeps in columns:
            if reason:
                yield reason
                continue
            if nodes:
                request.nodes, request.shared = nodes, sum(node.blocks for node in nodes)
            if keeps and self._rules.prefix_cache:
                request.keeps = self._kept(request, keeps)
            yield request

    def _made(self, first: int, last: int) -> Iterator[Request]:
        """Requests with their steps drawn, nothing else known of them."""
        rows, ids = self._requests, np.arange(first, last)
        prompt, output = rows.prompt_tokens[first:last], rows.output_tokens[first:last]
        paths = self._law.paths(self._seed, ids, output - 1, rows.domain[first:last], prompt)
        flat = flat_path(paths, prompt, self._rules, self._drafted)
        columns = zip(
            prompt.tolist(),
            output.tolist(),
            itertools.pairwise(paths.offsets.tolist()),
            Totals.of_each(flat, paths.offsets),
            strict=True,
        )
        for number, (prompt_tokens, output_tokens, steps, totals) in enumerate(columns, first):
            yield Request(number, prompt_tokens, output_tokens, flat.cut(*steps), totals)

    def _refused(self, prompt: Counts, output: Counts) -> NDArray[np.str_]:
        """Why a request can never be served, by its length or its blocks when alone; else empty."""
        rules = self._rules
        blocks = rules.kv.most(prompt, prompt + output)
        if rules.preemption == "recompute":
            blocks = np.maximum(blocks, rules.kv.prefilled(prompt + output - 1))
        large = np.where(blocks > rules.n_blocks, TOO_LARGE, "")
        return np.where(prompt + output > rules.max_model_len, TOO_LONG, large)

    def _chains(self, first: int, last: int) -> list[tuple[Node, ...]]:
        """Blocks each request shares: never its last prompt token, nor what a hit drops."""
        rows, rules = self._requests, self._rules
        offsets = rows.prefixes.offsets[first : last + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        if begin == end or not rules.prefix_cache:
            return [()] * (last - first)
        owner = np.repeat(np.arange(first, last), np.diff(offsets))
        reach = np.minimum(rows.prefixes.ends[begin:end], rows.prompt_tokens[owner] - 1)
        reach = np.maximum(reach // rules.block_tokens - rules.drop_matched_block, 0)
        before = np.concatenate([[0], reach[:-1]])
        before[offsets[:-1][np.diff(offsets) > 0] - begin] = 0
        nodes = list(map(Node, rows.prefixes.keys[begin:end].tolist(), (reach - before).tolist()))
        cuts = (offsets - begin).tolist()
        return [
            tuple(node for node in nodes[a:b] if node.blocks) for a, b in itertools.pairwise(cuts)
        ]

    def _kept(self, request: Request, key: int) -> Node | None:
        """What the next turn of its session can share beyond the request's own nodes."""
        computed = request.prompt_tokens + request.output_tokens - 1
        blocks = computed // self._rules.block_tokens - self._rules.drop_matched_block
        return Node(key, blocks - request.shared) if blocks > request.shared else None
