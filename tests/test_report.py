"""The printed reports and the verdicts in them."""

from __future__ import annotations

import re

import pytest
from rows import band, document, row, saturated_row

from models import catalog
from models.catalog.facts import facts
from models.strategies import strategy_types
from sim.analysis import describe
from sim.analysis.explain_report import catalog_report, explain_report
from sim.analysis.report import run_report
from sim.analysis.verdict import best, number, percent, switch_off, verdict

SLO_MET = {"attainment": 0.998, "goodput_req_s": 11.9, "target": 0.99, "missed": [], "met": True}
SLO_MISSED = SLO_MET | {"attainment": 0.62, "missed": ["99 % asked"], "met": False}
BASELINE = row("autoregressive", None)
WORTH = row("eagle3 K=3", 1.6)
WORSE = row("draft_model llama-3.2-1b K=4", 0.7)
UNDECIDED = row("ngram K=5", 1.01)
HYPOTHETICAL = row("eagle2", 2.1, hypothetical=True)
SATURATED = saturated_row("medusa")
ROWS = [BASELINE, WORTH, WORSE, UNDECIDED, HYPOTHETICAL, SATURATED]


def test_the_band_of_the_speedup_decides():
    assert BASELINE["verdict"] == "baseline"
    assert WORTH["verdict"] == "worth it: 38 % less time per token"
    assert WORSE["verdict"] == "do not use at this load: 43 % more time per token"
    assert UNDECIDED["verdict"].startswith("undecided: the band straddles 1")
    assert SATURATED["verdict"] == (
        "saturated: no latency promised; offered 12.0 req/s, served 9.50"
    )


def test_a_wide_band_makes_a_good_speedup_undecided():
    wide = row(speedup=1.2, band={"speedup": band(1.2, "assumed", 0.3)})
    assert verdict(wide).startswith("undecided")


def test_notes_follow_the_judgement():
    assert "hypothetical (this engine cannot run it)" in HYPOTHETICAL["verdict"]
    assert "KV memory full: 12 preemptions" in row(preemptions=12)["verdict"]
    assert "SLO met: 99.80 % of requests within it" in row(slo=SLO_MET)["verdict"]
    assert "SLO missed (99 % asked): 62 % of requests" in row(slo=SLO_MISSED)["verdict"]
    assert "3 requests rejected" in row(rejected=3)["verdict"]
    assert "SLO" not in saturated_row("medusa", slo=SLO_MISSED)["verdict"]


def test_a_strategy_that_keeps_up_where_plain_decoding_does_not():
    survivor = row("eagle3", None, baseline=False)
    assert survivor["verdict"].startswith("keeps up")
    assert best([saturated_row("autoregressive", baseline=True), survivor]) is survivor


def test_switch_off_names_the_limit():
    assert switch_off(WORTH) == "switch off below tau 1.42"
    assert switch_off(row(tau=1.2)) == "would need tau 1.42, has 1.20"
    assert switch_off(BASELINE) is None
    assert switch_off(SATURATED) is None


def test_best_is_proven_runnable_and_within_the_slo():
    assert best(ROWS) is WORTH
    assert best([BASELINE, WORSE, UNDECIDED, HYPOTHETICAL]) is BASELINE
    assert best([SATURATED]) is None
    quick = row("quick", 2.0, slo=SLO_MISSED)
    steady = row("steady", 1.3, slo=SLO_MET)
    assert best([quick, steady]) is steady
    assert best([quick]) is quick


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.00123456, "0.00123"),
        (0.0999, "0.0999"),
        (1, "1.00"),
        (9.994, "9.99"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234567.8, "1234568"),
    ],
)
def test_numbers_are_never_cut_nor_written_in_powers_of_ten(value, text):
    assert number(value) == text


def test_less_than_all_never_reads_as_all():
    assert percent(0.9999) == "99.99 %"
    assert percent(1.0) == "100 %"
    assert percent(0.05) == "5.0 %"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 300])
def test_the_report_fits_and_shows_every_number_at_any_width(width):
    text = run_report(document(ROWS), width)
    assert max(len(line) for line in text.splitlines()) <= max(width, 90)
    for expected in ("12.5 (11.9-13.1)", "1.60 (1.52-1.68)", "13208", "81.4", "375", "47.0"):
        assert expected in text
    assert "…" not in text


