"""The strict YAML dialect, and the one-line errors made from pydantic models."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, Field, model_validator

from models.schema import Constant, Dtype, Frozen, ModelError, Positive, PositiveInt
from models.strict_yaml import Document, InputError, Label, dotted, load_yaml, read_yaml, validate


class Fixed(Frozen):
    kind: Literal["fixed"]
    value: PositiveInt
    fixed: float = 0.0


class Normal(Frozen):
    kind: Literal["normal"]
    mean: Positive
    sd: Positive = 1.0

    @model_validator(mode="after")
    def _narrow(self) -> Normal:
        if self.sd > self.mean:
            raise ModelError(f"must not exceed the mean {self.mean}, got {self.sd}", "sd")
        return self


class Thing(Frozen):
    name: str = "thing"
    rate: Positive = 1.0
    count: PositiveInt = 1
    flag: bool = False
    weights: Dtype = "bf16"
    lengths: tuple[Annotated[Fixed | Normal, Field(discriminator="kind")], ...] = ()
    link: dict[int, Constant] = Field(default_factory=dict)
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    needed: str | None = None
    label: Label | None = None


class Strict(Frozen):
    transformer: str


def error(text: str, model: type[Frozen] = Thing) -> str:
    with pytest.raises(InputError) as caught:
        validate(model, load_yaml(text, "f.yaml"))
    return str(caught.value)


def test_scalars_follow_yaml_1_2_core() -> None:
    text = (
        "a: 3e12\nb: no\nc: 12:30\nd: 2024-01-01\ne: 0x10\nf: 1_000\ng: '3'\nh: ~\ni: .5\n"
        "j: 010\nk: on\nl: true\nm: -7\nn: =\no:\n"
    )
    data = load_yaml(text, "f").data
    assert data == {
        "a": 3e12,
        "b": "no",
        "c": "12:30",
        "d": "2024-01-01",
        "e": 16,
        "f": "1_000",
        "g": "3",
        "h": None,
        "i": 0.5,
        "j": 10,
        "k": "on",
        "l": True,
        "m": -7,
        "n": "=",
        "o": None,
    }
    assert isinstance(data["a"], float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: a: duplicate key, first on line 1"),
        ("a:\n  1: x\n  '1': y", "f.yaml:3: a.1: duplicate key, first on line 2"),
        ("x: .nan", "f.yaml:1: x: must be a finite number, got .nan"),
        ("x:\n  - 1\n  - -.inf", "f.yaml:3: x[1]: must be a finite number, got -.inf"),
        ("x: 1e999", "f.yaml:1: x: is too large for a number, got 1e999"),
        ("x: !!int 3", "f.yaml:1: x: tags are not allowed, got tag:yaml.org,2002:int"),
        ("x: !mine 3", "f.yaml:1: x: tags are not allowed, got !mine"),
        ("\nx: &a 3", "f.yaml:2: x: anchors and aliases are not allowed: a"),
        ("x: *a", "f.yaml:1: x: anchors and aliases are not allowed: a"),
        ("x: {<<: {y: 1}}", "f.yaml:1: x: merge keys are not allowed"),
        ("true: 3", "f.yaml:1: keys must be strings, got true; quote it"),
        ("1.5: 3", "f.yaml:1: keys must be strings, got 1.5; quote it"),
        ("? [1]\n: 2", "f.yaml:1: keys must be strings, got a list or mapping"),
        ("a: 1\n---\nb: 2", "f.yaml:2: several documents in one file are not allowed"),
        ("%YAML 1.1\n---\na: 1", "f.yaml:1: YAML directives are not allowed"),
        ("", "f.yaml: is empty"),
        ("# only a comment\n", "f.yaml: is empty"),
        ("x: " + "[" * 40, "f.yaml:1: is nested deeper than 30 levels"),
        ("x: [", "f.yaml:2: is not valid YAML: did not find expected node content"),
        (
            "x: 1\ny: é\0",
            "f.yaml:2: is not valid YAML: unacceptable character #x0000: control characters are "
            "not allowed",
        ),
        (
            "x: 1\ny: \ud800",
            "f.yaml:2: is not UTF-8: 'utf-8' codec can't encode character '\\ud800' in position 8: "
            "surrogates not allowed",
        ),
    ],
)
def test_traps_are_refused(text: str, message: str) -> None:
    assert error(text) == message


def test_alias_bomb_and_deep_flow_stop_early() -> None:
    assert "anchors" in error("a: &a [x]\nb: &b [*a, *a]\n")
    assert "nest" in error("[" * 200_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nrat: 3", "f.yaml:2: rat: unknown key; did you mean 'rate'?"),
        ("rate: -1", "f.yaml:1: rate: must be greater than 0, got -1"),
        ("rate: true", "f.yaml:1: rate: must be a number, got true"),
        ("rate: '3'", "f.yaml:1: rate: must be a number, got '3'"),
        ("count: 1.5", "f.yaml:1: count: must be an integer, got 1.5"),
        ("flag: no", "f.yaml:1: flag: must be a boolean, got 'no'"),
        (
            "weights: bf61",
            "f.yaml:1: weights: must be one of bf16, fp8, int8, int4, got 'bf61'; "
            "did you mean 'bf16'?",
        ),
        ("lengths: 3", "f.yaml:1: lengths: must be a list, got 3"),
        ("- 1", "f.yaml:1: must be a mapping, got a list"),
        ("link:\n  x: {value: 1, source: s}", "f.yaml:2: link.x: must be an integer, got 'x'"),
        (
            "link:\n  2: {vlue: 1, source: s}",
            "f.yaml:2: link.2.vlue: unknown key; did you mean 'value'?",
        ),
    ],
)
def test_model_errors_are_one_line(text: str, message: str) -> None:
    assert error(text) == message


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("{kind: fixed, value: 0}", "lengths[1].value: must be greater than 0, got 0"),
        ("{kind: fixed, vale: 1}", "lengths[1].vale: unknown key; did you mean 'value'?"),
        ("{kind: fixed}", "lengths[1].value: is missing"),
        ("{kind: fixed, value: 1, fixed: q}", "lengths[1].fixed: must be a number, got 'q'"),
        (
            "{kind: fixd}",
            "lengths[1].kind: must be one of fixed, normal, got 'fixd'; did you mean 'fixed'?",
        ),
        ("{value: 3}", "lengths[1].kind: is missing"),
        ("{kind: normal, mean: 1, sd: 2}", "lengths[1].sd: must not exceed the mean 1.0, got 2.0"),
    ],
)
def test_union_tags_stay_out_of_the_key(item: str, message: str) -> None:
    text = f"lengths:\n  - {{kind: fixed, value: 1}}\n  - {item}"
    assert error(text) == f"f.yaml:3: {message}"


def test_misspelt_key_is_named_before_the_missing_one() -> None:
    assert error("transfomer: x", Strict) == (
        "f.yaml:1: transfomer: unknown key; did you mean 'transformer'?"
    )
    assert error("{}", Strict) == "f.yaml:1: transformer: is missing"


class Grown(Frozen):
    nodes: PositiveInt
    topk: PositiveInt


class Tree(Frozen):
    tree: Annotated[str | tuple[tuple[int, ...], ...] | Grown, BeforeValidator(lambda x: x)]


def test_unions_report_the_branch_that_came_closest() -> None:
    assert validate(Tree, load_yaml("tree: [[0], [0, 1]]", "f")).tree == ((0,), (0, 1))
    assert error("tree: {nods: 3, topk: 1}", Tree) == (
        "f.yaml:1: tree.nods: unknown key; did you mean 'nodes'?"
    )
    assert error("tree: {nodes: 3, topk: 0}", Tree) == (
        "f.yaml:1: tree.topk: must be greater than 0, got 0"
    )
    assert error("tree: [[0], [a]]", Tree) == "f.yaml:1: tree[1][0]: must be an integer, got 'a'"


def test_whole_floats_serve_as_integers_and_prefix_selects_a_block() -> None:
    document = load_yaml("a:\n  count: 1e3\n  vary: {x.y: [1, 2.5]}\n", "f.yaml")
    thing = validate(Thing, document, ("a",))
    assert (thing.count, thing.vary) == (1000, {"x.y": [1, 2.5]})
    with pytest.raises(InputError, match=r"^f\.yaml:1: b: is missing$"):
        validate(Thing, document, ("b",))
    bad = load_yaml("a:\n  count: 0\n", "f.yaml")
    with pytest.raises(InputError, match=r"^f\.yaml:2: a\.count: must be greater than 0, got 0$"):
        validate(Thing, bad, ("a",))


def test_lines_fall_back_to_the_nearest_parent() -> None:
    document = load_yaml("a:\n  b:\n    - c: 1\n    - d: 2\nvary:\n  a.b: [1]\n", "f.yaml")
    assert document.line("a.b[1].d") == 4
    assert document.line(("a", "b", 1, "x", "y")) == 4
    assert document.line("a.b[7]") == 2
    assert document.line("nowhere") == 1
    assert document.line("vary.a.b") == 6
    assert str(document.error("a.b", "is odd")) == "f.yaml:2: a.b: is odd"
    assert Document(None, "--set").line("a") is None
    assert str(Document(None, "--set").error("a", "is odd")) == "--set: a: is odd"
    assert dotted(("a", 0, "b")) == "a[0].b"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(InputError, match="cannot read: No such file"):
        read_yaml(missing)
    file = tmp_path / "f.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InputError) as caught:
        read_yaml(file)
    assert str(caught.value) == f"{file}:2: is not UTF-8: byte 0xff"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(file).data == {"a": 1}
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="is larger than 1000000 bytes, got 1000001"):
        read_yaml(file)


def test_devices_pipes_and_folders_are_read_or_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: cannot read: it is larger than 1000000"):
        read_yaml("/dev/zero")
    with pytest.raises(InputError, match=r": cannot read: Is a directory$"):
        read_yaml(tmp_path)
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"pipe\.yaml: is empty$"):
        read_yaml(pipe)
    reader, writer = os.pipe()
    late = threading.Timer(0.2, lambda: (os.write(writer, b"a: 1\n"), os.close(writer)))
    late.start()
    assert read_yaml(f"/dev/fd/{reader}").data == {"a": 1}
    os.close(reader)
    late.join()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('"na\\eme": 1', "f.yaml:1: na\\x1bme: unknown key; did you mean 'name'?"),
        ('weights: "b\\e[31m\\n"', "got 'b\\x1b[31m\\n'"),
        (f"? {'k' * 900}\n: 1", f"f.yaml:1: {'k' * 98}...{'k' * 98}: unknown key"),
        (f"rate: !{'t' * 900} 1", f"got !{'t' * 97}...{'t' * 98}"),
    ],
)
def test_errors_are_short_and_printable(text: str, shown: str) -> None:
    message = error(text)
    assert shown in message
    assert message.isprintable()
    assert len(message) < 400


def test_an_error_keeps_its_parts_as_given_but_prints_one_line() -> None:
    odd = InputError("a\nb", 3, "k\x07", "is odd\u2028here\udc80 " + "word " * 1000)
    assert str(odd).startswith("a\\nb:3: k\\x07: is odd\\u2028here\\udc80 word")
    assert (odd.path, odd.key) == ("a\nb", "k\x07")
    assert str(odd).isprintable()
    assert len(str(odd)) < 2100


def test_labels_are_one_to_64_printable_characters() -> None:
    assert validate(Thing, load_yaml(f"label: {'é' * 64}", "f")).label == "é" * 64
    for bad in (r'"a\eb"', r'"a\nb"', r'"a\tb"', r'"\u202e"', '" "'):
        assert "label: must be 1 to 64 printable characters, got" in error(f"label: {bad}")
    assert "label: must have at least 1 character, got ''" in error("label: ''")
    assert "label: must have at most 64 characters" in error(f"label: {'x' * 65}")
