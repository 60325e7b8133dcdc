"""The command line: what goes to stdout, what to stderr, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from models import catalog
from models.strict_yaml import load_yaml
from sim import cli, experiment, verbs
from sim.output import FILES
from sim.tables import read_parquet

SCENARIO = """\
# Does EAGLE-3 pay off on an 8B model for a handful of users?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  requests: 40
  streams:
    - prompt_tokens: {kind: fixed, value: 200}
      output_tokens: {kind: fixed, value: 40}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
"""
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "whatif.yaml"
    path.write_text(SCENARIO, "utf-8")
    return path


def test_run_prints_one_table_and_nothing_on_stderr(speccast, scenario):
    status, out, err = speccast("run", scenario)
    assert (status, err) == (0, "")
    assert "llama-3.1-8b" in out
    assert "TPOT ms" in out
    assert "baseline" in out


def test_run_as_json_holds_the_documented_keys(speccast, scenario):
    status, out, _ = speccast("run", scenario, "--json")
    document = json.loads(out)
    assert status == 0
    assert {"scenario", "seed", "profile", "rows"} <= set(document)
    for row in document["rows"]:
        assert {"mean", "p50", "p90", "p95", "p99"} == set(row["ttft_s"])
        assert set(row) >= {
            *("strategy", "point", "tpot_s", "itl_s", "e2e_s", "queue_s", "tok_per_s_per_user"),
            *("tok_per_s_per_gpu", "req_per_s", "tau", "break_even_tau", "acceptance_rate"),
            *("kv_use_peak", "kv_free_bytes", "prefix_hit_rate", "preemptions", "finished"),
            *("rejected", "unfinished", "timed_out", "failed", "resent", "streams", "windows"),
            *("saturated", "slo", "speedup", "band", "verdict"),
        }
        for band in row["band"].values():
            assert set(band) == {"lo", "hi", "level", "basis"}
    baseline, eagle = document["rows"]
    assert baseline["speedup"] is None
    assert eagle["speedup"] > 0


def test_same_seed_same_bytes(speccast, scenario, tmp_path):
    first, second = (speccast("run", scenario, "--out", tmp_path / n)[1] for n in "ab")
    assert first == second
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_out_writes_every_file_and_says_where_on_stderr(speccast, scenario, tmp_path):
    out = tmp_path / "deep" / "result"
    status, _, err = speccast("run", scenario, "--out", out)
    assert status == 0
    assert str(out) in err
    assert {path.name for path in out.iterdir()} == {*FILES, "figures"}
    assert list(out.parent.iterdir()) == [out]
    requests = read_parquet(out / "requests.parquet")
    assert len(requests["id"]) == 2 * 40
    steps = read_parquet(out / "steps.parquet")
    assert (steps["duration_s"] > 0).all()
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert manifest["seed"] == 1
    assert "h100_sxm" in manifest["catalogue"]["hardware"]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert len(summary["rows"]) == 2


def test_the_resolved_scenario_runs_to_the_same_result(speccast, scenario, tmp_path):
    _, first, _ = speccast("run", scenario, "--json", "--out", tmp_path / "a", "--quiet")
    _, second, _ = speccast("run", tmp_path / "a" / "scenario.yaml", "--json")
    assert json.loads(first)["rows"] == json.loads(second)["rows"]


def test_set_overrides_a_key(speccast, scenario):
    _, out, _ = speccast("run", scenario, "--set", "workload.arrivals.rate_per_s=3.5")
    assert "poisson arrivals at 3.5 req/s" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.yaml"), "missing.yaml: "),
        (("run", "FILE", "--set", "model.tp=3"), "model.tp"),
        (("run", "FILE", "--set", "modle.tp=1"), "did you mean"),
        (("run", "FILE", "--out", "FILE"), "needs a folder"),
        (("run", "FILE", "--width", "many"), "width"),
        (("run",), "FILE"),
        (("catalog", "hardwar"), "did you mean 'hardware'?"),
        (("init", "--hardware", "h100_sxn"), "did you mean 'h100_sxm'?"),
        (("expain", "FILE"), "expain"),
        ((), "command"),
    ],
)
def test_bad_input_is_one_line_on_stderr(speccast, scenario, arguments, message):
    arguments = [scenario if argument == "FILE" else argument for argument in arguments]
    status, out, err = speccast(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_failed_run_leaves_no_folder(speccast, scenario, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(experiment, "run", fail)
    status, out, err = speccast("run", scenario, "--out", tmp_path / "a")
    assert (status, out) == (1, "")
    assert err == "speccast: disk full\n"
    assert list(tmp_path.iterdir()) == [scenario]


def test_ctrl_c_ends_quietly(speccast, scenario, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", interrupt)
    assert speccast("run", scenario) == (130, "", "")


def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-c", "from sim.cli import main; main(['schema'])"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == cli.BROKEN_PIPE


def shell(command: str, **variables: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command line; $SPECCAST is the program."""
    program = f"{sys.executable} -c 'from sim.cli import main; main()'"
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("$SPECCAST", program)],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **variables},
        check=False,
    )
    return done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii")


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_what_the_terminal_cannot_show_is_replaced(scenario, variables):
    text = scenario.read_text("utf-8")
    scenario.write_text(text.replace("eagle3, k", "eagle3, label: décodé, k"), "utf-8")
    status, out, err = shell(f"$SPECCAST explain {scenario} --batch 1", **variables)
    assert (status, err) == (0, "")
    assert "d?cod?" in out


