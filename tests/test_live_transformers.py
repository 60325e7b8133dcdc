"""A small real server, `transformers serve` with SmolLM2-135M: chat, streamed, without /metrics."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'decoding'")
pytest.importorskip("fastapi", reason="needs the extra 'serving'")

from live import checkpoint, servers
from live.observing import speccast

from calibration.live.recording import read
from sim.tables import Status

pytestmark = pytest.mark.extras

TOKENS, REQUESTS = 6, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("served")
    checkpoint.make(made)
    return made


def test_a_real_server_without_metrics_is_observed(folder, tmp_path):
    with servers.transformers(folder, tmp_path / "server.log") as server:
        model = str(folder / checkpoint.TARGET)
        asked = ["observe", "--base-url", server.base_url, "--model", model, "--api", "chat"]
        asked += ["--concurrency", "1,2", "--requests", REQUESTS, "--tokens", TOKENS]
        asked += ["--warm-up", 1, "--out", tmp_path / "runs", "--json", "--quiet"]
        done = speccast(*asked)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        again = speccast(*asked)
        assert again.returncode == 0, again.stderr
    found = read(tmp_path / "runs")
    assert [(stage.name, stage.replication) for stage in found.stages] == [
        ("concurrency=1", 0),
        ("concurrency=2", 0),
    ]
    assert found.acceptance is None
    assert found.about["server"]["engine"] == "unknown"
    for stage, run in zip(found.stages, found.runs, strict=True):
        rows = run.columns
        assert len(rows["id"]) == REQUESTS
        assert set(rows["status"]) == {Status.FINISHED}
        assert (rows["output_tokens"] <= TOKENS).all()
        assert (rows["prompt_tokens"] > TOKENS).all()
        assert (rows["arrival_s"] < rows["first_token_s"]).all()
        assert (rows["first_token_s"] <= rows["finish_s"]).all()
        assert stage.counters == {}
        assert stage.itl["count"] <= REQUESTS * (TOKENS - 1)
