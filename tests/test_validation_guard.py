"""Promises on errors, and errors that may only go down."""

from __future__ import annotations

import fake_publication
import pandas as pd
import pytest
from fake_publication import figures

from calibration.validation import bounds, guard, score, side_by_side, tables
from calibration.validation.bounds import Bound, Selector, check
from calibration.validation.groups import bucket_of, family_of, metric_name, with_groups

NOTHING: tuple[Bound, ...] = ()


def bound(**given) -> Bound:
    return Bound(**{"promise": "speedups", "where": {"metric": "speedup"}, "limit": 0.05} | given)


def stored(frame: pd.DataFrame) -> pd.DataFrame:
    """As ``make validation`` leaves them, read again."""
    return guard.read_stored(guard.stored_text(frame))


def test_stored_errors_are_those_of_scored_figures_by_name():
    frame = figures([0.1, -0.2]).assign(scored=[True, False])
    head = "case,metric,predicted,relative,held_out\n"
    assert guard.stored_text(frame) == f"{head}fake/eagle-0,speedup,1.65,0.1000,\n"
    without = pd.DataFrame({"case": ["fake/eagle-0"], "metric": ["speedup"], "predicted": [1.7]})
    assert guard.stored_text(frame, without) == f"{head}fake/eagle-0,speedup,1.65,0.1000,1.7\n"


def test_a_saturated_prediction_is_stored_without_an_error():
    frame = figures([0.1]).assign(predicted=float("nan"), relative=float("nan"))
    assert guard.stored_text(frame).splitlines()[1] == "fake/eagle-0,speedup,,,"


def test_nothing_got_worse_where_nothing_changed():
    frame = fake_publication.everything()
    assert guard.worsened(stored(frame), frame, NOTHING) == []


@pytest.mark.parametrize(("now", "told"), [(0.054, 0), (0.056, 1), (-0.056, 1), (0.01, 0)])
def test_a_mean_error_may_grow_by_a_tenth_of_itself(now, told):
    found = guard.worsened(stored(figures([0.05, -0.05])), figures([now, now]), NOTHING)
    assert len(found) == told
    for one in found:
        assert one.group == "Fake Bench, speedup, EAGLE, 9-32"
        assert (one.before, one.now) == (pytest.approx(0.05), pytest.approx(abs(now)))


@pytest.mark.parametrize("column", ["origin", "family", "batch"])
def test_a_group_cannot_hide_behind_another(column):
    other = {"origin": "Other Bench", "family": "n-gram", "batch": "128"}[column]

    def both(one: float, two: float) -> pd.DataFrame:
        named = figures([two], **{column: other}).assign(case="fake/other")
        return pd.concat([figures([one]), named])

    found = guard.worsened(stored(both(0.10, 0.02)), both(0.05, 0.03), NOTHING)
    assert [one.now for one in found] == [pytest.approx(0.03)]


def test_a_figure_that_is_dropped_or_not_scored_any_more_is_told():
    before = stored(figures([0.05, 0.3]))
    for now in (figures([0.05]), figures([0.05, 0.3]).assign(scored=[True, False])):
        (lost,) = guard.worsened(before, now, NOTHING)
        assert lost.group == "fake/eagle-1 speedup"
        assert lost.why == "is not scored any more"


def test_a_figure_that_is_saturated_now_is_told():
    now = figures([0.05]).assign(predicted=float("nan"), relative=float("nan"))
    (lost,) = guard.worsened(stored(figures([0.05])), now, NOTHING)
    assert lost.why == "is saturated"


def test_a_new_figure_needs_no_stored_one():
    assert guard.worsened(stored(figures([0.05])), figures([0.05, 0.4]), NOTHING) == []


def test_a_broken_promise_is_told_unless_its_cause_is_stated():
    frame = figures([0.06, 0.06])
    (one,) = guard.worsened(stored(frame), frame, [bound()])
    assert (one.group, one.now) == ("speedups", pytest.approx(0.06))
    assert one.why == "at most 0.05 is promised"
    assert guard.worsened(stored(frame), frame, [bound(cause="kernels of that build")]) == []


def test_a_promise_may_hold_for_every_batch_by_itself():
    frame = pd.concat([figures([0.02], batch="1"), figures([0.07], batch="64")])
    assert check(frame, [bound()])[0].kept is True
    each = check(frame, [bound(each=["batch"])])
    assert [(one.group, one.kept) for one in each] == [("batch 1", True), ("batch 64", False)]


