"""Trained parts of a target from the folder that ``calibrate train-heads`` leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.decoding import weights
from calibration.decoding.costs import Costs
from calibration.decoding.decoder import Decoder
from calibration.decoding.network import Network
from models.schema import ModelError

if TYPE_CHECKING:
    from calibration.decoding.heads.store import Trained


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
        A decoder -> what its drafts cost; asked once for each kind.
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
        self._stored: Trained | None = None
        self._costs: dict[str, Costs] = {}

    def medusa(self) -> Any:
        """See `Parts`."""
        return self._part("medusa")

    def eagle(self) -> Any:
        """See `Parts`."""
        return self._part("eagle").layer

    def draft(self) -> tuple[Network, str]:
        """See `Parts`."""
        if self._draft is not None:
            return self._own_draft
        return self._part("draft"), str(self._folder / "draft" / "config.json")

    def costs(self, drafting: Decoder) -> Costs:
        """See `Parts`."""
        kind = str(drafting.strategy["kind"])
        if kind not in self._costs:
            self._costs[kind] = self._measure(drafting)
        return self._costs[kind]

    def costs_of(self, kind: str) -> Costs:
        """What drafts of a kind cost, measured before."""
        return self._costs[kind]

    def digest(self, part: str) -> str:
        """Tells whether a part is the one an earlier run had."""
        module = self.draft()[0].model if part == "draft" else getattr(self, part)()
        return fingerprint(module)

    def _part(self, part: str) -> Any:
        if self._stored is None or getattr(self._stored, part) is None:
            from calibration.decoding.heads import store

            needed, name = (part,), self._target.name
            self._stored = store.load(self._folder, self._network, needed, name)
        return getattr(self._stored, part)

    @cached_property
    def _own_draft(self) -> tuple[Network, str]:
        assert self._draft is not None
        try:
            loaded = weights.load(self._draft, self._target.dtype, self._target.device)
        except ModelError as error:
            raise ModelError(str(error), "--draft") from error
        return Network(loaded.model), loaded.transformer


def fingerprint(module: Any) -> str:
    """Tells models apart: a digest of the first numbers of every weight."""
    digest = hashlib.sha256()
    for name, weight in module.named_parameters():
        some = weight.detach().flatten()[:64].float().cpu().numpy()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + some.tobytes())
    return digest.hexdigest()[:16]
