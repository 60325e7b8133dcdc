"""Real vLLM 0.15.1 load stages on H100, replayed from examples/measured/.

The bounds are what is promised for plain decoding below saturation. Repeated real runs differ by
2-6 % among themselves.
"""

from __future__ import annotations

from collections import defaultdict

from measured_runs import SCENARIOS, Stage, only, simulated, stages

BOUNDS = {"ttft_s": 0.10, "tpot_s": 0.05, "e2e_s": 0.05}


def errors(stage: Stage) -> dict[str, float]:
    """Relative errors of the simulated means."""
    row = only(
        simulated(stage.scenario),
        rate_per_s=stage.rate_per_s,
        max_num_batched_tokens=stage.max_num_batched_tokens,
    )
    assert not row["saturated"], stage
    return {name: row[name]["mean"] / getattr(stage, name) - 1 for name in BOUNDS}


def test_every_stage_is_replayed_by_a_committed_file():
    replayed = {stage.scenario for stage in stages()}
    assert {path.stem for path in SCENARIOS.glob("vllm_*.yaml")} == replayed
    assert len(stages()) == 21


def test_latencies_are_within_the_promised_bounds_on_average():
    by_model = defaultdict(list)
    for stage in stages():
        by_model[stage.scenario.split("_")[1]].append(errors(stage))
    assert {name: len(found) for name, found in by_model.items()} == {"llama31": 14, "llama2": 7}

    def mean(found: list[dict[str, float]]) -> dict[str, float]:
        return {name: sum(abs(error[name]) for error in found) / len(found) for name in BOUNDS}

    report = {model: mean(found) for model, found in by_model.items()}
    together = mean([error for found in by_model.values() for error in found])
    for name, bound in BOUNDS.items():
        assert together[name] <= bound, (name, together, report)
        # Neither model may hide behind the other.
        assert max(of_model[name] for of_model in report.values()) <= 1.2 * bound, (name, report)
