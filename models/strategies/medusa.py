"""Medusa: extra heads on the last hidden state draft a tree, or a top-1 chain, in one go."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from models.acceptance import Acceptance, Law, tree_law
from models.engine import Engine
from models.kv_layout import Branches
from models.schema import BYTES_PER_WEIGHT, Dtype, KvDtype, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.transformer import Transformer
from models.trees import Tree, TreeSpec, make_tree, tree_depth, tree_leaves


class Medusa(Strategy):
    """``heads`` Medusa heads; without a tree only each head's best token is verified."""

    kind: Literal["medusa"] = "medusa"
    heads: PositiveInt = Field(default=4, le=16, description="Medusa heads.")
    tree: TreeSpec | None = Field(
        default=None,
        description="Tree by name, as paths, as top-k by head; None: the top-1 chain.",
    )
    shared_lm_head: bool = Field(
        default=False, description="Heads reuse the target's LM head instead of their own."
    )
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "medusa"

    @model_validator(mode="after")
    def _enough_heads(self) -> Medusa:
        if tree_depth(self.paths) > self.heads:
            raise ValueError(
                f"a tree of depth {tree_depth(self.paths)} needs as many heads, got {self.heads}"
            )
        return self

    def _default_label(self) -> str:
        shape = "chain" if self.tree is None else f"tree of {self.drafted}"
        return f"medusa {self.heads} heads {shape}"

    @property
    def paths(self) -> Tree:
        """The verified tree; a chain of every head's best token when none is given."""
        return make_tree([1] * self.heads if self.tree is None else self.tree)

    @property
    def depth(self) -> int:
        """Height of the tree."""
        return tree_depth(self.paths)

    @property
    def drafted(self) -> int:
        """Nodes of the tree."""
        return len(self.paths)

    @property
    def branches(self) -> tuple[Branches, ...]:
        """Leaves of the tree, each as far from the root as the deepest."""
        return (Branches(tree_leaves(self.paths), 1 + self.depth),)

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """A residual block h x h a head on every GPU, and a split LM head unless shared."""
        params = float(target.hidden * target.hidden)
        if not self.shared_lm_head:
            params += target.lm_head_params() / tp
        return ExtraMemory(self.heads * params * BYTES_PER_WEIGHT["bf16"])

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """Every head once, on one row a sequence or, in the reference code, on every tree row."""
        rows = self.verify_tokens if engine.medusa_rows == "tree" else 1
        return (DraftPass(target, tp, "bf16", repeat=self.heads, rows=rows, head_only=True),)

    def resolved_acceptance(self) -> Acceptance:
        """Head accuracies of Medusa-1 on Vicuna-7B when none are given."""
        return acceptance_or_default(self.acceptance, "medusa1_vicuna_7b_mtbench", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Tree acceptance from head accuracies."""
        return tree_law(self.resolved_acceptance(), self.paths, domains)
