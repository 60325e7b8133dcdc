"""The protocol every strategy file implements: one frozen object a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from pydantic import Field, ValidationError

from models import acceptance_file, catalog
from models.acceptance import Acceptance, Law, drafts_recorded, replay_law
from models.engine import Engine
from models.kv_layout import Branches
from models.schema import Dtype, Frozen, KvDtype, ModelError
from models.strict_yaml import Label, dotted
from models.transformer import Transformer


class ExtraMemory(NamedTuple):
    """What a strategy takes from the KV budget of one GPU."""

    weight_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0


class DraftPass(NamedTuple):
    """One kind of forward pass of the draft phase.

    Attributes
    ----------
    net : Transformer
        The network; Medusa heads use only its hidden size and vocabulary.
    tp : int
        Tensor-parallel size of the draft network.
    weights : str
        Type of its weights.
    repeat : int
        Times this pass runs a step, one after another.
    covers_prefill : bool
        The pass sees every query and prefill token of the step (the first pass of a draft that
        must fill its own KV cache); else ``rows`` tokens a sequence.
    rows : int
        Tokens a sequence in a pass that does not cover the prefill, and its LM-head rows.
    head_only : bool
        No layers and no attention: a residual block and an LM head (Medusa).
    """

    net: Transformer
    tp: int
    weights: Dtype
    repeat: int = 1
    covers_prefill: bool = False
    rows: int = 1
    head_only: bool = False


class Strategy(Frozen):
    """Base of all strategies; the fields of a subclass are its YAML keys.

    Attributes
    ----------
    label : str or None
        Name in tables; made from kind and parameters when absent.
    hypothetical : bool
        Allow a strategy the engine version cannot run; results are labelled so.
    """

    kind: str
    label: Label | None = Field(default=None, description="Name in tables.")
    hypothetical: bool = Field(
        default=False, description="Simulate it although the engine version cannot run it."
    )

    family: ClassVar[str] = "plain"
    drops_matched_block: ClassVar[bool] = False
    drafts_ahead: ClassVar[bool] = False
    switches: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Label used in tables."""
        return self.label or self._default_label()

    def _default_label(self) -> str:
        return self.kind

    @property
    def depth(self) -> int:
        """Most draft tokens a step can accept (K of a chain, height of a tree); 0 when plain."""
        return 0

    @property
    def drafted(self) -> int:
        """Draft tokens verified a step (K of a chain, nodes of a tree)."""
        return 0

    @property
    def verify_tokens(self) -> int:
        """Most query tokens of a sequence in the verify pass, the current token included."""
        return 1 + self.drafted

    @property
    def draft_rows(self) -> int:
        """Draft tokens whose KV a step writes before verification (SGLang reserves for them)."""
        return self.drafted

    @property
    def needs_tree(self) -> bool:
        """Whether the engine must verify a tree rather than a chain."""
        return self.drafted > self.depth

    @property
    def branches(self) -> tuple[Branches, ...]:
        """Branches of what is verified, each as long as the tree is deep; a chain is one.

        A tree that is known only once it is drafted counts one path to its last level and every
        other node as a leaf: the most a tree that reaches that level can have.
        """
        leaves = self.drafted - self.depth + 1 if self.needs_tree else 1
        return (Branches(leaves, 1 + self.depth),)

    @property
    def modes(self) -> tuple[Strategy, ...]:
        """Strategies its sequences may be in; itself alone where nothing is switched."""
        return (self,)

    @property
    def parts(self) -> Mapping[str, Strategy]:
        """Strategies it is made of, by the key they stand under; itself under no key."""
        return {"": self}

    @property
    def refill_steps(self) -> int:
        """Steps that accept nothing after a sequence has switched to it."""
        return 0

    @property
    def band_family(self) -> str:
        """Which residuals of a profile speak for it: drafted trees have their own."""
        return "tree" if self.needs_tree and self.drafts_ahead else self.family

    def runs_on(self, engine: Engine) -> bool:
        """Whether this engine version can run it; if not it must be hypothetical."""
        return self.kind in engine.supports and (engine.tree_verify or not self.needs_tree)

    def scheduled_ahead(self, engine: Engine) -> bool:
        """Whether its host work is hidden behind the GPU; never for what cannot run."""
        return self.runs_on(engine) and engine.is_async(self.kind)

    def resolved_acceptance(self) -> Acceptance | None:
        """The acceptance given or its default; None where nothing is drafted.

        Raises
        ------
        ModelError
            If a catalogue entry was measured with another shape.
        """
        return None

    def varies_width(self, engine: Engine) -> bool:
        """Whether the query tokens of a sequence change from step to step."""
        return drafts_recorded(self.resolved_acceptance())

    def check(self, target: Transformer, tp: int) -> None:
        """Refuse a target this strategy cannot serve.

        Raises
        ------
        ModelError
            With the strategy's own key at fault.
        """

    def memory(self, target: Transformer, weights: Dtype, kv: KvDtype, tp: int) -> ExtraMemory:
        """Weights and KV per token beyond the target, on one GPU [byte]."""
        return ExtraMemory()

    def draft_passes(
        self, target: Transformer, engine: Engine, weights: Dtype, tp: int
    ) -> tuple[DraftPass, ...]:
        """Passes of the draft phase, in order; empty when no network drafts."""
        return ()

    def host_draft_us(self) -> tuple[float, float]:
        """Host time of drafting without a network [us]: a step, and more a sequence."""
        return 0.0, 0.0

    def law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """Distribution of the tokens a step emits, by domain.

        Raises
        ------
        ModelError
            Acceptance that does not fit the strategy, or is stated for other domains.
        InputError
            An acceptance file that is wrong.
        """
        acceptance = self.resolved_acceptance()
        if acceptance is None or not acceptance.replay:
            return self.drawn_law(engine, domains)
        return replay_law(acceptance, self.depth, self.drafted, domains, self.varies_width(engine))

    def drawn_law(self, engine: Engine, domains: tuple[str, ...]) -> Law:
        """The law where steps are drawn, not replayed."""
        raise NotImplementedError


