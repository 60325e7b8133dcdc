"""Reads a server's metrics before, during and after a stage, and never disturbs the load.

A scrape that fails or is late is left out and counted; none of it raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from math import floor
from types import TracebackType
from typing import Any

import httpx

from calibration.live.server.identity import VERSIONS, Server, identity, owner_of, text_at
from calibration.live.server.readings import Reading, gist, increase, read, summarise

PATHS = ("/metrics", "/prometheus/metrics")
"""Where metrics stand below the server's root; trtllm-serve has JSON at the first."""

TIMEOUT_S = 2.0
EVERY_S = 1.0
LARGEST = 16 * 2**20
"""Bytes of metrics read at most."""


def metrics_urls(base_url: str) -> tuple[str, ...]:
    """Where the metrics of the server behind an API may stand.

    Parameters
    ----------
    base_url : str
        Base of the API, as ``http://host:8000/v1``.
    """
    return tuple(_root(base_url) + path for path in PATHS)


def _root(base_url: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1")


class Watched:
    """What a server said during one stage.

    Attributes
    ----------
    before, after : str
        Whole texts; empty where there was none.
    counters : dict of float
        Increase over the stage by neutral name; filled when the stage is over.
    gauges : dict of dict
        ``mean`` and ``max`` of the samples by neutral name; filled when the stage is over.
        Nothing without both whole texts.
    samples : list of (float, Reading)
        Time since ``start`` [s], and what was read; filled when the stage is over.
    failed, late : int
        Scrapes that got no answer, and those not sent as the one before was still out.
    notes : list of str
        What was left out, and why.

    Parameters
    ----------
    expected : bool
        Whether the server has metrics: then it is noted where they could not be read.
    """

    def __init__(self, expected: bool = True) -> None:
        self._expected = expected
        self.before = self.after = ""
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, dict[str, float]] = {}
        self.samples: list[tuple[float, Reading]] = []
        self.failed = self.late = 0
        self.notes: list[str] = []
        self._kept: list[tuple[float, str]] = []
        self.start()

    def start(self) -> None:
        """Take now as the start of the stage; samples read before it are dropped."""
        self._start_s = time.perf_counter()
        self._kept.clear()

    def keep(self, taken_s: float, text: str) -> None:
        """Keep a sample of the time ``taken_s`` of ``perf_counter``.

        It is read when the stage is over, as reading takes milliseconds.
        """
        if taken_s >= self._start_s:
            self._kept.append((taken_s, gist(text)))

    def rows(self, point: str, replication: int) -> list[dict[str, Any]]:
        """Rows of ``server.parquet``: point, replication, at_s, name, value."""
        head = {"point": point, "replication": replication}
        return [
            {**head, "at_s": at_s, "name": name, "value": value}
            for at_s, reading in self.samples
            for name, value in sorted({**reading.counters, **reading.gauges}.items())
        ]

    def settle(self) -> None:
        """Work out ``counters`` and ``gauges`` from what was read."""
        self.samples = [(taken_s - self._start_s, read(text)) for taken_s, text in self._kept]
        readings = [reading for _, reading in self.samples]
        self.gauges = summarise(readings)
        if self._expected:
            self._count(readings)
        if self.failed:
            self.notes.append(f"{self.failed} samples of the metrics failed")
        if self.late:
            self.notes.append(f"{self.late} samples were left out, one before was still out")

    def _count(self, readings: Sequence[Reading]) -> None:
        """What the counters gained; a sample within the stage stands for neither of its ends."""
        texts = {"before": self.before, "after": self.after}
        lacking = [name for name, text in texts.items() if not text]
        if lacking:
            when = " and ".join(lacking)
            self.notes.append(f"no counters: the metrics {when} the stage could not be read")
            return
        before, after = read(self.before), read(self.after)
        found = increase(before, [*readings, after])
        self.counters = found.counters
        self.notes += found.notes
        if skipped := max(before.skipped, after.skipped):
            self.notes.append(f"lines of the metrics that hold no number were left out: {skipped}")


