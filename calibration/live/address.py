"""Addresses of servers, without what is nobody's business."""

from __future__ import annotations

import httpx


def plain(url: str) -> str:
    """A URL without query and fragment, which paths can be put behind."""
    return str(httpx.URL(url).copy_with(query=None, fragment=None))


def public(url: str) -> str:
    """A URL without credentials, query and fragment; empty for a text that is no URL.

    A host and port without a scheme will do.
    """
    try:
        found = httpx.URL(url if "://" in url else f"//{url}")
        shown = found.copy_with(username="", password="", query=None, fragment=None)
    except (httpx.InvalidURL, ValueError):
        return ""
    return str(shown).removeprefix("//")