def acceptance_or_default(
    acceptance: Acceptance | None, entry: str, strategy: Strategy
) -> Acceptance:
    """The acceptance given, or catalogue entry ``entry`` marked as assumed.

    Raises
    ------
    ModelError
        If the entry is unknown, or states the tau of another number of drafted tokens or levels.
    InputError
        If an acceptance file is wrong.
    """
    chosen = acceptance or Acceptance(catalog=entry, basis="assumed")
    if chosen.file is not None or chosen.by_domain:
        chosen = _with_entries(chosen, strategy)
    if chosen.catalog is not None:
        try:
            shape = catalog.entry("acceptance", chosen.catalog).get("shape")
        except ModelError as error:
            raise ModelError(str(error), "acceptance.catalog") from None
        _check_shape(chosen.catalog, shape, strategy)
    return chosen


def _check_shape(name: str, shape: Mapping[str, int] | None, strategy: Strategy) -> None:
    """Refuse figures measured with another number of drafted tokens or levels."""
    here = {"drafted": strategy.drafted, "depth": strategy.depth}
    if shape is not None and shape != here:
        raise ModelError(
            f"'{name}' is the tau of {shape['drafted']} drafted tokens in {shape['depth']} levels, "
            f"got {here['drafted']} in {here['depth']}; state the acceptance of this shape",
            "acceptance",
        )


def _with_entries(block: Acceptance, strategy: Strategy) -> Acceptance:
    """The block with the entries of its files named, those of its domains included."""
    domains = {name: _with_entries(one, strategy) for name, one in block.by_domain.items()}
    block = block.model_copy(update={"by_domain": domains})
    if block.file is None:
        return block
    file = acceptance_file.read(block.file)
    name = file.named(block.entry, strategy.kind)
    entry = file.entries[name]
    shape = entry.shape.model_dump() if entry.shape is not None else None
    if block.replay:
        shape = _recorded_shape(name, entry, strategy)
    _check_shape(name, shape, strategy)
    return block.model_copy(update={"entry": name})


def _recorded_shape(name: str, entry: acceptance_file.Entry, strategy: Strategy) -> dict[str, int]:
    """Shape of a recorded strategy, which must be of the same kind."""
    if entry.kind != strategy.kind:
        raise ModelError(
            f"entry '{name}' recorded a strategy of kind {entry.kind}, got {strategy.kind}",
            "acceptance.entry",
        )
    try:
        ran = type(strategy).model_validate(entry.strategy)
    except ValidationError as error:
        what = error.errors()[0]
        raise ModelError(
            f"entry '{name}' recorded no strategy of kind {entry.kind}: "
            f"{dotted(what['loc'])}: {what['msg']}",
            "acceptance.entry",
        ) from None
    return {"drafted": ran.drafted, "depth": ran.depth}
