"""Decoding runs that end early, go on, and grow. No torch."""

from __future__ import annotations

import pytest
from decoding_cases import DATE, LENGTHS, RUN, Counting, Learner, Ticking, prompts

from calibration.decoding.journal import Journal
from calibration.decoding.plan import Encoded, plan, stream_of
from calibration.decoding.run import Lengths, run
from models.strict_yaml import InputError

SETTINGS = {"block": {"kind": "draft_model", "draft": "tiny", "k": 3}}


def journal(tmp_path, run=RUN, **labels):
    """As the command opens it; labels with their k."""
    opened = Journal(tmp_path / "runs" / "journal.jsonl", run, DATE)
    for label, k in labels.items():
        opened.enter(label, {"block": SETTINGS["block"] | {"k": k}})
    return opened


def decoded(kept, asked, decoders, streaming=()):
    batches = plan(asked, list(decoders), streaming, 1, kept.keys)
    run(batches, decoders, kept, Lengths(*LENGTHS), Ticking())


class Failing(Counting):
    """Interrupted within a step of its so-many-th prompt, the warm-up counted."""

    def __init__(self, prompt: int) -> None:
        super().__init__()
        self.prompt = prompt

    def step(self, watch):
        if len(self.seen) == self.prompt:
            raise KeyboardInterrupt
        return super().step(watch)


def test_every_strategy_is_at_work_all_the_time():
    batches = plan(prompts(code=2, prose=2), ["plain", "fast"])
    order = [(one.label, one.domain, one.prompts[0].number) for one in batches]
    assert order == [
        (label, domain, number)
        for number in (0, 1)
        for domain in ("code", "prose")
        for label in ("plain", "fast")
    ]


def test_a_stream_goes_through_one_domain_and_then_another():
    batches = plan(prompts(code=2, prose=2, extract=2), ["plain", "gate"], ["gate"])
    gate = [(one.domain, one.prompts[0].number) for one in batches if one.label == "gate"]
    assert gate == [("extract", 0), ("extract", 1), ("prose", 0), ("prose", 1)]
    places = [place for place, one in enumerate(batches) if one.label == "gate"]
    assert places == [1, 3, 6, 8]


@pytest.mark.parametrize(
    ("domains", "stream"),
    [
        (["code", "prose", "extract"], ("extract", "prose")),
        (["code", "prose"], ("prose", "code")),
        (["maths"], ("maths",)),
    ],
)
def test_a_stream_ends_in_prose_where_it_can(domains, stream):
    assert stream_of(domains) == stream


def test_batches_are_of_one_domain():
    batches = plan(prompts(code=3, prose=2), ["plain"], rows=2)
    assert [(one.domain, len(one.prompts)) for one in batches] == [
        ("code", 2),
        ("prose", 2),
        ("code", 1),
    ]


def test_an_interruption_loses_the_prompt_in_flight_and_nothing_else(tmp_path):
    asked = prompts(code=3, prose=2)
    kept = journal(tmp_path, draft_model=3)
    with pytest.raises(KeyboardInterrupt):
        decoded(kept, asked, {"draft_model": Failing(4)})
    assert len(kept.keys) == 2
    again, decoder = journal(tmp_path, draft_model=3), Counting()
    assert again.done == kept.done
    decoded(again, asked, {"draft_model": decoder})
    assert len(again.done) == len(again.keys) == 5
    assert len(decoder.seen) == 1 + 3
    assert journal(tmp_path, draft_model=3).done == again.done


def test_a_line_cut_short_is_decoded_again(tmp_path):
    asked = prompts(code=2)
    kept = journal(tmp_path, draft_model=3)
    decoded(kept, asked, {"draft_model": Counting()})
    kept.path.write_bytes(kept.path.read_bytes()[:-5])
    again = journal(tmp_path, draft_model=3)
    assert again.keys == {("draft_model", "code", 0)}
    decoded(again, asked, {"draft_model": Counting()})
    assert len(journal(tmp_path, draft_model=3).keys) == 2


