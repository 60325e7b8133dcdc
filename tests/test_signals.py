"""Ctrl-C at any moment: status 130, no traceback, and files that are whole or not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sim import cli, experiment, interrupts, output, staging
from sim.engine.recorder import Recorder
from sim.output import FILES
from sim.scenario import load
from sim.tables import Status, read_parquet

ROOT = Path(__file__).resolve().parent.parent
TEXT = """\
# How does it end?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b, replicas: 2}
workload:
  arrivals: {kind: poisson, rate_per_s: 30}
  requests: 200
  streams:
    - prompt_tokens: {kind: lognormal, mean: 300, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 60, cv: 0.8}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
  - {kind: ngram, k: 4, acceptance: {match_rate: 0.3, alpha: 0.7}}
run: {replications: 2}
"""


class Signals:
    """Raises signals at the n-th call of something."""

    def __init__(self, calls: Any, at: int, *numbers: int) -> None:
        self._calls, self._left, self._numbers = calls, at, numbers

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._left -= 1
        if not self._left:
            for number in self._numbers:
                signal.raise_signal(number)
        return self._calls(*given, **named)


@pytest.fixture
def speccast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the scenario in this process, files in ``out`` and a trace: status, stdout, stderr."""
    path = tmp_path / "whatif.yaml"
    path.write_text(TEXT, "utf-8")

    def call(*arguments: str) -> tuple[int, str, str]:
        where = ["--out", str(tmp_path / "out"), "--perfetto", str(tmp_path / "trace.json")]
        handlers = [signal.getsignal(number) for number in interrupts.SIGNALS]
        with pytest.raises(SystemExit) as left:
            cli.main(["run", str(path), *where, *arguments])
        assert [signal.getsignal(number) for number in interrupts.SIGNALS] == handlers
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "kill"]
)
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_while_simulating_keeps_what_is_there(
    speccast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, times
) -> None:
    """Pressing twice before it can be answered is no more than once."""
    answered = Signals(Recorder.answered, 6 * 200 + 101, *times * [number])
    monkeypatch.setattr(Recorder, "answered", lambda recorder: answered(recorder))
    left, out, err = speccast("--json")
    assert left == status
    assert err.startswith("interrupted: 1 of 3 strategies are complete; wrote ")
    assert err.count("\n") == 1
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir()} == {*FILES, "figures"}
    assert (folder / "summary.json").read_text("utf-8") == out
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["interrupted"] is json.loads(out)["interrupted"] is True
    ended = read_parquet(folder / "requests.parquet")["status"]
    assert len(ended) == 4 * 200
    assert (ended == Status.UNFINISHED).sum() == 200 - 102
    assert (ended[: 3 * 200] == Status.FINISHED).all()
    assert json.loads((tmp_path / "trace.json").read_text("ascii"))["traceEvents"]


def test_a_complete_run_is_not_called_interrupted(
    speccast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while writing: all is there already, and writing comes to its end."""
    monkeypatch.setattr(output, "manifest", Signals(output.manifest, 1, signal.SIGINT))
    status, out, err = speccast("--json")
    assert status == 130
    assert err.startswith("interrupted: 3 of 3 strategies are complete; wrote ")
    assert "interrupted" not in json.loads(out)
    assert "interrupted" not in (tmp_path / "out/manifest.json").read_text("utf-8")


def test_a_second_ctrl_c_while_writing_leaves_everything_as_it_was(
    speccast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/summary.json").write_text("old", "utf-8")
    twice = (signal.SIGINT, signal.SIGINT)
    monkeypatch.setattr(output, "manifest", Signals(output.manifest, 1, *twice))
    status, out, err = speccast()
    assert (status, out) == (130, "")
    assert err == f"interrupted while writing {tmp_path / 'out'}\n"
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["out", "out/summary.json", "whatif.yaml"]
    assert (tmp_path / "out/summary.json").read_text("utf-8") == "old"


@pytest.mark.parametrize("moment", ["reading the scenario", "trying the folder"])
def test_while_loading_the_program_ends_on_the_spot(
    speccast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """An exception could surface anywhere within an import, and be swallowed or printed there."""

    def leave(status: int) -> None:
        left = sorted(path.name for path in tmp_path.iterdir())
        raise SystemExit(f"left with {status} and {left}")

    monkeypatch.setattr(interrupts.os, "_exit", leave)
    if moment == "reading the scenario":
        monkeypatch.setattr(load, "load_scenario", Signals(load.load_scenario, 1, signal.SIGTERM))
    else:
        made = Signals(staging.tempfile.mkdtemp, 1, signal.SIGTERM)
        monkeypatch.setattr(staging.tempfile, "mkdtemp", made)
    with pytest.raises(SystemExit) as left:
        cli.main(["run", str(tmp_path / "whatif.yaml"), "--out", str(tmp_path / "out")])
    assert left.value.code == "left with 143 and ['whatif.yaml']"


def test_before_the_first_request_there_is_nothing_to_keep_or_to_say(
    speccast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "prepare", Signals(experiment.prepare, 1, signal.SIGINT))
    assert speccast() == (130, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["whatif.yaml"]


def test_moving_files_is_never_torn(tmp_path: Path) -> None:
    stop = interrupts.Stop()
    with interrupts.handled(stop), pytest.raises(KeyboardInterrupt), interrupts.held():
        signal.raise_signal(signal.SIGINT)
        through = True
    assert through
    assert stop.asked == 1


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[Any] = []

    def work() -> None:
        with interrupts.held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


START = """\
import contextlib, os
from sim import __main__ as program

leaving_at_once = program.interrupts.leaving_at_once

@contextlib.contextmanager
def begun():
    with leaving_at_once():
        os.write(1, b".")
        yield

program.interrupts.leaving_at_once = begun
program.main()
"""
"""The program, which says when its first handler is in place: Python's own start has none."""


def interrupted_after(
    seconds: float, arguments: list[str], number: int = signal.SIGINT
) -> tuple[int, str]:
    """Start the program, and send a signal so long after it has begun; status and stderr."""
    with subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        time.sleep(seconds)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.2, 2.6, 3.0])
def test_at_any_moment(tmp_path: Path, seconds: float) -> None:
    path, out = tmp_path / "whatif.yaml", tmp_path / "out"
    path.write_text(TEXT.replace("requests: 200", "requests: 8000"), "utf-8")
    status, err = interrupted_after(seconds, ["run", str(path), "--out", str(out)])
    assert status == 130, err
    assert "Traceback" not in err
    if not out.exists():
        assert (err, [file.name for file in tmp_path.iterdir()]) == ("", ["whatif.yaml"])
        return
    assert {file.name for file in out.iterdir()} == {*FILES, "figures"}
    assert err.startswith("interrupted: ")
    assert err.count("\n") == 1
    requests = read_parquet(out / "requests.parquet")
    assert (requests["status"] == Status.FINISHED).any()
    assert len(read_parquet(out / "steps.parquet")["start_s"])


def test_a_signal_the_program_was_told_to_ignore_stays_ignored(tmp_path: Path) -> None:
    path = tmp_path / "whatif.yaml"
    path.write_text(TEXT, "utf-8")
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    start = ignoring + "from sim.__main__ import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, "run", str(path), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "interrupted" not in json.loads(out)
