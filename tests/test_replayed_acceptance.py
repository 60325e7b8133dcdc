"""Recorded requests replayed: every path is made of whole recorded requests, end to end."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance_files import DATA, changed, written
from by_hand import KIND
from hypothesis import given, settings
from hypothesis import strategies as st

from models import catalog
from models.acceptance_file import AcceptanceFile, Recorded, dump
from models.replay import ReplayLaw, records_of
from models.schema import ModelError

ENGINE = catalog.engine("vllm_0.15")
PADDING = catalog.engine("vllm_0.15").model_copy(update={"ngram_full_width": True})
ONE = Recorded(accepted=("0 3 1", "2", "1 0 0 2 3"))
OTHER = Recorded(accepted=("1 1", "0 2 0"), drafted=("1 1", "0 3 2"))
LAW = ReplayLaw(3, (7 / 3, 9 / 5), 0.01, "validated", records_of([ONE, OTHER], 3), True)
LISTS = ([[0, 3, 1], [2], [1, 0, 0, 2, 3]], [[1, 1], [0, 2, 0]])


def is_strung(steps, requests):
    """Whether steps are recorded requests end to end, the last one perhaps cut short."""
    return not steps or any(
        steps == request[: len(steps)]
        or (steps[: len(request)] == request and is_strung(steps[len(request) :], requests))
        for request in requests
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**40), st.lists(st.integers(0, 40), min_size=1, max_size=8), st.data())
def test_paths_are_recorded_requests_end_to_end(seed, tokens, data):
    n = len(tokens)
    domains = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    paths = LAW.paths(seed, np.arange(n), np.array(tokens), domains)
    for r, wanted in enumerate(tokens):
        part = slice(paths.offsets[r], paths.offsets[r + 1])
        assert is_strung(paths.accepted[part].tolist(), LISTS[domains[r]])
        assert paths.emitted[part].sum() == wanted
    assert (paths.width == 1 + paths.drafted).all()
    assert (paths.drafted >= paths.accepted).all()
    longer = LAW.paths(seed, np.arange(n), np.array(tokens) + 30, domains)
    last = LAW.paths(seed, np.arange(n)[-1:], np.array(tokens)[-1:], domains[-1:])
    steps = int(last.offsets[1])
    assert (paths.accepted[paths.accepted.size - steps :] == last.accepted).all()
    assert (longer.accepted[: paths.offsets[1]] == paths.accepted[: paths.offsets[1]]).all()


def test_every_recorded_request_begins_equally_often_and_tau_converges():
    ids = np.arange(6000)
    paths = LAW.paths(3, ids, np.full(6000, 400), 0 * ids)
    first = [tuple(paths.accepted[at : at + 5]) for at in paths.offsets[:-1]]
    begun = [sum(steps[:2] == start for steps in first) for start in ((0, 3), (1, 0))]
    assert begun == pytest.approx([2000, 2000], rel=0.06)
    assert 1 + paths.accepted.mean() == pytest.approx(7 / 3, rel=0.005)


def test_width_follows_the_record_where_the_strategy_varies(tmp_path):
    path = str(written(tmp_path))
    replay = {"file": path, "replay": True}
    ids = np.arange(50)

    def drawn(strategy, engine=ENGINE):
        law = strategy.law(engine, ("code",))
        return strategy.varies_width(engine), law.paths(1, ids, 40 + 0 * ids, 0 * ids)

    varies, paths = drawn(KIND["ngram"](k=4, acceptance=replay))
    assert varies and set(paths.width) == {1, 5} and set(paths.drafted) == {0, 4}
    varies, paths = drawn(KIND["ngram"](k=4, acceptance=replay), PADDING)
    assert not varies and paths.width is None and paths.drafted is None
    jacobi = KIND["lookahead"](w=3, n=3, g=3, found_share=0.5, acceptance=replay)
    varies, paths = drawn(jacobi)
    assert varies and set(paths.width) == {6, 12, 8}
    varies, paths = drawn(jacobi.model_copy(update={"found_share": 1.0}))
    assert varies and set(paths.width) == {6, 12, 8}
    tree = KIND["medusa"](heads=2, tree=[[0], [1], [0, 0]], acceptance={**replay, "entry": "tree"})
    varies, paths = drawn(tree)
    assert not varies and paths.width is None


def test_a_replay_reports_the_recorded_tau_and_its_error(tmp_path):
    path = str(written(tmp_path))

    def law(**acceptance):
        given = {"file": path, "replay": True, **acceptance}
        return KIND["draft_model"](draft="llama-3.2-1b", k=3, acceptance=given).law(
            ENGINE, ("code",)
        )

    assert law().tau_of(0) == law().tau == pytest.approx(1 + 12 / 9)
    assert (law().uncertainty, law().basis, law().depth) == (0.02, "validated", 3)
    assert (law(uncertainty=0.2).uncertainty, law(basis="assumed").basis) == (0.2, "assumed")


def test_the_error_comes_from_the_interval_where_the_fit_states_none(tmp_path):
    tau = {"code": {"value": 1.6, "lo": 1.4, "hi": 1.8, "steps": 5, "requests": 2}}
    path = tmp_path / "tree.yaml"
    path.write_text(dump(AcceptanceFile.model_validate(changed("entries/tree/tau", tau))), "utf-8")
    medusa = KIND["medusa"](
        heads=2,
        tree=[[0], [1], [0, 0]],
        acceptance={"file": str(path), "entry": "tree", "replay": True},
    )
    assert medusa.law(ENGINE, ("code",)).uncertainty == pytest.approx(0.2 / 1.96 / 1.6)


def test_what_was_not_recorded_is_refused(tmp_path):
    path = str(written(tmp_path))
    replay = {"file": path, "replay": True}
    cases = (
        (KIND["ngram"](k=4, acceptance=replay), "acceptance.replay", "requests of code, chat, got"),
        (
            KIND["medusa"](heads=3, acceptance={**replay, "entry": "chains"}),
            "acceptance.replay",
            "requests of no domain, got domain 'sql'",
        ),
        (
            KIND["ngram"](k=3, acceptance=replay),
            "acceptance",
            "4 drafted tokens in 4 levels, got 3",
        ),
        (
            KIND["eagle"](k=3, acceptance={**replay, "entry": "draft"}),
            "acceptance.entry",
            "recorded a strategy of kind draft_model, got eagle",
        ),
    )
    for strategy, key, message in cases:
        with pytest.raises(ModelError, match=message) as error:
            strategy.law(ENGINE, ("sql",))
        assert error.value.key == key


@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        ("entries/draft/replay/code/accepted", ["4"], "1? ?3 drafted and 4 accepted"),
        ("entries/draft/strategy/depth", 3, "recorded no strategy of kind draft_model: depth: "),
    ],
)
def test_a_record_that_cannot_be_is_refused(tmp_path, change, value, message):
    path = tmp_path / "odd.yaml"
    path.write_text(dump(AcceptanceFile.model_validate(changed(change, value))), "utf-8")
    strategy = KIND["draft_model"](
        draft="llama-3.2-1b", k=3, acceptance={"file": str(path), "replay": True}
    )
    with pytest.raises(ModelError, match=message):
        strategy.law(ENGINE, ("code",))


def test_the_data_of_these_tests_are_those_of_the_file():
    assert tuple(DATA["entries"]["draft"]["replay"]["code"]["accepted"]) == ONE.accepted
