"""An observation as it was asked for, and what of it a later run must share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from calibration.live.address import public
from calibration.live.observe.asking import Asking
from calibration.live.observe.prompts import Prompts
from calibration.live.observe.schedule import Asked


class Options(NamedTuple):
    """One observation.

    Attributes
    ----------
    out : Path
    asking : Asking
        Server, model, and how each request is put.
    asked : Asked
        The load.
    prompts : Prompts
    tokens : int
        Most tokens of an answer whose prompt does not say.
    label : str
        Of the strategy the server runs.
    block : dict
        That strategy in a scenario, without acceptance.
    same_prompts : bool
        Send prompts as they are, so that a prefix cache may know them.
    metrics_urls : tuple of str
        Where the server may tell of itself.
    machine : str
        What the server runs on.
    """

    out: Path
    asking: Asking
    asked: Asked
    prompts: Prompts
    tokens: int
    label: str
    block: dict[str, Any]
    same_prompts: bool = False
    metrics_urls: tuple[str, ...] = ()
    machine: str = "unknown"

    def settings(self) -> dict[str, Any]:
        """All that a later run must share to go on with this one, as JSON gives it back."""
        asking, asked = self.asking, self.asked
        said = {
            "base_url": public(asking.base_url),
            "model": asking.model,
            "api": asking.api,
            "mode": asked.mode,
            "concurrency": list(asked.concurrency),
            "rate": list(asked.rates_per_s),
            "rate_scale": asked.rate_scale,
            "tokens": self.tokens,
            "prompts": {"name": self.prompts.source, "sha256": self.prompts.digest},
            "same_prompts": self.same_prompts,
            "requests": asked.requests,
            "warm_up": asked.warm_up,
            "repeats": asked.repeats,
            "strategy": {"name": self.label, **self.block},
            "body": dict(asking.body),
            "max_tokens_key": asking.max_tokens_key,
            "timeout_s": asking.timeout_s,
            "retries": asking.retries,
            "seed": asked.seed,
            "machine": self.machine,
        }
        given: dict[str, Any] = json.loads(json.dumps(said))
        return given
