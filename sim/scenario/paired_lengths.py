"""Lengths of requests in pairs, as in a trace: long prompts keep the outputs they had."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from models.schema import Frozen
from sim.scenario.distributions import Ints


class Pairs(NamedTuple):
    """Lengths of the answered requests of a trace [tokens], each of shape (n,)."""

    prompt_tokens: Ints
    output_tokens: Ints


class TraceLengths(Frozen):
    """Prompt and output lengths of the rows of a trace, drawn with replacement or in order."""

    kind: Literal["trace"] = Field(
        default="trace", description="Lengths of the rows of a recorded trace."
    )
    file: str = Field(
        min_length=1,
        description="The trace, plain or gzip, as a path relative to this file; its times are not "
        "used.",
    )
    format: Literal["auto", "azure", "burstgpt", "mooncake", "csv"] = Field(
        default="auto", description="Which columns it has; by default told from its first line."
    )
    bad_lines: Literal["refuse", "skip"] = Field(
        default="refuse", description="Whether lines that are no requests are errors or left out."
    )
    order: Literal["drawn", "recorded"] = Field(
        default="drawn",
        description="Rows are drawn with replacement, or taken one after another as they stand in "
        "the file, from the first again when all are used.",
    )

    def pairs(self) -> Pairs:
        """All rows the lengths are drawn from.

        Raises
        ------
        InputError
            For bad lines, with the trace file and the number of the first.
        ModelError
            If the file cannot be read, or has no requests.
        """
        # Reading needs parsers that no other scenario does.
        from sim.scenario.trace.reading import read_trace

        trace = read_trace(self.file, self.format, self.bad_lines)
        return Pairs(trace.prompt_tokens.astype(np.int64), trace.output_tokens.astype(np.int64))

    def sample(self, rng: np.random.Generator, n: int) -> Pairs:
        """Take ``n`` rows, each drawn as likely as any other; more begin with the same ones."""
        prompt_tokens, output_tokens = self.pairs()
        of = len(prompt_tokens)
        rows = np.arange(n) % of if self.order == "recorded" else rng.integers(of, size=n)
        return Pairs(prompt_tokens[rows], output_tokens[rows])
