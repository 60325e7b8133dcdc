"""The flat table of a sweep: one row a point and strategy, and what each column holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sim.analysis.verdict import best
from sim.scenario.vary import Unfolded
from sim.tables import text_of

Row = Mapping[str, Any]

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
LATENCIES = {
    "ttft_s": "arrival to first token",
    "tpot_s": "time per output token after the first",
    "e2e_s": "arrival to last token",
    "queue_s": "arrival to first schedule",
    "itl_s": "gap between chunks of a stream",
}
BANDED = {
    "ttft_s": "s",
    "tpot_s": "s",
    "e2e_s": "s",
    "tok_per_s_per_gpu": "token/s",
    "speedup": "",
}
"""What has a band, and its unit."""

_NUMBERS = (
    ("tok_per_s_per_user", "token/s", "output tokens a second of one user"),
    ("tok_per_s_per_gpu", "token/s", "output tokens a second, over all GPUs"),
    ("req_per_s", "request/s", "requests finished a second"),
    ("offered_req_per_s", "request/s", "requests that arrived a second; null in a closed loop"),
    ("served_req_per_s", "request/s", "requests finished a second while others arrived"),
    ("tau", "token", "mean tokens a decode step emits"),
    ("acceptance_rate", "", "draft tokens accepted over those verified"),
    ("break_even_tau", "token", "tau below which plain decoding is faster here"),
    ("speedup", "", "time per token of plain decoding over this one's, at the same load"),
    ("usd_per_million_tokens", "USD", "price of a million output tokens at the rate served"),
    ("prefix_hit_rate", "", "prompt tokens found in the prefix cache"),
    ("kv_use_peak", "", "largest share of the KV blocks in use"),
    ("kv_free_bytes", "byte", "KV memory never used"),
)
_COUNTS = (
    ("preemptions", "times requests were moved back from running to waiting"),
    ("finished", "requests that got their whole answer"),
    ("rejected", "requests refused"),
    ("timed_out", "requests whose client gave up"),
    ("failed", "requests lost with their replica"),
    ("unfinished", "requests cut off at the end"),
    ("resent", "requests sent again"),
    ("batch_peak", "largest number of sequences in a step"),
)
_FLAGS = (
    ("baseline", "what speedups are over"),
    ("hypothetical", "this engine cannot run it"),
    ("saturated", "the queue grows without end: no latency is promised"),
)


def _field(name: str, kind: pa.DataType, unit: str, about: str) -> pa.Field:
    return pa.field(name, kind, metadata={"unit": unit, "about": about})


def _metrics() -> list[pa.Field]:
    number = pa.float64()
    return [
        *(_field(name, pa.bool_(), "", about) for name, about in _FLAGS),
        _field("best", pa.bool_(), "", "the strategy to choose at this point"),
        *(
            _field(f"{name}_{statistic}", number, "s", f"{about}, {statistic}")
            for name, about in LATENCIES.items()
            for statistic in STATISTICS
        ),
        *(_field(name, number, unit, about) for name, unit, about in _NUMBERS),
        *(
            _field(f"{name}_{end}", number, unit, f"{end} end of the band of its mean")
            for name, unit in BANDED.items()
            for end in ("lo", "hi")
        ),
        _field("slo_met", pa.bool_(), "", "every bound is met; null where none is stated"),
        _field("attainment", number, "", "share of the requests that met their bounds"),
        _field("goodput_req_s", number, "request/s", "requests a second that met their bounds"),
        _field("batch_mean", number, "sequence", "sequences of the usual decode step"),
        *(_field(name, pa.int64(), "", about) for name, about in _COUNTS),
    ]


def schema_of(unfolded: Unfolded) -> pa.Schema:
    """Schema of a sweep's table: ``point``, the varied keys, ``strategy``, then metrics.

    A varied key is a number where all its values are, else a word; of mappings and lists the
    word is their short YAML. Metrics are null where they are not known.
    """
    values: dict[str, list[Any]] = {}
    for group in unfolded.groups:
        for variation in group:
            for setting in variation:
                values.setdefault(setting.name, []).append(setting.value)
    return pa.schema(
        [
            _field("point", pa.int64(), "", "number of the point, from 0"),
            *(
                _field(name, _kind(found), "", "value of the varied key")
                for name, found in values.items()
            ),
            _field("strategy", pa.string(), "", "label of the strategy"),
            *_metrics(),
        ]
    )


def _kind(values: Sequence[Any]) -> pa.DataType:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds <= {int, float}:
        whole = kinds == {int} and all(abs(value) < 2**63 for value in values)
        return pa.int64() if whole else pa.float64()
    return pa.string()


def flat(rows: Sequence[Row], number: int) -> list[dict[str, Any]]:
    """Rows of one point, as ``speccast run --json`` prints them, without their nesting."""
    chosen = best(rows)
    return [{**_flat(row, row is chosen), "point": number} for row in rows]


def _flat(row: Row, chosen: bool) -> dict[str, Any]:
    slo, step = row["slo"] or {}, row["step_s"] or {}
    names = [name for name, *_ in (*_FLAGS, *_NUMBERS, *_COUNTS)]
    return {
        **row["point"],
        "strategy": row["strategy"],
        **{name: row.get(name) for name in names},
        **{f"{name}_{one}": row[name][one] for name in LATENCIES for one in STATISTICS},
        **{
            f"{name}_{end}": row["band"].get(name, {}).get(end)
            for name in BANDED
            for end in ("lo", "hi")
        },
        "best": chosen,
        "slo_met": slo.get("met"),
        "attainment": slo.get("attainment"),
        "goodput_req_s": slo.get("goodput_req_s"),
        "batch_mean": step.get("batch"),
    }


def table_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Flat rows as a table."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in rows:
        for field in schema:
            value = row[field.name]
            word = field.type == pa.string() and value is not None
            columns[field.name].append(_word(value) if word else value)
    arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else text_of(value)
