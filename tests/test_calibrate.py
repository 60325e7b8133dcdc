"""The verb ``calibrate kernels``: what it prints and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from timed_rows import PROFILE, enough_to_fit

from calibration.kernels import output, rows
from models import catalog
from sim import cli, experiment
from sim.kernel_rows import kernel_table
from sim.scenario.load import load_scenario

pytestmark = pytest.mark.usefixtures("calibrate_declared")

SCENARIO = """\
hardware: {{profile: {profile}}}
model: {{transformer: llama-3.1-8b}}
workload:
  arrivals: {{kind: poisson, rate_per_s: 4}}
  requests: 20
  streams:
    - prompt_tokens: {{kind: fixed, value: 100}}
      output_tokens: {{kind: fixed, value: 20}}
strategies: [{{kind: autoregressive}}]
"""


def test_pyproject_declares_the_verb():
    text = (Path(cli.__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert '[project.entry-points."speccast.verbs"]\ncalibrate = "calibration.cli:app"' in text


def test_listing_the_verb_loads_no_numeric_library():
    code = (
        "import sys, calibration.cli\n"
        "heavy = {'scipy', 'pandas', 'matplotlib', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_kernels_prints_errors_constants_and_what_was_left_out(speccast, timings, tmp_path):
    out = tmp_path / "mine.yaml"
    status, text, said = speccast(
        "calibrate", "kernels", "--rows", timings, "--gpu", "h100_sxm", "--out", out
    )
    assert (status, said) == (0, f"wrote {out}, {out.with_suffix('.parquet')}\n")
    for told in ("held-out", "decode", "verify", "prefill", "gemm.bf16.compute", "roofline"):
        assert told in text
    assert "2x off the roofline" in text
    assert catalog.profile(str(out)).name == "mine"
    assert catalog.profile(str(out)).table == "mine.parquet"


def test_fitted_constants_are_those_the_rows_were_made_with(fitted):
    found = catalog.profile(str(fitted))
    for name in ("compute", "memory"):
        constant = getattr(found.gemm["bf16"], name)
        assert constant.value == pytest.approx(getattr(PROFILE.gemm["bf16"], name).value, rel=0.05)
        assert constant.se is not None
    assert found.provenance is not None
    assert found.provenance.command == "speccast calibrate kernels --rows timed.csv --gpu h100_sxm"


def test_all_rows_lie_beside_the_profile_with_the_reason_of_those_left_out(fitted):
    timed = rows.read(fitted.with_suffix(".parquet"))
    assert len(timed) == len(enough_to_fit())
    assert timed["flag"][5] == "2x off the roofline"


def test_rows_beside_a_profile_stand_in_for_the_kernel_that_an_engine_runs(fitted, tmp_path):
    profile, timed = catalog.profile(str(fitted)), rows.read(fitted.with_suffix(".parquet"))
    links, dense = (timed[timed["operation"] == name] for name in ("all_reduce", "gemm"))
    eager = links.assign(kernel="vllm_eager", time_s=5 * links["time_s"])
    other = dense.iloc[:3].assign(kernel="another", time_s=5 * dense["time_s"].iloc[:3])
    output.write(profile, rows.join([timed, eager, other]), tmp_path / "mine.yaml")
    again = kernel_table(tmp_path / "mine.parquet")
    alone = kernel_table(fitted.with_suffix(".parquet"))
    assert again.all_reduce[2].seconds.tolist() == alone.all_reduce[2].seconds.tolist()
    assert {shape: c.seconds.tolist() for shape, c in again.gemm["bf16"].curves.items()} == {
        shape: c.seconds.tolist() for shape, c in alone.gemm["bf16"].curves.items()
    }
    kept = rows.read(tmp_path / "mine.parquet")
    assert (kept["flag"] == "another kernel").sum() == len(eager) + len(other)


def test_a_written_profile_serves_a_what_if(fitted, tmp_path):
    path = tmp_path / "whatif.yaml"
    path.write_text(SCENARIO.format(profile=fitted), "utf-8")
    (row,) = experiment.run(load_scenario(path)).document["rows"]
    assert row["tpot_s"]["mean"] > 0


def test_kernels_as_json_holds_profile_scores_and_flags(speccast, timings):
    status, text, said = speccast(
        *("calibrate", "kernels", "--rows", timings, "--gpu", "h100_sxm", "--json")
    )
    document = json.loads(text)
    assert (status, said) == (0, "")
    assert {"profile", "held_out", "flagged"} == set(document)
    assert document["profile"]["device"] == "h100_sxm"
    assert {"operation", "dtype", "what", "m", "median", "p90"} <= set(document["held_out"][0])
    assert document["flagged"][0]["flag"] == "2x off the roofline"


def test_an_existing_profile_is_replaced_and_an_input_never(speccast, timings, tmp_path):
    arguments = ("calibrate", "kernels", "--rows", timings, "--gpu", "h100_sxm", "--out")
    out = tmp_path / "mine.yaml"
    out.write_text("old", "utf-8")
    assert speccast(*arguments, out)[0] == 0
    assert out.read_text("utf-8") != "old"
    own = tmp_path / "own.parquet"
    rows.write(enough_to_fit(), own)
    before = own.read_bytes()
    status, text, said = speccast(
        *("calibrate", "kernels", "--rows", own, "--gpu", "h100_sxm"),
        *("--out", own.with_suffix(".yaml")),
    )
    assert (status, text) == (2, "")
    assert "would replace the input file" in said
    assert own.read_bytes() == before
