"""Bad ``--set`` overrides and ``vary`` grids: the message names the override or the value."""

from __future__ import annotations

import pytest

from models.strict_yaml import InputError, load_yaml
from sim.scenario.load import parse_scenario

GOOD = """\
hardware: {gpu: h100_sxm, gpus: 4}
model: {transformer: llama-3.1-70b, tp: 4}
workload:
  arrivals: {kind: poisson, rate_per_s: 12}
  streams:
    - {name: chat, share: 0.7}
    - {name: sql, share: 0.3}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7}}
  - {kind: ngram, k: 4}
"""


def complaint(text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_scenario(load_yaml(text, "what-if.yaml"), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("workload.request=5", "workload.request: unknown key; did you mean 'requests'?"),
        ("model.tp=7", "model.tp: must divide the 64 heads of llama-3.1-70b, got 7"),
        ("strategies[1].k=0", "strategies[1].k: must be greater than 0, got 0"),
        ("strategies[9].k=1", "strategies[9].k: strategies has 3 items, no '9'"),
        ("strategies.x=1", "strategies.x: strategies has 3 items, no 'x'"),
        (
            "hardware.gpu.name=1",
            "hardware.gpu.name: hardware.gpu is 'h100_sxm', with nothing below",
        ),
        ("workload.streams[0].share=0.9", "workload.streams: shares must sum to 1, not 1.2"),
        ("run.seed", "must read key=value"),
        ("=1", "is not a dotted key like a.b[0].c, got ''"),
        ("a..b=1", "is not a dotted key"),
        ("run.seed=!!int 3", "run.seed: tags are not allowed"),
        ("run.seed=[1", "run.seed: is not valid YAML"),
        ("run.seed=1\nrun: 2", "run.seed: is not valid YAML"),
        ("run.seed=.inf", "run.seed: must be a finite number"),
        ("vary.run.seed=[1]", "vary.run.seed: set the varied key itself"),
    ],
)
def test_a_bad_override_is_named(override: str, expected: str) -> None:
    message = complaint(GOOD, override)
    assert message.startswith("--set ")
    assert expected in message


# Grids


@pytest.mark.parametrize(
    ("vary", "expected"),
    [
        ("model.tp: [4, 7]", "model.tp[1]: must divide the 64 heads"),
        ("strategies.1.k: [3, 0]", "strategies.1.k[1]: must be greater than 0, got 0"),
        ("workload.arrivals.rate: [1]", "workload.arrivals.rate[0]: unknown key"),
        ("run.seed: []", "run.seed: must have at least 1 item"),
        ("run.seed: 3", "run.seed: must be a list"),
        ("run.seed: [[3]]", "run.seed[0]: must be"),
        (
            "run.seed: [1, null]",
            "run.seed[1]: must be a number, a word, a mapping or a list, got null",
        ),
        ("strategies[1]: [{kind: ngram, kk: 3}]", "strategies[1][0]: unknown key"),
        ("run.seed: [{}, 1]", "run.seed[0]: must be an integer, got a mapping"),
        (
            "strategies[1]: [{kind: ngram, k: 2}, {kind: ngram, k: 2}]",
            "strategies[1][1]: is listed twice, got a mapping",
        ),
        ("'model.tp, run.seed': [2, 0.5]", "model.tp, run.seed[1]: must be an integer, got 0.5"),
        ("'model.tp, run seed': [2]", "model.tp, run seed[0]: is not a dotted key"),
        ("'run.seed, run.seed': [2]", "run.seed, run.seed: is the same key as 'run.seed'"),
        ("run.seed: {a: 1}", "run.seed: must be a list, got a mapping"),
        ("run.seed: [2, 3, 2]", "run.seed[2]: is listed twice, got 2"),
        ("model.tp: [2, 2.0]", "model.tp[1]: is listed twice, got 2"),
        ("'run seed': [1]", "run seed[0]: is not a dotted key"),
        (
            "hardware.gpu.x: [1]",
            "hardware.gpu.x[0]: hardware.gpu is 'h100_sxm', with nothing below it",
        ),
    ],
)
def test_a_bad_grid_is_named(vary: str, expected: str) -> None:
    assert complaint(f"{GOOD}vary:\n  {vary}\n").startswith(f"what-if.yaml:13: vary.{expected}")


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("strategies[1].k", "strategies.1.k", "is the same key as 'strategies[1].k'"),
        ("strategies.2.k", "strategies[02].k", "is the same key as 'strategies.2.k'"),
        (
            "workload.streams[0].prompt_tokens.mean",
            "workload.streams[0].prompt_tokens",
            "overlaps 'workload.streams[0].prompt_tokens.mean'",
        ),
    ],
)
def test_a_key_varies_once(one: str, two: str, expected: str) -> None:
    message = complaint(f"{GOOD}vary:\n  {one}: [1, 2]\n  {two}: [3, 4]\n")
    assert message == f"what-if.yaml:14: vary.{two}: {expected}, which varies too"


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("[]", "12: vary: must have at least 1 item"),
        ("[3]", "13: vary[0]: must be a mapping, got 3"),
        ("[{}]", "13: vary[0]: must have at least 1 item"),
        ("[{run.seed: 1}, {run.seed: x}]", "14: vary[1].run.seed: must be an integer, got 'x'"),
        ("[{run.seed: 1}, {run.seed: null}]", "14: vary[1].run.seed: must be a number, a word"),
        ("[{run.seed: 1}, {model.tp: 4}]", "14: vary[1]: lacks 'run.seed'"),
        ("[{run.seed: 1}, {run.seed: 2, model.tp: 4}]", "13: vary[0]: lacks 'model.tp'"),
        ("[{run.seed: 1}, {run.seed: 1}]", "14: vary[1]: is the same point as an earlier one"),
        ("[{run.seed: 1, run: {}}]", "13: vary[0].run: overlaps 'run.seed'"),
        ("[{rum: 1}]", "13: vary[0].rum: unknown key; did you mean 'run'?"),
    ],
)
def test_a_bad_list_of_points_is_named(points: str, expected: str) -> None:
    """One point a line."""
    lines = points[1:-1].replace("}, {", "}\n  - {")
    text = f"vary:\n  - {lines}\n" if lines else "vary: []\n"
    assert complaint(GOOD + text).startswith(f"what-if.yaml:{expected}")


def test_plain_decoding_is_listed_at_all_points_or_at_none() -> None:
    """Put in front at some points only, it would move the strategies that keys count."""
    text = f"{GOOD}vary:\n  strategies[0]: [{{kind: medusa}}, {{kind: autoregressive}}]\n"
    assert complaint(text).startswith("what-if.yaml:13: vary.strategies[0][1]: lists plain")


def test_an_error_elsewhere_names_the_point() -> None:
    text = GOOD + "vary: {model.replicas: [1, 2]}\n"
    assert complaint(text).endswith("got 4 (at model.replicas = 2)")


def test_a_grid_is_bounded() -> None:
    values = ", ".join(str(n) for n in range(40))
    text = f"{GOOD}vary: {{run.seed: [{values}], workload.requests: [{values}]}}\n"
    assert "vary: makes more than 1000 points, got 1600" in complaint(text)
