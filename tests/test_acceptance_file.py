"""Acceptance files: round trip, entries, refusals in one line, and whole runs from them."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from acceptance_files import CODE, DATA, changed, written
from by_hand import KIND

from models import catalog
from models.acceptance import Acceptance, chain_law
from models.acceptance_file import AcceptanceFile, dump, read
from models.schema import ModelError
from models.strict_yaml import InputError
from sim import experiment
from sim.band import measured_elsewhere
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import load_scenario

ENGINE = catalog.engine("vllm_0.15")
CODE_ONLY = ("code",)


def draft(k=3, **acceptance):
    return KIND["draft_model"](draft="llama-3.2-1b", k=k, acceptance=acceptance)


# The file


def test_what_is_written_reads_back_equal_and_to_the_same_bytes(tmp_path):
    file = AcceptanceFile.model_validate(DATA)
    path = written(tmp_path)
    assert read(path) == file
    assert dump(read(path)) == path.read_text("utf-8") == dump(file)
    assert read(path).entries["draft"].replay["code"].steps()[0].tolist() == [
        0,
        3,
        1,
        2,
        1,
        0,
        0,
        2,
        3,
    ]


def test_a_changed_file_is_read_again(tmp_path):
    path = written(tmp_path)
    read(path)
    path.write_text(path.read_text("utf-8").replace("llama-3.1-8b", "another-model"), "utf-8")
    assert read(path).target == "another-model"


def test_a_large_file_is_read_at_once(tmp_path):
    random = np.random.default_rng(1)
    texts = [" ".join(map(str, random.integers(0, 5, 60))) for _ in range(100)]
    entry = {**DATA["entries"]["draft"], "replay": {"code": {"accepted": texts, "drafted": texts}}}
    data = {**DATA, "entries": {f"entry_{i}": entry for i in range(10)}}
    path = tmp_path / "large.yaml"
    path.write_text(dump(AcceptanceFile.model_validate(data)), "utf-8")
    begin = time.perf_counter()
    read(path)
    assert time.perf_counter() - begin < 3
    assert path.stat().st_size > 250_000


REPLAY = "entries/lookup/replay/code"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "version: must be 1, the layout this version reads, got 2"),
        ("date", "today", "date: "),
        ("entries", {}, "entries: "),
        ("entries/draft/colour", 1, r"entries\.draft\.colour: unknown key"),
        ("entries/draft/strategy", {"k": 3}, r"entries\.draft\.strategy: needs its kind"),
        ("entries/draft/strategy/acceptance", {"tau": 2}, "leaves out the acceptance"),
        ("entries/draft/acceptance", {"catalog": "eagle_llama31_8b"}, "no catalog and no file"),
        ("entries/draft/acceptance", {"alpha": 2}, r"acceptance\.alpha: .*got 2"),
        ("entries/draft/tau/code/lo", 0.5, r"tau\.code\.lo"),
        (f"{REPLAY}/accepted", ["0 1", "x"], "whole numbers joined by spaces, got 'x'"),
        (f"{REPLAY}/accepted", ["0 1", ""], "whole numbers joined by spaces, got ''"),
        (f"{REPLAY}/accepted", ["0 -1"], "whole numbers"),
        (f"{REPLAY}/accepted", ["0 4 1"], "the same requests and steps"),
        (f"{REPLAY}/accepted", ["0 4 1 0", "0 0"], "the same requests and steps"),
        (f"{REPLAY}/drafted", ["0 4 0 0", "4"], "accepted 1 of 0 drafted"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, path, value, message):
    import yaml

    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(changed(path, value), sort_keys=False), "utf-8")
    with pytest.raises(InputError, match=message) as error:
        read(file)
    assert "\n" not in str(error.value)
    assert re.match(rf"{re.escape(str(file))}:\d+: ", str(error.value))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml: cannot read: No such file"):
        read(tmp_path / "none.yaml")


# Entries


def test_a_fit_is_the_block_of_its_domain(tmp_path):
    path = str(written(tmp_path))
    law = draft(file=path).law(ENGINE, CODE_ONLY)
    own = chain_law(Acceptance(**CODE), 3, CODE_ONLY)
    assert law.tau == own.tau and law.uncertainty == 0.02 and law.basis == "validated"
    ids = np.arange(40)
    one, other = (x.paths(1, ids, 50 + 0 * ids, 0 * ids, 900 + ids) for x in (law, own))
    assert (one.accepted == other.accepted).all()
    both = draft(file=path).law(ENGINE, ("code", "chat"))
    assert both.tau_of(1) == pytest.approx(1.5)


def test_what_is_stated_beside_a_file_overrides_it(tmp_path):
    path = str(written(tmp_path))
    block = Acceptance(file=path, entry="draft", spread=0.0, uncertainty=0.3, basis="assumed")
    found = block.for_domain("code")
    assert (found.spread, found.uncertainty, found.basis) == (0.0, 0.3, "assumed")
    assert found.step_spread == 0.7 and found.alpha_by_pos == (0.6, 0.55, 0.5)


def test_domains_may_come_from_a_file_each(tmp_path):
    path = str(written(tmp_path))
    law = draft(tau=3.0, by_domain={"code": {"file": path}}).law(ENGINE, ("sql", "code"))
    assert law.tau_of(0) == pytest.approx(3.0)
    assert law.tau_of(1) == pytest.approx(1 + 0.6 + 0.33 + 0.165)


def test_head_accuracies_of_a_file_serve_other_trees(tmp_path):
    path = str(written(tmp_path))
    medusa = KIND["medusa"](heads=3, tree=[2, 1, 1], acceptance={"file": path, "entry": "chains"})
    law = medusa.law(ENGINE, ("any",))
    assert law.tau == pytest.approx(1 + 0.6 + 0.6 * 0.4 + 0.6 * 0.4 * 0.3, rel=1e-3)
    assert law.basis == "extrapolated"


def test_an_entry_is_found_by_kind_or_by_name(tmp_path):
    path = str(written(tmp_path))
    assert draft(file=path).resolved_acceptance().entry == "draft"
    for acceptance, message in (
        (
            {"file": path},
            r"is missing: the file has draft \(draft_model\), .*several of kind 'medusa'",
        ),
        ({"file": path, "entry": "trees"}, r"the file has draft .*, got 'trees'"),
    ):
        with pytest.raises(ModelError, match=message) as error:
            KIND["medusa"](acceptance=acceptance).law(ENGINE, CODE_ONLY)
        assert error.value.key == "acceptance.entry"
    with pytest.raises(ModelError, match="none of kind 'eagle'"):
        KIND["eagle"](acceptance={"file": path}).law(ENGINE, CODE_ONLY)


def test_figures_of_another_shape_and_of_other_domains_are_refused(tmp_path):
    path = str(written(tmp_path))
    tree = {"file": path, "entry": "tree"}
    assert KIND["medusa"](tree=[[0], [1], [0, 0]], acceptance=tree).law(ENGINE, CODE_ONLY)
    with pytest.raises(
        ModelError, match="'tree' is the tau of 3 drafted tokens in 2 levels, got 4"
    ):
        KIND["medusa"](acceptance=tree).law(ENGINE, CODE_ONLY)
    with pytest.raises(ModelError, match="'draft' has fits of code, chat, got domain 'sql'"):
        draft(file=path).law(ENGINE, ("sql",))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"tau": 2, "entry": "draft"}, "entry needs file"),
        ({"tau": 2, "replay": True}, "replay needs file"),
        ({"tau": 2, "file": "a.yaml"}, "one way, got tau and file"),
        ({"file": "a.yaml", "replay": True, "spread": 0.3}, "spread says nothing about requests"),
        ({"file": "a.yaml", "replay": True, "by_domain": {"x": {"tau": 2}}}, "by_domain beside it"),
        ({"tau": 2, "by_domain": {"x": {"file": "a.yaml", "replay": True}}}, "all domains at once"),
    ],
)
def test_contradictory_statements_of_a_file_are_refused(block, message):
    with pytest.raises(ValueError, match=message):
        Acceptance(**block)


def test_figures_of_another_target_are_less_certain(tmp_path):
    block = Acceptance(file=str(written(tmp_path)), entry="draft")
    assert not measured_elsewhere(block, "llama-3.1-8b")
    assert measured_elsewhere(block, "qwen3-32b")


# Whole runs

SCENARIO = """\
model: {transformer: llama-3.1-8b}
hardware: {gpu: h100_sxm}
engine: {name: vllm_0.15}
workload:
  arrivals: {kind: poisson, rate_per_s: 4}
  requests: 60
  streams:
    - {domain: code, prompt_tokens: {kind: fixed, value: 300},
       output_tokens: {kind: fixed, value: 120}}
