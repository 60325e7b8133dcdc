"""Any bytes are a trace or an error of one line; what is read is what was written."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schema import ModelError
from models.strict_yaml import InputError
from sim.scenario.distributions import MAX_TOKENS
from sim.scenario.trace import reading
from sim.scenario.trace.reading import TraceFile
from tests.traces import (
    AZURE,
    AZURE_2024,
    BURSTGPT_1,
    BURSTGPT_3,
    MOONCAKE,
    PLAIN,
    check_chains,
    numbered,
    read,
    replay,
)

TEXTS = (AZURE, AZURE_2024, BURSTGPT_1, BURSTGPT_3, MOONCAKE, PLAIN)
QUOTED = BURSTGPT_1.replace(",", '","').replace("\n", '"\n"').rstrip('"')
BASE = [text.encode() for text in (*TEXTS, f'"{QUOTED}')]
BITS = [
    *(b",", b"\n", b"\r\n", b"\r", b'"', b'""', b"\0", b"\xff", b"\xef\xbb\xbf", b" ", b"\t"),
    *(b"{", b"}", b"[", b"hash_ids", b"NaN", b"null", b"true", b"\xc2\xa0", b"\xef\xbc\x91"),
    *(b"0", b"-", b"-0", b"+", b".", b"1e3", b"1e400", b"nan", b"inf", b"0x1", b"99999999999"),
    *(b"Z", b"+01:00", b"T", b":60", b"9999"),
]

counts = st.integers(1, MAX_TOKENS)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return numbered(tmp_path_factory.mktemp("fuzz"))


def outcome(path: str, how: Any) -> str | TraceFile:
    """The trace, or the one line that says why there is none."""
    try:
        return read(path, "auto", how)
    except (InputError, ModelError) as error:
        message = str(error).replace(path, "FILE")
        assert message.isprintable()
        return message


def check(trace: TraceFile) -> None:
    """Whatever was read can be replayed."""
    assert len(trace) == trace.rows - trace.failures - trace.skipped > 0
    assert trace.arrival_s[0] == 0
    assert np.isfinite(trace.arrival_s).all()
    assert (np.diff(trace.arrival_s) >= 0).all()
    for tokens in (trace.prompt_tokens, trace.output_tokens):
        assert ((tokens >= 1) & (tokens <= MAX_TOKENS)).all()
    assert (trace.prefix_tokens <= trace.prompt_tokens).all()
    if trace.chains is not None:
        check_chains(trace.chains.prefixes)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good trace with bytes put in, taken out or moved, whole lines among them."""
    text = draw(st.sampled_from(BASE))
    for _ in range(draw(st.integers(1, 3))):
        begin, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        end = min(end, begin + draw(st.sampled_from([0, 0, 1, 5, 60])))
        new = draw(
            st.one_of(st.sampled_from(BITS), st.just(text[end : end + 40]), st.binary(max_size=3))
        )
        text = text[:begin] + new + text[end:]
    return text


@settings(max_examples=300, deadline=None)
@given(content=st.one_of(mutated(), st.binary(max_size=60)), zipped=st.booleans())
def test_any_bytes_are_a_trace_or_one_line_that_says_why_not(
    write: Any, content: bytes, zipped: bool
) -> None:
    path = write(gzip.compress(content, 1) if zipped else content)
    refused, skipped = outcome(path, "refuse"), outcome(path, "skip")
    if isinstance(refused, TraceFile):
        check(refused)
    if isinstance(skipped, TraceFile):
        check(skipped)
        assert isinstance(refused, TraceFile) == (skipped.skipped == 0)


@settings(max_examples=200, deadline=None)
@given(content=mutated(), block_bytes=st.sampled_from([5, 64, 150]))
def test_blocks_read_at_once_say_the_same_as_their_lines(
    write: Any, content: bytes, block_bytes: int
) -> None:
    found = []
    whole = reading.BLOCK_BYTES
    for at_once, size in ((True, whole), (False, whole), (True, block_bytes)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "BLOCK_BYTES", size)
            if not at_once:
                patch.setattr(reading, "converted", lambda *_: None)
            found.append(outcome(write(content), "skip"))
    for other in found[1:]:
        if isinstance(found[0], str) or isinstance(other, str):
            assert found[0] == other
            continue
        for name in ("arrival_s", "prompt_tokens", "output_tokens", "prefix_tokens"):
            np.testing.assert_array_equal(getattr(found[0], name), getattr(other, name))
        assert (found[0].rows, found[0].skipped) == (other.rows, other.skipped)
        for label, column in found[0].labels.items():
            mine = [column.names[code] for code in column.codes]
            assert mine == [other.labels[label].names[code] for code in other.labels[label].codes]


def lines(header: list[str], rows: Any, quoting: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting)
    writer.writerows([header, *rows])
    return text.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.floats(0, 1e9), counts, counts, names), min_size=1, max_size=20),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_a_plain_trace_is_read_exactly(write: Any, rows: Any, quoting: Any) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    text = lines(["arrival_s", "prompt_tokens", "output_tokens", "stream"], rows, quoting)
    trace = read(write(text))
    np.testing.assert_array_equal(trace.arrival_s, np.array([row[0] for row in rows]) - rows[0][0])
    assert trace.prompt_tokens.tolist() == [row[1] for row in rows]
    assert trace.output_tokens.tolist() == [row[2] for row in rows]
    stream = trace.labels["stream"]
    assert [stream.names[code] for code in stream.codes] == [row[3] for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2**61), counts, counts), min_size=1, max_size=20),
    zone=st.sampled_from(["", "Z", "+00:00"]),
)
def test_dates_are_read_to_the_nanosecond(write: Any, rows: Any, zone: str) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    dated = [(f"{np.datetime64(at, 'ns')}{zone}", *tokens) for at, *tokens in rows]
    text = lines(["TIMESTAMP", "ContextTokens", "GeneratedTokens"], dated, csv.QUOTE_MINIMAL)
    trace = read(write(text))
    since = np.array([row[0] for row in rows], dtype=np.int64) - rows[0][0]
    np.testing.assert_array_equal(trace.arrival_s, since / 1e9)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 10**12), st.integers(1, 2500), counts), min_size=1, max_size=12
    ),
    scale=st.sampled_from([0.4, 1, 2.5]),
    data=st.data(),
)
def test_mooncake_prompts_share_exactly_their_common_blocks(
    write: Any, rows: Any, scale: float, data: st.DataObject
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    records: list[dict[str, Any]] = []
    for at, prompt, output in rows:
        many = -(-prompt // 512)
        ids = data.draw(st.lists(st.integers(0, 2), min_size=many, max_size=many))
        lengths = {"input_length": prompt, "output_length": output}
        records.append({"timestamp": at, **lengths, "hash_ids": ids})
    path = write("\n".join(json.dumps(record) for record in records))
    made = replay(path)
    keys = [made.prefixes.keys[a:b].tolist() for a, b in itertools.pairwise(made.prefixes.offsets)]
    for (one, mine), (two, theirs) in itertools.combinations(zip(records, keys, strict=True), 2):
        pairs = zip(blocks(one), blocks(two), strict=False)
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        assert len(set(mine) & set(theirs)) == common
    replay(path, rate_scale=scale)


def blocks(record: dict[str, Any]) -> list[tuple[int, int]]:
    """Id and end of every block of a prompt."""
    prompt = record["input_length"]
    return [(h, min(512 * (i + 1), prompt)) for i, h in enumerate(record["hash_ids"])]
