"""N-gram lookup: a match of the last tokens in the context supplies the draft."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models.acceptance import Acceptance, Law, ngram_law
from models.engine import Engine
from models.schema import PositiveInt
from models.strategies.base import Strategy, acceptance_or_default


class Ngram(Strategy):
    """Up to ``k`` tokens copied from the context when its last tokens occurred before."""

    kind: Literal["ngram"] = "ngram"
    k: PositiveInt = Field(default=3, le=64, description="Draft tokens of a match.")
    acceptance: Acceptance | None = Field(default=None, description="How matches are accepted.")

    family: ClassVar[str] = "ngram"

    def _default_label(self) -> str:
        return f"ngram K={self.k}"

    @property
    def depth(self) -> int:
        """K."""
        return self.k

    @property
    def drafted(self) -> int:
        """K, in a step with a match."""
        return self.k

    def varies_width(self, engine: Engine) -> bool:
        """Without a match only the current token is verified, unless the engine pads."""
        return not engine.ngram_full_width

    def host_draft_us(self) -> tuple[float, float]:
        """CPU proposer: shares of a step at batch 1 to 512, SpecDecode-Bench (arXiv 2601.11580)."""
        return 15.0, 2.8

    def resolved_acceptance(self) -> Acceptance:
        """Published traces when none is given."""
        return acceptance_or_default(self.acceptance, "ngram_llama31_8b", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Bimodal acceptance: no match, or a match that tends to persist."""
        return ngram_law(
            self.resolved_acceptance(), self.k, domains, full_width=engine.ngram_full_width
        )
