"""Plan files: what is refused, and which candidates a file lists."""

from __future__ import annotations

import pytest

from models.strict_yaml import InputError, load_yaml
from sim.planning.fleets import fewest_replicas
from sim.planning.inputs import inputs
from sim.planning.scenario import day
from sim.scenario.load import parse_scenario
from tests.plans import PLAIN, SMALL, edited, settings, small


@pytest.mark.parametrize(
    ("blocks", "where", "what"),
    [
        ({"demand": "{requests_per_day: 0, peak_factor: 2}"}, "demand.requests_per_day", "1"),
        ({"demand": "{requests_per_day: 5, peak_faktor: 2}"}, "demand.peak_faktor", "did you mean"),
        ({"slo": "{attainment: 0.9}"}, "slo", "at least one bound"),
        ({"model": "{transformer: llama-3.1-8b, replicas: 2}"}, "model.replicas", "leave it out"),
        ({"hardware": "{gpu: l40z}"}, "hardware.gpu", "did you mean 'l40s'"),
        ({"hardware": "{gpu: l40s, gpus: 4}"}, "hardware.gpus", "leave it out"),
        ({"hardware": "{}"}, "hardware.gpu", "is missing"),
        ({"prices": "{h100: 2}"}, "prices.h100", "is unknown"),
        ({"search": "{workload.sampling: [greedy]}"}, "search.workload.sampling", "begin with"),
        ({"search": "{model.replicas: [1, 2]}"}, "search.model.replicas", "no key to search"),
        ({"search": "{model.tp: [1, 2, 1]}"}, "search.model.tp[2]", "listed twice"),
        ({"search": "{model.tp: [1, two]}"}, "search.model.tp[1]", "integer"),
        ({"search": "{'strategies[2].k': [1]}"}, "search.strategies[2].k", "the file lists 2"),
        ({"search": "{'strategies[1].q': [1]}"}, "search.strategies[1].q[0]", "unknown key"),
        ({"search": "{hardware.gpu: [l40s, h100]}"}, "search.hardware.gpu[1]", "is unknown"),
        ({"search": "{model.tp: [3]}"}, "search.model.tp[0]", "must divide the 32 heads"),
        ({"model": "{transformer: lama}"}, "model.transformer", "unknown transformer 'lama'"),
        ({"search": "{model.tp: []}"}, "search.model.tp", "at least 1"),
        ({"failure": "some"}, "failure", "must be none or {restart: {...}}, got 'some'"),
        ({"failure": "true"}, "failure", "must be none or {restart: {...}}, got true"),
        ({"run": "{window_s: 600, hour_s: 300}"}, "run.hour_s", "at least run.window_s"),
        (
            {"workload": "{arrivals: {kind: poisson}, streams: [{}]}"},
            "workload.arrivals",
            "unknown",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_key(
    blocks: dict[str, str], where: str, what: str
) -> None:
    text = edited(_without("workload", SMALL) if "workload" in blocks else SMALL, **blocks)
    with pytest.raises(InputError) as error:
        small(text=text)
    assert error.value.key == where
    assert what in error.value.message
    assert error.value.line == len(text.splitlines())


def _without(block: str, text: str) -> str:
    """The text without a block of several lines."""
    before, _, rest = text.partition(f"{block}:\n")
    lines = rest.splitlines()
    kept = next(i for i, line in enumerate(lines) if not line.startswith(" "))
    return before + "\n".join(lines[kept:]) + "\n"


def test_candidates_are_the_product_of_the_keys_that_concern_a_strategy() -> None:
    file = small(search="{model.tp: [1, 2], 'strategies[1].k': [2, 4]}")
    assert settings(file) == [
        ("autoregressive", {"model.tp": 1}),
        ("autoregressive", {"model.tp": 2}),
        *(("eagle3 K=3", {"model.tp": tp, "strategies[1].k": k}) for tp in (1, 2) for k in (2, 4)),
    ]
    assert [candidate.strategy.name for candidate in file.candidates][-2:] == [
        "eagle3 K=2",
        "eagle3 K=4",
    ]
    assert {candidate.scenario.model.tp for candidate in file.candidates} == {1, 2}


def test_what_cannot_run_is_told_with_its_reason_and_the_rest_goes_on() -> None:
    file = small(
        search="{model.tp: [1, 3], model.weights: [bf16, fp8], hardware.gpu: [a100_80g_sxm, l40s]}"
    )
    assert any("fp8" in one.why and one.gpu == "a100_80g_sxm" for one in file.impossible)
    assert all(candidate.scenario.model.tp == 1 for candidate in file.candidates)
    assert file.asked == 2 * 2 * 2 * 2
    assert sum(one.candidates for one in file.impossible) + len(file.candidates) == file.asked


def test_a_plan_no_candidate_of_which_can_run_is_refused() -> None:
    with pytest.raises(InputError, match=r"plan.yaml:\d+: search: no candidate can run"):
        small(search="{model.tp: [3, 5]}")


def test_a_searched_key_that_is_set_is_no_longer_searched() -> None:
    file = small("model.tp=2", "demand.peak_factor=4", search="{model.tp: [1, 4]}")
    assert [found for _, found in settings(file)] == [{}, {}]
    assert {candidate.scenario.model.tp for candidate in file.candidates} == {2}
    assert file.plan.demand.peak_factor == 4


def test_a_search_itself_cannot_be_set() -> None:
    with pytest.raises(InputError, match="set the searched key itself"):
        small("search.model={}")


def test_the_demand_becomes_a_diurnal_day() -> None:
    file = small()
    arrivals = file.candidates[0].scenario.workload.arrivals.model_dump()
    assert arrivals["mean_rate_per_s"] == pytest.approx(240_000 / 86_400)
    assert file.plan.demand.peak_req_s == pytest.approx(2 * 240_000 / 86_400)
    assert (arrivals["peak_factor"], arrivals["peak_hour"]) == (2, 14)


@pytest.mark.parametrize(("hour", "killed_s"), [(0, 1800), (14, 50_400), (23.9, 84_600)])
def test_a_replica_is_killed_at_the_peak_even_where_that_is_midnight(
    hour: float, killed_s: float
) -> None:
    file = small(f"demand.peak_hour={hour}")
    made = day(file.plan, file.candidates[0].scenario, 2)
    assert [failure.at_s for failure in made.failures] == [killed_s]


@pytest.mark.parametrize("written", ["none", "null", "false"])
def test_no_replica_is_killed_however_none_is_written(written: str) -> None:
    file = small(failure=written)
    assert fewest_replicas(file.plan) == 1
    assert day(file.plan, file.candidates[0].scenario, 1).failures == ()


@pytest.mark.parametrize(
    ("failure", "source"),
    [
        ("{restart: {load_bytes_per_s: 2e9, boot_s: 90}}", "stated in the plan file"),
        ("{in_flight: lose}", "a default without a source"),
        ("{}", "a default without a source"),
    ],
)
def test_a_restart_that_the_file_states_is_not_told_as_a_default(failure: str, source: str) -> None:
    row = inputs(small(failure=failure).plan, [])[-1]
    assert row["value"] == "weights read at 2 GB/s, then 90 s"
    assert row["source"] == source


def test_a_demand_too_small_to_judge_by_is_refused_at_its_own_key() -> None:
    with pytest.raises(InputError, match=r"demand\.requests_per_day: makes 0\.\d+ requests in"):
        small("demand.requests_per_day=1")


def test_where_sequences_switch_the_strategy_they_start_in_stands_in() -> None:
    drafts = "{kind: eagle3, k: 3, acceptance: {alpha: 0.7}}"
    gate = f"{{kind: adaptive, hypothetical: true, primary: {drafts}}}"
    dynamic = f"{{kind: dynamic_k, hypothetical: true, primary: {drafts}}}"
    file = small(text=PLAIN.replace("{kind: autoregressive}", f"{gate}\n  - {dynamic}"))
    stand_ins = [candidate.stand_in for candidate in file.candidates]
    assert [one.strategy.kind for one in stand_ins] == ["eagle3", "eagle3"]
    assert [one.strategy.drafted for one in stand_ins] == [3, 3]
    assert [one.group for one in stand_ins] == [one.group for one in file.candidates]
    plain = small(text=PLAIN).candidates[0]
    assert plain.stand_in is plain


def test_a_trace_that_is_missing_is_told_at_its_key() -> None:
    text = PLAIN.replace("output_tokens: {", "lengths: {kind: trace, file: gone.csv}  # {")
    lines = [line for line in text.splitlines() if "prompt_tokens" not in line]
    text = "\n".join(lines).replace("      lengths", "    - lengths")
    with pytest.raises(InputError, match=r"yaml:8: workload.streams\[0\].lengths.file: cannot"):
        small(text=text)


def test_a_scenario_is_no_plan_file_nor_a_plan_file_a_scenario() -> None:
    with pytest.raises(InputError, match=r"plan.yaml:2: demand: belongs to a plan file"):
        parse_scenario(load_yaml(SMALL, "plan.yaml"))
    text = SMALL.replace("  sampling: greedy", "  arrivals: {kind: poisson, rate_per_s: 1}")
    scenario = text.replace(text.splitlines()[1] + "\n", "")
    with pytest.raises(InputError, match="demand: is missing: this is a scenario"):
        small(text=scenario)