def test_a_side_of_one_is_promised_by_share():
    frame = figures([0.0, 0.0, -0.4, -0.02], measured=1.2)
    (one,) = check(frame, [bound(statistic="sides", limit=0.95)])
    assert (one.n, one.value, one.kept) == (4, 0.75, False)
    nowhere = figures([0.4], measured=1.04)
    (one,) = check(nowhere, [bound(statistic="sides", limit=0.95)])
    assert (one.n, one.value, one.kept) == (0, None, None)


def test_a_band_is_promised_by_the_share_within_it():
    frame = figures([0.0, 0.05, -0.3, 0.2])
    (one,) = check(frame, [bound(statistic="inside", limit=0.5)])
    assert (one.n, one.value, one.kept) == (4, 0.5, True)


def test_a_reading_error_reaches_into_the_band():
    frame = figures([-0.1])
    assert score.coverage(frame)["inside"] == 0
    assert score.coverage(frame.assign(reading=0.02))["inside"] == 1


def test_a_figure_predicted_without_itself_stands_in_for_the_fitted_one():
    frame = figures([0.01, 0.02]).assign(in_sample=True)
    other = pd.DataFrame({"case": ["fake/eagle-1"], "metric": "speedup", "predicted": [1.65]})
    found = bounds.held_out(frame, other)
    assert found["relative"].tolist() == [pytest.approx(0.01), pytest.approx(0.1)]
    assert found["in_sample"].tolist() == [True, False]


def test_a_selector_takes_names_patterns_lists_and_a_range_of_batches():
    frame = pd.concat([figures([0.1], batch=batch) for batch in ("1", "64", "128", "")])

    def chosen(**given) -> list[str]:
        return list(Selector(**given).of(frame)["batch"])

    assert chosen(where={"case": "fake/*"}) == ["1", "64", "128", ""]
    assert chosen(where={"origin": ["x", "Fake Bench"]}, batch=(2, 64)) == ["64"]
    assert chosen(where={"colour": "red"}) == []


def test_every_shipped_promise_and_answer_can_be_read():
    shipped = bounds.shipped()
    assert {"mape", "sides"} <= {one.statistic for one in shipped.bounds}
    assert len({one.name for one in shipped.answers}) == len(shipped.answers)
    assert all(0 < one.limit <= 1 for one in shipped.bounds)


def test_groups_are_named_by_family_bucket_and_metric():
    assert family_of({"kind": "eagle", "k": 3}) == "EAGLE"
    assert family_of({"kind": "eagle", "tree": "eagle_25"}) == "EAGLE tree"
    assert family_of({"kind": "eagle2"}) == "EAGLE-2 tree"
    found = [bucket_of(batch) for batch in ("1", "2", "16", "64", "128", "512", "")]
    assert found == ["1", "2-8", "9-32", "33-64", "65-128", "over 128", ""]
    assert metric_name("e2e_s.p90") == "E2E p90"
    assert metric_name("share.verify") == "share of verification"


def test_what_was_served_is_one_column_however_a_case_calls_it():
    frame = figures([0.1, 0.1]).drop(columns=["workload", "dataset"])
    named = with_groups(frame.assign(data_set=["sql", None], workload=[None, "chat"]))
    assert named["workload"].tolist() == ["sql", "chat"]


def test_a_figure_counts_for_one_kind_of_answer():
    kinds = [
        bounds.Answer(name="traces", where={"acceptance": "traces"}),
        bounds.Answer(name="any", where={}),
    ]
    frame = pd.concat([figures([0.1]), figures([0.3], acceptance="assumed")], ignore_index=True)
    found = tables.by_answer(frame, kinds)
    assert found[["answer", "n", "mape"]].to_numpy().tolist() == [
        ["traces", 1, pytest.approx(0.1)],
        ["any", 1, pytest.approx(0.3)],
    ]


def test_predicted_figures_are_the_same_on_several_processes():
    cases = [fake_publication.plain(f"fake/{index}") for index in range(2)]
    alone, together = (side_by_side.predict_all(cases, jobs=jobs) for jobs in (1, 2))
    assert [one[1:] for one in alone] == [one[1:] for one in together]


def test_shares_of_a_step_are_compared_in_points():
    frame = figures([0.5, 0.1], "share.draft", 0.1)
    assert frame["relative"].tolist() == [pytest.approx(0.05), pytest.approx(0.01)]
    other = frame[["case", "metric"]].assign(predicted=[0.1, 0.13])
    assert bounds.held_out(frame, other)["relative"].tolist() == [0, pytest.approx(0.03)]
