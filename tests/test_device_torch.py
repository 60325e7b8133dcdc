"""Kernels timed with torch: they compute what they say, on CPU tensors as on CUDA's."""

from __future__ import annotations

import json
import os

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from calibration.kernels.device import machine as machines  # noqa: E402
from calibration.kernels.device import run as device_run  # noqa: E402
from calibration.kernels.device.attention import attention, visible  # noqa: E402
from calibration.kernels.device.collective import time_all_reduces  # noqa: E402
from calibration.kernels.device.grid import CPU  # noqa: E402
from calibration.kernels.device.operands import Operands  # noqa: E402
from calibration.kernels.device.operations import build, weights_go_by  # noqa: E402
from calibration.kernels.device.run import Options, calibrate_device, partial_of  # noqa: E402
from calibration.kernels.device.sweep import Shape, sweep  # noqa: E402
from models import catalog  # noqa: E402
from models.schema import ModelError  # noqa: E402
from models.transformer import Transformer  # noqa: E402

pytestmark = pytest.mark.extras

TINY = Transformer(
    name="tiny",
    title="tiny",
    layers=2,
    hidden=64,
    intermediate=128,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocab=512,
    max_position=2048,
    source="made up",
)
FEW = CPU._replace(
    m=(1, 8),
    batch=(1, 2),
    context=(16,),
    query=(1, 8),
    prompt=(16,),
    sampled=(2,),
    stream_bytes=(1_000_000,),
)


class Recorded(Operands):
    """Operands that remember what they gave: queries and new keys hot, the KV cache cold."""

    def __init__(self, cache_bytes: int = 64) -> None:
        super().__init__(torch, "cpu", cache_bytes)
        self.given: list[torch.Tensor] = []
        self.taken: list[torch.Tensor] = []

    def hot(self, *shape, dtype):
        self.given.append(super().hot(*shape, dtype=dtype))
        return self.given[-1]

    def cold(self, *shape, dtype, in_use=1, parts=()):
        take = super().cold(*shape, dtype=dtype, in_use=in_use, parts=parts)

        def taking():
            self.taken.append(take())
            return self.taken[-1]

        return taking


def shape_of(query: int, context: int, mask: str, stack: str) -> Shape:
    return Shape(
        "attention",
        "any",
        "fp32",
        "fp32",
        batch=2,
        query_tokens=query,
        context_tokens=context,
        heads=6,
        kv_heads=2,
        head_dim=16,
        mask=mask,
        stack=stack,
    )


