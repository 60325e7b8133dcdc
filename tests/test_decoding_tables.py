"""Tables and measures of decoding runs, from a journal made by a decoder that counts. No torch."""

from __future__ import annotations

import json

import numpy as np
import pytest
from decoding_cases import DATE, LENGTHS, RUN, Counting, Learner, Ticking, prompts

from calibration.acceptance.runs import read_traces
from calibration.decoding import measures, report, tables
from calibration.decoding.decoder import Row, Times
from calibration.decoding.journal import Journal
from calibration.decoding.plan import plan
from calibration.decoding.run import Lengths, run
from sim.tables import read_parquet

DOMAINS = ("code", "prose")
BLOCKS = {"draft_model": {"kind": "draft_model", "draft": "smollm2-135m", "k": 3}}


def decoded(tmp_path, decoders, rows=1, streaming=(), **counts):
    kept = Journal(tmp_path / "journal.jsonl", RUN, DATE)
    batches = plan(prompts(**counts), list(decoders), streaming, rows)
    run(batches, decoders, kept, Lengths(*LENGTHS), Ticking())
    return kept.done


@pytest.fixture
def done(tmp_path):
    """Plain decoding, and drafts of three of which two are accepted."""
    plain = Counting("autoregressive", k=0, accepted=0)
    return decoded(tmp_path, {"autoregressive": plain, "draft_model": Counting()}, code=2, prose=1)


@pytest.fixture
def batched(tmp_path):
    return decoded(tmp_path, {"draft_model": Counting()}, rows=2, code=2)


def columns(done, name):
    table = tables.tables(done, DOMAINS)[f"{name}.parquet"].to_pandas()
    return table


def test_files_have_their_schema_and_survive_reading(done, tmp_path):
    written = tables.write(done, DOMAINS, tmp_path)
    assert {path.name: set(read_parquet(path)) for path in written} == {
        name: set(schema.names) for name, schema in tables.SCHEMAS.items()
    }
    assert list(read_traces(tmp_path / "acceptance.parquet")) == ["draft_model"]


def test_a_step_emits_what_it_accepts_and_one_more_until_the_cut(done):
    requests, steps = columns(done, "requests"), columns(done, "steps")
    assert (requests["output_tokens"] == 9).all()
    assert requests.groupby("strategy", observed=True)["n_steps"].unique().map(list).to_dict() == {
        "autoregressive": [8],
        "draft_model": [3],
    }
    by_step = steps.groupby(["strategy", "request"], observed=True)["emitted"].sum()
    assert (by_step == 9).all()
    first = steps[(steps["strategy"] == "draft_model") & (steps["request"] == 0)]
    assert first["emitted"].tolist() == [1, 3, 3, 2]
    assert first["n_decode"].tolist() == [0, 1, 1, 1]
    assert first["prefill_tokens"].tolist() == [4, 0, 0, 0]
    assert first["verify_tokens"].tolist() == [0, 4, 4, 4]


def test_acceptance_has_a_row_a_request_step(done):
    rows = columns(done, "acceptance")
    assert set(rows["strategy"]) == {"draft_model"}
    own = rows[rows["request"] == 1]
    assert own["step"].tolist() == [0, 1, 2]
    assert own["context"].tolist() == [6, 9, 12]
    assert own["drafted"].tolist() == [3, 3, 3]
    assert own["accepted"].tolist() == [2, 2, 2]
    assert set(own["ranks"]) == {"0 -"}
    assert dict(zip(rows["request"], rows["domain"], strict=True)) == {
        0: "code",
        1: "code",
        2: "prose",
    }


def test_requests_add_up_to_their_steps(done):
    requests, steps = columns(done, "requests"), columns(done, "steps")
    accepted = columns(done, "acceptance").groupby("request")["accepted"].sum()
    own = requests[requests["strategy"] == "draft_model"].set_index("id")
    assert own["accepted"].to_dict() == accepted.to_dict()
    spent = steps.groupby(["strategy", "request"], observed=True)["duration_s"].sum()
    took = requests.set_index(["strategy", "id"])
    assert np.allclose((took["finish_s"] - took["arrival_s"]).sort_index(), spent.sort_index())


def test_times_of_a_step_add_up_and_each_strategy_has_its_own_clock(done):
    steps, requests = columns(done, "steps"), columns(done, "requests")
    parts = steps[["draft_s", "verify_s", "sample_s", "host_s"]].sum(axis=1)
    assert np.allclose(parts, steps["duration_s"])
    for _, own in steps.groupby("strategy", observed=True):
        ends = own["start_s"] + own["duration_s"]
        assert own["start_s"].iloc[0] == 0.0
        assert np.allclose(own["start_s"].iloc[1:], ends.iloc[:-1])
    for _, own in requests.groupby("strategy", observed=True):
        assert np.allclose(own["arrival_s"].iloc[1:], own["finish_s"].iloc[:-1])
        assert (own["first_token_s"] > own["arrival_s"]).all()


def test_prompts_of_a_batch_arrive_together_and_share_its_steps(batched):
    requests, steps = columns(batched, "requests"), columns(batched, "steps")
    assert requests["arrival_s"].tolist() == [0.0, 0.0]
    assert requests["n_steps"].tolist() == [3, 3]
    assert steps["n_decode"].tolist() == [0, 2, 2, 2]
    assert steps["emitted"].tolist() == [2, 6, 6, 4]
    assert len(columns(batched, "acceptance")) == 6
    assert set(steps["request"]) == {0}


