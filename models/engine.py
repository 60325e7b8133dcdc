"""Serving engines: what one version costs on the host and which rules it follows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from models.schema import Basis, Constant, Frozen, ModelError, NonNegative, PositiveInt

StrategyKind = str


class HostCost(Frozen):
    """Host time the GPU waits for: ``per_step_us + per_sequence_us * running``, and drafts.

    ``per_draft_token_us`` comes on top for every token drafted: a scheduler in Python goes through
    the tokens of each sequence, one by one.
    """

    per_step_us: Constant
    per_sequence_us: Constant
    per_draft_token_us: Constant | None = None


class Fp8Kv(Frozen):
    """How long attention takes over a KV cache of fp8, next to one of bf16.

    ``per_token_by_group`` is the time of one cached token over that in bf16, by query heads that
    share a KV head; ``per_layer_us`` is added to every call, as for quantising queries.
    """

    per_token_by_group: dict[PositiveInt, Constant] = Field(min_length=1)
    per_layer_us: Constant

    def per_token(self, group: float) -> float:
        """Time of a token over that in bf16, from the nearest group that was measured."""
        nearest = min(self.per_token_by_group, key=lambda known: abs(math.log(known / group)))
        return self.per_token_by_group[nearest].value


class Sampler(Frozen):
    """Top-p/top-k sampling, in seconds a logit; nothing is charged when sampling is greedy.

    ``draft_s_per_logit`` prices the rows of drafted tokens where another kernel handles them;
    with ``bonus_with_drafts`` that kernel also takes the other rows of a speculating sequence.
    Below ``small_batch_rows`` rows are sorted, at a rate of their own; ``sort_fixed_us`` is what a
    sort of fewer than ``many_rows`` rows takes besides, and ``many_s_per_logit`` the rate from
    there on, where each row is sorted by itself.
    """

    s_per_logit: Constant
    draft_s_per_logit: Constant
    small_batch_s_per_logit: Constant | None = None
    small_batch_rows: int = Field(default=0, ge=0)
    sort_fixed_us: Constant | None = None
    many_s_per_logit: Constant | None = None
    many_rows: int = Field(default=128, ge=1)
    bonus_with_drafts: bool = False


class GraphRule(Frozen):
    """CUDA-graph capture sizes: 1, 2, 4, 8-steps to ``fine_to``, then 16-steps to ``largest``.

    ``per_sequence_tokens`` lets the largest size grow with K+1; ``round_to_width`` rounds every
    size up to a multiple of K+1; ``decode_only_width`` does so for pure decode steps alone.
    """

    enabled: bool = True
    largest: PositiveInt = 512
    fine_to: PositiveInt = 248
    per_sequence_tokens: bool = True
    round_to_width: bool = False
    decode_only_width: bool = False


class TreeAttention(Frozen):
    """Attention under a tree mask: ``mask_factor flops / (compute peak) + KV bytes / (memory bw)``.

    Query rows (tokens x heads of a KV head) are computed in blocks: the smallest of ``block_rows``
    that holds them all, else several of the largest. ``compute`` and ``memory`` are shares of the
    bf16 peak rate and of the bandwidth under a causal mask. Every branch of a draft reads the
    context for itself.
    """

    compute: Constant
    memory: Constant
    mask_factor: Constant
    block_rows: tuple[PositiveInt, ...] = Field(min_length=1)

    @field_validator("block_rows")
    @classmethod
    def _ascending(cls, rows: tuple[int, ...]) -> tuple[int, ...]:
        if list(rows) != sorted(set(rows)):
            raise ValueError("must ascend")
        return rows

    def padded_rows(self, rows: float) -> float:
        """Query rows computed where ``rows`` of one KV head are asked for."""
        block = next((block for block in self.block_rows if block >= rows), self.block_rows[-1])
        return block * -(-rows // block)


class Engine(Frozen):
    """One engine version.

    Attributes
    ----------
    family : str
        Residual bands and reports group versions by it.
    versions, runner : str
        Releases and model runner the entry describes, for people.
    supports : tuple of str
        Strategy kinds this version can run; others need ``hypothetical: true``.
    async_kinds : tuple of str
        Kinds scheduled one step ahead, which hides their host work behind the GPU.
    host_plain, host_speculative : HostCost
        Host time of a step that is not scheduled ahead, without and with drafts.
    host_step_by_tp_us : dict
        More host time a step by tensor-parallel size, where an engine was bound by it.
    sampling_us : Constant
        Rejection sampling a step, on top of the host time.
    draft_pass_us, draft_layer_us : Constant
        Host time of a draft pass, and the floor under the GPU time of each of its layers.
    draft_vocab_us : Constant or None
        More host time of a draft pass whose vocabulary is not the target's: mapping its logits.
    full_graph_kinds : tuple of str
        Kinds whose whole draft phase runs in CUDA graphs: a pass then costs the host
        ``full_graph_pass_us``, and its layers have no floor.
    tree_pass_us : Constant or None
        More of a draft pass that grows a tree: its best nodes chosen, its kernels planned anew.
    draft_basis : str
        What the draft costs rest on.
    fuses_quantisation : bool
        The kernel before a GEMM of fp8 quantises its activations; False: one of its own does.
    fp8_kv : Fp8Kv or None
        Attention over a KV cache of fp8, where it is not that of the profile's kernels.
    sync_point_band : float
        Extra relative width of the band for asynchronous speculation with sync points left.
    request_us : Constant
        Time of a request outside the engine: API, tokenising, HTTP.
    sampler, graphs : Sampler, GraphRule
        Sampling kernels, and CUDA-graph capture sizes.
    slot_rule : str
        KV slots a speculating sequence reserves (see ``models.kv_memory.kv_slots``).
    block_tokens : int
        Tokens of a KV block.
    prefill : str
        ``chunked`` beside decodes, or ``exclusive`` in steps of its own.
    prefix_cache : bool
        Freed blocks can be found again.
    drop_matched_block : bool
        EAGLE, EAGLE-3 and MTP recompute the last block that hit the prefix cache.
    watermark : float
        Share of the blocks kept free at admission while something runs.
    preemption : str
        ``recompute`` or ``swap``; ``never``: prompt and output are reserved at admission.
    memory_reserve_bytes : Constant
        Activations and CUDA graphs of one GPU.
    tree_verify : bool
        Whether Medusa and EAGLE trees are verified; False: chains only.
    tree_attention : TreeAttention or None
        Kernels that verify trees; None: those that verify chains.
    medusa_rows : str
        Rows the Medusa heads run on: one a sequence, or every tree row.
    ngram_full_width : bool
        The n-gram proposer always verifies K+1 tokens.
    max_num_seqs, max_num_batched_tokens : dict
        Defaults on GPUs the engine counts as ``large`` or ``small``.
    max_num_seqs_speculative : int or None
        Default with speculation, where the engine lowers it.
    source : str
        Where the entry was read.
    given : tuple of str
        Constants a scenario replaced by its own.
    """

    name: str
    title: str
    family: Literal["vllm_v1", "vllm_v0", "sglang", "tensorrt_llm", "transformers", "tgi"]
    versions: str
    runner: str
    supports: tuple[StrategyKind, ...]
    async_kinds: tuple[StrategyKind, ...]
    host_plain: HostCost
    host_speculative: HostCost
    host_step_by_tp_us: dict[int, Constant] = Field(default_factory=dict)
    sampling_us: Constant
    draft_pass_us: Constant
    draft_layer_us: Constant
    tree_pass_us: Constant | None = None
    draft_vocab_us: Constant | None = None
    full_graph_kinds: tuple[StrategyKind, ...] = ()
    full_graph_pass_us: Constant | None = None
    draft_basis: Basis = "validated"
    fuses_quantisation: bool = False
    fp8_kv: Fp8Kv | None = None
    sync_point_band: NonNegative = 0.0
    request_us: Constant
    sampler: Sampler
    graphs: GraphRule
    slot_rule: Literal["vllm_v1", "vllm_v0", "sglang", "sglang_overlap", "reserve_all"]
    block_tokens: PositiveInt = 16
    prefill: Literal["chunked", "exclusive"] = "chunked"
    prefix_cache: bool = True
    drop_matched_block: bool = True
    watermark: float = Field(default=0.0, ge=0, lt=1)
    preemption: Literal["recompute", "swap", "never"] = "recompute"
    memory_reserve_bytes: Constant
    tree_verify: bool = False
    tree_attention: TreeAttention | None = None
    medusa_rows: Literal["sequences", "tree"] = "sequences"
    ngram_full_width: bool = False
    max_num_seqs: dict[Literal["large", "small"], PositiveInt]
    max_num_seqs_speculative: PositiveInt | None = None
    max_num_batched_tokens: dict[Literal["large", "small"], PositiveInt]
    source: str
    given: tuple[str, ...] = ()

    @property
    def constants(self) -> dict[str, Constant]:
        """Its constants by dotted name, as ``host_plain.per_step_us``."""
        return dict(_constants(self))

    def with_constants(self, values: Mapping[str, float]) -> Engine:
        """Return the same version with constants of one's own.

        Parameters
        ----------
        values : mapping
            Dotted name of a constant to its value, in the unit the name carries.

        Raises
        ------
        ModelError
            If there is no constant of that name; ``key`` is the name.
        """
        engine = self
        for name, value in values.items():
            if name not in self.constants:
                raise ModelError(_unknown(name, self.constants), name)
            constant = Constant(value=value, source="the scenario")
            engine = _replaced(engine, name.split("."), constant)
        return engine.model_copy(update={"given": tuple(sorted(values))}) if values else self

    def is_async(self, kind: StrategyKind) -> bool:
        """Whether the host work of this strategy kind is hidden behind the GPU."""
        return kind in self.async_kinds

    def synchronous(self) -> Engine:
        """The same, scheduling no step ahead."""
        return self.model_copy(update={"async_kinds": ()})

    def draft_us(self, kind: StrategyKind, own_vocab: bool = False) -> tuple[float, float]:
        """Host time of one draft pass, and the floor of each of its layers [us].

        ``own_vocab`` says that the draft has another vocabulary than the target.
        """
        if self.full_graph_pass_us is not None and kind in self.full_graph_kinds:
            return self.full_graph_pass_us.value, 0.0
        mapping = self.draft_vocab_us.value if own_vocab and self.draft_vocab_us else 0.0
        return self.draft_pass_us.value + mapping, self.draft_layer_us.value


def _constants(block: BaseModel, prefix: str = "") -> Iterator[tuple[str, Constant]]:
    for name in type(block).model_fields:
        value = getattr(block, name)
        if isinstance(value, Constant):
            yield prefix + name, value
        elif isinstance(value, BaseModel):
            yield from _constants(value, f"{prefix}{name}.")


def _replaced(block: Any, path: list[str], constant: Constant) -> Any:
    head, *rest = path
    inner = _replaced(getattr(block, head), rest, constant) if rest else constant
    return block.model_copy(update={head: inner})


def _unknown(name: str, known: Mapping[str, Constant]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
    return f"no constant of this engine; {hint}"
