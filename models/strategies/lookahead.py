"""Lookahead (Jacobi) decoding: window and n-gram guesses ride in the target's own pass."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models.acceptance import Acceptance, Law, lookahead_law
from models.engine import Engine
from models.kv_layout import Branches
from models.schema import Fraction, PositiveInt
from models.strategies.base import Strategy, acceptance_or_default


class Lookahead(Strategy):
    """Window ``w``, n-gram size ``n``, ``g`` guesses a step (Fu et al., arXiv 2402.02057)."""

    kind: Literal["lookahead"] = "lookahead"
    w: PositiveInt = Field(default=15, le=128, description="Window size W.")
    n: int = Field(default=5, ge=2, le=16, description="N-gram size N.")
    g: PositiveInt = Field(default=15, le=128, description="Guesses verified a step G.")
    found_share: Fraction = Field(
        default=1.0, description="Mean share of the G guesses the n-gram pool can fill."
    )
    acceptance: Acceptance | None = Field(default=None, description="How guesses are accepted.")

    family: ClassVar[str] = "lookahead"

    def _default_label(self) -> str:
        return f"lookahead W={self.w} N={self.n} G={self.g}"

    @property
    def depth(self) -> int:
        """Tokens of an n-gram after the current one."""
        return self.n - 1

    @property
    def drafted(self) -> int:
        """Query tokens beyond the current one, window and guesses together."""
        return (self.w + self.g) * (self.n - 1) - 1

    @property
    def needs_tree(self) -> bool:
        """Both branches need a mask of their own."""
        return True

    @property
    def branches(self) -> tuple[Branches, ...]:
        """A branch a guess, and the window as one more.

        Only a guess can be accepted, so only guesses need KV that can become the context's. What
        the window computes is never kept: its rows share one stretch, the current token first.
        """
        return Branches(self.g, self.n), Branches(1, self.w * (self.n - 1))

    @property
    def refill_steps(self) -> int:
        """The window has to fill its N-1 levels before it yields an n-gram."""
        return self.n - 1

    def varies_width(self, engine: Engine) -> bool:
        """The pool may hold fewer guesses than G."""
        return self.found_share < 1 or super().varies_width(engine)

    def resolved_acceptance(self) -> Acceptance:
        """The published tau on Vicuna-7B when none is given."""
        return acceptance_or_default(self.acceptance, "lookahead_vicuna_7b", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """The paper's acceptance of G guesses."""
        return lookahead_law(
            self.resolved_acceptance(),
            n=self.n,
            g=self.g,
            w=self.w,
            domains=domains,
            found_share=self.found_share,
        )