def test_closed_streams_are_no_error(scenario, tmp_path):
    out = tmp_path / "result"
    assert shell(f"$SPECCAST run {scenario} -q --out {out} >&-") == (0, "", "")
    assert {path.name for path in out.iterdir()} == {*FILES, "figures"}
    assert shell("$SPECCAST init >&-") == (0, "", "")
    assert shell("$SPECCAST run missing.yaml 2>&-") == (2, "", "")


def test_explain_prints_components(speccast, scenario):
    status, out, _ = speccast("explain", scenario, "--batch", 8, "--context", 500)
    assert status == 0
    assert "8 sequences at 500 tokens" in out
    assert "roof" in out


def test_explain_components_add_up_to_the_step(speccast, scenario):
    _, out, _ = speccast("explain", scenario, "--batch", 8, "--context", 500, "--json")
    for row in json.loads(out)["rows"]:
        assert sum(row["components"].values()) == pytest.approx(row["t_step_s"], rel=1e-9)
        assert row["tpot_s"] == pytest.approx(row["t_step_s"] / row["tau"])


def test_catalog_lists_every_section(speccast):
    _, everything, _ = speccast("catalog", "--width", 300)
    assert "h100_sxm" in everything
    for section in (*catalog.SECTIONS, "strategies"):
        status, out, _ = speccast("catalog", section, "--width", 300)
        assert status == 0
        assert out in everything


def test_init_prints_a_scenario_that_runs(speccast, tmp_path):
    _, text, _ = speccast("init", "--transformer", "llama-3.1-8b", "--tp", 1)
    path = tmp_path / "new.yaml"
    path.write_text(text, "utf-8")
    assert speccast("run", path, "--set", "workload.requests=20")[0] == 0


@pytest.mark.parametrize("name", ["it's", 'a"b', "x: y", "#", "", "llama-3.1-8b ", "\x1b[1m"])
def test_init_refuses_odd_names_like_any_unknown_one(speccast, name):
    status, out, err = speccast("init", "--transformer", name)
    assert (status, out) == (2, "")
    assert err.startswith("speccast init: model.transformer: unknown transformer ")
    assert err[:-1].isprintable()


def test_init_takes_a_configuration_whose_name_needs_quotes(speccast, tmp_path):
    file = tmp_path / "it's: #" / "config.json"
    file.parent.mkdir()
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    file.write_text(json.dumps({**sizes, "vocab_size": 9, "intermediate_size": 99}), "utf-8")
    status, out, _ = speccast("init", "--transformer", file, "--tp", 1)
    assert status == 0
    assert load_yaml(out, "new.yaml").data["model"]["transformer"] == str(file)


def test_schema_is_json_and_knows_the_strategies(speccast):
    _, out, _ = speccast("schema")
    assert "properties" in json.loads(out)
    assert "eagle3" in out
    assert load_yaml(SCENARIO, "whatif.yaml").data.keys() <= json.loads(out)["properties"].keys()


def test_version(speccast):
    status, out, _ = speccast("--version")
    assert status == 0
    assert out.startswith("speccast ")


def hello(name: str = "you") -> None:
    """Greet, to show that a verb can come from elsewhere."""
    typer.echo(f"hello {name}")


def test_verbs_of_other_packages_are_loaded_when_called(speccast, monkeypatch):
    declared = [
        EntryPoint("hello", f"{__name__}:hello", verbs.GROUP),
        EntryPoint("broken", "no_such_package:app", verbs.GROUP),
        EntryPoint("run", f"{__name__}:hello", verbs.GROUP),
    ]

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [p for p in declared if group == verbs.GROUP and name in (None, p.name)]

    monkeypatch.setattr(verbs, "entry_points", found)
    assert speccast("hello", "--name", "planner") == (0, "hello planner\n", "")
    status, out, err = speccast("broken")
    assert (status, out) == (1, "")
    assert "no_such_package" in err
    assert speccast("run", "missing.yaml")[0] == 2
    assert "hello" in speccast("--help")[1]
