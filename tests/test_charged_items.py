"""Nothing a speculating server pays for is free: zero one charge, and the forecast must move.

Each test serves the same requests with a charge and without it, and states how much of the
forecast rests on that charge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from models import kv_use
from models.kernels import Kernels
from models.schema import Constant
from models.strategies import DraftPass, ExtraMemory, strategy_types
from models.strict_yaml import load_yaml
from sim.engine.simulate import simulate
from sim.scenario.build import Deployment, build
from sim.scenario.load import parse_scenario
from sim.scenario.workload import Requests, generate
from sim.setup import prepare

SCENARIO = """
hardware: {{gpu: h100_sxm}}
model: {{transformer: {target}, tp: {tp}}}
engine: {{name: {engine}, max_num_seqs: {users}}}
workload:
  arrivals: {{kind: closed_loop, users: {users}}}
  requests: {requests}
  sampling: {sampling}
  streams:
    - name: only
      prompt_tokens: {{kind: fixed, value: {prompt}}}
      output_tokens: {{kind: fixed, value: 120}}
strategies: [{strategy}]
"""
USUAL = {
    "target": "llama-3.1-8b",
    "tp": 1,
    "engine": "vllm_0.15",
    "users": 4,
    "requests": 24,
    "sampling": "greedy",
    "prompt": 300,
}
EAGLE = "{kind: eagle, k: 3, acceptance: {tau: 2.2}}"
MEDUSA = "{kind: medusa, heads: 4, acceptance: {tau: 2.2}}"
ONE_B = "{kind: draft_model, draft: llama-3.2-1b, k: 4, acceptance: {tau: 2.6}}"
TREE = "{kind: medusa, tree: medusa_63, hypothetical: true, acceptance: {tau: 2.4}}"


class Forecast(NamedTuple):
    n_blocks: int
    tpot_s: float
    ttft_s: float
    tokens_per_s: float
    preemptions: int
    running: float


class Case:
    """One scenario; `forecast` prices and serves it anew, with whatever was patched since."""

    def __init__(self, strategy: str, **changes: Any) -> None:
        text = SCENARIO.format(**{**USUAL, **changes, "strategy": strategy})
        self.scenario = parse_scenario(load_yaml(text, "case.yaml"), []).points[0].scenario
        self.deployment: Deployment = build(self.scenario)
        self.requests: Requests = generate(self.scenario.workload, 1)

    def forecast(self, n_blocks: int | None = None, **engine: Any) -> Forecast:
        changed = self.deployment.engine.model_copy(update=engine)
        setup = prepare(
            replace(self.deployment, engine=changed), self.scenario.strategies[-1], ("",)
        )
        plan = setup.plan()
        if n_blocks is not None:
            plan = replace(plan, rules=replace(plan.rules, n_blocks=n_blocks))
        recorder = simulate(plan, self.requests, seed=1)
        log, totals = recorder.log, recorder.totals[0]
        first, last = np.array(log.first_token_s), np.array(log.finish_s)
        return Forecast(
            n_blocks=setup.budget.n_blocks,
            tpot_s=float(np.mean((last - first) / (self.requests.output_tokens - 1))),
            ttft_s=float(np.mean(first - np.array(log.arrival_s))),
            tokens_per_s=float(self.requests.output_tokens.sum() / last.max()),
            preemptions=sum(log.preemptions),
            running=totals.n_s / totals.decode_s,
        )


ZERO = Constant(value=0.0, source="zeroed by a test")


def keep_only(monkeypatch, kind, **kept):
    """Memory of a strategy without the fields not named in `kept`."""
    cls = strategy_types()[kind]
    whole = cls.memory

    def part(self, *args):
        extra = whole(self, *args)
        return ExtraMemory(**{name: getattr(extra, name) for name in kept})

    monkeypatch.setattr(cls, "memory", part)


def test_draft_weights_take_blocks(monkeypatch):
    case = Case("{kind: medusa, heads: 4}", target="llama-3.1-70b", tp=4)
    charged = case.forecast().n_blocks
    keep_only(monkeypatch, "medusa")
    # 2.6 GB of heads a GPU beside 37 GB of cache
    assert case.forecast().n_blocks == pytest.approx(1.071 * charged, rel=0.005)


def test_draft_kv_takes_blocks(monkeypatch):
    case = Case(ONE_B)
    charged = case.forecast().n_blocks
    keep_only(monkeypatch, "draft_model", weight_bytes=True)
    # 16 layers of 8 heads of 64, beside 32 layers of 8 heads of 128
    assert case.forecast().n_blocks == pytest.approx(1.25 * charged, rel=1e-3)


def test_slots_decide_how_many_run(monkeypatch):
    case = Case(TREE, users=16, requests=64, prompt=64)
    charged = case.forecast(n_blocks=100)
    monkeypatch.setattr(kv_use, "kv_slots", lambda *_: 1)
    free = case.forecast(n_blocks=100)
    # 64 slots are 4 blocks beside the 5 to 12 of a sequence
    assert charged.running < 0.8 * free.running
    assert charged.tokens_per_s < 0.95 * free.tokens_per_s


def test_slots_cause_preemptions(monkeypatch):
    case = Case("{kind: eagle3, k: 5, acceptance: {tau: 2.6}}", users=32, requests=160, prompt=64)
    charged = case.forecast(n_blocks=200)
    monkeypatch.setattr(kv_use, "kv_slots", lambda *_: 1)
    free = case.forecast(n_blocks=200)
    # 17 slots are a block and more beside the 5 to 12 of a sequence
    assert charged.preemptions > 1.1 * free.preemptions > 0
    assert charged.tokens_per_s < 0.97 * free.tokens_per_s


def test_the_draft_reads_the_prompt_too(monkeypatch):
    case = Case(ONE_B, prompt=4000)
    charged = case.forecast()
    cls = strategy_types()["draft_model"]
    whole = cls.draft_passes

    def without_prefill(self, *args) -> tuple[DraftPass, ...]:
        return tuple(p._replace(covers_prefill=False) for p in whole(self, *args))

    monkeypatch.setattr(cls, "draft_passes", without_prefill)
    free = case.forecast()
    # a model an eighth of the target's size reads the prompt in about a tenth of its time
    assert 1.05 < charged.ttft_s / free.ttft_s < 1.25


def test_every_verified_row_is_sampled():
    case = Case(EAGLE, sampling="top_p", users=32, requests=64)
    sampler = case.deployment.engine.sampler
    bonus_only = sampler.model_copy(update={"draft_s_per_logit": ZERO})
    charged, free = case.forecast(), case.forecast(sampler=bonus_only)
    # sorting 27 x 2 rows of 128256 logits at .152 ns, and .159 ms: 1.2 ms of a step near 10 ms
    assert 1.1 < charged.tpot_s / free.tpot_s < 1.3


def test_every_pass_is_launched():
    case = Case(EAGLE, users=1, requests=4)
    charged, free = case.forecast(), case.forecast(draft_pass_us=ZERO)
    # 3 x 250 us of a step of 9 ms
    assert charged.tpot_s / free.tpot_s == pytest.approx(9.03 / 8.28, rel=0.01)


def test_a_deep_draft_waits_for_its_layers():
    draft = "{kind: draft_model, draft: qwen3-0.6b, k: 3, acceptance: {tau: 2.4}}"
    case = Case(draft, target="qwen3-8b", users=1, requests=4)
    charged, free = case.forecast(), case.forecast(draft_layer_us=ZERO)
    # 3 x (2240 - 1550) us of a step of 15.8 ms
    assert charged.tpot_s / free.tpot_s == pytest.approx(15.8 / 13.7, rel=0.01)


@pytest.mark.parametrize("strategy", ["{kind: autoregressive}", EAGLE])
def test_gpus_of_a_group_exchange_activations(monkeypatch, strategy):
    case = Case(strategy, target="llama-3.1-70b", tp=4)
    charged = case.forecast()
    monkeypatch.setattr(Kernels, "all_reduce", lambda self, size, tp: np.zeros(np.shape(size)))
    # 160 all-reduces of 5 us of a step near 16 ms, more where prompts share it
    assert 1.04 < charged.tpot_s / case.forecast().tpot_s < 1.12


def test_the_head_runs_on_every_verified_row(monkeypatch):
    case = Case(EAGLE, users=64, requests=128)
    charged = case.forecast()
    whole = Kernels.lm_head
    width = 4

    def one_row_a_sequence(self, rows, *shape):
        return whole(self, -(-np.asarray(rows) // width), *shape)

    monkeypatch.setattr(Kernels, "lm_head", one_row_a_sequence)
    # logits of 256 instead of 64 rows
    assert 1.015 < charged.tpot_s / case.forecast().tpot_s < 1.1


def test_verification_computes_every_row():
    plain, tree = (Case(s, users=8) for s in ("{kind: autoregressive}", TREE))
    # no draft network and tau 2.4: the gain is eaten by 64 rows a sequence and the host
    gain = plain.forecast().tpot_s / tree.forecast().tpot_s
    assert gain < 0.6 * 2.4


@pytest.mark.parametrize("strategy", [MEDUSA, ONE_B, "{kind: ngram, k: 3}"])
def test_synchronous_strategies_wait_for_the_host(strategy):
    case = Case(strategy, users=1, requests=4)
    host = case.deployment.engine.host_speculative
    idle = host.model_copy(update={"per_step_us": ZERO})
    charged = case.forecast()
    free = case.forecast(host_speculative=idle, sampling_us=ZERO)
    # 950 us of a step of 7 to 17 ms
    assert 1.05 < charged.tpot_s / free.tpot_s < 1.17
