"""Refuse traffic that cannot be meant: users who never send, days that never come."""

from __future__ import annotations

from models.schema import ModelError
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.checks import blame
from sim.scenario.over_time import Changing
from sim.scenario.shapes import Ramp
from sim.scenario.trace.schema import Trace
from sim.scenario.workload import MAX_REQUESTS, Workload

LONGEST_RUN_S = 1e9
SURE_SIGMAS = 5
MOST_EARLIER_TURNS = 100_000_000


def check_workload(workload: Workload) -> None:
    """Refuse users who never send anything, traffic that never arrives, a trace without meaning.

    Raises
    ------
    InputError
        For bad lines of a trace.
    ModelError
        With the dotted key at fault.
    """
    _check_changes(workload)
    _check_lengths(workload)
    arrivals, turns = workload.arrivals, workload.mean_turns
    if isinstance(arrivals, Trace):
        from sim.scenario.trace.replay import check_replay

        check_replay(workload, arrivals)
        return
    if isinstance(arrivals, ClosedLoop):
        _check_users(workload, arrivals.users, turns)
    elif workload.duration_s is None:
        asked, come = workload.expected_requests, arrivals.mean_count(LONGEST_RUN_S)
        if asked / turns > come - SURE_SIGMAS * come**0.5:
            fades = isinstance(arrivals, Ramp) and not arrivals.to_per_s
            until = "before the rate is 0" if fades else "in 30 years"
            raise ModelError(
                f"only about {come:.3g} arrivals come {until}, got {asked}", "workload.requests"
            )
    else:
        come = arrivals.mean_count(workload.duration_s)
        if not 1 <= come <= MAX_REQUESTS / turns:
            raise ModelError(
                f"sees about {come:.3g} arrivals, {come * turns:.3g} requests; "
                f"1 to {MAX_REQUESTS} can be simulated, got {workload.duration_s:g}",
                "workload.duration_s",
            )
    _check_sessions(workload)


def _check_lengths(workload: Workload) -> None:
    """Read the traces lengths come from; refuse prefixes longer than all of their prompts."""
    for index, stream in enumerate(workload.streams):
        if stream.lengths is None:
            continue
        where = f"workload.streams[{index}]"
        with blame(f"{where}.lengths.file"):
            longest = int(stream.lengths.pairs().prompt_tokens.max())
        prefix = stream.prefix
        if prefix is not None and prefix.tokens != "all" and prefix.tokens > longest:
            raise ModelError(
                f"no prompt holds it: the longest are {longest} tokens, got {prefix.tokens}",
                f"{where}.prefix.tokens",
            )


def _check_changes(workload: Workload) -> None:
    """Refuse changes at times that are not known, shares beside a trace, lists of no domains."""
    for index, stream in enumerate(workload.streams):
        with blame(f"workload.streams[{index}].domain"):
            _ = stream.domains
        for key, value in (("share", stream.share), ("domain", stream.domain)):
            if not isinstance(value, Changing):
                continue
            where = f"workload.streams[{index}].{key}"
            if key == "share" and isinstance(workload.arrivals, Trace):
                raise ModelError("must be a number beside a trace: it cannot change", where)
            if value.unit == "s" and isinstance(workload.arrivals, ClosedLoop):
                raise ModelError(
                    "users of a closed loop send at times not known beforehand; state "
                    "unit: share, got 's'",
                    f"{where}.unit",
                )


def _check_sessions(workload: Workload) -> None:
    """Refuse sessions so long that the list of their earlier turns would fill the memory."""
    turns = max(stream.mean_turns for stream in workload.streams)
    most = int(2 * MOST_EARLIER_TURNS / turns)
    if workload.expected_requests > most:
        key = "requests" if workload.duration_s is None else "duration_s"
        raise ModelError(
            f"must be at most {most} with sessions of {turns:g} turns, "
            f"got {workload.expected_requests}",
            f"workload.{key}",
        )


def _check_users(workload: Workload, users: int, turns: float) -> None:
    if workload.duration_s is not None:
        raise ModelError(
            "is for arrivals at a rate; users of a closed loop send as many requests as "
            f"`requests` says, got {workload.duration_s:g}",
            "workload.duration_s",
        )
    if workload.expected_requests < users * turns:
        each = f" x {turns:.3g} turns of a session" if turns > 1 else ""
        raise ModelError(
            f"must be at least the {users} users{each}, got {workload.expected_requests}",
            "workload.requests",
        )
