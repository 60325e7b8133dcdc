"""Arrivals, lengths, streams and prefixes: the distributions are the ones asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from sim.scenario.workload import Requests, Workload, generate

N = 200_000


def workload(arrivals: dict[str, Any] | None = None, **keys: Any) -> Workload:
    poisson = {"kind": "poisson", "rate_per_s": 8}
    return Workload.model_validate({"arrivals": arrivals or poisson, "requests": N, **keys})


def lengths(**distribution: Any) -> np.ndarray[Any, Any]:
    stream = {"prompt_tokens": distribution, "output_tokens": {"kind": "fixed", "value": 7}}
    return generate(workload(streams=[stream]), seed=3).prompt_tokens


def gaps(**arrivals: Any) -> np.ndarray[Any, Any]:
    times = generate(workload(arrivals), seed=5).arrival_s
    return np.diff(times, prepend=0.0)


def cv(values: np.ndarray[Any, Any]) -> float:
    return float(values.std() / values.mean())


def same(a: Requests, b: Requests, *fields: str) -> bool:
    pairs = ((np.hstack(getattr(a, f)), np.hstack(getattr(b, f))) for f in fields)
    return all(np.array_equal(one, two, equal_nan=True) for one, two in pairs)


# Arrivals


def test_poisson_gaps_are_exponential_and_uncut() -> None:
    drawn = gaps(kind="poisson", rate_per_s=8)
    assert drawn.mean() * 8 == pytest.approx(1, abs=4 / N**0.5)
    assert stats.kstest(drawn, stats.expon(scale=1 / 8).cdf).pvalue > 0.01
    # Gaps cut at three means would lose 5 % of the rate; the longest of N is near ln N means.
    assert drawn.max() * 8 > 9


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 3.0])
def test_gamma_gaps_have_the_rate_and_cv(burstiness: float) -> None:
    drawn = gaps(kind="gamma", rate_per_s=2, cv=burstiness)
    assert drawn.mean() * 2 == pytest.approx(1, abs=4 * burstiness / N**0.5)
    assert cv(drawn) == pytest.approx(burstiness, rel=0.03)


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    times = generate(workload({"kind": "constant", "rate_per_s": 4}, requests=9), seed=1).arrival_s
    np.testing.assert_allclose(times, np.arange(9) / 4, rtol=0)


def test_closed_loop_knows_only_the_first_request_of_each_user() -> None:
    loop = {"kind": "closed_loop", "users": 4, "think_s": 2, "stagger_s": 6}
    drawn = generate(workload(loop, requests=10), seed=1)
    np.testing.assert_array_equal(drawn.arrival_s[:4], [0, 1.5, 3, 4.5])
    assert np.isnan(drawn.arrival_s[4:]).all()
    assert drawn.users == 4
    assert (drawn.think_s == 2.0).all()


# Lengths


@pytest.mark.parametrize(("mean", "spread"), [(500, 0.8), (250, 0.0), (900, 2.0)])
def test_lognormal_has_the_arithmetic_mean_and_cv(mean: float, spread: float) -> None:
    drawn = lengths(kind="lognormal", mean=mean, cv=spread)
    assert drawn.mean() == pytest.approx(mean, rel=1e-12 + 4 * spread / N**0.5)
    assert cv(drawn) == pytest.approx(spread, rel=0.06, abs=1e-12)
    if spread:
        log = np.log(drawn)
        assert log.std() == pytest.approx(np.log1p(spread**2) ** 0.5, rel=0.01)


def test_normal_has_the_mean_and_sd() -> None:
    drawn = lengths(kind="normal", mean=900, sd=100)
    assert drawn.mean() == pytest.approx(900, abs=4 * 100 / N**0.5)
    assert drawn.std() == pytest.approx(100, rel=0.01)


def test_empirical_values_come_by_weight() -> None:
    drawn = lengths(kind="empirical", values=[60, 120, 300], weights=[2, 5, 1])
    values, counts = np.unique(drawn, return_counts=True)
    assert list(values) == [60, 120, 300]
    assert counts / N == pytest.approx([2 / 8, 5 / 8, 1 / 8], abs=0.005)


def test_lengths_are_whole_and_at_least_one() -> None:
    drawn = lengths(kind="normal", mean=2, sd=5)
    assert drawn.dtype == np.int64
    assert drawn.min() == 1


def test_lengths_are_cut_only_where_asked() -> None:
    free = lengths(kind="lognormal", mean=500, cv=1.5)
    cut = lengths(kind="lognormal", mean=500, cv=1.5, min=50, max=2000)
    assert free.max() > 20_000
    assert (cut.min(), cut.max()) == (50, 2000)
    np.testing.assert_array_equal(cut, np.clip(free, 50, 2000))


# Streams


TWO = [
    {"name": "chat", "share": 0.7, "domain": "chat"},
    {"name": "sql", "share": 0.3, "domain": "sql", "prompt_tokens": {"kind": "fixed", "value": 9}},
]


def test_streams_come_by_share_with_their_own_lengths_and_domain() -> None:
    drawn = generate(workload(streams=TWO), seed=1)
    assert drawn.stream_names == ("chat", "sql")
    assert drawn.domain_names == ("chat", "sql")
    assert (drawn.stream == 1).mean() == pytest.approx(0.3, abs=0.005)
    assert (drawn.prompt_tokens[drawn.stream == 1] == 9).all()
    np.testing.assert_array_equal(drawn.domain, drawn.stream)


def test_streams_of_one_domain_share_its_index() -> None:
    streams = [{**stream, "domain": "chat"} for stream in TWO]
    drawn = generate(workload(streams=streams, requests=100), seed=1)
    assert drawn.domain_names == ("chat",)
    assert not drawn.domain.any()


# Prefixes


def prompts(order: str, tokens: int | str, groups: int = 4, **keys: Any) -> Requests:
    prefix = {"tokens": tokens, "groups": groups, "order": order}
    return generate(workload(streams=[{"prefix": prefix}], requests=2000, **keys), seed=2)


def group_of(drawn: Requests) -> np.ndarray:
    """Prefix group of every request, 0 for none."""
    group = np.zeros(len(drawn), dtype=np.int64)
    group[np.diff(drawn.prefixes.offsets) > 0] = drawn.prefixes.keys
    return group


def test_whole_prompts_recur_in_turn() -> None:
    drawn = prompts("cycle", "all")
    np.testing.assert_array_equal(group_of(drawn), np.arange(2000) % 4 + 1)
    np.testing.assert_array_equal(drawn.prompt_tokens[4:], drawn.prompt_tokens[:-4])
    np.testing.assert_array_equal(drawn.prefixes.ends, drawn.prompt_tokens)


def test_random_groups_are_equally_likely() -> None:
    counts = np.bincount(group_of(prompts("random", "all")))
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 0.001


def test_a_prompt_shorter_than_the_prefix_is_in_no_group() -> None:
    drawn = prompts("random", 300)
    short = drawn.prompt_tokens < 300
    assert 0.1 < short.mean() < 0.6
    assert not group_of(drawn)[short].any()
    assert (group_of(drawn)[~short] > 0).all()
    assert (drawn.prefixes.ends == 300).all()


def test_groups_differ_between_streams() -> None:
    prefix = {"tokens": 1, "groups": 3, "order": "cycle"}
    drawn = generate(workload(streams=[{**s, "prefix": prefix} for s in TWO]), seed=1)
    assert set(group_of(drawn)[drawn.stream == 0]) == {1, 2, 3}
    assert set(group_of(drawn)[drawn.stream == 1]) == {4, 5, 6}


# Common random numbers


EVERYTHING = ("arrival_s", "stream", "prompt_tokens", "output_tokens", "prefixes")


def test_same_seed_same_requests() -> None:
    spec = workload(streams=TWO, requests=500)
    assert same(generate(spec, 1, 2), generate(spec, 1, 2), *EVERYTHING)


@pytest.mark.parametrize(("seed", "replication"), [(2, 0), (1, 1)])
def test_seed_and_replication_change_everything(seed: int, replication: int) -> None:
    spec = workload(streams=TWO, requests=500)
    a, b = generate(spec, 1, 0), generate(spec, seed, replication)
    assert not any(same(a, b, name) for name in ("arrival_s", "stream", "output_tokens"))


def test_one_stream_can_change_without_moving_anything_else() -> None:
    before = generate(workload(streams=TWO, requests=5000), seed=1)
    longer = {**TWO[0], "prompt_tokens": {"kind": "normal", "mean": 4000, "sd": 10}}
    after = generate(workload(streams=[longer, TWO[1]], requests=5000), seed=1)
    assert same(before, after, "arrival_s", "stream", "output_tokens")
    assert same(before, after, "domain", "prefixes")
    sql = before.stream == 1
    np.testing.assert_array_equal(before.prompt_tokens[sql], after.prompt_tokens[sql])
    assert (before.prompt_tokens[~sql] != after.prompt_tokens[~sql]).all()


def test_a_higher_rate_compresses_the_same_arrivals() -> None:
    slow = generate(workload(requests=100), seed=1)
    fast = generate(workload({"kind": "poisson", "rate_per_s": 16}, requests=100), seed=1)
    np.testing.assert_allclose(slow.arrival_s, 2 * fast.arrival_s, rtol=1e-12)
    assert same(slow, fast, "prompt_tokens", "output_tokens")


def test_more_requests_extend_the_same_arrivals_and_lengths() -> None:
    short, long = generate(workload(requests=100), 1), generate(workload(requests=300), 1)
    for name in ("arrival_s", "stream", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:100])


# Refusals


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"streams": [{**TWO[0], "share": 0.6}, TWO[1]]}, "shares must sum to 1, not 0.9"),
        ({"streams": [TWO[0], {**TWO[1], "name": "chat"}]}, "two streams are called 'chat'"),
        ({"streams": []}, "at least 1 item"),
        ({"requests": 0}, "greater than or equal to 1"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": 0}}, "greater than 0"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": float("nan")}}, "finite"),
        ({"arrivals": {"kind": "closed_loop", "users": 0}}, "greater than or equal to 1"),
    ],
)
def test_impossible_workloads_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        workload(**keys)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ({"kind": "fixed", "value": 5, "min": 9, "max": 8}, "at least min"),
        ({"kind": "empirical", "values": [1, 2], "weights": [1]}, "one weight a value"),
        ({"kind": "empirical", "values": [1, 2], "weights": [0, 0]}, "not all be zero"),
        ({"kind": "lognormal", "mean": 0, "cv": 1}, "greater than or equal to 1"),
    ],
)
def test_impossible_lengths_are_refused(distribution: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        lengths(**distribution)
