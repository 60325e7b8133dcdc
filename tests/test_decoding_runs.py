"""``calibrate decode`` on a random model of three layers: all strategies, end to end."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'decoding'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

from tiny_folder import save_tiny, write_prompts

from calibration.decoding.heads.command import Options, train_heads
from calibration.decoding.journal import Journal
from calibration.decoding.strategies import KINDS
from models.acceptance_file import read
from sim.tables import read_parquet

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("calibrate_declared")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("draft") / "small", num_hidden_layers=1)


@pytest.fixture(scope="module")
def heads(model, tmp_path_factory):
    """Parts trained for a moment: what they draft hardly matters here."""
    folder = tmp_path_factory.mktemp("heads")
    train_heads(Options(str(model), minutes=0.01, quick=True), folder, lambda *_: None)
    return folder


@pytest.fixture
def decode(speccast, model, draft, heads, tmp_path):
    """Decode three short prompts of each of two domains."""
    texts = {
        "code": [f"def f{n}(x):\n    return x + {n}\n" for n in range(3)],
        "prose": [f"The {n} quick brown foxes jump over a dog." for n in range(3)],
    }
    prompts = write_prompts(tmp_path / "prompts.jsonl", **texts)
    out = tmp_path / "runs"

    def call(*more):
        given = ["--model", model, "--heads", heads, "--prompts", prompts, "--out", out]
        given += ["--dtype", "fp32", "--max-new-tokens", 12, *more]
        status, text, said = speccast("calibrate", "decode", *given)
        assert status == 0, said
        return out, text, said

    return call


def test_every_strategy_writes_what_plain_decoding_does(decode):
    out, text, _ = decode("--k", 2)
    about = json.loads((out / "run.json").read_text("utf-8"))
    greedy = [label for label, kind in KINDS.items() if not kind.sampled]
    assert about["differs"] == dict.fromkeys(greedy, 0.0)
    assert list(about["strategies"]) == list(KINDS)
    assert about["strategies"]["dynamic_k"]["k_max"] == 2
    assert about["stream"] == ["prose", "code"]
    for label in KINDS:
        assert f"\n{label} " in text
    requests = read_parquet(out / "requests.parquet")
    assert len(requests["id"]) == 6 * len(KINDS)
    assert (requests["output_tokens"] <= 12).all()
    ranks = read_parquet(out / "acceptance.parquet")
    assert all(ranks["ranks"][ranks["strategy"] == "medusa"])
    steps = read_parquet(out / "steps.parquet")
    assert (steps["verify_s"] > 0).all()
    assert {"autoregressive", "ngram"} >= set(
        steps["note"][(steps["strategy"] == "adaptive") & (steps["n_decode"] > 0)]
    )


def test_the_same_command_decodes_nothing_twice_and_more_prompts_are_added(decode):
    out, _, _ = decode("--strategies", "autoregressive,dynamic_k", "--per-domain", 2)
    before = (out / "journal.jsonl").read_bytes()
    _, _, said = decode("--strategies", "dynamic_k,autoregressive", "--per-domain", 2)
    assert (out / "journal.jsonl").read_bytes() == before
    assert "8 prompts of an earlier run are kept" in said
    decode("--strategies", "dynamic_k,autoregressive,ngram")
    after = (out / "journal.jsonl").read_bytes()
    assert after.startswith(before)
    journal = Journal(out / "journal.jsonl", json.loads(after.splitlines()[0])["run"], "")
    assert len(journal.keys) == 3 * 6


def test_a_draft_of_ones_own_takes_the_place_of_the_trained_one(decode, draft):
    out, _, _ = decode("--strategies", "autoregressive,draft_model", "--draft", draft)
    about = json.loads((out / "run.json").read_text("utf-8"))
    assert about["strategies"]["draft_model"]["draft"] == str(draft)
    assert about["differs"]["draft_model"] == 0.0


def test_acceptance_is_fitted_to_the_runs(decode, speccast, tmp_path):
    out, _, _ = decode("--strategies", "autoregressive,medusa,ngram,eagle")
    file = tmp_path / "acceptance.yaml"
    status, _, said = speccast("calibrate", "acceptance", out, "--out", file)
    assert status == 0, said
    assert {"medusa", "ngram", "eagle"} <= set(read(file).entries)


def test_side_by_side_the_texts_are_the_same(decode, tmp_path):
    alone, _, _ = decode("--strategies", "autoregressive")
    texts = tokens(alone)
    (alone / "journal.jsonl").unlink()
    together, _, said = decode("--batch", 2)
    assert "others take one prompt at a time" in said
    found = tokens(together)
    assert found["autoregressive"] == texts["autoregressive"] == found["draft_model"]
    steps = read_parquet(together / "steps.parquet")
    assert steps["n_decode"].max() == 2


def tokens(folder):
    """Texts by strategy, then domain and number."""
    found: dict = {}
    for line in map(json.loads, (folder / "journal.jsonl").read_text("utf-8").splitlines()):
        for number, text in zip(line.get("prompts", ()), line.get("tokens", ()), strict=True):
            found.setdefault(line["strategy"], {})[line["domain"], number] = text
    return found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--strategies", "medusa"], "speccast calibrate train-heads"),
        (["--draft", "none", "--strategies", "draft_model"], "--draft: must be"),
        (["--model", "none"], "--model: must be"),
        (["--max-new-tokens", 2000], "--max-new-tokens: prompt 0 of code has"),
        (["--threads", 4000], "--threads: must be 1 to the"),
        (["--tree", "[2,2,2,2,2]", "--strategies", "autoregressive"], ""),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(speccast, model, tmp_path, more, said):
    prompts = write_prompts(tmp_path / "prompts.jsonl", code=["def f(x):"])
    given = {"--model": model, "--prompts": prompts, "--heads": tmp_path / "heads"}
    given |= {"--out": tmp_path / "runs", "--dtype": "fp32", "--max-new-tokens": 4}
    given |= dict(zip(more[::2], more[1::2], strict=True))
    arguments = [part for pair in given.items() for part in pair]
    status, text, error = speccast("calibrate", "decode", *arguments)
    if said:
        assert (status, text, error.count("\n")) == (2, "", 1)
        assert said in error
    else:
        assert status == 0
