"""A run without plain decoding: half the work, no comparison, and nothing claimed of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.strict_yaml import InputError, load_yaml
from sim import experiment
from sim.analysis.answer import answer
from sim.analysis.report import run_report
from sim.analysis.verdict import best
from sim.cli import main
from sim.explain import explain
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import ScenarioFile, parse_scenario

WIDTH = 200


def asked(*strategies: dict[str, Any], **run: Any) -> ScenarioFile:
    data = {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "workload": {"arrivals": {"kind": "poisson", "rate_per_s": 6}, "requests": 150},
        "strategies": list(strategies or ({"kind": "eagle3", "k": 3}, {"kind": "ngram", "k": 3})),
        "slo": {"ttft_s": {"p95": 0.5}},
        "run": {"band": False, **run},
    }
    return parse_scenario(load_yaml(yaml.safe_dump(data), "asked.yaml"))


def rows(loaded: ScenarioFile) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = experiment.run(loaded).document["rows"]
    return found


def test_only_what_is_listed_runs_and_runs_as_it_does_beside_plain_decoding() -> None:
    alone, beside = rows(asked(baseline=False)), rows(asked())
    assert [row["strategy"] for row in alone] == ["eagle3 K=3", "ngram K=3"]
    compared = ("baseline", "speedup", "break_even_tau", "verdict")
    for one, other in zip(alone, beside[1:], strict=True):
        assert {k: v for k, v in one.items() if k not in compared} == {
            k: v for k, v in other.items() if k not in compared
        }
        assert other["speedup"] > 1
        assert one["baseline"] is one["speedup"] is one["break_even_tau"] is None


def test_verdicts_answers_and_reports_compare_with_nothing() -> None:
    document = experiment.run(asked(baseline=False)).document
    text = run_report(document, WIDTH)
    assert "no speedup: plain decoding was not run" in text
    assert "not compared with plain decoding; SLO met" in text
    for claim in ("keeps up where", "switch off", "less time per token", "autoregressive"):
        assert claim not in text + answer(document)
    assert best(document["rows"])["strategy"] == "eagle3 K=3"  # type: ignore[index]
    assert "choose eagle3 K=3" in answer(document).replace("Choose", "choose")
    alone = experiment.run(asked({"kind": "ngram"}, baseline=False)).document
    assert answer(alone).startswith("Ngram K=3 carries")


def test_bands_of_latencies_stay_and_that_of_the_speedup_goes() -> None:
    (row,) = rows(asked({"kind": "eagle3", "k": 3}, baseline=False, band=True))
    assert {"ttft_s", "tpot_s"} <= row["band"].keys()
    assert "speedup" not in row["band"]


def test_plain_decoding_that_is_listed_is_the_baseline_all_the_same() -> None:
    plain, other = rows(asked({"kind": "autoregressive"}, {"kind": "ngram"}, baseline=False))
    assert plain["baseline"] is True
    assert other["speedup"] is not None


def test_the_key_is_written_only_where_it_is_false() -> None:
    assert "baseline" not in resolved_yaml(asked().resolved)
    assert "baseline" not in json.dumps(experiment.run(asked()).document["scenario"])
    loaded = asked(baseline=False)
    again = parse_scenario(load_yaml(resolved_yaml(loaded.resolved), "again.yaml"))
    assert again.points[0].scenario == loaded.points[0].scenario


def test_explain_takes_the_batch_of_plain_decoding_as_it_does_otherwise() -> None:
    alone, beside = explain(asked(baseline=False)), explain(asked())
    assert alone["batch"] == beside["batch"]
    assert [row["strategy"] for row in alone["rows"]] == ["eagle3 K=3", "ngram K=3"]


def test_a_name_taken_by_the_baseline_is_refused_only_where_it_runs() -> None:
    taken = {"kind": "ngram", "label": "autoregressive"}
    assert asked(taken, baseline=False).points[0].scenario.baseline is None
    with pytest.raises(InputError, match="two strategies are called 'autoregressive'") as caught:
        asked(taken)
    assert caught.value.key == "strategies"


def test_all_files_of_a_run_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "asked.yaml"
    path.write_text(resolved_yaml(asked(baseline=False).resolved), "utf-8")
    with pytest.raises(SystemExit) as left:
        main(["run", str(path), "--out", str(tmp_path / "out")])
    assert not left.value.code
    assert "speedup: plain decoding was not run" in (tmp_path / "out" / "report.html").read_text(
        "utf-8"
    )
    assert "eagle3 K=3" in capsys.readouterr().out
