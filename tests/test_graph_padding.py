"""CUDA graphs: which sizes a version captures, and which steps are padded to them."""

from __future__ import annotations

import by_hand
import pytest
from by_hand import KIND, LLAMA_8B, stepping

from models import catalog
from models.forward_pass import graph_sizes, padded

US = 1e6
EAGLE = KIND["eagle"](k=3)


def us(seconds):
    return US * float(seconds)


def close(expected):
    return pytest.approx(expected, rel=1e-11)


def sizes(engine, width, seqs, decode_only=True, budget=8192):
    rule = catalog.engine(engine).graphs
    return graph_sizes(rule, width, seqs, budget, decode_only)


def test_captured_sizes_by_version():
    eights, plain = [1, 2, 4, *range(8, 513, 8)], [1, 2, 4, *range(8, 249, 8), *range(256, 513, 16)]
    assert sizes("vllm_0.10", 1, 1024) == eights
    assert sizes("vllm_0.10", 4, 1024) == eights
    assert sizes("vllm_0.15", 1, 1024) == plain
    # K+1 = 4: every size a multiple of 4; K+1 = 3: 512 rounds to 513, above the largest
    assert sizes("vllm_0.15", 4, 1024) == plain[2:]
    assert sizes("vllm_0.15", 4, 1024, decode_only=False) == plain[2:]
    threes = sizes("vllm_0.15", 3, 1024)
    assert threes[:6] == [3, 6, 9, 18, 24, 33]
    assert threes[-1] == 498
    assert all(size % 3 == 0 for size in threes)
    # Model Runner V2: full graphs of decode steps round, piecewise graphs of mixed steps do not
    assert sizes("vllm_0.24", 3, 1024) == threes
    assert sizes("vllm_0.24", 3, 1024, decode_only=False) == plain
    assert sizes("transformers", 4, 1024) == []


def test_the_largest_captured_size_follows_the_limits():
    # 2 max_num_seqs to 0.12, 2 max_num_seqs (K+1) from 0.13
    assert sizes("vllm_0.10", 4, 16)[-1] == 32
    assert sizes("vllm_0.15", 4, 16)[-1] == 128
    assert sizes("vllm_0.15", 1, 16)[-1] == 32
    assert sizes("vllm_0.15", 4, 512)[-1] == 512
    # nor more than a step may hold, however wide the sequences
    assert sizes("vllm_0.15", 4, 512, budget=100)[-1] == 96


def test_tokens_are_padded_to_the_next_size_and_not_above_the_largest():
    m = padded([1, 2, 4, 8, 16], 40)
    assert m[:10].tolist() == [0, 1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert m[16:].tolist() == list(range(16, 40))
    assert padded([4, 8, 16], 14).tolist() == [0, 4, 4, 4, 4, 8, 8, 8, 8, 9, 10, 11, 12, 13]
    assert padded([], 3).tolist() == [0, 1, 2]


def test_model_runner_v2_pads_full_graphs_to_whole_sequences_and_mixed_steps_not():
    step = stepping(KIND["eagle"](k=4), engine="vllm_0.24")
    verify = [by_hand.layers(m, LLAMA_8B) + by_hand.head(15, 4096, 128256) for m in (20, 16)]
    draft = step.draft_s(3, 15, 0, 0, 0)
    assert us(step.decode(3, 0) - draft) == close(verify[0])
    assert us(step.mixed(3, 0, 15, 0) - draft) == close(verify[1])


def test_padding_reaches_the_gemms_but_not_the_head():
    step, eager = stepping(max_num_seqs=300), stepping(max_num_seqs=300, engine="transformers")
    for n, m in ((9, 16), (249, 256), (257, 272)):
        expected = by_hand.layers(m, LLAMA_8B) + by_hand.head(n, 4096, 128256)
        assert us(step.decode(n, 0)) == close(expected)
        bare = by_hand.layers(n, LLAMA_8B) + by_hand.head(n, 4096, 128256)
        assert us(eager.decode(n, 0) - eager.host_s(n)) == close(bare)
    above = stepping(EAGLE, max_num_seqs=140)
    assert us(above.breakdown(130, 0)["elementwise"]) == close(
        32 * by_hand.elementwise(520, LLAMA_8B)
    )


@pytest.mark.parametrize(
    ("engine", "n", "m"),
    [
        # largest 2 x 16 without and 2 x 16 x 4 with K+1; 0.10 pads 28 to 32 and leaves 36 alone
        ("vllm_0.10", 7, 32),
        ("vllm_0.10", 9, 36),
        ("vllm_0.15", 7, 32),
        ("vllm_0.15", 9, 40),
        ("vllm_0.15", 16, 64),
    ],
)
def test_a_step_knows_the_limits_of_its_deployment(engine, n, m):
    parts = stepping(EAGLE, engine=engine, max_num_seqs=16).breakdown(n, 0)
    assert us(parts["elementwise"]) == close(32 * by_hand.elementwise(m, LLAMA_8B))
