"""Whether kernel times are measured or computed, and whether steps leave what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import document, row
from test_kernel_table import ROWS, written

from models import catalog
from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis.assumptions import assumptions
from sim.analysis.explain_report import explain_report
from sim.analysis.kernel_notes import beyond, sources
from sim.analysis.report import run_report
from sim.explain import explain
from sim.manifest import manifest
from sim.scenario.dump import to_yaml
from sim.scenario.load import ScenarioFile, parse_scenario

SCENARIO = """\
hardware: {profile: mine.yaml}
model: {transformer: llama-3.2-1b}
engine: {max_num_batched_tokens: 1024, max_num_seqs: 16}
workload:
  arrivals: {kind: closed_loop, users: 6}
  requests: 12
  streams: [{prompt_tokens: {kind: fixed, value: 300}, output_tokens: {kind: fixed, value: 20}}]
strategies: [{kind: autoregressive}, {kind: ngram, k: 3}]
"""
# the four GEMMs of a layer of Llama-3.2-1B
SHAPES = [(3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)]


def scenario(folder: Path, *overrides: str, **changes: Any) -> ScenarioFile:
    """On an H100 whose GEMMs were timed from 1 to 64 tokens, all 50 us."""
    profile = catalog.entry("profiles", "h100_sxm") | {"name": "mine", "table": "mine.parquet"}
    (folder / "mine.yaml").write_text(to_yaml(profile | changes), "utf-8")
    gemms = [
        {**ROWS[0], "m": m, "n": n, "k": k, "time_s": 5e-5} for n, k in SHAPES for m in (1, 64)
    ]
    written(folder / "mine.parquet", *gemms)
    return parse_scenario(load_yaml(SCENARIO, str(folder / "s.yaml")), overrides)


TABLE = "hardware.kernels=table"


def test_explain_says_by_component_where_times_come_from(tmp_path):
    plain, ngram = explain(scenario(tmp_path, TABLE), batch=8)["rows"]
    assert plain["kernels"] == ngram["kernels"]
    assert plain["kernels"] == {
        "weights": "measured rows",
        "attention": "closed form",
        "kv": "closed form",
        "elementwise": "closed form",
        "lm_head": "closed form",
    }
    one = explain(scenario(tmp_path, TABLE), batch=1)["rows"][0]
    assert one["components"]["weights"] == pytest.approx(16 * 4 * 5e-5)
    usual = explain(scenario(tmp_path, "hardware.kernels=roofline"), batch=8)["rows"][0]
    assert set(usual["kernels"].values()) == {"closed form"}
    assert usual["outside"] == {}


def test_a_component_may_rest_on_both(tmp_path):
    made = scenario(tmp_path, TABLE)
    written(tmp_path / "mine.parquet", {**ROWS[0], "n": 2048, "k": 2048}, {**ROWS[0], "m": 1})
    rows = explain(made, batch=16)["rows"]
    assert rows[0]["kernels"]["weights"] == "both"
    assert rows[0]["outside"]["kernels"] == [
        "gemm 3072 x 2048 (bf16)",
        "gemm 16384 x 2048 (bf16)",
        "gemm 2048 x 8192 (bf16)",
        "gemm 128256 x 2048 (bf16)",
    ]


def test_auto_prefers_rows_only_where_the_profile_says_so(tmp_path):
    where = {"gemm": {"bf16": [16, 64]}}
    few, many = (
        explain(scenario(tmp_path, table_where=where), batch=batch)["rows"][0] for batch in (8, 16)
    )
    assert few["kernels"]["weights"] == "closed form"
    assert few["outside"] == {}
    assert many["kernels"]["weights"] == "measured rows"
    assert many["outside"] == {"kernels": ["gemm 128256 x 2048 (bf16)"]}


def test_a_run_says_what_its_largest_steps_went_beyond(tmp_path):
    valid = {"m": [1, 512], "context_tokens": [1, 315], "batch": [1, 5]}
    result = experiment.run(scenario(tmp_path, "run.band=false", valid=valid))
    plain = result.document["rows"][0]
    # three prompts of 300 beside each other, of six users, to 320 tokens in the end
    assert plain["outside"]["batch"] == {"measured": [1, 5], "reached": 6}
    assert plain["outside"]["context_tokens"] == {"measured": [1, 315], "reached": 320}
    assert plain["outside"]["m"]["measured"] == [1, 512]
    assert 900 <= plain["outside"]["m"]["reached"] <= 1024
    within = experiment.run(scenario(tmp_path, "run.band=false"))
    assert [row["outside"] for row in within.document["rows"]] == [{}, {}]


def test_the_largest_step_counts_prompts_and_what_decodes_beside_them(tmp_path):
    # the second user comes while the first decodes
    users = "workload.arrivals={kind: closed_loop, users: 2, stagger_s: 0.01}"
    two = ("run.band=false", "workload.requests=2", users)
    made = experiment.run(scenario(tmp_path, *two, valid={"m": [1, 300]})).document["rows"]
    reached = {each["strategy"]: each["outside"]["m"]["reached"] for each in made}
    assert reached == {"autoregressive": 300 + 1, "ngram K=3": 300 + 4}


def test_a_run_says_which_kernels_it_had_no_rows_for(tmp_path):
    document = experiment.run(scenario(tmp_path, TABLE, "run.band=false")).document
    # the head was never timed, and the prompts are longer than any row
    assert document["rows"][0]["outside"] == {
        "kernels": [
            "gemm 128256 x 2048 (bf16)",
            "gemm 3072 x 2048 (bf16)",
            "gemm 2048 x 2048 (bf16)",
            "gemm 16384 x 2048 (bf16)",
            "gemm 2048 x 8192 (bf16)",
        ]
    }
    assert document["kernel_table"] == str(tmp_path / "mine.parquet")
    assert str(tmp_path / "mine.parquet") in manifest(document)["files"]
    text = " ".join(run_report(document, 200).split())
    assert "Closed form where the measured rows do not reach: gemm 128256 x 2048 (bf16)" in text
    assert "2048 x 2048 (bf16), gemm 16384 x 2048 (bf16) and 1 more." in text


def test_what_goes_beyond_is_told_once_for_all_rows():
    rows = [
        row("a", outside={"m": {"measured": [1, 4352], "reached": 5000}}),
        row("b", outside={"m": {"measured": [1, 4352], "reached": 8192}}),
        row("c", outside={}),
    ]
    (line,) = beyond(rows)
    assert line == (
        "Kernel times carried beyond their measurements: "
        "steps of up to 8192 tokens (measured to 4352)."
    )
    assert line in " ".join(run_report(document(rows), 100).split())
    assert beyond([row()]) == []


def test_sources_are_told_together_where_strategies_agree():
    one = {"weights": "measured rows", "kv": "closed form", "lm_head": "measured rows"}
    other = {"weights": "closed form", "kv": "closed form"}
    same = [row("a", kernels=one), row("b", kernels=one)]
    assert sources(same) == ["Kernel times: measured rows: weights, lm head; closed form: kv."]
    assert sources([*same, row("c", kernels=other)]) == [
        "Kernel times of a, b: measured rows: weights, lm head; closed form: kv.",
        "Kernel times of c: closed form: weights, kv.",
    ]


def test_the_printed_step_says_where_its_times_come_from(tmp_path):
    text = " ".join(explain_report(explain(scenario(tmp_path, TABLE), batch=8), 100).split())
    assert "Kernel times: measured rows: weights; closed form: attention, kv" in text


def test_a_price_that_is_not_known_makes_no_cost(tmp_path):
    free = experiment.run(scenario(tmp_path, "hardware.price_per_gpu_hour=0", "run.band=false"))
    assert [row["usd_per_million_tokens"] for row in free.document["rows"]] == [None, None]
    assert "no price" in run_report(free.document, 200)
    told = {item.what: item.value for item in assumptions(free.document)}
    assert told["price"] == "not known, so no cost"


def test_the_device_of_a_profile_is_named(tmp_path):
    box = catalog.entry("hardware", "h100_sxm") | {"name": "mybox", "price_per_gpu_hour": 0}
    made = scenario(tmp_path, "run.band=false", accelerator=box, device="mybox")
    result = experiment.run(made).document
    assert result["scenario"]["hardware"]["gpu"] == "mybox"
    assert "1 x mybox" in run_report(result, 100)
    told = {item.what: item for item in assumptions(result)}
    assert told["GPU"].source == "file of the user's own"
    assert told["price"].value == "not known, so no cost"
