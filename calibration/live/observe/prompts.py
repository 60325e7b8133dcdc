"""What is sent: prompts of a file, of a trace's lengths, or the ones that are shipped."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibration.live.observe.default_prompts import PROMPTS
from models.schema import ModelError
from models.strict_yaml import InputError, one_line
from sim.scenario.trace.reading import LONGEST_LINE, TraceFile, read_trace

KEYS = ("text", "prompt", "messages", "domain", "max_tokens")
DOMAIN = "text"
"""Of a prompt whose file does not say."""
LARGEST = 100_000_000
"""Bytes of a file of prompts, which is read whole; traces are not."""
MARK_WORDS = 8
"""About as many tokens as the first line that makes a prompt unique; assumed."""
COMMON = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work number night
point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city name team minute idea body back parent face level office door health person art war
"""
"""Words of which most tokenizers make one token each; the server counts what it is sent."""


class Prompt(NamedTuple):
    """One prompt: a text, or the messages of a chat.

    Attributes
    ----------
    text : str
        Empty where there are messages.
    messages : tuple of mapping
    domain : str
        Kind of text.
    max_tokens : int or None
        Most tokens to generate; None as all others.
    """

    text: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    domain: str = DOMAIN
    max_tokens: int | None = None

    def plain(self, first_line: str = "") -> str:
        """For completions, which take no messages."""
        return first_line + self.text

    def chat(self, first_line: str = "") -> list[dict[str, Any]]:
        """For chat; the first line goes into the first message that is text."""
        messages = [dict(one) for one in self.messages]
        messages = messages or [{"role": "user", "content": self.text}]
        for message in messages if first_line else ():
            content = _marked(message.get("content"), first_line)
            if content is not None:
                message["content"] = content
                break
        return messages


def _marked(content: Any, line: str) -> str | list[Any] | None:
    """Content of a message behind a line, also where it is a list of parts; None for none."""
    if isinstance(content, str):
        return line + content
    if not isinstance(content, list) or not content:
        return None
    first, *rest = content
    if isinstance(first, dict) and isinstance(first.get("text"), str):
        return [{**first, "text": line + first["text"]}, *rest]
    return [{"type": "text", "text": line}, *content]


class Prompts(NamedTuple):
    """The prompts of an observation, taken in turn.

    Attributes
    ----------
    source : str
        Where they are from.
    digest : str
        Of all that is in them.
    listed : tuple of Prompt
        Empty for a trace.
    trace : TraceFile or None
        Requests whose lengths they have, one after another.
    seed : int
        Of the words of such prompts.
    """

    source: str
    digest: str
    listed: tuple[Prompt, ...] = ()
    trace: TraceFile | None = None
    seed: int = 0

    def __len__(self) -> int:
        """How many there are before they come again."""
        return len(self.listed) if self.trace is None else len(self.trace)

    def of(self, number: int) -> Prompt:
        """Return the prompt of a request, from 0."""
        index = number % len(self)
        if self.trace is None:
            return self.listed[index]
        lengths = self.trace.prompt_tokens[index], self.trace.output_tokens[index]
        return _worded(int(lengths[0]), int(lengths[1]), (self.seed, index))


def read(path: Path | None, seed: int = 0) -> Prompts:
    """Read prompts; those that are shipped where no file is given.

    Parameters
    ----------
    path : Path, optional
        A prompt a line in ``.txt``; an object a line with ``text``, ``prompt`` or ``messages`` in
        ``.jsonl``; anything else is a trace, of which only lengths and times are known.
    seed : int
        Of the words that stand for the prompts of a trace.

    Raises
    ------
    InputError
        If it cannot be read or a line is something else, with its line and key.
    """
    if path is None:
        rounds = itertools.zip_longest(*PROMPTS.values())
        listed = [
            Prompt(text, domain=domain)
            for texts in rounds
            for domain, text in zip(PROMPTS, texts, strict=True)
            if text is not None
        ]
        return _listed("shipped", listed)
    if path.suffix == ".txt":
        lines = [(number, line.strip()) for number, line in _lines(path)]
        return _listed(path.name, [Prompt(line) for _, line in lines])
    if path.suffix == ".jsonl" and not _is_mooncake(path):
        return _listed(path.name, [_own(str(path), number, line) for number, line in _lines(path)])
    try:
        trace = read_trace(str(path), "auto", "refuse")
    except ModelError as error:
        raise InputError(str(path), None, "--prompts", str(error)) from None
    return Prompts(path.name, trace.sha256, trace=trace, seed=seed)


