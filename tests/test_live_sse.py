"""Server-sent events come out the same however their bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.live import sse
from calibration.live.sse import EventReader

TEXT = (
    '\ufeff: hello\r\n\r\nevent: x\ndata: {"a": "ö"}\n\ndata:one\rdata: two\r\r\ndata\n\ndata: end'
)
EVENTS = ['{"a": "ö"}', "one\ntwo", "", "end"]


def events(pieces: list[bytes]) -> list[str]:
    reader = EventReader()
    return [data for piece in pieces for data in reader.feed(piece)] + list(reader.close())


def test_comments_line_ends_and_a_missing_last_newline():
    assert events([TEXT.encode()]) == EVENTS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(TEXT.encode())), max_size=12))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts):
    whole = TEXT.encode()
    at = [0, *sorted(cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(at)]
    assert events(pieces) == EVENTS


def test_every_byte_alone():
    assert events([bytes([one]) for one in TEXT.encode()]) == EVENTS


def test_an_event_is_given_as_soon_as_it_is_complete():
    reader = EventReader()
    assert list(reader.feed(b"data: a\n")) == []
    assert list(reader.feed(b"\n")) == ["a"]


def test_an_event_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "LONGEST_EVENT", 100)
    reader = EventReader()
    list(reader.feed(b"data: " + b"x" * 90))
    with pytest.raises(ValueError, match="more than 100"):
        list(reader.feed(b"x" * 90))
    short = EventReader()
    assert sum(len(list(short.feed(b"data: 0123456789\n\n"))) for _ in range(30)) == 30
