"""Reading a server's metrics while it is under load."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from calibration.live.server.identity import identity
from calibration.live.server.readings import read
from calibration.live.server.scrape import Scraper, metrics_urls
from tests.live_texts import AFTER, LLAMA_CPP, SGLANG, vllm

Answer = Callable[[str], Awaitable[tuple[int, str]]]


@asynccontextmanager
async def served(answer: Answer):  # type: ignore[no-untyped-def]
    """Base address of a server that answers each path with a status and a text."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                status, text = await answer(head.split()[1].decode())
                body = text.encode()
                length = f"content-length: {len(body)}\r\n\r\n".encode()
                writer.write(f"HTTP/1.1 {status} x\r\n".encode() + length + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


class Counting:
    """Metrics whose counter grows with every scrape."""

    scrapes = 0

    async def __call__(self, path: str) -> tuple[int, str]:
        self.scrapes += 1
        return 200, vllm(running=self.scrapes, generation_tokens=10.0 * self.scrapes)

    async def reach(self, scrapes: int) -> None:
        """Wait for so many scrapes."""
        while self.scrapes < scrapes:
            await asyncio.sleep(0.002)


@asynccontextmanager
async def watching(answer: Answer, every_s: float):  # type: ignore[no-untyped-def]
    """A stage watched at a server with such answers, and the scraper."""
    async with (
        served(answer) as base,
        Scraper(metrics_urls(base)) as scraper,
        scraper.stage(every_s) as watched,
    ):
        yield watched, scraper


def test_a_stage_has_what_counters_gained_and_gauges_showed() -> None:
    async def main() -> None:
        answer = Counting()
        began = time.perf_counter()
        async with watching(answer, 0.03) as (watched, scraper):
            await answer.reach(5)
            # The answer to the last one is still on its way.
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        assert scraper.url.endswith("/metrics")
        assert scraper.notes == []
        taken = len(watched.samples)
        # One to find it, one before, one after, and one that the end may have cut off.
        assert taken in (answer.scrapes - 3, answer.scrapes - 4)
        assert watched.counters == {"generation_tokens": 10.0 * (answer.scrapes - 2)}
        assert watched.gauges["running"]["max"] == taken + 2
        assert watched.failed == 0
        assert watched.before != watched.after
        times = [at_s for at_s, _ in watched.samples]
        assert times == sorted(times)
        assert 0.01 < times[0] < times[-1] < took
        rows = watched.rows("concurrency=4", 1)
        assert len(rows) == 2 * taken
        assert rows[0] == {
            "point": "concurrency=4",
            "replication": 1,
            "at_s": times[0],
            "name": "generation_tokens",
            "value": 30.0,
        }

    asyncio.run(main())


def test_samples_before_the_load_began_are_dropped() -> None:
    async def main() -> None:
        counting, let = Counting(), asyncio.Event()

        async def answer(path: str) -> tuple[int, str]:
            found = await counting(path)
            if counting.scrapes == 4:
                await let.wait()
            return found

        async with watching(answer, 0.02) as (watched, _):
            await counting.reach(4)
            watched.start()
            let.set()
            await counting.reach(6)
        running = [reading.gauges["running"] for _, reading in watched.samples]
        assert running[0] == 5.0, "neither the third, taken before, nor the fourth, asked before"
        assert watched.counters["generation_tokens"] == 10.0 * (counting.scrapes - 2)

    asyncio.run(main())


def test_slow_scrapes_are_left_out_and_never_pile_up() -> None:
    out = most = 0

    async def answer(path: str) -> tuple[int, str]:
        nonlocal out, most
        out += 1
        most = max(most, out)
        await asyncio.sleep(0.05)
        out -= 1
        return 200, vllm(running=1.0)

    async def main() -> None:
        async with watching(answer, 0.02) as (watched, _):
            began = time.perf_counter()
            await asyncio.sleep(0.3)
            due = (time.perf_counter() - began) / 0.02
        assert most <= 2, "one scrape at a time, but for one given up that the server still answers"
        assert len(watched.samples) + watched.late <= due + 1, "each is late once"
        assert 1 <= len(watched.samples) <= 6
        assert watched.late >= 4
        assert any("left out" in note for note in watched.notes)

    asyncio.run(main())


def test_failed_scrapes_are_counted_and_do_not_end_the_stage() -> None:
    scrapes = 0

    async def answer(path: str) -> tuple[int, str]:
        nonlocal scrapes
        scrapes += 1
        return (200, vllm(generation_tokens=scrapes)) if scrapes < 3 else (500, "no")

    async def main() -> None:
        async with watching(answer, 0.02) as (watched, _):
            while watched.failed < 2:
                await asyncio.sleep(0.002)
        assert watched.after == ""
        assert watched.counters == {}
        assert watched.notes[0] == "no counters: the metrics after the stage could not be read"

    asyncio.run(main())


def test_a_scrape_that_drips_ends_at_its_timeout() -> None:
    async def answer(path: str) -> tuple[int, str]:
        await asyncio.sleep(30.0)
        return 200, ""

    async def main() -> None:
        async with served(answer) as base:
            began = time.perf_counter()
            async with Scraper(metrics_urls(base), timeout_s=0.05) as scraper:
                assert scraper.url is None
            assert time.perf_counter() - began < 1.0
            assert "no answer in time" in scraper.notes[0]

    asyncio.run(main())


def test_a_stage_that_ends_by_an_exception_keeps_what_was_read() -> None:
    async def main() -> None:
        answer = Counting()
        with pytest.raises(KeyError):
            async with watching(answer, 0.02) as (watched, _):
                await answer.reach(5)
                raise KeyError
        assert watched.after == ""
        assert len(watched.samples) >= 2
        assert watched.counters == {}, "no sample stands for the end"
        assert "after the stage" in watched.notes[0]

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after", "before and after"])
def test_without_both_ends_there_are_no_counters_and_a_note(when: str) -> None:
    up, scrapes = True, 0

    async def answer(path: str) -> tuple[int, str]:
        nonlocal scrapes
        scrapes += up
        return (200, vllm(generation_tokens=10 * scrapes)) if up else (500, "no")

    async def main() -> None:
        nonlocal up
        async with served(answer) as base, Scraper(metrics_urls(base)) as scraper:
            up = "before" not in when
            async with scraper.stage(0.01) as watched:
                up, start = True, scrapes
                while scrapes < start + 3:
                    await asyncio.sleep(0.002)
                up = "after" not in when
        assert len(watched.samples) >= 2
        assert watched.counters == {}
        # On a busy machine samples may be late as well.
        assert watched.notes[0] == f"no counters: the metrics {when} the stage could not be read"

    asyncio.run(main())


def test_lines_that_are_no_metrics_are_noted() -> None:
    async def answer(path: str) -> tuple[int, str]:
        return 200, vllm(generation_tokens=5) + "vllm:prompt_tokens_total oops\n"

    async def main() -> None:
        async with watching(answer, 1.0) as (watched, _):
            pass
        assert watched.counters == {"generation_tokens": 0.0}
        assert watched.notes == ["lines of the metrics that hold no number were left out: 1"]

    asyncio.run(main())


def test_no_proxy_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def main() -> None:
        async with served(Counting()) as base, Scraper(metrics_urls(base)) as scraper:
            assert scraper.url is not None, scraper.notes

    asyncio.run(main())


@pytest.mark.parametrize("status", [200, 404, 501])
def test_absent_metrics_are_one_note(status: int) -> None:
    async def answer(path: str) -> tuple[int, str]:
        return status, '[{"iter": 1}]'

    async def main() -> None:
        async with watching(answer, 0.02) as (watched, scraper):
            await asyncio.sleep(0.03)
        assert scraper.url is None
        assert len(scraper.notes) == 1
        assert (watched.counters, watched.gauges, watched.samples) == ({}, {}, [])
        assert watched.notes == []

    asyncio.run(main())


def test_a_refused_connection_is_absent_metrics() -> None:
    async def main() -> None:
        async with Scraper(metrics_urls("http://127.0.0.1:1/v1/")) as scraper:
            assert "ConnectError" in scraper.notes[0]
        async with Scraper(()) as nothing:
            assert nothing.notes == []

    asyncio.run(main())


def test_json_at_the_first_address_leads_to_the_second() -> None:
    async def answer(path: str) -> tuple[int, str]:
        text = "trtllm_generation_tokens_total 5\n"
        return 200, text if path == "/prometheus/metrics" else "[]"

    async def main() -> None:
        async with served(answer) as base, Scraper(metrics_urls(base)) as scraper:
            assert scraper.url is not None
            assert scraper.url.endswith("/prometheus/metrics")

    asyncio.run(main())


def test_a_server_is_known_by_its_metrics_and_asked_for_its_version() -> None:
    async def answer(path: str) -> tuple[int, str]:
        texts = {
            "/metrics": SGLANG,
            "/get_server_info": json.dumps({"version": "0.5.9", "api_key": "sk-secret"}),
            "/v1/models": json.dumps({"data": [{"id": "m", "owned_by": "sglang"}]}),
        }
        return (200, texts[path]) if path in texts else (404, "{}")

    async def main() -> None:
        async with served(answer) as base, Scraper(metrics_urls(base)) as scraper:
            server = await scraper.server(base)
        assert (server.engine, server.version) == ("sglang", "0.5.9")
        assert "sk-secret" not in str(server)

    asyncio.run(main())


def test_a_fingerprint_or_an_owner_tells_an_engine_without_metrics() -> None:
    assert identity(fingerprint="vllm-0.32.0-tp4-76ca82da")[:2] == ("vllm", "0.32.0")
    assert identity(fingerprint="b6123-1a2b3c4")[:2] == ("llama.cpp", "b6123-1a2b3c4")
    assert identity(owner="sglang", version="0.5.9")[:2] == ("sglang", "0.5.9")
    assert identity(fingerprint="fp_44709d6fcb")[:2] == ("unknown", None)
    assert identity(read(LLAMA_CPP), fingerprint="vllm-0.32.0-x")[0] == "llama.cpp"
    recorded = identity(read(AFTER), version="0.32.0")
    assert recorded.info["kv_cache_size_tokens"] == "93184"
