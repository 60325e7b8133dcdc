"""``--perfetto FILE``: when it appears, what it says where it shows nothing, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfetto_runs import TEXT, read, steps_of, traced

from models.strict_yaml import InputError
from sim import cli, experiment
from sim.analysis.metrics import Window
from sim.engine import step_rows
from sim.perfetto_file import parse_window


def test_points_of_a_grid_are_processes_of_their_own(tmp_path: Path) -> None:
    vary = "vary: {workload.arrivals.rate_per_s: [4, 40]}\n"
    events, result = traced(tmp_path / "t.json", Window(0, 1000), "workload.requests=5", vary=vary)
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [
        f"{name} at rate_per_s={rate}"
        for rate in (4, 40)
        for name in ("autoregressive", "eagle3 K=3")
    ]
    first = [run for run in result.steps if not run.replication]
    for process, run in enumerate(first, 1):
        assert len(steps_of(events, process)) == len(run.columns["start_s"])


def test_parts_of_any_size_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(tmp_path / "whole.json", Window(3.25, 6.5))
    monkeypatch.setattr(step_rows, "CHUNK_STEPS", 1)
    traced(tmp_path / "parts.json", Window(3.25, 6.5))
    whole, parts = ((tmp_path / name).read_bytes() for name in ("whole.json", "parts.json"))
    assert sorted(whole.split(b"\n")) == sorted(parts.split(b"\n"))


def test_a_window_without_events_is_still_a_trace(speccast: Callable[..., Any]) -> None:
    status, _, err = speccast("--perfetto", "t.json", "--perfetto-window", "600:660", "--quiet")
    assert status == 0
    assert err.startswith("t.json: nothing happens from 600 to 660 s: the runs span 0.")
    assert err.count("\n") == 1
    assert {event["ph"] for event in read(Path("t.json"))} == {"M"}


def test_same_seed_same_bytes(speccast: Callable[..., Any]) -> None:
    for name in ("a.json", "b.json"):
        status, _, err = speccast("--perfetto", name)
        assert (status, err) == (0, f"wrote {name}\n")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


@pytest.mark.parametrize(
    "text",
    ["", "60", "a:b", "5:5", "9:3", "-1:5", "0:inf", "nan:5", "1:2:3", ":", "0:", ":9", "0,5:7,5"],
)
def test_a_window_that_cannot_be_meant_is_refused(speccast: Callable[..., Any], text: str) -> None:
    with pytest.raises(InputError):
        parse_window(text)
    status, out, err = speccast("--perfetto", "t.json", f"--perfetto-window={text}")
    assert (status, out) == (2, "")
    assert err.startswith("--perfetto-window: must be two times in seconds, as in 600:660, got '")
    assert err.count("\n") == 1
    assert not Path("t.json").exists()


def test_a_window_needs_a_trace(speccast: Callable[..., Any]) -> None:
    assert speccast("--perfetto-window", "0:5") == (2, "", "--perfetto-window: needs --perfetto\n")


def test_a_window_may_have_fractions() -> None:
    assert parse_window("0.5:1e3") == Window(0.5, 1000)


def test_a_run_that_fails_leaves_the_old_trace(
    speccast: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    Path("t.json").write_text("old", "utf-8")
    monkeypatch.setattr(experiment, "measure", fail)
    status, out, err = speccast("--perfetto", "t.json", "--out", "new")
    assert (status, out, err) == (1, "", "speccast: disk full\n")
    assert Path("t.json").read_text("utf-8") == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["t.json", "whatif.yaml"]


@pytest.fixture
def speccast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run the scenario in an empty folder: status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("whatif.yaml").write_text(TEXT, "utf-8")

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(["run", "whatif.yaml", *arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call
