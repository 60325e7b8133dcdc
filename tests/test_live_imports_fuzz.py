"""Results of other tools, broken in one place: imported, or refused in one line."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from imported_results import DATA, NGRAM

from calibration.live.imports import command
from calibration.live.imports.command import Given
from models.schema import ModelError
from models.strict_yaml import InputError

FILES = (
    *("vllm_rate.json", "vllm_failed.json", "benchmarks.json"),
    *("profile_export.jsonl", "profile_export_aiperf.json"),
)
GONE = object()
VALUES: tuple[Any, ...] = (
    *(GONE, None, [], {}, "", "x", "inf", "http://host:x", "\ud800", "1e999", "NaN", True, False),
    *(0, -1, 0.5, -1e-9, 10**20, 10**400, 1e18, 1e308, 5e-324, math.nan, math.inf, -math.inf),
    *([None], [[]], ["x"], [10**20], [math.nan], {"value": None}, {"x": [1]}),
)
AS_GIVEN = Given(strategy=NGRAM, model="m", mode="closed_loop", point={"concurrency": 1})

quick = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@cache
def documents(name: str) -> tuple[Any, ...]:
    text = (DATA / name).read_text("utf-8")
    lines = text.splitlines() if name.endswith(".jsonl") else [text]
    return tuple(json.loads(line) for line in lines)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document, of long lists the first two entries."""
    yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:2]):
            yield from places(inner, (*place, index))


@cache
def all_places(name: str) -> list[tuple[Any, ...]]:
    return [place for place in places(list(documents(name))) if place]


def broken(name: str, place: tuple[Any, ...], value: Any) -> str:
    whole = copy.deepcopy(list(documents(name)))
    inner: Any = whole
    for part in place[:-1]:
        inner = inner[part]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return "\n".join(map(json.dumps, whole))


def import_folder(folder: Path, name: str) -> None:
    """Import, and write, all that is not refused as bad input."""
    result = folder / ("profile_export.jsonl" if "aiperf" in name else name)
    try:
        seen = command.read_results([result], AS_GIVEN)
    except (InputError, ModelError) as error:
        assert "\n" not in str(error)
        return
    json.dumps(command.document(seen), allow_nan=False)
    command.write(seen, folder / "out")


@pytest.mark.parametrize("name", FILES)
@quick
@given(data=st.data())
def test_a_broken_value_is_refused_in_one_line_or_does_no_harm(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(all_places(name)))
    value = data.draw(st.sampled_from(VALUES))
    for beside in ("profile_export.jsonl", "profile_export_aiperf.json"):
        shutil.copy(DATA / beside, tmp_path)
    (tmp_path / name).write_text(broken(name, place, value), "utf-8")
    import_folder(tmp_path, name)


CSV = "arrival_s,ttft_ms,e2e_s,prompt_tokens,output_tokens,concurrency,replication,n_steps,status\n"
CELLS = ("", " ", "x", "nan", "1e999", "1e20", "-1", "1e18", "0.5", '"', "1_0", "\u0663", "0")


@quick
@given(place=st.integers(0, 8), cell=st.sampled_from(CELLS))
@example(place=4, cell="9e18")
@example(place=6, cell="1e20")
def test_a_broken_cell_is_refused_in_one_line_or_does_no_harm(
    tmp_path: Path, place: int, cell: str
) -> None:
    cells = ["1.0", "200", "1.2", "10", "11", "1", "0", "5", "finished"]
    cells[place] = cell
    (tmp_path / "requests.csv").write_text(CSV + ",".join(cells) + "\n", "utf-8")
    import_folder(tmp_path, "requests.csv")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("profile_export_aiperf.json", "", "profile_export_aiperf.json: is empty"),
        ("profile_export_aiperf.json", "[]", "must be a mapping, got a list"),
        ("profile_export.jsonl", " \n", "neither JSON nor a table of requests"),
        ("requests.csv", "", "is missing: neither JSON nor a table"),
        ("benchmarks.json", '{"benchmarks": []}', "benchmarks: is empty"),
        ("benchmarks.json", "[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_file_of_nothing_is_told(tmp_path: Path, name: str, text: str, message: str) -> None:
    shutil.copy(DATA / "profile_export.jsonl", tmp_path)
    (tmp_path / name).write_text(text, "utf-8")
    result = "profile_export.jsonl" if "aiperf" in name else name
    with pytest.raises(InputError, match=message):
        command.read_results([tmp_path / result], AS_GIVEN)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("vllm_rate.json", (0, "itls", 0), None, r"itls\[0\]: must be a list, got null"),
        ("vllm_rate.json", (0, "queue_times"), 5, "queue_times: must be a list, got 5"),
        ("vllm_rate.json", (0, "queue_times", 0), "x", r"queue_times\[0\]: must be a number"),
        ("vllm_rate.json", (0, "request_rate"), "fast", "request_rate: must be a number"),
        ("vllm_rate.json", (0, "input_lens", 0), 10**20, r"input_lens\[0\]: must be below 9e\+18"),
        ("vllm_rate.json", (0, "input_lens", 0), 10**18, "prompt_tokens must be at most"),
        ("vllm_rate.json", (0, "request_rate"), 0, "rate_per_s: must be positive"),
        (
            "profile_export.jsonl",
            (1, "metadata", "request_start_ns"),
            None,
            "metadata.request_start_ns: is missing",
        ),
        (
            "profile_export_aiperf.json",
            (0, "input_config", "endpoint", "urls"),
            "http://host",
            "input_config.endpoint.urls: must be a list",
        ),
    ],
)
def test_what_is_broken_is_named(
    tmp_path: Path, name: str, place: tuple[Any, ...], value: Any, message: str
) -> None:
    shutil.copy(DATA / "profile_export.jsonl", tmp_path)
    (tmp_path / name).write_text(broken(name, place, value), "utf-8")
    result = "profile_export.jsonl" if "aiperf" in name else name
    with pytest.raises(InputError, match=message):
        command.read_results([tmp_path / result], AS_GIVEN._replace(mode=None))


def test_an_address_that_is_none_is_left_out(tmp_path: Path) -> None:
    name = "profile_export_aiperf.json"
    shutil.copy(DATA / "profile_export.jsonl", tmp_path)
    text = broken(name, (0, "input_config", "endpoint", "urls"), ["http://host:x/v1"])
    (tmp_path / name).write_text(text, "utf-8")
    seen = command.read_results([tmp_path / "profile_export.jsonl"], AS_GIVEN)
    assert seen.about["base_url"] == ""
