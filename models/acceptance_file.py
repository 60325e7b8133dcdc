"""Acceptance measured in runs of one's own: fits and recorded requests, by strategy and domain."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from models.acceptance_block import Acceptance
from models.paths import Ints
from models.schema import Frozen, ModelError, PositiveInt
from models.strict_yaml import InputError, one_line, read_yaml, validate

VERSION = 1
JSON = ".json"
"""Ending of files that one step of a calculation leaves for the next."""

Error = float | None
"""A standard error; None where the data say nothing about it."""


class Tau(Frozen):
    """Measured mean tokens a step, with its 95 % interval."""

    value: float = Field(ge=1)
    lo: float = Field(ge=1)
    hi: float = Field(ge=1)
    steps: PositiveInt
    requests: PositiveInt


class Shape(Frozen):
    """Draft tokens a step and levels that the figures belong to."""

    drafted: PositiveInt
    depth: PositiveInt


class Recorded(Frozen):
    """Recorded requests of a domain: a string of numbers a request, one number a step.

    Attributes
    ----------
    accepted : tuple of str
        Draft tokens accepted, uncut.
    drafted : tuple of str or None
        Draft tokens verified; None where every step verifies the strategy's own number.
    """

    accepted: tuple[str, ...] = Field(min_length=1)
    drafted: tuple[str, ...] | None = None

    @field_validator("accepted", "drafted")
    @classmethod
    def _numbers(cls, texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in texts or ():
            if _STEPS.fullmatch(text) is None:
                shown = one_line(text, 60)
                raise ValueError(f"a request is whole numbers joined by spaces, got '{shown}'")
        return texts

    @model_validator(mode="after")
    def _alike(self) -> Recorded:
        if self.drafted is None:
            return self
        if list(map(_length, self.drafted)) != list(map(_length, self.accepted)):
            raise ValueError("drafted and accepted must have the same requests and steps")
        accepted, drafted = self.steps()
        if drafted is not None and (accepted > drafted).any():
            step = int(np.argmax(accepted > drafted))
            raise ValueError(f"accepted {accepted[step]} of {drafted[step]} drafted tokens")
        return self

    @property
    def lengths(self) -> Ints:
        """Steps of each request."""
        return np.array(list(map(_length, self.accepted)), dtype=np.int64)

    def steps(self) -> tuple[Ints, Ints | None]:
        """Accepted and drafted tokens of all steps, the requests one after another."""
        return _parsed(self.accepted), None if self.drafted is None else _parsed(self.drafted)


class Entry(Frozen):
    """One strategy as it was run.

    Attributes
    ----------
    strategy : dict
        As in a scenario, without its acceptance.
    shape : Shape or None
        Only strategies of this shape may use the figures; None for chains.
    tau : dict
        By domain.
    standard_errors : dict
        By domain, then by key of the acceptance block. ``context_slope_fitted`` is the slope that
        the error of ``context_slope`` belongs to, also where it was too close to 0 to be used.
    acceptance : Acceptance
        The fit.
    replay : dict
        Recorded requests by domain.
    """

    strategy: dict[str, Any]
    shape: Shape | None = None
    tau: dict[str, Tau] = Field(default={})
    standard_errors: dict[
        str, dict[str, Error | tuple[Error, ...] | tuple[tuple[Error, ...], ...]]
    ] = Field(default={})
    acceptance: Acceptance
    replay: dict[str, Recorded] = Field(default={})

    @field_validator("strategy")
    @classmethod
    def _strategy(cls, strategy: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(strategy.get("kind"), str):
            raise ValueError("needs its kind")
        if "acceptance" in strategy:
            raise ValueError("leaves out the acceptance, which is stated beside it")
        return strategy

    @field_validator("acceptance")
    @classmethod
    def _stated_here(cls, block: Acceptance) -> Acceptance:
        for one in (block, *block.by_domain.values()):
            if one.catalog is not None or one.file is not None:
                raise ValueError("states the figures themselves, no catalog and no file")
        return block

    @property
    def kind(self) -> str:
        """Kind of the strategy."""
        return str(self.strategy["kind"])


class AcceptanceFile(Frozen):
    """All strategies measured on one target."""

    version: int
    title: str = Field(min_length=1)
    target: str = Field(min_length=1)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    source: str = Field(min_length=1)
    entries: dict[str, Entry] = Field(min_length=1)

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version != VERSION:
            raise ValueError(f"must be {VERSION}, the layout this version reads")
        return version

    def named(self, name: str | None, kind: str) -> str:
        """Name of the entry asked for, or of the only one of this kind of strategy.

        Raises
        ------
        ModelError
            No such entry, or several of the kind; key ``acceptance.entry``.
        """
        listed = ", ".join(f"{key} ({entry.kind})" for key, entry in self.entries.items())
        if name is not None:
            if name not in self.entries:
                raise ModelError(f"the file has {listed}, got '{name}'", "acceptance.entry")
            return name
        alike = [key for key, entry in self.entries.items() if entry.kind == kind]
        if len(alike) != 1:
            many = "several" if alike else "none"
            raise ModelError(
                f"is missing: the file has {listed}, {many} of kind '{kind}'", "acceptance.entry"
            )
        return alike[0]


def read(path: str | Path) -> AcceptanceFile:
    """Read an acceptance file: YAML, or JSON of any size as ``write_json`` leaves it.

    Raises
    ------
    InputError
        The first thing wrong, in one line with file, line and dotted key.
    """
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return _read(str(path), None)
    return _read(str(path), (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=16)
def _read(path: str, state: tuple[int, int] | None) -> AcceptanceFile:
    """Every point and domain of a scenario asks for the file: parse it once while unchanged."""
    if not path.endswith(JSON):
        return validate(AcceptanceFile, read_yaml(path))
    try:
        return AcceptanceFile.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise InputError(path, None, "", f"cannot read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(path, None, where, one_line(first["msg"])) from None


def write_json(file: AcceptanceFile, path: Path) -> None:
    """Write a file that is only read again by machine, and may be larger than YAML may.

    Parameters
    ----------
    file : AcceptanceFile
    path : Path
        Ends in ``JSON``.
    """
    path.write_text(file.model_dump_json(exclude_unset=True), "utf-8")


def dump(file: AcceptanceFile) -> str:
    """YAML of a file, which `read` reads back to an equal one; the same file, the same bytes."""
    data = file.model_dump(mode="json", exclude_unset=True)
    entries = data.pop("entries")
    blocks = [data, *({"entries": {name: entry}} for name, entry in entries.items())]
    texts = [
        yaml.dump(_readable(block), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
        for block in blocks
    ]
    head = "entries:\n"
    return texts[0] + head + "".join(text.removeprefix(head) for text in texts[1:])


_STEPS = re.compile(r"[0-9]{1,4}( [0-9]{1,4})*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*[A-Za-z0-9_]|[A-Za-z]")


def _length(text: str) -> int:
    return text.count(" ") + 1


def _parsed(texts: tuple[str, ...]) -> Ints:
    return np.array(" ".join(texts).split(), dtype=np.int64)


class _Row(dict[str, Any]):
    """A mapping on one line."""


class _Numbers(list[Any]):
    """A list on one line."""


class _Steps(str):
    """A recorded request."""


class _Dumper(yaml.SafeDumper):
    """Quotes every string but plain words, and never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if isinstance(text, _Steps) else None if _WORD.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


def _row(dumper: yaml.SafeDumper, row: _Row) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", row, flow_style=True)


def _numbers(dumper: yaml.SafeDumper, numbers: _Numbers) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", numbers, flow_style=True)


_Dumper.add_representer(str, _string)
_Dumper.add_representer(_Steps, _string)
_Dumper.add_representer(_Row, _row)
_Dumper.add_representer(_Numbers, _numbers)


def _readable(value: Any) -> Any:
    """Rows of plain values and lists of numbers on one line, a recorded request a line."""
    if isinstance(value, dict):
        inner = {key: _readable(item) for key, item in value.items()}
        flat = not any(isinstance(item, dict | list) for item in inner.values())
        return _Row(inner) if flat and "title" not in inner else inner
    if isinstance(value, list):
        if any(isinstance(item, str) for item in value):
            return [_Steps(item) for item in value]
        return _Numbers(value)
    return value
