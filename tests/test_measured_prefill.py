"""Uncached prompts on a real server: InferenceMAX, Llama-70B FP8 TP4 on H100.

The load runs of test_measured_serving.py mostly hit the prefix cache; these compute every prompt.
The fp8 kernels are known to come out slow in prefill, and the bound says by how much.
"""

from __future__ import annotations

import pytest
from measured_runs import Prefill, prefills

from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.load import parse_scenario

SCENARIO = """
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-70b, weights: fp8, kv: fp8, tp: 4}}
engine: {{name: vllm_0.15, max_num_seqs: {users}, max_num_batched_tokens: 8192}}
workload:
  arrivals: {{kind: closed_loop, users: {users}}}
  requests: {requests}
  sampling: greedy
  streams:
    - prompt_tokens: {{kind: empirical, values: {prompts}}}
      output_tokens: {{kind: empirical, values: {outputs}}}
strategies: [{{kind: autoregressive}}]
run: {{band: {band}, warmup: 0}}
"""


def spread(nominal: int) -> list[int]:
    """Lengths uniform in 0.8 to 1.0 of nominal, as the benchmark client draws them."""
    return [int(nominal * (0.8 + 0.2 * (step + 0.5) / 20)) for step in range(20)]


def simulated(case: Prefill, band: bool = False) -> dict[str, object]:
    text = SCENARIO.format(
        users=case.users,
        requests=10 * case.users,
        prompts=spread(case.prompt_nominal),
        outputs=spread(case.output_nominal),
        band=str(band).lower(),
    )
    (row,) = experiment.run(parse_scenario(load_yaml(text, "measured"), [])).document["rows"]
    return row


@pytest.fixture(scope="module")
def errors() -> list[tuple[float, float]]:
    """Relative errors of TTFT and TPOT."""
    found = []
    for case in prefills():
        row = simulated(case)
        found.append(
            (
                row["ttft_s"]["mean"] / case.ttft_s - 1,
                row["tpot_s"]["mean"] / case.tpot_s - 1,
            )
        )
    return found


def test_time_per_token_of_an_fp8_model_is_within_the_bound(errors):
    assert len(errors) == 15
    assert sum(abs(tpot) for _, tpot in errors) / 15 <= 0.07


def test_first_tokens_come_late_but_within_the_stated_residual(errors):
    ttft = [error for error, _ in errors]
    assert sum(abs(error) for error in ttft) / 15 <= 0.16
    assert max(ttft) <= 0.31


def test_the_bands_hold_the_measurements():
    cases = [case for case in prefills() if case.users in (4, 64)]
    for case in cases:
        bands = simulated(case, band=True)["band"]
        low, high = (bands["ttft_s"][end] for end in ("lo", "hi"))
        assert low <= case.ttft_s <= high, case
        assert bands["ttft_s"]["basis"] == "extrapolated"
