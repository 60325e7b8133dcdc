"""Trained parts of a target from the folder that ``calibrate train-heads`` leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from calibration.decoding import weights
from calibration.decoding.costs import Costs
from calibration.decoding.decoder import Decoder
from calibration.decoding.network import Network
from models.schema import ModelError


class StoredParts:
    """What strategies take from a folder, or as a draft from a model of one's own.

    Parameters
    ----------
    target : Target
    network : Network
        Of the target.
    folder : Path
        Of ``calibrate train-heads``; read when first asked for.
    draft : str or None
        A folder of weights in place of the trained draft.
    measure : callable
        A decoder -> what its drafts cost; asked once.
    """

    def __init__(
        self,
        target: weights.Target,
        network: Network,
        folder: Path,
        draft: str | None,
        measure: Callable[[Decoder], Costs],
    ) -> None:
        self._target, self._network = target, network
        self._folder, self._draft, self._measure = folder, draft, measure
        self._costs: Costs | None = None

    def medusa(self) -> Any:
        """See `Parts`."""
        return self._stored.medusa

    def eagle(self) -> Any:
        """See `Parts`."""
        return self._stored.eagle

    def draft(self) -> tuple[Network, str]:
        """See `Parts`."""
        return self._own_draft if self._draft is not None else self._stored.draft

    def costs(self, drafting: Decoder) -> Costs:
        """See `Parts`."""
        if self._costs is None:
            self._costs = self._measure(drafting)
        return self._costs

    @cached_property
    def _stored(self) -> Any:
        raise ModelError(
            f"no trained parts in '{self._folder}': speccast calibrate train-heads --model "
            f"{self._target.transformer} --out {self._folder}",
            "--heads",
        )

    @cached_property
    def _own_draft(self) -> tuple[Network, str]:
        assert self._draft is not None
        try:
            loaded = weights.load(self._draft, self._target.dtype, self._target.device)
        except ModelError as error:
            raise ModelError(str(error), "--draft") from error
        return Network(loaded.model), loaded.transformer
