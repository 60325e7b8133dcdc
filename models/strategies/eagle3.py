"""EAGLE-3: a layer over features of three depths, with a small LM head of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from models.acceptance import Acceptance, Law, chain_law
from models.engine import Engine
from models.schema import Dtype, KvDtype, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.strategies.eagle import eagle_layer, layer_memory
from models.strategies.eagle2 import DynamicTree, dynamic_passes
from models.transformer import Transformer


class Eagle3(Strategy):
    """EAGLE-3: chain of ``k``, or a dynamic tree."""

    kind: Literal["eagle3"] = "eagle3"
    k: PositiveInt = Field(default=3, le=32, description="Draft tokens a step of a chain.")
    tree: DynamicTree | None = Field(default=None, description="Dynamic tree instead of a chain.")
    draft_vocab: PositiveInt = Field(
        default=32000, description="LM head of the draft; 32000 in the Llama-3 releases."
    )
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "eagle3"
    drops_matched_block: ClassVar[bool] = True
    drafts_ahead: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_shape(self) -> Eagle3:
        if self.tree is not None and "k" in self.model_fields_set:
            raise ValueError("give k for a chain or tree for a dynamic tree, not both")
        return self

    def _default_label(self) -> str:
        return f"eagle3 K={self.k}" if self.tree is None else f"eagle3 tree of {self.drafted}"

    @property
    def depth(self) -> int:
        """K, or the levels of the tree."""
        return self.k if self.tree is None else self.tree.passes

    @property
    def drafted(self) -> int:
        """K, or the nodes of the tree without its root."""
        return self.k if self.tree is None else self.tree.total_tokens - 1

    @property
    def draft_rows(self) -> int:
        """K, or the rows all draft passes write."""
        if self.tree is None:
            return self.k
        return max(self.tree.passes * self.tree.topk, self.tree.total_tokens)

    def network(self, target: Transformer, fc_inputs: int) -> Transformer:
        """One layer whose attention reads embedding and hidden state side by side."""
        return eagle_layer(
            target, "eagle3", fc_inputs=fc_inputs, qkv_inputs=2, vocab=self.draft_vocab
        )

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """Layer, projection 3h -> h, own LM head, and the layer's KV."""
        return layer_memory(self.network(target, 3), "bf16", kv, tp, own_head=True)

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """The projection runs once, on the target's features; later passes skip it."""
        first, later = self.network(target, 3), self.network(target, 0)
        chain = DynamicTree.model_construct(passes=self.k, topk=1)
        return dynamic_passes(first, later, self.tree or chain, tp)

    def resolved_acceptance(self) -> Acceptance:
        """Published chain rates, or the tau of the reference tree, when none is given."""
        chain = self.tree is None
        entry = "eagle3_llama31_8b_mtbench" if chain else "eagle3_llama33_70b_mtbench"
        return acceptance_or_default(self.acceptance, entry, self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Chain acceptance, or tau of the dynamic tree spread over its levels at one rate."""
        return chain_law(self.resolved_acceptance(), self.depth, domains)
