"""Measured kernels: exact where they were timed, between by hand, silent outside."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import catalog
from models.kernel_table import Curve, GemmTable, KernelTable
from models.kernels import Kernels
from models.profile import TableWhere
from models.strict_yaml import InputError
from sim.kernel_rows import KERNELS, kernel_table, write_kernels
from sim.tables import TEXT

SIZES = (1024.0, 2048.0, 4096.0, 16384.0)
M = np.array([1.0, 16.0, 64.0, 256.0, 1024.0])


def smooth(m: Any, n: float, k: float) -> Any:
    """A closed form of sorts."""
    return 3e-6 + 2.0 * m * n * k / 5e14 + 2.0 * n * k / 3e12


def bumpy(m: Any, n: float, k: float) -> Any:
    """What was measured: a power law away from it in each size."""
    return smooth(m, n, k) * 1.3 * (m / 64) ** 0.05 * (n / 2048) ** -0.1 * (k / 2048) ** 0.07


def timed(*left_out: tuple[float, float]) -> GemmTable:
    shapes = [(n, k) for n in SIZES for k in SIZES if (n, k) not in left_out]
    return GemmTable({(n, k): Curve(M, bumpy(M, n, k)) for n, k in shapes})


def at(table: GemmTable, m: float, n: float, k: float) -> float:
    """Seconds by the table; NaN where it says nothing."""
    found = table.log_ratio(np.array([m]), n, k, smooth)
    return float(np.exp(found[0]) * smooth(m, n, k))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("m", M)
def test_sizes_that_were_timed_come_back_as_timed(m, n, k):
    assert at(timed(), m, n, k) == pytest.approx(bumpy(m, n, k), rel=1e-12)


def test_between_two_m_the_ratio_is_linear_in_log_m():
    table = GemmTable({(8.0, 8.0): Curve(np.array([4.0, 16.0]), np.array([2e-6, 8e-6]))})
    # over a form of 1 us the ratios are 2 and 8: half way in log m, 4
    found = table.log_ratio(np.array([4.0, 8.0, 16.0]), 8, 8, lambda m, n, k: 1e-6 + 0 * m)
    assert np.exp(found) == pytest.approx([2, 4, 8])


def test_between_four_shapes_the_ratio_is_bilinear_in_log_n_and_log_k():
    ratios = {(1.0, 1.0): 2.0, (1.0, 4.0): 8.0, (4.0, 1.0): 32.0, (4.0, 4.0): 128.0}
    one = np.array([1.0])
    table = GemmTable({shape: Curve(one, one * ratio) for shape, ratio in ratios.items()})
    found = table.log_ratio(one, 2.0, 2.0, lambda m, n, k: one)
    # half way in both: the geometric mean of the four
    assert np.exp(found) == pytest.approx([(2 * 8 * 32 * 128) ** 0.25])
    found = table.log_ratio(one, 1.0, 2.0, lambda m, n, k: one)
    assert np.exp(found) == pytest.approx([4.0])


@given(m=st.floats(1, 1024), n=st.floats(1024, 16384), k=st.floats(1024, 16384))
def test_power_laws_are_reproduced_anywhere_within(m, n, k):
    assert at(timed(), m, n, k) == pytest.approx(bumpy(m, n, k), rel=1e-9)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(0.5, 2048, 2048), (1025, 2048, 2048), (64, 1023, 2048), (64, 16385, 2048), (64, 2048, 99999)],
)
def test_outside_of_what_was_timed_it_says_nothing(m, n, k):
    assert np.isnan(at(timed(), m, n, k))


def test_times_rise_with_m_where_the_timed_ones_do():
    rows = np.geomspace(1, 1024, 300)
    table = timed()
    seconds = np.exp(table.log_ratio(rows, 3000, 5000, smooth)) * smooth(rows, 3000, 5000)
    assert (np.diff(seconds) > 0).all()


def test_a_shape_left_out_is_bridged_by_its_neighbours():
    # 2048 x 4096 was not timed: 2000 x 4000 then lies between n = 1024 and n = 4096
    holed = timed((2048.0, 4096.0))
    assert at(holed, 64, 2000, 4000) == pytest.approx(bumpy(64, 2000, 4000), rel=1e-9)
    assert at(holed, 64, 2048, 4096) == pytest.approx(bumpy(64, 2048, 4096), rel=1e-9)


def test_shapes_far_apart_say_nothing_of_what_lies_between():
    table = GemmTable({(n, 512.0): Curve(M, bumpy(M, n, 512.0)) for n in (64.0, 4096.0)})
    assert np.isnan(at(table, 64, 1000, 512))
    assert at(table, 64, 64, 512) == pytest.approx(bumpy(64, 64, 512))


def test_each_shape_may_have_been_timed_at_other_m():
    short = Curve(np.array([8.0, 32.0]), bumpy(np.array([8.0, 32.0]), 2048.0, 1024.0))
    table = GemmTable({**timed().curves, (2048.0, 1024.0): short})
    assert at(table, 16, 1500, 1024) == pytest.approx(bumpy(16, 1500, 1024), rel=1e-9)
    # beyond the shorter of the two, nothing
    assert np.isnan(at(table, 64, 1500, 1024))
    assert at(table, 64, 1024, 1024) == pytest.approx(bumpy(64, 1024, 1024))


def test_a_row_just_past_a_tile_says_nothing_of_the_sizes_that_follow(tmp_path):
    sizes = ((256, 10e-6), (257, 17e-6), (512, 20e-6), (9, 5e-6))
    path = written(tmp_path / "t.parquet", *({**ROWS[0], "m": m, "time_s": s} for m, s in sizes))
    (curve,) = kernel_table(path).gemm["bf16"].curves.values()
    assert curve.at.tolist() == [9, 256, 512]


def test_repeats_of_one_size_are_averaged_in_logarithms():
    curve = Curve.of(np.array([8, 2, 8]), np.array([4e-6, 1e-6, 9e-6]))
    assert curve.at.tolist() == [2, 8]
    assert curve.seconds == pytest.approx([1e-6, 6e-6])


# Columns and files

ROWS: list[dict[str, Any]] = [
    {"operation": "gemm", "dtype": "bf16", "m": 16, "n": 512, "k": 256, "time_s": 5e-6},
    {"operation": "gemm", "dtype": "bf16", "m": 32, "n": 512, "k": 256, "time_s": 6e-6},
    {"operation": "gemm", "dtype": "fp8", "m": 16, "n": 512, "k": 256, "time_s": 4e-6},
    {"operation": "all_reduce", "gpus": 2, "message_bytes": 8192, "time_s": 7e-6},
    {
        **{"operation": "moe", "dtype": "bf16", "m": 4, "n": 1792, "k": 4096},
        **{"experts": 8, "experts_per_token": 2, "time_s": 9e-5},
    },
    {"operation": "attention", "batch": 4, "time_s": 1e-5},
]


def written(path: Path, *rows: dict[str, Any]) -> Path:
    empty = {field.name: "" if field.type == TEXT else 0 for field in KERNELS}
    columns = {name: [{**empty, **row}[name] for row in rows] for name in empty}
    types = {field.name: field.type for field in KERNELS}
    table = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})
    write_kernels(table, path)
    return path


def test_columns_become_a_curve_for_every_shape(tmp_path):
    table = kernel_table(written(tmp_path / "rows.parquet", *ROWS))
    assert table.gemm.keys() == {"bf16", "fp8"}
    curve = table.gemm["bf16"].curves[512.0, 256.0]
    assert curve.at.tolist() == [16, 32]
    assert curve.seconds == pytest.approx([5e-6, 6e-6])
    assert table.all_reduce[2].at.tolist() == [8192]
    assert [tuple(shape) for shape in table.moe] == [("bf16", 1792, 4096, 8, 2)]


def test_flagged_rows_are_left_out(tmp_path):
    flagged = {**ROWS[1], "flag": "2x off the roofline"}
    table = kernel_table(written(tmp_path / "rows.parquet", ROWS[0], flagged))
    assert table.gemm["bf16"].curves[512.0, 256.0].at.tolist() == [16]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_s": 0.0}, "time_s: must be above 0 in every gemm row without a flag, got 0.0"),
        ({"time_s": math.nan}, "time_s: must be above 0 in every gemm row without a flag, got nan"),
        ({"time_s": -1e-6}, "time_s: must be above 0 in every gemm row"),
        ({"m": 0}, "m: must be above 0 in every gemm row without a flag, got 0"),
    ],
)
def test_a_row_in_use_that_cannot_be_is_refused(tmp_path, change, message):
    path = written(tmp_path / "rows.parquet", ROWS[0] | change)
    with pytest.raises(InputError, match=re.escape(message)):
        kernel_table(path)
    flagged = written(tmp_path / "rows.parquet", ROWS[1], ROWS[0] | change | {"flag": "noisy"})
    assert kernel_table(flagged).gemm["bf16"].curves[512.0, 256.0].at.tolist() == [32]


def test_columns_of_another_type_are_refused_in_one_line(tmp_path):
    path = written(tmp_path / "rows.parquet", ROWS[0])
    text = pq.read_table(path)
    index = text.column_names.index("time_s")
    pq.write_table(text.set_column(index, "time_s", pa.array(["soon"])), path)
    with pytest.raises(InputError, match="columns are not as written"):
        kernel_table(path)


def test_a_file_that_changes_is_read_anew(tmp_path):
    path = written(tmp_path / "rows.parquet", ROWS[0])
    assert "fp8" not in kernel_table(path).gemm
    written(path, *ROWS)
    assert "fp8" in kernel_table(path).gemm


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.parquet: no such file"):
        kernel_table(tmp_path / "none.parquet")


# Which of the two a kernel takes

H100 = catalog.hardware("h100_sxm")
PROFILE = by_hand.PROFILE.model_copy(update={"table_where": TableWhere(gemm={"bf16": (160, 300)})})
CLOSED = Kernels(H100, PROFILE)


def doubled(backend: Any, *dtypes: Any) -> Kernels:
    """Kernels whose measured GEMMs of 1024 to 4096 take twice as long as the closed form."""
    m = np.array([1.0, 200.0, 4096.0])
    gemms = {
        dtype: GemmTable(
            {
                (n, k): Curve(m, 2 * CLOSED.gemm(m, n, k, dtype))
                for n in (1024.0, 4096.0)
                for k in (1024.0, 4096.0)
            }
        )
        for dtype in dtypes or ("bf16",)
    }
    return Kernels(H100, PROFILE, KernelTable(gemms, {}, {}), backend)


def over(kernels: Kernels, m: Any, n: float = 2048, dtype: Any = "bf16") -> Any:
    """How much longer than by the closed form."""
    return kernels.gemm(m, n, 2048, dtype) / CLOSED.gemm(m, n, 2048, dtype)


def test_auto_takes_measured_rows_only_where_the_profile_says_they_are_better():
    m = [1, 159, 160, 300, 301, 4096]
    assert over(doubled("auto"), m) == pytest.approx([1, 1, 2, 2, 1, 1])


def test_table_takes_them_wherever_they_reach_and_roofline_nowhere():
    assert over(doubled("table"), [1, 200, 4096, 5000]) == pytest.approx([2, 2, 2, 1])
    assert over(doubled("table"), 200, n=9999) == pytest.approx(1)
    assert over(doubled("roofline"), [1, 200, 4096]) == pytest.approx([1, 1, 1])


def test_no_tokens_cost_nothing_with_measured_rows_either():
    assert doubled("table").gemm([0, 200], 2048, 2048, "bf16")[0] == 0


def test_quantising_comes_on_top_of_a_measured_fp8_gemm():
    m = np.array([1.0, 200.0])
    gemms = {"fp8": GemmTable({(2048.0, 2048.0): Curve(m, np.array([1e-5, 2e-5]))})}
    kernels = Kernels(H100, PROFILE, KernelTable(gemms, {}, {}), "table")
    quantise = 2.5e-6 + 3 * 200 * 2048 / (0.8 * 3.35e12)
    assert kernels.gemm(200, 2048, 2048, "fp8") == pytest.approx(2e-5 + quantise)


def test_weight_only_types_have_no_measured_rows():
    # computed in bf16, but a bf16 kernel moves four times the weights
    assert over(doubled("table"), 200, dtype="int4") == pytest.approx(1)


def test_measured_experts_must_have_the_shape_of_the_model():
    mixtral = catalog.transformer("mixtral-8x7b")
    m = np.array([1.0, 64.0])
    table = KernelTable.of(
        {
            "operation": np.array(["moe", "moe"]),
            "dtype": np.array(["bf16", "bf16"]),
            "m": m,
            "n": np.array([7168, 7168]),
            "k": np.array([4096, 4096]),
            "gpus": np.zeros(2),
            "message_bytes": np.zeros(2),
            "experts": np.array([8, 8]),
            "experts_per_token": np.array([2, 2]),
            "time_s": np.array([1e-3, 2e-3]),
        }
    )
    kernels = Kernels(H100, PROFILE, table, "table")
    router = CLOSED.gemm(m, 8, 4096, "bf16") + 4e-6
    # half of 14336 a GPU is what was timed
    assert kernels.experts(m, mixtral, "bf16", 2) == pytest.approx(np.array([1e-3, 2e-3]) + router)
    assert kernels.experts(m, mixtral, "bf16", 4) == pytest.approx(
        CLOSED.experts(m, mixtral, "bf16", 4)
    )


def test_measured_collectives_follow_the_size_of_the_group():
    size = np.array([1024.0, 65536.0])
    table = KernelTable({}, {}, {2: Curve(size, np.array([5e-6, 9e-6]))})
    kernels = Kernels(H100, PROFILE, table, "table")
    assert kernels.all_reduce(size, 2) == pytest.approx([5e-6, 9e-6])
    assert kernels.all_reduce(size, 4) == pytest.approx(CLOSED.all_reduce(size, 4))
    assert kernels.all_reduce(2e6, 2) == pytest.approx(CLOSED.all_reduce(2e6, 2))
