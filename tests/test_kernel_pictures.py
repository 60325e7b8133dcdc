"""Measured against fitted kernels: the times a profile gives to rows, and their picture."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from timed_rows import H100, PROFILE, attention, gemms, timed

from calibration.kernels import predict, rows
from calibration.kernels.panels import MOST_CURVES, panels
from models.kernel_constants import VerifyAttentionConstants
from models.kernels import Kernels
from models.schema import Constant, ModelError
from sim.analysis import plots
from sim.analysis.kernel_plots import Curve, Panel, Ratio, measured_against_fitted

US = 1e-6


def test_a_gemm_is_predicted_as_the_model_prices_it_without_its_quantisation():
    found = predict.seconds(gemms(), PROFILE, H100)
    (one,) = np.flatnonzero((gemms()["m"] == 256) & (gemms()["k"] == 16384))
    assert found[one] == pytest.approx(Kernels(H100, PROFILE).gemm(256, 4096, 16384, "bf16"))
    fp8 = predict.seconds(gemms(m=[1], shapes=[(8192, 8192)], dtype="fp8"), PROFILE, H100)
    fitted = PROFILE.gemm["fp8"]
    moved = 8192 * 8192 + 8192 + 2 * 8192
    least = moved / (fitted.memory.value * H100.memory_bandwidth_bytes_per_s)
    assert fp8[0] == pytest.approx(least + fitted.launch_us.value * US, rel=0.05)


def test_decoding_reads_the_cache_and_prompts_compute():
    decode = attention([1], [4095], batch=[32])
    launch_s = PROFILE.attention["bf16"].launch_us.value * US
    # 537 MB, which the constants for reading much price
    large = PROFILE.attention["bf16"].large
    read_s = decode["bytes"] / (large.memory.value * H100.memory_bandwidth_bytes_per_s)
    expected = large.launch_us.value * US + read_s
    assert predict.seconds(decode, PROFILE, H100) == pytest.approx(expected)
    little = attention([1], [1023], batch=[16])
    memory = PROFILE.attention["bf16"].memory.value * H100.memory_bandwidth_bytes_per_s
    found = predict.seconds(little, PROFILE, H100)
    assert found == pytest.approx(launch_s + little["bytes"] / memory)
    prompt = attention([4096], [0], batch=[4])
    peak = PROFILE.prefill_attention.compute.value * H100.peak_flops["bf16"]
    assert predict.seconds(prompt, PROFILE, H100)[0] >= launch_s + prompt["flops"][0] / peak


def test_verification_takes_the_longer_of_reading_and_computing():
    slow = VerifyAttentionConstants(compute=Constant(value=0.1, source="by hand"))
    profile = PROFILE.model_copy(update={"verify_attention": slow})
    launch_s = PROFILE.attention["bf16"].launch_us.value * US
    narrow, wide = attention([2], [8192], batch=[32]), attention([64], [8192], batch=[32])
    found = predict.seconds(narrow, profile, H100)[0]
    one = predict.seconds(attention([1], [8193], batch=[32]), profile, H100)[0]
    assert found == pytest.approx(one, rel=1e-3)
    found = predict.seconds(wide, profile, H100)[0]
    assert found == pytest.approx(launch_s + wide["flops"][0] / (0.1 * H100.peak_flops["bf16"]))


def test_verification_that_reads_first_computes_as_a_prompt_unless_it_was_told():
    reading = VerifyAttentionConstants(memory=Constant(value=0.3, source="by hand"))
    profile = PROFILE.model_copy(update={"verify_attention": reading})
    rows_ = attention([8], [8192], batch=[32])
    read_s = rows_["bytes"][0] / (0.3 * H100.memory_bandwidth_bytes_per_s)
    peak = PROFILE.prefill_attention.compute.value * H100.peak_flops["bf16"]
    launch_s = PROFILE.attention["bf16"].launch_us.value * US
    expected = launch_s + read_s + rows_["flops"][0] / peak
    assert predict.seconds(rows_, profile, H100)[0] == pytest.approx(expected)


def test_what_a_profile_has_no_constants_for_is_not_predicted():
    unknown = [
        gemms(dtype="fp8_block"),
        attention([1], [512], kv_dtype="fp16"),
        rows.frame("sampling", kernel="argmax", m=[8], n=32000, time_s=1e-5),
        rows.frame("all_reduce", kernel="nccl", gpus=[16], message_bytes=1024, time_s=1e-5),
    ]
    assert np.isnan(predict.seconds(rows.join(unknown), PROFILE, H100)).all()


def test_every_operation_and_type_has_a_panel():
    titles = [panel.title for panel in panels(timed(), PROFILE, H100)]
    assert titles == [
        "GEMM, bf16",
        "GEMM, fp8",
        "Decode attention, bf16 KV",
        "Verification attention, bf16 KV",
        "Prefill attention",
        "All-reduce",
    ]


def test_the_ratio_is_measured_over_fitted():
    for panel in panels(timed(factor=1.25), PROFILE, H100):
        for quantile in (panel.ratio.lo, panel.ratio.median, panel.ratio.hi):
            np.testing.assert_allclose(quantile, 1.25)
        for curve in panel.curves.values():
            np.testing.assert_allclose(curve.measured_s, 1.25 * curve.fitted_s)


def test_a_few_shapes_from_the_smallest_to_the_largest_are_drawn():
    shapes = [(1024 * n, 4096) for n in range(1, 13)]
    many = gemms(shapes=shapes).assign(time_s=1e-5)
    (panel,) = panels(many, PROFILE, H100)
    assert len(panel.curves) == MOST_CURVES
    names = list(panel.curves)
    assert (names[0], names[-1]) == ("n 1024, k 4096", "n 12288, k 4096")


def test_flagged_rows_are_not_shown():
    bad = timed()
    bad.loc[bad["dtype"] == "fp8", "flag"] = "2x off the roofline"
    assert "GEMM, fp8" not in [panel.title for panel in panels(bad, PROFILE, H100)]
    with pytest.raises(ModelError, match="no constants"):
        panels(gemms(dtype="fp8_block"), PROFILE, H100)


def panel(title: str = "GEMM, bf16", count: int = 3) -> Panel:
    x = np.array([1.0, 10.0, 100.0])
    curves = {f"n {index}": Curve(x, 1e-5 * x, 1.1e-5 * x) for index in range(count)}
    return Panel(title, "tokens m", curves, Ratio(x, 0.8 * x**0, 0.9 * x**0, 1.2 * x**0))


def test_times_are_above_ratios_both_over_the_same_sizes():
    figure = measured_against_fitted([panel(), panel("GEMM, fp8")])
    assert len(figure.axes) == 4
    for upper, lower in (figure.axes[:2], figure.axes[2:]):
        assert upper.get_position().y0 > lower.get_position().y1
        assert upper.get_xlim() == lower.get_xlim()
        assert {upper.get_xscale(), upper.get_yscale(), lower.get_yscale()} == {"log"}
        assert upper.get_ylabel() == "time of a call, µs"
        assert lower.get_ylabel() == "measured / fitted"
        assert lower.get_xlabel() == "tokens m"
        dots = [line for line in upper.lines if line.get_linestyle() == "None"]
        np.testing.assert_allclose(dots[0].get_ydata(), [10, 100, 1000])


def test_panels_do_not_cover_one_another():
    figure = measured_against_fitted([panel(count=4) for _ in range(5)])
    boxes = [ax.get_position() for ax in figure.axes]
    for index, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= 1
        assert 0 <= box.y0 < box.y1 <= 1
        for other in boxes[:index]:
            apart = box.x0 >= other.x1 or other.x0 >= box.x1
            assert apart or box.y0 >= other.y1 or other.y0 >= box.y1


def test_the_picture_names_its_panels_shapes_and_shade():
    root = ElementTree.fromstring(plots.save(measured_against_fitted([panel()]), "svg"))
    texts = {element.text for element in root.iter() if element.tag.endswith("}text")}
    assert {"GEMM, bf16", "n 0", "n 2", "median of all shapes", "5 to 95 % of them"} <= texts


def test_the_same_rows_give_the_same_bytes():
    def picture() -> bytes:
        return plots.save(measured_against_fitted(panels(timed(), PROFILE, H100)), "svg")

    assert picture() == picture()
