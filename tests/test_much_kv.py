"""Decode attention that reads much: more time to fill the device, then a higher rate."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import PROFILE
from timed_kernels import H100, US, decodes, prompts

from calibration.kernels import rows
from calibration.kernels.fits.attention import fit_attention
from models import catalog
from models.forward_pass import Attention
from models.kernel_constants import AttentionConstants, LargeReads
from models.kernels import Kernels
from models.kv_reads import kv_read_s
from models.schema import Constant, ModelError
from models.step_time import Deployed, StepTime
from models.strategies.autoregressive import Autoregressive

LLAMA = catalog.transformer("llama-3.1-8b")
BANDWIDTH = H100.memory_bandwidth_bytes_per_s


def number(value):
    return Constant(value=value, source="by hand")


def constants(memory=0.8, launch_us=10.0, large=(0.96, 20.0)):
    much = large and LargeReads(memory=number(large[0]), launch_us=number(large[1]))
    return AttentionConstants(memory=number(memory), launch_us=number(launch_us), large=much)


def kernels():
    return Kernels(H100, PROFILE.model_copy(update={"attention": {"bf16": constants()}}))


def step():
    return StepTime(
        Deployed(
            kernels=kernels(),
            target=LLAMA,
            engine=catalog.engine("vllm_0.15"),
            weights="bf16",
            kv="bf16",
            tp=1,
            top_p=False,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
        ),
        Autoregressive(),
    )


def test_a_call_takes_the_lesser_of_two_lines():
    # the lines cross where 10 us are 1/.8 - 1/.96 of the traffic
    cross = 10 * US * BANDWIDTH / (1 / 0.8 - 1 / 0.96)
    little, much = kv_read_s(constants(), [cross / 2, 2 * cross], BANDWIDTH)
    assert little == pytest.approx(cross / 2 / (0.8 * BANDWIDTH))
    assert much == pytest.approx(10 * US + 2 * cross / (0.96 * BANDWIDTH))
    plain = kv_read_s(constants(large=None), [cross / 2, 2 * cross], BANDWIDTH)
    assert plain == pytest.approx(np.array([0.5, 2]) * cross / (0.8 * BANDWIDTH))


def test_a_step_turns_where_its_layers_read_much():
    attention = Attention.of(kernels(), LLAMA, "bf16", 1, 1)
    turn, fixed_s, slope = attention.far(1)
    assert turn * 4096 == pytest.approx(10 * US * BANDWIDTH / (1 / 0.8 - 1 / 0.96))
    assert fixed_s == pytest.approx(32 * 10 * US)
    for ctx in (0.1 * turn, turn, 10 * turn):
        assert attention.seconds(ctx, ctx) == pytest.approx(
            32 * float(kv_read_s(constants(), 4096 * ctx, BANDWIDTH))
        )
    assert slope < attention.slope(1)


def test_a_decode_step_is_the_same_line_by_line_as_part_by_part():
    timed = step()
    turn = Attention.of(kernels(), LLAMA, "bf16", 1, 1).far(1)[0]
    for ctx in (0, int(turn) - 1, int(turn) + 1, 10 * int(turn)):
        assert timed.decode(16, ctx) == pytest.approx(timed.mixed(16, ctx, 16, ctx), rel=1e-12)
        assert sum(timed.breakdown(16, ctx).values()) == pytest.approx(timed.decode(16, ctx))


def test_computing_that_outlasts_only_fast_reading_is_no_line():
    attention = Attention.of(kernels(), LLAMA, "bf16", 1, 1)
    between = (attention.kv_s + attention.far_kv_s) / 2 / attention.query_s
    assert attention.far(int(between)) is None
    assert attention.far(10 * int(between)) == (np.inf, 0.0, 0.0)


@pytest.mark.parametrize(
    ("large", "name"), [((0.8, 20.0), "large.memory"), ((0.9, 10.0), "large.launch_us")]
)
def test_reading_much_starts_later_and_goes_faster(large, name):
    with pytest.raises(ValueError, match="must be above") as caught:
        constants(large=large)
    (error,) = caught.value.errors()
    assert isinstance(error["ctx"]["error"], ModelError) and error["ctx"]["error"].key == name


def test_both_lines_of_a_table_are_found():
    table = decodes()
    seconds = kv_read_s(constants(0.8, 10.0, (0.96, 25.0)), table["bytes"], BANDWIDTH) + 10 * US
    rng = np.random.default_rng(1)
    table = table.assign(time_s=seconds * np.exp(rng.normal(0, 0.01, len(table))))
    found = fit_attention(rows.join([table, prompts()]), H100).decode["bf16"]
    assert found.large is not None
    assert found.large.memory.value == pytest.approx(0.96, rel=0.02)
    assert found.large.launch_us.value == pytest.approx(25.0, rel=0.2)
    assert fit_attention(rows.join([decodes(), prompts()]), H100).decode["bf16"].large is None