def test_what_another_run_decoded_is_kept_and_refused_with_what_differs(tmp_path):
    kept = journal(tmp_path, draft_model=3)
    decoded(kept, prompts(code=2), {"draft_model": Counting()})
    before = kept.path.read_bytes()
    with pytest.raises(InputError) as refused:
        journal(tmp_path, RUN | {"dtype": "bf16"})
    assert str(refused.value) == (
        f"{kept.path}: 2 prompts of another run are kept there (dtype: fp32, now bf16); give the "
        "same options to go on with it, or another --out"
    )
    with pytest.raises(InputError, match=r"2 prompts of another 'draft_model' .*\(k: 3, now 5\)"):
        journal(tmp_path, draft_model=5)
    assert kept.path.read_bytes() == before


def test_other_prompts_under_the_same_number_are_refused(tmp_path):
    kept = journal(tmp_path, draft_model=3)
    decoded(kept, prompts(code=2), {"draft_model": Counting()})
    kept.check(prompts(code=4, prose=1)["code"])
    with pytest.raises(InputError, match="prompt 1 of code was another one"):
        kept.check([Encoded("code", 1, (7, 7, 7))])


def test_strategies_domains_and_prompts_may_be_added(tmp_path):
    decoded(journal(tmp_path, draft_model=3), prompts(code=1), {"draft_model": Counting()})
    first, second = Counting(), Counting("other", k=5)
    more = journal(tmp_path, draft_model=3, other=5)
    decoded(more, prompts(code=2, prose=1), {"draft_model": first, "other": second})
    assert (len(first.seen) - 1, len(second.seen) - 1) == (2, 3)
    again = journal(tmp_path)
    assert len(again.keys) == 6
    assert {label: own["block"]["k"] for label, own in again.strategies.items()} == {
        "draft_model": 3,
        "other": 5,
    }


def test_a_run_of_which_nothing_was_finished_makes_way(tmp_path):
    kept = journal(tmp_path, draft_model=4)
    assert not kept.path.parent.exists()
    kept.path.parent.mkdir()
    kept.path.write_text('{"run": {"seed": 1}, "date": "2026-01-01"}\n{"strat', "utf-8")
    decoded(journal(tmp_path, draft_model=4), prompts(code=1), {"draft_model": Counting()})
    again = journal(tmp_path)
    assert (again.run, again.date, len(again.keys)) == (RUN, DATE, 1)
    assert again.strategies["draft_model"]["block"]["k"] == 4


@pytest.mark.parametrize("left", ["what\n", '{"x": 1}\n', '{"run": {}, "date": ""}\n{"x": 1}\n'])
def test_a_file_that_is_no_journal_is_kept_and_refused(tmp_path, left):
    path = tmp_path / "journal.jsonl"
    path.write_text(left, "utf-8")
    with pytest.raises(InputError, match="holds no decoded prompts that can be read"):
        Journal(path, RUN, DATE)
    assert path.read_text("utf-8") == left


def test_the_date_is_that_of_the_first_prompt(tmp_path):
    kept = journal(tmp_path, draft_model=3)
    decoded(kept, prompts(code=1), {"draft_model": Counting()})
    assert Journal(kept.path, RUN, "2027-01-01").date == DATE


def test_what_a_strategy_learned_is_taken_up_again_and_the_warm_up_teaches_nothing(tmp_path):
    asked, whole = prompts(code=2, prose=2), journal(tmp_path / "whole", gate=3)
    decoded(whole, asked, {"gate": Learner()}, ["gate"])
    notes = [step.note for one in whole.done for step in one.generation.steps]
    assert notes == [f"k={count}" for count in range(1, 13)]
    part = journal(tmp_path / "part", gate=3)
    decoded(part, {"prose": asked["prose"]}, {"gate": Learner()}, ["gate"])
    again = journal(tmp_path / "part", gate=3)
    decoded(again, asked, {"gate": Learner()}, ["gate"])
    assert [one.domain for one in again.done] == ["prose", "prose", "code", "code"]
    assert [step.note for one in again.done for step in one.generation.steps] == notes


def test_the_seed_of_a_prompt_is_its_own():
    asked = prompts(code=2, prose=2)
    seeds = {one.seed(seed) for own in asked.values() for one in own for seed in (0, 1)}
    assert len(seeds) == 8


def test_progress_is_told(tmp_path):
    kept, told = journal(tmp_path, draft_model=3), []
    batches = plan(prompts(code=3), ["draft_model"], rows=2)
    run(
        batches,
        {"draft_model": Counting()},
        kept,
        Lengths(*LENGTHS),
        Ticking(),
        lambda *at: told.append(at),
    )
    assert told == [("draft_model", 0, 3), ("draft_model", 2, 3)]
