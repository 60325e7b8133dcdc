"""What one streamed answer says: its chunks, its usage, and whether both can be true."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

DONE = "[DONE]"
LEAST_GAP_S = 1e-6
"""Between chunks that one read brought together; assumed."""
TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls")
"""Where the delta of a chat chunk carries text: reasoning and calls are tokens as well."""


class AnswerError(ValueError):
    """An answer that is not what the API promises; the message, uncut, says why."""


class Usage(NamedTuple):
    """Tokens the server counted."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int


class Answer:
    """Takes the events of one answer in order.

    Attributes
    ----------
    first_s, last_s : float or None
        When the first chunk with text came, and the last chunk with text or the reason it ended:
        an end token carries no text [s, on the clock of the caller].
    gaps : list of float
        Between chunks with text [s].
    chunks : int
        With text.
    done, ended : bool
        The closing mark came; a reason for the end came.
    metrics : mapping or None
        What the server said of this request, unread.
    fingerprint : str or None
        How the server calls its version.
    """

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.gaps: list[float] = []
        self.chunks = 0
        self.done = self.ended = False
        self.metrics: Mapping[str, Any] | None = None
        self.fingerprint: str | None = None
        self._usage: Any = None
        self._text_s = self._any_s = 0.0

    def take(self, data: str, at_s: float) -> None:
        """Read one event that came at ``at_s``.

        Raises
        ------
        AnswerError
            If it is no JSON object, or reports an error.
        """
        if data.strip() == DONE:
            self.done = True
            return
        try:
            event = json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise AnswerError(f"sent what is no JSON: {data}") from None
        if not isinstance(event, dict):
            raise AnswerError(f"sent what is no JSON object: {data}")
        if event.get("error"):
            raise AnswerError(f"broke off: {said(event)}")
        self._any_s = at_s
        if event.get("usage") is not None:
            self._usage = event["usage"]
        if isinstance(event.get("metrics"), dict):
            self.metrics = event["metrics"]
        if isinstance(event.get("system_fingerprint"), str):
            self.fingerprint = event["system_fingerprint"]
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0], at_s)

    def _choice(self, choice: Mapping[str, Any], at_s: float) -> None:
        delta = choice.get("delta")
        texts = [choice.get("text")]
        if isinstance(delta, dict):
            texts += [delta.get(key) for key in TEXT_KEYS]
        if any(texts):
            if self.first_s is None:
                self.first_s = at_s
            else:
                self.gaps.append(max(at_s - self._text_s, LEAST_GAP_S))
            self.chunks += 1
            self._text_s = self.last_s = at_s
        if choice.get("finish_reason") is not None:
            self.ended, self.last_s = True, at_s

    def end_s(self) -> float:
        """When the request ended: without any text, at the last chunk."""
        return self._any_s if self.last_s is None else self.last_s

    def check_whole(self) -> None:
        """Refuse an answer that stopped before its end.

        Raises
        ------
        AnswerError
            If neither the closing mark nor a reason for the end came.
        """
        if not (self.done or self.ended):
            raise AnswerError(f"was cut off after {self.chunks} chunks of text")

    def usage(self, max_tokens: int) -> Usage | None:
        """Tokens as the server counts them; None where it does not say.

        Raises
        ------
        AnswerError
            If the counts cannot be true.
        """
        if self._usage is None:
            return None
        if not isinstance(self._usage, dict):
            raise AnswerError(f"sent a usage that is no object: {self._usage!s}")
        details = self._usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        prompt = _count("prompt_tokens", self._usage.get("prompt_tokens"))
        output = _count("completion_tokens", self._usage.get("completion_tokens"))
        cached = _count("cached_tokens", 0 if cached is None else cached)
        if output < self.chunks:
            raise AnswerError(f"counts {output} tokens in {self.chunks} chunks of text")
        if output > max_tokens:
            raise AnswerError(f"counts {output} tokens where at most {max_tokens} were asked for")
        if cached > prompt:
            raise AnswerError(f"counts {cached} cached of {prompt} prompt tokens")
        return Usage(prompt, output, cached)


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        got = repr(value)
        raise AnswerError(f"sent a usage that cannot be: {name} must be a count, got {got}")
    return value


def said(body: Any) -> str:
    """What an error of the server says, in a line: its message where it has one."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or json.dumps(inner)
    return str(inner)
