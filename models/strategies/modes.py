"""Strategies made of other strategies: what holds for every kind of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from models.acceptance import Acceptance, Law
from models.engine import Engine
from models.schema import Dtype, KvDtype, ModelError
from models.strategies.autoregressive import Autoregressive
from models.strategies.base import DraftPass, ExtraMemory, Strategy
from models.strategies.draft_model import DraftModel
from models.strategies.eagle import Eagle
from models.strategies.eagle2 import Eagle2
from models.strategies.eagle3 import Eagle3
from models.strategies.lookahead import Lookahead
from models.strategies.medusa import Medusa
from models.strategies.mtp import Mtp
from models.strategies.ngram import Ngram
from models.transformer import Transformer

if TYPE_CHECKING:
    AnyMode = Strategy
else:
    AnyMode = Annotated[
        Autoregressive | DraftModel | Eagle | Eagle2 | Eagle3 | Lookahead | Medusa | Mtp | Ngram,
        Field(discriminator="kind"),
    ]


class Switching(Strategy):
    """A strategy whose sequences are in one of several modes, each a strategy of its own.

    All of them are in memory, and slots stay reserved for the largest. No engine version ships
    one, so it is simulated with ``hypothetical: true``; its host work is hidden where that of all
    its modes is.
    """

    switches: ClassVar[bool] = True

    @property
    def start(self) -> int:
        """Mode a sequence starts in, and whose acceptance and family speak for the whole."""
        return 0

    @property
    def loaded(self) -> Mapping[str, Strategy]:
        """Strategies whose weights are in memory, by the key they stand under."""
        raise NotImplementedError

    @property
    def parts(self) -> Mapping[str, Strategy]:
        """See `Strategy.parts`."""
        return self.loaded

    @property
    def depth(self) -> int:
        """Of the mode that accepts most."""
        return max(mode.depth for mode in self.modes)

    @property
    def drafted(self) -> int:
        """Of the mode that verifies most."""
        return max(mode.drafted for mode in self.modes)

    @property
    def draft_rows(self) -> int:
        """Of the mode that writes most."""
        return max(mode.draft_rows for mode in self.modes)

    @property
    def needs_tree(self) -> bool:
        """Whether any mode does."""
        return any(mode.needs_tree for mode in self.modes)

    @property
    def band_family(self) -> str:
        """Of the mode it starts in."""
        return self.modes[self.start].band_family

    def runs_on(self, engine: Engine) -> bool:
        """Whether the engine switches by itself, and runs every mode."""
        return self.kind in engine.supports and all(mode.runs_on(engine) for mode in self.modes)

    def scheduled_ahead(self, engine: Engine) -> bool:
        """Whether every mode is."""
        return all(mode.scheduled_ahead(engine) for mode in self.modes)

    def varies_width(self, engine: Engine) -> bool:
        """Always: steps differ by mode."""
        return True

    def check(self, target: Transformer, tp: int) -> None:
        """Refuse what a mode refuses, under the key it stands under."""
        for key, part in self.loaded.items():
            try:
                part.check(target, tp)
            except ModelError as error:
                raise ModelError(str(error), ".".join(filter(None, (key, error.key)))) from error

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """Everything its modes need, at once."""
        each = [part.memory(target, weights, kv, tp) for part in self.loaded.values()]
        return ExtraMemory(*map(sum, zip(*each, strict=True)))

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """Of the mode it starts in."""
        return self.modes[self.start].draft_passes(target, engine, weights, tp)

    def resolved_acceptance(self) -> Acceptance | None:
        """Of the mode it starts in."""
        return self.modes[self.start].resolved_acceptance()

    def law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Of the mode it starts in; the others are checked as well."""
        for key, part in self.loaded.items():
            try:
                part.law(engine, domains)
            except ModelError as error:
                raise ModelError(str(error), ".".join(filter(None, (key, error.key)))) from error
        return self.modes[self.start].law(engine, domains)
