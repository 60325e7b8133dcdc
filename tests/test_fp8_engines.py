"""What an engine saves, or pays, in fp8 next to the kernels as they were timed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models import catalog
from models.forward_pass import Attention
from models.gemm import fused
from models.kernels import Kernels
from models.schema import Constant
from models.strict_yaml import load_yaml
from sim.scenario.build import Deployment, build
from sim.scenario.dump import to_yaml
from sim.scenario.load import parse_scenario

H100 = catalog.hardware("h100_sxm")
PROFILE = catalog.profile("h100_sxm")
TIMED = Kernels(H100, PROFILE)
BW = 3.35e12


def under(name: str) -> Kernels:
    return replace(TIMED, engine=catalog.engine(name))


def deployed(hardware: dict[str, str], engine: str) -> Deployment:
    scenario = {
        "hardware": hardware,
        "model": {"transformer": "llama-3.1-8b"},
        "engine": {"name": engine},
        "workload": {"arrivals": {"kind": "closed_loop", "users": 1}, "streams": [{}]},
        "strategies": [{"kind": "autoregressive"}],
    }
    return build(parse_scenario(load_yaml(to_yaml(scenario), "made up")).points[0].scenario)


def test_a_fused_gemm_neither_moves_activations_to_quantise_nor_launches_twice():
    m, n, k = 4096, 8192, 8192
    saved = 3 * m * k / (PROFILE.gemm["fp8"].quantise_memory.value * BW)
    launches = PROFILE.gemm["fp8"].launch_us.value - PROFILE.gemm["bf16"].launch_us.value
    alone = float(under("vllm_0.24").gemm(m, n, k, "fp8"))
    assert alone == pytest.approx(float(TIMED.gemm(m, n, k, "fp8")) - saved - 1e-6 * launches)


def test_engines_that_quantise_apart_and_other_types_cost_what_was_timed():
    for engine, weights in (("sglang_0.5", "fp8"), ("vllm_0.24", "bf16"), ("vllm_0.24", "int4")):
        found = under(engine).gemm(512, 4096, 4096, weights)
        assert found == TIMED.gemm(512, 4096, 4096, weights)


def test_a_gemm_timed_alone_keeps_its_launch():
    apart = Constant(value=2.0, source="made up")
    timed = PROFILE.gemm["fp8"].model_copy(update={"quantise_memory": None, "quantise_us": apart})
    alone = fused(timed, PROFILE.gemm["bf16"])
    assert alone.quantise_us is None
    assert alone.launch_us == timed.launch_us


def test_an_fp8_cache_was_read_as_slowly_as_bf16_by_eight_heads_a_kv_head():
    net = catalog.transformer("llama-3.1-70b")
    old = under("vllm_0.10")
    assert old.kv_read_s(net, "fp8", 4) == pytest.approx(old.kv_read_s(net, "bf16", 4))
    assert under("vllm_0.15").kv_read_s(net, "fp8", 4) == TIMED.kv_read_s(net, "fp8", 4)


def test_four_heads_a_kv_head_gained_a_third():
    net = catalog.transformer("llama-3.1-8b")
    old = under("vllm_async_0.10")
    assert old.kv_read_s(net, "fp8", 1) == pytest.approx(0.63 * old.kv_read_s(net, "bf16", 1))


def test_a_group_nobody_measured_takes_the_nearest():
    fp8_kv = catalog.engine("vllm_0.10").fp8_kv
    assert fp8_kv is not None
    found = {group: fp8_kv.per_token(group) for group in (1, 5, 6, 16)}
    assert found == {1: 0.63, 5: 0.63, 6: 1.0, 16: 1.0}


def test_queries_quantised_apart_cost_a_layer_more():
    old = under("vllm_0.10")
    launch = PROFILE.attention["bf16"].launch_us.value
    assert old.attention_launch_s("fp8") == pytest.approx(1e-6 * (launch + 12.6))
    assert old.attention_launch_s("bf16") == TIMED.attention_launch_s("bf16")


@pytest.mark.parametrize(
    ("engine", "profile"), [("tensorrt_llm", "h100_sxm_trtllm"), ("vllm_0.15", "h100_sxm")]
)
def test_a_scenario_runs_the_kernels_of_its_engine(engine, profile):
    deployment = deployed({"gpu": "h100_sxm"}, engine)
    assert deployment.profile.name == profile
    assert deployment.kernels.engine == catalog.engine(engine)


def test_a_profile_of_ones_own_is_taken_under_any_engine():
    own = {"gpu": "h100_sxm", "profile": "h100_sxm"}
    assert deployed(own, "tensorrt_llm").profile.name == "h100_sxm"


@pytest.mark.parametrize(("model", "share"), [("llama-3.1-70b", 1.0), ("llama-3.1-8b", 0.63)])
def test_reading_much_of_an_fp8_cache_keeps_the_same_share_of_bf16(model, share):
    net, slow = catalog.transformer(model), under("vllm_0.10")
    in_fp8, in_bf16 = (Attention.of(slow, net, kv, 1, 1) for kv in ("fp8", "bf16"))
    assert in_fp8.far_s == in_bf16.far_s > 0
    assert in_fp8.far_kv_s == pytest.approx(share * in_bf16.far_kv_s)
