"""``speccast plan`` from the file to the folder it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.strict_yaml import InputError
from sim.cli import main
from sim.experiment import run
from sim.planning.cli import plan
from sim.planning.document import Planned, planned
from sim.planning.page import CHOSEN, JSON, PAGE, check_out, write
from sim.scenario.load import load_scenario
from tests.plans import PLAIN, SMALL, small

QUIET = ("demand.requests_per_day=8000", "run.window_s=120", "run.hour_s=120")


@pytest.fixture(scope="module")
def found() -> Planned:
    """A plan of a quiet service, with its day."""
    return planned(small(*QUIET, text=PLAIN, prices="{l40s: 1.5}"))


def test_the_document_tells_all_that_was_asked_and_found(found: Planned) -> None:
    document = json.loads(json.dumps(found.document))
    assert document["question"] == "What carries a small service?"
    assert document["demand"]["peak_req_s"] == pytest.approx(2 * 8_000 / 86_400)
    assert document["chosen"] == 0
    (row,) = document["plans"]
    assert row["gpus"] == row["replicas"] * row["tp"]
    assert row["usd_per_hour"] == pytest.approx(1.5 * row["gpus"])
    assert row["gpus_band"]["lo"] <= row["gpus"]
    assert 0 < row["confidence"] <= 1
    assert row["headroom"] == pytest.approx(
        row["fleet_peak_req_s"] / document["demand"]["peak_req_s"] - 1
    )
    assert row["worst"]["tpot_s_p95"] <= 0.024
    assert row["launch"].startswith("# ") or row["launch"].startswith("vllm serve")
    assert {each["input"] for each in document["tornado"]} >= {"demand", "step time"}
    spans = [abs(each["gpus_hi"] - each["gpus_lo"]) for each in document["tornado"]]
    assert spans == sorted(spans, reverse=True)
    assert {each["basis"] for each in document["inputs"]} <= {"measured", "published", "assumed"}
    counts = document["counts"]
    assert counts["candidates"] == counts["estimated_out"] + counts["searched"] == 1


def test_the_day_is_checked_with_a_replica_killed_at_its_peak(found: Planned) -> None:
    day = found.document["check"]
    assert day["met"] is True
    assert day["duration_s"] == 86_400
    assert day["requests"] == pytest.approx(8_000, rel=0.05)
    assert day["killed_at_s"] == 14 * 3600
    assert day["back_at_s"] - day["killed_at_s"] == pytest.approx(60 + 16e9 / 2e9, rel=0.05)
    starts = [each["start_s"] for each in day["series"]]
    assert starts == sorted(starts)
    assert starts[-1] > 80_000
    assert day["tpot_s"]["p95"] <= day["worst"]["tpot_s_p95"] + 1e-9


def test_what_is_left_behind_can_be_run(found: Planned, tmp_path: Path) -> None:
    write(found, tmp_path)
    assert json.loads((tmp_path / JSON).read_text())["plans"] == json.loads(
        json.dumps(found.document["plans"])
    )
    assert "<svg" in (tmp_path / PAGE).read_text("utf-8")
    scenario = load_scenario(tmp_path / CHOSEN, ["workload.duration_s=1800", "failures=[]"])
    (row,) = run(scenario).document["rows"]
    assert row["strategy"] == "autoregressive"
    whole = load_scenario(tmp_path / CHOSEN).points[0].scenario
    assert whole.model.replicas == found.document["plans"][0]["replicas"]
    assert [failure.at_s for failure in whole.failures] == [14 * 3600]


def _cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(SMALL.replace("l40s", "l40z"))
    assert _cli("plan", str(file), "--out", str(tmp_path / "out")) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"{file}:3: hardware.gpu: is unknown, got 'l40z'")
    assert told.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_found_first(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(SMALL)
    with pytest.raises(InputError, match="--out: needs a folder, got the file"):
        check_out(str(file), file)


def test_ctrl_c_leaves_one_line_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "plan.yaml"
    file.write_text(SMALL)
    monkeypatch.setattr("sim.planning.document.answer", interrupted)
    assert _cli("plan", str(file), "--jobs", "1", "--out", str(tmp_path / "out")) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "interrupted: no plan\n")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_document_or_a_report(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: Planned,
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(SMALL)
    monkeypatch.setattr("sim.planning.document.planned", lambda *_, **__: found)
    assert _cli("plan", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["chosen"] == 0
    assert _cli("plan", str(file), "--width", "100") == 0
    assert "Buy" in capsys.readouterr().out
    assert plan.__doc__ is not None


def test_a_fleet_that_misses_its_day_is_made_larger(
    monkeypatch: pytest.MonkeyPatch, found: Planned
) -> None:
    small_day = {**found.document["check"], "met": False}
    days = iter([small_day, found.document["check"]])
    monkeypatch.setattr("sim.planning.document.check", lambda *_: next(days))
    again = planned(small(*QUIET, text=PLAIN, prices="{l40s: 1.5}")).document
    before, after = found.document["plans"][0], again["plans"][0]
    assert after["replicas"] == before["replicas"] + 1
    assert again["missed"] == [
        {key: before[key] for key in ("strategy", "gpu", "replicas", "gpus")}
    ]
    assert again["check"]["met"] is True
    assert len(again["search"]) == 2


def test_a_plan_searches_on_every_core_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Planned
) -> None:
    asked: list[int] = []

    def noted(file: Any, jobs: int, *_: Any) -> Planned:
        asked.append(jobs)
        return found

    file = tmp_path / "plan.yaml"
    file.write_text(SMALL)
    monkeypatch.setattr("sim.planning.document.planned", noted)
    monkeypatch.setattr("sim.planning.jobs.cores", lambda: 7)
    assert _cli("plan", str(file), "--json") == 0
    assert _cli("plan", str(file), "--json", "--jobs", "3") == 0
    assert asked == [7, 3]
