"""What a switch costs, and the time of a step whose sequences are in several modes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.mixed_modes import Chunks, Group, MixedModes
from sim.engine import simulate
from sim.engine.control.gate import FALLBACK, PRIMARY
from tests.by_hand import KIND, stepping
from tests.switching import LOOKAHEAD, MEDUSA, PLAIN, chain, gate, serve

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
    emitted = serve(gate(sure, **{"return": {"kind": "probe", "steps": 5}}), requests=8).steps[
        "emitted"
    ][1:]
    want = [8 * 5 if letter == "A" else 8 for letter in fills]
    assert emitted[: len(want)].tolist() == want


SHUT = {"measure": "tau", "leave_below": 1000, "dwell_steps": 0, "window_of": "engine"}


def test_medusa_pays_nothing_and_a_draft_model_for_what_it_missed() -> None:
    """After a stay of 20 plain steps of one token each."""
    back = {"kind": "probe", "every_steps": 20, "window_tokens": 10**5}
    keys = {**SHUT, "window_tokens": 1}
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
    keys = {**SHUT, "window_tokens": 1}
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
    keys = {**SHUT, "window_tokens": 1}
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


def test_the_target_pass_is_priced_by_the_widest_mode_present() -> None:
    def wide(width: int, seconds: float) -> Any:
        return SimpleNamespace(
            width=width, mixed=lambda *_: seconds, draft_s=lambda *_: 0.0, host_s=lambda *_: 0.0
        )

    mixed = MixedModes([wide(4, 5.0), wide(64, 3.0), wide(1, 9.0)], 0)
    assert mixed.step_s([GROUP, Group(2, 2, 700, 2, 700)], Chunks()) == 5.0
    assert mixed.step_s([GROUP, Group(1, 2, 700, 128, 700)], Chunks()) == 3.0


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
    keys = {**SHUT, "window_tokens": 20}
    left = serve(gate(chain(), fallback=PLAIN, **keys))
    first = int(np.searchsorted(left.steps["start_s"], left.switches()[0].at_s - 1e-9))
    assert first > 2
    same = slice(0, first)
    assert left.steps["emitted"][same].tolist() == alone.steps["emitted"][same].tolist()
    assert left.steps["emitted"][first + 1] == 8
