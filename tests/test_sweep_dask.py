"""``speccast sweep --dask``: a real scheduler, real workers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sweeps import POINTS, TINY

from models.strict_yaml import load_yaml
from sim.planning.sweep import whole
from sim.scenario.load import expand

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("default"),
]

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("distributed.cli.dask_scheduler", "distributed.cli.dask_worker")

Cluster = tuple[str, list[subprocess.Popen[bytes]]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two workers of one process each: its address, and the workers."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    where = tmp_path / "scheduler.json"
    with ExitStack() as stack:

        def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-m", module, "--scheduler-file", str(where), *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        local = ("--host", "127.0.0.1", "--no-dashboard")
        start(MODULES[0], *local, "--port", "0")
        workers = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
        started = [start(MODULES[1], *workers) for _ in range(2)]
        until = time.monotonic() + 60
        while not where.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield json.loads(where.read_text("utf-8"))["address"], started


def test_a_cluster_makes_the_same_bytes_though_a_worker_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    address, (victim, _) = cluster
    expansion = expand(load_yaml(TINY, str(tmp_path / "tiny.yaml")))
    whole.sweep(expansion, whole.Wanted(tmp_path / "here", 1))
    killed: list[int] = []

    def on_points(label: str, done: int, total: int) -> None:
        if label != "checking" and done >= 4 and not killed:
            killed.append(done)
            victim.send_signal(signal.SIGKILL)

    wanted = whole.Wanted(tmp_path / "there", 1, address)
    _, results = whole.sweep(expansion, wanted, on_points)
    assert 4 <= killed[0] < POINTS
    assert victim.wait(timeout=10) == -signal.SIGKILL
    assert results.num_rows == 2 * POINTS
    one, two = (tmp_path / name / "results.parquet" for name in ("here", "there"))
    assert one.read_bytes() == two.read_bytes()


def test_without_a_scheduler_it_says_so(
    tmp_path: Path, speccast: Callable[..., tuple[int, str, str]]
) -> None:
    pytest.importorskip("distributed", reason="needs the extra dask")
    (tmp_path / "tiny.yaml").write_text(TINY, "utf-8")
    address = "tcp://127.0.0.1:1"
    out = tmp_path / "out"
    status, _, err = speccast("sweep", tmp_path / "tiny.yaml", "--out", out, "--dask", address)
    assert status == 2
    assert err.startswith(f"--dask: no scheduler answers at {address}: ")
    assert err.count("\n") == 1
    assert not out.exists()
