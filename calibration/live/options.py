"""What ``speccast observe`` was asked for, checked before anything is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from pydantic import ValidationError

from calibration.live.client import Asking
from calibration.live.prompts import Prompts
from calibration.live.schedule import Asked
from models.strategies import strategy_types
from models.strict_yaml import InputError, load_yaml, one_line

RESERVED = (
    ("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "n")
)
"""Keys of a request that are not the user's to set."""
USUAL_KEY = "OPENAI_API_KEY"


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
    metrics_url : str or None
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
    metrics_url: str | None = None
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
            "timeout_s": asking.timeout_s,
            "retries": asking.retries,
            "seed": asked.seed,
            "machine": self.machine,
        }
        given: dict[str, Any] = json.loads(json.dumps(said))
        return given


def base_url(text: str) -> str:
    """A base URL as given.

    Raises
    ------
    InputError
        If it is none of HTTP.
    """
    try:
        url = httpx.URL(text)
        right = url.scheme in ("http", "https") and bool(url.host)
    except (httpx.InvalidURL, ValueError):
        right = False
    if not right:
        raise InputError("", None, "--base-url", "must be as in http://host:8000/v1")
    return text


def public(url: str) -> str:
    """A URL without credentials, query and fragment."""
    shown = httpx.URL(url).copy_with(username="", password="", query=None, fragment=None)
    return str(shown)


def metrics_url(given: str | None, base: str) -> str:
    """Where the server tells of itself: beside the API, unless the user says."""
    if given is not None:
        return given
    url = httpx.URL(base)
    path = url.path.rstrip("/").removesuffix("/v1")
    return str(url.copy_with(path=f"{path}/metrics", query=None, fragment=None))


def api_key(name: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key from the environment; None where there is none.

    Raises
    ------
    InputError
        If the variable asked for is not set, or cannot be a key. The key is not shown.
    """
    key = environment.get(name or USUAL_KEY, "").strip()
    where = f"--api-key-env {name or USUAL_KEY}"
    if name is not None and not key:
        raise InputError("", None, where, "is not set in the environment")
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise InputError("", None, where, "holds what cannot stand in a header")
    return key or None


def extra_body(text: str | None) -> dict[str, Any]:
    """Further keys of every request.

    Raises
    ------
    InputError
        If it is no JSON object, or sets what is not the user's to set.
    """
    if text is None:
        return {}
    try:
        body = json.loads(text)
    except ValueError as error:
        raise InputError("", None, "--extra-body", f"is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InputError("", None, "--extra-body", "must be a JSON object")
    for key in RESERVED:
        if key in body:
            raise InputError("", None, "--extra-body", f"must not set '{key}'")
    return body


def strategy(text: str | None, label: str | None) -> tuple[str, dict[str, Any]]:
    """Label and block of the strategy the server runs.

    Raises
    ------
    InputError
        If it is no strategy.
    """
    data = {"kind": "autoregressive"} if text is None else load_yaml(text, "--strategy").data
    known = strategy_types()
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in known:
        message = f"needs a kind, one of {', '.join(known)}; got {one_line(str(kind))}"
        raise InputError("", None, "--strategy", message)
    block = {key: value for key, value in data.items() if key not in ("acceptance", "label")}
    try:
        built = known[kind].model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(("--strategy", *map(str, first["loc"])))
        raise InputError("", None, where, one_line(first["msg"])) from None
    return label or built.name, block


def numbers(text: str, option: str, whole: bool) -> list[Any]:
    """Loads by comma, as ``1,8,16``; each positive and given once.

    Raises
    ------
    InputError
    """
    try:
        found: Sequence[float] = [(int if whole else float)(part) for part in text.split(",")]
    except ValueError:
        found = []
    good = found and all(0 < one < 1e6 for one in found) and len(set(found)) == len(found)
    if not good:
        kind = "whole numbers" if whole else "numbers"
        message = f"must be different {kind} above 0 by comma, got '{one_line(text)}'"
        raise InputError("", None, option, message)
    return list(found)


__all__ = ["Options", "api_key", "base_url", "extra_body", "metrics_url", "numbers", "strategy"]
