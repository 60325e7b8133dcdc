"""Figures of an audit against arithmetic by hand, and against an overloaded run."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import catalog
from sim.audit import run
from sim.audit.load import load_claims, shipped
from sim.audit.measures import MEASURES
from sim.audit.view import Look, View
from tests.audit_claims import SMALL


@pytest.fixture(scope="module")
def two_gpus() -> View:
    (posed,) = load_claims(shipped(), ["C5"])
    scenario = posed.cases[0].scenario
    return View(scenario, scenario.points[0])


def value(view: View, measure: str, strategy: str, batch: int, context: int) -> float:
    found = MEASURES[measure].function(Look(view, strategy, batch, context)).value
    assert found is not None
    return found


def test_compute_utilisation_is_the_arithmetic_of_a_step_over_the_peak(two_gpus: View) -> None:
    target, batch, context = catalog.transformer("llama-3.1-70b"), 8, 625
    weights = target.layer_params() + 8192 * 128_256
    attention = 4 * 80 * 64 * 128 * context
    flops = batch * (2 * weights + attention)
    seconds = value(two_gpus, "step_s", "plain", batch, context)
    by_hand = flops / (2 * 1979e12 * seconds)
    measured = value(two_gpus, "compute_utilisation", "plain", batch, context)
    assert measured == pytest.approx(by_hand, rel=1e-3)


def test_at_the_break_even_acceptance_a_step_equals_plain_decoding(two_gpus: View) -> None:
    at = "medusa", 2, 625
    tau = value(two_gpus, "break_even_tau", *at)
    alpha = value(two_gpus, "break_even_alpha", *at)
    share = value(two_gpus, "break_even_acceptance", *at)
    steps = [value(two_gpus, "step_s", name, 2, 625) for name in ("medusa", "plain")]
    assert tau == pytest.approx(steps[0] / steps[1])
    assert 1 + alpha + alpha**2 + alpha**3 + alpha**4 == pytest.approx(tau)
    assert 1 + 4 * share == pytest.approx(tau)
    band = MEASURES["break_even_alpha"].function(Look(two_gpus, "medusa", 1, 625))
    assert band.lo == 0 and band.value is not None and band.hi is not None
    assert 0 < band.value < band.hi


def test_kv_is_counted_in_blocks(two_gpus: View) -> None:
    """Blocks of 32 tokens; Medusa keeps 121 slots, plain decoding one."""
    assert value(two_gpus, "kv_blocks_per_sequence", "plain", 1, 640) == 20
    assert value(two_gpus, "kv_blocks_per_sequence", "plain", 1, 641) == 21
    assert value(two_gpus, "kv_blocks_per_sequence", "medusa", 1, 640) == 24
    pool = value(two_gpus, "kv_pool_bytes", "plain", 1, 640)
    block = 32 * 2 * 8 * 128 * 2 * 80
    assert value(two_gpus, "kv_bytes_per_token", "plain", 1, 640) == block / 32
    free = value(two_gpus, "unallocated_bytes", "plain", 64, 640)
    assert free == pytest.approx(pool - 64 * 20 * block, abs=2 * block)
    assert value(two_gpus, "kv_capacity", "plain", 64, 640) == pool // block // 20


@pytest.mark.parametrize("tree_kv", ["inline", "copy_on_write"])
def test_the_capacity_is_the_most_sequences_an_overloaded_run_decodes(
    tmp_path: Path, tree_kv: str
) -> None:
    """An engine that never preempts reserves prompt and output, not what is held half way."""
    claims = tmp_path / "claims.yaml"
    text = SMALL.replace(
        "    workload:",
        f"    engine: {{name: tensorrt_llm_trt, tree_kv: {tree_kv}"
        ", gpu_memory_utilization: 0.32}\n    workload:",
        1,
    )
    text = text.replace("users: 1}", "users: 130}").replace("requests: 8", "requests: 150")
    text = text.replace("value: 100}", "value: 500}").replace("value: 20}", "value: 250}")
    beside = "\n".join(
        f"      {measure} of {name}: {{measure: {measure}, strategy: {name}}}"
        for measure in ("kv_capacity", "batch_peak")
        for name in ("plain", "heads")
    )
    text = text.replace("      a step: {measure: step_s, strategy: plain}", beside)
    claims.write_text(text.replace("values: [0.9, 0.05]", "values: [0.9]"), "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    figures = {key: one[0]["value"] for key, one in found["cases"][0]["arithmetic"].items()}
    for name in ("plain", "heads"):
        assert 1 < figures[f"kv_capacity of {name}"] < 130
        assert figures[f"kv_capacity of {name}"] == figures[f"batch_peak of {name}"]
