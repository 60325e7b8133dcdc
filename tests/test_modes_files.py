"""Strategies that switch in files: output folder, report, resolved scenario; and explained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from switching_cases import SWITCHING, TEXT, scenario

from models.catalog.facts import facts
from models.strict_yaml import load_yaml
from sim import cli, experiment, explain
from sim.analysis import html_report
from sim.analysis.explain_report import explain_report
from sim.output import FILES, tables_of
from sim.output import SWITCHING as TABLES
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import load_scenario
from sim.scenario.template import commented_scenario

Call = Callable[..., int]


@pytest.fixture
def speccast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the scenario in a folder of its own; ``stop`` interrupts the run of that number."""
    monkeypatch.chdir(tmp_path)
    Path("modes.yaml").write_text(TEXT, "utf-8")
    simulate = experiment.simulate

    def call(*arguments: str, stop: int | None = None) -> int:
        started = 0

        def counted(*given: object, **named: object) -> object:
            nonlocal started
            started += 1
            if started == stop:
                raise KeyboardInterrupt
            return simulate(*given, **named)

        monkeypatch.setattr(experiment, "simulate", counted)
        with pytest.raises(SystemExit) as left:
            cli.main(["run", "modes.yaml", "-q", *arguments])
        return int(left.value.code or 0)

    return call


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes longest."""

    def written(folder: Path, *_: object) -> None:
        (folder / "figures").mkdir()
        (folder / "report.html").touch()

    monkeypatch.setattr(html_report, "write_report", written)


def contents(folder: str) -> dict[str, bytes]:
    return {name: (Path(folder) / name).read_bytes() for name in (*FILES, *TABLES)}


def test_the_folder_holds_modes_and_switches_where_a_strategy_switches(speccast: Call) -> None:
    assert speccast("--out", "out", "--set", "workload.requests=24") == 0
    assert {path.name for path in Path("out").iterdir()} == {*FILES, *TABLES, "figures"}
    found = pq.read_table("out/modes.parquet")
    assert found.schema.equals(TABLES["modes.parquet"], check_metadata=True)
    assert list(dict.fromkeys(found["strategy"].to_pylist())) == list(SWITCHING)
    switches = pq.read_table("out/switches.parquet")
    assert set(switches["of"].to_pylist()) == {"request", "stream", "engine"}
    rows = json.loads(Path("out/summary.json").read_text("utf-8"))["rows"]
    assert switches.num_rows == sum(row.get("switches", 0) for row in rows)
    page = Path("out/report.html").read_text("utf-8")
    assert "Which mode ran when" in page
    assert "What each mode did" in page
    assert "leaves below 35 %" in page
    drawn = {path.name for path in Path("out/figures").glob("modes_*.svg")}
    assert drawn == {"modes_tpot.svg", *(f"modes_{place}.svg" for place in range(4))}

    fixed = "strategies=[{kind: ngram, k: 3}]"
    assert speccast("--out", "out", "--set", fixed, "--set", "workload.requests=24") == 0
    assert {path.name for path in Path("out").iterdir()} == {*FILES, "figures"}
    assert not list(Path("out/figures").glob("modes_*"))
    assert "mode" not in re.sub("<style>.*?</style>|<svg.*?</svg>", "", _body("out"), flags=re.S)


def _body(folder: str) -> str:
    page = (Path(folder) / "report.html").read_text("utf-8")
    return page[page.index("Strategies compared") : page.index("What this rests on")]


@pytest.mark.usefixtures("no_pictures")
def test_a_table_of_the_users_own_stays_where_no_result_was(speccast: Call) -> None:
    Path("out").mkdir()
    Path("out/modes.parquet").write_text("mine", "utf-8")
    assert speccast("--out", "out", "--set", "strategies=[{kind: ngram, k: 3}]") == 0
    assert Path("out/modes.parquet").read_text("utf-8") == "mine"


@pytest.mark.usefixtures("no_pictures")
def test_an_interrupted_grid_resumes_to_the_same_bytes(speccast: Call) -> None:
    Path("modes.yaml").write_text(f"{TEXT}vary: {{workload.requests: [8, 12]}}\n", "utf-8")
    assert speccast("--out", "whole") == 0
    speccast("--out", "parts", stop=10)
    assert pq.read_table("parts/modes.parquet").num_rows
    assert contents("parts")["modes.parquet"] != contents("whole")["modes.parquet"]
    assert speccast("--out", "parts", "--resume") == 0
    assert contents("parts") == contents("whole")


@pytest.mark.usefixtures("no_pictures")
def test_regret_needs_the_oracle_to_be_complete(speccast: Call) -> None:
    speccast("--out", "out", stop=6)
    rows = json.loads(Path("out/summary.json").read_text("utf-8"))["rows"]
    assert len(rows) == 5
    assert not any("regret" in row for row in rows)


def test_only_scenarios_that_switch_have_the_tables() -> None:
    assert set(TABLES) < set(tables_of(scenario()))
    assert not set(TABLES) & set(tables_of(scenario("strategies=[{kind: ngram, k: 3}]")))


def test_a_resolved_scenario_fills_in_nested_strategies_and_loads_again() -> None:
    file = scenario("strategies[1].return={kind: proxy, power: 0.5}")
    text = resolved_yaml(file.resolved)
    data = load_yaml(text, "resolved.yaml").data
    _, gate, stream, dynamic, oracle = data["strategies"][1:]
    assert gate["return"] == {"kind": "proxy", "power": 0.5, "window_tokens": 8}
    assert gate["primary"]["draft_vocab"] == 32000
    assert stream["fallback"]["w"] == 15
    assert dynamic["rule"]["dead_band"] == 0
    assert oracle["among"][1]["draft_vocab"] == 32000
    again = scenario(text=text)
    assert again.resolved == file.resolved
    assert resolved_yaml(again.resolved) == text


def test_files_named_by_nested_strategies_are_found_beside_the_scenario(tmp_path: Path) -> None:
    root = Path(cli.__file__).parent.parent
    config = (root / "examples/own_model_config/config.json").read_text("utf-8")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(config, "utf-8")
    draft = "{kind: draft_model, draft: own/config.json, acceptance: {alpha: 0.5}, k: 2}"
    own = "model.transformer=own/config.json"
    nested = [
        f"{{kind: adaptive, hypothetical: true, primary: {draft}, fallback: {draft}}}",
        f"{{kind: oracle, hypothetical: true, among: [{draft}, {{kind: autoregressive}}]}}",
    ]
    path = tmp_path / "modes.yaml"
    path.write_text(TEXT, "utf-8")
    loaded = load_scenario(path, [own, f"strategies=[{', '.join(nested)}]"])
    found = loaded.resolved.strategies[1:]
    drafts = [found[0].primary, found[0].fallback, found[1].among[0]]
    assert {each.draft for each in drafts} == {str(tmp_path / "own/config.json")}


def test_explain_shows_the_mode_sequences_start_in() -> None:
    file = scenario()
    document = explain.explain(file)
    by_name = {row["strategy"]: row for row in document["rows"]}
    starts = {name: row["mode"] for name, row in by_name.items() if "mode" in row}
    assert starts == {
        **{"gate": "eagle3 K=3", "by stream": "eagle3 K=3"},
        **{"dynamic": "K=3", "oracle": "autoregressive"},
    }
    for name, same in (("by stream", "eagle3 K=3"), ("oracle", "autoregressive")):
        assert by_name[name]["verify_tokens"] == by_name[same]["verify_tokens"]
        own, alone = by_name[name]["t_step_s"], by_name[same]["t_step_s"]
        # Beside Lookahead, which this engine does not schedule ahead, no step hides its host work.
        assert own > 1.05 * alone if name == "by stream" else own == pytest.approx(alone)
    assert "the mode they start in: gate (eagle3 K=3)" in " ".join(
        explain_report(document, 100).split()
    )
    json.dumps(document, allow_nan=False)
    plain = explain.explain(scenario("strategies=[{kind: ngram, k: 3}]"))
    assert "start in" not in explain_report(plain, 100)


def test_the_catalogue_tells_the_keys_of_strategies_that_switch() -> None:
    assert "primary (required)" in facts("strategies", "adaptive")
    assert ", return {kind: probe, every_steps: 64" in facts("strategies", "adaptive")
    assert "rule {kind: goodput" in facts("strategies", "dynamic_k")
    assert "among (required)" in facts("strategies", "oracle")


def test_the_strategies_that_switch_in_the_template_can_be_chosen() -> None:
    text = commented_scenario("llama-3.1-8b", "h100_sxm", 1)
    entries = re.findall(
        r"# - (\{kind: (?:adaptive|dynamic_k|oracle),(?:.|\n *#    (?!#))*?\})\n *#", text
    )
    found = [re.sub(r"\n *#", " ", entry) for entry in entries]
    assert len(found) == 3
    strategies = scenario(f"strategies=[{', '.join(found)}]", text=text).resolved.strategies
    assert [each.kind for each in strategies[1:]] == ["adaptive", "dynamic_k", "oracle"]
