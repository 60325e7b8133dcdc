"""A Hugging Face config.json that cannot be used: one line with the file and the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models import catalog
from models.schema import ModelError

LLAMA = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads: must divide the 32 heads, got 7"),
        ({"num_attention_heads": 0}, "num_attention_heads: must be an integer from 1 to 1e9"),
        ({"hidden_size": "wide"}, "hidden_size: must be an integer from 1 to 1e9, got 'wide'"),
        ({"hidden_size": float("inf")}, "hidden_size: must be an integer from 1 to 1e9, got inf"),
        ({"head_dim": -1}, "head_dim: must be an integer from 1 to 1e9, got -1"),
        ({"num_experts": 8}, "num_experts_per_tok: must be 1 to the 8 experts, got 0"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 33},
            "first_k_dense_replace: must not exceed the 32 layers, got 33",
        ),
    ],
)
def test_an_impossible_shape_names_file_and_field(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({**LLAMA, **change}), "utf-8")
    with pytest.raises(ModelError) as caught:
        catalog.transformer(str(file))
    assert str(caught.value).startswith(f"{file}: {message}")
    assert len(str(caught.value)) < len(str(file)) + 100


def test_llama_4_has_a_shared_expert_that_its_configuration_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "scout.json"
    experts = {"num_local_experts": 16, "num_experts_per_tok": 1}
    for kind, shared in (("llama4_text", 1), ("mixtral", 0)):
        text = {**LLAMA, **experts, "model_type": kind}
        file.write_text(json.dumps({"text_config": text}), "utf-8")
        assert catalog.transformer(str(file)).shared_experts == shared


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "{", "\xff", ""])
def test_what_is_no_json_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text, "latin-1")
    with pytest.raises(ModelError, match=r"mine\.json is not JSON: "):
        catalog.transformer(str(file))
    with pytest.raises(ModelError, match=r"cannot read /dev/zero: it is larger than"):
        catalog.transformer("/dev/zero")
