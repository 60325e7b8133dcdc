"""An observation is read back as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.live import recording
from calibration.live.recording import Stage
from models.strict_yaml import InputError
from sim.tables import RunTable, Status

ABOUT = {
    "target": "m",
    "date": "2026-11-30",
    "mode": "closed_loop",
    "server": {"engine": "unknown"},
    "strategies": {"plain": {"kind": "autoregressive"}},
}


def table(n: int) -> dict[str, np.ndarray]:
    counts = ("id", "session", "replica", "prompt_tokens", "cached_tokens", "output_tokens")
    more = ("n_steps", "drafted", "accepted", "preemptions", "attempts", "discarded_tokens")
    columns = {name: np.arange(n) for name in (*counts, *more)}
    columns |= {name: np.arange(n) + 0.5 for name in ("arrival_s", "first_token_s", "finish_s")}
    columns |= {"schedule_s": np.full(n, np.nan), "status": np.full(n, int(Status.FAILED))}
    return columns | {name: np.array(["a"] * n, dtype=object) for name in ("stream", "domain")}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    stages = [Stage({"concurrency": 1}, 0, "plain"), Stage({"concurrency": 2}, 0, "plain")]
    runs = [
        RunTable(stage.point, "plain", 0, table(n)) for stage, n in zip(stages, (2, 3), strict=True)
    ]
    errors = [dict.fromkeys(recording.ERROR_COLUMNS, "x, y")]
    samples = [{"point": "concurrency=1", "replication": 0, "at_s": 1.0, "name": "a", "value": 2.0}]
    files = recording.write(
        tmp_path, ABOUT, stages, runs, errors=errors, samples=samples, texts={"before.txt": "m 1\n"}
    )
    assert all(file.is_file() for file in files)
    seen = recording.read(tmp_path)
    assert (seen.label, seen.block, seen.stages) == (
        "plain",
        ABOUT["strategies"]["plain"],
        tuple(stages),
    )
    assert [run.columns["id"].tolist() for run in seen.runs] == [[0, 1], [0, 1, 2]]
    assert np.isnan(seen.runs[0].columns["schedule_s"]).all()
    assert set(seen.runs[1].columns["status"]) == {Status.FAILED}


def test_a_stage_without_its_table_is_told(tmp_path: Path) -> None:
    stages = [Stage({"concurrency": 1}, 0, "plain")]
    recording.write(tmp_path, ABOUT, stages, [])
    with pytest.raises(
        InputError, match=r"requests\.parquet: holds 0 stages, stages\.json names 1"
    ):
        recording.read(tmp_path)


def changed(folder: Path, name: str, place: tuple[Any, ...], value: Any) -> None:
    data = inner = json.loads((folder / name).read_text())
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    (folder / name).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("run.json", ("server",), None, r"run\.json: server: must be a mapping, got null"),
        ("run.json", ("target",), 3, "target: must be a text, got 3"),
        ("run.json", ("date",), [], "date: must be a text, got a list"),
        ("run.json", ("mode",), None, "mode: must be a text, got null"),
        ("run.json", ("strategies", "plain"), "autoregressive", r"strategies\.plain: must be"),
        ("run.json", ("strategies",), {}, "strategies: must name one strategy"),
        ("run.json", ("notes",), "none", "notes: must be a list of texts"),
        ("stages.json", ("stages",), None, "stages: must be a list, got null"),
        ("stages.json", ("stages", 0), 3, r"stages\[0\]: must be a mapping, got 3"),
        ("stages.json", ("stages", 0, "replication"), "0", r"stages\[0\]\.replication: "),
        ("stages.json", ("stages", 0, "late"), 0.5, r"stages\[0\]\.late: "),
        ("stages.json", ("stages", 0, "counters"), {"a": "1"}, r"stages\[0\]\.counters\.a: "),
        ("stages.json", ("stages", 0, "gauges"), {"a": 1.0}, r"stages\[0\]\.gauges\.a: "),
        ("stages.json", ("stages", 0, "more"), 1, r"stages\[0\]\.more: "),
        ("stages.json", ("stages", 0, "point"), {}, r"stages\[0\]\.point: must hold one of"),
        ("stages.json", ("stages", 0, "point"), {"concurrency": 0}, r"point: must hold one of"),
        ("stages.json", ("stages", 0, "point"), {"users": 1}, r"point: must hold one of"),
    ],
)
def test_what_is_not_of_its_type_is_named(
    tmp_path: Path, name: str, place: tuple[Any, ...], value: Any, message: str
) -> None:
    stage = Stage({"concurrency": 1}, 0, "plain", duration_s=1, counters={"a": 1.0})
    recording.write(tmp_path, ABOUT, [stage], [RunTable(stage.point, "plain", 0, table(1))])
    assert recording.read(tmp_path).stages == (stage,)
    changed(tmp_path, name, place, value)
    with pytest.raises(InputError, match=message) as caught:
        recording.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_key_that_every_run_has_is_missed(tmp_path: Path) -> None:
    recording.write(tmp_path, {k: v for k, v in ABOUT.items() if k != "server"}, [], [])
    with pytest.raises(InputError, match=r"run\.json: server: is missing"):
        recording.read(tmp_path)


def test_what_is_in_the_way_of_an_observation_is_told_before_it(tmp_path: Path) -> None:
    recording.check_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "metrics").mkdir()
    recording.check_folder(tmp_path)
    (tmp_path / "metrics").rmdir()
    (tmp_path / "metrics").touch()
    with pytest.raises(InputError, match=r"--out: needs a folder '.*metrics'"):
        recording.check_folder(tmp_path)
    (tmp_path / "metrics").unlink()
    (tmp_path / "errors.csv").mkdir()
    with pytest.raises(InputError, match="would replace the folder"):
        recording.check_folder(tmp_path)
