"""A whole observation: stage after stage, each kept as it comes."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from types import FrameType

import httpx

from calibration.live import recording
from calibration.live.observe import tables
from calibration.live.observe.client import Client, Outcome
from calibration.live.observe.journal import FILE, Journal
from calibration.live.observe.lag import Lag
from calibration.live.observe.load import Loader, Part, Send, Sent, until_stopped
from calibration.live.observe.options import Options, plain, public
from calibration.live.observe.prompts import Prompt, first_line
from calibration.live.observe.rows import Row, row_of
from calibration.live.observe.schedule import Planned, stages
from calibration.live.server.scrape import Scraper, Watched
from models.strict_yaml import InputError
from sim import interrupts
from sim.progress import OnProgress
from sim.staging import foreign, obstacle
from sim.tables import Status

Note = Callable[[str], None]

IN_ORDER = 1
"""Signals only noted under load: the first ends it in order."""
WARM_UP = "warm-up"


class GoneError(RuntimeError):
    """The server does not answer, or not as it must; the message says what was kept."""


class Observer:
    """Measures what is left of an observation.

    Parameters
    ----------
    options : Options
    note : callable
        Takes remarks for the user.

    Attributes
    ----------
    journal : Journal
    todo : list of Planned
        Stages not complete when this began.

    Raises
    ------
    InputError
        If the folder holds something else, or another observation.
    """

    def __init__(self, options: Options, note: Note) -> None:
        self.options, self._note = options, note
        problem = obstacle(options.out, tables.FILES)
        problem = problem or foreign(options.out, "observe", tables.FILES[:1])
        if (options.out / recording.STAGES).exists() and not (options.out / FILE).exists():
            problem = "holds an observation without its journal, as imports are; choose another"
        if problem is not None:
            raise InputError(str(options.out), None, "--out", problem)
        today = _now()[:10]
        self.journal = Journal(options.out / FILE, options.settings(), today)
        self.planned = stages(options.asked)
        self.todo = [one for one in self.planned if self.journal.left(one)]
        self._kept = tables.Kept(options, self.journal)
        self._probed, self._lost, self._fingerprint = False, list[Row](), ""
        self._noted: set[str] = set()
        self._done, self._total = 0, sum(len(self.journal.left(one)) for one in self.todo)

    @property
    def kept(self) -> tables.Kept:
        """What is measured so far, as it is written."""
        return self._kept

    @property
    def kept_words(self) -> str:
        """How much is kept, and where."""
        kept, where = self.journal.requests, self.journal.path
        if not kept:
            return "nothing was measured"
        left = any(self.journal.left(one) for one in self.planned)
        more = "; the same command goes on with it" if left else ""
        return f"{kept} requests are kept in '{where}'{more}"

    def run(self, stop: interrupts.Stop, on_progress: OnProgress) -> None:
        """Measure all that is left; a first signal ends it in order.

        Raises
        ------
        GoneError
            If the server cannot be measured; what was measured is kept.
        """
        # A run that was killed left no tables.
        self._kept.write()
        if self.todo:
            asyncio.run(self._run(stop, on_progress))

    async def _run(self, stop: interrupts.Stop, on_progress: OnProgress) -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake(number: int, frame: FrameType | None) -> None:
            stop(number, frame)
            loop.call_soon_threadsafe(stopping.set)

        stop.patience = IN_ORDER
        with interrupts.handled(wake):
            key, urls = self.options.asking.key, self.options.metrics_urls
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with Client(self.options.asking) as client, Scraper(urls, headers=headers) as at:
                for note in at.notes:
                    self._note(client.shown(note))
                for planned in self.todo:
                    dead = await self._stage(planned, client, at, stopping, on_progress)
                    if dead:
                        raise GoneError(f"{self._where()} is gone: {dead}")
                    if stopping.is_set():
                        return

    async def _stage(
        self,
        planned: Planned,
        client: Client,
        scraper: Scraper,
        stopping: asyncio.Event,
        on_progress: OnProgress,
    ) -> str:
        """Measure what is left of one stage; the last error where the server is gone."""
        label, before = f"{planned.name}, repeat {planned.replication}", self._done

        def on_sent(sent: Sent, zero_s: float) -> None:
            self._keep(sent, zero_s, planned)
            self._done += 1
            on_progress(label, self._done, self._total)

        on_progress(label, before, self._total)
        if not await self._warm_up(planned, client, stopping):
            return ""
        numbers, elapsed_s = self.journal.left(planned), self.journal.of(planned).elapsed_s
        loader = Loader(self._sender(planned, client), on_sent, stopping)
        async with scraper.stage() as watched, Lag() as lag:
            self.journal.begin(planned, _now())
            watched.start()
            part = await loader.run(planned, numbers, elapsed_s)
        for note in filter(None, (*map(client.shown, watched.notes), lag.note())):
            self._note(f"{label}: {note}")
        await self._end(planned, part, watched, scraper)
        return part.dead

    async def _end(self, planned: Planned, part: Part, watched: Watched, scraper: Scraper) -> None:
        """Keep what belongs to the part as a whole, and write the tables."""
        if not self.journal.server:
            found = await scraper.server(plain(self.options.asking.base_url), self._fingerprint)
            self.journal.know(found._asdict())
        samples = [
            [round(row["at_s"], 6), row["name"], row["value"]] for row in watched.rows("", 0)
        ]
        self.journal.end(
            {
                "duration_s": round(part.duration_s, 6),
                "counters": watched.counters,
                "gauges": watched.gauges,
                "samples": samples,
            }
        )
        flying = [self._row(sent, part.zero_s, planned) for sent in part.in_flight]
        if not part.dead:
            self._settle()
        texts = {"before": watched.before, "after": watched.after}
        rows = {planned.key: [*flying, *self._lost]}
        said = {name: text for name, text in texts.items() if text}
        self._kept.write(rows, planned, said)
        for note in self._kept.notes - self._noted:
            self._note(note)
        self._noted |= self._kept.notes

    def _keep(self, sent: Sent, zero_s: float, planned: Planned) -> None:
        """Put a request in the journal; one that lost its connection once the server still lives.

        A server that dies takes what is in flight with it: a later run sends that again.
        """
        row = self._row(sent, zero_s, planned)
        if sent.outcome is not None and sent.outcome.lost:
            self._lost.append(row)
            return
        self._settle()
        self.journal.add(row)

    def _settle(self) -> None:
        for row in self._lost:
            self.journal.add(row)
        self._lost.clear()

    def _row(self, sent: Sent, zero_s: float, planned: Planned) -> Row:
        prompt = self.options.prompts.of(sent.number)
        return row_of(sent, zero_s, prompt, self._tokens(prompt), planned)

    def _tokens(self, prompt: Prompt) -> int:
        return self.options.tokens if prompt.max_tokens is None else prompt.max_tokens

    def _sender(self, planned: Planned, client: Client, *more: object) -> Send:
        """What sends the request of a number; other stages and repeats send another first line."""
        options = self.options

        async def send(number: int) -> Outcome:
            prompt = options.prompts.of(number)
            mark = (options.asked.seed, *planned.key, *more, number)
            line = "" if options.same_prompts else first_line(*mark)
            return await client.send(prompt, self._tokens(prompt), line)

        return send

    async def _warm_up(self, planned: Planned, client: Client, stopping: asyncio.Event) -> bool:
        """Send requests that are not measured, and wait for them; False where stopped."""
        send = self._sender(planned, client, WARM_UP)
        numbers = range(planned.warm_up)
        if not self._probed:
            first = asyncio.ensure_future(send(0))
            if not await until_stopped(first, stopping):
                return False
            self._check(first.result())
            self._fingerprint = first.result().fingerprint or ""
            self._probed, numbers = True, numbers[1:]
        return await until_stopped(asyncio.gather(*map(send, numbers)), stopping)

    def _check(self, outcome: Outcome) -> None:
        """Refuse to go on with a server whose first answer shows that nothing can be measured.

        Raises
        ------
        GoneError
        """
        code, failed = outcome.http_status, outcome.status == Status.FAILED
        refused = code is not None and code != httpx.codes.OK and code < 500
        nonsense = code == httpx.codes.OK and failed and not outcome.lost
        if outcome.unreachable or (failed and refused) or nonsense:
            raise GoneError(f"{self._where()} {outcome.message}")
        if outcome.status == Status.FINISHED and outcome.usage is None:
            raise GoneError(
                f"{self._where()} sends no usage: tokens cannot be counted; a server that knows "
                "stream_options.include_usage is needed"
            )

    def _where(self) -> str:
        return public(self.options.asking.base_url)


def _now() -> str:
    """ISO time, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


__all__ = ["GoneError", "Observer"]
