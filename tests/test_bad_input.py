"""Bad input: one line that names file, line, key, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.strict_yaml import InputError, load_yaml
from sim.scenario.load import load_scenario, parse_scenario

GOOD = """\
hardware: {gpu: h100_sxm, gpus: 8}
model:
  transformer: llama-3.1-70b
  weights: fp8
  tp: 4
engine: {name: vllm_0.15}
workload:
  arrivals: {kind: poisson, rate_per_s: 12}
  requests: 300
  streams:
    - name: chat
      share: 0.7
      prompt_tokens: {kind: lognormal, mean: 500, cv: 0.8}
      prefix: {tokens: 200, groups: 10}
    - name: sql
      share: 0.3
      output_tokens: {kind: fixed, value: 120}
      domain: sql
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7}}
  - {kind: ngram, k: 4}
slo: {ttft_s: {p95: 0.5}}
run: {seed: 1, warmup: auto}
"""


def complaint(text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_scenario(load_yaml(text, "what-if.yaml"), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def test_the_scenario_edited_below_is_good() -> None:
    assert len(parse_scenario(load_yaml(GOOD, "what-if.yaml")).points) == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Unknown, missing, duplicate, ill-typed
        (
            "  weights: fp8",
            "  weigths: fp8",
            "4: model.weigths: unknown key; did you mean 'weights'",
        ),
        ("  weights: fp8", "  weights: fp9", "4: model.weights: must be one of bf16, fp8"),
        ("seed: 1", "sed: 1", "24: run.sed: unknown key; did you mean 'seed'"),
        ("k: 3,", "kk: 3,", "21: strategies[1].kk: unknown key"),
        ("kind: ngram", "kind: ngrams", "22: strategies[2].kind: must be one of"),
        ("kind: ngram, ", "", "22: strategies[2].kind: is missing"),
        ("kind: poisson", "kind: poison", "did you mean 'poisson'"),
        ("kind: poisson, ", "", "8: workload.arrivals.kind: is missing"),
        ("kind: poisson, rate_per_s: 12", "kind: poisson", "arrivals.rate_per_s: is missing"),
        ("  transformer: llama-3.1-70b\n", "", "model.transformer: is missing"),
        ("  tp: 4", "  tp: 4\n  tp: 2", "6: model.tp: duplicate key, first on line 5"),
        ("requests: 300", "requests: many", "9: workload.requests: must be an integer, got 'many'"),
        ("requests: 300", "requests: '300'", "9: workload.requests: must be an integer, got '300'"),
        ("requests: 300", "requests: true", "9: workload.requests: must be an integer, got true"),
        ("requests: 300", "requests: 30.5", "9: workload.requests: "),
        ("strategies:", "strategies: {}\nignored:", "19: strategies: must be a list"),
        (
            "hardware: {gpu: h100_sxm, gpus: 8}",
            "hardware: h100_sxm",
            "1: hardware: must be a mapping",
        ),
        # Out of range, not a number
        ("rate_per_s: 12", "rate_per_s: 0", "arrivals.rate_per_s: must be greater than 0, got 0"),
        ("rate_per_s: 12", "rate_per_s: .nan", "8: workload.arrivals.rate_per_s: must be a finite"),
        ("rate_per_s: 12", "rate_per_s: 1e999", "too large"),
        (
            "requests: 300",
            "requests: 0",
            "9: workload.requests: must be greater than or equal to 1",
        ),
        ("k: 3,", "k: 0,", "21: strategies[1].k: must be greater than 0, got 0"),
        ("warmup: auto", "warmup: soon", "run.warmup: must be one of auto, got 'soon'"),
        ("warmup: auto", "warmup: 1.5", "run.warmup: must be less than 1, got 1.5"),
        ("tokens: 200", "tokens: some", "streams[0].prefix.tokens: must be one of all, got 'some'"),
        ("{p95: 0.5}", "{}", "23: slo.ttft_s: needs at least one of p50, p90, p95, p99"),
        ("{p95: 0.5}", "{p95: 0.5, p50: 2}", "23: slo.ttft_s.p95: must be at least p50 (2), got"),
        (
            "alpha: 0.7",
            "alpha: 1.7",
            "21: strategies[1].acceptance.alpha: must be less than or equal",
        ),
        # Contradictions
        ("share: 0.3", "share: 0.2", "10: workload.streams: shares must sum to 1, not 0.9"),
        ("name: sql", "name: chat", "10: workload.streams: two streams are called 'chat'"),
        ("kind: ngram, k: 4", "kind: eagle3, k: 3", "19: strategies: two strategies are called"),
        (
            "h100_sxm",
            "h100_sxn",
            "1: hardware.gpu: unknown hardware 'h100_sxn'; did you mean 'h100_sxm'",
        ),
        ("3.1-70b", "3.1-70bb", "3: model.transformer: unknown transformer 'llama-3.1-70bb'; did"),
        ("llama-3.1-70b", "none/config.json", "3: model.transformer: cannot read "),
        (
            "vllm_0.15",
            "vllm_0.16b",
            "6: engine.name: unknown engine 'vllm_0.16b'; did you mean 'vllm_0.",
        ),
        (
            "gpu: h100_sxm",
            "profile: h200, gpu: h100_sxm",
            "1: hardware.profile: unknown profile 'h200'",
        ),
        ("tp: 4", "tp: 7", "5: model.tp: must divide the 64 heads of llama-3.1-70b, got 7"),
        (
            "gpus: 8",
            "gpus: 3",
            "1: hardware.gpus: must be at least model.tp x model.replicas = 4, got 3",
        ),
        ("h100_sxm", "a100_80g_sxm", "4: model.weights: NVIDIA A100"),
        ("h100_sxm", "h100_pcie", "5: model.tp: "),
        ("weights: fp8\n  tp: 4", "tp: 1", "2: model: llama-3.1-70b does not fit"),
        ("kind: ngram", "kind: mtp", "22: strategies[2]"),
        ("alpha: 0.7", "tau: 4.5", "21: strategies[1].acceptance.tau: "),
        (
            "alpha: 0.7",
            "alpha: 0.7, tau: 2",
            "21: strategies[1].acceptance: state acceptance one way",
        ),
        ("alpha: 0.7", "catalog: eagle", "21: strategies[1].acceptance.catalog: unknown"),
        ("kind: ngram,", r'kind: ngram, label: "\e[1m",', "22: strategies[2].label: must be"),
        ("name: sql", r'name: "s\nql"', "15: workload.streams[1].name: must be 1 to 64 printable"),
        ("alpha: 0.7", "alpha: 0.7, by_domain: {sqll: {tau: 2}}", "did you mean 'sql'"),
        (
            "alpha: 0.7",
            "alpha: 0.7, by_domain: {sql: {tau: 2, by_domain: {sql: {tau: 3}}}}",
            "one level up",
        ),
        ("kind: ngram, k: 4", "kind: lookahead", "22: strategies[2].kind: vllm_0.15 cannot run it"),
        ("kind: ngram, k: 4", "kind: eagle2", "hypothetical: true"),
        (
            "name: vllm_0.15",
            "name: vllm_0.15, max_num_seqs: 3000",
            "6: engine.max_num_seqs: 'eagle3 K=3' verifies 4 tokens a sequence, so at most 2048",
        ),
        (
            "name: vllm_0.15",
            "name: vllm_0.15, max_num_batched_tokens: 3",
            "6: engine.max_num_batched_tokens: 'eagle3 K=3' verifies 4 tokens a sequence, got 3",
        ),
        (
            "name: vllm_0.15",
            "name: vllm_0.15, max_model_len: 999999",
            "6: engine.max_model_len: llama-3.1-70b reaches 131072 tokens, got 999999",
        ),
        (
            "kind: poisson, rate_per_s: 12",
            "kind: closed_loop, users: 400",
            "9: workload.requests: must be at least the 400 users, got 300",
        ),
        (
            "kind: lognormal, mean: 500, cv: 0.8",
            "kind: fixed, value: 9, min: 5, max: 4",
            "13: workload.streams[0].prompt_tokens.max: must be at least min (5), got 4",
        ),
        (
            "mean: 500, cv: 0.8",
            "mean: 500, cv: 0.8, max: 400",
            "13: workload.streams[0].prompt_tokens.max: is below the mean length (500), got 400",
        ),
        (
            "requests: 300",
            "requests: 300\n  duration_s: 60",
            "10: workload.duration_s: takes the place of requests (300): state one of them",
        ),
        (
            "prefix: {tokens: 200, groups: 10}",
            "session: {think_s: 5, turn: 4}",
            "14: workload.streams[0].session.turn: unknown key; did you mean 'turns'?",
        ),
        # Around the engines
        (
            "engine: {name: vllm_0.15}",
            "engine: {name: vllm_0.15, router: round_robin, router_refresh_s: 5}",
            "6: engine.router_refresh_s: router round_robin does not read loads now and then, got",
        ),
        (
            "engine: {name: vllm_0.15}",
            "engine: {name: vllm_0.15, router: prefix_afinity}",
            "6: engine.router: must be one of",
        ),
        ("run: {", "failures: [{replica: 2, at_s: 9}]\nrun: {", "failures[0].replica: there are 2"),
        (
            "run: {",
            "failures: [{replica: 0, at_s: 9}, {replica: 0, at_s: 10}]\nrun: {",
            "failures[1].at_s: replica 0 is down for good since 9 s, got 10",
        ),
        (
            "run: {",
            "failures: [{replica: 0, at_s: 9, restart: {load_bytes_per_s: 5}}]\nrun: {",
            "failures[0].restart.load_bytes_per_s: ",
        ),
        (
            "requests: 300",
            "client: {timeout_s: 5, first_token_timeout_s: 6}",
            "9: workload.client.first_token_timeout_s: must be below timeout_s (5), got 6",
        ),
        (
            "requests: 300",
            "client: {timeout_s: 5, retries: 100}",
            "9: workload.client.retries: make the last pause 6e+29 s with backoff_factor 2",
        ),
        ("requests: 300", "client: {retries: 3}", "9: workload.client.retries: never come about"),
        # YAML that is not plain data
        ("requests: 300", "requests: !!int 300", "9: workload.requests: tags are not allowed"),
        ("requests: 300", "requests: &n 300", "9: workload.requests: anchors and aliases"),
        ("run:", "<<: {a: 1}\nrun:", "24: merge keys are not allowed"),
        ("run: {", "run: {{", "24: "),
        ("strategies:", "---\nstrategies:", "several documents"),
    ],
)
def test_one_line_names_the_fault(old: str, new: str, expected: str) -> None:
    message = complaint(edited(old, new))
    assert message.startswith("what-if.yaml:")
    assert expected in message


def test_strategies_count_as_in_the_file() -> None:
    text = edited("  - {kind: autoregressive}\n", "")
    text = text.replace("k: 4", "k: 4, acceptance: {tau: 9}")
    assert complaint(text).startswith("what-if.yaml:21: strategies[1].acceptance.tau: ")


@pytest.mark.parametrize(
    ("gpu", "draft", "expected"),
    [
        ("a100_80g_sxm", "draft_weights: fp8", "strategies[0].draft_weights: NVIDIA A100 SXM4 80"),
        ("h100_sxm", "draft_tp: 16", "strategies[0].draft_tp: "),
    ],
)
def test_a_draft_model_needs_what_the_target_needs(gpu: str, draft: str, expected: str) -> None:
    text = f"""\