class Scraper:
    """A server's metrics; absent metrics are no fault, and said once in ``notes``.

    Parameters
    ----------
    urls : sequence of str
        Tried in turn, see ``metrics_urls``; empty to read nothing.
    timeout_s : float
        Longest wait for one scrape [s].
    headers : mapping, optional
        Sent with every scrape.

    Attributes
    ----------
    url : str or None
        The one that answered with metrics known here; None until then, or without any.
    notes : list of str
    """

    def __init__(
        self,
        urls: Sequence[str],
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._urls = tuple(urls)
        self._timeout_s = timeout_s
        # As the load's: a proxy is not what is measured.
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            headers=dict(headers or {}),
            trust_env=False,
            verify=httpx.create_ssl_context(),
        )
        self.url: str | None = None
        self.notes: list[str] = []

    async def __aenter__(self) -> Scraper:
        """Find out which of the addresses has metrics."""
        reasons = []
        for url in self._urls:
            text, reason = await self._get(url)
            if text is not None and read(text).known:
                self.url = url
                break
            reasons.append(f"{url}: {reason or 'no metrics of an engine known here'}")
        if self._urls and self.url is None:
            self.notes.append("the server's metrics are absent: " + "; ".join(reasons))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def text(self) -> str:
        """Whole text of the metrics; empty where there is none just now."""
        if self.url is None:
            return ""
        return (await self._get(self.url))[0] or ""

    async def server(self, base_url: str, fingerprint: str | None = None) -> Server:
        """Ask who answers.

        Parameters
        ----------
        base_url : str
            Base of the API.
        fingerprint : str, optional
            ``system_fingerprint`` of an answer.
        """
        version = None
        for path, key in VERSIONS.items():
            version = text_at(await self._json(_root(base_url) + path), key)
            if version:
                break
        owner = owner_of(await self._json(base_url.rstrip("/") + "/models"))
        return identity(read(await self.text()), version, owner, fingerprint)

    async def _json(self, url: str) -> Any:
        text, _ = await self._get(url)
        try:
            return json.loads(text or "null")
        except ValueError:
            return None

    @contextlib.asynccontextmanager
    async def stage(self, every_s: float = EVERY_S) -> AsyncIterator[Watched]:
        """Watch a stage: text before, samples within, text after.

        What was read stays in the ``Watched``, also when the stage ends by an exception; then there
        is no text after it, and so no counters.

        Parameters
        ----------
        every_s : float
            Time between samples [s]; the first comes after half of it.
        """
        watched = Watched(self.url is not None)
        watched.before = await self.text()
        watched.start()
        task = asyncio.create_task(self._sample(watched, every_s)) if self.url else None
        try:
            yield watched
            await _stop(task)
            task = None
            watched.after = await self.text()
        finally:
            await _stop(task)
            watched.settle()

    async def _sample(self, watched: Watched, every_s: float) -> None:
        due_s = time.perf_counter() + every_s / 2
        while True:
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            taken_s = time.perf_counter()
            text = await self.text()
            if text:
                watched.keep(taken_s, text)
            else:
                watched.failed += 1
            due_s += every_s
            missed = max(0, floor((time.perf_counter() - due_s) / every_s) + 1)
            watched.late += missed
            due_s += missed * every_s

    async def _get(self, url: str) -> tuple[str | None, str]:
        try:
            # httpx limits each wait, not the whole: a dripping answer would outlast it.
            async with asyncio.timeout(self._timeout_s):
                return await self._body(url)
        except TimeoutError:
            return None, "no answer in time"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, type(error).__name__

    async def _body(self, url: str) -> tuple[str | None, str]:
        body = bytearray()
        async with self._client.stream("GET", url) as response:
            if response.status_code != httpx.codes.OK:
                return None, f"status {response.status_code}"
            async for part in response.aiter_bytes():
                body += part
                if len(body) > LARGEST:
                    return None, f"more than {LARGEST} bytes"
        return body.decode("utf-8", "replace"), ""


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