def test_eighty_columns_hold():
    short = [row("autoregressive", None), row("eagle3 K=3", 1.6)]
    text = run_report(document(short), 80)
    assert max(len(line) for line in text.splitlines()) <= 80


def test_wide_and_narrow_reports_hold_the_same_numbers():
    def numbers(width: int) -> set[str]:
        return set(re.findall(r"[\d.]+", run_report(document(ROWS), width)))

    assert numbers(70) == numbers(400)


def test_columns_align():
    lines = run_report(document(ROWS), 400).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("---"))
    title = lines[start - 1]
    for line in lines[start + 1 : start + 1 + len(ROWS)]:
        end = title.index("a GPU") + len("a GPU")
        assert line[end - 3 : end] == "375"


def test_the_report_states_question_load_answer_and_how_to_watch():
    text = run_report(document(ROWS), 400)
    assert "llama-3.1-70b (fp8 weights, bf16 KV) on 8 x h100_sxm (TP 4, 2 replicas)" in text
    assert "poisson arrivals at 12 req/s, 3000 requests" in text
    assert "70 % chat ~500 in / ~250 out, 10 prefixes of 200" in text
    assert "Choose eagle3 K=3." in text
    assert "vllm:spec_decode_num_accepted_tokens_total" in text
    assert text.count("* eagle3 K=3") >= 1
    assert "? eagle2" in text
    assert "Band validated" in text


def test_piped_text_has_no_colour_and_a_terminal_has():
    plain, coloured = (run_report(document(ROWS), 120, colour) for colour in (False, True))
    assert "\x1b" not in plain
    assert "\x1b" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_grid_points_are_told_apart():
    points = [{"workload.arrivals.rate_per_s": rate} for rate in (4, 8)]
    rows = [{**made, "point": point} for point in points for made in (BASELINE, WORTH)]
    text = run_report(document(rows), 400)
    assert "At rate_per_s=4: choose eagle3 K=3." in text
    assert re.search(r"^rate_per_s=8 +\* eagle3 K=3", text, re.MULTILINE)


def test_a_varied_key_is_shown_by_as_much_as_tells_it_apart():
    assert describe.point({"strategies.1.k": 2, "strategies[2].k": 5, "model.tp": 4}) == (
        "strategies[1].k=2 strategies[2].k=5 tp=4"
    )
    streams = {f"workload.streams[{i}].prompt_tokens.mean": 100 for i in (0, 1)}
    assert describe.point(streams | {"run.band": True}) == (
        "streams[0].prompt_tokens.mean=100 streams[1].prompt_tokens.mean=100 band=true"
    )
    assert describe.point({"run.seed": 1, "seed": 2}) == "run.seed=1 seed=2"


def test_the_header_lists_what_varies():
    points = [{"workload.arrivals.rate_per_s": rate, "strategies.1.k": 1} for rate in (4, 8)]
    rows = [{**made, "point": point} for point in points for made in (BASELINE, WORTH)]
    varied = "varied: workload.arrivals.rate_per_s = 4, 8; strategies[1].k = 1"
    assert f"{varied} (first values above)" in run_report(document(rows), 400)
    assert "varied" not in run_report(document(ROWS), 400)


def test_a_long_list_of_values_is_shortened():
    points = [{"run.seed": seed} for seed in range(40)]
    assert describe.varied(points) == "run.seed = 0, 1, 2, ..., 39 (40 values)"


def test_closed_loop_and_single_stream_read_well():
    scenario = document([])["scenario"]
    streams = scenario["workload"]["streams"][1:]
    arrivals = {"kind": "closed_loop", "users": 32, "think_s": 2.0}
    workload = {"arrivals": arrivals, "requests": 100, "streams": streams}
    assert describe.load({"workload": workload}) == (
        "32 concurrent users thinking 2 s, 100 requests: 900 in / 120 out"
    )


