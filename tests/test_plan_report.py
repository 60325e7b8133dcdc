"""The printed capacity plan: its sentence is that of the document, and it fits every width."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from plan_document import document
from plan_variants import VARIANTS, missed, no_upper_end, nothing_at_all, nothing_runs

from sim.analysis import plan_evidence, plan_words
from sim.analysis.plan_report import plan_report
from sim.analysis.shell import command_lines


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", VARIANTS)
def test_no_line_is_wider_than_asked(name: str, width: int):
    lines = plan_report(VARIANTS[name](), width).splitlines()
    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
    assert not any(line.endswith(" ") for line in lines)


def test_the_sentence_says_what_to_buy_what_it_costs_and_how_sure_that_is():
    assert plan_words.answer(document()) == (
        "Buy 8 h100_sxm (90 %: 8-12): eagle3 K=3, 2 replicas of TP 4, fp8 weights, fp8 KV: "
        "21.5 USD/h, 1.07 USD per million output tokens; 71 % sure that 8 are enough; "
        "12 for 95 %."
    )


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("gpus", 6, "Buy 6 h100_sxm"),
        ("gpus_band", {"lo": 7, "hi": 9, "level": 0.8, "basis": "assumed"}, "(80 %: 7-9)"),
        ("usd_per_hour", 1234.0, "1,234 USD/h"),
        ("usd_per_million_tokens", 0.417, "0.417 USD per million"),
        ("confidence", 0.5, "50 % sure that 8"),
        ("gpus_for_confidence", 20, "20 for 95 %"),
        ("replicas", 1, "1 replica of TP 4"),
        ("tp", 8, "replicas of TP 8"),
        ("settings", {"model.kv": "bf16"}, "fp8 weights, bf16 KV"),
    ],
)
def test_every_figure_of_the_sentence_is_one_of_the_document(key: str, value: object, told: str):
    made = document()
    made["plans"][0][key] = value
    assert told not in plan_words.answer(document())
    assert told in plan_words.answer(made)


def test_an_answer_with_the_confidence_asked_says_so():
    made = document(confidence=0.7)
    assert plan_words.answer(made).endswith("71 % sure that 8 are enough, where 70 % was asked.")
    made = document(confidence=None)
    assert plan_words.answer(made).endswith("71 % sure that 8 are enough.")


def test_a_band_without_an_upper_end_is_never_shown_as_a_number():
    made = no_upper_end()
    text = plan_words.answer(made)
    assert "(90 %: 8 or more, with no upper end among those tried)" in text
    assert text.endswith("no fleet that was tried makes it 95 %.")
    report = plan_report(made, 120)
    assert "8 (8-?)" in report
    assert "1.07 (1.07-?)" in report
    assert "None" not in report


def test_where_nothing_that_runs_is_enough_nothing_is_to_be_bought():
    assert plan_words.answer(nothing_runs()) == (
        "Nothing that vllm_0.15 runs carries 600,000 requests a day within the SLO; lookahead "
        "W=5 N=3 G=5, which it does not run, would with 20 h100_sxm."
    )
    for made in (nothing_runs(), nothing_at_all()):
        report = plan_report(made, 100)
        assert "Buy" not in report
        assert "\n*" not in report
        assert "an idle replica takes 31 ms a token, 25 ms asked" in report


def test_marks_tell_the_choice_the_hypothetical_and_the_front():
    lines = plan_report(document(), 200).splitlines()
    rows = [line for line in lines if "h100_sxm  " in line or "h200_sxm  " in line]
    assert [row[:3] for row in rows] == ["*P ", *["   "], " P ", *["   "] * 4, "?  "]


def test_a_narrow_report_tells_each_plan_as_a_paragraph_with_all_its_figures():
    text = " ".join(plan_report(document(), 48).split())
    assert (
        "P eagle3 K=4, h200_sxm GPUs 8 (8-8); USD a day 689, M tok 1.43 (1.43-1.43); one replica "
        "15.9 (14.3-17.5) req/s; headroom 53 %; worst 5 minutes, p95 ms TTFT 310, TPOT 18.1, "
        "E2E 724; limited by TTFT p95; sure 96 %, GPUs for 95 % 8"
    ) in text


def test_numbers_stay_with_their_units():
    for width in range(40, 130):
        lines = [line.strip() for line in plan_report(document(), width).splitlines()]
        assert not [line for line in lines if line.startswith(("% ", "ms ", "USD/h"))]
        assert not [line for line in lines if line.endswith(" TP")]


def test_columns_without_a_value_are_left_out():
    assert "USD" not in plan_report(VARIANTS["without_prices"](), 200).replace("2.69 USD", "")
    assert "kW" not in plan_report(document(), 200)
    assert "7.28" in plan_report(VARIANTS["with_power"](), 200)


def test_the_check_is_told_and_a_missed_one_stands_out():
    assert plan_evidence.check(document()) == (
        "600,132 requests over 24 h were simulated, a replica killed at 14:00 and back 3.8 min "
        "later. The SLO is met: p95 in the worst 5 minutes from 14:02 TTFT 406 ms, TPOT 22.5 ms; "
        "99 % of requests within the bounds; 12 preemptions."
    )
    text = plan_evidence.check(missed())
    assert text is not None
    assert "killed at 14:00 and never back. The SLO is MISSED: p95 in the worst" in text
    assert "TPOT 29.1 ms" in text


def test_what_moves_the_answer_most_is_to_be_measured_first():
    found = plan_evidence.measure_next(document())
    assert [text.partition(" (")[0] for text in found] == [*("acceptance", "demand", "step time")]
    assert (
        "moves the answer from 6.7 to 10.6 GPUs, between 86 % and 113 % of what is expected; "
        "tokens a step of eagle3 K=3; `speccast calibrate acceptance`"
    ) in found[0]
    worst = plan_evidence.measure_next(no_upper_end())[0]
    assert "from 6.7 to more GPUs than any fleet has, between" in worst
    still = [{**row, "gpus_lo": 8.0, "gpus_hi": 8.01} for row in document()["tornado"]]
    assert plan_evidence.measure_next(document(tornado=still)) == [
        "No uncertain input moves the answer by itself."
    ]


def test_inputs_are_counted_by_what_they_rest_on_and_the_assumed_ones_named():
    report = " ".join(plan_report(document(), 100).split())
    assert "This rests on 6 inputs: 2 measured, 2 published, 2 assumed. Assumed: acceptance" in (
        report
    )
    assert "match rate 0.25 (no figure for chat was published)" in report
    assert "arxiv" not in report


def test_strategies_that_fail_for_the_same_reason_are_told_together():
    why = "weights leave no room for KV"
    names = ("a", "b", "a")
    rows = [{"strategy": n, "gpu": "l4", "why": why, "candidates": 2} for n in names]
    rows.append({"strategy": "a", "gpu": "l40s", "why": why, "candidates": 1})
    ((title, told),) = plan_evidence.impossible(document(impossible=rows))
    assert title == "Cannot hold the SLO"
    assert told == [
        ("a, b on l4 (6 candidates)", why),
        ("a on l40s (1 candidate)", why),
    ]


def test_every_candidate_is_accounted_for():
    assert plan_evidence.counts(document()).startswith(
        "512 candidates: 431 ruled out by the estimate, 81 searched; 1,204 simulations"
    )
    counts = {**document()["counts"], "candidates": 520}
    assert "520 candidates: 8 that cannot run, 431" in plan_evidence.counts(document(counts=counts))


def test_long_sources_of_an_uncertain_input_are_left_to_the_page():
    what = f"decode steps on h100_sxm: {'measured by someone, ' * 9}"
    row = {**document()["tornado"][0], "what": what}
    assert plan_evidence.moved(row).endswith("expected; decode steps on h100_sxm")


def test_settings_that_all_plans_share_are_told_once():
    made = document()
    made["plans"][2]["settings"]["engine.max_num_seqs"] = 128
    report = " ".join(plan_report(made, 100).split())
    assert "in all of them fp8 weights, fp8 KV, max_num_batched_tokens 8192" in report
    assert "eagle3 K=4, h200_sxm: 2 replicas of TP 4, max_num_seqs 128" in report
    assert report.count("max_num_batched_tokens") == 1


@pytest.mark.parametrize("width", [40, 60, 90, 300])
def test_a_shell_reads_the_launch_command_as_one_whatever_the_width(width: int):
    command = document()["plans"][0]["launch"]
    shown = "\n".join(command_lines(command, width))
    words, expected = shlex.split(shown.replace("\\\n", "")), shlex.split(command)
    assert words[:-1] == expected[:-1]
    assert json.loads(words[-1]) == json.loads(expected[-1])
    assert (width < 300) == ("\n" in shown)


def test_comments_and_operators_of_a_launch_stay_what_they_are():
    written = 'printf \'%s\' \'{"kv_cache_config": {"dtype": "fp8"}}\' > speculation.yaml'
    command = f"# 2 such replicas behind a router\n{written} && trtllm-serve model --tp_size 4"
    shown = command_lines(command, 44)
    assert shown[0] == "  # 2 such replicas behind a router"
    assert all(line.startswith("  # ") for line in command_lines(command, 24)[:2])
    assert all(len(line) <= 44 for line in shown)
    assert words_of(shown[1:]) == words_of(command.splitlines()[1:])


def words_of(lines: list[str]) -> list[str]:
    """What a shell makes of a command, spaces of JSON apart."""
    words = shlex.split("\n".join(lines).replace("\\\n", ""))
    return [re.sub(r"\s+", "", word) for word in words]


def test_colours_only_where_asked():
    assert "\x1b[" not in plan_report(document(), 100)
    coloured = plan_report(document(), 100, colour=True)
    assert "\x1b[1;32mBuy 8 h100_sxm" in coloured


def test_what_cannot_run_is_not_listed_among_what_cannot_hold_the_slo():
    why = "must divide the 32 heads of llama-3.1-8b, got 3"
    row = {"strategy": "ngram K=3", "gpu": "l40s", "why": why, "key": "model.tp", "runs": False}
    made = document()
    report = plan_report({**made, "impossible": [row, *made["impossible"]]}, 120)
    cannot, slo = report.partition("\nCannot run\n")[2].split("\nCannot hold the SLO\n")
    assert f"ngram K=3 on l40s: model.tp: {why}" in cannot
    assert "an idle replica takes" not in cannot
    assert "an idle replica takes" in slo
    assert "Cannot run" not in plan_report(made, 120)


def test_a_killed_replica_is_told_without_the_check_of_a_day():
    def peak(**changes: object) -> str:
        return next(text for text in plan_words.notes(document(**changes)) if "a peak" in text)

    assert "with one replica killed" in peak(check=None, killed=True)
    assert "with one replica killed" not in peak(check=None, killed=False)


def test_the_capacity_of_a_replica_that_sees_few_requests_is_told_as_chance():
    made = document()
    assert "of chance" not in " ".join(plan_words.notes(made))
    made["plans"][0]["replica_capacity_req_s"]["value"] = 0.1
    assert "sees few requests in 5 minutes (30)" in " ".join(plan_words.notes(made))


def test_nearly_sure_reads_alike_in_words_and_in_the_table():
    made = document()
    made["plans"][0]["confidence"] = 0.9967
    assert "99 % sure" in plan_words.answer(made)
    line = next(x for x in plan_report(made, 250).splitlines() if x.startswith("*P"))
    assert " 99 " in line
    assert " 100 " not in line


def test_a_band_names_the_inputs_that_give_it_its_basis():
    made = document()
    basis = made["plans"][0]["gpus_band"]["basis"]
    names = [row["input"] for row in made["tornado"] if row["basis"] == basis]
    assert f"it is {basis} by {names[0]}" in plan_words.notes(made)[0]
