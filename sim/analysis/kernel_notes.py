"""Where kernel times come from and what of a run they have not seen, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_QUANTITIES = {
    "m": "steps of up to {} tokens",
    "batch": "batches of up to {} sequences",
    "context_tokens": "contexts of up to {} tokens",
}
MOST_KERNELS = 4
"""Kernels that one line can list."""


def beyond(rows: Sequence[Row]) -> list[str]:
    """What of the steps lies outside of what kernels were measured at, a line each; often none."""
    carried, kernels = [], dict[str, None]()
    for name, text in _QUANTITIES.items():
        found = [row["outside"][name] for row in rows if name in row.get("outside", {})]
        if found:
            reached = max(each["reached"] for each in found)
            known = max(each["measured"][1] for each in found)
            carried.append(f"{text.format(reached)} (measured to {known})")
    for row in rows:
        kernels.update(dict.fromkeys(row.get("outside", {}).get("kernels", ())))
    lines = []
    if carried:
        lines.append(f"Kernel times carried beyond their measurements: {'; '.join(carried)}.")
    if kernels:
        names = [*kernels][:MOST_KERNELS]
        more = len(kernels) - len(names)
        rest = f" and {more} more" if more else ""
        lines.append(f"Closed form where the measured rows do not reach: {', '.join(names)}{rest}.")
    return lines


def sources(rows: Sequence[Row]) -> list[str]:
    """Where the kernel times of each component come from, a line for all that agree."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        by_source: dict[str, list[str]] = {}
        for component, source in row.get("kernels", {}).items():
            by_source.setdefault(source, []).append(component.replace("_", " "))
        text = "; ".join(f"{source}: {', '.join(names)}" for source, names in by_source.items())
        texts.setdefault(text, []).append(row["strategy"])
    if len(texts) == 1:
        return [f"Kernel times: {text}." for text in texts if text]
    return [f"Kernel times of {', '.join(names)}: {text}." for text, names in texts.items()]
