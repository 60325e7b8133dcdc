"""Multi-token prediction: the checkpoint's own extra layer drafts a chain."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models.acceptance import Acceptance, Law, chain_law
from models.engine import Engine
from models.schema import Dtype, KvDtype, ModelError, PositiveInt
from models.strategies.base import DraftPass, ExtraMemory, Strategy, acceptance_or_default
from models.strategies.eagle import layer_memory
from models.transformer import Transformer


class Mtp(Strategy):
    """``k`` passes of the model's multi-token-prediction layer."""

    kind: Literal["mtp"] = "mtp"
    k: PositiveInt = Field(default=1, le=16, description="Draft tokens a step.")
    acceptance: Acceptance | None = Field(default=None, description="How drafts are accepted.")

    family: ClassVar[str] = "mtp"
    drops_matched_block: ClassVar[bool] = True
    drafts_ahead: ClassVar[bool] = True

    def _default_label(self) -> str:
        return f"mtp K={self.k}"

    @property
    def depth(self) -> int:
        """K."""
        return self.k

    @property
    def drafted(self) -> int:
        """K."""
        return self.k

    def check(self, target: Transformer, tp: int) -> None:
        """The checkpoint must carry an MTP layer."""
        if not target.mtp_layers:
            raise ModelError(
                f"{target.name} has no multi-token-prediction layer, got 'mtp'", "kind"
            )

    def network(self, target: Transformer) -> Transformer:
        """One layer of the target's own kind behind a projection 2h -> h."""
        one = {"layers": 1, "dense_layers": 0, "mtp_layers": 0, "fc_inputs": 2, "name": "mtp"}
        return target.model_copy(update=one)

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """The layer and its KV; the LM head is the target's."""
        return layer_memory(self.network(target), weights, kv, tp, own_head=False)

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """First pass over every token of the step, then K-1 of one row a sequence."""
        net = self.network(target)
        first = DraftPass(net, tp, weights, covers_prefill=True)
        if self.k == 1:
            return (first,)
        return first, DraftPass(net, tp, weights, repeat=self.k - 1)

    def resolved_acceptance(self) -> Acceptance:
        """A published MTP run when none is given."""
        return acceptance_or_default(self.acceptance, "mtp_gsm8k", self)

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Chain acceptance."""
        return chain_law(self.resolved_acceptance(), self.k, domains)
