"""A standalone draft model: K sequential passes of a small transformer with its own KV cache."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models import catalog
from models.acceptance import Acceptance, Law, chain_law
from models.engine import Engine
from models.schema import Dtype, KvDtype, ModelError, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.transformer import Transformer


class DraftModel(Strategy):
    """Chain of ``k`` tokens drafted by a separate model."""

    kind: Literal["draft_model"] = "draft_model"
    draft: str = Field(description="Catalogue name or config.json of the draft model.")
    k: PositiveInt = Field(default=4, le=32, description="Draft tokens a step.")
    draft_tp: PositiveInt = Field(default=1, description="Tensor-parallel size of the draft.")
    draft_weights: Dtype = Field(default="bf16", description="Type of the draft's weights.")
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "draft_model"
    drafts_ahead: ClassVar[bool] = True

    def _default_label(self) -> str:
        return f"draft_model {self.draft} K={self.k}"

    @property
    def depth(self) -> int:
        """K."""
        return self.k

    @property
    def drafted(self) -> int:
        """K."""
        return self.k

    @property
    def network(self) -> Transformer:
        """The draft model's shape."""
        return catalog.transformer(self.draft)

    def check(self, target: Transformer, tp: int) -> None:
        """Same vocabulary as the target, and a tensor-parallel size that splits the draft."""
        try:
            draft = self.network
        except ModelError as error:
            raise ModelError(str(error), "draft") from error
        if draft.vocab != target.vocab:
            raise ModelError(
                f"{draft.name} has a vocabulary of {draft.vocab}, {target.name} has "
                f"{target.vocab}: drafts would not be the target's tokens, got '{self.draft}'",
                "draft",
            )
        if self.draft_tp > tp:
            raise ModelError(f"must not exceed model.tp ({tp}), got {self.draft_tp}", "draft_tp")
        try:
            draft.check_tp(self.draft_tp)
        except ModelError as error:
            raise ModelError(str(error), "draft_tp") from error

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """The whole draft model, and its KV cache for every token."""
        draft = self.network
        return ExtraMemory(
            draft.weight_bytes(self.draft_weights) / self.draft_tp,
            draft.kv_bytes_per_token(kv, self.draft_tp),
        )

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """One pass that also prefills the draft's KV cache, then K-1 of one row a sequence."""
        net = self.network
        first = DraftPass(net, self.draft_tp, self.draft_weights, covers_prefill=True)
        if self.k == 1:
            return (first,)
        return first, DraftPass(net, self.draft_tp, self.draft_weights, repeat=self.k - 1)

    def resolved_acceptance(self) -> Acceptance:
        """A published figure of a small draft when none is given."""
        return acceptance_or_default(self.acceptance, "draft_vicuna_68m_vicuna_13b", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Chain acceptance."""
        return chain_law(self.resolved_acceptance(), self.k, domains)
