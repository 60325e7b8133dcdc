"""A recording of several kinds of text: each keeps its own acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from live_recordings import about, by_hand

from calibration.live import recording
from calibration.live.fit import deployed
from calibration.live.fit.deployed import Deployed, accepted
from calibration.live.recording import Observation, Stage
from calibration.live.replay import replayed
from models.acceptance_file import read
from sim.scenario.workload import generate
from sim.tables import RunTable

MEDUSA = {"kind": "medusa", "heads": 2}
REQUESTS, STEPS = 12, 50
ACCEPTED = {"code": 0, "prose": 2}


def recorded(folder: Path, label: str = "medusa", block: dict[str, Any] = MEDUSA) -> Observation:
    """Drafts of code always fail at once, those of prose never."""
    texts = np.array([text for text in ACCEPTED for _ in range(REQUESTS // 2)], dtype=object)
    steps = np.repeat(np.arange(len(texts)), STEPS)
    table = {
        "strategy": np.full(len(steps), label, dtype=object),
        "request": steps,
        "step": np.tile(np.arange(STEPS), len(texts)),
        "domain": texts[steps],
        "context": 100 + np.tile(np.arange(STEPS), len(texts)),
        "drafted": np.full(len(steps), 2),
        "accepted": np.array([ACCEPTED[text] for text in texts[steps]]),
        "ranks": np.full(len(steps), "", dtype=object),
    }
    stage = Stage({"concurrency": 1}, 0, label)
    run = RunTable(stage.point, label, 0, by_hand(len(texts)) | {"domain": texts})
    recording.write(folder, about({label: block}), [stage], [run], acceptance=table)
    return recording.read(folder)


def test_its_acceptance_is_told_by_text(tmp_path):
    seen = recorded(tmp_path / "runs")
    told = accepted(seen, MEDUSA, tmp_path / "acceptance.yaml", "acceptance.yaml")
    assert told.file is not None
    rates = told.file.entries["medusa"].acceptance.by_domain
    assert {name: rates[name].alpha_by_pos[0] > 0.5 for name in rates} == {
        "code": False,
        "prose": True,
    }


def test_a_server_that_tells_steps_is_described_with_them(tmp_path):
    seen = recorded(tmp_path / "runs")
    file = tmp_path / "acceptance.yaml"
    block = MEDUSA | {"acceptance": accepted(seen, MEDUSA, file, str(file)).block}
    described = Deployed("h100_sxm", "llama-3.1-8b", engine="vllm_0.32")
    (own,) = described.scenario([block], ["code", "prose"]).strategies
    assert own.kind == "medusa"


def test_a_label_may_have_any_sign(tmp_path):
    block = {"kind": "ngram", "k": 2}
    seen = recorded(tmp_path / "runs", "ngram K=2: a={b}", block)
    file = tmp_path / "acceptance.yaml"
    told = accepted(seen, block, file, file.name, "llama-3.1-8b")
    assert told.block == {"file": file.name, "entry": "ngram K=2: a={b}"}
    assert told.file == read(file)
    assert (told.file.target, told.file.date) == ("llama-3.1-8b", "2026-11-30")


def test_what_is_stated_now_goes_before_what_was_recorded(tmp_path):
    seen = recorded(tmp_path / "runs", "plain", {"kind": "autoregressive"})
    file = tmp_path / "acceptance.yaml"
    told = accepted(seen, {"kind": "eagle3", "k": 2}, file, file.name)
    assert told.file is not None
    assert told.file.entries["plain"].strategy == {"kind": "eagle3", "k": 2}


def test_too_many_steps_to_be_read_back_leave_the_fit(tmp_path, monkeypatch):
    seen = recorded(tmp_path / "runs")
    file = tmp_path / "acceptance.yaml"
    whole = accepted(seen, MEDUSA, file, file.name).file
    monkeypatch.setattr(deployed, "MAX_BYTES", file.stat().st_size - 1)
    bare = accepted(seen, MEDUSA, file, file.name).file
    assert (bool(whole.entries["medusa"].replay), bare.entries["medusa"].replay) == (True, {})
    assert read(file).entries["medusa"].acceptance == whole.entries["medusa"].acceptance


def test_every_request_keeps_its_text(tmp_path):
    seen = recorded(tmp_path / "runs")
    scenario = Deployed("h100_sxm", "llama-3.1-8b").scenario([{"kind": "autoregressive"}])
    replay = replayed(scenario, seen.stages[0], seen.runs[0], tmp_path)
    requests = generate(replay.workload, 1)
    texts = [requests.domain_names[code] for code in requests.domain]
    assert texts == seen.runs[0].columns["domain"].tolist()
