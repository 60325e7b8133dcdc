"""Trace files: every format is read as it is, once, whatever the blocks it is read in."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.scenario.trace import blocks, reading
from tests.traces import (
    AZURE,
    AZURE_2024,
    BURSTGPT_1,
    BURSTGPT_3,
    MOONCAKE,
    PLAIN,
    complaint,
    numbered,
    read,
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    return numbered(tmp_path)


# Formats


@pytest.mark.parametrize(
    ("text", "name", "arrival_s", "prompt_tokens", "output_tokens"),
    [
        (AZURE, "azure", [0, 4.314579, 4.541877], [374, 396, 14050], [44, 109, 55]),
        (AZURE_2024, "azure", [0, 9.99007], [2162, 2399], [5, 6]),
        (BURSTGPT_1, "burstgpt", [0, 40], [472, 1087], [18, 230]),
        (BURSTGPT_3, "burstgpt", [0, 51], [906, 36], [446, 29]),
        (MOONCAKE, "mooncake", [0, 3.053], [1100, 1024], [52, 26]),
        (PLAIN, "csv", [0, 9.75, 11.75], [100, 130, 7], [10, 1, 3]),
    ],
)
def test_a_format_is_told_from_its_first_line(
    write: Any,
    text: str,
    name: str,
    arrival_s: list[float],
    prompt_tokens: list[int],
    output_tokens: list[int],
) -> None:
    for trace in (read(write(text)), read(write(text), name)):
        assert trace.format == name
        np.testing.assert_array_equal(trace.arrival_s, arrival_s)
        np.testing.assert_array_equal(trace.prompt_tokens, prompt_tokens)
        np.testing.assert_array_equal(trace.output_tokens, output_tokens)


def test_failed_requests_are_counted_and_left_out(write: Any) -> None:
    trace = read(write(BURSTGPT_1))
    assert (len(trace), trace.rows, trace.failures, trace.skipped) == (2, 4, 2, 0)


def test_names_in_columns_are_kept_beside_the_requests(write: Any) -> None:
    trace = read(write(BURSTGPT_3))
    models, sessions = trace.labels["model"], trace.labels["session"]
    assert [models.names[code] for code in models.codes] == ["GPT-4", "ChatGPT"]
    assert [sessions.names[code] for code in sessions.codes] == ["1722ac82", ""]


@pytest.mark.parametrize(
    "dressed",
    [
        AZURE.replace("\n", "\r\n"),
        "\ufeff" + AZURE,
        AZURE + "\n",
        AZURE + "  \n\n",
        "\n" + AZURE,
        AZURE.rstrip("\n"),
        AZURE.replace(",396,", ',"396",'),
        AZURE.replace(",396,", ", 396 ,").replace("GeneratedTokens", "GeneratedTokens "),
        AZURE.replace(",396,", ",396.0,"),
        AZURE.replace("TIMESTAMP", "timestamp").replace("ContextTokens", "contexttokens"),
        AZURE.replace("6 18:15:50.9951690", "6T18:15:50.995169Z"),
        AZURE.replace("16 18:15:50.9951690", "16 20:15:50.995169+02:00"),
        AZURE.replace("16 18:15:50.9951690", "16 12:45:50.995169-0530"),
        gzip.compress(AZURE.encode(), mtime=0),
        gzip.compress(AZURE.encode()[:50]) + gzip.compress(AZURE.encode()[50:]),
    ],
)
def test_the_same_trace_may_come_dressed_differently(
    write: Any, monkeypatch: pytest.MonkeyPatch, dressed: str | bytes
) -> None:
    plain, at_once = read(write(AZURE)), read(write(dressed))
    monkeypatch.setattr(reading, "converted", lambda *_: None)
    line_by_line = read(write(dressed))
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(at_once, name))
        np.testing.assert_array_equal(getattr(plain, name), getattr(line_by_line, name))


def test_columns_come_in_any_order_and_unknown_ones_are_left_alone(write: Any) -> None:
    text = "output_tokens,request_id,prompt_tokens,timestamp\n9,x,20,2024-05-10\n"
    trace = read(write(text))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (20, 9)


def test_unknown_json_keys_are_left_alone_and_hash_ids_may_be_missing(write: Any) -> None:
    line = {"timestamp": 0, "input_length": 9, "output_length": 1, "type": "chat"}
    assert read(write(json.dumps(line))).chains is None


def test_rows_are_put_in_order_of_time_and_ties_stay(write: Any) -> None:
    rows = [(at, 1 + number) for number, at in enumerate([5, 3, 0] * 20)]
    text = "arrival_s,prompt_tokens,output_tokens,session\n"
    text += "".join(f"{at},{tokens},1,s{tokens}\n" for at, tokens in rows)
    trace = read(write(text))
    expected = sorted(rows)
    assert trace.arrival_s.tolist() == [at for at, _ in expected]
    assert trace.prompt_tokens.tolist() == [tokens for _, tokens in expected]
    session = trace.labels["session"]
    assert [session.names[code] for code in session.codes] == [f"s{n}" for _, n in expected]


# Reading in blocks, and once


@pytest.mark.parametrize("block_bytes", [7, 100, 301])
def test_numbers_of_lines_do_not_depend_on_the_blocks_read(
    write: Any, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    text = "\n" + AZURE + AZURE.partition("\n")[2] * 9 + "x\n\n" + AZURE.partition("\n")[2] + "x\n"
    whole = complaint(write(text))
    trace = read(write(text), "auto", "skip")
    monkeypatch.setattr(reading, "BLOCK_BYTES", block_bytes)
    assert (
        complaint(write(text)) == whole == "FILE:33: must have 3 fields, got 1 (and 1 more bad "
        "line: 38)"
    )
    again = read(write(text), "auto", "skip")
    np.testing.assert_array_equal(trace.arrival_s, again.arrival_s)
    assert (len(again), again.skipped) == (33, 2)


def test_a_bad_line_among_many_costs_only_its_neighbours_the_fast_way(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = AZURE.splitlines(keepends=True)[1]
    one_by_one = []
    by_line = reading.csv_row
    monkeypatch.setattr(reading, "csv_row", lambda *a: one_by_one.append(a) or by_line(*a))
    trace = read(write(AZURE + row * 5000 + "x\n" + row * 5000), "auto", "skip")
    assert (len(trace), trace.skipped) == (10_003, 1)
    assert 1 <= len(one_by_one) < 400


def test_a_file_is_read_once_until_it_changes(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    convert = blocks.converted
    monkeypatch.setattr(reading, "converted", lambda *a: reads.append(a) or convert(*a))
    path = write(AZURE)
    assert read(path) is read(path)
    assert len(reads) == 1
    Path(path).write_text(AZURE + "2023-11-16 18:17:00,12,4\n")
    assert len(read(path)) == 4
    assert len(reads) == 2
