"""One request inside an engine, and the intake that prepares requests in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.acceptance import Law
from models.paths import Paths
from sim.engine.rules import Rules
from sim.scenario.workload import Requests

Counts = NDArray[np.int64]
CHUNK = 256


class Path(NamedTuple):
    """What a request does in each of its decode steps; arrays of equal length.

    ``growth`` is the KV blocks a step adds at its start; ``width`` and ``query_ctx`` (query
    tokens, query tokens x context) are None where every step has the same width.
    """

    emitted: Counts
    accepted: Counts
    growth: Counts
    drafted: Counts | None
    width: Counts | None
    query_ctx: Counts | None

    def cut(self, first: int, last: int | None = None) -> Path:
        """Steps ``first`` to ``last``."""
        steps = slice(first, last)
        return Path(
            self.emitted[steps],
            self.accepted[steps],
            self.growth[steps],
            None if self.drafted is None else self.drafted[steps],
            None if self.width is None else self.width[steps],
            None if self.query_ctx is None else self.query_ctx[steps],
        )


class Request:
    """A request and how far it has come. Equality is identity."""

    __slots__ = (
        "accepted",
        "cached_tokens",
        "computed",
        "drafted",
        "finish_step",
        "group",
        "group_blocks",
        "held",
        "id",
        "last_emit_s",
        "n_steps",
        "next_step",
        "output_tokens",
        "path",
        "preemptions",
        "prefill_tokens",
        "produced",
        "prompt_tokens",
        "ready_s",
        "start_step",
        "swapped",
    )

    def __init__(
        self, number: int, prompt_tokens: int, output_tokens: int, path: Path, ready_s: float
    ) -> None:
        self.id = number
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.path = path
        self.ready_s = ready_s
        self.group: tuple[int, int] | None = None
        self.group_blocks = 0
        self.prefill_tokens = prompt_tokens
        self.computed = 0
        self.cached_tokens = 0
        self.held = 0
        self.produced = 0
        self.next_step = 0
        self.start_step = 0
        self.finish_step = 0
        self.n_steps = 0
        self.accepted = 0
        self.drafted = 0
        self.preemptions = 0
        self.swapped = False
        self.last_emit_s = 0.0

    @property
    def context(self) -> int:
        """Prompt and produced tokens."""
        return self.prompt_tokens + self.produced

    def book(self, steps: int, drafted_a_step: int) -> None:
        """Count the next ``steps`` steps of the path as run: tokens and blocks."""
        first, last = self.next_step, self.next_step + steps
        path = self.path
        self.next_step = last
        self.n_steps += steps
        self.produced += int(path.emitted[first:last].sum())
        self.accepted += int(path.accepted[first:last].sum())
        self.held += int(path.growth[first:last].sum())
        if path.drafted is None:
            self.drafted += steps * drafted_a_step
        else:
            self.drafted += int(path.drafted[first:last].sum())


class Intake:
    """Turns rows of a workload into requests, drawing acceptance paths in chunks.

    Parameters
    ----------
    requests : Requests
    law : Law
    rules : Rules
    seed : int
        Seed of the acceptance draws; requests with the same id share them across strategies.
    """

    def __init__(self, requests: Requests, law: Law, rules: Rules, seed: int) -> None:
        self._requests, self._law, self._rules = requests, law, rules
        self._seed = seed

    def __iter__(self) -> Iterator[Request | None]:
        """Requests in order of their row; None for one the engine must reject."""
        total = len(self._requests.prompt_tokens)
        for first in range(0, total, CHUNK):
            yield from self._chunk(first, min(first + CHUNK, total))

    def _chunk(self, first: int, last: int) -> Iterator[Request | None]:
        rows, rules = self._requests, self._rules
        prompt = rows.prompt_tokens[first:last]
        output = rows.output_tokens[first:last]
        ids = np.arange(first, last)
        paths = self._law.paths(self._seed, ids, output - 1, rows.domain[first:last])
        flat = self._flat_path(paths, prompt)
        reach = -(-(prompt + output - 1 + rules.slots) // rules.block_tokens)
        fits = (prompt + output <= rules.max_model_len) & (reach <= rules.n_blocks)
        groups = rows.group[first:last].tolist()
        prefix = np.minimum(rows.prefix_tokens[first:last], prompt - 1) // rules.block_tokens
        prefix = np.maximum(prefix - rules.drop_matched_block, 0) * rules.prefix_cache
        offsets = paths.offsets.tolist()
        columns = zip(fits.tolist(), prompt.tolist(), output.tolist(), prefix.tolist(), strict=True)
        for row, (ok, tokens, out, shared) in enumerate(columns):
            if not ok:
                yield None
                continue
            path = flat.cut(offsets[row], offsets[row + 1])
            request = Request(first + row, tokens, out, path, 0.0)
            if shared:
                request.group, request.group_blocks = (groups[row], shared), shared
            yield request

    def _flat_path(self, paths: Paths, prompt: Counts) -> Path:
        rules = self._rules
        lengths = np.diff(paths.offsets)
        owner = np.repeat(np.arange(len(prompt)), lengths)
        ends = np.cumsum(paths.emitted)
        before_all = ends - paths.emitted
        first_of = np.zeros(len(prompt), dtype=np.int64)
        has = lengths > 0
        first_of[has] = before_all[paths.offsets[:-1][has]]
        produced = 1 + before_all - first_of[owner]
        context = prompt[owner] + produced
        growth = block_growth(context, prompt[owner], rules, paths.offsets[:-1][has])
        width = paths.width
        return Path(
            paths.emitted,
            paths.accepted,
            growth,
            paths.drafted,
            width,
            None if width is None else width * context,
        )


def block_growth(context: Counts, prefilled: Counts, rules: Rules, starts: Counts) -> Counts:
    """KV blocks each step adds, given the context before it.

    ``starts`` are the indices at which a sequence begins; it holds the blocks of ``prefilled``
    tokens before its first step.
    """
    if rules.preemption == "never":
        return np.zeros(len(context), dtype=np.int64)
    block = rules.block_tokens
    held = -(-(context - 1 + rules.slots) // block)
    growth = np.diff(held, prepend=0)
    growth[starts] = held[starts] - -(-prefilled[starts] // block)
    return np.maximum(growth, 0)


def resumed_path(request: Request, rules: Rules) -> Path:
    """What is left of a path once re-prefilling has emitted one token.

    The steps already run are dropped, the rest is cut to the tokens still missing, and the block
    growth is laid out again from the re-prefilled tokens.
    """
    rest = request.path.cut(request.next_step)
    missing = request.output_tokens - request.produced
    ends = np.cumsum(rest.emitted)
    n_steps = int(np.searchsorted(ends, missing)) + 1 if missing else 0
    rest = rest.cut(0, n_steps)
    if not n_steps:
        return rest
    emitted = rest.emitted.copy()
    emitted[-1] -= int(ends[n_steps - 1]) - missing
    context = request.context + np.cumsum(emitted) - emitted
    prefilled = np.full(n_steps, request.prefill_tokens)
    growth = block_growth(context, prefilled, rules, np.zeros(1, dtype=np.int64))
    query_ctx = None if rest.width is None else rest.width * context
    return rest._replace(emitted=emitted, growth=growth, query_ctx=query_ctx)
