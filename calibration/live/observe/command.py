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

from calibration.live.observe import prompts as texts
from calibration.live.observe.client import Api, Asking
from calibration.live.observe.options import Options, plain
from calibration.live.observe.schedule import Asked
from calibration.live.observe.stated import stated_strategy
from calibration.live.server.scrape import metrics_urls
from models.strict_yaml import InputError, one_line

RESERVED = ("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "n")
"""Keys of a request that are not the user's to set."""
USUAL_KEY = "OPENAI_API_KEY"
LADDER = "1,2,4,8"

Number = TypeVar("Number", int, float)


class Given(NamedTuple):
    """The options as the command line gives them; ``cli`` says what each is."""

    base_url: str
    model: str
    out: Path
    concurrency: str | None = None
    rate: str | None = None
    replay: bool = False
    rate_scale: float = 1.0
    tokens: int = 128
    prompts: Path | None = None
    requests: int | None = None
    repeats: int = 1
    warm_up: int | None = None
    api: Api = "chat"
    strategy: str | None = None
    label: str | None = None
    temperature: float = 0.0
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


def prepare(given: Given) -> Options:
    """Check the options.

    Raises
    ------
    InputError
        That names the option at fault.
    """
    url = _base_url(given.base_url)
    prompts = texts.read(given.prompts, given.seed)
    texts.check_api(prompts, given.api)
    users, rates, times_s = _loads(given, prompts)
    label, block = stated_strategy(given.strategy, given.label)
    eos = {"ignore_eos": True} if given.ignore_eos else {}
    body = {"temperature": given.temperature, **eos, **_extra_body(given.extra_body)}
    key = _api_key(given.api_key_env, os.environ)
    urls = metrics_urls(plain(url)) if given.metrics_url is None else (given.metrics_url,)
    return Options(
        given.out,
        Asking(url, given.model, given.api, body, key, given.timeout_s, given.retries),
        Asked(
            *(users, rates, times_s, given.rate_scale, given.requests, given.warm_up),
            *(given.repeats, given.seed),
        ),
        prompts,
        given.tokens,
        label,
        block,
        given.same_prompts,
        urls if given.metrics else (),
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


def _base_url(text: str) -> str:
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