hardware: {{gpu: {gpu}}}
model: {{transformer: llama-3.1-8b}}
workload: {{arrivals: {{kind: poisson, rate_per_s: 1}}}}
strategies: [{{kind: draft_model, draft: llama-3.2-1b, {draft}}}]
"""
    assert f"what-if.yaml:4: {expected}" in complaint(text)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "just words\n", "null\n", "\x00"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    assert complaint(text).startswith("what-if.yaml")


def test_an_alias_bomb_is_refused() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    assert "anchors and aliases are not allowed" in complaint(bomb)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"a: " + b"x" * 2_000_000])
def test_unreadable_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "what-if.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"what-if\.yaml"):
        load_scenario(file)


# Fuzz: whatever happens to a good file, it loads or it raises InputError

RICH = (
    edited(
        "slo:",
        """\
  - {kind: draft_model, draft: llama-3.2-1b, acceptance: {tau_at_k: 2.9, at_k: 5}}
  - {kind: medusa, tree: [[0], [0, 0], [1]], hypothetical: true}
  - kind: medusa
    label: grown
    hypothetical: true
    tree: {nodes: 4, accuracies: [[0.6, 0.2], [0.5]]}
    acceptance: {heads: [[0.6, 0.2], [0.5]], by_domain: {sql: {alpha_by_pos: [0.5, 0.4, 0.4, 0.4]}}}
  - {kind: lookahead, w: 8, n: 4, g: 8, hypothetical: true, acceptance: {tau: 1.5}}
