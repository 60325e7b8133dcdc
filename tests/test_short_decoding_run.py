"""The whole way on SmolLM2-135M in short: train parts, decode by every strategy, fit acceptance."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'decoding'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

from tiny_folder import write_prompts

from calibration.decoding import weights
from calibration.decoding.heads.command import Options, computing, train_on
from calibration.decoding.prompts import DOMAINS, prompts
from calibration.decoding.strategies import KINDS
from models.acceptance_file import read

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("calibrate_declared")]

CHARACTERS = 100
"""Of a prompt: long ones would take most of the time."""


def test_every_strategy_decodes_what_plain_decoding_does(speccast, tmp_path, monkeypatch):
    target = weights.load(dtype="fp32")
    monkeypatch.setattr(weights, "load", lambda *_: target)
    with computing(1):
        train_on(target, Options(quick=True, minutes=0.03), tmp_path / "heads", lambda *_: None)
    texts = {
        domain: [text[:CHARACTERS] for text in prompts(domain, "test", 2)] for domain in DOMAINS
    }
    asked = write_prompts(tmp_path / "prompts.jsonl", **texts)
    given = ["--prompts", asked, "--heads", tmp_path / "heads", "--out", tmp_path / "runs"]
    given += ["--dtype", "fp32", "--max-new-tokens", 8]
    status, _, said = speccast("calibrate", "decode", *given)
    assert status == 0, said
    about = json.loads((tmp_path / "runs" / "run.json").read_text("utf-8"))
    greedy = [label for label, kind in KINDS.items() if not kind.sampled]
    assert about["differs"] == dict.fromkeys(greedy, 0.0)
    assert about["prompts"] == 2 * len(DOMAINS)
    file = tmp_path / "acceptance.yaml"
    status, _, said = speccast("calibrate", "acceptance", tmp_path / "runs", "--out", file)
    assert status == 0, said
    assert {"draft_model", "medusa", "lookahead", "ngram", "eagle"} <= set(read(file).entries)
