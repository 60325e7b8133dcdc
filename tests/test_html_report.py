"""The HTML report: the answer on top, nothing fetched, no text of the user's taken for markup."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_cases import HOSTILE, LABELS, RATE, Case, case, parts, streams
from rows import band, document, latencies, row, saturated_row

from sim.analysis import describe, slo_words
from sim.analysis import grid as grid_of
from sim.analysis.answer import answer, notes
from sim.analysis.assumptions import assumptions
from sim.analysis.figures import pictures
from sim.analysis.html_report import render, write_report
from sim.analysis.palette import SHADES

PLAIN = row("autoregressive", None)
MET = {"attainment": 0.998, "target": 0.99, "missed": [], "met": True}
MISSED = {"attainment": 0.62, "target": 0.99, "missed": ["TTFT p95 over 500 ms"], "met": False}
NAMES = {
    *("distribution_ttft", "distribution_tpot", "load_ttft", "load_tpot", "windows_ttft"),
    *("windows_tpot", "throughput", "step", "memory", "time_waiting", "time_running"),
    *("time_kv_use", "time_tau", "time_preemptions"),
}
VOID = {"meta", "link", "br", "path", "use", "rect"}


@pytest.fixture(scope="module")
def whole() -> Case:
    return case()


@pytest.fixture(scope="module")
def page(whole: Case) -> str:
    return render(*whole)


class Reader(HTMLParser):
    """Collects elements, visible text and what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def said(*rows: dict[str, Any], **scenario: Any) -> str:
    made = document(list(rows))
    made["scenario"] |= scenario
    return answer(made)


def test_a_clear_winner_is_named_with_its_gain_band_load_and_slo():
    assert said(PLAIN, row("eagle3", 1.6, slo=MET), row("ngram", 1.2)) == (
        "Choose eagle3 at 12 req/s: 38 % less time per token than plain decoding "
        "(speedup 1.60, band 1.52 to 1.68), and the SLO is met."
    )


def test_a_missed_slo_is_part_of_the_answer():
    text = said(row("autoregressive", None, slo=MISSED), row("eagle3", 1.6, slo=MISSED))
    assert text.endswith("but the SLO is missed: TTFT p95 over 500 ms.")


def test_a_faster_strategy_that_misses_the_slo_is_not_chosen_silently():
    text = said(row("autoregressive", None, slo=MET), row("eagle3", 1.6, slo=MISSED))
    assert text.startswith("Stay with autoregressive at 12 req/s: eagle3 is faster (speedup 1.60")
    assert "but misses the SLO, and the SLO is met" in text


def test_undecided_says_what_to_measure():
    text = said(PLAIN, row("ngram", 1.01), row("draft_model", 0.7))
    assert text == (
        "Stay with autoregressive at 12 req/s: no other strategy is faster for sure, ngram comes "
        "nearest (speedup 1.01, band 0.959 to 1.06): measure its tau."
    )


def test_where_all_others_lose_the_least_bad_is_named():
    assert "every other strategy is slower, ngram the least (speedup 0.900" in said(
        PLAIN, row("ngram", 0.9), row("draft_model", 0.7)
    )
    assert "no other strategy keeps up" in said(PLAIN, saturated_row("eagle3"))


def test_a_strategy_that_keeps_up_where_plain_decoding_does_not():
    survivor = row("eagle3", None, baseline=False)
    assert said(saturated_row("autoregressive", baseline=True), survivor) == (
        "Choose eagle3 at 12 req/s: it keeps up where plain decoding does not."
    )


def test_only_one_meets_the_slo_though_its_gain_is_undecided():
    text = said(row("autoregressive", None, slo=MISSED), row("ngram", 1.01, slo=MET))
    assert "it meets the SLO and plain decoding does not; its gain is undecided" in text


def test_everything_saturated_tells_what_was_served():
    rows = [saturated_row("autoregressive", baseline=True), saturated_row("eagle3", req_per_s=11.0)]
    assert said(*rows) == (
        "No strategy carries 12 req/s: all saturate, and eagle3 serves most, 11.0 req/s."
    )
    burst = [{**each, "served_req_per_s": 0.0} for each in rows]
    assert said(*burst).endswith("eagle3 serves most, 11.0 req/s.")
    able = row("tree", 2.0, hypothetical=True)
    assert said(*rows, able).startswith("No strategy that this engine runs carries 12 req/s")


