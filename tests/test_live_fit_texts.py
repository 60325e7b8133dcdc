"""A recording of several kinds of text: each keeps its own acceptance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from live_recordings import about, by_hand

from calibration.live import recording
from calibration.live.fit.deployed import Deployed, accepted
from calibration.live.recording import Observation, Stage
from calibration.live.replay import replayed
from sim.scenario.workload import generate
from sim.tables import RunTable

MEDUSA = {"kind": "medusa", "heads": 2}
REQUESTS, STEPS = 12, 50
ACCEPTED = {"code": 0, "prose": 2}


def recorded(folder: Path) -> Observation:
    """Drafts of code always fail at once, those of prose never."""
    texts = np.array([text for text in ACCEPTED for _ in range(REQUESTS // 2)], dtype=object)
    steps = np.repeat(np.arange(REQUESTS), STEPS)
    table = {
        "strategy": np.full(len(steps), "medusa", dtype=object),
        "request": steps,
        "step": np.tile(np.arange(STEPS), REQUESTS),
        "domain": texts[steps],
        "context": 100 + np.tile(np.arange(STEPS), REQUESTS),
        "drafted": np.full(len(steps), 2),
        "accepted": np.array([ACCEPTED[text] for text in texts[steps]]),
        "ranks": np.full(len(steps), "", dtype=object),
    }
    stage = Stage({"concurrency": 1}, 0, "medusa")
    run = RunTable(stage.point, "medusa", 0, by_hand(REQUESTS) | {"domain": texts})
    recording.write(folder, about({"medusa": MEDUSA}), [stage], [run], acceptance=table)
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
    deployed = Deployed("h100_sxm", "llama-3.1-8b", engine="vllm_0.32")
    (own,) = deployed.scenario([block], ["code", "prose"]).strategies
    assert own.kind == "medusa"


def test_every_request_keeps_its_text(tmp_path):
    seen = recorded(tmp_path / "runs")
    scenario = Deployed("h100_sxm", "llama-3.1-8b").scenario([{"kind": "autoregressive"}])
    replay = replayed(scenario, seen.stages[0], seen.runs[0], tmp_path)
    requests = generate(replay.workload, 1)
    texts = [requests.domain_names[code] for code in requests.domain]
    assert texts == seen.runs[0].columns["domain"].tolist()
