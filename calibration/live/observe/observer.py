"""A whole observation: stage after stage, each kept as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from calibration.live.address import public
from calibration.live.observe import tables
from calibration.live.observe.asking import Ready
from calibration.live.observe.client import Client
from calibration.live.observe.folder import Folder
from calibration.live.observe.journal import Journal, now
from calibration.live.observe.lag import Lag
from calibration.live.observe.load import Loader, Make, Part, Sent, until_stopped
from calibration.live.observe.options import Options
from calibration.live.observe.probe import Probe, header, identified
from calibration.live.observe.prompts import first_line
from calibration.live.observe.pulse import USUAL, DeadError, GoneError, Patience, Pulse
from calibration.live.observe.rows import Row, row_of
from calibration.live.observe.schedule import Planned, stages
from calibration.live.observe.secrets import shortened
from calibration.live.server.scrape import Scraper, Watched
from sim import interrupts
from sim.progress import OnProgress

Note = Callable[[str], None]

IN_ORDER = 1
"""Signals only noted under load: the first ends it in order."""
WARM_UP = "warm-up"


class Observer:
    """Measures what is left of an observation; a context manager, which holds the folder.

    Parameters
    ----------
    options : Options
    note : callable
        Takes remarks for the user.
    patience : Patience
        With a server that has gone silent.

    Attributes
    ----------
    journal : Journal
    todo : list of Planned
        Stages not complete when this began.

    Raises
    ------
    InputError
        If the folder holds something else, or another observation, or is written by another
        process.
    """

    def __init__(self, options: Options, note: Note, patience: Patience = USUAL) -> None:
        self.options, self._note, self._patience = options, note, patience
        with contextlib.ExitStack() as until_known:
            self._folder = until_known.enter_context(Folder(options.out))
            self.journal = Journal(self._folder.journal, options.settings(), now()[:10])
            self.planned = stages(options.asked)
            self.todo = [one for one in self.planned if self.journal.left(one)]
            self._kept = tables.Kept(options, self.journal)
            until_known.pop_all()
        self._probe, self._lost, self._unfit = Probe(options.asking.base_url), list[Row](), ""
        self._noted, self._server = set[str](), dict[str, Any]()
        self._done, self._total = 0, sum(len(self.journal.left(one)) for one in self.todo)

    def __enter__(self) -> Observer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the folder go."""
        self._folder.__exit__(kind, error, trace)

    @property
    def kept(self) -> tables.Kept:
        """What is measured so far, as it is written."""
        return self._kept

    @property
    def to_send(self) -> int:
        """Requests that are left to be sent, those of the warm-ups included."""
        return self._total + sum(one.warm_up for one in self.todo)

    @property
    def kept_words(self) -> str:
        """How much is kept, and where."""
        kept, where = self.journal.requests, self.journal.path
        if not kept:
            return "nothing was measured"
        left = any(self.journal.left(one) for one in self.planned)
        more = "; the same command goes on with it" if left and not self._kept.wrong else ""
        return f"{kept} requests are kept in '{where}'{more}"

    def run(self, stop: interrupts.Stop, on_progress: OnProgress) -> None:
        """Measure all that is left; a first signal ends it in order.

        Raises
        ------
        GoneError
            If the server cannot be measured, or runs another strategy than is stated; what was
            measured is kept.
        """
        # A run that was killed left no tables.
        self._kept.write()
        self._check_strategy()
        if self.todo:
            asyncio.run(self._run(stop, on_progress))

    async def _run(self, stop: interrupts.Stop, on_progress: OnProgress) -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake(number: int, frame: FrameType | None) -> None:
            stop(number, frame)
            loop.call_soon_threadsafe(stopping.set)

        stop.patience = IN_ORDER
        with interrupts.handled(wake):
            urls = self.options.metrics_urls
            keyed = header(self.options, *urls)
            client_of = Client(self.options.asking, urls)
            self._pulse = Pulse(client_of, stopping, self._patience)
            async with client_of as client, Scraper(urls, headers=keyed) as at, self._pulse:
                for planned in self.todo:
                    await self._stage(planned, client, at, stopping, on_progress)
                    if stopping.is_set():
                        return

    async def _stage(
        self,
        planned: Planned,
        client: Client,
        scraper: Scraper,
        stopping: asyncio.Event,
        on_progress: OnProgress,
    ) -> None:
        """Measure what is left of one stage.

        Raises
        ------
        GoneError
        """
        label, before = f"{planned.name}, repeat {planned.replication}", self._done

        def on_sent(sent: Sent, zero_s: float) -> None:
            self._keep(sent, zero_s, planned)
            self._done += 1
            on_progress(label, self._done, self._total)
            if self._unfit:
                stopping.set()

        on_progress(label, before, self._total)
        if not await self._warm_up(planned, client, scraper, stopping):
            self._check_there(self._pulse.dead)
            return
        numbers, elapsed_s = self.journal.left(planned), self.journal.of(planned).elapsed_s
        loader = Loader(self._maker(planned, client), client.send, on_sent, stopping)
        async with scraper.stage() as watched, Lag() as lag:
            self.journal.begin(planned, now())
            if self._server:
                self.journal.know(self._server)
            watched.start()
            part = await loader.run(planned, numbers, elapsed_s)
        part = part._replace(dead=part.dead or self._pulse.dead)
        for note in filter(None, (*map(client.shown, watched.notes), lag.note())):
            self._note(f"{label}: {note}")
        self._end(planned, part, watched)
        self._check_there(part.dead)
        self._check_fit()
        self._check_strategy()

    def _end(self, planned: Planned, part: Part, watched: Watched) -> None:
        """Keep what belongs to the part as a whole, and write the tables."""
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
        flying = [row_of(sent, part.zero_s, planned, part.dead) for sent in part.in_flight]
        if not part.dead:
            self._settle()
        texts = {"before": watched.before, "after": watched.after}
        rows = {planned.key: [*flying, *self._lost]}
        said = {name: text for name, text in texts.items() if text}
        self._kept.write(rows, planned, said)
        for note in self._kept.notes:
            if note not in self._noted:
                self._note(note)
        self._noted.update(self._kept.notes)

    def _keep(self, sent: Sent, zero_s: float, planned: Planned) -> None:
        """Put a request in the journal; one that lost its connection once the server still lives.

        A server that dies takes what is in flight with it: a later run sends that again. So it does
        with an answer that shows that the server cannot be measured.
        """
        outcome = sent.outcome
        unfit = "" if outcome is None else self._probe.unfit(outcome)
        if unfit:
            self._unfit = unfit
            return
        row = row_of(sent, zero_s, planned)
        if outcome is not None and outcome.lost:
            self._lost.append(row)
            return
        self._settle()
        self.journal.add(row)

    def _settle(self) -> None:
        for row in self._lost:
            self.journal.add(row)
        self._lost.clear()

    def _maker(self, planned: Planned, client: Client, *more: object) -> Make:
        """What makes the request of a number, in other words than any request before it.

        Other stages and repeats have another first line; so has what is sent again, as the server
        may have seen it: later attempts, and later parts of a stage.
        """
        options, part = self.options, len(self.journal.of(planned).begun)
        again = (f"part {part}",) if part else ()

        def make(number: int) -> Ready:
            prompt = options.prompts.of(number)
            tokens = options.tokens if prompt.max_tokens is None else prompt.max_tokens

            def line(attempt: int) -> str:
                mark = (options.asked.seed, *planned.key, *more, number, *again)
                return first_line(*mark, *((f"attempt {attempt}",) if attempt else ()))

            return client.ready(prompt, tokens, None if options.same_prompts else line)

        return make

    async def _warm_up(
        self, planned: Planned, client: Client, scraper: Scraper, stopping: asyncio.Event
    ) -> bool:
        """Send requests that are not measured, and wait for them; False where stopped."""
        make = self._maker(planned, client, WARM_UP)
        numbers: Sequence[int] = range(planned.warm_up)
        if planned is self.todo[0]:
            first = asyncio.ensure_future(client.send(make(0)))
            if not await until_stopped(first, stopping):
                return False
            self._unfit = self._probe.unfit(first.result(), first=True)
            self._check_fit()
            for note in scraper.notes:
                self._note(client.shown(shortened(note, self.options.metrics_urls)))
            if not self.journal.server:
                fingerprint = self._probe.fingerprint
                self._server = await identified(self.options, scraper, fingerprint)
            numbers = numbers[1:]
        work = asyncio.gather(*(client.send(make(number)) for number in numbers))
        if not await until_stopped(work, stopping):
            return False
        self._unfit = next(filter(None, map(self._probe.unfit, work.result())), "")
        self._check_fit()
        return True

    def _check_there(self, dead: str) -> None:
        """Refuse to go on without a server."""
        if dead:
            raise DeadError(f"{self._where()} is gone: {dead}")

    def _check_fit(self) -> None:
        """Refuse to go on with a server whose answers show that nothing can be measured."""
        if self._unfit:
            raise GoneError(f"{self._where()} {self._unfit}")

    def _check_strategy(self) -> None:
        """Refuse to go on with a recording whose label is wrong."""
        if self._kept.wrong:
            more = "and a fresh --out, as this one is of the strategy stated"
            raise GoneError(f"{self._where()} {self._kept.wrong}, {more}")

    def _where(self) -> str:
        return public(self.options.asking.base_url)


__all__ = ["GoneError", "Observer"]
