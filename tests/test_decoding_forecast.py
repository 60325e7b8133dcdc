"""Recorded decoding runs against their prediction, on runs whose times are the model's own."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from cpu_forwards import PROFILE
from recorded_runs import BLOCKS, CONSTANTS, DOMAINS, EACH, Runs, step_time

from calibration.decoding.forecast import command, scenario, steps
from calibration.decoding.forecast.command import Comparison, compare
from calibration.decoding.forecast.recorded import read
from calibration.validation import own_cases, predict
from models import acceptance_file
from models.acceptance_file import Recorded
from models.replay import ReplayLaw, records_of
from models.schema import ModelError
from models.strict_yaml import InputError
from sim import experiment
from sim.scenario.load import load_scenario
from sim.scenario.workload import generate

RECORDS = Recorded(accepted=("2 0", "0 1 1", "1 0"))
LABELS = ("autoregressive", "ngram", "draft_model", "medusa")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("decoded") / "runs"
    Runs().write(made)
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> Comparison:
    return compare(folder, str(PROFILE), folder.parent / "acceptance.yaml")


@pytest.fixture
def broken(folder: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(folder.parent, tmp_path / "copy")
    return tmp_path / "copy" / "runs"


def test_steps_whose_times_are_the_models_own_are_told_exactly(found: Comparison, folder: Path):
    errors, requests = found.as_json()["errors"], read(folder).requests
    told = requests[requests["strategy"].isin(LABELS)]
    assert errors["steps"] == len(found.steps) == told["n_steps"].sum()
    for name in ("step_mape", "mean_step_mape", "mean_step_worst", "prefill_mape"):
        assert errors[name] < 1e-6, name
    for part in steps.PARTS:
        pair = found.cells[f"forecast_{part}_s"], found.cells[f"measured_{part}_s"]
        assert pair[0].to_list() == pytest.approx(pair[1].to_list(), rel=1e-6), part
    assert tuple(dict.fromkeys(found.cells["strategy"])) == ("autoregressive", *sorted(LABELS[1:]))


def test_constants_come_from_plain_decoding_alone(found: Comparison, folder: Path):
    assert found.constants == pytest.approx(CONSTANTS, rel=1e-5)
    recorded = read(folder)
    kernels = step_time("autoregressive").deployed.kernels
    drafted = recorded.steps["strategy"] != "autoregressive"
    slower = recorded.steps.assign(
        host_s=recorded.steps["host_s"].where(~drafted, 1.0),
        sample_s=recorded.steps["sample_s"].where(~drafted, 1.0),
    )
    again = command.constants.of_runs(recorded._replace(steps=slower), kernels, 49152)
    assert again == found.constants


def test_a_replay_repeats_each_request_and_so_each_time(found: Comparison):
    drafted = found.runs[found.runs["strategy"] != "autoregressive"]
    assert len(drafted) == len(DOMAINS) * (len(LABELS) - 1)
    for what in ("tau", "tpot_s", "ttft_s", "speedup"):
        predicted, measured = drafted[f"replayed_{what}"], drafted[f"measured_{what}"]
        assert predicted.to_list() == pytest.approx(measured.to_list(), rel=1e-6), what
    assert found.as_json()["errors"]["replayed_sides"] == {"right": 6, "told": 6}


def test_slower_steps_show_as_an_error_of_that_size(tmp_path: Path):
    runs = tmp_path / "runs"
    acceptance = Runs(slower=1.25).write(runs)
    slow = compare(runs, str(PROFILE), acceptance)
    errors = slow.as_json()["errors"]
    assert errors["mean_step_mape"] == pytest.approx(0.2, abs=0.005)
    assert (slow.cells["error"] < 0).all()
    assert errors["replayed_tpot_s_mape"] == pytest.approx(0.2, abs=0.005)
    # A machine that is slower throughout leaves speedups as they are.
    assert errors["replayed_speedup_mape"] < 0.005


def test_the_scenario_has_the_very_requests_and_runs(found: Comparison, folder: Path):
    recorded, path = read(folder), found.files[0]
    assert path == folder / "whatif.yaml"
    loaded = load_scenario(path, ["run.band=false"])
    requests = generate(loaded.points[0].scenario.workload, seed=1)
    own = recorded.of("autoregressive")
    assert requests.prompt_tokens.tolist() == own["prompt_tokens"].to_list()
    assert requests.output_tokens.tolist() == own["output_tokens"].to_list()
    names = [requests.stream_names[code] for code in requests.stream]
    assert names == own["domain"].to_list() == [d for d in DOMAINS for _ in range(EACH)]
    ran = experiment.run(loaded)
    assert [row["strategy"] for row in ran.document["rows"]] == [*LABELS]
    for table in ran.requests:
        mine = recorded.of(table.strategy)
        assert table.columns["n_steps"].tolist() == mine["n_steps"].to_list()
        assert table.columns["accepted"].tolist() == mine["accepted"].to_list()
        waited = table.columns["schedule_s"] - table.columns["arrival_s"]
        # Nobody waits for the one before.
        assert waited == pytest.approx(CONSTANTS["request_us"] * 1e-6)


def test_the_scenario_names_its_files_from_where_it_is(found: Comparison, broken: Path):
    assert str(found.files[0].parent) not in found.files[0].read_text("utf-8")
    moved = load_scenario(broken / "whatif.yaml").points[0].scenario
    medusa = moved.strategies[-1].resolved_acceptance()
    assert medusa is not None and medusa.file == str(broken.parent / "acceptance.yaml")


def test_cases_score_each_strategy_in_each_domain(found: Comparison, folder: Path):
    cases = {case.name: case for case in own_cases.read(found.files[1])}
    assert list(cases) == [f"{label} {domain}" for domain in DOMAINS for label in LABELS]
    case = cases["medusa prose"]
    assert case.labels["strategy"] == "medusa" and case.labels["workload"] == "prose"
    outcomes = {one.metric: one for one in predict.predict(case)}
    for metric in ("tpot_s.mean", "ttft_s.mean", "speedup"):
        assert outcomes[metric].predicted == pytest.approx(outcomes[metric].measured, rel=1e-4)


def test_what_the_simulator_does_not_know_is_left_out_by_name(found: Comparison):
    assert found.left_out == {"dynamic_k": "the simulator has no such strategy"}
    assert "dynamic_k" in found.text(100)
    assert "dynamic_k" not in found.files[0].read_text("utf-8")


@pytest.mark.parametrize(
    ("label", "block", "reason"),
    [
        ("draft_model_sampled", BLOCKS["draft_model"], "at its temperature"),
        ("eagle", {"kind": "eagle", "k": 3}, "the acceptance file has no such entry"),
    ],
)
def test_strategies_without_what_a_forecast_needs_are_left_out(folder, label, block, reason):
    recorded = read(folder)
    requests = recorded.requests.assign(strategy=label)
    more = recorded._replace(
        requests=pd.concat([recorded.requests, requests]), blocks={**BLOCKS, label: block}
    )
    file = acceptance_file.read(folder.parent / "acceptance.yaml")
    assert reason in scenario.choose(more, file).left_out[label]


def test_text_and_json_say_the_same(found: Comparison):
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert {row["strategy"] for row in document["runs"]} == set(LABELS)
    plain = document["runs"][0]
    assert plain["strategy"] == "autoregressive" and plain["measured_speedup"] is None
    text = found.text(140)
    assert "right side of 1 6/6" in text and "MAPE 0.0 %" in text
    assert max(map(len, text.splitlines())) <= 140


def _without(name: str, column: str, value: object):
    def spoil(folder: Path) -> None:
        path = folder / f"{name}.parquet"
        table = pq.read_table(path)
        if value is None:
            table = table.drop_columns([column])
        else:
            frame = table.to_pandas()
            frame[column] = value
            table = table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, path)

    return spoil


def _about(**changes: object):
    def spoil(folder: Path) -> None:
        about = json.loads((folder / "run.json").read_text("utf-8"))
        (folder / "run.json").write_text(json.dumps(about | changes), "utf-8")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "steps.parquet").unlink(), "steps.parquet: cannot read: "),
        (lambda folder: (folder / "run.json").unlink(), "run.json: cannot read: No such file"),
        (lambda folder: (folder / "run.json").write_text("[1]"), "not the settings of decoding"),
        (_about(strategies=[]), "run.json: strategies: is missing"),
        (_without("steps", "sample_s", None), "sample_s: is missing: not a table of decoding"),
        (_without("steps", "n_decode", 4), "only steps of one sequence are forecast, got 4"),
        (_without("requests", "strategy", "ngram"), "has no 'autoregressive'"),
    ],
)
def test_bad_runs_are_refused_in_one_line(broken: Path, spoil, message: str):
    spoil(broken)
    with pytest.raises(InputError) as error:
        read(broken)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_runs_without_a_strategy_to_forecast_are_refused(broken: Path):
    file = broken.parent / "acceptance.yaml"
    text = file.read_text("utf-8")
    for label in LABELS[1:]:
        text = text.replace(f"\n  {label}:\n", f"\n  other_{label}:\n")
    file.write_text(text, "utf-8")
    with pytest.raises(ModelError, match=r"no strategy of .* can be forecast .*no such entry"):
        compare(broken, str(PROFILE), file)


def test_a_strategy_that_has_not_answered_every_prompt_has_no_speedup_there(broken: Path):
    path = broken / "requests.parquet"
    frame = pq.read_table(path).to_pandas()
    last = (frame["strategy"] == "medusa") & (frame["id"] == frame["id"].max())
    frame = frame[~last].astype({"strategy": str, "stream": str, "domain": str})
    pq.write_table(pq.read_table(path).schema.empty_table().from_pandas(frame), path)
    made = compare(broken, str(PROFILE), broken.parent / "acceptance.yaml")
    rows = made.runs.set_index(["strategy", "domain"])
    assert rows.loc[("medusa", "code"), "measured_speedup"] > 1
    assert pd.isna(rows.loc[("medusa", "prose"), "measured_speedup"])
    assert rows.loc[("medusa", "prose"), "requests"] == EACH - 1
    cases = {case.name: case.measured for case in own_cases.read(made.files[1])}
    assert "speedup" in cases["medusa code"] and "speedup" not in cases["medusa prose"]


def test_request_i_repeats_record_i_and_begins_anew_after_the_last():
    law = ReplayLaw(2, (2.0,), 0.0, "validated", records_of([RECORDS], 2), varies=False)
    ids = np.arange(5)
    tokens = np.array([4, 5, 3, 4, 5])
    paths = law.paths(7, ids, tokens, 0 * ids)
    steps = [paths.accepted[a:b].tolist() for a, b in pairwise(paths.offsets)]
    assert steps == [[2, 0], [0, 1, 1], [1, 0], [2, 0], [0, 1, 1]]
