"""Trained parts of a target from the folder that ``calibrate train-heads`` leaves."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from calibration.decoding import weights
from calibration.decoding.network import Network
from models.schema import ModelError


class StoredParts:
    """What strategies take from a folder, or as a draft from a model of one's own.

    Parameters
    ----------
    target : Target
    folder : Path
        Of ``calibrate train-heads``; read when first asked for.
    draft : str or None
        A folder of weights in place of the trained draft.
    """

    def __init__(self, target: weights.Target, folder: Path, draft: str | None = None) -> None:
        self.target, self._loaded = Network(target.model), target
        self._folder, self._draft = folder, draft

    @cached_property
    def _stored(self) -> Any:
        raise ModelError(
            f"no trained parts in '{self._folder}': speccast calibrate train-heads --model "
            f"{self._loaded.transformer} --out {self._folder}",
            "--heads",
        )

    def medusa(self) -> Any:
        """See `Parts`."""
        return self._stored.medusa

    def eagle(self) -> Any:
        """See `Parts`."""
        return self._stored.eagle

    def draft(self) -> tuple[Network, str]:
        """See `Parts`."""
        return self._own_draft if self._draft is not None else self._stored.draft

    @cached_property
    def _own_draft(self) -> tuple[Network, str]:
        assert self._draft is not None
        try:
            loaded = weights.load(self._draft, self._loaded.dtype, self._loaded.device)
        except ModelError as error:
            raise ModelError(str(error), "--draft") from error
        return Network(loaded.model), loaded.transformer
