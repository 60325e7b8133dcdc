"""Launch overhead of an engine's mode, and KV in int4: what nobody measured, added as stated."""

from __future__ import annotations

import pytest
from by_hand import BW, KIND, PLAIN, PROFILE, stepping

from models import catalog
from models.kernels import Kernels
from models.launches import Launches
from models.strict_yaml import InputError, load_yaml
from sim.band import step_scale
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import Setup, prepare

LLAMA = catalog.transformer("llama-3.1-8b")
EAGLE, MEDUSA = KIND["eagle3"](k=4), KIND["medusa"](heads=4)
DRAFT = KIND["draft_model"](draft="llama-3.2-1b", k=3)
EAGER = Launches(per_step_us=1400, per_pass_us=100)


SCENARIO = """\
hardware: {{gpu: {gpu}}}
model: {{transformer: llama-3.1-8b, kv: {kv}}}
engine: {{name: vllm_0.15{engine}}}
workload:
  arrivals: {{kind: closed_loop, users: 1}}
  streams: [{{prompt_tokens: {{kind: fixed, value: 9}}, output_tokens: {{kind: fixed, value: 9}}}}]
strategies: [{{kind: autoregressive}}]
"""


INT4 = "int4, kv_loss: {acceptance_loss: 0, quality_loss: 0}"


def prepared(gpu: str = "h100_sxm", kv: str = "bf16", engine: str = "") -> Setup:
    text = SCENARIO.format(gpu=gpu, kv=kv, engine=engine)
    scenario = parse_scenario(load_yaml(text, "scenario.yaml"), []).points[0].scenario
    return prepare(build(scenario), scenario.strategies[-1], ("general",))


def added(strategy, launches, engine="vllm_0.15") -> list[float]:
    """What launches add to a decode step, one beside a prompt, and a prompt alone [us]."""
    before, after = (
        stepping(strategy, engine=engine),
        stepping(strategy, engine=engine, launches=launches),
    )
    width = before.width
    pairs = [
        (
            step.decode(8, 4000),
            step.mixed(8, 4000, 8 * width, 4000 * width, 100, 100, 5e3, 1),
            step.mixed(0, 0, 0, 0, 100, 100, 5e3, 0),
        )
        for step in (before, after)
    ]
    return [1e6 * (late - early) for early, late in zip(*pairs, strict=True)]


@pytest.mark.parametrize("engine", ["vllm_0.10", "vllm_0.15"])
@pytest.mark.parametrize(("strategy", "passes"), [(PLAIN, 0), (EAGLE, 4), (DRAFT, 3), (MEDUSA, 0)])
def test_every_step_and_draft_pass_is_launched_and_nothing_hides_it(engine, strategy, passes):
    step, beside, alone = added(strategy, EAGER, engine)
    assert step == pytest.approx(1400 + 100 * passes)
    assert beside == pytest.approx(1400 + 100 * passes)
    # The pass over the prompt drafts as well, the later ones have no rows.
    assert alone == pytest.approx(1400 + 100 * min(passes, 1))


def test_plain_decoding_pays_only_where_it_is_told_to():
    spared = Launches(per_step_us=180, plain=False)
    assert added(PLAIN, spared) == pytest.approx([0, 0, 0])
    assert added(EAGLE, spared) == pytest.approx([180, 180, 180])


def test_launches_are_host_time_of_a_step_taken_apart():
    parts = stepping(EAGLE, launches=EAGER).breakdown(8, 4000)
    usual = stepping(EAGLE).breakdown(8, 4000)
    assert 1e6 * (parts["host"] - usual["host"]) == pytest.approx(1400)
    assert 1e6 * (parts["draft"] - usual["draft"]) == pytest.approx(400)
    assert sum(parts.values()) == pytest.approx(stepping(EAGLE, launches=EAGER).decode(8, 4000))


def test_int4_takes_half_a_byte_and_its_scales():
    token = 2 * 8 * 128 * 32
    assert LLAMA.kv_bytes_per_token("int4", 1) == pytest.approx(token * (0.5 + 4 / 128))


def test_int4_is_read_at_the_share_of_the_bandwidth_of_fp8():
    kernels = Kernels(catalog.hardware("h100_sxm"), PROFILE)
    share = PROFILE.attention["fp8"].memory.value
    expected = 2 * 8 * 128 * (0.5 + 4 / 128) / (share * BW)
    assert kernels.kv_read_s(LLAMA, "int4", 1) == pytest.approx(expected)
    assert kernels.attention_launch_s("int4") == kernels.attention_launch_s("fp8")
    assert stepping(kv="int4").decode(64, 400_000) < stepping(kv="fp8").decode(64, 400_000)


def test_where_an_engine_is_slow_in_fp8_int4_is_no_faster():
    for engine in ("sglang_0.5", "vllm_0.15"):
        kernels = Kernels(catalog.hardware("h100_sxm"), PROFILE, engine=catalog.engine(engine))
        if kernels.slow_fp8_kv("fp8") is not None:
            assert kernels.kv_read_s(LLAMA, "int4", 1) == kernels.kv_read_s(LLAMA, "fp8", 1)


def test_int4_needs_constants_of_fp8():
    with pytest.raises(InputError, match=r"attention constants for bf16, got 'int4'"):
        prepared(gpu="a100_80g_sxm", kv=INT4)


def test_what_nobody_measured_is_assumed():
    cut = "{kind: snapkv, budget_tokens: 99, acceptance_loss: 0, quality_loss: 0}"
    assert step_scale(prepared(), 64).basis == "validated"
    for changed in (
        prepared(kv=INT4),
        prepared(engine=", launches: {per_step_us: 100}"),
        prepared(engine=f", kv_policy: {cut}"),
    ):
        assert step_scale(changed, 64).basis == "assumed"
    assert step_scale(prepared(engine=", launches: {}"), 64).basis == "validated"


def test_trees_that_do_not_lie_inline_are_assumed_and_chains_are_not():
    deployment = prepared(engine=", tree_kv: copy_on_write").deployment
    assert deployment.beyond_engine(KIND["medusa"](heads=4, tree="medusa_63"))
    assert not deployment.beyond_engine(MEDUSA)
    inline = prepared().deployment
    assert not inline.beyond_engine(KIND["medusa"](heads=4, tree="medusa_63"))