def test_nothing_to_compare_and_nothing_served():
    assert said(PLAIN) == ("Autoregressive carries 12 req/s: TTFT p95 146 ms, TPOT p95 36.0 ms.")
    assert said(row("autoregressive", None, finished=0)) == "Nothing was served at 12 req/s."
    refused = row("autoregressive", None, finished=0, rejected=2)
    assert said(refused) == "Nothing was served at 12 req/s: 2 requests rejected."
    assert said(saturated_row("autoregressive", baseline=True)) == (
        "Autoregressive does not carry 12 req/s: it serves 9.50 req/s."
    )
    assert said() == "No strategy is complete: the tables hold what was simulated."


def test_users_are_a_load_too():
    arrivals = {"kind": "closed_loop", "users": 64}
    closed = row("eagle3", 1.25, offered_req_per_s=None)
    text = said(PLAIN, closed, workload={"arrivals": arrivals})
    assert text.startswith("Choose eagle3 at 64 users: 25 % more tokens a second at equal users")


def grid(*chosen: str | None) -> str:
    """The answer where each point has another best strategy, None where all saturate."""
    rows = []
    for index, name in enumerate(chosen):
        here = {"point": {RATE: 10.0 * (index + 1)}}
        if name is None:
            rows.append(saturated_row("autoregressive", baseline=True, **here))
        else:
            rows.append(row("autoregressive", None, **here))
            rows.append(row(name, 1.5 + index / 10, slo=MET, **here))
    return said(*rows)


def test_over_a_grid_the_answer_says_what_holds_where():
    assert grid("eagle3", "eagle3", "eagle3", None) == (
        "Choose eagle3 from 10 to 30 req/s (speedup 1.50 to 1.70, SLO met); "
        "no strategy carries the load at 40 req/s."
    )
    assert grid("eagle3", "eagle3", "ngram") == (
        "Choose eagle3 at 10 req/s and 20 req/s (speedup 1.50 to 1.60, SLO met); "
        "choose ngram at 30 req/s (speedup 1.70, SLO met)."
    )
    assert "at all 3 points" in grid("eagle3", "eagle3", "eagle3")
    assert grid("a", "b", "c", "d", "a") == (
        "The choice changes over the 5 points: a at 2, b at 1, c at 1, 1 more below."
    )


def test_notes_weaken_the_answer_where_they_must():
    rows = [PLAIN, row("eagle3", 1.6, band={"speedup": band(1.6, "assumed")}, short_run=True)]
    texts = " ".join(notes(document(rows) | {"interrupted": True}))
    for expected in ("90 % of outcomes", "no measurement behind it", "too short", "interrupted"):
        assert expected in texts
    assert notes(document([PLAIN])) == []


def test_the_page_is_well_formed_and_answers_on_top(page: str, whole: Case):
    reader = read(page)
    assert reader.open == []
    assert page.startswith("<!DOCTYPE html>")
    text = " ".join(" ".join(reader.text).split())
    order = (answer(whole[0])[:30], "Strategies compared", "Verdicts", "What this rests on", "seed")
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_nothing_is_fetched_and_nothing_runs(page: str):
    reader = read(page)
    assert not {"script", "img", "iframe", "object", "embed", "base"} & set(reader.tags)
    assert "default-src 'none'" in page
    for tag, name, value in reader.attributes:
        assert not name.startswith("on")
        assert name != "src"
        if name in ("href", "xlink:href"):
            assert (
                value.startswith("#")
                or (tag == "a" and value.startswith("https://"))
                or (value == "data:,")
            )
    assert not re.search(r"@import|url\((?!#)", page)


def test_text_from_input_stays_text(page: str):
    reader = read(page)
    shown = "".join(reader.text)
    for label in LABELS:
        assert label in shown
    assert HOSTILE not in page
    assert "alert(1)" in shown


def test_a_label_that_looks_like_a_colour_or_an_id_is_left_alone():
    label = SHADES["series-1"].light
    made, tables, lines = case(("autoregressive", label, "url(#p1)"), rates=(4,))
    shown = "".join(read(render(made, tables, lines)).text)
    assert label in shown
    assert "url(#p1)" in shown


