"""Whether a server can be measured at all, by its first answers; and which server it is."""

from __future__ import annotations

from typing import Any

import httpx

from calibration.live.address import plain
from calibration.live.observe.client import Outcome
from calibration.live.observe.options import Options
from calibration.live.observe.secrets import same_origin
from calibration.live.server.names import UNKNOWN
from calibration.live.server.scrape import Scraper
from sim.tables import Status

NO_USAGE = (
    "sends no usage: tokens cannot be counted; a server that knows stream_options.include_usage is "
    "needed"
)

VERSION = "/v1"
"""End of the address of most APIs."""


class Probe:
    """Judges answers until one shows that the server can be measured.

    Parameters
    ----------
    base_url : str
        Base of the API.

    Attributes
    ----------
    passed : bool
        An answer was whole and had a usage.
    fingerprint : str
        How the server calls its version; empty until it does.
    """

    def __init__(self, base_url: str) -> None:
        self._versioned = httpx.URL(base_url).path.rstrip("/").endswith(VERSION)
        self.passed, self.fingerprint = False, ""

    def unfit(self, outcome: Outcome, first: bool = False) -> str:
        """Why the server cannot be measured, by one answer; empty where it may be.

        Parameters
        ----------
        outcome : Outcome
        first : bool
            Of a run, of which also a refusal tells.
        """
        if self.passed:
            return ""
        self.fingerprint = self.fingerprint or outcome.fingerprint or ""
        if outcome.status == Status.FINISHED:
            self.passed = outcome.usage is not None
            return "" if self.passed else NO_USAGE
        if not first or not _hopeless(outcome):
            return ""
        astray = outcome.http_status == httpx.codes.NOT_FOUND and not self._versioned
        return outcome.message + (f"; the address should end in {VERSION}" if astray else "")


def _hopeless(outcome: Outcome) -> bool:
    code, failed = outcome.http_status, outcome.status == Status.FAILED
    refused = code is not None and code != httpx.codes.OK and code < 500
    nonsense = code == httpx.codes.OK and failed and not outcome.lost
    return outcome.unreachable or (failed and refused) or nonsense


def header(options: Options, *urls: str) -> dict[str, str]:
    """The key for a client that asks these addresses: none where one of them is another server."""
    key, base_url = options.asking.key, options.asking.base_url
    known = bool(key) and all(same_origin(url, base_url) for url in urls)
    return {"Authorization": f"Bearer {key}"} if known else {}


async def identified(options: Options, at: Scraper, fingerprint: str) -> dict[str, Any]:
    """What a server says of itself; empty where neither its engine nor its configuration is known.

    Where its metrics stand on another host, which gets no key, the server itself is asked once more
    with it.
    """
    base_url = plain(options.asking.base_url)
    found = await at.server(base_url, fingerprint)
    if options.asking.key and not header(options, *options.metrics_urls):
        async with Scraper((), headers=header(options)) as keyed:
            told = await keyed.server(base_url, fingerprint)
        engine = told.engine if found.engine == UNKNOWN else found.engine
        found = found._replace(engine=engine, version=found.version or told.version)
    known = found.engine != UNKNOWN or found.info
    return found._asdict() if known else {}
