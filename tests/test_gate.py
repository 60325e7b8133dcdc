"""A gate leaves on a full window, dwells, comes back on its signal, and pays for what it missed."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.strategies.adaptive import Adaptive
from sim.engine.control import Outcome
from sim.engine.control.gate import FALLBACK, PRIMARY, Gate
from sim.engine.mode_log import ModeLog, Switch
from tests.switching import chain, gate, serve

K = 4
SIGNALS: list[dict[str, Any]] = [
    {"kind": "probe", "every_steps": 5, "steps": 2, "window_tokens": 3},
    {"kind": "dwell"},
    {"kind": "proxy", "power": 0.5, "window_tokens": 4},
]


class Steps:
    """A gate over ``n`` sequences that never end, fed step by step."""

    def __init__(self, n: int = 1, **keys: Any) -> None:
        keys = {"window_tokens": 10, "measure": "acceptance", "dwell_steps": 0} | keys
        self.strategy = Adaptive.model_validate(gate(chain(k=K), **keys))
        self.log, self.n, self.now = ModeLog(("a", "b")), n, 0
        self.gate = Gate(self.strategy, n, 2, 10**6, self.log)
        self.signal: Any = 0
        mode = SimpleNamespace(levels=K)
        self.batch: Any = SimpleNamespace(
            n=n,
            stream=np.arange(n) % 2,
            modes=SimpleNamespace(modes=(mode, mode)),
            ids=lambda: list(range(n)),
            going_on=lambda: np.ones(n, dtype=bool),
            reading=lambda mode, power: np.broadcast_to(self.signal, n).copy(),
        )
        self.ran: list[np.ndarray] = []

    def step(self, accepted: Any = 0) -> np.ndarray:
        """Run a step that would accept so many tokens in the primary; modes it ran in."""
        mode, limit = self.gate.choose(self.batch)
        assert limit is None
        offered = np.where(mode == PRIMARY, K, 0)
        got = np.minimum(np.broadcast_to(accepted, self.n), offered)
        self.now += 1
        self.gate.observe(self.batch, Outcome(mode, got, offered, offered), 1.0, float(self.now))
        self.ran.append(mode)
        return mode

    def run(self, *accepted: int) -> list[int]:
        return [int(self.step(one)[0]) for one in accepted]

    @property
    def switches(self) -> list[Switch]:
        return self.log.switches


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal["kind"])
@pytest.mark.parametrize("of", ["request", "stream", "engine"])
@pytest.mark.parametrize("dwell", [0, 1, 7, 16])
def test_no_gate_switches_within_its_dwell(signal: dict[str, Any], of: str, dwell: int) -> None:
    rng = np.random.default_rng(dwell)
    steps = Steps(
        6, dwell_steps=dwell, window_of=of, window_tokens=4, leave_below=0.5, **{"return": signal}
    )
    for _ in range(400):
        steps.signal = rng.integers(0, K + 1, 6)
        steps.step(rng.integers(0, K + 1, 6))
    at, last = defaultdict(list), {}
    for switch in steps.switches:
        at[switch.owner].append(switch.at_s)
        assert switch.mode_from == last.get(switch.owner, PRIMARY) != switch.mode_to
        last[switch.owner] = switch.mode_to
    assert len(at) == {"request": 6, "stream": 2, "engine": 1}[of]
    assert all(len(times) > 3 for times in at.values())
    assert min(np.diff(times).min() for times in at.values()) >= max(dwell, 1)
    assert min(times[0] for times in at.values()) >= max(dwell, 1)


def test_it_closes_when_a_whole_window_reads_less_and_not_before() -> None:
    steps = Steps(leave_below=0.3, window_tokens=10)
    steps.run(*[0] * 9)
    assert not steps.switches
    steps.run(0)
    assert steps.switches == [Switch(10.0, 0, PRIMARY, FALLBACK, 0.0)]
    assert steps.run(0, 0) == [FALLBACK, FALLBACK]


@pytest.mark.parametrize(
    ("measure", "reads"), [("alpha", 5 / 10), ("acceptance", 5 / 20), ("tau", 2.0)]
)
def test_it_stays_open_while_the_window_reads_as_much(measure: str, reads: float) -> None:
    for leave, left in ((reads, 0), (reads + 1e-9, 1)):
        steps = Steps(leave_below=leave, measure=measure)
        steps.run(1, 1, 1, 1, 1)
        assert len(steps.switches) == left
    assert steps.switches[0].reading == reads


def test_the_window_forgets_what_is_older() -> None:
    steps = Steps(leave_below=0.5, window_tokens=10)
    steps.run(*[4] * 50, 0, 0)
    assert not steps.switches
    steps.run(0)
    assert [switch.reading for switch in steps.switches] == [8 / 20]


def test_a_probe_comes_after_so_many_steps_of_the_fallback_and_lasts_its_own() -> None:
    back = {"kind": "probe", "every_steps": 5, "steps": 2, "window_tokens": 100}
    steps = Steps(leave_below=0.9, **{"return": back})
    steps.run(*[0] * 10)
    assert steps.run(*[0] * 21) == ([FALLBACK] * 5 + [PRIMARY] * 2) * 3
    assert len(steps.switches) == 1


def test_it_opens_at_the_end_of_a_probe_that_fills_the_window_and_reads_enough() -> None:
    back = {"kind": "probe", "every_steps": 3, "steps": 2, "window_tokens": 4}
    keys = {"leave_below": 0.3, "return_above": 0.75, "return": back}
    steps = Steps(**keys)
    steps.run(*[0] * 10)
    assert steps.run(*[3] * 8) == [FALLBACK] * 3 + [PRIMARY] * 5
    assert steps.switches[1] == Switch(15.0, 0, FALLBACK, PRIMARY, 0.75)
    poor = Steps(**keys)
    poor.run(*[0] * 10, *[2] * 100)
    assert len(poor.switches) == 1  # 0.5 at each probe: not enough to return


def test_the_window_begins_anew_after_a_switch() -> None:
    steps = Steps(leave_below=0.3, **{"return": {"kind": "dwell"}}, dwell_steps=4)
    steps.run(*[0] * 10)
    assert steps.run(*[0] * 4) == [FALLBACK] * 4
    assert steps.run(*[0] * 9) == [PRIMARY] * 9
    assert len(steps.switches) == 2
    steps.run(0)
    assert len(steps.switches) == 3


def test_a_proxy_opens_on_what_it_reads_alone() -> None:
    back = {"kind": "proxy", "power": 1, "window_tokens": 8}
    steps = Steps(leave_below=0.5, **{"return": back})
    steps.run(*[0] * 10)
    steps.run(*[4] * 50)
    assert len(steps.switches) == 1  # what the primary would have accepted is not seen
    steps.signal = 3
    steps.run(*[0] * 20)
    assert steps.switches[1].mode_to == PRIMARY
    assert steps.switches[1].reading >= 0.5


def test_a_step_in_which_nothing_was_drafted_tells_nothing() -> None:
    steps = Steps(leave_below=0.5)
    nothing = np.zeros(1, dtype=np.int64)
    for _ in range(100):
        steps.gate.observe(steps.batch, Outcome(nothing, nothing, nothing, nothing), 1.0, 1.0)
    assert not steps.switches


# In a run


def test_dwell_holds_in_runs() -> None:
    """Steps between two switches of a gate are those its request ran, at most one a step."""
    for of in ("request", "engine"):
        served = serve(
            gate(
                chain(alpha=0.5),
                leave_below=0.5,
                window_tokens=10,
                dwell_steps=12,
                window_of=of,
                **{"return": {"kind": "dwell"}},
            ),
            users=40,
            requests=80,
            output=300,
        )
        ends = served.steps["start_s"] + served.steps["duration_s"]
        at = defaultdict(list)
        for switch in served.switches():
            at[switch.owner].append(np.searchsorted(ends, switch.at_s - 1e-9))
        assert len(at) > (20 if of == "request" else 0)
        assert min(np.diff(places).min() for places in at.values() if len(places) > 1) >= 12


def test_a_probe_is_charged_as_a_step_of_the_primary() -> None:
    back = {"kind": "probe", "every_steps": 9, "window_tokens": 10**5}
    keys = {"leave_below": 1, "window_tokens": 1, "dwell_steps": 0, "window_of": "engine"}
    served = serve(gate(chain(alpha=0), **keys, **{"return": back}), requests=8)
    drafting = np.flatnonzero(served.steps["draft_s"] > 0)
    assert set(np.diff(drafting[1:])) == {10}
    primary = serve(chain(alpha=0), requests=8).steps
    place = drafting[2]
    missed_s = served.steps["duration_s"][place] - primary["duration_s"][place]
    assert 0 < missed_s < 0.1 * primary["duration_s"][place]
    assert served.steps["verify_tokens"][place] == 8 * 6


def returned(power: float, alpha: dict[str, Any], seed: int = 1) -> float:
    """Share of the steps after the first switch that the primary runs."""
    streams = [
        {
            "name": name,
            "share": 0.5,
            "domain": name,
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 300},
        }
        for name in ("good", "bad")
    ]
    primary = chain(
        by_domain={name: {"alpha": value, "spread": 0} for name, value in alpha.items()}
    )
    served = serve(
        gate(
            primary,
            leave_below=0.5,
            window_tokens=20,
            dwell_steps=8,
            **{"return": {"kind": "proxy", "power": power, "window_tokens": 20}},
        ),
        seed=seed,
        requests=40,
        streams=streams,
    )
    domain = served.requests.domain
    steps, drafted = np.array(served.log.n_steps), np.array(served.log.drafted)
    return float(drafted[domain == 1].sum() / (5 * steps[domain == 1].sum()))


def test_a_proxy_of_no_power_does_not_know_when_the_primary_pays() -> None:
    """A request of the poor domain stays out with a true signal, and not with that of others."""
    shares = [returned(power, {"good": 0.9, "bad": 0.1}) for power in (1.0, 0.5, 0.0)]
    assert shares[0] < 0.15
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.3
