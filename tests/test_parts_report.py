"""The printed parts of a run: its worst window, its streams, and what did not finish."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rows import document, latencies, row, saturated_row

from sim.analysis.parts_report import worst_window
from sim.analysis.report import run_report


def windows(worst: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = {
        "start_s": 3900.0,
        "ttft_s_p95": 0.812,
        "tpot_s_p95": 0.0312,
        "attainment": 0.91,
        **(worst or {}),
    }
    return {"window_s": 300.0, "worst": told, **changes}


def stream(name: str, slo_class: str | None, mean_s: float | None, within: float | None) -> Any:
    return {
        "stream": name,
        "slo_class": slo_class,
        "requests": 2100,
        "ttft_s": latencies(mean_s),
        "tpot_s": latencies(mean_s and mean_s / 10),
        "e2e_s": latencies(mean_s and mean_s * 10),
        "slo": None if within is None else {"attainment": within},
    }


CLASSED = [stream("chat", "interactive", 0.1, 0.934), stream("sql", "batch", 0.3, 0.5)]
PLAIN = row("autoregressive", None, streams=CLASSED, baseline=True)
CHOSEN = row("eagle3 K=3", 1.6, streams=CLASSED)
OTHER = row("ngram K=5", 1.01, streams=[stream("chat", "interactive", 0.777, 0.1)] * 2)


# The worst window


def test_the_worst_window_is_one_line() -> None:
    assert worst_window(row(windows=windows())) == (
        "worst 5 minutes (from 1:05:00): TTFT p95 812 ms, TPOT p95 31.2 ms, 91 % within the SLO"
    )
    assert worst_window(row(windows=windows({"attainment": None}))) == (
        "worst 5 minutes (from 1:05:00): TTFT p95 812 ms, TPOT p95 31.2 ms"
    )


def test_a_run_without_windows_or_with_too_few_requests_tells_no_worst() -> None:
    assert worst_window(row(windows=None)) is None
    thin = row(windows={"window_s": 60.0, "worst": None})
    assert worst_window(thin) == "worst 1 minute: none holds 20 requests"
    assert worst_window(saturated_row("x", windows=windows())) is None


def test_every_strategy_has_its_worst_window_under_its_verdict() -> None:
    rows = [row(name, 1.5, windows=windows({"start_s": at})) for name, at in (("a", 0), ("b", 60))]
    lines = run_report(document(rows), 120).splitlines()
    for name, start in (("a", "0:00:00"), ("b", "0:01:00")):
        after = next(i for i, line in enumerate(lines) if line.startswith(f"  {name}: "))
        assert lines[after + 1].startswith(f"    worst 5 minutes (from {start}): ")


# Streams


def table_by_stream(rows: list[dict[str, Any]], width: int = 120) -> list[str]:
    lines = run_report(document(rows), width).splitlines()
    start = next((i for i, line in enumerate(lines) if " stream " in line), None)
    if start is None:
        return []
    return lines[start : lines.index("", start)]


def test_streams_of_the_baseline_and_of_the_chosen_strategy_are_compared() -> None:
    header, _, *body = table_by_stream([PLAIN, CHOSEN, OTHER])
    assert header.split() == ["strategy", "stream", "class", "sent", "p95", "p95", "p95", "within"]
    assert [line.split() for line in body] == [
        ["autoregressive", "chat", "interactive", "2100", "180", "18.0", "1800", "93", "%"],
        ["autoregressive", "sql", "batch", "2100", "540", "54.0", "5400", "50", "%"],
        ["*", "eagle3", "K=3", "chat", "interactive", "2100", "180", "18.0", "1800", "93", "%"],
        ["*", "eagle3", "K=3", "sql", "batch", "2100", "540", "54.0", "5400", "50", "%"],
    ]


def test_columns_nobody_has_a_value_for_are_left_out() -> None:
    bare = [stream("chat", None, 0.1, None), stream("sql", None, None, None)]
    header, _, *body = table_by_stream([row("x", None, baseline=True, streams=bare)])
    assert header.split() == ["strategy", "stream", "sent", "p95", "p95", "p95"]
    assert body[1].split()[-3:] == ["-", "-", "-"]


def test_one_stream_has_no_table_of_its_own() -> None:
    assert table_by_stream([row(), row("x", None)]) == []


def test_points_of_a_grid_are_told_apart_by_stream_too() -> None:
    points = [{"workload.arrivals.rate_per_s": rate} for rate in (4, 8)]
    rows = [{**made, "point": point} for point in points for made in (PLAIN, CHOSEN)]
    body = table_by_stream(rows)[2:]
    assert len(body) == 8
    assert sum(line.startswith("rate_per_s=8") for line in body) == 4


@pytest.mark.parametrize("width", [70, 100])
def test_parts_fit_the_width_and_lose_no_number(width: int) -> None:
    rows = [{**made, "windows": windows()} for made in (PLAIN, CHOSEN, OTHER)]
    wide, narrow = (run_report(document(rows), w) for w in (400, width))
    assert set(re.findall(r"[\d.]+", wide)) == set(re.findall(r"[\d.]+", narrow))
    assert max(len(line) for line in narrow.splitlines()) <= width


# What did not finish


def test_what_seldom_happens_has_a_column_only_where_it_happens() -> None:
    plain = run_report(document([row()]), 400)
    assert not any(title in plain for title in ("timed out", "failed", "resent"))
    lines = run_report(
        document([row("x", 1.2), row(timed_out=12, failed=3, resent=37)]), 400
    ).splitlines()
    header = next(i for i, line in enumerate(lines) if "timed out" in line)
    for title, cells in (
        ("timed out", ["-", "12"]),
        ("failed", ["-", "3"]),
        ("resent", ["-", "37"]),
    ):
        end = lines[header].index(title) + len(title)
        assert [line[:end].split()[-1] for line in lines[header + 2 : header + 4]] == cells
