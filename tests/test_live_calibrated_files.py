"""What ``calibrate live`` writes of a recording is its own, whole, and said to be what it is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_recordings import PLAIN, about, by_hand, observation, simulated

from calibration.live import notebook, recording
from calibration.live.fit import command, constants, document, files
from calibration.live.fit.command import Asked, Calibrated, calibrate
from calibration.live.fit.constants import Loads
from calibration.live.fit.estimate import Estimate, Fit
from calibration.live.fit.knobs import Factors
from calibration.live.fit.prepared import belonging
from calibration.live.fit.stages import FLOOR, pools
from calibration.live.recording import Stage
from models import acceptance_file, catalog
from models.schema import ModelError
from models.strict_yaml import InputError, load_yaml
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.tables import RunTable

COUNTED = {
    "spec_drafts": 1000.0,
    "spec_drafted": 3000.0,
    "spec_accepted": 1200.0,
    "spec_accepted_at_0": 700.0,
    "spec_accepted_at_1": 400.0,
    "spec_accepted_at_2": 100.0,
}


def asked(folder: Path, hardware: str = "h100_sxm", **keys: object) -> Asked:
    return Asked((folder,), hardware, "llama-3.1-8b", engine="vllm_0.15", **keys)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def unmoved(monkeypatch) -> None:
    """A fit that finds everything as it was known: most of the time goes into fits."""

    def met(cases: Sequence[Any], *_: object) -> Fit:
        estimates = tuple(Estimate(name, 1.0, 0.1, 1.0, False) for name in Factors._fields)
        pooled = pools(cases)
        return Fit(estimates, pooled, np.zeros(len(pooled)), np.zeros(len(pooled)))

    monkeypatch.setattr(command, "fit", met)


def handed(folder: Path, *stages: Stage, n: int = 4, output: int = 11) -> Path:
    """A recording of requests made by hand."""
    tables = [by_hand(n, output=output) for _ in stages]
    runs = observation(stages, tables).runs
    recording.write(folder, about(PLAIN), stages, runs)
    return folder


def written(found: Calibrated, folder: Path) -> Path:
    out = folder / "live.yaml"
    files.write(found, out, "speccast calibrate live")
    return out


def test_a_strategy_stated_anew_is_called_by_what_it_is(tmp_path):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    seen = recording.read(runs)
    stages = [stage._replace(counters=COUNTED) for stage in seen.stages]
    recording.write(runs, seen.about, stages, seen.runs)
    found = calibrate(asked(runs, strategy="eagle3", k=3))
    assert list(found.blocks) == ["eagle3 K=3"]
    scenario = load_scenario(written(found, tmp_path)).points[0].scenario
    assert [one.name for one in scenario.strategies] == ["autoregressive", "eagle3 K=3"]


def test_a_scenario_that_cannot_be_is_refused_before_the_fit(tmp_path, monkeypatch):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    monkeypatch.setattr(command, "fit", lambda *_: pytest.fail("fitted"))
    monkeypatch.setattr(command, "_label", lambda *_: "autoregressive")
    block = "{kind: eagle3, k: 3, acceptance: {tau: 2.0}}"
    with pytest.raises(InputError, match=r"^the scenario to write: strategies: two") as error:
        calibrate(asked(runs, strategy=block))
    assert str(tmp_path) not in str(error.value)


def test_a_gpu_without_a_profile_of_its_own_stays_that_gpu(tmp_path):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    out = written(calibrate(asked(runs, "h100_pcie")), tmp_path)
    scenario = load_scenario(out).points[0].scenario
    assert scenario.hardware.gpu == "h100_pcie"
    assert build(scenario).accelerator.name == "h100_pcie"
    assert build(scenario).profile.device == "h100_pcie"


def test_requests_of_one_token_leave_the_residual_as_it_was(tmp_path):
    stage = Stage({"concurrency": 1}, 0, "autoregressive")
    found = calibrate(asked(handed(tmp_path / "runs", stage, output=1)))
    profile = build(load_scenario(written(found, tmp_path)).points[0].scenario).profile
    assert profile.residuals == catalog.profile("h100_sxm").residuals


def test_steps_that_would_make_the_acceptance_too_large_are_left_out(tmp_path, monkeypatch):
    acceptance = acceptance_file.AcceptanceFile.model_validate(
        {
            **{"version": 1, "title": "t", "target": "llama-3.1-8b", "date": "2026-11-30"},
            "source": "s",
            "entries": {
                "eagle3 K=3": {
                    "strategy": {"kind": "eagle3", "k": 3},
                    "acceptance": {"alpha": 0.7},
                    "replay": {"text": {"accepted": ["1 2 " * 50_000 + "1"] * 6}},
                }
            },
        }
    )
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    told = command.Accepted({"file": "x", "entry": "eagle3 K=3"}, acceptance)
    monkeypatch.setattr(document, "load_scenario", lambda *_: None)
    monkeypatch.setattr(
        command, "accepted", lambda _, block, *__: told if "k" in block else command.Accepted({})
    )
    monkeypatch.setattr(command, "_with", lambda *_: {"kind": "autoregressive"})
    found = calibrate(asked(runs, strategy="eagle3", k=3))
    out = written(found, tmp_path)
    assert "over 1 MB" in out.read_text("utf-8")
    entry = acceptance_file.read(tmp_path / "live_acceptance.yaml").entries["eagle3 K=3"]
    assert (entry.replay, entry.acceptance.alpha) == ({}, 0.7)


def test_the_residual_counts_loads_not_repeats(tmp_path):
    stages = [Stage({"concurrency": 1}, i, "autoregressive") for i in range(8)]
    found = calibrate(asked(handed(tmp_path / "runs", *stages)))
    profile = build(load_scenario(written(found, tmp_path)).points[0].scenario).profile
    (row,) = profile.residuals
    assert row.rows == 1
    # However well a single load is met, the model itself is no better than on published runs.
    assert np.log(row.hi) >= 1.64 * FLOOR["tpot_s"]


def test_the_residual_is_of_the_type_that_is_computed_in(tmp_path):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    out = written(calibrate(asked(runs, overrides=("model.weights=int4",))), tmp_path)
    (row,) = build(load_scenario(out).points[0].scenario).profile.residuals
    assert row.dtype == "bf16"


def test_files_of_others_are_never_replaced(tmp_path):
    foreign = tmp_path / "live_lengths.csv"
    foreign.write_text("mine", "utf-8")
    out = tmp_path / "live.yaml"
    with pytest.raises(InputError, match=r"live_lengths.csv', which no `speccast calibrate live`"):
        files.check_out(str(out), [])
    out.write_text("strategies: []\n", "utf-8")
    with pytest.raises(InputError, match=r"live.yaml', which no"):
        files.check_out(str(out), [])
    out.write_text(files.HEAD, "utf-8")
    assert files.check_out(str(out), []) == out
    profile = tmp_path / "live_profile.yaml"
    profile.write_text("mine", "utf-8")
    for mine in (
        asked(tmp_path, str(profile)),
        asked(tmp_path, overrides=(f"hardware.profile={profile}",)),
    ):
        with pytest.raises(InputError, match="would replace the input file"):
            files.check_out(str(out), files.inputs_of(mine))


def test_notebooks_replace_no_file_of_others_either(tmp_path):
    (tmp_path / "live.yaml").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="which no `speccast calibrate live` left"):
        notebook.calibrate(
            tmp_path, tmp_path / "live.yaml", hardware="h100_sxm", transformer="llama-3.1-8b"
        )


def test_a_rate_is_as_many_at_a_time_as_were_served(tmp_path):
    runs, _ = simulated(tmp_path, "rate_per_s", (20.0,), PLAIN, repeats=1)
    found = calibrate(asked(runs))
    (case,) = found.cases
    arrived, left = case.columns["arrival_s"], case.columns["finish_s"]
    peak = max(int(((arrived <= at) & (left > at)).sum()) for at in arrived)
    assert peak > 1
    loads = Loads.of(found.cases)
    assert loads.batch == (peak, peak)
    profile = build(load_scenario(written(found, tmp_path)).points[0].scenario).profile
    assert profile.valid.m[1] > loads.prompt_tokens[1]


def test_the_profile_says_which_server_was_seen_when_and_where(tmp_path):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    out = written(calibrate(asked(runs)), tmp_path)
    profile = build(load_scenario(out).points[0].scenario).profile
    engine = catalog.engine(str(tmp_path / "live_engine.yaml"))
    assert profile.date == "2026-11-30"
    assert profile.provenance is not None
    said = f"{runs} of 2026-11-30: vllm 0.32.0 with llama-3.1-8b, tp 1 on one H100"
    for text in (profile.source, profile.provenance.package, engine.source):
        assert said in text


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("server.engine", {"server": {"engine": "sglang", "version": "0.32.0"}}),
        ("server.version", {"server": {"engine": "vllm", "version": "0.33.0"}}),
        ("target", {"target": "smol"}),
        ("machine", {"machine": "one A100"}),
        ("sampling", {"options": {"body": {"temperature": 0}}}),
    ],
)
def test_observations_of_other_servers_are_refused(key, changes):
    one = observation([Stage({"concurrency": 1}, 0, "autoregressive")], [by_hand(2)])
    other = one._replace(about=one.about | changes, folder=Path("others"))
    with pytest.raises(InputError, match=rf"others/run.json: {key}: must be .* as in runs, got"):
        belonging([one, other])
    belonging([one, one._replace(about=one.about | {"machine": ""})])


def test_a_calibration_refuses_folders_of_two_servers(tmp_path):
    stage = Stage({"concurrency": 1}, 0, "autoregressive")
    folders = (handed(tmp_path / "one", stage), handed(tmp_path / "other", stage))
    seen = recording.read(folders[1])
    recording.write(folders[1], seen.about | {"machine": "one A100"}, seen.stages, seen.runs)
    with pytest.raises(InputError, match="machine: must be"):
        calibrate(asked(tmp_path)._replace(folders=folders))


def test_no_answer_at_all_is_not_blamed_on_an_option(tmp_path):
    table = by_hand(2) | {"status": np.full(2, 3, dtype=np.int8)}
    stage = Stage({"concurrency": 1}, 0, "autoregressive")
    run = RunTable(stage.point, stage.strategy, 0, table)
    recording.write(tmp_path / "runs", about(PLAIN), [stage], [run])
    with pytest.raises(ModelError, match="there are none") as error:
        calibrate(asked(tmp_path / "runs"))
    assert error.value.key == "requests"


def test_lengths_are_those_of_the_stages_fitted_one_after_another(tmp_path):
    stages = [Stage({"concurrency": load}, 0, "autoregressive") for load in (1, 2, 4)]
    tables = [by_hand(4) | {"prompt_tokens": np.full(4, 100 * n)} for n in (1, 2, 3)]
    recording.write(tmp_path / "runs", about(PLAIN), stages, observation(stages, tables).runs)
    out = written(calibrate(asked(tmp_path / "runs", loads=(1.0, 4.0))), tmp_path)
    with (tmp_path / "live_lengths.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["prompt_tokens"] for row in rows] == ["100"] * 4 + ["300"] * 4
    times = [float(row["arrival_s"]) for row in rows]
    assert times == sorted(set(times))
    assert load_yaml(out.read_text("utf-8"), "").data["workload"]["requests"] == 8


def test_of_a_trace_the_first_stage_fitted_is_written(tmp_path):
    stages = [Stage({"rate_scale": scale}, 0, "autoregressive") for scale in (1, 2, 4)]
    tables = [by_hand(4) | {"prompt_tokens": np.full(4, 100 * n)} for n in (1, 2, 3)]
    recording.write(tmp_path / "runs", about(PLAIN), stages, observation(stages, tables).runs)
    written(calibrate(asked(tmp_path / "runs", loads=(2.0, 4.0))), tmp_path)
    lines = (tmp_path / "live_lengths.csv").read_text("utf-8").splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["200"] * 4


def test_a_constant_that_did_not_move_keeps_its_source(tmp_path):
    runs = handed(tmp_path / "runs", Stage({"concurrency": 1}, 0, "autoregressive"))
    profile = build(load_scenario(written(calibrate(asked(runs)), tmp_path)).points[0].scenario)
    assert profile.profile.gemm == catalog.profile("h100_sxm").gemm
    engine = catalog.engine(str(tmp_path / "live_engine.yaml"))
    assert engine.constants == catalog.engine("vllm_0.15").constants


def test_host_constants_move_with_the_host():
    hosts = {key for key, factor in constants.HOST.items() if factor == "host"}
    assert hosts == {"host_plain.per_step_us", "host_speculative.per_step_us"}