strategies:
  - kind: draft_model
    draft: llama-3.2-1b
    k: 3
    acceptance: {file: files/acceptance.yaml}
  - kind: ngram
    k: 4
    acceptance: {file: files/acceptance.yaml, replay: true}
run: {band: false}
"""


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "files").mkdir()
    written(tmp_path / "files")
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, "utf-8")
    return path


def test_a_run_takes_its_acceptance_from_a_file_beside_the_scenario(scenario):
    loaded = load_scenario(scenario)
    rows = {row["strategy"]: row for row in experiment.run(loaded).document["rows"]}
    assert rows["draft_model llama-3.2-1b K=3"]["tau"] == pytest.approx(2.095, rel=0.03)
    assert rows["ngram K=4"]["tau"] == pytest.approx(2.0, rel=0.01)
    assert str(scenario.parent / "files" / "acceptance.yaml") in resolved_yaml(loaded.resolved)


def test_the_resolved_scenario_of_a_run_runs_again(scenario, tmp_path, speccast):
    code, _, err = speccast("run", scenario, "--out", tmp_path / "first")
    assert code == 0, err
    again = tmp_path / "first" / "scenario.yaml"
    code, _, err = speccast("run", again, "--out", tmp_path / "second")
    assert code == 0, err
    assert (tmp_path / "second" / "scenario.yaml").read_bytes() == again.read_bytes()
    same = (tmp_path / folder / "summary.json" for folder in ("first", "second"))
    one, other = (path.read_text("utf-8") for path in same)
    assert one == other


def test_a_run_with_a_wrong_file_ends_with_one_line(scenario, speccast):
    file = scenario.parent / "files" / "acceptance.yaml"
    file.write_text(file.read_text("utf-8").replace("version: 1", "version: 3"), "utf-8")
    code, out, err = speccast("run", scenario)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and f"{file}:1: version" in err
    written(file.parent)
    text = SCENARIO.replace("domain: code", "domain: sql")
    scenario.write_text(text, "utf-8")
    code, _, err = speccast("run", scenario)
    assert code == 2 and "scenario.yaml:14: strategies[0].acceptance.file: " in err
    assert "has fits of code, chat, got domain 'sql'" in err


def test_keys_of_a_file_are_in_the_schema(speccast):
    code, out, _ = speccast("schema")
    assert code == 0
    for key in ("step_spread", "context_slope", "entry", "replay", "file"):
        assert f'"{key}"' in out
