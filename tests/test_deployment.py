"""A deployment: names and defaults of a scenario, resolved."""

from __future__ import annotations

import pytest

from models import catalog
from models.schema import ModelError
from models.strict_yaml import load_yaml
from sim.scenario.build import Deployment, build
from sim.scenario.load import parse_scenario
from sim.scenario.schema import Scenario

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-70b, tp: 4}
workload: {arrivals: {kind: poisson, rate_per_s: 4}}
strategies: [{kind: eagle3, k: 3}]
"""


def one(*overrides: str) -> Scenario:
    (point,) = parse_scenario(load_yaml(TEXT, "what-if.yaml"), overrides).points
    return point.scenario


def deployed(*overrides: str) -> Deployment:
    return build(one(*overrides))


def test_engine_limits_follow_the_gpu() -> None:
    large, small = deployed(), deployed("hardware.gpu=a100_80g_sxm")
    sizes = large.engine.max_num_seqs, large.engine.max_num_batched_tokens
    assert (large.max_num_seqs, large.max_num_batched_tokens) == tuple(s["large"] for s in sizes)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == tuple(s["small"] for s in sizes)


def test_limits_given_are_kept() -> None:
    deployment = deployed("engine.max_num_seqs=16", "engine.max_model_len=4096")
    assert deployment.max_num_seqs == 16
    assert deployment.max_model_len == 4096
    assert all(deployment.max_num_seqs_for(s) == 16 for s in one().strategies)


def test_a_full_batch_of_verify_tokens_fits_into_a_step() -> None:
    deployment = deployed("engine.max_num_batched_tokens=300")
    plain, eagle3 = one().strategies
    assert deployment.max_num_seqs_for(plain) == 300
    assert deployment.max_num_seqs_for(eagle3) == 300 // 4


def test_an_engine_may_cap_the_batch_of_speculation() -> None:
    engine = catalog.engine("vllm_0.15").model_copy(update={"max_num_seqs_speculative": 48})
    deployment = Deployment(**{**vars(deployed()), "engine": engine})
    plain, eagle3 = one().strategies
    assert deployment.max_num_seqs_for(plain) == deployment.max_num_seqs
    assert deployment.max_num_seqs_for(eagle3) == 48


@pytest.mark.parametrize(
    ("overrides", "replicas", "gpus"),
    [
        ((), 1, 4),
        (("model.replicas=3",), 3, 12),
        (("hardware.gpus=9",), 2, 9),
        (("hardware.gpus=9", "model.replicas=1"), 1, 9),
    ],
)
def test_gpus_and_replicas_fill_each_other_in(
    overrides: tuple[str, ...], replicas: int, gpus: int
) -> None:
    deployment = deployed(*overrides)
    assert (deployment.replicas, deployment.gpus) == (replicas, gpus)


def test_a_profile_of_another_gpu_is_extrapolated() -> None:
    assert deployed().profile_basis == "validated"
    other = ("hardware.gpu=h200_sxm", "hardware.profile=h100_sxm")
    assert deployed(*other).profile_basis == "extrapolated"


def test_price_defaults_to_the_list_price() -> None:
    listed = catalog.hardware("h100_sxm").price_per_gpu_hour
    assert deployed().price_per_gpu_hour == listed
    assert deployed("hardware.price_per_gpu_hour=0").price_per_gpu_hour == 0


def test_top_p_is_the_models_own_unless_asked() -> None:
    own = deployed().target.top_p_default
    assert deployed().top_p is own
    assert deployed("workload.sampling=top_p").top_p
    assert not deployed("workload.sampling=greedy").top_p


def test_build_names_the_key_at_fault() -> None:
    good = one()
    bad = good.model_copy(update={"model": good.model.model_copy(update={"tp": 7})})
    with pytest.raises(ModelError, match="must divide the 64 heads") as caught:
        build(bad)
    assert caught.value.key == "model.tp"
