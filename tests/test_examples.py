"""Every example asks one question in its first line, loads, runs, and loads again resolved."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from models.strict_yaml import load_yaml
from sim import experiment
from sim.cli import app, main
from sim.planning.candidates import load_plan
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import load_scenario, parse_scenario
from sim.scenario.template import commented_scenario

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples"
EVERY = sorted(FOLDER.glob("*.yaml"))
PLANS = [path for path in EVERY if path.stem.startswith("plan_")]
EXAMPLES = [path for path in EVERY if path not in PLANS]
SHORT = ("run.band=false", "run.replications=1")
REQUESTS = 60


def quick(path: Path) -> list[str]:
    """Overrides that keep a run short: a closed loop still sends one request a user."""
    points = load_scenario(path).points
    loops = [getattr(point.scenario.workload.arrivals, "users", 0) for point in points]
    few = [f"workload.requests={max(REQUESTS, *loops)}", "workload.duration_s=null"]
    return [*SHORT, *few]


def name(path: Path) -> str:
    return path.stem


def test_there_are_examples():
    assert FOLDER / "llama70b_strategies.yaml" in EXAMPLES


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_the_first_line_is_the_question(path):
    first = path.read_text("utf-8").splitlines()[0]
    assert re.fullmatch(r"# [A-Z].*\?", first)
    assert len(first) <= 110


def test_no_question_is_asked_twice():
    questions = [path.read_text("utf-8").splitlines()[0] for path in EVERY]
    assert len(set(questions)) == len(questions)


GIVEN_UP = ("rejected", "timed_out")


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_it_runs(path):
    scenario = load_scenario(path, quick(path))
    rows = experiment.run(scenario).document["rows"]
    assert len(rows) == len(scenario.points) * len(scenario.points[0].scenario.strategies)
    ended = ("finished",) if path.stem != "overload_limits" else ("finished", *GIVEN_UP)
    for row in rows:
        requests = scenario.points[0].scenario.workload.requests
        assert sum(row[status] for status in ended) == requests
        assert row["finished"] >= 0.9 * requests
        assert row["tau"] >= 1
        assert row["verdict"]


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_its_resolved_form_loads_to_the_same(path):
    scenario = load_scenario(path)
    again = parse_scenario(load_yaml(resolved_yaml(scenario.resolved), "resolved"))
    assert [point.values for point in again.points] == [p.values for p in scenario.points]
    assert [point.scenario for point in again.points] == [p.scenario for p in scenario.points]


@pytest.mark.parametrize("path", PLANS, ids=name)
def test_a_plan_lists_candidates_of_every_strategy(path):
    file = load_plan(path)
    groups = {candidate.group for candidate in file.candidates}
    assert groups == {strategy.name for strategy in file.plan.strategies}
    assert len(file.candidates) >= 100


def test_hypothetical_rows_are_marked_in_the_demo():
    path = FOLDER / "llama70b_strategies.yaml"
    rows = experiment.run(load_scenario(path, quick(path))).document["rows"]
    assert [row["strategy"].split()[0] for row in rows if row["hypothetical"]] == [
        "medusa",
        "lookahead",
    ]


def test_drafts_fill_kv_memory_that_plain_decoding_leaves():
    scenario = load_scenario(FOLDER / "kv_pressure.yaml", SHORT)
    rows = {row["strategy"].split()[0]: row for row in experiment.run(scenario).document["rows"]}
    plain = rows["autoregressive"]["preemptions"]
    assert plain < rows["eagle3"]["preemptions"] < rows["draft_model"]["preemptions"]


def commands(document: Path) -> list[str]:
    """The ``speccast ...`` lines of a document's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    return [line for text in blocks for line in text.splitlines() if line.startswith("speccast ")]


@pytest.mark.parametrize("line", commands(ROOT / "README.md"))
def test_the_readme_says_what_the_command_line_understands(line):
    arguments = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    group = typer.main.get_command(app)
    with group.make_context("speccast", ["--help-not-asked"], resilient_parsing=True) as context:
        verb, command, rest = group.resolve_command(context, arguments)
        assert command is not None
        command.make_context(verb, rest, parent=context)


def test_the_readme_names_every_make_target_it_uses():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"`?make\s([\w-]+)`?", document.read_text("utf-8"))) <= targets


def test_the_readme_walks_through(tmp_path, monkeypatch, capsys):
    """Init, run with overrides, explain: as written, on fewer requests."""
    monkeypatch.chdir(tmp_path)
    whatif = commented_scenario("llama-3.1-8b", "h100_sxm", 1)
    Path("whatif.yaml").write_text(whatif.replace("requests: 1000 ", "requests: 60 "), "utf-8")
    for line in commands(ROOT / "README.md"):
        arguments = shlex.split(line.partition(" > ")[0], comments=True)[1:]
        # Written above; needs extras; needs a server.
        if arguments[0] in {"init", "calibrate", "observe", "compare"}:
            continue
        with pytest.raises(SystemExit) as left:
            main(arguments)
        captured = capsys.readouterr()
        assert not left.value.code, captured.err
        assert captured.out