def check_api(prompts: Prompts, api: str) -> None:
    """Refuse chat messages where completions are asked for.

    Raises
    ------
    InputError
    """
    if api == "completions" and any(one.messages for one in prompts.listed):
        message = f"'{prompts.source}' has messages, which only --api chat takes"
        raise InputError("", None, "--prompts", message)


def first_line(*parts: object) -> str:
    """A short line that no other request has, and that is the same whenever it is asked for."""
    word = hashlib.blake2s(" ".join(map(str, parts)).encode(), digest_size=5).hexdigest()
    return f"[{word}]\n"


def _listed(source: str, listed: Sequence[Prompt]) -> Prompts:
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    return Prompts(source, digest, tuple(listed))


def _worded(prompt_tokens: int, output_tokens: int, seed: tuple[int, int]) -> Prompt:
    """A prompt of about so many tokens, its first line not counted."""
    words = np.random.default_rng(seed).choice(COMMON.split(), max(prompt_tokens - MARK_WORDS, 1))
    return Prompt(" ".join(words), max_tokens=max(output_tokens, 1))


def _lines(path: Path) -> list[tuple[int, str]]:
    """All lines with anything on them, and their numbers."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ValueError("it is no regular file")
        if size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST} bytes, got {size}")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    lines = enumerate(text.split("\n"), start=1)
    found = [(number, line) for number, line in lines if line.strip()]
    if not found:
        raise InputError(str(path), None, "--prompts", "holds no prompts")
    return found


def _is_mooncake(path: Path) -> bool:
    """Whether the first line with anything on it is a request of such a trace."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            lines = iter(functools.partial(file.readline, LONGEST_LINE), b"")
            line = next((line for line in lines if line.strip()), b"")
        first = json.loads(line.decode("utf-8-sig"))
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:
        return False
    return isinstance(first, dict) and "input_length" in first


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or one_line(str(error))
    return InputError(str(path), None, "--prompts", f"cannot be read: {reason}")


def _own(path: str, number: int, line: str) -> Prompt:
    """Read one line of a file of prompts."""
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(path, number, "", f"is not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise InputError(path, number, "", "must be an object with 'text' or 'messages'")
    for key in entry:
        if key not in KEYS:
            raise InputError(path, number, key, f"is no key of a prompt: {', '.join(KEYS)}")
    given = [key for key in KEYS[:3] if key in entry]
    if len(given) != 1:
        message = f"needs one of text, prompt and messages, got {' and '.join(given) or 'none'}"
        raise InputError(path, number, "", message)
    most, domain = entry.get("max_tokens"), entry.get("domain", DOMAIN)
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InputError(path, number, "max_tokens", f"must be a count from 1, got {most!r}")
    if not isinstance(domain, str) or not domain.isidentifier():
        raise InputError(path, number, "domain", "must be a name of letters, digits and _")
    content = entry[given[0]]
    if given[0] == "messages":
        return Prompt("", _messages(path, number, content), domain, most)
    if not isinstance(content, str) or not content.strip():
        raise InputError(path, number, given[0], "must be a text that is not empty")
    return Prompt(content, (), domain, most)


def _messages(path: str, number: int, content: Any) -> tuple[Mapping[str, Any], ...]:
    right = isinstance(content, list) and content and all(isinstance(one, dict) for one in content)
    if not right or not all("role" in one and "content" in one for one in content):
        message = "must be a list of messages, each with role and content"
        raise InputError(path, number, "messages", message)
    return tuple(content)
