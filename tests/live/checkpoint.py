"""Folders that servers read: SmolLM2-135M from its installed package, Medusa heads beside it.

    python -m live.checkpoint DIR [--heads HEADS]

writes DIR/smol and, given a folder of ``calibrate train-heads``, DIR/medusa.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from calibration.decoding.weights import load

TARGET, MEDUSA = "smol", "medusa"
FILE = "model.safetensors"


def write_target(folder: Path) -> None:
    """The weights unpacked to bf16, with tokenizer and chat template."""
    target = load()
    model = target.model
    # What transformers remembers of the packed file would make it save or read packed weights.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)


def write_medusa(target: Path, heads: Path, folder: Path) -> None:
    """Our heads in the names vLLM reads.

    Both call a head ``x + silu(Linear(x))`` on the state after the last norm, and both share the
    LM head of the target (here its embedding, which is tied).
    """
    from safetensors.torch import load_file, save_file

    embedding = load_file(target / FILE)["model.embed_tokens.weight"]
    trained = load_file(heads / "medusa.safetensors")
    weights = {_vllm_name(name): one.to(embedding.dtype) for name, one in trained.items()}
    count = 1 + max(int(name.split(".")[1]) for name in trained)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({**weights, "lm_head.weight": embedding}, folder / FILE, metadata={"format": "pt"})
    vocabulary, hidden = embedding.shape
    config: dict[str, Any] = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "num_heads": count,
        "num_hidden_layers": 1,
        "medusa_fc_bias": True,
        "original_lm_head": True,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _vllm_name(name: str) -> str:
    """``blocks.2.weight`` -> ``blocks.2.layers.0.weight``."""
    _, head, part = name.split(".")
    return f"blocks.{head}.layers.0.{part}"


def make(folder: Path, heads: Path | None = None) -> None:
    """Whatever of both is missing."""
    if not (folder / TARGET / FILE).exists():
        write_target(folder / TARGET)
    if heads is not None and not (folder / MEDUSA / FILE).exists():
        write_medusa(folder / TARGET, heads, folder / MEDUSA)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m live.checkpoint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heads", type=Path)
    asked = parser.parse_args()
    make(asked.folder, asked.heads)
