"""A gate leaves on a full window, dwells, comes back on its signal, and pays for what it missed."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.mixed_modes import Chunks, Group, MixedModes
from models.strategies.adaptive import Adaptive
from sim.engine import simulate
from sim.engine.control import Outcome
from sim.engine.control.gate import FALLBACK, PRIMARY, Gate
from sim.engine.mode_log import ModeLog, Switch
from tests.by_hand import KIND, stepping
from tests.switching import LOOKAHEAD, MEDUSA, PLAIN, chain, gate, serve

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
    keys = {"leave_below": 0.3, "return_above": 0.5, "return": back}
    steps = Steps(**keys)
    steps.run(*[0] * 10)
    assert steps.run(*[3] * 8) == [FALLBACK] * 3 + [PRIMARY] * 5
    assert steps.switches[1] == Switch(15.0, 0, FALLBACK, PRIMARY, 0.75)
    poor = Steps(**keys)
    poor.run(*[0] * 10, *[1] * 100)
    assert len(poor.switches) == 1  # 0.25 at each probe: not enough to return


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


# What switching costs


class Scripted:
    """Every sequence in the mode written down for the step."""

    entering = 0

    def __init__(self, script: str) -> None:
        self.by_slot: list[Any] = []
        self._modes = [(PRIMARY, FALLBACK)[letter == "f"] for letter in script]

    def enter(self, slot: int) -> None:
        pass

    def choose(self, batch: Any) -> Any:
        return np.full(batch.n, self._modes[batch.step]), None

    def observe(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("script", "fills"),
    [
        ("ppppppp", "AAAAAAA"),
        ("pfpppp", "An0AAA"),
        ("pfffffffpppppp", "Annnnnnn0000AA"),
        ("pffpppp", "Ann00AA"),
        ("pfffffpppffpppp", "Annnnn000nn000A"),
        ("pfffffffppffffffpppppp", "Annnnnnn00nnnnnn0000AA"),
    ],
)
def test_lookahead_accepts_nothing_in_the_levels_it_missed(
    monkeypatch: pytest.MonkeyPatch, script: str, fills: str
) -> None:
    """N - 1 = 4 at most, one a step; levels a short visit left to fill still are."""
    monkeypatch.setattr(simulate, "control_of", lambda *_: Scripted(script + "f" * 200))
    sure = {**LOOKAHEAD, "acceptance": {"alpha": 1, "spread": 0}}
    emitted = serve(gate(sure), requests=8).steps["emitted"][1:]
    want = [8 * 5 if letter == "A" else 8 for letter in fills]
    assert emitted[: len(want)].tolist() == want


def test_medusa_pays_nothing_and_a_draft_model_for_what_it_missed() -> None:
    """After a stay of 20 plain steps of one token each."""
    back = {"kind": "probe", "every_steps": 20, "window_tokens": 10**5}
    keys = {"leave_below": 1000, "window_tokens": 1, "dwell_steps": 0, "window_of": "engine"}
    for primary in (MEDUSA, chain("draft_model", 3, alpha=0)):
        flat = {**primary, "acceptance": {"alpha_by_pos": [0.0] * 3, "spread": 0}}
        flat = flat if primary["kind"] == "draft_model" else primary
        served = serve(gate(flat, **keys, **{"return": back}), users=4, requests=4)
        drafting = np.flatnonzero(served.steps["draft_s"] > 0)
        place = int(drafting[-1])
        groups = served.setup.modes
        assert groups is not None
        extra = served.steps["draft_s"][place] - _draft_s(served, place, missed=0)
        if primary is MEDUSA:
            assert extra == pytest.approx(0, abs=1e-12)
        else:
            want = _draft_s(served, place, missed=20) - _draft_s(served, place, missed=0)
            assert extra == pytest.approx(want, rel=1e-9)
            assert extra > 0


def _draft_s(served: Any, place: int, missed: int) -> float:
    """Draft phase of 4 sequences that each lack ``missed`` tokens, by the equation."""
    steps, time = served.steps, served.setup.modes.time.times[PRIMARY]
    width = time.width
    before = steps["emitted"][:place].sum()
    ctx = int(4 * 200 + before)
    each = ctx / 4
    pairs = 4 * (missed * (each - missed) + missed**2 / 2)
    return time.draft_s(4, 4 * (width + missed), ctx, width * ctx, pairs, 4 * missed)


def test_a_draft_entered_for_the_first_time_pays_for_the_prompt() -> None:
    """Medusa computes no prompt for the draft model it falls back to."""
    keys = {"leave_below": 1000, "window_tokens": 1, "dwell_steps": 0, "window_of": "engine"}
    back = {"kind": "probe", "every_steps": 10**6}
    served = serve(
        gate(MEDUSA, fallback=chain("draft_model", 3), **keys, **{"return": back}),
        requests=8,
        prompt=1000,
    )
    assert len(served.switches()) == 1
    ctx = int(8 * 1000 + served.steps["emitted"][:2].sum())
    missed = ctx - 8
    each = ctx / 8
    time = served.setup.modes.time.times[FALLBACK]
    # The mean sequence stands for each: they differ by what one step of Medusa emitted.
    pairs = 8 * (missed / 8 * (each - missed / 8) + (missed / 8) ** 2 / 2)
    want = time.draft_s(8, 32 + missed, ctx, 4 * ctx, pairs, missed)
    assert served.steps["draft_s"][2] == pytest.approx(want, rel=1e-3)
    assert want > 3 * served.steps["draft_s"][3]


def test_what_a_draft_missed_may_be_more_than_a_step_can_take() -> None:
    """64 x 200 tokens, 8192 a pass: the rest in a pass before, without which nothing is priced."""
    back = {"kind": "probe", "every_steps": 200, "window_tokens": 10**5}
    keys = {"leave_below": 1000, "window_tokens": 1, "dwell_steps": 0, "window_of": "engine"}
    served = serve(
        gate(chain("draft_model", 3), **keys, **{"return": back}),
        users=64,
        requests=64,
        prompt=20,
        output=300,
    )
    drafting = np.flatnonzero(served.steps["draft_s"] > 0)
    most, missed = served.setup.rules.max_num_batched_tokens, 64 * 200
    assert most < missed
    time = served.setup.modes.time.times[PRIMARY]
    first, later = served.steps["draft_s"][drafting[1:3]]
    assert served.steps["n_decode"][drafting[2]] == 64
    body = time.draft_s(0, most, 0, 0, 0, most) + time.draft_s(0, missed - most, 0, 0, 0, 0)
    assert later == pytest.approx(body + first, rel=0.15)


# A step of several modes


GROUP = Group(0, 5, 5000, 20, 20000)


def test_one_group_is_its_own_step_time() -> None:
    times = [stepping(KIND["eagle3"](k=3)), stepping()]
    mixed = MixedModes(times, 0)
    assert mixed.step_s([GROUP], Chunks()) == times[0].decode(5, 5000)
    chunks = Chunks(300, 300.0, 45000.0, 1)
    assert mixed.step_s([GROUP], chunks) == times[0].mixed(*GROUP[1:5], *chunks)
    part = GROUP._replace(query_tokens=17, query_ctx=17000)
    assert mixed.step_s([part], Chunks()) == times[0].mixed(*part[1:5])


@pytest.mark.parametrize("engine", ["vllm_0.13", "vllm_0.15"])
def test_groups_share_the_target_pass_and_draft_one_after_another(engine: str) -> None:
    """Target pass as the widest prices it, all draft phases, and the longest host."""
    chains = [KIND["eagle3"](k=3), KIND["draft_model"](draft="llama-3.2-1b", k=2)]
    times = [stepping(one, engine=engine) for one in (*chains, KIND["autoregressive"]())]
    mixed = MixedModes(times, 0)
    groups = [GROUP, Group(1, 3, 900, 9, 2700), Group(2, 2, 700, 2, 700)]
    n, ctx, tokens, query_ctx = 10, 6600, 31, 23400
    target = times[0].mixed(n, ctx, tokens, query_ctx)
    target -= times[0].draft_s(n, tokens, ctx, query_ctx, 0.0) + times[0].host_s(n, tokens - n)
    drafts = times[0].draft_s(5, 20, 5000, 20000, 0.0) + times[1].draft_s(3, 9, 900, 2700, 0.0)
    drafted = (15, 6, 0)
    host = max(time.host_s(10, each) for time, each in zip(times, drafted, strict=True))
    assert mixed.step_s(groups, Chunks()) == pytest.approx(target + drafts + host, rel=1e-12)
    assert mixed.draft_s(groups, Chunks()) == pytest.approx(drafts, rel=1e-12)
    assert mixed.host_s(groups, Chunks()) == host


def test_prompts_are_computed_by_the_draft_of_the_first_mode() -> None:
    times = [stepping(KIND["eagle3"](k=3)), stepping()]
    mixed, chunks = MixedModes(times, 0), Chunks(300, 300.0, 45000.0, 1)
    plain = Group(1, 2, 700, 2, 700)
    prompts = times[0].draft_s(0, 300, 300.0, 0, 45000.0, 300)
    assert mixed.draft_s([plain], chunks) == pytest.approx(prompts, rel=1e-12)
    both = times[0].draft_s(6, 320, 5300.0, 20000, 45000.0, 300)
    assert mixed.draft_s([GROUP, plain], chunks) == pytest.approx(both, rel=1e-12)


def test_a_law_is_that_of_the_mode() -> None:
    """Requests take the draws that a strategy alone would: the first steps are the same."""
    shut = {"leave_below": 0.5, "dwell_steps": 10**5}
    gated, alone = serve(gate(chain(), **shut)), serve(chain())
    assert gated.steps["emitted"].tolist() == alone.steps["emitted"].tolist()
    keys = {"leave_below": 1000, "window_tokens": 20, "dwell_steps": 0, "window_of": "engine"}
    left = serve(gate(chain(), fallback=PLAIN, **keys))
    first = int(np.searchsorted(left.steps["start_s"], left.switches()[0].at_s - 1e-9))
    assert first > 2
    same = slice(0, first)
    assert left.steps["emitted"][same].tolist() == alone.steps["emitted"][same].tolist()
    assert left.steps["emitted"][first + 1] == 8