def test_the_same_prompt_has_the_same_id_in_every_strategy(done):
    requests = columns(done, "requests")
    lengths = requests.groupby("id")["prompt_tokens"].nunique()
    assert (lengths == 1).all()
    assert sorted(set(requests["id"])) == [0, 1, 2]


def test_ranks_read_as_levels():
    assert tables.ranks_text(Row(0, (1,), 4, 2, 5, 9, (0, 3, None))) == "0 3 -"
    assert tables.ranks_text(Row(0, (1,), 4, 2, 5, 9)) == ""


def test_measures_are_those_of_the_steps(done):
    found = {(one.label, one.domain): one for one in measures.measure(done, BLOCKS, DOMAINS)}
    assert {domain for _, domain in found} == {"code", "prose", "all"}
    draft, plain = found["draft_model", "code"], found["autoregressive", "code"]
    assert (draft.requests, draft.steps, draft.drafted, draft.accepted) == (2, 6, 18, 12)
    assert (draft.tau.value, draft.tau.lo, draft.tau.hi) == (3.0, 3.0, 3.0)
    assert plain.tau.value == 1.0
    assert draft.step == Times(1.0, 1.0, 1.0, 4.0)
    assert draft.token_s == 7 * 3 / 8
    assert plain.speedup == 1.0
    assert draft.speedup == pytest.approx(plain.token_s / draft.token_s)
    assert draft.speedup == pytest.approx(8 / 3)
    assert (draft.differs, plain.differs) == (0.0, 0.0)


def test_texts_that_differ_are_counted_unless_they_are_sampled(tmp_path):
    plain = Counting("autoregressive", k=0, accepted=0)
    done = decoded(tmp_path, {"autoregressive": plain, "draft_model": Counting(first=50)}, code=2)
    own = measures.measure(done, BLOCKS, DOMAINS)[-1]
    assert (own.label, own.differs) == ("draft_model", 1.0)
    assert measures.measure(done, BLOCKS, DOMAINS, ["draft_model"])[-1].differs is None


def test_speedup_is_over_plain_decoding_of_the_same_prompts(tmp_path):
    plain = Counting("autoregressive", k=0, accepted=0)
    done = decoded(tmp_path, {"autoregressive": plain, "draft_model": Counting()}, code=2)
    half = [one for one in done if one.label == "draft_model" or one.numbers == (0,)]
    slow = [
        one._replace(generation=one.generation._replace(steps=one.generation.steps * 2))
        if one.keys == [("draft_model", "code", 1)]
        else one
        for one in half
    ]
    assert measures.measure(slow, BLOCKS, DOMAINS)[-1].speedup == pytest.approx(8 / 3)
    alone = [one for one in done if one.label == "draft_model"]
    assert measures.measure(alone, BLOCKS, DOMAINS)[-1].speedup is None


def test_what_was_active_is_told_along_the_stream(tmp_path):
    done = decoded(tmp_path, {"gate": Learner()}, streaming=["gate"], code=1, prose=1, extract=1)
    found = measures.active(done, ["code", "prose", "extract"])
    assert [(one.domain, one.k) for one in found] == [("extract", 2.0), ("prose", 5.0)]
    assert found[0].notes == dict.fromkeys(("k=1", "k=2", "k=3"), pytest.approx(1 / 3))


class Gate(Learner):
    """Open in every third step."""

    def step(self, watch):
        rows = super().step(watch)
        self.note = "autoregressive" if self.steps % 3 else "ngram"
        return rows


def test_a_closed_gate_is_plain_decoding(tmp_path):
    (found,) = measures.active(decoded(tmp_path, {"gate": Gate()}, code=2), DOMAINS)
    assert found.speculating == pytest.approx(1 / 3)
    assert found.k is None
    assert found.notes == {"autoregressive": pytest.approx(2 / 3), "ngram": pytest.approx(1 / 3)}


def test_the_report_names_every_strategy_and_domain(done, tmp_path):
    measured = measures.measure(done, BLOCKS, DOMAINS)
    text = report.decode_report("tiny on a box", measured, [], 200)
    rows = [line.split()[:2] for line in text.splitlines()]
    for label in ("autoregressive", "draft_model"):
        for domain in ("code", "prose", "all"):
            assert [label, domain] in rows
    assert "3.00 (3.00-3.00)" in text
    assert "66 %" in text or "67 %" in text
    assert "What was active" not in text
    streams = [measures.Active("gate", "prose", 8, 0.25, 2.5, {"k=2": 0.5, "k=3": 0.5})]
    text = report.decode_report("tiny on a box", measured, streams, 200)
    (row,) = [line for line in text.splitlines() if line.startswith("gate ")]
    assert row.split("  ")[-1] == "k=2 50 %, k=3 50 %"
    assert "25 %" in row
    assert "2.50" in row
    json.dumps(report.as_json({"target": "tiny"}, measured, []), allow_nan=False)


def test_a_report_of_nothing_says_so():
    assert "No prompt is finished yet." in report.decode_report("tiny", [], [], 80)