def by_hand(query, keys, values, seen):
    """Softmax of masked scores; [batch, heads, tokens, width], KV heads each serving a group."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = query @ keys.transpose(-1, -2) / query.shape[-1] ** 0.5
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values


def test_a_chain_sees_the_context_and_what_came_before_it():
    seen = visible(torch, "cpu", shape_of(3, 2, "causal", "fused"))
    assert seen.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_a_node_of_a_tree_sees_the_context_its_ancestors_and_itself():
    seen = visible(torch, "cpu", shape_of(5, 1, "tree", "fused"))
    assert seen[:, 0].all()
    assert seen[:, 1:].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("query", "context", "mask"),
    [(1, 20, "causal"), (5, 20, "causal"), (9, 0, "causal"), (7, 20, "tree")],
)
def test_fused_attention_computes_what_its_mask_says(query, context, mask):
    operands, shape = Recorded(), shape_of(query, context, mask, "fused")
    (attend,) = attention(torch, operands, shape)
    out = attend()
    keys, values = (x.transpose(1, 2) for x in operands.taken)
    seen = visible(torch, "cpu", shape)
    q = operands.given[0]
    if mask == "tree":  # rows are the heads of a group, each with all its tokens
        q = q.view(2, 2, 3, query, 16).flatten(1, 2)
        out = out.view(2, 2, 3, query, 16).flatten(1, 2)
    else:
        q = q.transpose(1, 2)
    assert torch.allclose(out, by_hand(q, keys, values, seen), atol=1e-5)


@pytest.mark.parametrize(("query", "context"), [(1, 20), (5, 20), (9, 0)])
def test_attention_of_transformers_grows_the_cache_and_computes_the_same(query, context):
    operands, shape = Recorded(), shape_of(query, context, "causal", "transformers")
    (attend,) = attention(torch, operands, shape)
    out = attend()
    q, new = (x.transpose(1, 2) for x in operands.given[:2])
    old = operands.taken if context else [new[:, :, :0]] * 2
    keys, values = (torch.cat((x, new), dim=2) for x in old[-2:])
    expected = by_hand(q, keys, values, visible(torch, "cpu", shape))
    assert torch.allclose(out, expected.transpose(1, 2).reshape(2, query, -1), atol=1e-5)


def test_on_cuda_the_mask_of_a_chain_is_left_to_the_kernel(monkeypatch):
    seen = {}

    class Anywhere(Recorded):
        device = "cuda"

        def _random(self, count):
            return torch.randn(count)

    def attend(query, keys, values, **how):
        seen.update(how)
        return query

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    operands = Anywhere()
    operands.device = "cuda"
    (call,) = attention(torch, operands, shape_of(5, 20, "causal", "fused"))
    call()
    assert (seen["attn_mask"].seq_len_q, seen["attn_mask"].seq_len_kv) == (5, 25)
    assert seen["enable_gqa"]


def test_weights_come_back_only_after_twice_the_cache():
    operands = Operands(torch, "cpu", 100_000)
    take = operands.cold(32, 32, dtype="bf16")
    seen = [take().data_ptr() for _ in range(200)]
    before_again = seen.index(seen[0], 1)
    assert len(set(seen)) == before_again
    assert before_again * 32 * 32 * 2 >= 2 * 100_000 - 32 * 32 * 2


def test_projections_timed_apart_are_different_rows_of_a_weight_new_each_time():
    operands = Recorded(100_000)
    shape = Shape("gemm", "separate", "bf16", m=3, n=96, k=64, parts=(64, 16, 16))
    (call,) = build(torch, operands, shape)
    call()
    call()
    first, second = operands.taken
    assert [tuple(part.shape) for part in first] == [(64, 64), (16, 64), (16, 64)]
    assert len({part.data_ptr() for part in (*first, *second)}) == 6


@pytest.mark.parametrize("stack", ["fused", "transformers"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_kernel_of_a_sweep_computes(stack, dtype):
    operands = Operands(torch, "cpu", 100_000)
    with torch.inference_mode():
        for shape in sweep(TINY, 1, FEW, stack=stack, dtypes=(dtype,), graphs=True):
            for piece in build(torch, operands, shape):
                piece()


def test_a_kernel_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="no kernel of this process computes 'moe'"):
        build(torch, Operands(torch, "cpu", 64), Shape("moe", "x"))


def test_as_many_weights_go_by_as_a_layer_has():
    operands = Recorded()
    weights_go_by(torch, operands, 9e6)()
    assert sum(2 * weight.numel() for weight in operands.taken) == pytest.approx(9e6, rel=0.1)


def test_threads_and_cores_are_given_back():
    before = torch.get_num_threads(), os.sched_getaffinity(0)
    with machines.held(machines.find("cpu", 1)):
        assert torch.get_num_threads() == 1
        assert len(os.sched_getaffinity(0)) == 1
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == before


def test_a_run_on_this_cpu_gives_rows_and_one_line_and_goes_on_where_it_was(monkeypatch, tmp_path):
    monkeypatch.setattr(device_run, "grid", lambda device, quick: FEW)
    monkeypatch.setattr(catalog, "transformer", lambda name: TINY)
    monkeypatch.setattr(device_run, "SPREAD", {"cpu": 9.0})
    monkeypatch.setattr(machines, "_cpu_cache", lambda: 500_000)
    out, notes = tmp_path / "box.yaml", []

    def interrupt(label, done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_device("cpu", None, 1, out, Options(quick=True), interrupt)
    lines = partial_of(out).read_text("utf-8").splitlines()[1:]
    again = calibrate_device("cpu", None, 1, out, Options(quick=True), note=notes.append)
    assert notes == [f"{partial_of(out)}: 5 kernels of an interrupted run are kept"]
    kept = [json.loads(line)["time_s"] for line in lines]
    assert list(again.rows["time_s"][:5]) == kept
    assert set(again.rows["operation"]) == {
        *("stream", "launch", "gemm", "elementwise", "attention", "sampling")
    }
    assert (again.rows["time_s"] > 0).all()
    assert (again.rows["version"] == torch.__version__).all()
    assert (
        again.rows["source"].str.contains("1 pinned thread, .* transformers layers of tiny").all()
    )
    assert json.loads(json.dumps(again.summary))["rows"] == len(again.rows)
    assert again.accelerator.peak_flops["bf16"] > 0
    assert again.partial.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none_is_refused():
    with pytest.raises(ModelError, match="no CUDA device"):
        machines.find("cuda")


def test_processes_sum_over_a_group():
    found = time_all_reduces(2, (4096, 65536), backend="gloo")
    assert set(found) == {4096, 65536}
    assert all(timing.median_s > 0 and timing.repeats == 15 for timing in found.values())
