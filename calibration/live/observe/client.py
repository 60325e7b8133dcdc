"""The client: sends one request to an OpenAI-compatible server and times what streams back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple

import httpx

from calibration.live.observe.answer import Answer, AnswerError, Usage, said
from calibration.live.observe.asking import Api, Asking, Line, Ready, content
from calibration.live.observe.prompts import Prompt
from calibration.live.observe.secrets import hidden, secrets_of
from calibration.live.observe.sse import EventReader
from calibration.live.rows import REJECTIONS
from models.strict_yaml import one_line
from sim.tables import Status

PATHS: Mapping[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
RETRY_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
"""Before the first retry, doubled for each further one, up to the longest; assumed."""
KEEP_ALIVE_S = 4.0
"""Idle connections are dropped before uvicorn, after its 5 s, drops them."""
DRAIN_S = 0.2
"""For the end of a stream after its closing mark, so that the connection can be used again."""
CONNECT_S = 10.0
"""A host that takes no connection for so long is not there; assumed."""
SHOWN = 300
"""Characters of a message."""


class Outcome(NamedTuple):
    """What became of one request; times on the clock of ``time.perf_counter``.

    Attributes
    ----------
    status : Status
    sent_s, end_s : float
        First sent; last chunk, or when it was given up [s].
    first_s : float or None
        First chunk with a token [s].
    gaps : tuple of float
        Between chunks with tokens [s].
    usage : Usage or None
    metrics : mapping or None
        What the server said of this request.
    fingerprint : str or None
        How the server calls its version.
    http_status : int or None
    message : str
        What went wrong; empty where nothing did.
    attempts : int
    lost : bool
        No connection could be made, or it broke: the server may be gone.
    """

    status: Status
    sent_s: float
    end_s: float
    first_s: float | None = None
    gaps: tuple[float, ...] = ()
    usage: Usage | None = None
    metrics: Mapping[str, Any] | None = None
    fingerprint: str | None = None
    http_status: int | None = None
    message: str = ""
    attempts: int = 1
    lost: bool = False

    @property
    def unreachable(self) -> bool:
        """Whether the server gave no sign of life."""
        return self.lost and self.http_status is None


class Client:
    """Sends requests over one pool of connections; an async context manager.

    Environment variables for proxies are not followed: a proxy is not what is measured.

    Parameters
    ----------
    asking : Asking
    others : sequence of str
        Further addresses whose secrets no message may show.

    Attributes
    ----------
    in_flight : int
        Requests that wait for the rest of their answer.
    heard_s : float
        When a byte of any answer came last, or the first of those in flight was sent.
    """

    def __init__(self, asking: Asking, others: Sequence[str] = ()) -> None:
        self.asking = asking
        url = httpx.URL(asking.base_url)
        self.in_flight, self.heard_s = 0, 0.0
        self._url = url.copy_with(path=url.path.rstrip("/") + PATHS[asking.api], fragment=None)
        urls = (asking.base_url, *others)
        self._secrets = [word for one in urls for word in secrets_of(one)]
        self._secrets += [asking.key] if asking.key else []
        key = {"Authorization": f"Bearer {asking.key}"} if asking.key else {}
        verify = httpx.create_ssl_context() if url.scheme == "https" else False
        self._http = httpx.AsyncClient(
            headers={
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                **key,
            },
            timeout=httpx.Timeout(None, connect=min(CONNECT_S, asking.timeout_s / 2)),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,
            verify=verify,
        )

    async def __aenter__(self) -> Client:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    def ready(self, prompt: Prompt, max_tokens: int, line: Line | None = None) -> Ready:
        """Make a request, so that nothing but sending is left once it is due."""
        return Ready(prompt, max_tokens, line, content(self.asking, prompt, max_tokens, line))

    async def send(self, ready: Ready) -> Outcome:
        """Send one request, again where retries are allowed; never raises for what a server does.

        An attempt after the first has another first line: the server may know the prompt by now.
        """
        outcome = await self._attempt(ready.content, ready.max_tokens)
        sent_s = outcome.sent_s
        for attempt in range(1, self.asking.retries + 1):
            if outcome.status not in (Status.REJECTED, Status.FAILED) or _final(outcome):
                break
            await asyncio.sleep(min(RETRY_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S))
            body = content(self.asking, ready.prompt, ready.max_tokens, ready.line, attempt)
            again = await self._attempt(body, ready.max_tokens)
            outcome = again._replace(sent_s=sent_s, attempts=attempt + 1)
        return outcome._replace(message=self.shown(outcome.message))

    async def _attempt(self, body: bytes, max_tokens: int) -> Outcome:
        answer, at = Answer(), _Place()
        sent_s = perf_counter()
        self.heard_s = self.heard_s if self.in_flight else sent_s
        self.in_flight += 1
        try:
            async with asyncio.timeout(self.asking.timeout_s):
                await self._stream(body, answer, at)
            answer.check_whole()
            usage = answer.usage(max_tokens)
        except TimeoutError:
            why = f"not done after {self.asking.timeout_s:g} s, {answer.chunks} chunks of text"
            return _broken(answer, at, sent_s, why, Status.TIMED_OUT)
        except AnswerError as error:
            return _broken(answer, at, sent_s, str(error), at.failure)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            cut = f"was cut off after {answer.chunks} chunks of text"
            reason = str(error) or type(error).__name__
            why = f"{cut if at.http_status else 'cannot be reached'}: {reason}"
            lost = isinstance(error, httpx.TransportError)
            return _broken(answer, at, sent_s, why)._replace(lost=lost)
        finally:
            self.in_flight -= 1
        return Outcome(
            Status.FINISHED,
            sent_s,
            answer.end_s(),
            answer.first_s,
            tuple(answer.gaps),
            usage,
            answer.metrics,
            answer.fingerprint,
            at.http_status,
        )

    async def _stream(self, body: bytes, answer: Answer, at: _Place) -> None:
        async with self._http.stream("POST", self._url, content=body) as response:
            at.http_status, self.heard_s = response.status_code, perf_counter()
            if response.status_code != httpx.codes.OK:
                text = (await response.aread()).decode("utf-8", "replace")
                raise AnswerError(f"answered {response.status_code}: {_error(text)}")
            kind = response.headers.get("content-type", "").partition(";")[0]
            if kind == "application/json":
                raise AnswerError(f"did not stream, it sent {kind}")
            reader, pieces = EventReader(), response.aiter_bytes()
            async for piece in pieces:
                at_s = self.heard_s = perf_counter()
                for data in reader.feed(piece):
                    answer.take(data, at_s)
                if answer.done:
                    break
            else:
                at_s = perf_counter()
                for data in reader.close():
                    answer.take(data, at_s)
                return
            try:
                async with asyncio.timeout(DRAIN_S):
                    async for _ in pieces:
                        pass
            except (TimeoutError, httpx.TransportError):
                pass

    def shown(self, message: str) -> str:
        """A message in a line; secrets that a server echoes go before it is cut."""
        return one_line(hidden(message, self._secrets).strip(), SHOWN)


class _Place:
    """How far one attempt came."""

    http_status: int | None = None

    @property
    def failure(self) -> Status:
        return Status.REJECTED if self.http_status in REJECTIONS else Status.FAILED


def _broken(
    answer: Answer, at: _Place, sent_s: float, why: str, status: Status = Status.FAILED
) -> Outcome:
    """An attempt that came to nothing, with the chunks there were."""
    return Outcome(
        status,
        sent_s,
        perf_counter(),
        answer.first_s,
        tuple(answer.gaps),
        http_status=at.http_status,
        message=why,
    )


def _final(outcome: Outcome) -> bool:
    """Whether asking again cannot help: the request itself was refused."""
    status = outcome.http_status
    return status is not None and 400 <= status < 500 and status not in (408, *REJECTIONS)


def _error(text: str) -> str:
    try:
        return said(json.loads(text))
    except (ValueError, RecursionError):
        return text
