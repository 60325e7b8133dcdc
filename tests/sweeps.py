"""A sweep of tiny points, and a program that kills it again and again."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

TINY = """\
# Which one?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  requests: 12
  streams: [{prompt_tokens: {kind: fixed, value: 50}, output_tokens: {kind: fixed, value: 10}}]
strategies: [{kind: eagle3, k: 3}]
run: {band: false}
vary: {workload.arrivals.rate_per_s: [4, 8, 12, 16], run.seed: [1, 2, 3, 4, 5, 6, 7, 8]}
"""
POINTS = 32
SIMULATING, CONSOLIDATING = 15, 5
"""Kills while points are simulated, and while the table is made of them."""
AT_ONCE = 2


def child_of(arguments: list[str], log: Path) -> int:
    """Start the program in a process of its own, everything imported already; its id.

    It notes every point that is kept, once it is, and when it begins to make the table.
    """
    child = os.fork()
    if child:
        return child
    from sim import cli
    from sim.planning.sweep.store import Store

    keep, consolidate = Store.keep, Store.consolidate

    def noted(store: Store, number: int, content: bytes) -> None:
        keep(store, number, content)
        note(f"{number}\n")

    def begun(store: Store) -> Any:
        note("table\n")
        return consolidate(store)

    def note(text: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text)

    Store.keep, Store.consolidate = noted, begun  # type: ignore[method-assign]
    try:
        cli.main(arguments)
    except SystemExit as left:
        os._exit(int(left.code or 0))
    os._exit(1)


def kill_and_resume(scenario: Path, out: Path, log: Path, seed: int) -> None:
    """Kill a sweep at random moments, resume it each time, and let the last one end."""
    from sim.planning.sweep import report, run, store, whole, workers  # noqa: F401

    workers.START = "fork"
    whole.write_pages = lambda *_: []  # type: ignore[assignment]
    arguments = ["sweep", str(scenario), f"--jobs={AT_ONCE}", "--resume", "-q", f"--out={out}"]
    rng = random.Random(seed)
    log.touch()
    for kill in range(SIMULATING + CONSOLIDATING):
        lines = log.read_text("utf-8").split()
        child = child_of(arguments, log)
        more = rng.choice([0, 1, 1, 2, 3]) if kill < SIMULATING else POINTS
        until = time.monotonic() + 20
        while time.monotonic() < until:
            new = log.read_text("utf-8").split()[len(lines) :]
            if len(new) >= more or "table" in new:
                break
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)
    _, status = os.waitpid(child_of(arguments, log), 0)
    print(f"status {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    kill_and_resume(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
