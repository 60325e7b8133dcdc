"""What no message may show, and to which servers a key may go."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

import httpx

from calibration.live.address import public

HIDDEN = "***"
_PORTS = {"http": 80, "https": 443}


def secrets_of(url: str) -> list[str]:
    """Parts of an address that are nobody's business, as a server may echo them."""
    found = httpx.URL(url)
    userinfo, query = found.userinfo.decode(), found.query.decode()
    words = [userinfo, found.password, query]
    if userinfo:
        # As the header has it.
        words.append(b64encode(f"{found.username}:{found.password}".encode()).decode())
    return [word for word in words if word]


def hidden(message: str, secrets: Iterable[str]) -> str:
    """A message without any of them; the longest go first, as one may hold another."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, HIDDEN)
    return message


def shortened(message: str, urls: Iterable[str]) -> str:
    """A message in which addresses stand without what is secret in them."""
    for url in urls:
        message = message.replace(url, public(url))
    return message


def same_origin(one: str, other: str) -> bool:
    """Whether two addresses share scheme, host and port."""
    return _origin(httpx.URL(one)) == _origin(httpx.URL(other))


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme)