def test_explain_shows_every_component():
    explained = {
        "strategy": "eagle3",
        "t_step_s": 0.0161,
        "tau": 2.4,
        "tpot_s": 0.0067,
        "verify_tokens": 4,
        "components": {"weights_s": 0.009, "kv_s": 0.002, "lm_head_s": 0.0003, "host_s": 0.0},
        "mfu": 0.031,
        "mbu": 0.72,
        "roof": "memory",
        "band": {"t_step_s": band(0.0161)},
    }
    shown = {"scenario": document([])["scenario"], "batch": 8, "context": 700, "rows": [explained]}
    text = explain_report(shown, 80)
    for expected in ("weights", "9.00", "lm head", "16.1 (15.3-16.9)", "72.0", "memory", "700"):
        assert expected in text


def test_catalog_lists_names_titles_and_sources():
    sections = {"hardware": [("h100_sxm", "NVIDIA H100 SXM", "datasheet " * 30)], "engines": []}
    text = catalog_report(sections, 60)
    assert text.startswith("hardware\n  h100_sxm  NVIDIA H100 SXM\n")
    assert max(len(line) for line in text.splitlines()) <= 60


def test_figures_stand_under_the_title_and_a_narrow_line_keeps_its_text():
    sections = {"acceptance": [("a_name_of_twenty_eight_chars", "Title", "where it was read")]}
    wide, narrow = (
        catalog_report(sections, width, facts=lambda section, name: f"tau 2 of {section}")
        for width in (100, 40)
    )
    column = " " * 32
    assert wide.splitlines()[1:] == [
        "  a_name_of_twenty_eight_chars  Title",
        f"{column}tau 2 of acceptance",
        f"{column}where it was read",
    ]
    assert narrow.splitlines()[1:] == [
        "  a_name_of_twenty_eight_chars",
        "    Title",
        "    tau 2 of acceptance",
        "    where it was read",
    ]


@pytest.mark.parametrize(
    ("section", "name", "expected"),
    [
        ("hardware", "h100_sxm", "79.1 GiB, 3.35 TB/s, peak TFLOP/s 990 bf16, 1979 fp8, 1979 int8"),
        ("hardware", "h100_pcie", "tp 1 only; 1.99 USD/h"),
        ("hardware", "l40s", "PCIe 32 GB/s among up to 8 GPUs; 0.79 USD/h"),
        ("transformers", "llama-3.1-70b", "70.6 B parameters, 80 layers, 327680 KV bytes a token"),
        ("transformers", "glm-4.5-air", "8 of 128 + 1 shared experts a token, 1 MTP layer"),
        ("engines", "vllm_0.15", "(chains only); asynchronous: autoregressive, eagle, eagle3, mtp"),
        ("engines", "vllm_0.33", "eagle3, mtp, ngram (chains only); asynchronous: all"),
        ("engines", "tgi_2023", "runs autoregressive (chains only); asynchronous: none"),
        ("acceptance", "eagle3_gpt_oss_20b", "target gpt-oss-20b; tau 2.7 at K=3; domains mt_ben"),
        ("acceptance", "eagle_vicuna_7b", "tau 3.58 with 25 drafted in 5 levels"),
        ("acceptance", "eagle3_llama31_8b_mtbench", "0.75, 0.55, 0.42, 0.31, 0.24, 0.18, 0.13 (sh"),
        ("acceptance", "medusa_llama31_70b", "3 heads, best token right 0.68, 0.33, 0.18"),
        ("acceptance", "ngram_llama31_8b_gsm8k", "match rate 0.153, then accepted by position 0.5"),
        ("strategies", "draft_model", "draft (required), k 4, draft_tp 1, draft_weights bf16; def"),
        ("strategies", "eagle3", "k 3, tree none, draft_vocab 32000; default acceptance eagle3_"),
        ("strategies", "autoregressive", "no parameters; drafts nothing"),
        ("profiles", "h100_sxm", "device h100_sxm; kernel tables of vllm"),
    ],
)
def test_the_catalogue_answers_what_a_planner_looks_up(section, name, expected):
    assert expected in facts(section, name)


def test_every_entry_has_figures_in_one_line():
    for section in (*catalog.SECTIONS, "strategies"):
        for name in strategy_types() if section == "strategies" else catalog.names(section):
            text = facts(section, name)
            assert text, (section, name)
            assert "\n" not in text, (section, name)
            assert "None" not in text, (section, name)
