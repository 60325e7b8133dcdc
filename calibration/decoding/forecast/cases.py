"""Recorded runs as measured cases that ``speccast validate --cases`` scores."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast.recorded import Recorded
from calibration.decoding.forecast.scenario import (
    WHAT_IF,
    Chosen,
    Deployed,
    gap_s,
    strategy,
    streams,
    trace_name,
)

FILE = "cases.csv"
COLUMNS = ("name", "scenario", "set", "workload", "batch", "tpot_s.mean", "ttft_s.mean", "speedup")


class Window(NamedTuple):
    """Part of a trace with the requests of one domain [s]."""

    from_s: int
    to_s: int


def write(recorded: Recorded, deployed: Deployed, chosen: Chosen) -> Path:
    """Write ``cases.csv``: a row a strategy and domain, on that strategy's own lengths."""
    path = recorded.folder / FILE
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        rows.writeheader()
        rows.writerows(_rows(recorded, deployed, chosen))
    return path


def _rows(recorded: Recorded, deployed: Deployed, chosen: Chosen) -> Iterator[dict[str, Any]]:
    for domain in recorded.domains:
        for label in (BASELINE, *chosen.blocks):
            own, plain = (recorded.of(name, domain) for name in (label, BASELINE))
            tpot_s = own["tpot_s"].mean()
            if not tpot_s > 0:
                continue
            row = {
                "name": f"{label} {domain}",
                "scenario": WHAT_IF,
                "set": "; ".join(overrides(recorded, deployed, chosen, label, domain)),
                "workload": domain,
                "batch": 1,
                "tpot_s.mean": f"{tpot_s:.6g}",
                "ttft_s.mean": f"{own['ttft_s'].mean():.6g}",
            }
            if label != BASELINE and recorded.complete(label, domain):
                row["speedup"] = f"{plain['tpot_s'].mean() / tpot_s:.6g}"
            yield row


def overrides(
    recorded: Recorded,
    deployed: Deployed,
    chosen: Chosen,
    label: str,
    domain: str,
    replay: bool = True,
) -> list[str]:
    """What changes in ``whatif.yaml`` for one strategy and domain, as ``--set`` takes it."""
    alone: list[dict[str, Any]] = [{"kind": BASELINE}]
    if label != BASELINE:
        alone.append(strategy(recorded, deployed, label, chosen.blocks[label], replay))
    window = window_of(recorded, label, domain)
    domains = dict.fromkeys(recorded.of(label)["domain"])
    return [
        f"workload.arrivals.file={_inline(trace_name(label))}",
        f"workload.arrivals.from_s={window.from_s}",
        f"workload.arrivals.to_s={window.to_s}",
        f"workload.streams={_inline(streams(domains))}",
        f"strategies={_inline(alone)}",
    ]


def window_of(recorded: Recorded, label: str, domain: str) -> Window:
    """Where a strategy's trace has the requests of a domain."""
    own, gap = recorded.of(label), gap_s(recorded)
    places = [place for place, name in enumerate(own["domain"]) if name == domain]
    return Window(places[0] * gap, (places[-1] + 1) * gap)


def _inline(data: Any) -> str:
    """YAML on one line."""
    text: str = yaml.safe_dump(data, default_flow_style=True, sort_keys=False, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")
