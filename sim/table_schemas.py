"""The columns of every table, with unit and meaning."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

TEXT = pa.dictionary(pa.int32(), pa.string())
COUNT = pa.int64()
SECONDS = NUMBER = pa.float64()


class Status(IntEnum):
    """How a request ended; the lower-case name stands in the table."""

    FINISHED = 0
    REJECTED = 1
    UNFINISHED = 2
    TIMED_OUT = 3
    FAILED = 4


STATUS_NAMES = tuple(status.name.lower() for status in Status)


def field(name: str, kind: pa.DataType, unit: str, about: str) -> pa.Field:
    """Describe one column of a schema: no nulls, its unit and meaning as metadata."""
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "about": about})


_RUN = (
    field("strategy", TEXT, "", "label of the strategy"),
    field("point", TEXT, "", "values of the varied keys, empty without a grid"),
    field("replication", COUNT, "", "0, 1, ...: the random streams used"),
)

REQUESTS = pa.schema(
    [
        field("id", COUNT, "", "sessions in order of arrival, all turns of one together"),
        field("session", COUNT, "", "id of the first request of its session; often its own"),
        field("stream", TEXT, "", "name of the traffic stream"),
        field("domain", TEXT, "", "kind of text, as of its arrival"),
        *_RUN,
        field("replica", COUNT, "", "engine replica that served it"),
        field("status", TEXT, "", " | ".join(STATUS_NAMES)),
        field("arrival_s", SECONDS, "s", "request sent by the client"),
        field("schedule_s", SECONDS, "s", "start of the step with its first prefill tokens"),
        field("first_token_s", SECONDS, "s", "end of the step that emitted the first token"),
        field("finish_s", SECONDS, "s", "end of the step that emitted the last token"),
        field("prompt_tokens", COUNT, "token", "prompt length"),
        field("cached_tokens", COUNT, "token", "prompt tokens found in the prefix cache"),
        field("output_tokens", COUNT, "token", "tokens to emit, the first one included"),
        field("n_steps", COUNT, "step", "decode steps it took part in"),
        field("drafted", COUNT, "token", "draft tokens verified for it"),
        field("accepted", COUNT, "token", "draft tokens accepted, before the cut at the end"),
        field("preemptions", COUNT, "", "times it was moved back from running to waiting"),
        field("attempts", COUNT, "", "times it was sent, 1 without retries"),
        field("discarded_tokens", COUNT, "token", "emitted to attempts that came to nothing"),
    ]
)

STEPS = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("start_s", SECONDS, "s", "start of the step"),
        field("duration_s", SECONDS, "s", "whole step"),
        field("draft_s", SECONDS, "s", "draft phase of it"),
        field("verify_s", SECONDS, "s", "target pass of it, prefill included"),
        field("host_s", SECONDS, "s", "host work the GPU waited for"),
        field("n_decode", COUNT, "sequence", "sequences decoding"),
        field("prefill_tokens", COUNT, "token", "prompt tokens computed"),
        field("verify_tokens", COUNT, "token", "query tokens of the decoding sequences"),
        field("emitted", COUNT, "token", "tokens sent to clients"),
        field("blocks_used", COUNT, "block", "KV blocks in use during the step"),
        field("waiting", COUNT, "request", "requests waiting at its start"),
    ]
)

TIMELINE = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("start_s", SECONDS, "s", "start of the bin"),
        field("width_s", SECONDS, "s", "length of the bin"),
        field("steps", COUNT, "step", "steps that ended in it"),
        field("busy_s", SECONDS, "s", "time of it spent in steps"),
        field("running", NUMBER, "sequence", "mean sequences in the engine"),
        field("waiting", NUMBER, "request", "mean requests waiting"),
        field("kv_use", NUMBER, "", "mean share of the KV blocks in use"),
        field("emitted", COUNT, "token", "tokens sent to clients"),
        field("tau", NUMBER, "token", "mean tokens a decode step emits; NaN without one"),
        field("preemptions", COUNT, "", "requests moved back from running to waiting"),
    ]
)

MODES = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("start_s", SECONDS, "s", "start of the bin"),
        field("width_s", SECONDS, "s", "length of the bin"),
        field("mode", TEXT, "", "strategy the sequences were in"),
        field("running", NUMBER, "sequence", "mean sequences decoding in it"),
        field("steps", COUNT, "step", "decode steps of sequences that ended in the bin"),
        field("emitted", COUNT, "token", "tokens they emitted, before the cut at the end"),
        field("accepted", COUNT, "token", "draft tokens accepted, before the cut at the end"),
        field("reached", COUNT, "token", "draft tokens accepted, and the first refused of a step"),
        field("offered", COUNT, "token", "most they could accept: K of a chain, depth of a tree"),
        field("drafted", COUNT, "token", "draft tokens verified"),
    ]
)

SWITCHES = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("at_s", SECONDS, "s", "end of the step after which it was decided"),
        field("of", TEXT, "", "request | stream | engine: for whom"),
        field("owner", COUNT, "", "id of the request, place of the stream from 0, or the replica"),
        field("mode_from", TEXT, "", "mode left"),
        field("mode_to", TEXT, "", "mode entered"),
        field(
            "reading",
            NUMBER,
            "",
            "what decided: a measured rate, or sequences running",
        ),
    ]
)

ACCEPTANCE = pa.schema(
    [
        field("strategy", TEXT, "", "label of the strategy"),
        field("request", COUNT, "", "id of the request"),
        field("step", COUNT, "", "decode step of that request, from 0"),
        field("domain", TEXT, "", "kind of text"),
        field("context", COUNT, "token", "tokens before the step"),
        field("drafted", COUNT, "token", "draft tokens verified"),
        field("accepted", COUNT, "token", "draft tokens accepted, before the cut at the end"),
        field("ranks", TEXT, "", "rank of the target's token by level, - for none; may be empty"),
    ]
)
