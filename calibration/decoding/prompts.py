"""Prompts of five kinds of text, for training and for measuring, without a network.

``code``: beginnings of functions of CPython's standard library. ``prose``: beginnings of passages
of the language reference (``pydoc_data``). ``json_sql``, ``maths``, ``extract``: rows of data to be
continued, word problems after a worked one, records with questions about them, all made up from
templates.

No source function, topic, template or pool of names is on both sides of the split: modules, topics
and templates each belong to one side, and a passage of the reference is not trained on where a
paragraph of it stands in a topic of the test side too. Text of the standard library depends on the
version of Python; nothing else does.
"""

from __future__ import annotations

import ast
import json
import random
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from calibration.decoding import templates
from models.schema import ModelError
from models.strict_yaml import InputError, read_bytes

Split = Literal["train", "test"]

DOMAINS = ("code", "prose", "json_sql", "maths", "extract")

MODULES: dict[Split, str] = {
    "train": (
        "argparse calendar cmd codecs collections configparser copy csv ctypes.util dataclasses "
        "difflib dis email.message email.utils fileinput fnmatch functools gettext glob gzip "
        "hmac html.parser http.client http.cookies imaplib inspect json.decoder locale "
        "logging.handlers mailbox mimetypes netrc nntplib optparse pathlib pdb pickletools "
        "platform plistlib poplib pprint profile pstats queue random sched selectors shelve "
        "smtplib sndhdr socket socketserver ssl stat string subprocess symtable tempfile threading "
        "timeit trace traceback turtle types unittest.case unittest.mock urllib.request weakref "
        "webbrowser xml.dom.minidom xmlrpc.client"
    ),
    "test": (
        "bdb bisect code compileall contextlib datetime decimal doctest enum filecmp fractions "
        "ftplib graphlib heapq http.server ipaddress linecache numbers os pkgutil posixpath "
        "quopri rlcompleter shlex shutil statistics tarfile textwrap tokenize typing "
        "urllib.parse uuid wave xml.etree.ElementTree zipfile"
    ),
}

TEST_TOPICS = 3
"""Every third topic of the reference is for measuring."""

SHORTEST, LONGEST = 310, 640
"""Characters of a prompt of code or prose: some 60 to 200 tokens."""

KEYS = ("domain", "text")

EVERY = "all"
"""What tables call all domains together."""


class Prompt(NamedTuple):
    """A text to be continued, and what kind of text it is."""

    domain: str
    text: str


def prompts(domain: str, split: Split, count: int) -> list[str]:
    """The first so many prompts of a domain; the same ones on every call.

    Parameters
    ----------
    domain : str
        One of ``DOMAINS``.
    split : {"train", "test"}
        They share nothing: see the module.
    count : int

    Raises
    ------
    ModelError
        If there is no such domain or split, or there are fewer of them; key ``domain``, ``split``
        or ``count``.
    """
    if domain not in DOMAINS:
        raise ModelError(f"must be one of {', '.join(DOMAINS)}, got '{domain}'", "domain")
    if split not in get_args(Split):
        raise ModelError(f"must be train or test, got '{split}'", "split")
    found = _all(domain, split)
    if not 1 <= count <= len(found):
        raise ModelError(f"must be 1 to the {len(found)} {split} prompts of '{domain}'", "count")
    return list(found[:count])


def available(domain: str, split: Split) -> int:
    """How many prompts there are."""
    return len(_all(domain, split))


