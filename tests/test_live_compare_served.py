"""Which strategy of which scenario predicts a recorded server."""

from __future__ import annotations

import numpy as np
import pytest
from live_recordings import (
    PLAIN,
    SCENARIO,
    by_hand,
    observation,
    predicted,
    simulated,
)

from calibration.live import recording
from calibration.live.compare import stages as comparing
from calibration.live.compare.served import matches
from calibration.live.compare.stages import compare
from calibration.live.recording import Stage
from models.strategies import strategy_types
from models.strict_yaml import InputError
from sim.scenario.load import load_scenario


@pytest.fixture
def scenario(tmp_path):
    """A scenario file of plain decoding and EAGLE-3."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, "utf-8")
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A closed loop of plain decoding, recorded from the simulator itself, and its scenario."""
    return simulated(tmp_path_factory.mktemp("plain"), "concurrency", (1, 6), PLAIN)


@pytest.mark.parametrize(
    ("block", "same"),
    [
        ({"kind": "eagle3", "k": 3}, True),
        ({"kind": "eagle3", "k": 3, "label": "mine", "hypothetical": True}, True),
        ({"kind": "eagle3", "k": 4}, False),
        ({"kind": "eagle", "k": 3}, False),
        ({"kind": "eagle3", "k": 3, "unheard_of": 1}, False),
    ],
)
def test_a_block_is_compared_without_acceptance_and_defaults(block, same):
    eagle = strategy_types()["eagle3"]
    strategy = eagle.model_validate({"kind": "eagle3", "k": 3, "acceptance": {"alpha": 0.6}})
    assert matches(strategy, block) is same


def strategy_of(scenario, block, label="served", asked=None, overrides=()):
    stages = [Stage({"concurrency": 1}, 0, label)]
    seen = observation(stages, [by_hand(4)], {label: block})
    return compare(seen, load_scenario(scenario, overrides), asked).strategy


def test_the_strategy_is_told_by_block_then_label_then_by_the_user(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    assert strategy_of(scenario, {"kind": "eagle3", "k": 3}) == "eagle3 K=3"
    assert strategy_of(scenario, {"kind": "autoregressive"}) == "autoregressive"
    assert strategy_of(scenario, {"kind": "eagle3", "k": 5}, "eagle3 K=3") == "eagle3 K=3"
    assert strategy_of(scenario, {"kind": "medusa"}, asked="eagle3 K=3") == "eagle3 K=3"
    with pytest.raises(InputError) as error:
        strategy_of(scenario, {"kind": "eagle3", "k": 5})
    assert str(error.value) == (
        f"{scenario}:10: strategies: none of its strategies is what the server ran, 'served'; "
        "take it from the recording with --as-recorded, or choose one of 'autoregressive', "
        "'eagle3 K=3' with --strategy"
    )
    with pytest.raises(InputError, match="--strategy: must be one of 'autoregressive', "):
        strategy_of(scenario, {"kind": "eagle3", "k": 3}, asked="eagle")


def test_two_alike_are_told_apart_by_label(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    two = "[{kind: eagle3, k: 3, label: a}, {kind: eagle3, k: 3, label: b}]"
    block, sets = {"kind": "eagle3", "k": 3}, [f"strategies={two}"]
    assert strategy_of(scenario, block, "b", overrides=sets) == "b"
    with pytest.raises(InputError, match="several of its strategies are what the server ran, 'c'"):
        strategy_of(scenario, block, "c", overrides=sets)


def test_a_grid_of_deployments_is_refused_one_of_loads_is_not(recorded, tmp_path):
    runs, _ = recorded
    grid = tmp_path / "grid.yaml"
    grid.write_text(SCENARIO + "vary: {model.tp: [1, 2]}\n", "utf-8")
    with pytest.raises(InputError, match=r"grid\.yaml:14: vary: must vary the workload only"):
        compare(recording.read(runs), load_scenario(grid))
    assert compare(recording.read(runs), load_scenario(grid, ["model.tp=1"])).overall < 1e-9
    grid.write_text(SCENARIO + "vary: {workload.arrivals.users: [3, 5]}\n", "utf-8")
    assert compare(recording.read(runs), load_scenario(grid)).overall < 1e-9


DRAFTED = {"spec_drafts": 100.0, "spec_drafted": 300.0, "spec_accepted": 170.0}


def test_a_server_that_drafted_is_not_taken_as_plain_decoding(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    stage = Stage({"concurrency": 1}, 0, "autoregressive", counters=DRAFTED)
    seen = observation([stage], [by_hand(4)])
    file = load_scenario(scenario)
    with pytest.raises(InputError) as error:
        compare(seen, file)
    assert str(error.value) == (
        f"{scenario}:10: strategies: the recording names 'autoregressive', but its server drafted; "
        "choose one of 'autoregressive', 'eagle3 K=3' with --strategy"
    )
    assert compare(seen, file, "eagle3 K=3").strategy == "eagle3 K=3"
    with pytest.raises(InputError, match=r"runs: strategies: names 'autoregressive', but the serv"):
        compare(seen, file, repeat=True)
    plain = observation([stage._replace(counters={"spec_drafts": 0.0})], [by_hand(4)])
    assert compare(plain, file).strategy == "autoregressive"


def test_requests_alone_tell_that_a_server_drafted(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    table = by_hand(4) | {"drafted": np.full(4, 6)}
    seen = observation([Stage({"concurrency": 1}, 0, "autoregressive")], [table])
    with pytest.raises(InputError, match="but its server drafted"):
        compare(seen, load_scenario(scenario))
