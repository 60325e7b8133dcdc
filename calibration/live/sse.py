"""Server-sent events, read as they arrive: pieces may be cut anywhere.

The format is that of the HTML standard, section "Server-sent events": lines end in LF, CRLF or CR,
an empty line ends an event, a colon begins a comment, several ``data`` lines are one text. Unlike
there, an event at the very end counts without its empty line: some servers leave it out.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

LONGEST_EVENT = 16_000_000
"""Characters; what grows beyond is no stream of events."""


class EventReader:
    """Takes bytes and gives the data of every event that they complete."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._data: list[str] = []
        self._after_cr = False
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[str]:
        """Take the next bytes.

        Raises
        ------
        ValueError
            If an event is longer than ``LONGEST_EVENT``.
        """
        text = self._decoder.decode(piece)
        if not text:
            return
        if self._after_cr:
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._size += len(text)
        if self._size > LONGEST_EVENT:
            raise ValueError(f"sent an event of more than {LONGEST_EVENT} characters")
        if "\n" not in text:
            self._rest += text
            return
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest
        for line in lines:
            yield from self._take(line)

    def close(self) -> Iterator[str]:
        """Give the last event, if its end is missing."""
        text, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        for line in (text, ""):
            yield from self._take(line)

    def _take(self, line: str) -> Iterator[str]:
        if not line:
            self._size = 0
            if self._data:
                data, self._data = "\n".join(self._data), []
                yield data
            return
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
