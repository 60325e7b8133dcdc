"""Bad traces: every line that is no request is named with its number, every file with why."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from tests.traces import (
    AZURE,
    BURSTGPT_1,
    MOONCAKE,
    PLAIN,
    complaint,
    numbered,
    read,
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    return numbered(tmp_path)


# Bad lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2023-11-16 18:16:00,12", "must have 3 fields, got 2"),
        ("2023-11-16 18:16:00,12,4,9", "must have 3 fields, got 4"),
        ("2023-11-16 18:16:00,many,4", "ContextTokens: must be a number, got 'many'"),
        ("2023-11-16 18:16:00,,4", "ContextTokens: is missing"),
        ("2023-11-16 18:16:00,-12,4", "ContextTokens: must not be negative, got -12"),
        ("2023-11-16 18:16:00,12.5,4", "ContextTokens: must be whole tokens, got 12.5"),
        ("2023-11-16 18:16:00,nan,4", "ContextTokens: must be a number, got 'nan'"),
        ("2023-11-16 18:16:00,12,inf", "GeneratedTokens: must be a number, got 'inf'"),
        ("2023-11-16 18:16:00,12,1e999", "GeneratedTokens: must be at most 10000000 tokens"),
        ("2023-11-16 18:16:00,12,10000001", "GeneratedTokens: must be at most 10000000 tokens"),
        ("2023-11-16 18:16:00,0x10,4", "ContextTokens: must be a number, got '0x10'"),
        ("2023-11-16 18:16:00,1_000,4", "ContextTokens: must be a number, got '1_000'"),
        ("2023-11-16 18:16:00,0,4", "ContextTokens: must be at least 1 token, got 0"),
        ("yesterday,12,4", "TIMESTAMP: must be a date and time like"),
        ("1700158546,12,4", "TIMESTAMP: must be a date and time like"),
        (",12,4", "TIMESTAMP: is missing"),
        ("2023-02-30 18:16:00,12,4", "TIMESTAMP: must be a date and time like"),
        ("2023-11-16 18:16:60,12,4", "TIMESTAMP: must be a date and time like"),
        ("2023-11-16 18:16:00+25:00,12,4", "TIMESTAMP: must be a date and time like"),
        ("1969-11-16 18:16:00,12,4", "TIMESTAMP: must be from 1970 to 2255"),
        ('2023-11-16 18:16:00,"12,4', "is not CSV: unexpected end of data"),
        ("2023-11-16 18:16:00,12\r,4", "is not CSV: "),
        ("2023-11-16 18:16:00,12,4\0", "holds a NUL byte"),
        (b"2023-11-16 18:16:00,\xff,4", "is not UTF-8: byte 0xff"),
        ("2023-11-16 18:16:00,\uff11\uff12,4", "ContextTokens: must be a number, got "),
    ],
)
def test_a_bad_line_is_named_with_its_number(write: Any, line: str | bytes, expected: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    head, tail = AZURE.encode(), b"2023-11-16 18:17:00,12,4\n"
    path = write(head + raw + b"\n" + tail)
    assert complaint(path).startswith(f"FILE:5: {expected}")
    skipped = read(path, "auto", "skip")
    assert (len(skipped), skipped.rows, skipped.skipped) == (4, 5, 1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"timestamp": 0, "input_length": 9', "is not JSON: "),
        ('{"timestamp": 0, "timestamp": 1}', "is not JSON: a key comes twice"),
        ('{"timestamp": NaN, "input_length": 9, "output_length": 1}', "is not JSON: NaN is no"),
        ("[" * 50_000, "is not JSON: it is nested too deeply"),
        ('{"timestamp": ' + "9" * 5000 + "}", "is not JSON: it is nested too deeply, or a number"),
        ("[1, 2]", "must be a JSON object, got a list"),
        ('{"timestamp": 0, "input_length": 9}', "output_length: is missing"),
        ('{"timestamp": "0", "input_length": 9, "output_length": 1}', "timestamp: must be a num"),
        ('{"timestamp": true, "input_length": 9, "output_length": 1}', "timestamp: must be a num"),
        ('{"timestamp": -1, "input_length": 9, "output_length": 1}', "timestamp: must not be neg"),
        ('{"timestamp": 1e300, "input_length": 9, "output_length": 1}', "timestamp: is too late"),
        (
            '{"timestamp": 0, "input_length": 9.5, "output_length": 1}',
            "input_length: must be whole",
        ),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1}', "input_length: must be at lea"),
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}',
            "hash_ids: must be 2 for 513 tokens, one for every 512, got 1",
        ),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [-1]}',
            "hash_ids: must be a list of whole numbers from 0, got a list",
        ),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": 7}',
            "hash_ids: must be a list of whole numbers from 0, got 7",
        ),
    ],
)
def test_a_bad_json_line_is_named_with_its_number(write: Any, line: str, expected: str) -> None:
    path = write(f"{MOONCAKE}\n{line}\n")
    assert complaint(path).startswith(f"FILE:4: {expected}")
    assert read(path, "auto", "skip").skipped == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1,100,1,,system,", "prefix_tokens: must be above 0 with a prefix, got ''"),
        ("1,100,1,,,64", "prefix_tokens: needs a prefix to belong to, got '64'"),
        ("1,50,1,,system,64", "prefix_tokens: must be within the prompt of 50, got 64"),
        ("1,100,1,,system,65", "prefix_tokens: must be 64 as before for this prefix, got 65"),
        ("-1,100,1,,,", "arrival_s: must not be negative, got -1"),
        ("2024-05-10,100,1,,,", "arrival_s: must be a number, got '2024-05-10'"),
    ],
)
def test_a_bad_plain_line_is_named_with_its_number(write: Any, line: str, expected: str) -> None:
    assert complaint(write(f"{PLAIN}{line}\n")) == f"FILE:5: {expected}"


@pytest.mark.parametrize(
    "lines",
    [
        '1,100,1,"two\nlines"\n',
        '1,100,1,"open\n',
        '1,100,1,"open',
        "1,100,1,one\r2,100,1,two\n\n",
        '1,"10"0,1,one\n',
    ],
)
def test_what_only_a_lenient_reader_would_take_is_refused(write: Any, lines: str) -> None:
    header = "arrival_s,prompt_tokens,output_tokens,stream\n"
    assert complaint(write(header + lines)).startswith("FILE:2: is not CSV: ")


def test_all_bad_lines_are_numbered_up_to_a_dozen(write: Any) -> None:
    assert complaint(write(AZURE + "x\ny\n")).endswith(" (and 1 more bad line: 6)")
    numbers = ", ".join(str(line) for line in range(6, 18))
    many = complaint(write(AZURE + "x\n" * 40))
    assert many == f"FILE:5: must have 3 fields, got 1 (and 39 more bad lines: {numbers}, ...)"


# Files that are no trace


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is an empty file"),
        ("\n \n", "is an empty file"),
        (AZURE.splitlines()[0], "has a header and nothing else"),
        (AZURE.splitlines()[0] + "\nx\n", "FILE:2: must have 3 fields, got 1"),
        (
            BURSTGPT_1.splitlines()[0] + "\n1,M,5,0,5,API log\n",
            "has no answered request: all 1 have 0 output tokens",
        ),
        ("\nwhen,in,out\n1,2,3\n", "FILE:2: is the header of no known trace, azure (TIMESTAMP"),
        ("arrival_s,prompt_tokens\n1,2\n", "FILE:1: is the header of no known trace"),
        ("[{}]", "FILE:1: is the header of no known trace"),
        (b"\x89PNG\r\n\x1a\n\0\0", "FILE:1: is not UTF-8: byte 0x89"),
        (AZURE.encode("utf-16"), "FILE:1: holds a NUL byte"),
        ("x" * 20_000_000, "FILE:1: is longer than 16000000 bytes"),
        (PLAIN.replace("session", "sesion"), "FILE:1: sesion: is no known column; did you mean"),
        (PLAIN.replace("session", "arrival_s"), "FILE:1: arrival_s: is there twice"),
        (PLAIN.replace("prefix_tokens", "tail"), "FILE:1: has one of the columns prefix and pre"),
        (gzip.compress(AZURE.encode(), mtime=0)[:-9], "cannot read it: "),
        (gzip.compress(AZURE.encode(), mtime=0)[:40], "cannot read it: "),
        (b"\x1f\x8b but no gzip", "cannot read it: "),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(
    write: Any, content: str | bytes, expected: str
) -> None:
    path = write(content)
    assert complaint(path).startswith(expected)
    assert complaint(path, "auto", "skip").startswith(expected)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert complaint(str(tmp_path)) == "is a folder, got 'FILE'"
    assert (
        complaint(str(tmp_path / "none.csv"))
        == "cannot read it: No such file or directory, got 'FILE'"
    )
    assert complaint("a\0b").startswith("cannot read it: ")
    os.mkfifo(tmp_path / "pipe")
    assert complaint(str(tmp_path / "pipe")) == "is no regular file, got 'FILE'"


@pytest.mark.parametrize(
    ("text", "wanted"), [(MOONCAKE, "azure"), (AZURE, "csv"), (AZURE, "mooncake")]
)
def test_a_format_that_was_named_must_be_the_right_one(write: Any, text: str, wanted: str) -> None:
    assert complaint(write(text), wanted).startswith("FILE:1: ")
