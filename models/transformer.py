"""Transformers: shapes, and the only parameter, byte and FLOP counts in the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from models.schema import (
    BYTES_PER_KV,
    BYTES_PER_WEIGHT,
    Dtype,
    Frozen,
    KvDtype,
    ModelError,
    PositiveInt,
)
from models.strict_yaml import Document, InputError, one_line, read_bytes, show, validate


class Transformer(Frozen):
    """Shape of a decoder-only transformer, or of a draft network built from its layers.

    Attributes
    ----------
    intermediate : int
        Width of a dense feed-forward block.
    experts, experts_per_token, expert_intermediate, shared_experts, dense_layers : int
        Mixture of experts; ``experts`` is 0 for a dense model and ``dense_layers`` counts the
        leading dense blocks of a mixture.
    qkv_inputs : int
        Hidden vectors concatenated at the input of the attention projection (2 for EAGLE-3).
    fc_inputs : int
        Hidden vectors a draft network first projects to one (2 for EAGLE, 3 for EAGLE-3; 0 none).
    mtp_layers : int
        Multi-token-prediction layers the checkpoint carries.
    top_p_default : bool
        The published generation config turns top-p sampling on.
    repository : str or None
        Hugging Face repository of the checkpoint the numbers are of.
    source : str
        Where the numbers were read.
    """

    name: str
    title: str
    layers: PositiveInt
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocab: PositiveInt
    max_position: PositiveInt
    tied_embeddings: bool = False
    qk_norm: bool = False
    experts: int = Field(default=0, ge=0)
    experts_per_token: int = Field(default=0, ge=0)
    expert_intermediate: int = Field(default=0, ge=0)
    shared_experts: int = Field(default=0, ge=0)
    dense_layers: int = Field(default=0, ge=0)
    qkv_inputs: PositiveInt = 1
    fc_inputs: int = Field(default=0, ge=0)
    mtp_layers: int = Field(default=0, ge=0)
    top_p_default: bool = False
    repository: str | None = None
    source: str

    @model_validator(mode="after")
    def _consistent(self) -> Transformer:
        if self.heads % self.kv_heads:
            raise ModelError(f"must divide the {self.heads} heads, got {self.kv_heads}", "kv_heads")
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ModelError(
                f"must be 1 to the {self.experts} experts, got {self.experts_per_token}",
                "experts_per_token",
            )
        if self.experts and not self.expert_intermediate:
            raise ModelError("a mixture of experts needs it, got 0", "expert_intermediate")
        if self.dense_layers > self.layers:
            raise ModelError(
                f"must not exceed the {self.layers} layers, got {self.dense_layers}", "dense_layers"
            )
        return self

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward block is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    def attention_params(self) -> int:
        """Weights of one attention block: q, k, v and output projections."""
        qkv = self.hidden * self.qkv_inputs * (self.heads + 2 * self.kv_heads) * self.head_dim
        return qkv + self.heads * self.head_dim * self.hidden

    def dense_ffn_params(self) -> int:
        """Weights of one dense gated feed-forward block."""
        return 3 * self.hidden * self.intermediate

    def moe_ffn_params(self) -> int:
        """Weights of one mixture block: all experts, shared experts and the router."""
        experts = self.experts + self.shared_experts
        return 3 * self.hidden * self.expert_intermediate * experts + self.hidden * self.experts

    def layer_params(self) -> int:
        """Weights of all layers, norms left out (under 0.01 %), draft projections included."""
        dense = self.layers - self.moe_layers
        ffn = dense * self.dense_ffn_params() + self.moe_layers * self.moe_ffn_params()
        return self.layers * self.attention_params() + ffn + self.fc_params()

    def fc_params(self) -> int:
        """Weights of the projection in front of a draft network."""
        return self.fc_inputs * self.hidden * self.hidden

    def lm_head_params(self) -> int:
        """Weights of the output projection."""
        return self.hidden * self.vocab

    def params(self) -> int:
        """All weights: layers, embedding and, where not tied, the LM head."""
        return self.layer_params() + self.lm_head_params() * (1 if self.tied_embeddings else 2)

    def weight_bytes(self, weights: Dtype) -> float:
        """Memory of the whole model [byte]; embedding and LM head stay in bf16."""
        ends = self.params() - self.layer_params()
        return self.layer_params() * BYTES_PER_WEIGHT[weights] + ends * BYTES_PER_WEIGHT["bf16"]

    def kv_bytes_per_token(self, kv: KvDtype, tp: int) -> float:
        """KV cache of one token on one GPU, all layers [byte]; KV heads are replicated past tp."""
        heads = -(-self.kv_heads // tp)
        return 2 * heads * self.head_dim * BYTES_PER_KV[kv] * self.layers

    def pass_flops(self, tokens: float, rows: float, query_ctx: float) -> float:
        """Arithmetic of one forward pass [FLOP], a multiply-add counted as two.

        Parameters
        ----------
        tokens, rows : float
            Tokens through the layers, and rows through the LM head.
        query_ctx : float
            Sum over query tokens of the context each attends to.
        """
        per_token = self.layers * self.attention_params() + self.fc_params()
        per_token += (self.layers - self.moe_layers) * self.dense_ffn_params()
        per_expert = 3 * self.hidden * self.expert_intermediate
        per_token += self.moe_layers * per_expert * (self.experts_per_token + self.shared_experts)
        per_token += self.moe_layers * self.hidden * self.experts
        attention = 4 * self.layers * self.heads * self.head_dim * query_ctx
        return 2 * (per_token * tokens + self.lm_head_params() * rows) + attention

    def pass_bytes(self, tokens: float, ctx: float, weights: Dtype, kv: KvDtype) -> float:
        """Weights and KV one forward pass reads [byte]: experts hit, context once a sequence."""
        idle = 0.0
        if self.experts:
            missed = (1.0 - self.experts_per_token / self.experts) ** tokens
            per_expert = 3 * self.hidden * self.expert_intermediate
            idle = self.moe_layers * self.experts * per_expert * missed
        head = self.lm_head_params() * BYTES_PER_WEIGHT["bf16"]
        read = (self.layer_params() - idle) * BYTES_PER_WEIGHT[weights] + head
        return read + self.kv_bytes_per_token(kv, 1) * ctx

    def check_tp(self, tp: int) -> None:
        """Refuse a tensor-parallel size that cannot split this model.

        Raises
        ------
        ModelError
            If ``tp`` does not divide the query heads, or neither divides nor is a multiple of
            the KV heads.
        """
        if self.heads % tp:
            raise ModelError(f"must divide the {self.heads} heads of {self.name}, got {tp}")
        if self.kv_heads % tp and tp % self.kv_heads:
            raise ModelError(
                f"must divide or be a multiple of the {self.kv_heads} KV heads of "
                f"{self.name}, got {tp}"
            )


def from_hf_config(path: Path | str, name: str | None = None) -> Transformer:
    """Read a Hugging Face ``config.json``.

    Parameters
    ----------
    path : path-like
        The file, or the folder that holds it.
    name : str, optional
        Name to give; the folder or file name by default.

    Raises
    ------
    ModelError
        If the file is missing, is not JSON, lacks a shape or has an impossible one, or describes an
        attention that is not modelled yet (multi-head latent attention, state-space layers).
    """
    file = Path(path)
    try:
        if file.is_dir():
            file = file / "config.json"
        raw = read_bytes(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"cannot read {file}: {reason}") from error
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"{file} is not JSON: {reason}") from error
    text = config.get("text_config", config) if isinstance(config, dict) else None
    if not isinstance(text, dict):
        raise ModelError(f"{file} does not hold a JSON object of a transformer")
    label = one_line(name or (file.parent.name if file.name == "config.json" else file.stem))
    source = one_line(str(file))
    try:
        return validate(Transformer, Document(_shapes(text, label, source), source))
    except InputError as error:
        key = _HF_KEYS.get(error.key, error.key)
        raise ModelError(f"{source}: {key}: {error.message}") from None


def _shapes(config: dict[str, Any], name: str, source: str) -> dict[str, Any]:
    """Fields of a Transformer, each size a whole number."""
    if config.get("kv_lora_rank"):
        raise ModelError(f"{name}: multi-head latent attention is not modelled yet")

    def size(key: str, default: int | None = None) -> int:
        return _size(config, key, default, source)

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    experts = next((size(key) for key in _EXPERT_KEYS if config.get(key)), 0)
    width_key = "moe_intermediate_size" if config.get("moe_intermediate_size") else _WIDTH
    expert_width = size(width_key)
    return {
        "name": name,
        "title": name,
        "layers": size("num_hidden_layers"),
        "hidden": hidden,
        "intermediate": size(_WIDTH, expert_width),
        "heads": heads,
        "kv_heads": size("num_key_value_heads", heads),
        "head_dim": size("head_dim", hidden // heads),
        "vocab": size("vocab_size"),
        "max_position": size("max_position_embeddings", 2048),
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        "qk_norm": bool(config.get("use_qk_norm")) or str(config.get("model_type")) in _QK_NORM,
        "experts": experts,
        "experts_per_token": size("num_experts_per_tok", 0) if experts else 0,
        "expert_intermediate": expert_width if experts else 0,
        "shared_experts": size("n_shared_experts", _shared(config)) if experts else 0,
        "dense_layers": size("first_k_dense_replace", 0) if experts else 0,
        "mtp_layers": size("num_nextn_predict_layers", 0),
        "source": source,
    }


def _shared(config: dict[str, Any]) -> int:
    """Shared experts of an architecture whose configuration does not count them."""
    return int(str(config.get("model_type")) in _ONE_SHARED)


def _size(config: dict[str, Any], key: str, default: int | None, source: str) -> int:
    """A whole number of a configuration; the default, where there is one, for none, null or 0."""
    value = config.get(key)
    if not value and default is not None:
        return default
    if key not in config:
        raise ModelError(f"{source}: {key} is missing")
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(whole) is not int or not 1 <= whole <= _LARGEST:
        raise ModelError(f"{source}: {key}: must be an integer from 1 to 1e9, got {show(value)}")
    return whole


_LARGEST = 10**9
_WIDTH = "intermediate_size"
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
_ONE_SHARED = frozenset({"llama4_text"})
_QK_NORM = frozenset({"qwen3", "qwen3_moe"})
_HF_KEYS = {
    "kv_heads": "num_key_value_heads",
    "experts_per_token": "num_experts_per_tok",
    "dense_layers": "first_k_dense_replace",
}
