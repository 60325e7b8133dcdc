"""How requests are put: what they all share, and the body of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from calibration.live.observe.prompts import Prompt

Api = Literal["chat", "completions"]
MaxTokensKey = Literal["max_tokens", "max_completion_tokens"]
Line = Callable[[int], str]
"""First line of an attempt, from 0."""


class Asking(NamedTuple):
    """How every request is put.

    Attributes
    ----------
    base_url : str
        Of the API, as ``http://host:8000/v1``; may hold a user and a password.
    model : str
    api : "chat" or "completions"
    body : mapping
        Further keys of the request, as ``temperature``.
    key : str or None
        Goes into the header, and nowhere else.
    timeout_s : float
        For a request from the connection to its last chunk.
    retries : int
    max_tokens_key : str
        What the server calls the most tokens of an answer.
    """

    base_url: str
    model: str
    api: Api = "chat"
    body: Mapping[str, Any] = {}
    key: str | None = None
    timeout_s: float = 600.0
    retries: int = 0
    max_tokens_key: MaxTokensKey = "max_tokens"


class Ready(NamedTuple):
    """A request that only has to be sent.

    Attributes
    ----------
    prompt : Prompt
    max_tokens : int
    line : callable or None
        What makes the prompt of each attempt one that no prefix cache knows.
    content : bytes
        Body of the first attempt.
    """

    prompt: Prompt
    max_tokens: int
    line: Line | None
    content: bytes


def content(
    asking: Asking, prompt: Prompt, max_tokens: int, line: Line | None, attempt: int = 0
) -> bytes:
    """Body of one attempt of a request."""
    first_line = line(attempt) if line else ""
    chat = asking.api == "chat"
    body = {
        "model": asking.model,
        "messages" if chat else "prompt": (prompt.chat if chat else prompt.plain)(first_line),
        asking.max_tokens_key: max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **asking.body,
    }
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
