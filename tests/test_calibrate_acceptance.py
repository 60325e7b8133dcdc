"""``speccast calibrate acceptance``: runs in, table and file out, refusals on one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acceptance_oracle import MatchTruth, Truth, trace
from acceptance_runs import SCHEMA, folder, rows

from calibration.acceptance import command
from calibration.acceptance.trace import Trace
from models import catalog
from models.acceptance_file import read
from models.strategies import strategy_types
from sim import cli

BURSTY = Truth((0.8, 0.5), spread=0.4, step_spread=0.9, step_memory=0.8)
LOOKUP = MatchTruth(-1.5, 1.5, (1.0, 1.2), spread=0.4)
TREE = {"kind": "medusa", "heads": 2, "tree": [[0], [1], [0, 0]]}
LOOKAHEAD = {"kind": "lookahead", "w": 4, "n": 3, "g": 5}
STRATEGIES = {
    "draft": {"kind": "draft_model", "draft": "smollm2-135m", "k": 2},
    "ngram": {"kind": "ngram", "k": 2},
    "medusa": TREE,
    "lookahead": LOOKAHEAD,
    "plain": {"kind": "autoregressive"},
    "adaptive": {"kind": "adaptive", "window": 64},
}

ENGINE = catalog.engine("transformers")


def redrafted(recorded: Trace, drafted: object, ranks: tuple[str, ...] = ()) -> Trace:
    """The same steps, so many tokens verified."""
    return Trace(
        recorded.offsets,
        recorded.accepted,
        np.zeros_like(recorded.accepted) + drafted,
        recorded.context,
        ranks,
    )


def recorded_runs(path: Path) -> Path:
    chain = trace(BURSTY, 6, 48, seed=1)
    ranks = tuple(" ".join([*["0"] * n, *["2"] * (n < 2)]) for n in chain.accepted.tolist())
    pool = (4 + np.arange(chain.steps) % 6) * 2 - 1
    traces = {
        ("draft", "code"): chain,
        ("draft", "prose"): trace(BURSTY, 2, 32, seed=2),
        ("ngram", "code"): trace(LOOKUP, 6, 48, seed=3),
        ("medusa", "code"): redrafted(chain, 3, ranks),
        ("lookahead", "code"): redrafted(chain, pool),
        ("plain", "code"): redrafted(trace(Truth(()), 4, 8), 0),
        ("adaptive", "code"): chain,
    }
    return folder(path, traces, STRATEGIES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_runs(tmp_path_factory.mktemp("recorded") / "runs")


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["calibrate", "acceptance", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written") / "acceptance.yaml"
    assert run(runs, "--out", out) == 0
    return out


def test_the_file_has_an_entry_for_each_strategy_that_drafts_and_is_known(written):
    file = read(written)
    assert list(file.entries) == ["draft", "ngram", "medusa", "medusa_heads", "lookahead"]
    assert (file.target, file.date) == ("smollm2-135m", "2026-02-03")
    assert "two cores" in file.source


def test_every_entry_gives_a_law_with_the_measured_tau(written):
    for name, entry in read(written).entries.items():
        if name == "medusa_heads":
            continue
        given = {**entry.strategy, "acceptance": {"file": str(written), "entry": name}}
        strategy = strategy_types()[entry.kind].model_validate(given)
        domains = tuple(entry.tau)
        law = strategy.law(ENGINE, domains)
        for index, domain in enumerate(domains):
            tau = entry.tau[domain]
            assert law.tau_of(index) == pytest.approx(tau.value, rel=0.06), (name, domain)


def test_shape_and_drafted_tokens_are_written_where_they_say_something(written):
    entries = read(written).entries
    assert entries["draft"].shape is None and entries["medusa"].shape.drafted == 3
    assert entries["lookahead"].shape.depth == 2
    assert entries["draft"].replay["code"].drafted is None
    assert entries["ngram"].replay["code"].drafted is not None


def test_recorded_requests_are_replayed_step_by_step(written):
    recorded = trace(BURSTY, 6, 48, seed=1)
    replay = read(written).entries["draft"].replay["code"]
    assert replay.steps()[0].tolist() == recorded.accepted.tolist()
    assert replay.lengths.tolist() == recorded.lengths.tolist()


def test_the_share_of_guesses_found_comes_from_the_tokens_verified(written):
    found = (np.arange(trace(BURSTY, 6, 48, seed=1).steps) % 6).mean() / 5
    assert read(written).entries["lookahead"].strategy["found_share"] == pytest.approx(
        found, abs=1e-4
    )


def test_heads_are_rated_by_rank_with_standard_errors(written):
    entry = read(written).entries["medusa_heads"]
    recorded = trace(BURSTY, 6, 48, seed=1)
    first = (recorded.accepted >= 1).mean()
    heads = entry.acceptance.by_domain["code"].heads
    assert heads[0] == pytest.approx((first, 0.0, 1 - first), abs=2e-4)
    assert len(entry.standard_errors["code"]["heads"][1]) == 3
    wider = strategy_types()["medusa"].model_validate(
        {"heads": 2, "tree": [3, 3], "acceptance": {"file": str(written), "entry": "medusa_heads"}}
    )
    assert wider.law(ENGINE, ("code",)).tau > 2.9


def test_the_slope_and_its_error_are_told_even_where_it_is_not_used(written):
    errors = read(written).entries["draft"].standard_errors["code"]
    assert errors["context_slope"] > 0 and isinstance(errors["context_slope_fitted"], float)
    assert read(written).entries["draft"].acceptance.by_domain["code"].context_slope is None


def test_a_slope_far_from_zero_is_used_with_the_contexts_it_was_seen_at(tmp_path):
    sloping = trace(Truth((0.5, 0.3), context_slope=1.2), 20, 64, seed=1, prompts=(20, 900))
    runs = folder(tmp_path, {("draft", "code"): sloping}, STRATEGIES)
    assert run(runs, "--out", tmp_path / "a.yaml") == 0
    block = read(tmp_path / "a.yaml").entries["draft"].acceptance.by_domain["code"]
    assert 0.6 < block.context_slope < 1.6
    limits = (sloping.context.min(), sloping.context.max())
    assert block.context_range == limits
    assert block.context_reference == np.median(sloping.context)


def test_two_requests_give_rates_with_an_assumed_spread(written):
    block = read(written).entries["draft"].acceptance.by_domain["prose"]
    assert block.spread is None and block.basis == "extrapolated"
    assert block.uncertainty > 0.02


def test_the_same_runs_give_the_same_bytes(runs, written, tmp_path):
    again = tmp_path / "again.yaml"
    assert run(runs, "--out", again) == 0
    assert again.read_bytes() == written.read_bytes()


def test_the_table_goes_to_stdout_and_remarks_to_stderr(runs, tmp_path, capsys):
    assert run(runs, "--out", tmp_path / "a.yaml", "--width", "240") == 0
    out, err = capsys.readouterr()
    lines = {tuple(line.split()[:2]): line.split() for line in out.splitlines() if line}
    assert lines["draft", "code"][2] == "6" and "assumed" in lines["draft", "prose"]
    assert "file leaves it to the default" in " ".join(out.split())
    assert "adaptive" in err and "adaptive" not in out
    assert f"wrote {tmp_path / 'a.yaml'}" in err and "plain" not in err


def test_json_has_the_checks_and_the_table_their_p_values(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("calibration.acceptance.check.REPLICATES", 29)
    traces = {("ngram", name): trace(LOOKUP, 8, 32, i) for i, name in enumerate(("code", "prose"))}
    traces["ngram", "maths"] = trace(LOOKUP, 4, 32, 9)
    runs = folder(tmp_path, traces, STRATEGIES)
    assert run(runs, "--out", tmp_path / "a.yaml", "--check", "--json") == 0
    first, _, few = json.loads(capsys.readouterr().out)["rows"]
    assert few["check"] is None
    assert set(first["check"]) == {"fitted", "independent", "is_independent"}
    assert 0 < first["check"]["fitted"]["p"] <= 1
    assert first["lo"] < first["fitted_tau"] < first["hi"]
    assert run(runs, "--out", tmp_path / "a.yaml", "--check") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "fails" in text and "1 have fewer than 8 requests" in text


def test_a_table_by_itself_needs_to_be_told_what_its_strategies_are(tmp_path, capsys):
    table = folder(tmp_path, {("n4", "code"): trace(LOOKUP, 5, 32)}, {}) / "acceptance.parquet"
    (tmp_path / "run.json").unlink()
    assert run(table, "--out", tmp_path / "a.yaml") == 2
    assert "strategy 'n4' is: give --strategy 'n4=" in capsys.readouterr().err
    given = ("--strategy", "n4={kind: ngram, k: 2}")
    assert run(table, "--out", tmp_path / "a.yaml", *given) == 0
    assert read(tmp_path / "a.yaml").entries["n4"].kind == "ngram"


def test_a_file_too_large_to_be_read_leaves_the_recorded_requests_out(written, tmp_path):
    file = read(written)
    assert command.write(file, tmp_path / "whole.yaml")
    long = file.entries["draft"].replay["code"].model_copy(update={"accepted": ("1 " * 600_000,)})
    entry = file.entries["draft"].model_copy(update={"replay": {"code": long}})
    large = file.model_copy(update={"entries": {**file.entries, "draft": entry}})
    assert not command.write(large, tmp_path / "bare.yaml")
    assert read(tmp_path / "bare.yaml").entries["ngram"].replay == {}


def test_an_interrupted_or_failed_fit_leaves_no_file(runs, tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "measure", fails)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        cli.main(["calibrate", "acceptance", str(runs), "--out", str(tmp_path / "a.yaml")])
    assert list(tmp_path.iterdir()) == []


def changed(path: Path, **values: object) -> Path:
    """A table whose second row has these values."""
    table = rows("ngram", "code", trace(LOOKUP, 4, 16))
    table[1].update(values)
    pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), path / "acceptance.parquet")
    (path / "run.json").write_text(json.dumps({"strategies": STRATEGIES}))
    return path


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accepted": -1}, "accepted: must not be negative, got -1 in row 2"),
        ({"accepted": 5, "drafted": 2}, "drafted: must be at least what was accepted, got 2"),
        ({"context": 0}, "context: must be at least 1, got 0"),
        ({"step": 0}, "step: step 0 of request 0 stands there twice"),
        ({"accepted": 3, "drafted": 3}, "ngram: accepts at most 2 tokens a step, got 3"),
    ],
)
def test_counts_that_cannot_be_are_refused(tmp_path, capsys, values, message):
    assert run(changed(tmp_path, **values), "--out", tmp_path / "a.yaml") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "a.yaml").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (SCHEMA.empty_table(), "is empty"),
        (SCHEMA.empty_table().drop_columns("context"), "context: is missing"),
        (pa.table({"strategy": [1]}), "strategy: must be text, got int64"),
    ],
)
def test_a_table_of_another_kind_is_refused(tmp_path, capsys, table, message):
    pq.write_table(table, tmp_path / "acceptance.parquet")
    assert run(tmp_path, "--out", tmp_path / "a.yaml") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("{", "cannot read"),
        ("[]", "strategies: must name the kind"),
        ('{"strategies": {"ngram": {"k": 2}}}', "strategies: must name the kind"),
        ('{"strategies": {"ngram": {"kind": "ngram", "k": 0}}}', "ngram.k"),
        ('{"strategies": {"ngram": {"kind": "adaptive"}}}', "no strategy that drafts"),
        ('{"strategies": {"ngram": {"kind": "ngram", "k": 2}}, "date": "today"}', "date: must be"),
        ('{"strategies": {}}', "does not say what strategy 'ngram' is"),
    ],
)
def test_runs_that_do_not_say_what_ran_are_refused(tmp_path, capsys, about, message):
    path = changed(tmp_path)
    (path / "run.json").write_text(about)
    assert run(path, "--out", tmp_path / "a.yaml") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_places_and_files_that_cannot_be_are_refused(runs, tmp_path, capsys):
    assert run(tmp_path / "nowhere", "--out", tmp_path / "a.yaml") == 2
    assert run(runs, "--out", tmp_path / "a.json") == 2
    assert run(runs, "--out", tmp_path / "a.yaml", "--strategy", "ngram") == 2
    (tmp_path / "text.parquet").write_text("no table")
    assert run(tmp_path / "text.parquet", "--out", tmp_path / "a.yaml") == 2
    missing, suffix, given, text = capsys.readouterr().err.splitlines()
    assert "cannot read" in missing and "must end in .yaml" in suffix
    assert "--strategy: must be as in" in given and "cannot read" in text


def test_lookahead_that_verified_other_tokens_than_its_pool_can_hold_is_refused(tmp_path, capsys):
    other = redrafted(trace(BURSTY, 4, 16), 40)
    runs = folder(tmp_path, {("lookahead", "code"): other}, STRATEGIES)
    assert run(runs, "--out", tmp_path / "a.yaml") == 2
    assert "verifies 7 to 17 tokens beyond the current one, got 40 to 40" in capsys.readouterr().err
