"""The verb ``calibrate decode``: what it refuses, and what an interrupted run leaves. No torch."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace

import pytest
from decoding_cases import DATE, LENGTHS, RUN, Counting, Ticking, prompts
from device_cases import BOX

from calibration.acceptance import runs
from calibration.decoding import asked, command
from calibration.decoding.asked import Options
from calibration.decoding.journal import Journal
from calibration.decoding.plan import plan
from calibration.decoding.run import Lengths, run
from calibration.decoding.strategies import KINDS, labels_of
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.tables import read_parquet

pytestmark = pytest.mark.usefixtures("calibrate_declared")

DRAFT = {"kind": "draft_model", "draft": "smollm2-135m", "k": 3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--strategies", "medusas"], "--strategies: no strategy 'medusas'; did you mean 'medusa'"),
        (["--strategies", "xy"], "no strategy 'xy'; there are autoregressive, draft_model"),
        (
            ["--strategies", "draft_model,medusa", "--batch", "4"],
            "--batch: 'medusa' decodes one prompt at a time, got 4; more can autoregressive",
        ),
        (["--prompts", "code,poems"], "--prompts: must be one of code, prose"),
        (["--prompts", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--per-domain", "100000"], "--per-domain: must be 1 to the"),
        (["--lookahead", "5,4"], "--lookahead: must be W,N,G as in 5,4,5"),
        (["--lookahead", "5,1,5"], "--lookahead: must be W,N,G as in 5,4,5"),
        (["--tree", "medusa_64"], "--tree: unknown tree 'medusa_64'; did you mean 'medusa_63'?"),
        (["--tree", "[[0],[1,0]]"], "--tree: "),
        (["--tree", "[0"], "--tree: "),
        (["--profile", "none.yaml"], "none.yaml: cannot read"),
        (["--profile", "none.yaml", "--batch", "2"], "--profile: only runs of one prompt"),
        (["--k", "0"], "--k"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_bad_options_are_refused_in_one_line(speccast, tmp_path, arguments, said):
    status, text, error = speccast("calibrate", "decode", "--out", tmp_path / "runs", *arguments)
    assert (status, text) == (2, "")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_what_is_no_prompt_is_refused(speccast, tmp_path):
    for entry, said in (
        ({"domain": "all", "text": "hi"}, "domain: must not be 'all': all together"),
        ({"domain": "mail", "text": "\ud800"}, "text: is no Unicode: surrogates not allowed"),
    ):
        file = tmp_path / "mine.jsonl"
        file.write_text(json.dumps(entry) + "\n", "utf-8")
        given = ("--prompts", file, "--out", tmp_path / "runs")
        assert speccast("calibrate", "decode", *given) == (2, "", f"{file}:1: {said}\n")


def test_a_forecast_needs_plain_decoding_of_this_run_or_an_earlier_one(tmp_path):
    options = Options(tmp_path, profile="h100_sxm")
    asked.check_baseline(options, {"autoregressive", "ngram"})
    asked.check_baseline(options._replace(profile=None), {"ngram"})
    with pytest.raises(InputError, match=r"^--profile: .*: add autoregressive to --strategies"):
        asked.check_baseline(options, {"ngram"})


def test_a_profile_of_another_device_is_said_to_be_one(tmp_path):
    said = asked.other_device(Options(tmp_path, profile="h100_sxm"), BOX)
    assert said == "--profile: of another device, h100_sxm; here is some_cpu_9000"
    h100 = BOX._replace(name="NVIDIA H100 80GB HBM3")
    assert asked.other_device(Options(tmp_path, profile="h100_sxm"), h100) == ""
    assert asked.other_device(Options(tmp_path), BOX) == ""


def test_what_was_measured_is_printed_before_a_forecast_that_fails(speccast, prepared, monkeypatch):
    def forecast(*_):
        raise ModelError("no strategy can be forecast")

    later = prepared._replace(options=prepared.options._replace(profile="h100_sxm"))
    monkeypatch.setattr(command, "prepare", lambda *_: later)
    monkeypatch.setattr(command, "decode", decoding(later))
    monkeypatch.setattr(command, "forecast", forecast)
    given = ("--out", later.options.out, "--profile", "h100_sxm")
    status, text, said = speccast("calibrate", "decode", *given)
    assert status == 2
    assert "draft_model" in text
    assert said.startswith("wrote ")
    assert said.endswith("no strategy can be forecast\n")


def test_a_place_that_cannot_be_written_is_refused(speccast, tmp_path):
    (tmp_path / "file").write_text("mine", "utf-8")
    status, _, said = speccast("calibrate", "decode", "--out", tmp_path / "file")
    assert status == 2
    assert "needs a folder, got the file" in said
    assert said.count("\n") == 1


def test_all_is_every_strategy_that_can():
    assert labels_of("all") == tuple(KINDS)
    assert labels_of("all", 4) == ("autoregressive", "draft_model", "draft_model_sampled")
    assert labels_of("ngram, eagle,ngram") == ("ngram", "eagle")


@pytest.fixture
def prepared(tmp_path):
    """Decoders that count, in place of what loads models."""
    folder = tmp_path / "runs"
    kept = Journal(folder / "journal.jsonl", RUN, DATE)
    decoders = {
        "autoregressive": Counting("autoregressive", k=0, accepted=0),
        "draft_model": Counting(),
    }
    kept.enter("autoregressive", {"block": {"kind": "autoregressive"}})
    kept.enter("draft_model", {"block": DRAFT})
    target = SimpleNamespace(name="tiny", dtype="fp32")
    return command.Prepared(
        command.Options(folder), BOX, target, decoders, prompts(code=2, prose=2), kept
    )


def decoding(prepared, most=None, by=signal.SIGINT):
    """What `command.decode` does, interrupted after so many prompts."""

    def decode(*_):
        batches = plan(prepared.prompts, list(prepared.decoders), done=prepared.journal.keys)
        lengths = Lengths(*LENGTHS)
        run(batches[:most], prepared.decoders, prepared.journal, lengths, Ticking())
        if most is not None:
            signal.raise_signal(by)

    return decode


def test_tables_and_what_they_rest_on_are_written(speccast, prepared, monkeypatch):
    monkeypatch.setattr(command, "prepare", lambda *_: prepared)
    monkeypatch.setattr(command, "decode", decoding(prepared))
    status, text, said = speccast("calibrate", "decode", "--out", prepared.options.out)
    assert status == 0
    assert text.startswith("tiny (fp32) on Some CPU (R) 9000, 1 thread, torch 2.13.0: at most 64")
    names = ["requests.parquet", "steps.parquet", "acceptance.parquet", "run.json"]
    assert said == f"wrote {', '.join(str(prepared.options.out / name) for name in names)}\n"
    about = json.loads((prepared.options.out / "run.json").read_text("utf-8"))
    assert about["strategies"] == {
        "autoregressive": {"kind": "autoregressive"},
        "draft_model": DRAFT,
    }
    assert about["differs"] == {"autoregressive": 0.0, "draft_model": 0.0}
    assert (about["target"], about["date"], about["machine"]) == ("tiny", DATE, RUN["machine"])
    assert (about["prompts"], about["seed"], about["stream"]) == (4, 0, [])
    read = runs.read(prepared.options.out)
    assert list(read.strategies) == ["draft_model"]
    assert read.traces["draft_model"]["prose"].requests == 2


def test_as_json_it_is_one_document(speccast, prepared, monkeypatch):
    monkeypatch.setattr(command, "prepare", lambda *_: prepared)
    monkeypatch.setattr(command, "decode", decoding(prepared))
    _, text, _ = speccast("calibrate", "decode", "--out", prepared.options.out, "--json")
    document = json.loads(text)
    assert document["run"]["target"] == "tiny"
    own = [one for one in document["rows"] if one["label"] == "draft_model"]
    assert [one["tau"]["value"] for one in own] == [3.0, 3.0, 3.0]


@pytest.fixture
def interruptible():
    """Shells start what runs in the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("by", "left"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_writes_what_is_complete_and_says_how_to_go_on(
    speccast, prepared, monkeypatch, by, left
):
    monkeypatch.setattr(command, "prepare", lambda *_: prepared)
    monkeypatch.setattr(command, "decode", decoding(prepared, 3, by))
    status, text, said = speccast("calibrate", "decode", "--out", prepared.options.out)
    assert status == left
    path = prepared.journal.path
    assert said.splitlines()[0] == (
        f"interrupted: 3 prompts are kept in {path}; the same command goes on from there"
    )
    assert "draft_model" in text
    assert len(read_parquet(prepared.options.out / "requests.parquet")["id"]) == 3


@pytest.mark.usefixtures("interruptible")
def test_interrupted_before_the_first_prompt_it_says_so(speccast, prepared, monkeypatch):
    monkeypatch.setattr(command, "prepare", lambda *_: prepared)
    monkeypatch.setattr(command, "decode", decoding(prepared, most=0))
    status, text, said = speccast("calibrate", "decode", "--out", prepared.options.out)
    assert status == 130
    assert "No prompt is finished yet." in text
    assert said.startswith("interrupted: no prompt was finished yet\n")
