"""What ``calibrate kernels`` lists, and what it refuses."""

from __future__ import annotations

import json

import pytest
from timed_rows import enough_to_fit

from calibration.kernels import command, output, rows
from models import catalog

pytestmark = pytest.mark.usefixtures("calibrate_declared")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "none.csv", "--gpu", "h100_sxm"], "none.csv: no such file"),
        (["--rows", "none.csv"], "--gpu: --rows needs the GPU"),
        (["--rows", "none.csv", "--gpu", "h10_sxm"], "did you mean 'h100_sxm'?"),
        (["--rows", "none.csv", "--system", "h100_sxm"], "--rows: excludes"),
        (["--rows", "none.csv", "--engine", "vllm/0.24.0"], "--rows: excludes --engine"),
        (["--shipped", "--system", "h100_sxm"], "--shipped: excludes --system"),
        (["--shipped", "--engine", "vllm"], "--shipped: excludes --engine"),
        (["--shipped", "--rows", "a.csv", "--gpu", "l40s"], "excludes --rows and --gpu"),
        (["--shipped", "--json"], "--shipped: excludes --json"),
        (["--shipped", "--out", "mine.yaml"], "--shipped: excludes --out"),
        (["--gpu", "l40s"], "--gpu: goes with --rows"),
        (["--out", "mine.yaml"], "--out: there is nothing to fit"),
        (["--system", "h100_sxm", "--out", "mine.yaml"], "--out: there is nothing to fit"),
        (["--engine", "vllm/0.24.0", "--date", "2026-11-29"], "--date: there is nothing to fit"),
        (["--system", "h100_sxm", "--engine", "vllm"], "must be as in vllm/0.24.0, got 'vllm'"),
        (["--system", "h100_sxm", "--engine", "vllm/0.24.0", "--gpu", "l40s"], "--gpu: goes with"),
        (["--rows", "{timings}", "--gpu", "h100_sxm", "--out", "mine.txt"], "must end in .yaml"),
        (["--rows", "{timings}", "--gpu", "h100_sxm", "--date", "yesterday"], "got 'yesterday'"),
    ],
)
def test_bad_options_are_refused_in_one_line(speccast, timings, arguments, said):
    given = [timings if argument == "{timings}" else argument for argument in arguments]
    status, text, error = speccast("calibrate", "kernels", *given)
    assert (status, text) == (2, "")
    assert said in error
    assert error.count("\n") == 1


def test_bad_input_leaves_nothing_written(speccast, timings, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text(timings.read_text("utf-8").replace("gemm,", "gem,", 1), "utf-8")
    out = tmp_path / "out" / "mine.yaml"
    status, _, said = speccast(
        "calibrate", "kernels", "--rows", bad, "--gpu", "h100_sxm", "--out", out
    )
    assert status == 2
    assert "bad.csv:2: operation" in said
    assert not out.parent.exists()


def test_tables_that_are_not_installed_are_a_failure_that_names_the_extra(speccast, monkeypatch):
    monkeypatch.setattr(command.aiconfigurator, "find_spec", lambda name: None)
    for arguments in ([], ["--system", "h100_sxm", "--engine", "vllm/0.24.0"]):
        status, text, said = speccast("calibrate", "kernels", *arguments)
        assert (status, text) == (1, "")
        assert "pip install 'speccast[tables]'" in said


def test_without_a_system_it_lists_what_the_tables_hold(speccast, monkeypatch):
    tables = {"vllm/0.24.0": ["gemm", "attention"], "nccl/2.27": ["all_reduce"]}
    monkeypatch.setattr(command.aiconfigurator, "systems", lambda: ["h100_sxm", "l40s"])
    monkeypatch.setattr(command.aiconfigurator, "versions", lambda system: tables)
    status, text, _ = speccast("calibrate", "kernels")
    assert status == 0
    assert text.count("vllm/0.24.0") == 2
    assert "gemm, attention" in text
    assert "nccl" not in text


@pytest.fixture
def tables(monkeypatch):
    """What the tables hold, of two GPUs of the catalogue and one that it has not."""
    found = {
        "sglang/0.5.6": ["gemm", "all_reduce"],
        "sglang/0.5.14": ["gemm", "attention"],
        "vllm/0.22.0": ["attention"],
        "vllm/0.24.0": ["gemm", "attention"],
    }
    monkeypatch.setattr(command.aiconfigurator, "systems", lambda: ["a100_sxm", "b60", "l40s"])
    monkeypatch.setattr(command.aiconfigurator, "versions", lambda system: found)


def test_only_tables_that_can_be_fitted_are_listed(speccast, tables):
    _, text, _ = speccast("calibrate", "kernels")
    listed = [line.split()[:2] for line in text.splitlines() if "/" in line]
    assert listed == [
        [system, engine]
        for system in ("a100_sxm", "l40s")
        for engine in ("sglang/0.5.14", "vllm/0.24.0")
    ]


@pytest.mark.parametrize("engine", ["vllm", "vllm/0.24.0"])
def test_an_engine_alone_chooses_what_is_listed(speccast, tables, engine):
    status, text, _ = speccast("calibrate", "kernels", "--engine", engine)
    assert status == 0
    assert text.count("vllm/0.24.0") == 2
    assert "sglang" not in text


def test_the_listing_as_json_is_json(speccast, tables):
    status, text, said = speccast("calibrate", "kernels", "--system", "l40s", "--json")
    assert (status, said) == (0, "")
    assert json.loads(text)["tables"] == [
        {"system": "l40s", "engine": engine, "operations": ["gemm", "attention"]}
        for engine in ("sglang/0.5.14", "vllm/0.24.0")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "vlm"], "of 'vlm'; there are sglang/0.5.14, vllm/0.24.0"),
        (["--system", "b60"], "no accelerator for the tables of 'b60'"),
    ],
)
def test_a_listing_of_nothing_is_refused(speccast, tables, arguments, message):
    status, text, said = speccast("calibrate", "kernels", *arguments)
    assert (status, text, said.count("\n")) == (2, "", 1)
    assert message in said


