"""``speccast sweep``: one table, whoever simulates the points and whenever it is cut off."""

from __future__ import annotations

import fcntl
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sweeps import CONSOLIDATING, POINTS, SIMULATING, TINY

from models.strict_yaml import load_yaml
from sim import experiment, manifest
from sim.planning.sweep import run, whole
from sim.planning.sweep.columns import schema_of
from sim.planning.sweep.point import Done, Failed, Task, simulate_point
from sim.planning.sweep.workers import Processes
from sim.scenario.load import expand, parse_scenario

ROOT = Path(__file__).resolve().parent.parent
FEW = TINY.replace("[1, 2, 3, 4, 5, 6, 7, 8]", "[1]").replace("12, 16]", "12, 16, 20, 24]")
"""Six points."""

Call = Callable[..., tuple[int, str, str]]


class Here:
    """Simulates in this process, at once; ``dies`` tells whose worker dies."""

    retries = True

    def __init__(self, jobs: int = 2, dies: Callable[[int], bool] = lambda _: False) -> None:
        self.ahead, self._dies = jobs, dies
        self.asked: list[int] = []

    def submit(self, task: Task) -> Future[Done | Failed]:
        self.asked.append(task.number)
        future: Future[Done | Failed] = Future()
        if self._dies(task.number):
            future.set_exception(BrokenExecutor("gone"))
        else:
            future.set_result(simulate_point(task))
        return future

    def renew(self) -> None:
        """Nothing has died."""

    def lost(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def sweep(tmp_path: Path, speccast: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Sweep a scenario in this process; ``call.workers`` is who simulated it.

    Nothing is drawn, unless ``call.pages`` is set.
    """
    monkeypatch.chdir(tmp_path)

    def call(
        *arguments: str, text: str = FEW, dies: Callable[[int], bool] = lambda _: False
    ) -> tuple[int, str, str]:
        call.workers = Here()

        def started(jobs: int) -> Here:
            call.workers = Here(jobs, dies)
            return call.workers

        monkeypatch.setattr(whole, "Processes", started)
        monkeypatch.setattr(whole, "write_pages", call.pages)
        Path("tiny.yaml").write_text(text, "utf-8")
        return speccast("sweep", "tiny.yaml", "--jobs", "2", *arguments)

    call.pages = lambda *_: []
    return call


def left(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()} - {"report.html", "figures"}


def table(folder: str) -> pa.Table:
    return pq.read_table(f"{folder}/results.parquet")


WHOLE = {"scenario.yaml", "manifest.json", "results.parquet"}


# The table


def test_the_table_holds_what_a_run_says(sweep: Call) -> None:
    text = FEW.replace("12 req", "").replace("run: {band: false}", "slo: {tpot_s: {p95: 1}}")
    assert sweep("--out", "out", text=text)[0] == 0
    rows = table("out").to_pylist()
    said = experiment.run(parse_scenario(load_yaml(text, "tiny.yaml"))).document["rows"]
    assert [row["strategy"] for row in rows] == ["autoregressive", "eagle3 K=3"] * 6
    for row, whole_row in zip(rows, said, strict=True):
        assert (
            row["workload.arrivals.rate_per_s"]
            == whole_row["point"]["workload.arrivals.rate_per_s"]
        )
        assert row["tpot_s_p95"] == whole_row["tpot_s"]["p95"]
        assert row["speedup"] == whole_row["speedup"]
        assert row["speedup_lo"] == whole_row["band"].get("speedup", {}).get("lo")
        assert row["attainment"] == whole_row["slo"]["attainment"]
        assert row["finished"] == whole_row["finished"] == 12
        assert row["batch_mean"] == whole_row["step_s"]["batch"]
    assert [row["point"] for row in rows] == sorted(list(range(6)) * 2)
    assert all(sum(r["best"] for r in rows[at : at + 2]) == 1 for at in range(0, 12, 2))


def test_columns_are_typed_by_all_values_of_a_key_and_say_what_they_are() -> None:
    vary = (
        "vary: {run.seed: [1, 2], workload.arrivals.rate_per_s: [1, 2.5], run.band: [true, false],"
        " engine.name: [vllm_0.15], 'strategies[0]': [{kind: ngram, k: 2}], "
        "'model.tp, model.replicas': [1]}"
    )
    text = TINY[: TINY.index("vary")] + vary
    schema = schema_of(expand(load_yaml(text, "tiny.yaml")).unfolded)
    kinds = {field.name: field.type for field in schema}
    assert schema.names[:8] == [
        "point",
        "run.seed",
        "workload.arrivals.rate_per_s",
        "run.band",
        "engine.name",
        "strategies[0]",
        "model.tp, model.replicas",
        "strategy",
    ]
    assert [kinds[name] for name in schema.names[1:7]] == [
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.string(),
        pa.int64(),
    ]
    assert all(field.metadata[b"about"] for field in schema)


def test_a_report_with_maps_stands_beside_the_table(sweep: Call) -> None:
    sweep.pages = run.write_pages
    assert sweep("--out", "out")[0] == 0
    assert "Which one?" in Path("out/report.html").read_text("utf-8")
    assert left("out") == WHOLE


def test_mappings_stand_in_the_table_as_words(sweep: Call) -> None:
    vary = "vary: {'strategies[0]': [{kind: ngram, k: 2}, {kind: medusa}]}"
    assert sweep("--out", "out", text=TINY[: TINY.index("vary")] + vary)[0] == 0
    words = table("out").column("strategies[0]").to_pylist()
    assert words == ["{kind: ngram, k: 2}"] * 2 + ["{kind: medusa}"] * 2


def test_it_prints_the_choice_at_every_point_or_the_rows(sweep: Call) -> None:
    status, out, err = sweep("--out", "out")
    assert (status, err) == (0, "wrote out\n")
    assert out.startswith("Which one?\n")
    assert out.count("rate_per_s=") == 6
    assert out.endswith("Best of 6 points: eagle3 K=3 at 100 %.\n")
    status, out, err = sweep("--out", "out", "--resume", "--json", "--quiet")
    assert (status, err) == (0, "")
    assert json.loads(out)["rows"] == table("out").to_pylist()


# Kills


def test_killed_twenty_times_it_loses_doubles_and_repeats_no_point(
    sweep: Call, tmp_path: Path
) -> None:
    """Processes of the operating system, killed while simulating and while making the table."""
    assert sweep("--out", "whole", text=TINY)[0] == 0
    log = tmp_path / "log"
    program = [sys.executable, str(ROOT / "tests/sweeps.py")]
    said = subprocess.run(
        [*program, "tiny.yaml", "parts", str(log), "1"],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert said.stdout.count("killed") == SIMULATING + CONSOLIDATING, said.stderr
    assert said.stdout.endswith("status 0\n")
    kept = [int(line) for line in log.read_text("utf-8").split() if line != "table"]
    assert len(kept) == len(set(kept))
    assert POINTS - SIMULATING <= len(kept) <= POINTS
    assert log.read_text("utf-8").count("table") > CONSOLIDATING
    for name in WHOLE:
        assert (Path("parts") / name).read_bytes() == (Path("whole") / name).read_bytes()
    assert left("parts") == WHOLE


def test_a_worker_that_dies_costs_no_point(
    sweep: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A real process, and the one in its place, make the bytes that are made here."""
    sweep("--out", "whole", text=TINY)
    killed: list[int] = []

    def on_points(label: str, done: int, total: int) -> None:
        if label != "checking" and done >= 5 and not killed:
            victim = multiprocessing.active_children()[0]
            victim.kill()
            killed.append(done)

    monkeypatch.setattr(whole, "Processes", Processes)
    expansion = expand(load_yaml(TINY, "tiny.yaml"))
    whole.sweep(expansion, whole.Wanted(tmp_path / "parts", jobs=1), on_points)
    assert killed
    assert (tmp_path / "parts/results.parquet").read_bytes() == (
        tmp_path / "whole/results.parquet"
    ).read_bytes()
    assert not multiprocessing.active_children()


def test_a_point_that_kills_its_workers_is_given_up_and_named(sweep: Call) -> None:
    """Those handed over with it are tried again one by one, so they are not blamed."""
    status, out, err = sweep("--out", "out", dies=lambda number: number == 3)
    assert (status, out) == (1, "")
    assert err == (
        "speccast: point 3 (rate_per_s=16 seed=1): its worker died 3 times, out of memory?; "
        "5 of 6 points are kept in out: --resume goes on\n"
    ).replace("5 of", f"{len(list(Path('out/points').iterdir()))} of")
    assert sweep.workers.asked.count(3) == run.TRIES
    assert sweep("--out", "out", "--resume")[0] == 0
    assert left("out") == WHOLE


def test_a_point_that_loses_its_worker_twice_is_simulated_in_the_end(sweep: Call) -> None:
    lost = iter([True, True, False])
    assert sweep("--out", "out", dies=lambda n: n == 2 and next(lost))[0] == 0
    sweep("--out", "whole")
    assert Path("out/results.parquet").read_bytes() == Path("whole/results.parquet").read_bytes()


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(sweep: Call, tmp_path: Path) -> None:
    sweep("--out", "whole", text=TINY)
    start = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sim.__main__ import main\n"
        "if __name__ == '__main__': main()\n"
    )
    (tmp_path / "start.py").write_text(start, "utf-8")
    arguments = ["start.py", "sweep", "tiny.yaml", "--jobs", "1", "--out", "parts"]
    with subprocess.Popen(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not list(Path("parts").glob("points/*.parquet")):
            time.sleep(0.005)
        subprocess.run(["/bin/kill", "-INT", "--", f"-{process.pid}"], check=True)
        out, err = process.communicate(timeout=60)
    done = len(list(Path("parts").glob("points/*.parquet")))
    assert (process.returncode, out) == (130, "")
    assert 0 < done < POINTS
    assert err == (
        f"interrupted: {done} of {POINTS} points are kept in parts; --resume goes on with them\n"
    )
    assert sweep("--out", "parts", "--resume", text=TINY)[0] == 0
    assert len(sweep.workers.asked) == POINTS - done
    assert Path("parts/results.parquet").read_bytes() == Path("whole/results.parquet").read_bytes()


def test_ctrl_c_before_the_first_point_leaves_nothing(
    sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(whole, "simulate", stopped)
    assert sweep("--out", "out") == (130, "", "")
    assert not Path("out").exists()


# Resuming


def cut_off(sweep: Call) -> None:
    """Leave three points of six."""
    sweep("--out", "out", dies=lambda number: number >= 3)
    assert len(list(Path("out/points").iterdir())) == 3


def test_points_cut_short_by_a_lost_disk_are_simulated_again(sweep: Call) -> None:
    cut_off(sweep)
    part = Path("out/points/000001.parquet")
    part.write_bytes(part.read_bytes()[:500])
    Path("out/points/.000004.parquet.part").write_bytes(b"torn")
    assert sweep("--out", "out", "--resume")[0] == 0
    assert sorted(sweep.workers.asked) == [1, 3, 4, 5]
    assert left("out") == WHOLE


def test_pages_that_were_cut_off_are_written_again(sweep: Call) -> None:
    """They come after the table, while the points are still there."""
    pages = iter([KeyboardInterrupt, None])

    def write(folder: Path, *_: Any) -> list[str]:
        asked = next(pages)
        if asked is not None:
            raise asked
        (folder / "report.html").write_text("done", "utf-8")
        return []

    sweep.pages = write
    status, _, err = sweep("--out", "out")
    assert status == 130
    assert err == "interrupted: 6 of 6 points are kept in out; --resume goes on with them\n"
    assert sweep("--out", "out", "--resume")[0] == 0
    assert sweep.workers.asked == []
    assert Path("out/report.html").read_text("utf-8") == "done"
    assert left("out") == WHOLE
    assert sweep("--out", "out", "--resume")[0] == 0


def test_a_finished_sweep_is_not_simulated_again(sweep: Call) -> None:
    _, out, _ = sweep("--out", "out")
    before = Path("out/results.parquet").read_bytes()
    assert sweep("--out", "out", "--resume") == (0, out, "wrote out\n")
    assert sweep.workers.asked == []
    assert Path("out/results.parquet").read_bytes() == before


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "cut off"])
def test_a_sweep_is_not_replaced_unasked(sweep: Call, finished: bool) -> None:
    sweep("--out", "out") if finished else cut_off(sweep)
    status, out, err = sweep("--out", "out")
    assert (status, out, sweep.workers.asked) == (2, "", [])
    assert err == (
        "out: --out: holds the result of a sweep; add --resume to go on with it, or choose "
        "another\n"
    )


def test_only_the_same_scenario_and_versions_are_taken_over(
    sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(sweep)
    status, _, err = sweep("--out", "out", "--resume", "--set", "workload.requests=13")
    assert (status, err) == (2, "out: --resume: holds the result of another scenario\n")
    monkeypatch.setattr(manifest, "speccast_version", lambda: "99")
    status, _, err = sweep("--out", "out", "--resume")
    assert status == 2
    assert err == "out: --resume: holds a result of other versions, catalogue entries or files\n"
    assert len(list(Path("out/points").iterdir())) == 3


def test_two_sweeps_do_not_write_one_folder(sweep: Call) -> None:
    cut_off(sweep)
    parts = sorted(Path("out/points").iterdir())
    other = os.open("out", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    refused = sweep("--out", "out", "--resume")
    assert refused == (2, "", "out: --out: is being written by another sweep\n")
    assert sorted(Path("out/points").iterdir()) == parts
    os.close(other)
    assert sweep("--out", "out", "--resume")[0] == 0


def test_the_result_of_a_run_is_left_alone(sweep: Call) -> None:
    Path("out").mkdir()
    Path("out/summary.json").write_text("{}", "utf-8")
    status, _, err = sweep("--out", "out")
    assert status == 2
    assert err == "out: --out: holds the result of `speccast run`; choose another folder\n"
    assert left("out") == {"summary.json"}


# Refused


def test_every_point_is_checked_before_the_first_is_simulated(sweep: Call) -> None:
    status, out, err = sweep("--out", "out", text=FEW.replace("20, 24", "20, -1"))
    assert (status, out) == (2, "")
    assert err.startswith("tiny.yaml:10: vary.workload.arrivals.rate_per_s[5]: must be greater")
    assert not Path("out").exists()


def test_a_sweep_may_have_more_points_than_a_run(sweep: Call, speccast: Call) -> None:
    many = FEW.replace("[1]", f"[{', '.join(map(str, range(200)))}]")
    unfolded = expand(load_yaml(many, "tiny.yaml"), (), 100_000).unfolded
    assert len(unfolded) == 1200
    Path("tiny.yaml").write_text(many, "utf-8")
    status, _, err = speccast("run", "tiny.yaml")
    assert status == 2
    assert "more than 1000 points, got 1200; `speccast sweep` takes up to 100000" in err


def test_an_error_on_a_worker_ends_the_sweep_in_one_line(
    sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no way\nat all")

    monkeypatch.setattr(experiment, "run", broken)
    status, out, err = sweep("--out", "out")
    assert (status, out) == (1, "")
    assert err == ("speccast: point 0 (rate_per_s=4 seed=1): ZeroDivisionError: no way\\nat all\n")
    assert not Path("out").exists()


def test_a_worker_of_another_version_is_refused(
    sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may join a cluster at any time, so every point is told what the sweep needs."""
    asked = run.versions()
    monkeypatch.setattr(run, "versions", lambda: asked._replace(speccast="99"))
    status, _, err = sweep("--out", "out")
    assert status == 2
    assert f"a worker runs speccast {asked.speccast}, Python" in err
    assert "; the sweep needs speccast 99, Python" in err


def test_dask_is_an_extra(sweep: Call, speccast: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    Path("tiny.yaml").write_text(FEW, "utf-8")
    arguments = ("sweep", "tiny.yaml", "--out", "out", "--dask", "tcp://localhost:1")
    status, _, err = speccast(*arguments)
    assert (status, err) == (2, "--dask: needs the extra dask: pip install 'speccast[dask]'\n")
    assert not Path("out").exists()
    assert speccast(*arguments, "--jobs", "2") == (status, "", err)
    monkeypatch.undo()


def test_a_sweep_of_nothing_is_refused(sweep: Call) -> None:
    status, _, err = sweep("--out", "out", text=FEW[: FEW.index("vary:")])
    assert status == 2
    assert "vary: is missing; `speccast run` simulates a single point" in err


def test_a_folder_that_holds_no_sweep_is_not_gone_on_with(sweep: Call) -> None:
    Path("foreign").mkdir()
    Path("foreign/results.parquet").write_text("hi", "utf-8")
    status, _, err = sweep("--out", "foreign", "--resume")
    assert (status, err) == (2, "foreign: --resume: holds no sweep\n")
    assert left("foreign") == {"results.parquet"}


def test_the_same_task_gives_the_same_bytes_and_never_raises() -> None:
    expansion = expand(load_yaml(FEW, "tiny.yaml"))
    (first, *_) = expansion.unfolded.points()
    task = Task(0, expansion, first, schema_of(expansion.unfolded), run.versions())
    one, two = simulate_point(task), simulate_point(task)
    assert isinstance(one, Done)
    assert one == two
