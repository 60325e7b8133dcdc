"""The verbs ``calibrate show`` and ``calibrate device``."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from timed_rows import H100, PROFILE, enough_to_fit

from calibration.kernels import command, shipped
from calibration.kernels.device.resume import Partial, Timed
from models import catalog

pytestmark = pytest.mark.usefixtures("calibrate_declared")


def test_show_prints_constants_with_sources_and_how_to_get_the_figure(speccast):
    status, text, said = speccast("calibrate", "show", "h100_sxm")
    assert (status, said) == (0, "")
    for told in ("gemm.bf16.compute", "gemm.fp8.launch_us", "[1]", "se", "Holds for"):
        assert told in text
    assert "No figure" in text
    assert max(map(len, text.splitlines())) <= 100


def test_show_fits_a_narrow_screen(speccast, fitted):
    _, text, _ = speccast("calibrate", "show", fitted, "--width", 60)
    own = str(fitted.parent.parent)  # a path is never broken, however long
    assert max(len(line) for line in text.splitlines() if own not in line) <= 60


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
