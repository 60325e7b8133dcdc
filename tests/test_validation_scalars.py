"""Refitting host constants: planted ones are found, and a publication left out is left out."""

from __future__ import annotations

import pandas as pd
import pytest

from calibration.validation.case import Case
from calibration.validation.predict import predict
from calibration.validation.scalars import Fit, responses, shipped, solve, with_constants

HOST = "host_plain.per_step_us+host_speculative.per_step_us"
PASS = "draft_pass_us"


def run(name: str, origin: str, k: int, speed: float = 1.0) -> Case:
    scenario = {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "engine": {"name": "vllm_0.10", "max_num_seqs": 4},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": 4},
            "requests": 8,
            "sampling": "greedy",
            "streams": [
                {
                    "prompt_tokens": {"kind": "fixed", "value": 100},
                    "output_tokens": {"kind": "fixed", "value": 60},
                }
            ],
        },
        "strategies": [{"kind": "eagle", "k": k, "acceptance": {"alpha_by_pos": [0.7] * k}}]
        if k
        else [{"kind": "autoregressive"}],
    }
    return Case(name, "speculation", origin, "made up", {}, scenario, {"tpot_s.mean": speed})


def truth(case: Case, values: dict[str, float]) -> Case:
    """The case, measured on an engine with these constants."""
    (outcome,) = predict(with_constants(case, values))
    assert outcome.predicted is not None
    return run(case.name, case.origin, int(case.name), outcome.predicted)


@pytest.fixture(scope="module")
def fit() -> Fit:
    planted = {HOST: 900.0, PASS: 180.0}
    cases = [run(str(k), "one" if k < 3 else "two", k) for k in (0, 1, 2, 3, 4, 5)]
    return Fit((HOST, PASS), "vllm_0.10", [truth(case, planted) for case in cases])


def test_planted_constants_are_found_from_the_shipped_ones(fit):
    assert shipped(fit) == {HOST: 840.0, PASS: 250.0}
    found = solve(fit, responses(fit))
    assert found.figures == 6
    assert found.values[HOST] == pytest.approx(900, rel=0.03)
    assert found.values[PASS] == pytest.approx(180, rel=0.05)
    assert 0 < found.se[HOST] < 50


def test_more_constants_than_figures_are_refused(fit):
    figures = pd.DataFrame({"log": [0.1, 0.1], HOST: [1.0, 2.0], PASS: [1.0, 3.0]})
    with pytest.raises(ValueError, match="2 figures cannot tell 2 constants"):
        solve(fit, figures)
