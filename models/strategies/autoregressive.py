"""Plain decoding: one token a step, the baseline of every comparison."""

from __future__ import annotations

from typing import Literal

from models.acceptance import Law, plain_law
from models.engine import Engine
from models.strategies.base import Strategy


class Autoregressive(Strategy):
    """Plain decoding, one token a step."""

    kind: Literal["autoregressive"] = "autoregressive"

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """One token a step, always."""
        return plain_law()
