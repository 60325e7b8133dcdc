"""What ``calibrate live`` writes runs as it is, and predicts what was fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from live_recordings import EAGLE, PLAIN, simulated

from calibration.live import recording
from calibration.live.compare.stages import compare
from calibration.live.fit import files, report
from calibration.live.fit.command import Asked, Calibrated, calibrate
from models import catalog
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.analysis.metrics import tpot_s
from sim.cli import main
from sim.scenario.build import build
from sim.scenario.load import load_scenario


def asked(folder: Path, hardware: str = "h100_sxm", **keys: object) -> Asked:
    return Asked((folder,), hardware, "llama-3.1-8b", engine="vllm_0.15", **keys)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[Calibrated, Path, Path]:
    """A recording of a simulated H100, and what is made of it by one who takes it for an H200."""
    folder = tmp_path_factory.mktemp("plain")
    runs, _ = simulated(folder, "concurrency", (1, 6), PLAIN, repeats=1)
    found = calibrate(asked(runs, "h200_sxm"))
    out = folder / "out" / "live.yaml"
    out.parent.mkdir()
    files.write(found, out, "speccast calibrate live runs")
    return found, out, runs


def test_the_files_load_and_predict_what_was_fitted(plain) -> None:
    """Constants are rounded to four digits when they are written."""
    found, out, runs = plain
    assert np.abs(found.fit.residuals).max() < 0.05
    seen = compare(recording.read(runs), load_scenario(out))
    moved = found.serving.moved(found.fit.factors)
    for case, row in zip(found.cases, seen.rows, strict=True):
        fitted = tpot_s(case.simulated(case.setup(moved))).mean()
        assert row.scores["tpot_s_mean"].predicted == pytest.approx(fitted, rel=2e-3)


def test_they_say_what_they_rest_on(plain) -> None:
    found, out, _ = plain
    scenario = load_scenario(out).points[0].scenario
    profile = build(scenario).profile
    engine = catalog.engine(str(out.parent / "live_engine.yaml"))
    assert profile.valid.batch == (1, 6)
    prompts = np.concatenate([case.requests.prompt_tokens for case in found.cases])
    assert profile.valid.context_tokens is not None
    assert profile.valid.context_tokens[0] == prompts.min()
    assert profile.provenance is not None
    assert profile.provenance.command == "speccast calibrate live runs"
    told = {one.name for one in found.fit.estimates if one.identified}
    launch = profile.gemm["bf16"].launch_us
    assert ("fixed" in told) == bool(launch.fitted_on and "concurrency=6" in launch.fitted_on)
    assert engine.name == "live_engine"
    (residual,) = profile.residuals
    assert residual.lo < 1 < residual.hi


def test_what_was_not_told_keeps_its_source(plain) -> None:
    found, out, _ = plain
    vague = {one.name for one in found.fit.estimates if not one.identified}
    shipped, live = catalog.profile("h200_sxm"), load_scenario(out).points[0].scenario
    profile = build(live).profile
    assert vague
    for share in vague & {"memory", "compute"}:
        before, after = (getattr(one.gemm["bf16"], share) for one in (shipped, profile))
        assert after == before
    text = report.report(found, 100)
    assert "Not identified by these stages" in text


def test_options_of_the_scenario_are_kept(tmp_path) -> None:
    runs, _ = simulated(tmp_path, "concurrency", (2,), PLAIN, repeats=1)
    found = calibrate(asked(runs, overrides=("model.weights=fp8", "engine.max_num_seqs=64")))
    out = tmp_path / "live.yaml"
    files.write(found, out, "")
    scenario = load_scenario(out).points[0].scenario
    assert (scenario.model.weights, scenario.engine.max_num_seqs) == ("fp8", 64)


def test_only_the_loads_asked_for_are_fitted(plain) -> None:
    _, _, runs = plain
    found = calibrate(asked(runs, loads=(6.0,)))
    assert [case.stage.point for case in found.cases] == [{"concurrency": 6}]
    with pytest.raises(ModelError, match=r"no such stage.*there are 1, 6, got 5$"):
        calibrate(asked(runs, loads=(1.0, 5.0)))


@pytest.mark.extras  # seconds of fits
def test_a_drafting_server_keeps_its_strategy_and_its_acceptance(tmp_path) -> None:
    runs, _ = simulated(tmp_path, "concurrency", (2,), EAGLE, repeats=1)
    stages = [one._replace(counters=COUNTED) for one in recording.read(runs).stages]
    seen = recording.read(runs)
    recording.write(runs, seen.about, stages, seen.runs)
    out = tmp_path / "live.yaml"
    files.write(calibrate(asked(runs)), out, "")
    written = yaml.safe_load(out.read_text("utf-8"))
    assert [one["kind"] for one in written["strategies"]] == ["autoregressive", "eagle3"]
    assert written["strategies"][1]["acceptance"] == {"alpha_by_pos": [0.7, 0.7, 0.7]}
    found = compare(recording.read(runs), load_scenario(out))
    assert found.mape("tpot_s_mean") < 0.08


COUNTED = {
    "spec_drafts": 1000.0,
    "spec_drafted": 3000.0,
    "spec_accepted": 1533.0,
    "spec_accepted_at_0": 700.0,
    "spec_accepted_at_1": 490.0,
    "spec_accepted_at_2": 343.0,
}


def test_wrong_options_end_in_one_line(plain, tmp_path, capsys) -> None:
    _, _, runs = plain
    wrong = [
        ("--transformer", "llama-3.1-8b", "--hardware", "h100"),
        ("--hardware", "h100_sxm", "--transformer", "llama"),
        ("--hardware", "h100_sxm", "--transformer", "llama-3.1-8b", "--strategy", "eagle9"),
        ("--hardware", "h100_sxm", "--transformer", "llama-3.1-8b", "--loads", "one"),
    ]
    for options in wrong:
        with pytest.raises(SystemExit) as ended:
            main(["calibrate", "live", str(runs), *options, "--out", str(tmp_path / "x.yaml")])
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"'{options[-1]}'" in line
    assert not (tmp_path / "x.yaml").exists()
    with pytest.raises(InputError, match="must end in \\.yaml"):
        files.check_out("x.json", [runs])


def test_a_server_that_drafts_is_not_fitted_as_plain_decoding(tmp_path) -> None:
    runs, _ = simulated(tmp_path, "concurrency", (2,), PLAIN, repeats=1)
    seen = recording.read(runs)
    stages = [one._replace(counters=COUNTED) for one in seen.stages]
    recording.write(runs, seen.about, stages, seen.runs)
    with pytest.raises(InputError, match="the server drafts 3 tokens a step, but is stated as"):
        calibrate(asked(runs))


@pytest.mark.extras  # seconds of fits
def test_a_calibration_to_another_machine_is_doubted(plain, tmp_path) -> None:
    _, _, runs = plain
    found = calibrate(Asked((runs,), "h100_sxm", "llama-160m", engine="vllm_0.15"))
    text = report.report(found, 100)
    assert "Is it this hardware" in text or "Do not rely on this calibration" in text