def test_every_picture_is_named_and_captioned_and_follows_the_theme(page: str, whole: Case):
    drawn = pictures(*whole)
    assert {picture.name for picture in drawn} == NAMES
    count = len(drawn)
    assert page.count("<figure") == page.count("<figcaption>") == count
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert re.match(r'<svg [^>]*role="img" aria-label="[^"]{20,}"', svg)
        style = re.sub(r">[^<]*<", "><", svg)
        assert not re.search(r"#[0-9a-f]{6}", style)
        assert "var(--" in style
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    referred = {
        name for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page) for name in pair
    }
    assert referred - {""} <= set(ids)


def test_tables_tell_what_their_heads_head(page: str):
    heads = re.findall(r"<th\b[^>]*>", page)
    assert heads
    assert all("scope=" in head for head in heads)
    assert page.count("<table") == page.count("<caption")
    assert '<html lang="en">' in page


def test_same_result_same_page_and_every_picture_as_a_file(whole: Case, page: str, tmp_path: Path):
    assert render(*whole) == page
    write_report(tmp_path, *whole)
    assert (tmp_path / "report.html").read_text("utf-8") == page
    files = {path.name for path in (tmp_path / "figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in NAMES for kind in ("svg", "png")}


def test_pictures_without_data_are_left_out():
    def names(*rows: dict[str, Any], tables: bool = True) -> set[str]:
        _, made, _ = case(("autoregressive", "eagle3"), rates=(4,))
        return {p.name for p in pictures(document(list(rows)), made if tables else [], [])}

    assert names(PLAIN, row("eagle3")) == {"distribution_ttft", "distribution_tpot", "throughput"}
    assert names(PLAIN, tables=False) == {"throughput"}
    assert names(saturated_row("autoregressive")) == set()
    assert names(saturated_row("autoregressive", **parts())) == {"step", "memory"}
    assert not {"step"} & names(row("autoregressive", None, **parts() | {"step_s": None}))
    assert pictures(document([]), [], []) == []


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [PLAIN],
        [saturated_row("autoregressive", baseline=True), saturated_row("eagle3")],
        [row("autoregressive", None, finished=0, tok_per_s_per_user=None, tok_per_s_per_gpu=None)],
        [PLAIN, row("eagle3", slo=MET), row("tree", 2.0, hypothetical=True, band={})],
    ],
    ids=["none", "one", "saturated", "unserved", "usual"],
)
def test_a_page_comes_of_every_kind_of_result(rows: list[dict[str, Any]]):
    made = document(rows)
    assert read(render(made, [], [])).open == []


def test_streams_and_worst_windows_are_told():
    made, tables, lines = case(("autoregressive", "eagle3"), rates=(4,))
    text = " ".join(read(render(made, tables, lines)).text)
    assert "Worst 5 minutes" in text
    assert "0:15:00" in text
    assert "interactive" in text
    for each in made["rows"]:
        each["streams"] = streams(["all"])
    assert "interactive" not in render(made, tables, lines)


def test_assumptions_give_basis_and_source():
    made = document([PLAIN, row("eagle3", acceptance_entries=["eagle3_llama31_8b_mtbench"])])
    made["scenario"]["strategies"] = [
        {"kind": "autoregressive"},
        {"kind": "eagle3", "acceptance": {"tau": 2.4, "basis": "assumed"}},
    ]
    found = {item.what: item for item in assumptions(made)}
    assert found["price"].source == "RunPod on demand, March 2026"
    assert found["kernel times"].basis == "validated"
    assert "aiconfigurator" in found["kernel times"].source
    bases = [item.basis for item in assumptions(made) if item.what == "acceptance of eagle3"]
    assert bases == ["extrapolated", "assumed"]
    made["scenario"]["hardware"]["price_per_gpu_hour"] = 2.0
    assert {item.what: item for item in assumptions(made)}["price"].source == (
        "stated in the scenario"
    )


def test_the_slo_is_told_in_words():
    slo: dict[str, Any] = {"ttft_s": {"p95": 0.5, "p50": 0.2}, "attainment": 0.99}
    assert slo_words.slo({"slo": slo}) == (
        "TTFT p95 within 500 ms, TTFT p50 within 200 ms, and 99 % of requests within the loosest"
    )
    slo |= {"classes": {"batch": {"e2e_s": {"p95": 60.0}}}}
    assert slo_words.slo({"slo": slo}).endswith("; batch: E2E p95 within 60000 ms")
    two: dict[str, Any] = {"ttft_s": {"p95": 0.5}, "tpot_s": {"p95": 0.015}, "attainment": 0.9}
    assert slo_words.slo({"slo": two}) == (
        "TTFT p95 within 500 ms, TPOT p95 within 15 ms, and 90 % of requests within both"
    )
    one = {"tpot_s": {"p95": 0.015}, "attainment": 0.95}
    assert slo_words.slo({"slo": one}).endswith("15 ms, and 95 % of requests within it")
    assert "within the loosest of each; batch" in slo_words.slo({"slo": two | slo})
    assert slo_words.slo({"slo": {"attainment": 0.99}}) == slo_words.slo({}) == ""


