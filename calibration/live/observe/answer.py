"""What one streamed answer says: its chunks, its usage, and whether both can be true.

Not every token has text: special tokens and the first half of a character have none, and vLLM sends
a chunk for them all the same (vllm/entrypoints/openai 0.32). Its first chunk of a chat, with the
role and an empty text, comes with the first token but stands for none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.live.server.per_request import KEY as SPECULATION

DONE = "[DONE]"
LEAST_GAP_S = 1e-6
"""Between chunks that one read brought together; assumed."""
REASONING_KEYS = ("reasoning", "reasoning_content")
TEXT_KEYS = ("content", *REASONING_KEYS, "refusal", "tool_calls")
"""Where the delta of a chat chunk carries text: reasoning and calls are tokens as well."""
MARKS = ("token_ids", "logprobs")
"""Keys of a choice that only a chunk with tokens fills."""
MOST = 2**31
"""Largest count that is believed."""


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
        When the first chunk with a token came, and the last one or the reason it ended: an end
        token carries no text [s, on the clock of the caller].
    gaps : list of float
        Between chunks with tokens [s].
    chunks : int
        With text.
    done, ended : bool
        The closing mark came; a reason for the end came.
    metrics : mapping or None
        What the server said of the speculation of this request, in counts that can be.
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
        self._token_s = self._any_s = 0.0
        self._reasoned = False

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
            self.metrics = _speculation(event["metrics"])
        if isinstance(event.get("system_fingerprint"), str):
            self.fingerprint = event["system_fingerprint"]
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0], at_s)

    def _choice(self, choice: Mapping[str, Any], at_s: float) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        texts = [choice.get("text"), *(delta.get(key) for key in TEXT_KEYS)]
        ends = choice.get("finish_reason") is not None
        self._reasoned |= any(delta.get(key) for key in REASONING_KEYS)
        self.chunks += any(texts)
        if any(texts) or (not ends and self._is_token(choice, delta, texts)):
            if self.first_s is None:
                self.first_s = at_s
            else:
                self.gaps.append(max(at_s - self._token_s, LEAST_GAP_S))
            self._token_s = self.last_s = at_s
        if ends:
            self.ended, self.last_s = True, at_s

    def _is_token(
        self, choice: Mapping[str, Any], delta: Mapping[str, Any], texts: list[Any]
    ) -> bool:
        """Whether a chunk without text stands for a token: it has more than a role."""
        if any(choice.get(key) for key in MARKS):
            return True
        only_role = bool(delta.get("role")) and self.first_s is None
        return not only_role and any(isinstance(text, str) for text in texts)

    def end_s(self) -> float:
        """When the request ended: without any token, at the last chunk."""
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
            If the counts cannot be true, or its times cannot be told.
        """
        if self._usage is None:
            return None
        if not isinstance(self._usage, dict):
            raise AnswerError(f"sent a usage that is no object: {self._usage!s}")
        prompt = _count("prompt_tokens", self._usage.get("prompt_tokens"), 1)
        output = _count("completion_tokens", self._usage.get("completion_tokens"), 1)
        cached = _count("cached_tokens", self._detail("prompt_tokens_details", "cached_tokens"))
        hidden = self._detail("completion_tokens_details", "reasoning_tokens")
        if output < self.chunks:
            raise AnswerError(f"counts {output} tokens in {self.chunks} chunks of text")
        if output > max_tokens:
            raise AnswerError(f"counts {output} tokens where at most {max_tokens} were asked for")
        if cached > prompt:
            raise AnswerError(f"counts {cached} cached of {prompt} prompt tokens")
        if _count("reasoning_tokens", hidden) and not self._reasoned:
            raise AnswerError(f"did not stream its {hidden} reasoning tokens: no times can be told")
        if self.first_s is None and output > 1:
            raise AnswerError(f"counts {output} tokens and streamed none: no times can be told")
        return Usage(prompt, output, cached)

    def _detail(self, where: str, name: str) -> Any:
        """A count that servers may leave out: then 0."""
        details = self._usage.get(where)
        value = details.get(name) if isinstance(details, dict) else None
        return 0 if value is None else value


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _count(name: str, value: Any, least: int = 0) -> int:
    if not _is_count(value, least):
        what = f"{name} must be a whole number from {least} to {MOST}"
        raise AnswerError(f"sent a usage that cannot be: {what}, got {value!r}")
    return int(value)


def _speculation(metrics: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Only what is read later, and no number that a table cannot hold."""
    told = metrics.get(SPECULATION)
    if not isinstance(told, dict):
        return None
    kept = {
        key: value
        for key, value in told.items()
        if _is_count(value) or (isinstance(value, list) and all(map(_is_count, value)))
    }
    return {SPECULATION: kept}


def said(body: Any) -> str:
    """What an error of the server says, in a line: its message where it has one."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or json.dumps(inner)
    return str(inner)
