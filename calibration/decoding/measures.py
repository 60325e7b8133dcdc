"""What decoding runs have measured, by strategy and domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.acceptance.interval import Interval, tau_interval
from calibration.acceptance.trace import Trace
from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.decoder import Row, Times
from calibration.decoding.journal import Done
from models.strategies import fixed_types

ALL = "all"
"""In place of a domain: over all of them."""


class Measured(NamedTuple):
    """One strategy in one domain, or in all it has run in.

    Attributes
    ----------
    label, domain : str
    requests, steps : int
        Finished prompts, and their decode steps; a batch counts each of its sequences.
    tau : Interval or None
        None without a step.
    drafted, accepted : int
    step : Times or None
        Means of one step, of a whole batch if several sequences were decoded side by side [s].
    token_s : float or None
        Seconds of decode steps a token they emitted, the prefill and its token left out.
    speedup : float or None
        That of plain decoding over it, on the prompts both have finished; None without any.
    differs : float or None
        Share of those prompts whose text is not plain decoding's; None when sampled.
    """

    label: str
    domain: str
    requests: int
    steps: int
    tau: Interval | None
    drafted: int
    accepted: int
    step: Times | None
    token_s: float | None
    speedup: float | None
    differs: float | None


class Active(NamedTuple):
    """What was active in the steps of a strategy that changes, in one domain.

    Attributes
    ----------
    label, domain : str
    steps : int
    speculating : float
        Share of the steps that were not plain decoding: the gate was open.
    k : float or None
        Mean draft length of a dynamic one.
    notes : dict
        Share of the steps by note.
    """

    label: str
    domain: str
    steps: int
    speculating: float
    k: float | None
    notes: dict[str, float]


def measure(
    done: Iterable[Done],
    strategies: Mapping[str, Mapping[str, Any]],
    domains: Sequence[str],
    sampled: Iterable[str] = (),
) -> list[Measured]:
    """Every strategy in every domain, and over all where it ran in several.

    Parameters
    ----------
    done : iterable of Done
    strategies : mapping
        Block of each label.
    domains : sequence of str
        Order of the rows.
    sampled : iterable of str
        Labels whose texts are drawn, and so not to be compared.
    """
    finished, free = list(done), set(sampled)
    plain = [one for one in finished if one.label == BASELINE]
    found = []
    for label in dict.fromkeys(one.label for one in finished):
        own = [one for one in finished if one.label == label]
        there = _ordered(own, domains)
        for domain in [*there, *([ALL] if len(there) > 1 else [])]:
            part = [one for one in own if domain in (one.domain, ALL)]
            depth = _depth(strategies.get(label, {}))
            found.append(_measured(label, domain, part, plain, depth, label not in free))
    return found


def active(done: Iterable[Done], domains: Sequence[str]) -> list[Active]:
    """Of strategies that say in each step what is active."""
    finished, found = list(done), []
    for label in dict.fromkeys(one.label for one in finished):
        own = [one for one in finished if one.label == label]
        for domain in _ordered(own, domains):
            steps = [step for one in own if one.domain == domain for step in one.generation.steps]
            notes = Counter(step.note for step in steps)
            if set(notes) - {""}:
                found.append(_active(label, domain, notes))
    return found


def _ordered(done: Sequence[Done], domains: Sequence[str]) -> list[str]:
    """Domains as the strategy met them if it learns on the way, else as asked for."""
    met = list(dict.fromkeys(one.domain for one in done))
    if any(one.state is not None for one in done):
        return met
    return sorted(met, key=lambda name: list(domains).index(name) if name in domains else 99)


def _active(label: str, domain: str, notes: Counter[str]) -> Active:
    total = notes.total()
    shares = {note: count / total for note, count in sorted(notes.items())}
    lengths = [int(note.removeprefix("k=")) for note in notes if note.startswith("k=")]
    k = sum(length * shares[f"k={length}"] for length in lengths) if lengths else None
    plain = shares.get(BASELINE, 0.0) + shares.get("k=0", 0.0)
    return Active(label, domain, total, 1.0 - plain, k, shares)


def _measured(
    label: str,
    domain: str,
    done: Sequence[Done],
    plain: Sequence[Done],
    depth: int | None,
    compared: bool,
) -> Measured:
    rows = list(_by_request(done))
    flat = [row for own in rows for row in own]
    steps = [step for one in done for step in one.generation.steps]
    own, same = _shared(done, plain)
    before_s, after_s = _token_s(same), _token_s(own)
    return Measured(
        label,
        domain,
        requests=len(rows),
        steps=len(flat),
        tau=_tau(rows, depth),
        drafted=sum(row.drafted for row in flat),
        accepted=sum(row.accepted for row in flat),
        step=_mean([step.times for step in steps]),
        token_s=_token_s(done),
        speedup=before_s / after_s if before_s and after_s else None,
        differs=_differing(own, same) if own and compared else None,
    )


def _shared(done: Sequence[Done], plain: Sequence[Done]) -> tuple[list[Done], list[Done]]:
    """Those of either that consist of prompts both have finished."""
    known = [{key[1:] for one in those for key in one.keys} for those in (done, plain)]
    both = known[0] & known[1]
    own, same = (
        [one for one in those if both.issuperset(key[1:] for key in one.keys)]
        for those in (done, plain)
    )
    return own, same


def _by_request(done: Iterable[Done]) -> Iterable[list[Row]]:
    for one in done:
        for place in range(len(one.numbers)):
            rows = (row for step in one.generation.steps for row in step.rows)
            yield [row for row in rows if row.prompt == place]


def _tau(rows: Sequence[Sequence[Row]], depth: int | None) -> Interval | None:
    kept = [own for own in rows if own]
    flat = [row for own in kept for row in own]
    if not flat:
        return None
    counts = np.array([(row.accepted, row.drafted, row.context) for row in flat])
    trace = Trace(np.cumsum([0, *map(len, kept)]), counts[:, 0], counts[:, 1], counts[:, 2])
    return tau_interval(trace, int(trace.drafted.max()) if depth is None else depth)


def _depth(block: Mapping[str, Any]) -> int | None:
    """Most draft tokens a step of a strategy accepts, where the simulator knows its kind."""
    kind = fixed_types().get(str(block.get("kind")))
    return None if kind is None else kind.model_validate(dict(block)).depth


def _mean(times: Sequence[Times]) -> Times | None:
    return Times(*np.mean(times, axis=0).tolist()) if times else None


def _token_s(done: Iterable[Done]) -> float | None:
    steps = [step for one in done for step in one.generation.steps]
    tokens = sum(sum(step.emitted) for step in steps)
    return sum(step.times.total_s for step in steps) / tokens if tokens else None


def _differing(done: Iterable[Done], plain: Iterable[Done]) -> float:
    wanted, texts = _texts(plain), _texts(done)
    return sum(text != wanted[key] for key, text in texts.items()) / len(texts)


def _texts(done: Iterable[Done]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {
        (one.domain, number): text
        for one in done
        for number, text in zip(one.numbers, one.generation.tokens, strict=True)
    }
