"""Timed kernels not to trust: made from a known roofline, spoiled, and found again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from calibration.kernels import aiconfigurator, check, rows, work
from calibration.kernels.check import DUPLICATE, NON_POSITIVE, OFF_ROOFLINE, TOO_FAST
from calibration.kernels.fits.select import ANOTHER_KERNEL
from models import catalog
from models.strict_yaml import InputError

H100 = catalog.hardware("h100_sxm")
BW, PEAK = 3.35e12, 989.5e12
SHAPES = itertools.product([1, 4, 16, 64, 256, 1024, 4096], [1024, 4096, 8192, 16384], [2048, 8192])
M, N, K = np.array(list(SHAPES)).T


def gemms(*, noise=0.1, memory=0.86, fixed_us=3.7, **columns):
    """Rows on a roofline of known constants, with log-normal noise."""
    least = work.gemm(M, N, K, "bf16")
    time_s = np.fmax(least.flops / (0.8 * PEAK), least.bytes / (memory * BW)) + fixed_us * 1e-6
    time_s = time_s * np.exp(np.random.default_rng(3).normal(0, noise, len(M)))
    given = {"kernel": "cublas", "dtype": "bf16", "source": "a.parquet"}
    return rows.frame("gemm", m=M, n=N, k=K, time_s=time_s, **(given | columns))


def experts(slower, *, kernel="triton balanced"):
    """Mixture rows at 85 % of the bandwidth, made slower by a factor."""
    m = np.tile([1, 2, 4, 8, 16, 32, 64, 128], 3)
    n, k = np.repeat([1024, 4096, 14336], 8), 4096
    least = work.moe(m, n, k, 8, 2, "fp8")
    shape = {"m": m, "n": n, "k": k, "experts": 8, "experts_per_token": 2, "dtype": "fp8"}
    time_s = slower * least.bytes / (0.85 * BW) + 50e-6
    return rows.frame("moe", kernel=kernel, time_s=time_s, **shape)


def flags(timed):
    return check.flag(timed, H100)["flag"].to_numpy()


def spoiled(timed, place, **values):
    timed = timed.copy()
    for name, value in values.items():
        timed.loc[place, name] = value
    return timed


def test_honest_rows_are_not_flagged():
    assert set(flags(gemms())) == {""}
    assert set(flags(experts(1.0))) == {""}


def test_nothing_but_the_flag_changes_and_the_rows_given_stay_as_they_were():
    timed = spoiled(gemms(), 3, time_s=1.0)
    before = timed.copy()
    checked = check.flag(timed, H100)
    assert timed.equals(before)
    assert checked.drop(columns="flag").equals(timed.drop(columns="flag"))
    assert list(checked.columns) == list(timed.columns)
    assert check.flag(checked, H100).equals(checked)


@pytest.mark.parametrize("factor", [2.6, 10.0, 1 / 2.6, 1 / 10])
def test_a_row_twice_off_its_kernel_is_flagged_and_no_other(factor):
    # 64 rows of 1024 x 2048: its 3.7 us stand far above the datasheet's time
    place = int(np.flatnonzero((M == 64) & (N == 1024) & (K == 2048))[0])
    timed = gemms(fixed_us=20.0)
    timed.loc[place, "time_s"] *= factor
    assert flags(timed)[place] == OFF_ROOFLINE
    assert (flags(timed) != "").sum() == 1


def test_a_time_no_device_can_reach_is_flagged():
    place = int(np.flatnonzero((M == 4096) & (N == 16384) & (K == 8192))[0])
    least_s = 2.0 * 4096 * 16384 * 8192 / PEAK
    assert flags(spoiled(gemms(), place, time_s=least_s / 1.15))[place] == TOO_FAST
    assert flags(spoiled(gemms(), place, time_s=least_s / 1.05))[place] == ""


def test_a_time_of_zero_is_flagged_before_anything_else():
    timed = rows.join([spoiled(gemms(), 5, time_s=0.0)] * 2)
    assert flags(timed)[5] == NON_POSITIVE
    assert flags(timed)[5 + len(M)] == NON_POSITIVE


def test_of_a_row_timed_three_times_the_middle_one_stays():
    timed = rows.join([gemms(noise=0), gemms(noise=0)[:1], gemms(noise=0)[:1]])
    ends = [0, len(M), len(M) + 1]
    for factors in itertools.permutations([0.9, 1.0, 1.1]):
        again = timed.copy()
        again.loc[ends, "time_s"] *= np.array(factors)
        marked = flags(again)
        assert [marked[place] for place in ends] == [
            "" if factor == 1.0 else DUPLICATE for factor in factors
        ]
        assert (marked != "").sum() == 2


def test_the_same_shape_on_another_kernel_or_version_is_no_duplicate():
    timed = rows.join([gemms(), gemms(kernel="cutlass"), gemms(version="0.24.0")])
    assert set(flags(timed)) == {""}


def test_a_reason_given_before_stays_and_its_row_is_not_a_duplicate_of_any():
    timed = rows.join([gemms(), gemms()[:1].assign(flag="noisy", time_s=1e-9)])
    assert flags(timed)[-1] == "noisy"
    assert set(flags(timed)[:-1]) == {""}


@pytest.mark.parametrize("why", [NON_POSITIVE, DUPLICATE, TOO_FAST, OFF_ROOFLINE, ANOTHER_KERNEL])
def test_a_reason_of_an_earlier_fit_is_found_anew_or_not_at_all(why):
    assert set(flags(gemms().assign(flag=why))) == {""}
    slow = spoiled(gemms(), 3, time_s=1.0).assign(flag=why)
    assert flags(slow)[3] == OFF_ROOFLINE
    assert flags(slow.assign(flag="spread 31 % of its repeats"))[3].startswith("spread")


def test_a_kernel_slower_than_any_sound_one_is_flagged_as_a_whole_not_fitted():
    slow = rows.join([experts(6.0, kernel="cutlass balanced"), experts(1.0)])
    large = ((slow["m"] >= 16) & (slow["n"] >= 4096)).to_numpy()
    of_it = (slow["kernel"] == "cutlass balanced").to_numpy()
    marked = flags(slow)
    assert set(marked[of_it & large]) == {OFF_ROOFLINE}
    assert set(marked[~of_it]) == {""}


def test_a_kernel_with_an_endless_launch_is_flagged_where_that_decides():
    marked = flags(gemms(fixed_us=180.0, noise=0.02))
    least_s = work.gemm(M, N, K, "bf16").bytes / BW
    assert set(marked[(M <= 64) & (least_s < 20e-6)]) == {OFF_ROOFLINE}


def test_one_row_of_a_kernel_is_held_against_the_bounds():
    row = gemms(noise=0)[-1:]
    assert flags(row).tolist() == [""]
    assert flags(row.assign(time_s=row["time_s"] * 20)).tolist() == [OFF_ROOFLINE]


def test_decode_is_held_to_a_bandwidth_that_prefill_is_not():
    context = 512 * np.arange(1, 21)
    shape = {"batch": 8, "heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bf16"}
    read_s = work.attention(8, 1, context, 32, 8, 128, "bf16").bytes / BW
    asked = {"kv_dtype": "bf16", "context_tokens": context, "time_s": 8 * read_s + 1e-5}
    assert set(flags(rows.frame("attention", query_tokens=1, **shape, **asked))[10:]) == {
        OFF_ROOFLINE
    }
    assert set(flags(rows.frame("attention", query_tokens=2, **shape, **asked))) == {""}


def test_small_kernels_dominated_by_launch_are_not_flagged():
    m = np.arange(1, 65)
    timed = rows.frame("elementwise", kernel="rms_norm", dtype="bf16", m=m, n=4096, time_s=2.2e-6)
    assert set(flags(timed)) == {""}


def test_operations_without_a_roofline_are_only_held_against_the_datasheet():
    slow = rows.frame("sampling", kernel="top_p", m=[1, 2], n=128256, time_s=[1e-4, 9e-2])
    assert set(flags(rows.join([slow, rows.frame("launch", time_s=5e-6)]))) == {""}


def test_a_type_without_a_known_peak_is_fitted_against_its_own_best():
    least = work.gemm(M, N, K, "nvfp4")
    time_s = np.fmax(least.flops / 3e15, least.bytes / (0.8 * BW)) + 5e-6
    timed = rows.frame("gemm", dtype="nvfp4", m=M, n=N, k=K, time_s=time_s)
    assert set(flags(timed)) == {""}
    assert flags(spoiled(timed, 54, time_s=10 * time_s[54]))[54] == OFF_ROOFLINE


def test_collectives_are_held_against_the_link_and_without_one_against_the_host_link():
    size = 2 ** np.arange(10, 30)
    shape = {"kernel": "nccl", "gpus": 2, "message_bytes": size}
    nvlink = rows.frame("all_reduce", time_s=size / 300e9 + 8e-6, **shape)
    assert set(check.flag(nvlink, H100)["flag"]) == {""}
    over_pcie = check.flag(nvlink, catalog.hardware("l40s"))["flag"]
    assert over_pcie.iloc[-1] == TOO_FAST


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1e3, r"^a.parquet: times of gemm are about 1000 times too long .*: ms given as s, or us"),
        (1e6, r"about 1000000 times too long for this device: us given as s\?"),
        (1e-3, r"about 1000 times too short for this device: s given as ms, or ms as us\?"),
    ],
)
@pytest.mark.parametrize("fixed_us", [3.7, 180.0])
def test_times_in_another_unit_are_refused(factor, message, fixed_us):
    timed = gemms(fixed_us=fixed_us)
    with pytest.raises(InputError, match=message):
        check.flag(timed.assign(time_s=timed["time_s"] * factor), H100)


def test_one_source_in_another_unit_is_found_among_others():
    wrong = gemms(source="b.csv", version="2")
    timed = rows.join([gemms(), gemms(version="1"), wrong.assign(time_s=wrong["time_s"] * 1e3)])
    with pytest.raises(InputError, match=r"^b.csv: times of gemm are about 1000 times too long"):
        check.flag(timed, H100)


@pytest.mark.parametrize(("factor", "off"), [(1e3, "long"), (1e-3, "short")])
def test_one_operation_in_another_unit_is_found_among_others_of_its_source(factor, off):
    few = experts(1.0).assign(source="a.parquet")
    few["time_s"] *= factor
    with pytest.raises(InputError, match=rf"^a.parquet: times of moe are about 1000 .* too {off}"):
        check.flag(rows.join([gemms(), gemms(version="1"), few]), H100)


def test_small_kernels_of_a_device_of_ones_own_may_take_long_to_call():
    few = rows.frame("elementwise", kernel="layer", m=[1, 2], n=576, bytes=4.0, time_s=2e-3)
    own = H100.model_copy(update={"name": "my_cpu"})
    check.flag(rows.join([gemms(), few.assign(source="a.parquet")]), own)


def decodes(slower):
    context = 4096 * np.arange(1, 21)
    shape = {"batch": 8, "heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bf16"}
    read_s = work.attention(8, 1, context, 32, 8, 128, "bf16").bytes / BW
    asked = {"kv_dtype": "bf16", "context_tokens": context, "time_s": slower * read_s + 1e-5}
    return rows.frame("attention", query_tokens=1, **shape, **asked)


def test_rows_mostly_faster_than_the_datasheet_are_those_of_another_gpu():
    l40s = catalog.hardware("l40s")
    refused = [(gemms(fixed_us=0.1), r"^56 of 56 rows of gemm"), (decodes(1.2), "^20 of 20 .*dec")]
    for timed, message in refused:
        again = rows.join([timed, timed])
        with pytest.raises(InputError, match=message) as error:
            check.refuse_wrong_gpu(check.flag(again, l40s), l40s)
        assert "faster than the datasheet of l40s; is --gpu right?" in str(error.value)
        check.refuse_wrong_gpu(check.flag(again, H100), H100)


def test_half_of_the_rows_faster_than_the_datasheet_do_not_speak_against_the_gpu():
    timed = decodes(1.2)
    fast = timed.index < len(timed) // 2
    half = timed.assign(time_s=timed["time_s"].where(~fast, timed["time_s"] / 2))
    assert (flags(half) == TOO_FAST).sum() == 10
    check.refuse_wrong_gpu(check.flag(half, H100), H100)


def test_the_summary_counts_by_operation_type_and_reason():
    timed = spoiled(spoiled(gemms(noise=0), [1, 2], time_s=1.0), 0, time_s=0.0)
    summary = check.flag_summary(check.flag(rows.join([timed, experts(1.0)]), H100))
    assert summary.to_dict("records") == [
        {"operation": "gemm", "dtype": "bf16", "flag": why, "rows": n, "share": n / len(M)}
        for why, n in ((OFF_ROOFLINE, 2), (NON_POSITIVE, 1))
    ]
    assert len(check.flag_summary(check.flag(gemms(), H100))) == 0


def test_a_device_of_ones_own_may_be_slower_than_any_gpu():
    m = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    time_s = 480e-6 + m * 24e3 / (0.5 * BW)
    timed = rows.frame("elementwise", kernel="layer", m=m, n=576, bytes=m * 24e3, time_s=time_s)
    assert OFF_ROOFLINE in flags(timed)
    own = H100.model_copy(update={"name": "my_cpu"})
    assert set(check.flag(timed, own)["flag"]) == {""}


@pytest.mark.extras
def test_of_the_published_tables_few_rows_in_use_are_flagged_and_the_slow_mixture_is():
    pytest.importorskip("aiconfigurator_core", reason="needs the extra 'tables'")
    checked = check.flag(aiconfigurator.read("h100_sxm", "vllm", "0.24.0"), H100)
    flagged = checked["flag"] != ""
    usual = (checked["n"] >= 1024) & (checked["k"] >= 1024) & (checked["m"] <= 4352)
    dense = (checked["operation"] == "gemm") & usual
    assert flagged[dense & (checked["dtype"] == "bf16")].mean() < 0.01
    assert flagged[dense & (checked["dtype"] == "fp8")].mean() < 0.03
    large = (checked["operation"] == "moe") & (checked["n"] * checked["k"] >= 8e6)
    fp8 = large & (checked["dtype"] == "fp8") & checked["m"].between(32, 512)
    assert flagged[fp8].mean() > 0.8


@pytest.mark.extras
@pytest.mark.parametrize(
    ("gpu", "system", "engine", "release"),
    [
        ("h100_sxm", "h100_sxm", "vllm", "0.24.0"),
        ("h100_sxm", "h100_sxm", "sglang", "0.5.14"),
        ("a100_80g_sxm", "a100_sxm", "vllm", "0.14.0"),
        ("l40s", "l40s", "vllm", "0.24.0"),
        ("b200_sxm", "b200_sxm", "vllm", "0.24.0"),
    ],
)
def test_no_published_table_is_taken_for_one_of_another_unit_or_gpu(gpu, system, engine, release):
    pytest.importorskip("aiconfigurator_core", reason="needs the extra 'tables'")
    accelerator = catalog.hardware(gpu)
    checked = check.flag(aiconfigurator.read(system, engine, release), accelerator)
    check.refuse_wrong_gpu(checked, accelerator)
