"""What prompts of a trace share: sessions, named prefixes and hash ids, and what it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import experiment
from sim.scenario.load import load_scenario
from tests.traces import PLAIN, chain, ends, numbered, replay


@pytest.fixture
def write(tmp_path: Path) -> Any:
    return numbered(tmp_path)


# Sessions


SESSION = """\
arrival_s,prompt_tokens,output_tokens,session
0,100,20,a
1,100,20,b
2,120,10,a
3,119,10,b
4,200,10,a
5,500,10,
6,139,1,b
"""


def test_a_later_turn_shares_all_turns_it_contains(write: Any) -> None:
    made = replay(write(SESSION))
    assert [ends(made, row) for row in range(7)] == [[], [], [119], [], [119, 129], [], [128]]
    first, second = chain(made, 4)
    assert (first[0], second[0]) == (made.keeps[0], made.keeps[2])
    assert chain(made, 6) == [(made.keeps[3], 128)]
    # Nobody looks for a turn whose session ended, or went on with other text.
    assert [bool(key) for key in made.keeps] == [True, False, True, True, False, False, False]


def test_sessions_are_sampled_whole_and_their_copies_are_their_own(write: Any) -> None:
    lines = "".join(
        f"{turn + 0.001 * session},{100 + 50 * turn},10,s{session}\n"
        for turn in range(4)
        for session in range(200)
    )
    path = write("arrival_s,prompt_tokens,output_tokens,session\n" + lines)
    half = replay(path, rate_scale=0.5)
    turns = np.bincount(half.prompt_tokens)[[100, 150, 200, 250]]
    assert 60 < turns[0] < 140
    assert (turns == turns[0]).all()
    assert np.diff(half.prefixes.offsets).tolist().count(3) == turns[0]
    double = replay(path, rate_scale=2)
    kept = double.keeps[double.keeps > 0]
    assert len(set(kept.tolist())) == len(kept) == 2 * 200 * 3
    assert np.diff(double.prefixes.offsets).tolist().count(3) == 400


# Named prefixes


def test_requests_of_a_prefix_share_it_before_their_sessions(write: Any) -> None:
    made = replay(write(PLAIN))
    assert [ends(made, row) for row in range(3)] == [[64], [64, 109], []]
    assert chain(made, 0)[0] == chain(made, 1)[0]


def test_a_session_that_changes_its_prefix_begins_anew(write: Any) -> None:
    made = replay(write(PLAIN + "20,300,5,a,other,64\n30,400,5,a,other,64\n"))
    assert [ends(made, row) for row in (3, 4)] == [[64], [64, 304]]
    assert not made.keeps[1]


def test_copies_share_named_prefixes(write: Any) -> None:
    made = replay(write(PLAIN), rate_scale=2)
    assert len({chain(made, row)[0] for row in range(6) if chain(made, row)}) == 1


# Hash ids


def mooncake(*requests: tuple[float, int, list[int]]) -> str:
    return "".join(
        f'{{"timestamp": {at}, "input_length": {tokens}, "output_length": 5, "hash_ids": {ids}}}\n'
        for at, tokens, ids in requests
    )


def test_equal_hash_ids_are_nodes_of_a_block_each(write: Any) -> None:
    path = write(mooncake((0, 1536, [1, 2, 3]), (9, 1100, [1, 2, 9]), (20, 1536, [1, 2, 3])))
    made = replay(path)
    assert ends(made, 0) == [512, 1024, 1536]
    assert chain(made, 2) == chain(made, 0)
    # What nobody else has needs no node.
    assert chain(made, 1) == chain(made, 0)[:2]
    assert not made.keeps.any()


def test_an_id_after_other_blocks_or_cut_shorter_is_another_block(write: Any) -> None:
    same_end = mooncake((0, 1024, [1, 2]), (1, 1024, [7, 2]), (2, 1000, [1, 2]), (3, 1024, [1, 2]))
    made = replay(write(same_end))
    assert [ends(made, row) for row in range(4)] == [[512, 1024], [], [512], [512, 1024]]


def conversations(many: int) -> str:
    """Three turns each after a system prompt of one block."""
    rows = [
        (
            1000 * turn + number,
            512 * (turn + 2),
            [0, *(number * 9 + block for block in range(1, turn + 2))],
        )
        for turn in range(3)
        for number in range(many)
    ]
    return mooncake(*rows)


def test_conversations_are_sampled_whole(write: Any) -> None:
    half = replay(write(conversations(200)), rate_scale=0.5)
    turns = np.bincount(half.prompt_tokens)[[1024, 1536, 2048]]
    assert 60 < turns[0] < 140
    assert (turns == turns[0]).all()


def test_copies_share_the_system_prompt_but_are_conversations_of_their_own(write: Any) -> None:
    made = replay(write(conversations(200)), rate_scale=2)
    keys = [chain(made, row) for row in range(len(made))]
    assert len({nodes[0] for nodes in keys}) == 1
    assert len({nodes[1] for nodes in keys}) == 400


# What it saves

SERVED = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload: {arrivals: {kind: trace, file: trace0.csv}}
strategies: [{kind: autoregressive}]
run: {band: false, warmup: 0}
"""


def cached(folder: Path) -> list[int]:
    """Cached tokens of each request of the trace in the folder, served one after another."""
    (folder / "run.yaml").write_text(SERVED)
    result = experiment.run(load_scenario(folder / "run.yaml"))
    columns = result.requests[0].columns
    assert (columns["status"] == 0).all()
    return columns["cached_tokens"].tolist()


def test_blocks_of_equal_hash_ids_are_computed_once(write: Any, tmp_path: Path) -> None:
    write(
        mooncake(
            (0, 1300, [1, 2, 3]),
            (60_000, 1400, [1, 2, 4]),
            (120_000, 600, [1, 5]),
            (180_000, 1400, [1, 2, 4]),
            (240_000, 700, [6, 7]),
        )
    )
    # The last token of a prompt is always computed, and only whole blocks of 16 are found.
    assert cached(tmp_path) == [0, 1024, 512, (1400 - 1) // 16 * 16, 0]


def test_turns_of_a_session_find_what_was_computed_before(write: Any, tmp_path: Path) -> None:
    write(
        "arrival_s,prompt_tokens,output_tokens,session\n"
        "0,1000,200,a\n60,1300,50,a\n120,1349,9,a\n180,2000,5,a\n"
    )
    # The third prompt is one token short of holding the second answer; the fourth holds the third.
    assert cached(tmp_path) == [0, 1199 // 16 * 16, 0, 1357 // 16 * 16]


def test_named_prefixes_are_computed_once(write: Any, tmp_path: Path) -> None:
    write(
        "arrival_s,prompt_tokens,output_tokens,prefix,prefix_tokens\n"
        "0,1000,5,x,500\n60,900,5,x,500\n120,900,5,,\n"
    )
    assert cached(tmp_path) == [0, 496, 0]