def read_prompts(path: Path | str) -> list[Prompt]:
    """Read prompts of one's own: a line is a JSON object with ``domain`` and ``text``.

    Raises
    ------
    InputError
        If the file cannot be read or a line is something else; with the line and its key.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), None, "", f"cannot be read: {reason}") from error
    found = [
        _own(str(path), number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not found:
        raise InputError(str(path), None, "", "holds no prompts")
    return found


def _own(path: str, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(path, number, "", f"is not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise InputError(path, number, "", "must be an object with 'domain' and 'text'")
    for key in entry:
        if key not in KEYS:
            raise InputError(path, number, key, "is no key of a prompt: 'domain', 'text'")
    for key in KEYS:
        said = entry.get(key)
        if not isinstance(said, str) or not said.strip():
            raise InputError(path, number, key, "must be a text that is not empty")
    if not entry["domain"].isidentifier():
        raise InputError(path, number, "domain", "must be a name of letters, digits and _")
    if entry["domain"] == EVERY:
        raise InputError(path, number, "domain", f"must not be '{EVERY}': all together")
    try:
        entry["text"].encode()
    except UnicodeEncodeError as error:
        raise InputError(path, number, "text", f"is no Unicode: {error.reason}") from None
    return Prompt(entry["domain"], entry["text"])


@cache
def _all(domain: str, split: Split) -> tuple[str, ...]:
    """Every prompt of one side, those of one module or topic spread out."""
    sources: dict[str, Callable[[Split], Iterator[str]]] = {"code": _code, "prose": _prose}
    if domain in sources:
        found = list(dict.fromkeys(sources[domain](split)))
        random.Random(f"{domain} {split}").shuffle(found)
        return tuple(found)
    return tuple(templates.instances(domain, split))


def _code(split: Split) -> Iterator[str]:
    for name in MODULES[split].split():
        source = _source(name)
        lines = source.split("\n")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                begun = _begun(lines[node.lineno - 1 : node.end_lineno], node)
                if begun:
                    yield begun


def _source(name: str) -> str:
    """Text of a module of the standard library; empty where this Python has it no longer."""
    try:
        module = find_spec(name)
    except ModuleNotFoundError:
        return ""
    if module is None or module.origin is None or not module.origin.endswith(".py"):
        return ""
    return Path(module.origin).read_text("utf-8")


def _begun(lines: Sequence[str], node: ast.FunctionDef) -> str:
    """Signature, docstring and a first part of the body; empty where it is too short or long."""
    start = node.body[0]
    if ast.get_docstring(node) is None or len(node.body) < 2:
        return ""
    inside = (start.end_lineno or start.lineno) - node.lineno + 1
    body = len(lines) - inside
    kept = inside + max(1, body // 3)
    text = textwrap.dedent("\n".join(lines[:kept])) + "\n"
    return text if body >= 4 and SHORTEST <= len(text) <= LONGEST else ""


def _prose(split: Split) -> Iterator[str]:
    """Passages of the topics of one side; of a passage on both, the test side has it."""
    sides = _passages()
    elsewhere = {paragraph for passage in sides["test"] for paragraph in passage}
    for passage in sides[split]:
        if split == "test" or not elsewhere.intersection(passage):
            text = " ".join(passage)
            yield text[: min(LONGEST, len(text) * 2 // 3)].rpartition(" ")[0]


@cache
def _passages() -> dict[Split, list[tuple[str, ...]]]:
    """Paragraphs in a row of the topics of each side, long enough for a prompt."""
    from pydoc_data.topics import topics

    sides: dict[Split, list[tuple[str, ...]]] = {"train": [], "test": []}
    for index, name in enumerate(sorted(topics)):
        side = sides["train" if index % TEST_TOPICS else "test"]
        passage: list[str] = []
        for paragraph in map(_running, topics[name].split("\n\n")):
            passage = [*passage, paragraph] if paragraph else []
            if sum(map(len, passage)) >= SHORTEST * 3 // 2 + len(passage):
                side.append(tuple(passage))
                passage = []
    return sides


def _running(paragraph: str) -> str:
    """A paragraph on one line; empty where it is no running text."""
    text = " ".join(paragraph.split())
    code = "::=" in text or ">>>" in text or paragraph.startswith("      ")
    return "" if code or not text[:1].isupper() or not text.endswith((".", ":")) else text


__all__ = ["DOMAINS", "Prompt", "Split", "available", "prompts", "read_prompts"]
