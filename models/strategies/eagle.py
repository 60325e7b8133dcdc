"""EAGLE: one decoder layer over the target's features drafts a chain or a static tree."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from models.acceptance import Acceptance, Law, chain_law, tree_law
from models.engine import Engine
from models.kv_layout import Branches
from models.schema import BYTES_PER_WEIGHT, Dtype, KvDtype, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.transformer import Transformer
from models.trees import Tree, TreeSpec, make_tree, tree_depth, tree_leaves


def eagle_layer(target: Transformer, name: str, **changes: int) -> Transformer:
    """One dense decoder layer of the target's shape, the body of an EAGLE-like draft."""
    one = {"layers": 1, "experts": 0, "dense_layers": 0, "mtp_layers": 0, "name": name}
    return target.model_copy(update={**one, **changes})


def layer_memory(
    net: Transformer, weights: Dtype, kv: KvDtype, tp: int, own_head: bool
) -> ExtraMemory:
    """Layer, projections and KV of a one-layer draft; the LM head only where it is its own."""
    params = net.layer_params() * BYTES_PER_WEIGHT[weights]
    head = net.lm_head_params() * BYTES_PER_WEIGHT["bf16"] if own_head else 0.0
    return ExtraMemory((params + head) / tp, net.kv_bytes_per_token(kv, tp))


def level_rows(tree: Tree) -> tuple[int, ...]:
    """Rows of each draft pass after the first: the nodes of that level which have children."""
    parents = {path[:-1] for path in tree if len(path) > 1}
    return tuple(
        sum(1 for path in parents if len(path) == level) for level in range(1, tree_depth(tree))
    )


class Eagle(Strategy):
    """EAGLE (1): ``k`` passes of one layer with the target's LM head; its tree is ``eagle_25``."""

    kind: Literal["eagle"] = "eagle"
    k: PositiveInt = Field(default=3, le=32, description="Draft tokens a step of a chain.")
    tree: TreeSpec | None = Field(default=None, description="Static tree instead of a chain.")
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "eagle"
    drops_matched_block: ClassVar[bool] = True
    drafts_ahead: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_shape(self) -> Eagle:
        if self.tree is not None and "k" in self.model_fields_set:
            raise ValueError("give k for a chain or tree for a tree, not both")
        return self

    def _default_label(self) -> str:
        return f"eagle K={self.k}" if self.tree is None else f"eagle tree of {self.drafted}"

    @property
    def paths(self) -> Tree | None:
        """The tree, None for a chain."""
        return None if self.tree is None else make_tree(self.tree)

    @property
    def depth(self) -> int:
        """K, or the height of the tree."""
        return self.k if self.paths is None else tree_depth(self.paths)

    @property
    def drafted(self) -> int:
        """K, or the nodes of the tree."""
        return self.k if self.paths is None else len(self.paths)

    @property
    def branches(self) -> tuple[Branches, ...]:
        """Leaves of the tree, each as far from the root as the deepest."""
        leaves = 1 if self.paths is None else tree_leaves(self.paths)
        return (Branches(leaves, 1 + self.depth),)

    def network(self, target: Transformer) -> Transformer:
        """The draft layer behind a projection of feature and embedding (2h -> h)."""
        return eagle_layer(target, "eagle", fc_inputs=2)

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """The layer and its KV; the LM head is the target's."""
        return layer_memory(self.network(target), "bf16", kv, tp, own_head=False)

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """First pass over every token of the step, then one pass a level."""
        net = self.network(target)
        first = DraftPass(net, tp, "bf16", covers_prefill=True)
        if self.paths is not None:
            later = (DraftPass(net, tp, "bf16", rows=rows) for rows in level_rows(self.paths))
            return (first, *later)
        if self.k == 1:
            return (first,)
        return first, DraftPass(net, tp, "bf16", repeat=self.k - 1)

    def resolved_acceptance(self) -> Acceptance:
        """Published traces of a chain, or the published tau of ``eagle_25``, when none is given."""
        entry = "eagle_llama31_8b" if self.paths is None else "eagle_vicuna_13b"
        return acceptance_or_default(self.acceptance, entry, self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Chain or tree acceptance."""
        if self.paths is None:
            return chain_law(self.resolved_acceptance(), self.k, domains)
        return tree_law(self.resolved_acceptance(), self.paths, domains)
