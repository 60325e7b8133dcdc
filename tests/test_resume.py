"""``--resume``: an interrupted grid, resumed, gives the bytes of one that ran through."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim import cli, experiment, manifest
from sim.engine import step_rows
from sim.output import FILES

TEXT = """\
# Where does it end?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  requests: 40
  streams:
    - name: chat
      share: 0.7
      prompt_tokens: {kind: fixed, value: 200}
      output_tokens: {kind: fixed, value: 20}
    - name: code
      share: 0.3
      prompt_tokens: {kind: fixed, value: 900}
      output_tokens: {kind: fixed, value: 9}
strategies:
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
  - {kind: autoregressive}
run: {replications: 2, band: false}
vary: {workload.arrivals.rate_per_s: [4, 8, 16]}
"""
RUNS_A_POINT = 4

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def speccast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Run the grid in a folder of its own; ``stop`` interrupts the run of that number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(step_rows, "CHUNK_STEPS", 300)
    Path("grid.yaml").write_text(TEXT, "utf-8")
    simulate = experiment.simulate

    def call(*arguments: str, stop: int | None = None) -> tuple[int, str, str]:
        started = 0

        def counted(*given: Any, **named: Any) -> Any:
            nonlocal started
            started += 1
            if started == stop:
                raise KeyboardInterrupt
            return simulate(*given, **named)

        monkeypatch.setattr(experiment, "simulate", counted)
        with pytest.raises(SystemExit) as left:
            cli.main(["run", "grid.yaml", *arguments])
        captured = capsys.readouterr()
        call.simulated = started
        return int(left.value.code or 0), captured.out, captured.err

    return call


def contents(folder: str) -> dict[str, bytes]:
    return {name: (Path(folder) / name).read_bytes() for name in FILES}


@pytest.mark.parametrize(("stop", "complete"), [(3, 0), (5, 1), (7, 1), (9, 2), (12, 2)], ids=str)
def test_a_resumed_grid_is_the_same_to_the_byte(speccast: Call, stop: int, complete: int) -> None:
    status, whole, _ = speccast("--out", "whole")
    assert (status, speccast.simulated) == (0, 3 * RUNS_A_POINT)
    speccast("--out", "parts", stop=stop)
    assert json.loads(contents("parts")["manifest.json"])["interrupted"]
    status, resumed, err = speccast("--out", "parts", "--resume")
    assert (status, err) == (0, "wrote parts\n")
    assert speccast.simulated == (3 - complete) * RUNS_A_POINT
    assert resumed == whole
    assert contents("parts") == contents("whole")


def test_it_may_be_interrupted_again(speccast: Call) -> None:
    speccast("--out", "whole")
    speccast("--out", "parts", stop=6)
    once = contents("parts")
    speccast("--out", "parts", "--resume", stop=1)
    assert contents("parts") == once
    speccast("--out", "parts", "--resume", stop=7)
    assert speccast("--out", "parts", "--resume")[0] == 0
    assert speccast.simulated == RUNS_A_POINT
    assert contents("parts") == contents("whole")


def test_what_is_complete_is_not_simulated_again(speccast: Call) -> None:
    first = speccast("--out", "whole", "--json")
    before = contents("whole")
    assert speccast("--out", "whole", "--json", "--resume") == first
    assert speccast.simulated == 0
    assert contents("whole") == before


def test_without_an_earlier_result_everything_is_simulated(speccast: Call) -> None:
    assert speccast("--out", "new", "--resume")[0] == 0
    assert speccast.simulated == 3 * RUNS_A_POINT


def refused(speccast: Call, *arguments: str) -> str:
    before = contents("parts")
    status, out, err = speccast("--out", "parts", "--resume", *arguments)
    assert (status, out, speccast.simulated) == (2, "", 0)
    assert err.count("\n") == 1
    assert contents("parts") == before
    return err


def test_the_result_of_another_scenario_is_not_taken_over(speccast: Call) -> None:
    speccast("--out", "parts", stop=6)
    err = refused(speccast, "--set", "run.seed=2")
    assert err == "parts: --resume: holds the result of another scenario\n"


def test_the_result_of_other_versions_is_not_taken_over(
    speccast: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    speccast("--out", "parts", stop=6)
    monkeypatch.setattr(manifest, "speccast_version", lambda: "99")
    err = refused(speccast)
    assert err == "parts: --resume: holds a result of other versions, catalogue entries or files\n"


def test_a_file_the_scenario_names_may_not_have_changed(speccast: Call, tmp_path: Path) -> None:
    source = Path(cli.__file__).parent.parent / "examples/own_model_config/config.json"
    shutil.copy(source, "config.json")
    own = "--set=model.transformer=config.json"
    speccast("--out", "parts", own, stop=6)
    digests = json.loads(contents("parts")["manifest.json"])["files"]
    assert list(digests) == [str(tmp_path / "config.json")]
    Path("config.json").write_text(source.read_text("utf-8") + " ", "utf-8")
    assert "holds a result of other versions, catalogue entries or files" in refused(speccast, own)


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "steps.parquet"])
def test_a_broken_result_is_not_taken_over(speccast: Call, name: str) -> None:
    speccast("--out", "parts", stop=6)
    (Path("parts") / name).write_bytes(contents("parts")[name][:-20])
    assert refused(speccast).startswith("parts: --resume: holds no result: ")


def test_it_needs_a_folder_and_leaves_no_holes_in_a_trace(speccast: Call) -> None:
    assert speccast("--resume") == (2, "", "--resume: needs --out\n")
    status, _, err = speccast("--resume", "--out", "new", "--perfetto", "t.json")
    assert (status, err) == (2, "--resume: leaves out of --perfetto what it takes over\n")
    assert not Path("new").exists()