def test_rows_of_another_gpu_are_refused_by_the_name_of_their_device(speccast, tmp_path):
    path = tmp_path / "a.parquet"
    for device, gpu, wrong in (
        ("h100_sxm", "h200_sxm", True),
        ("a100_sxm", "h100_sxm", True),
        ("h100_sxm", "h100_sxm", False),
        ("my box", "h100_sxm", False),
    ):
        rows.write(enough_to_fit().assign(device=device), path)
        status, _, said = speccast("calibrate", "kernels", "--rows", path, "--gpu", gpu)
        assert status == (2 if wrong else 0)
        text = f"{path}: device: rows were timed on '{device}', but --gpu says '{gpu}'"
        assert (text in said) == wrong


def test_times_in_another_unit_are_refused_under_the_name_of_the_file(speccast, tmp_path):
    path, timed = tmp_path / "a.parquet", enough_to_fit()
    slow = (timed["operation"] == "attention").map({True: 1e3, False: 1.0})
    rows.write(timed.assign(time_s=slow * timed["time_s"]), path)
    status, _, said = speccast("calibrate", "kernels", "--rows", path, "--gpu", "h100_sxm")
    assert status == 2
    assert said.startswith(f"{path}: times of attention are about 1000 times too long")
    assert "time_s" not in said


def test_rows_faster_than_the_gpu_they_are_said_to_be_of_are_refused(speccast, timings):
    status, text, said = speccast("calibrate", "kernels", "--rows", timings, "--gpu", "l40s")
    assert (status, text, said.count("\n")) == (2, "", 1)
    assert "faster than the datasheet of l40s; is --gpu right?" in said


def test_a_profile_fitted_again_to_its_own_rows_is_the_same(tmp_path):
    timed = enough_to_fit()
    timed.loc[5, "time_s"] *= 20
    first = timed[timed["operation"] == "gemm"].iloc[:40]
    other = first.assign(kernel="another", time_s=1.5 * first["time_s"])
    given, paths = tmp_path / "given.parquet", []
    rows.write(rows.join([timed, other]), given)
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
        out = tmp_path / folder / "mine.yaml"
        source = command.Source(None, None, (given,), "h100_sxm")
        found = command.fit(source, out, "2026-11-29")
        output.write(found.profile, found.rows, out)
        paths.append(out)
        given = out.with_suffix(".parquet")
    profiles = [catalog.profile(str(path)) for path in paths]
    assert {"another kernel", "2x off the roofline"} <= set(rows.read(given)["flag"])
    assert profiles[1] == profiles[2]
    assert profiles[1].provenance.tables == profiles[0].provenance.tables
    assert profiles[1].model_copy(update={"provenance": None}) == profiles[0].model_copy(
        update={"provenance": None}
    )
    first, again = (rows.read(path.with_suffix(".parquet")) for path in paths[:2])
    assert again.drop(columns=["device", "source"]).equals(first.drop(columns=["device", "source"]))