slo:""",
    )
    + "vary: {workload.arrivals.rate_per_s: [4, 8], 'strategies[1].k': [2, 3]}\n"
)
DEBRIS = [None, True, -1, 0, 1e300, 2**70, "", "x", "no", "a/b.json", "\0", [], {}, [[]], {"a": 1}]
ODD_TEXT = st.text("{}[]:,-&*!|>'\"%@`#~?\t\n\r\0 ab01.eé\ud800", max_size=6)


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into nested data."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [path, *(place for key in keys for place in _places(data[key], (*path, key)))]


def _mutated(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = _mutated(data[path[0]], path[1:], value)
    return copy


def test_the_scenario_mutated_below_is_good() -> None:
    assert len(parse_scenario(load_yaml(RICH, "what-if.yaml")).points) == 4


QUICK = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@QUICK
@given(st.data())
def test_any_value_anywhere_loads_or_is_refused(data: st.DataObject) -> None:
    document = load_yaml(RICH, "what-if.yaml")
    content = document.data
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(_places(content)))
        content = _mutated(content, place, data.draw(st.sampled_from(DEBRIS)))
    try:
        parse_scenario(type(document)(content, document.path, document.lines))
    except InputError as error:
        assert error.message
        assert "\n" not in str(error)


@QUICK
@given(st.integers(0, len(RICH)), st.integers(0, 12), ODD_TEXT)
def test_any_text_anywhere_loads_or_is_refused(start: int, cut: int, text: str) -> None:
    try:
        parse_scenario(load_yaml(RICH[:start] + text + RICH[start + cut :], "what-if.yaml"))
    except InputError as error:
        assert error.message
        assert "\n" not in str(error)


@QUICK
@given(st.sampled_from(["model.tp", "strategies[1]", "workload.streams.0", ""]), ODD_TEXT, ODD_TEXT)
def test_any_override_applies_or_is_refused(key: str, more: str, value: str) -> None:
    try:
        parse_scenario(load_yaml(RICH, "what-if.yaml"), [f"{key}{more}={value}"])
    except InputError as error:
        assert error.message
        assert "\n" not in str(error)
