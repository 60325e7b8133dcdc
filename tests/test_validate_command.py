"""The verb ``validate``: what it prints, and which runs it takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import fake_publication
import pytest

from calibration.validation import command, own_cases, predict, side_by_side, suites
from models.strict_yaml import InputError, load_yaml
from sim import cli, experiment, verbs
from sim.scenario.dump import to_yaml
from sim.scenario.load import load_scenario, parse_scenario

pytestmark = pytest.mark.usefixtures("published")


@pytest.fixture
def published(monkeypatch):
    """The verb as an installed package declares it, and a publication of our own."""
    verb = EntryPoint("validate", "calibration.validation.cli:validate", verbs.GROUP)

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [verb] if group == verbs.GROUP and name in (None, verb.name) else []

    monkeypatch.setattr(verbs, "entry_points", found)
    monkeypatch.setattr(suites, "cases", fake_publication.cases)


@pytest.fixture(scope="module")
def outcomes():
    """Predictions of all its cases, simulated once."""
    every = [case for suite in command.SUITES for case in fake_publication.cases(suite)]
    return side_by_side.predict_all(every, jobs=1)


@pytest.fixture
def simulated(outcomes, monkeypatch):
    """Those predictions, as if they were made again."""

    def groups(cases, band=False, jobs=None, group=None):
        for case in cases:
            yield [outcome for outcome in outcomes if outcome.case.name == case.name]

    monkeypatch.setattr(side_by_side, "predicted", groups)


def test_pyproject_declares_the_verb():
    text = (Path(cli.__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert '\nvalidate = "calibration.validation.cli:validate"' in text


def test_listing_the_verb_loads_no_numeric_library():
    code = (
        "import sys, calibration.validation.cli\n"
        "print(sorted({'scipy', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.usefixtures("simulated")
def test_it_prints_errors_by_publication_and_what_is_farthest_off(speccast):
    status, text, said = speccast("validate", "--jobs", 1)
    assert (status, said) == (0, "")
    for told in ("Fake Serving", "Fake Bench", "MAPE", "1/1", "Promises: ", "Farthest off: 3"):
        assert told in text
    assert "1 more figures are predicted and not scored" in text


@pytest.mark.usefixtures("simulated")
def test_a_suite_is_its_cases_alone(speccast):
    _, text, _ = speccast("validate", "serving")
    assert "Fake Serving" in text
    assert "Fake Bench" not in text


def test_a_suite_without_cases_is_bad_input(speccast):
    status, text, said = speccast("validate", "prefill")
    assert (status, text) == (2, "")
    assert said == "validate: there is no case of suite prefill\n"


@pytest.mark.usefixtures("simulated")
def test_as_json_holds_every_figure(speccast, outcomes):
    status, text, said = speccast("validate", "--json")
    document = json.loads(text)
    assert (status, said) == (0, "")
    assert document["cases"] == 3
    told = {(row["case"], row["metric"]): row["predicted"] for row in document["figures"]}
    assert told == {(one.case.name, one.metric): one.predicted for one in outcomes}
    scored = {row["case"]: row["scored"] for row in document["figures"]}
    assert scored == {"fake/plain": True, "fake/eagle-b1": False, "fake/eagle-b4": True}


def test_listing_prints_a_name_a_line(speccast):
    status, text, _ = speccast("validate", "--list")
    assert (status, text) == (0, "fake/plain\nfake/eagle-b1\nfake/eagle-b4\n")
    assert speccast("validate", "serving", "--list")[1] == "fake/plain\n"


@pytest.mark.parametrize("name", ["fake/plain", "fake/eagle-b4"])
def test_run_on_a_printed_scenario_gives_the_same_prediction(name, speccast, tmp_path, outcomes):
    status, text, _ = speccast("validate", "--scenario", name)
    assert (status, text.splitlines()[0]) == (0, f"# {name}")
    file = tmp_path / "one.yaml"
    file.write_text(text, "utf-8")
    row = experiment.run(load_scenario(file)).document["rows"][-1]
    for outcome in outcomes:
        if outcome.case.name == name:
            assert predict.metric_of(row, outcome.metric) == pytest.approx(outcome.predicted)


def test_an_anchor_is_solved_to_its_own_speedup(speccast):
    _, text, _ = speccast("validate", "--scenario", "fake/eagle-b1")
    scenario = parse_scenario(load_yaml(text, "printed"))
    row = experiment.run(scenario).document["rows"][-1]
    assert row["speedup"] == pytest.approx(1.7, rel=0.01)


def test_a_case_that_is_not_there_is_named_with_one_that_is(speccast):
    status, text, said = speccast("validate", "--scenario", "fake/plane")
    assert (status, text) == (2, "")
    assert said == "--scenario: there is no case 'fake/plane'; did you mean 'fake/plain'?\n"


def test_an_interrupted_validation_reports_what_is_complete(speccast, outcomes, monkeypatch):
    def groups(cases, band=False, jobs=None, group=None):
        yield [outcome for outcome in outcomes if outcome.case.name == "fake/eagle-b4"]
        raise KeyboardInterrupt

    monkeypatch.setattr(side_by_side, "predicted", groups)
    status, text, said = speccast("validate", "--out", "never")
    assert (status, said) == (130, "interrupted: 1 of 3 cases\n")
    assert "Fake Bench" in text
    assert "Fake Serving" not in text
    assert "Promises" not in text
    assert not Path("never").exists()


def test_interrupted_before_anything_says_so(speccast, monkeypatch):
    def groups(cases, band=False, jobs=None, group=None):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(side_by_side, "predicted", groups)
    assert speccast("validate")[:2] == (130, "No case is complete.\n")
    assert json.loads(speccast("validate", "--json")[1])["figures"] == []


@pytest.fixture
def own(tmp_path):
    """Write a CSV file of own runs beside a scenario."""
    server = fake_publication.scenario([{"kind": "autoregressive"}])
    (tmp_path / "server.yaml").write_text(to_yaml(server), "utf-8")
    both = [{"kind": "autoregressive"}, fake_publication.eagle(2.0)]
    (tmp_path / "eagle.yaml").write_text(to_yaml(fake_publication.scenario(both)), "utf-8")
    two = fake_publication.scenario([*both, fake_publication.eagle(2.5) | {"label": "more"}])
    (tmp_path / "two.yaml").write_text(to_yaml(two), "utf-8")
    varied = server | {"vary": {"engine.max_num_seqs": [1, 2]}}
    (tmp_path / "varied.yaml").write_text(to_yaml(varied), "utf-8")

    def write(*lines: str) -> Path:
        path = tmp_path / "mine.csv"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path

    return write


def test_own_runs_are_scored(own, speccast):
    file = own(
        "name,scenario,set,workload,tpot_s.mean,ttft_s.mean",
        "night,server.yaml,,chat,0.0071,",
        "day,server.yaml,engine.max_num_seqs=2; workload.arrivals.users=2,chat,0.0073,0.03",
    )
    status, text, said = speccast("validate", "--cases", file, "--jobs", 1)
    assert (status, said) == (0, "")
    assert "own runs" in text
    assert "Promises" not in text
    night, day = own_cases.read(file)
    assert (night.labels["workload"], night.measured) == ("chat", {"tpot_s.mean": 0.0071})
    assert day.scenario["engine"]["max_num_seqs"] == 2
    assert day.scenario["workload"]["arrivals"]["users"] == 2


def test_own_speedups_may_be_anchored(own):
    file = own(
        "name,scenario,set,anchor,batch,speedup",
        "one,eagle.yaml,,,1,1.7",
        "four,eagle.yaml,engine.max_num_seqs=4;workload.arrivals.users=4,one,4,1.5",
    )
    anchor, other = side_by_side.predict_all(own_cases.read(file), jobs=1)
    assert anchor.predicted == pytest.approx(1.7, rel=0.01)
    assert other.tau == pytest.approx(anchor.tau, rel=0.05)
    assert (other.case.suite, other.case.acceptance) == ("speculation", "batch 1")


@pytest.mark.parametrize("speedup", [0.2, 30])
def test_an_anchor_out_of_reach_is_refused(own, speccast, speedup):
    file = own("name,scenario,anchor,speedup", f"one,eagle.yaml,one,{speedup}")
    status, text, said = speccast("validate", "--cases", file, "--jobs", 1)
    assert (status, text) == (2, "")
    assert said.startswith(f"one: no acceptance gives a speedup of {speedup:g}, the nearest is")


def test_stored_errors_are_not_replaced_by_worse_ones_nor_is_another_file(speccast, tmp_path):
    other = tmp_path / "mine.csv"
    other.write_text("name,age\n", "utf-8")
    status, _, said = speccast("validate", "--store", str(other), "--jobs", 1)
    assert status == 2
    assert "--store: holds no stored errors" in said
    stored = tmp_path / "errors.csv"
    assert speccast("validate", "--store", str(stored), "--jobs", 1)[0] == 0
    kept = stored.read_text("utf-8")
    better = re.sub(r",-?0\.\d+,", ",0.0001,", kept)
    stored.write_text(better, "utf-8")
    status, _, said = speccast("validate", "--store", str(stored), "--jobs", 1)
    assert status == 1
    assert "is kept" in said
    assert stored.read_text("utf-8") == better


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("name,speedup", "a,1"), ":1: scenario: is missing"),
        (("name,scenario,ttft", "a,server.yaml,1"), ":1: ttft: is no column"),
        (("name,scenario,speedup,speedup", "a,s,1,1"), ":1: speedup: is there twice"),
        (("name,scenario,speedup",), "has no row"),
        (("name,scenario,speedup", "a,server.yaml"), ":2: has 2 cells, its header 3"),
        (("name,scenario,speedup", ",server.yaml,1"), ":2: name: is empty"),
        (("name,scenario,speedup", "", "a,server.yaml,"), ":3: has no figure"),
        (("name,scenario,speedup", "a,server.yaml,fast"), ":2: speedup: must be a number"),
        (("name,scenario,speedup", "a,server.yaml,-1"), ":2: speedup: must be above 0"),
        (("name,scenario,speedup", "a,server.yaml,inf"), ":2: speedup: must be above 0"),
        (("name,scenario,speedup", "a,gone.yaml,1"), "gone.yaml: cannot read"),
        (("name,scenario,speedup", "a,varied.yaml,1"), "must be one point, got 2"),
        (("name,scenario,set,speedup", "a,server.yaml,engine.x=1,1"), ":2: scenario: --set engine"),
        (("name,scenario,speedup", "a,eagle.yaml,1", "a,eagle.yaml,1"), "already in line 2"),
        (("name,scenario,anchor,speedup", "a,eagle.yaml,b,1"), "must be the name of a row"),
        (
            ("name,scenario,anchor,tpot_s.mean", "a,eagle.yaml,a,1"),
            ":2: speedup: 'a' is an anchor, so it needs one",
        ),
        (
            ("name,scenario,anchor,speedup", "a,eagle.yaml,b,1", "b,eagle.yaml,a,1"),
            ":2: anchor: must be its own name",
        ),
        (("name,scenario,speedup", "a,server.yaml,1"), ":2: scenario: has plain decoding alone"),
        (("name,scenario,tpot_s.mean", "a,two.yaml,1"), "one strategy besides plain decoding"),
        (('name,scenario,speedup\n"a', "x,y,1"), "is not valid CSV"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(own, lines, told, speccast):
    status, text, said = speccast("validate", "--cases", own(*lines))
    assert (status, text) == (2, "")
    assert said.count("\n") == 1
    assert "mine.csv" in said
    assert told in said


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match="cannot read"):
        own_cases.read(Path("gone.csv"))


def test_outcomes_keep_the_order_of_their_cases_however_they_come():
    cases = [fake_publication.plain(f"fake/{index}", speedup=1.0) for index in range(5)]

    def later_first(members, band):
        return [predict.Outcome(case, "speedup", 1.0, 1.0) for case in members]

    found = side_by_side.in_order(
        cases, [one for case in reversed(cases) for one in later_first([case], False)]
    )
    assert [one.case.name for one in found] == [case.name for case in cases]