def test_times_are_told_as_one_says_them():
    spans = (300, 3600, 60, 90, 1, 0)
    assert [describe.duration(s) for s in spans] == [
        *("5 minutes", "1 hour", "1 minute", "90 seconds", "1 second", "0 seconds")
    ]
    assert describe.clock(3725.4) == "1:02:05"


def test_pictures_show_the_point_that_most_strategies_carry():
    rows = [
        *(row(name, point={RATE: 4}) for name in "ab"),
        *(row(name, point={RATE: 8}) for name in "ab"),
        row("a", point={RATE: 12}),
        saturated_row("b", point={RATE: 12}),
    ]
    assert grid_of.shown(rows)[0]["point"] == {RATE: 8}
    assert grid_of.load_key(rows) == RATE
    both = [each | {"point": each["point"] | {"model.tp": 4}} for each in rows]
    both += [each | {"point": each["point"] | {"model.tp": 8}} for each in rows]
    assert len(grid_of.along(both, RATE)) == 6
    assert grid_of.place(both[0], document([])["scenario"]) == "4 req/s, tp=4"


def test_every_gpu_of_a_grid_is_accounted_for():
    made = document([PLAIN])
    made["scenario"]["vary"] = {"hardware.gpu": ["h100_sxm", "a100_80g_sxm"]}
    found = assumptions(made)
    assert [item.value.split(":")[0] for item in found if item.what == "GPU"] == [
        "h100_sxm",
        "a100_80g_sxm",
    ]
    assert len([item for item in found if item.what == "price"]) == 2


def test_twelve_strategies_at_twenty_loads_stay_small():
    labels = ["autoregressive", *(f"draft_model llama-3.2-1b K={k}" for k in range(1, 12))]
    made, tables, lines = case(labels, rates=range(1, 21), n=60)
    assert len(render(made, tables, lines).encode()) < 2_000_000


def test_a_run_without_a_folder_draws_nothing(tmp_path: Path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "hardware: {gpu: h100_sxm}\nmodel: {transformer: llama-3.1-8b}\n"
        "workload: {arrivals: {kind: poisson, rate_per_s: 4}, requests: 20}\n"
        "strategies: [{kind: autoregressive}]\n",
        "utf-8",
    )
    code = (
        "import sys\nfrom sim.cli import main\n"
        f"try:\n    main(['run', {str(scenario)!r}])\nexcept SystemExit as left:\n"
        "    assert not left.code\n"
        "assert not {'matplotlib', 'jinja2'} & set(sys.modules), 'drawn'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def test_where_one_strategy_varies_in_its_surroundings_the_best_of_them_is_named():
    found = {"round_robin": 6.2, "prefix_affinity": 2.8, "shared_queue": 6.1}
    rows = [
        row("plain", None, point={"engine.router": router}, e2e_s=latencies(e2e_s))
        for router, e2e_s in found.items()
    ]
    assert answer(document(rows)) == (
        "Plain does best with router=prefix_affinity: E2E 2800 ms on average, "
        "against 6100 to 6200 ms."
    )


def test_what_the_router_goes_by_and_how_fresh_it_is_stands_among_the_assumptions():
    def said(router: str, replicas: int, **engine: float) -> list[tuple[str, str]]:
        made = document([row("plain", None)])
        made["scenario"]["model"]["replicas"] = replicas
        made["scenario"]["engine"] |= {"router": router, **engine}
        found = [entry for entry in assumptions(made) if entry[0] == "router"]
        return [(entry[1], entry[3]) for entry in found]

    assert said("least_outstanding", 1) == []
    ((text, fresh),) = said("least_outstanding", 2)
    assert (text, fresh) == (
        "least_outstanding: requests assigned and not finished",
        "exact at every choice",
    )
    assert said("power_of_two", 2, router_refresh_s=5.0)[0][1] == "read anew after 5 s"
    assert said("round_robin", 2)[0][1] == "nothing that could be stale"
