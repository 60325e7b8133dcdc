"""A server of the OpenAI API with the faults a real one will not produce on demand.

It runs in a thread of its own. ``behave`` says by the number of a request, from 0, what becomes of
it; the names are those of ``Streams``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

Behave = Callable[[int, Mapping[str, Any]], str]
REFUSED = {"500": 500, "429": 429, "503": 503, "404": 404, "401": 401}


class LiveServer:
    """What it was asked is in ``seen``; metrics count the tokens it sent."""

    def __init__(
        self,
        behave: Behave = lambda number, body: "ok",
        gap_s: float = 0.001,
        metrics: bool = False,
        told: Mapping[str, Any] | None = None,
        counted: Callable[[LiveServer], str] = lambda server: "",
    ) -> None:
        self.behave, self.gap_s, self.metrics, self.told = behave, gap_s, metrics, told
        self.counted, self.fingerprint = counted, "vllm-0.32.0-1234abcd"
        self.seen: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = self.most_busy = self.tokens = 0
        self.broken_off = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def prompts(self) -> list[str]:
        return [
            body["prompt"] if "prompt" in body else body["messages"][0]["content"]
            for body in self.seen
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[LiveServer]:
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        thread.start()
        assert ready.wait(5)
        try:
            yield self
        finally:
            self.stop()
            thread.join(5)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        ready.set()
        await self._stopped.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (asked := await _request(reader)) is not None:
                if not await self._answer(*asked, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.broken_off += 1
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(Exception):
                writer.close()

    async def _answer(
        self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection may be used again."""
        if not body:
            self.asked.append((path, headers))
            found = self.metrics and path.partition("?")[0] == "/metrics"
            text = f"vllm:generation_tokens_total {self.tokens}\nvllm:num_requests_running 1\n"
            text += self.counted(self)
            await _plain(writer, 200 if found else 404, text if found else "{}")
            return True
        number = len(self.seen)
        self.seen.append(json.loads(body))
        self.headers.append(headers)
        fault = self.behave(number, self.seen[-1])
        if fault == "stop":
            self.stop()
        if fault == "deaf":
            self._server.close()
        if fault in ("close", "stop"):
            writer.transport.abort()
            return False
        if fault in REFUSED:
            error = {"error": {"message": f"no: {headers.get('authorization', 'nothing')}"}}
            await _plain(writer, REFUSED[fault], json.dumps(error))
            return True
        if fault == "whole":
            await _plain(writer, 200, '{"choices": []}', "application/json")
            return True
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await self._stream(fault, self.seen[-1], writer)
        finally:
            self.busy -= 1

    async def _stream(
        self, fault: str, body: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        async for piece in Streams(self, body).of(fault):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if fault == "cut":
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


class Streams:
    """The bytes of one answer, piece by piece."""

    def __init__(self, server: LiveServer, body: Mapping[str, Any]) -> None:
        self.server, self.body = server, body
        self.tokens = int(body.get("max_tokens", body.get("max_completion_tokens")))
        self.chat = "messages" in body

    async def of(self, fault: str) -> AsyncIterator[bytes]:
        end = "\r\n\r\n" if fault == "crlf" else "\n\n"
        if fault in ("hang", "deaf"):
            yield b": here I am\n\n"
            await asyncio.sleep(60)
        for data in self._events(fault):
            await asyncio.sleep(0.05 if fault == "drip" else self.server.gap_s)
            line = f"data: {data}{end}".encode()
            if fault == "split":
                for at in range(0, len(line), 7):
                    yield line[at : at + 7]
            elif fault == "no newline" and data == "[DONE]":
                yield b"data: [DONE]"
            else:
                yield line
        self.server.tokens += self.tokens

    def _events(self, fault: str) -> Iterator[str]:
        if self.chat:
            yield self._event({"role": "assistant", "content": ""})
        for index in range(0 if fault in ("silent", "unseen") else self.tokens):
            if fault == "cut" and index == 2:
                return
            if fault == "garbage" and index == 2:
                yield "{this is no JSON"
            if fault == "error" and index == 2:
                yield json.dumps({"error": {"message": "out of memory", "code": 500}})
            yield self._event({"content": "" if fault == "special" else "wörd "})
        if fault == "no end":
            return
        yield self._event({}, "length")
        if fault != "no usage":
            yield json.dumps({"choices": [], "usage": self._usage(fault), **self._more()})
        yield "[DONE]"

    def _event(self, delta: dict[str, Any], reason: str | None = None) -> str:
        inner = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        return json.dumps({"choices": [{"index": 0, **inner, "finish_reason": reason}]})

    def _usage(self, fault: str) -> dict[str, Any]:
        counted: Any = {"too few": 1, "too many": 10_000, "half": 2.5, "negative": -1, "silent": 1}
        counted |= {"none": 0, "huge": 10**20}
        reasoned = {"completion_tokens_details": {"reasoning_tokens": 3}}
        return (reasoned if fault == "reasoned" else {}) | {
            "prompt_tokens": 0 if fault == "no prompt" else 7,
            "completion_tokens": counted.get(fault, self.tokens),
            "prompt_tokens_details": {"cached_tokens": 9} if fault == "cached" else None,
        }

    def _more(self) -> dict[str, Any]:
        told = self.server.told
        return {"system_fingerprint": self.server.fingerprint} | (
            {"metrics": {"speculative_decoding": told}} if told else {}
        )


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return first.split()[1], headers, body


async def _plain(
    writer: asyncio.StreamWriter, status: int, text: str, kind: str = "text/plain"
) -> None:
    data = text.encode()
    about = f"content-type: {kind}\r\ncontent-length: {len(data)}"
    head = f"HTTP/1.1 {status} so\r\n{about}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()


def wait_until(true: Callable[[], bool], most_s: float = 5.0) -> None:
    until = time.monotonic() + most_s
    while not true() and time.monotonic() < until:
        time.sleep(0.005)
    assert true()
