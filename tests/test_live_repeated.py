"""Acceptance of recorded requests, one by one, as a server told it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live_recordings import EAGLE, by_hand, observation, simulated

from calibration.live import recording
from calibration.live.compare.served import as_recorded
from calibration.live.compare.stages import compare
from calibration.live.recording import Stage
from calibration.live.repeated import ENTRY, Seen, repeating
from models.acceptance_file import read
from models.strategies import fixed_types
from models.strict_yaml import InputError
from sim.scenario.load import load_scenario

SEEN = Seen("llama-3.1-8b", "2026-11-30")
NGRAM = fixed_types()["ngram"].model_validate({"kind": "ngram", "k": 4, "acceptance": {"tau": 1.5}})


def test_every_request_keeps_its_steps_and_its_draft_tokens(tmp_path: Path) -> None:
    """Whatever a server can have counted: no draft at all, short drafts, all accepted."""
    told = [(7, 0, 0), (5, 20, 20), (9, 10, 3), (4, 16, 1), (6, 1, 1), (3, 9, 0)]
    columns = by_hand(len(told))
    for name, values in zip(
        ("n_steps", "drafted", "accepted"), zip(*told, strict=True), strict=True
    ):
        columns[name] = np.array(values)
    repeating(NGRAM, columns, "text", tmp_path / "steps.json", SEEN)
    recorded = read(tmp_path / "steps.json").entries[ENTRY].replay["text"]
    accepted, drafted = recorded.steps()
    assert drafted is not None
    starts = np.cumsum(recorded.lengths) - recorded.lengths
    sums = [np.add.reduceat(one, starts).tolist() for one in (drafted, accepted)]
    assert list(zip(recorded.lengths.tolist(), *sums, strict=True)) == told
    assert (accepted <= drafted).all()
    assert drafted.max() == NGRAM.drafted
    first = drafted[: recorded.lengths[0] + 5][-5:]
    assert (first == 4).all()


def test_steps_with_a_draft_are_spread_over_the_answer(tmp_path: Path) -> None:
    columns = by_hand(1)
    columns |= {"n_steps": np.array([12]), "drafted": np.array([16]), "accepted": np.array([4])}
    columns["output_tokens"] = np.array([17])
    repeating(NGRAM, columns, "text", tmp_path / "steps.json", SEEN)
    _, drafted = read(tmp_path / "steps.json").entries[ENTRY].replay["text"].steps()
    assert drafted is not None
    assert np.flatnonzero(drafted).tolist() == [1, 4, 7, 10]


def test_nothing_is_repeated_that_was_not_told(tmp_path: Path) -> None:
    assert repeating(NGRAM, by_hand(3), "text", tmp_path / "steps.json", SEEN) is NGRAM
    assert not (tmp_path / "steps.json").exists()


def test_a_server_is_predicted_as_it_ran(tmp_path: Path) -> None:
    """Only the order of the steps of a request is lost: with it the last per mille."""
    runs, file = simulated(tmp_path, "concurrency", (1, 6), EAGLE, repeats=1)
    plain = load_scenario(file, ["strategies=[{kind: autoregressive}]"])
    found = compare(recording.read(runs), plain, repeat=True)
    assert found.strategy == "eagle3 K=3"
    assert found.overall < 0.01
    assert all(row.scores["tau"].relative == pytest.approx(0, abs=1e-9) for row in found.rows)


def test_without_steps_it_says_what_is_missing() -> None:
    seen = observation([Stage({"concurrency": 1}, 0, "eagle3 K=3")], [by_hand(4)], EAGLE)
    with pytest.raises(InputError, match="steps of requests: were not told for every request"):
        as_recorded(seen)
