"""The options of ``speccast observe``, checked before anything is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import numpy as np
import numpy.typing as npt

from calibration.live.address import plain
from calibration.live.observe import prompts as texts
from calibration.live.observe.asking import Api, Asking, MaxTokensKey
from calibration.live.observe.options import Options
from calibration.live.observe.schedule import Asked
from calibration.live.server.scrape import metrics_urls
from calibration.live.stated import stated_strategy
from models.strict_yaml import InputError, one_line

RESERVED = (
    *("model", "messages", "prompt", "stream", "stream_options", "echo"),
    *("max_tokens", "max_completion_tokens", "n", "best_of"),
)
"""Keys of a request that are not the user's to set."""
USUAL_KEY = "OPENAI_API_KEY"
LADDER = "1,2,4,8"
TOKENS = 128
NONE = "none"

Number = TypeVar("Number", int, float)


class Given(NamedTuple):
    """The options as the command line gives them; ``cli`` says what each is."""

    base_url: str
    model: str
    out: str
    concurrency: str | None = None
    rate: str | None = None
    replay: bool = False
    rate_scale: float = 1.0
    tokens: int | None = None
    prompts: Path | None = None
    requests: int | None = None
    repeats: int = 1
    warm_up: int | None = None
    api: Api = "chat"
    strategy: str | None = None
    label: str | None = None
    temperature: str = "0"
    ignore_eos: bool = False
    extra_body: str | None = None
    timeout_s: float = 600.0
    retries: int = 0
    seed: int = 0
    same_prompts: bool = False
    metrics_url: str | None = None
    metrics: bool = True
    api_key_env: str | None = None
    machine: str | None = None
    max_tokens_key: MaxTokensKey = "max_tokens"

    def remarks(self, options: Options) -> list[str]:
        """Which of the options had no effect."""
        if self.tokens is None or options.prompts.trace is None:
            return []
        return [f"--tokens {self.tokens} is not used: the trace says how long each answer is"]


def prepare(given: Given) -> Options:
    """Check the options.

    Raises
    ------
    InputError
        That names the option at fault.
    """
    if not given.out:
        raise InputError("", None, "--out", "needs a folder, got ''")
    url = _address("--base-url", given.base_url, "http://host:8000/v1")
    prompts = texts.read(given.prompts, given.seed)
    texts.check_api(prompts, given.api)
    users, rates, times_s = _loads(given, prompts)
    label, block = stated_strategy(given.strategy, given.label)
    eos = {"ignore_eos": True} if given.ignore_eos else {}
    body = {**_temperature(given.temperature), **eos, **_extra_body(given.extra_body)}
    key = _api_key(given.api_key_env, os.environ)
    if key and httpx.URL(url).userinfo:
        where = f"while {given.api_key_env or USUAL_KEY} holds a key: only one of them can be sent"
        raise InputError("", None, "--base-url", f"has a user and a password {where}")
    return Options(
        Path(given.out),
        Asking(
            *(url, given.model, given.api, body, key, given.timeout_s, given.retries),
            max_tokens_key=given.max_tokens_key,
        ),
        Asked(
            *(users, rates, times_s, given.rate_scale, given.requests, given.warm_up),
            *(given.repeats, given.seed),
        ),
        prompts,
        given.tokens or TOKENS,
        label,
        block,
        given.same_prompts,
        _metrics_urls(given, url),
        given.machine or httpx.URL(url).host,
    )


def _loads(
    given: Given, prompts: texts.Prompts
) -> tuple[list[int], list[float], npt.NDArray[np.float64] | None]:
    """Users, rates, and times of a trace: one of them is given."""
    asked = {"--concurrency": given.concurrency, "--rate": given.rate, "--replay": given.replay}
    options = [option for option, value in asked.items() if value]
    if len(options) > 1:
        raise InputError("", None, options[1], f"cannot go with {options[0]}")
    if given.rate_scale != 1.0 and not given.replay:
        raise InputError("", None, "--rate-scale", "needs --replay")
    if given.replay:
        if prompts.trace is None:
            raise InputError("", None, "--replay", "needs a trace as --prompts")
        return [], [], prompts.trace.arrival_s
    if given.rate is not None:
        return [], _numbers(given.rate, "--rate", float), None
    users = LADDER if given.concurrency is None else given.concurrency
    return _numbers(users, "--concurrency", int), [], None


def _metrics_urls(given: Given, base_url: str) -> tuple[str, ...]:
    """Where the server may tell of itself; nowhere without metrics."""
    if not given.metrics:
        return ()
    if given.metrics_url is None:
        return metrics_urls(plain(base_url))
    return (_address("--metrics-url", given.metrics_url, "http://host:8000/metrics"),)


def _temperature(text: str) -> dict[str, float]:
    """The key of a request, or none for a server that takes none.

    Raises
    ------
    InputError
    """
    if text == NONE:
        return {}
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < np.inf:
        message = f"must be a number from 0, or {NONE}, got '{one_line(text)}'"
        raise InputError("", None, "--temperature", message)
    return {"temperature": value}


def _address(option: str, text: str, example: str) -> str:
    """An address as given.

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
        raise InputError("", None, option, f"must be as in {example}")
    return text


def _api_key(name: str | None, environment: Mapping[str, str]) -> str | None:
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


def _extra_body(text: str | None) -> dict[str, Any]:
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
        # Not every number that Python reads is one that a server can.
        json.dumps(body, allow_nan=False)
    except ValueError as error:
        raise InputError("", None, "--extra-body", f"is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InputError("", None, "--extra-body", "must be a JSON object")
    for key in RESERVED:
        if key in body:
            raise InputError("", None, "--extra-body", f"must not set '{key}'")
    return body


def _numbers(text: str, option: str, kind: type[Number]) -> list[Number]:
    """Loads by comma, as ``1,8,16``; each positive and given once.

    Raises
    ------
    InputError
    """
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    good = found and all(0 < one < 1e6 for one in found) and len(set(found)) == len(found)
    if not good:
        what = "whole numbers" if kind is int else "numbers"
        message = f"must be different {what} above 0 by comma, got '{one_line(text)}'"
        raise InputError("", None, option, message)
    return found
