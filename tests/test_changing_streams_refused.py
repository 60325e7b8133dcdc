"""What cannot be meant of streams that change: one line with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.schema import ModelError
from models.strict_yaml import InputError, load_yaml
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import parse_scenario
from sim.scenario.workload import Workload, generate

POISSON = "{kind: poisson, rate_per_s: 12}"
LOOP = "{kind: closed_loop, users: 4}"
STEP = "{kind: step, before: a, after: b, at: 3}"
LINE = "{at: [[0, 0.7], [10, 0.1]]}"


def text(share: str = "0.7", domain: str = "a", arrivals: str = POISSON, other: str = "0.3") -> str:
    return f"""\
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-8b}}
workload:
  arrivals: {arrivals}
  requests: 300
  streams:
    - name: chat
      share: {share}
      domain: {domain}
    - {{name: sql, share: {other}, domain: sql}}
strategies:
  - {{kind: autoregressive}}
  - {{kind: eagle3, k: 3, acceptance: {{alpha: 0.7, by_domain: {{b: {{alpha: 0.2}}}}}}}}
"""


def complaint(folder: Path, **asked: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_scenario(load_yaml(text(**asked), str(folder / "x.yaml")))
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


SHARE, DOMAIN = "x.yaml:8: workload.streams[0].share", "x.yaml:9: workload.streams[0].domain"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("{}", ".at: is missing"),
        ("x", ": must be a number, got 'x'"),
        ("0", ": must be greater than 0, got 0"),
        ("{at: [[0, 0.7]]}", ".at: must have at least 2 items"),
        ("{at: [[0, 0.7, 1], [3, 1]]}", ".at[0]: must have at most 2 items"),
        ("{at: [[0, 0.7], [3, 1.5]]}", ".at: a share must be from 0 to 1, got 1.5"),
        ("{at: [[0, 0.7], [3, -0.5]]}", ".at: a share must be from 0 to 1, got -0.5"),
        ("{at: [[-1, 0.7], [3, 0.5]]}", ".at: must lie between 0 and 1e+09, got -1"),
        ("{at: [[4, 0.7], [3, 0.5]]}", ".at: must not go back, got 3 after 4"),
        ("{at: [[0, 1], [3, 0]], unit: share}", ".at: must be at most 1 with unit: share, got 3"),
        ("{at: [[0, 1], [3, 0]], unti: s}", ".unti: unknown key; did you mean 'unit'?"),
    ],
)
def test_shares_that_cannot_be(share: str, expected: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, share=share).startswith(SHARE + expected)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("5", ": must be a string, got 5"),
        ("{before: a, after: b}", ".kind: is missing"),
        ("{kind: stepp, at: 3}", ".kind: must be one of step, linear, regimes, trace, got 'stepp'"),
        ("{kind: step, before: a, at: 3}", ".after: is missing"),
        ("{kind: step, before: a, after: b, at: 3, unit: m}", ".unit: must be one of s, share"),
        (STEP.replace("3", "3, unit: share"), ".at: must be at most 1 with unit: share, got 3"),
        (
            "{kind: linear, before: a, after: b, start: 3, end: 3}",
            ".end: must be after start (3), got 3",
        ),
        ("{kind: regimes, domains: [a], dwell: 3}", ".domains: must have at least 2 items"),
        ("{kind: regimes, domains: [a, b], dwell: x}", ".dwell: must be a number, got 'x'"),
        ("{kind: regimes, domains: [a, b], dwell: 0}", ".dwell: must be greater than or equal to"),
        (
            "{kind: regimes, domains: [a, b], dwell: [1, 2, 3]}",
            ".dwell: must have one stay a domain, 2, got 3",
        ),
        (
            "{kind: regimes, domains: [a, b], dwell: 3, dwell_cv: 0.001}",
            ".dwell_cv: must be 0 or at least 0.01",
        ),
        ("{kind: trace, file: no.csv}", ".file: cannot be read: No such file or directory"),
    ],
)
def test_domains_that_cannot_be(domain: str, expected: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, domain=domain).startswith(DOMAIN + expected)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "d.csv: lists no domain"),
        ("at,domain\n", "d.csv: lists no domain"),
        ("at;domain\n0;a\n", "d.csv:1: must read at,domain, got 'at;domain'"),
        ("at,domain\n1,a\n", "d.csv:2: at: the first must be 0, got 1"),
        ("at,domain\n0,a\n0,b\n", "d.csv:3: at: must be after 0, got 0"),
        ("at,domain\n0,a\nx,b\n", "d.csv:3: at: must be a number, got 'x'"),
        ("at,domain\n0,a\nnan,b\n", "d.csv:3: at: must be from 0 to 1, got nan"),
        ("at,domain\n0,a\n1.5,b\n", "d.csv:3: at: must be from 0 to 1, got 1.5"),
        ("at,domain\n0,\n", "d.csv:2: domain: must be a name of 1 to 64 characters, got ''"),
        ("at,domain\n0,a,b\n", "d.csv:2: must have 2 columns, at and domain, got 3"),
        ('at,domain\n0,"a\n', "d.csv:2: is no CSV: unexpected end of data"),
    ],
)
def test_lists_of_domains_that_cannot_be(lines: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(lines, "utf-8")
    asked = "{kind: trace, file: d.csv, unit: share}"
    assert complaint(tmp_path, domain=asked).startswith(expected)


def test_a_list_in_another_encoding_is_refused_at_its_key(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"at,domain\n0,\xff\n")
    said = complaint(tmp_path, domain="{kind: trace, file: d.csv}")
    assert said.startswith(f"{DOMAIN}.file: cannot be read: 'utf-8' codec")


@pytest.mark.parametrize("asked", [{"share": LINE}, {"domain": STEP}])
def test_a_closed_loop_is_told_to_count_by_share(asked: dict[str, str], tmp_path: Path) -> None:
    where = SHARE if "share" in asked else DOMAIN
    assert complaint(tmp_path, arrivals=LOOP, **asked) == (
        f"{where}.unit: users of a closed loop send at times not known beforehand; "
        "state unit: share, got 's'"
    )


def test_a_trace_of_arrivals_takes_no_share_that_changes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,9,9\n", "utf-8")
    trace = "{kind: trace, file: t.csv}"
    assert complaint(tmp_path, share=LINE, arrivals=trace) == (
        f"{SHARE}: must be a number beside a trace: it cannot change"
    )


@pytest.mark.parametrize(
    ("share", "other", "expected"),
    [
        ("{at: [[0, 0], [2, 1]]}", "{at: [[0, 0], [2, 1]]}", "all shares are 0 at 0"),
        ("{at: [[2, 1], [2, 0]]}", "{at: [[2, 0], [3, 1]]}", "all shares are 0 at 2"),
        ("{at: [[2, 0], [2, 1]]}", "{at: [[1, 1], [1, 0]]}", "all shares are 0 at 1"),
        (LINE, "{at: [[0, 1], [1, 1]], unit: share}", "shares that change must count in one unit"),
    ],
)
def test_shares_must_be_of_something_everywhere(
    share: str, other: str, expected: str, tmp_path: Path
) -> None:
    said = complaint(tmp_path, share=share, other=other)
    assert said.startswith(f"x.yaml:6: workload.streams: {expected}")


def test_shares_that_do_not_change_still_sum_to_one(tmp_path: Path) -> None:
    assert "shares must sum to 1, not 0.9" in complaint(tmp_path, share="0.6")
    parse_scenario(load_yaml(text(share=LINE, domain=STEP), "x.yaml"))


def test_acceptance_of_a_domain_no_stream_ever_has_is_refused(tmp_path: Path) -> None:
    assert "no stream has the domain 'b'; there is a, sql" in complaint(tmp_path)
    parse_scenario(load_yaml(text(domain=STEP), "x.yaml"))


def test_regimes_that_change_without_end_are_refused() -> None:
    quick = {"kind": "regimes", "domains": ["a", "b"], "dwell": 1e-6}
    asked: dict[str, Any] = {"arrivals": {"kind": "constant", "rate_per_s": 1}, "requests": 1000}
    with pytest.raises(ModelError, match="changes more than 10000000 times") as caught:
        generate(Workload.model_validate({**asked, "streams": [{"domain": quick}]}), 1)
    assert caught.value.key == "workload.streams[0].domain.dwell"


@pytest.mark.parametrize(
    "domain",
    [
        STEP,
        "{kind: linear, before: b, after: é, start: 0, end: 9}",
        "{kind: regimes, domains: [b, a, b], dwell: [1, 2, 3], dwell_cv: 0.5}",
        "{kind: trace, file: d.csv}",
    ],
)
def test_written_out_it_loads_to_the_same(domain: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("at,domain\n0,a\n\n7,b\n", "utf-8")
    once = parse_scenario(load_yaml(text(share=LINE, domain=domain), str(tmp_path / "x.yaml")))
    written = resolved_yaml(once.resolved)
    assert parse_scenario(load_yaml(written, "y.yaml")).resolved == once.resolved
