"""Folders of recorded runs, as a decoding run leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from calibration.acceptance.trace import Trace
from sim.tables import COUNT, TEXT, field

SCHEMA = pa.schema(
    [
        field("strategy", TEXT, "", ""),
        *(field(name, COUNT, "", "") for name in ("request", "step")),
        field("domain", TEXT, "", ""),
        *(field(name, COUNT, "", "") for name in ("context", "drafted", "accepted")),
        field("ranks", TEXT, "", ""),
    ]
)


def rows(label: str, domain: str, trace: Trace) -> list[dict[str, Any]]:
    """The steps of a trace as rows of the table."""
    ranks = trace.ranks or ("",) * trace.steps
    return [
        {
            "strategy": label,
            "request": int(request),
            "step": int(i - trace.offsets[request]),
            "domain": domain,
            "context": int(trace.context[i]),
            "drafted": int(trace.drafted[i]),
            "accepted": int(trace.accepted[i]),
            "ranks": ranks[i],
        }
        for i, request in enumerate(trace.owner)
    ]


def folder(
    path: Path,
    traces: Mapping[tuple[str, str], Trace],
    strategies: Mapping[str, Mapping[str, Any]],
    **about: Any,
) -> Path:
    """Write ``acceptance.parquet`` and ``run.json``."""
    path.mkdir(parents=True, exist_ok=True)
    every = [row for (label, domain), trace in traces.items() for row in rows(label, domain, trace)]
    pq.write_table(pa.Table.from_pylist(every, schema=SCHEMA), path / "acceptance.parquet")
    said = {"target": "smollm2-135m", "date": "2026-02-03", "machine": "two cores", **about}
    (path / "run.json").write_text(json.dumps({"strategies": strategies, **said}))
    return path
