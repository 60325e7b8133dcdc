"""EAGLE-2: EAGLE's layer growing a dynamic tree, the best nodes of which are verified."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from models.acceptance import Acceptance, Law, chain_law
from models.engine import Engine
from models.schema import Dtype, Frozen, KvDtype, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.strategies.eagle import eagle_layer, layer_memory
from models.transformer import Transformer


class DynamicTree(Frozen):
    """Dynamic tree: defaults are those of the EAGLE-2 and EAGLE-3 reference code."""

    total_tokens: PositiveInt = Field(
        default=60, le=512, description="Verified tokens a sequence, root included."
    )
    passes: PositiveInt = Field(
        default=8, le=32, description="Draft passes: 1 + reference depth 7."
    )
    topk: PositiveInt = Field(default=10, le=64, description="Rows a sequence in passes 2 and on.")

    @model_validator(mode="after")
    def _enough_nodes(self) -> DynamicTree:
        if self.total_tokens <= self.passes:
            raise ValueError(
                f"total_tokens ({self.total_tokens}) must exceed passes ({self.passes})"
            )
        return self


def dynamic_passes(
    first: Transformer, later: Transformer, tree: DynamicTree, tp: int
) -> tuple[DraftPass, ...]:
    """First pass over every token of the step, then ``passes - 1`` of ``topk`` rows a sequence."""
    lead = DraftPass(first, tp, "bf16", covers_prefill=True)
    if tree.passes == 1:
        return (lead,)
    return lead, DraftPass(later, tp, "bf16", repeat=tree.passes - 1, rows=tree.topk)


class Eagle2(Strategy):
    """EAGLE-2 with its dynamic tree."""

    kind: Literal["eagle2"] = "eagle2"
    tree: DynamicTree = Field(default=DynamicTree(), description="Shape of the dynamic tree.")
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "tree"
    drops_matched_block: ClassVar[bool] = True
    drafts_ahead: ClassVar[bool] = True

    def _default_label(self) -> str:
        return f"eagle2 tree of {self.drafted}"

    @property
    def depth(self) -> int:
        """Levels of the tree."""
        return self.tree.passes

    @property
    def drafted(self) -> int:
        """Nodes verified, root left out."""
        return self.tree.total_tokens - 1

    @property
    def draft_rows(self) -> int:
        """Rows all draft passes write."""
        return max(self.tree.passes * self.tree.topk, self.tree.total_tokens)

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """As EAGLE."""
        net = eagle_layer(target, "eagle2", fc_inputs=2)
        return layer_memory(net, "bf16", kv, tp, own_head=False)

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """As EAGLE, with ``topk`` rows a sequence in the later passes."""
        net = eagle_layer(target, "eagle2", fc_inputs=2)
        return dynamic_passes(net, net, self.tree, tp)

    def resolved_acceptance(self) -> Acceptance:
        """The published tau of the reference tree when none is given."""
        return acceptance_or_default(self.acceptance, "eagle2_llama31_8b_mtbench", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Tau of the dynamic tree, spread over its levels at one rate."""
        return chain_law(self.resolved_acceptance(), self.depth, domains)
