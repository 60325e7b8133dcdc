"""The progress bar: on a terminal's stderr only, gone at the end, and quiet when asked."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sim.progress import Progress, Silent, shown

ROOT = Path(__file__).resolve().parent.parent
TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 20}
  requests: 300
  streams: [{prompt_tokens: {kind: fixed, value: 99}, output_tokens: {kind: fixed, value: 60}}]
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, label: "[red]mine[/nowhere]", acceptance: {tau: 2.4}}
vary: {model.tp: [1, 2]}
"""
SLOW = """\
import time
from sim import output, progress
progress.SLOW_S = 0.1
manifest = output.manifest
output.manifest = lambda document: (time.sleep(0.8), manifest(document))[1]
"""


def on_a_terminal(tmp_path: Path, *arguments: str, before: str = "") -> tuple[str, str]:
    """Stdout of a run, and what its stderr, a terminal, was sent."""
    path = tmp_path / "whatif.yaml"
    path.write_text(TEXT, "utf-8")
    ours, theirs = pty.openpty()
    code = f"{before}\nfrom sim.__main__ import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", str(path), *arguments],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        sent = b"".join(iter(lambda: read(ours), b""))
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    return out.decode(), sent.decode()


def read(terminal: int) -> bytes:
    """More of what was sent; nothing once the other side is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def lines(sent: str) -> list[str]:
    """What stood on the line, one picture after another."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent))


def test_a_bar_names_the_strategy_and_point_with_percent_and_times(tmp_path: Path) -> None:
    out, sent = on_a_terminal(tmp_path)
    seen = lines(sent)
    bar = r"\[red\]mine\[/nowhere\] at tp=2 \S+ 100% 0:00:\d\d left 0:00:00"
    assert any(re.fullmatch(bar, line) for line in seen)
    assert "writing" not in sent
    assert "\x1b[2K" in sent.rpartition("left")[2]
    assert "at tp" not in out.partition("\n")[0]


def test_writing_is_announced_where_it_is_slow(tmp_path: Path) -> None:
    _, sent = on_a_terminal(tmp_path, "--out", str(tmp_path / "out"), before=SLOW)
    seen = lines(sent)
    assert any(line.endswith(" writing") for line in seen)
    assert "\x1b[2K" in sent.rpartition(" writing")[2].partition("wrote ")[0]
    assert seen[-2] == f"wrote {tmp_path / 'out'}"


def test_quiet_shows_nothing(tmp_path: Path) -> None:
    assert on_a_terminal(tmp_path, "--quiet")[1] == ""


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(quiet=False) as bar:
        assert type(bar) is Silent
        bar.update("eagle3", 1, 2)
        with bar.writing():
            pass
    assert capsys.readouterr().err == ""


def test_requests_of_all_runs_add_up() -> None:
    got: list[tuple[str, int, int]] = []
    progress = Progress(lambda *report: got.append(report), total=30)
    for label in ("one", "two"):
        update = progress.of(label)
        assert update is not None
        update(10, 15)
        progress.advance(15)
    assert got == [("one", 0, 30), ("one", 10, 30), ("two", 15, 30), ("two", 25, 30)]
    assert Progress(None, total=30).of("one") is None
