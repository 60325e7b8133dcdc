"""The text a server exposes for Prometheus; a line that is none is counted, and costs only itself.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Sample(NamedTuple):
    """One line of the text.

    Attributes
    ----------
    name : str
        As it stands there, ``_total``, ``_sum`` and ``_count`` included.
    labels : dict of str
    value : float
    """

    name: str
    labels: dict[str, str]
    value: float


class Exposition(NamedTuple):
    """A text, read.

    Attributes
    ----------
    samples : tuple of Sample
        Those asked for, in order.
    skipped : int
        Lines asked for that are no samples, or whose value is not finite.
    """

    samples: tuple[Sample, ...]
    skipped: int


def parse(text: str, wanted: Callable[[str], bool] | None = None) -> Exposition:
    """Read an exposition.

    Parameters
    ----------
    text : str
    wanted : callable, optional
        Names to read; the lines of others cost next to nothing. All without it.
    """
    samples: list[Sample] = []
    skipped = 0
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#") or (wanted and not wanted(_name(line))):
            continue
        sample = _sample(line)
        if sample is None or not math.isfinite(sample.value):
            skipped += 1
        else:
            samples.append(sample)
    return Exposition(tuple(samples), skipped)


def _name(line: str) -> str:
    return line.partition("{")[0].split(None, 1)[0] if not line.startswith("{") else line


def _sample(line: str) -> Sample | None:
    # The parser promises no kind of error for text that is none.
    try:
        found = [one for family in text_string_to_metric_families(line) for one in family.samples]
        (sample,) = found
        return Sample(sample.name, dict(sample.labels), float(sample.value))
    except Exception:
        return None
