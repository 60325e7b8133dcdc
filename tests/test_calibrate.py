"""The verb ``calibrate``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from timed_rows import H100, PROFILE, enough_to_fit

from calibration.kernels import command, output, rows, shipped
from calibration.kernels.device.resume import Partial, Timed
from models import catalog
from sim import cli, experiment, verbs
from sim.kernel_rows import kernel_table
from sim.scenario.load import load_scenario

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


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """The verb as an installed package declares it."""
    verb = EntryPoint("calibrate", "calibration.cli:app", verbs.GROUP)

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [verb] if group == verbs.GROUP and name in (None, verb.name) else []

    monkeypatch.setattr(verbs, "entry_points", found)


@pytest.fixture
def speccast(capsys):
    """Run the command line in this process: status, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def timings(tmp_path_factory) -> Path:
    """A CSV of our own columns, one row of it far too slow."""
    timed = enough_to_fit()
    timed.loc[5, "time_s"] *= 20
    path = tmp_path_factory.mktemp("timed") / "timed.csv"
    filled = timed.drop(columns=["flag", "source", "spread"])
    filled.loc[:, (filled != 0).any()].to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(timings, tmp_path_factory) -> Path:
    """A profile fitted to it, its rows beside it."""
    path = tmp_path_factory.mktemp("fitted") / "mine.yaml"
    found = command.fit(command.Source(None, None, (timings,), "h100_sxm"), path, "2026-11-29")
    output.write(found.profile, found.rows, path)
    return path


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


def test_show_prints_constants_with_sources_and_how_to_get_the_figure(speccast):
    status, text, said = speccast("calibrate", "show", "h100_sxm")
    assert (status, said) == (0, "")
    for told in ("gemm.bf16.compute", "gemm.fp8.launch_us", "[1]", "se", "Holds for"):
        assert told in text
    assert "No figure" in text
    assert max(map(len, text.splitlines())) <= 100


def test_show_fits_a_narrow_screen(speccast, fitted):
    _, text, _ = speccast("calibrate", "show", fitted, "--width", 60)
    assert max(map(len, text.splitlines())) <= 60


def test_show_draws_measured_against_fitted(speccast, fitted, tmp_path):
    pictures = []
    for name in ("one.svg", "two.svg"):
        path = tmp_path / name
        status, text, said = speccast("calibrate", "show", fitted, "--figure", path)
        assert (status, said) == (0, f"wrote {path}\n")
        assert "measured / fitted" in text
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    assert b"Decode attention" in pictures[0]


def test_show_as_json_is_the_profile(speccast, fitted):
    status, text, _ = speccast("calibrate", "show", fitted, "--json")
    document = json.loads(text)
    assert status == 0
    assert (document["name"], document["version"]) == ("mine", 2)


def test_a_figure_needs_rows_and_a_known_ending(speccast, fitted, tmp_path):
    status, text, said = speccast("calibrate", "show", "h100_sxm", "--figure", tmp_path / "a.svg")
    assert (status, text) == (2, "")
    assert "do not lie beside it" in said
    status, _, said = speccast("calibrate", "show", fitted, "--figure", tmp_path / "a.pdf")
    assert status == 2
    assert "must end in .svg or .png" in said
    assert not list(tmp_path.iterdir())


def test_shipped_profiles_are_written_where_the_catalogue_reads_them(
    speccast, monkeypatch, tmp_path
):
    def written(folder, *, speccast, date):
        path = Path(folder) / "h100_sxm.yaml"
        path.write_text(date, "utf-8")
        return [(path, PROFILE, [])]

    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "calibrate_shipped", written)
    status, text, said = speccast("calibrate", "kernels", "--shipped", "--date", "2026-11-29")
    assert (status, text) == (0, "")
    assert said == f"wrote {tmp_path / 'h100_sxm.yaml'}\n"
    assert (tmp_path / "h100_sxm.yaml").read_text("utf-8") == "2026-11-29"
    assert {one.name for one in shipped.shipped()} <= set(catalog.names("hardware"))


def test_device_times_fits_writes_and_ends_with_a_line_of_json(speccast, monkeypatch, tmp_path):
    out, asked = tmp_path / "box.yaml", {}

    def measured(device, transformer, tp, path, options, on_progress, note):
        asked.update(device=device, tp=tp, quick=options.quick, threads=options.threads)
        note("a kernel is left out")
        partial = tmp_path / "box.yaml.partial"
        partial.write_text("rows so far", "utf-8")
        return SimpleNamespace(
            rows=enough_to_fit(), accelerator=H100, summary={"rows": 7}, partial=partial, left=0
        )

    monkeypatch.setattr("calibration.kernels.device.run.calibrate_device", measured)
    status, text, said = speccast(
        *("calibrate", "device", "--device", "cpu", "--quick", "--threads", 2, "--out", out)
    )
    assert status == 0
    assert asked == {"device": "cpu", "tp": 1, "quick": True, "threads": 2}
    assert json.loads(text.splitlines()[-1]) == {"rows": 7, "profile": str(out)}
    assert said == f"a kernel is left out\nwrote {out}, {out.with_suffix('.parquet')}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box.parquet", "box.yaml"]
    assert catalog.profile(str(out)).table == "box.parquet"


def test_device_refuses_a_place_it_cannot_write_before_it_measures(speccast, tmp_path):
    (tmp_path / "box.yaml").mkdir()
    status, text, said = speccast(
        "calibrate", "device", "--device", "cpu", "--out", tmp_path / "box.yaml"
    )
    assert (status, text) == (2, "")
    assert "would replace the folder" in said


@pytest.mark.parametrize("kept", [3, 0])
def test_device_interrupted_says_what_is_kept_and_how_to_go_on(
    speccast, monkeypatch, tmp_path, kept
):
    out = tmp_path / "box.yaml"
    partial = tmp_path / "box.yaml.partial"

    def interrupted(*given):
        run = Partial(partial, {})
        for index in range(kept):
            run.append(Timed(str(index), 1e-3, 0.1))
        raise KeyboardInterrupt

    monkeypatch.setattr("calibration.kernels.device.run.calibrate_device", interrupted)
    status, text, said = speccast("calibrate", "device", "--device", "cpu", "--out", out)
    assert (status, text) == (130, "")
    assert said == (
        f"interrupted: 3 kernels are kept in {partial}; the same command goes on from there\n"
        if kept
        else "interrupted: no kernel was timed yet\n"
    )


def test_device_out_of_time_says_what_is_kept(speccast, monkeypatch, tmp_path):
    few, out = enough_to_fit().iloc[:2], tmp_path / "box.yaml"
    partial = tmp_path / "box.yaml.partial"

    def measured(*given):
        run = Partial(partial, {})
        run.append(Timed("one", 1e-3, 0.1))
        return SimpleNamespace(rows=few, accelerator=H100, summary={}, partial=partial, left=9)

    monkeypatch.setattr("calibration.kernels.device.run.calibrate_device", measured)
    status, text, said = speccast("calibrate", "device", "--device", "cpu", "--out", out)
    assert (status, text) == (2, "")
    assert said.startswith("--budget-s: too short for a profile (gemm: ")
    assert f"1 kernels timed so far are kept in {partial}, 9 are left: run the same" in said
    assert said.count("\n") == 1
    assert partial.exists()
