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
from calibration.live.replay import replayed
from models.acceptance_file import read
from models.strategies import fixed_types
from models.strict_yaml import MAX_BYTES, InputError
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


def test_recorded_steps_of_any_size_are_read_back(tmp_path: Path) -> None:
    """A thousand requests of 500 steps each are more than a YAML file may have."""
    columns = by_hand(1000, output=501)
    columns |= {name: np.full(1000, n) for name, n in (("n_steps", 500), ("drafted", 200))}
    repeating(NGRAM, columns, "text", tmp_path / "steps.json", SEEN)
    assert (tmp_path / "steps.json").stat().st_size > MAX_BYTES
    file = read(tmp_path / "steps.json")
    assert file.entries[ENTRY].replay["text"].lengths.tolist() == [500] * 1000
    assert (file.target, file.date) == ("llama-3.1-8b", "2026-11-30")


def test_a_broken_file_between_steps_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    with pytest.raises(InputError, match=r"steps\.json: cannot read: No such file"):
        read(path)
    path.write_text('{"version": 1}', "utf-8")
    with pytest.raises(InputError, match=r"steps\.json: title: Field required"):
        read(path)


def test_repeated_acceptance_is_of_the_model_that_is_simulated(tmp_path: Path) -> None:
    runs, file = simulated(tmp_path, "concurrency", (2,), EAGLE, repeats=1)
    seen = recording.read(runs)
    stage = seen.stages[0]._replace(started="2026-10-05T08:00:00+00:00")
    made = replayed(load_scenario(file).points[0].scenario, stage, seen.runs[0], tmp_path, True)
    told = read(made.strategies[1].acceptance.file)
    assert (told.target, told.date) == ("llama-3.1-8b", "2026-10-05")


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
