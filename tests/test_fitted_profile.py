"""From a table of timed kernels to a profile and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from timed_kernels import H100, all_reduces, decodes, everything, gemms, prompts, timed

from calibration.kernels import rows, shipped
from calibration.kernels.fits.held_out import Score
from calibration.kernels.profile import fit_profile
from calibration.kernels.profile_file import profile_text, write_profile
from models import catalog
from models.kernels import Kernels
from models.profile import Profile, Provenance
from models.schema import ModelError

ALL = everything()


def fitted(of: pd.DataFrame, **changes: Any) -> tuple[Profile, list[Score]]:
    about: dict[str, Any] = {
        "name": "made_up",
        "engine": "none",
        "date": "2026-11-29",
        "source": "a made-up table of kernels",
    }
    device = changes.pop("device", H100)
    return fit_profile(of, device, **about | changes)


@pytest.fixture(scope="module")
def whole() -> tuple[Profile, list[Score]]:
    made = Provenance(package="none", speccast="0", command="none")
    return fitted(ALL, provenance=made, table="made_up.parquet")


def test_a_profile_holds_every_fit_and_what_is_assumed(whole):
    profile, _ = whole
    assert sorted(profile.gemm) == ["bf16", "fp8"]
    assert sorted(profile.attention) == ["bf16", "fp8"]
    assert sorted(profile.all_reduce) == [4]
    assert profile.moe is not None
    assert profile.moe.router_us.source.startswith("assumed")
    assert profile.head.fixed_us.source.startswith("assumed")
    # fp8 quantises with one small kernel, of which a layer has five
    quantise_us = profile.gemm["fp8"].quantise_us
    assert quantise_us is not None
    assert 5 * quantise_us.value == pytest.approx(profile.elementwise.fixed_us.value, rel=1e-3)
    assert profile.gemm["bf16"].quantise_us is None


def test_quantising_that_was_timed_with_the_gemm_is_not_charged_again():
    layer = gemms("fp8", quantise_memory=0.4).assign(source="aiconfigurator-core, made up")
    fp8 = fitted(rows.join([ALL[ALL["dtype"] != "fp8"], layer]))[0].gemm["fp8"]
    assert fp8.quantise_memory is not None
    assert fp8.quantise_us is None


def test_it_says_what_it_rests_on_and_where_it_holds(whole):
    profile, _ = whole
    assert profile.provenance is not None
    counts = {timed.operation: timed.rows for timed in profile.provenance.tables}
    assert counts == ALL.groupby("operation").size().to_dict()
    assert profile.valid.m == (1, 4096)
    assert profile.valid.context_tokens == (128, 32768)
    assert profile.valid.batch == (1, 256)


def test_its_residuals_are_the_held_out_errors_of_the_forms_taken(whole):
    profile, scores = whole
    residual = profile.kernel_residual("gemm", "bf16", 64)
    assert residual is not None
    score = next(s for s in scores if (s.operation, s.dtype, s.m) == ("gemm", "bf16", (1, 512)))
    assert residual.median == pytest.approx(score.median, rel=1e-2)
    assert (residual.lo, residual.hi) == pytest.approx((score.lo, score.hi), rel=1e-2)
    shown = {(row.operation, row.dtype) for row in profile.residuals}
    assert {("attention", "bf16"), ("attention", "fp8"), ("all_reduce", "bf16")} <= shown
    assert len({(row.operation, row.dtype, row.m) for row in profile.residuals}) == len(
        profile.residuals
    )


def test_fitted_constants_predict_the_rows_through_the_product(whole):
    kernels = Kernels(H100, whole[0])
    table = gemms(noise=0.0, outliers=0.0).query("m == 64")
    for n, k, measured in table[["n", "k", "time_s"]].itertuples(index=False):
        assert float(kernels.gemm(64, n, k, "bf16")) == pytest.approx(measured, rel=0.03)
    llama = catalog.transformer("llama-3.1-8b")
    read = 4096 / (0.85 * H100.memory_bandwidth_bytes_per_s)
    assert kernels.kv_read_s(llama, "bf16", 1) == pytest.approx(read, rel=0.05)


def test_measured_rows_replace_weak_forms_only(whole):
    assert not fitted(ALL)[0].table_where.gemm
    # the forms are exact, and the rows are noisy
    assert not whole[0].table_where.gemm
    exact = gemms(noise=0.0, outliers=0.0)
    rest = ALL[ALL["operation"] == "attention"]

    def where(size: float, **asked: bool) -> dict[str, tuple[int, int]]:
        bent = exact["time_s"] * (1 + size * np.sin(np.log2(exact["n"])))
        smooth = exact.assign(time_s=bent * (1 + 0.02 * np.sin(3 * exact["m"])))
        of = rows.join([smooth, rest])
        return fitted(of, table="made_up.parquet", **asked)[0].table_where.gemm

    assert where(0.04) == {"bf16": (128, 512)}
    assert where(0.04, own_shapes=True) == {"bf16": (1, 4096)}
    assert where(0.4) == {"bf16": (1, 4096)}


def test_a_layer_is_as_far_off_as_its_kernels():
    table = rows.join([layer_gemms(1.0), layer_gemms(1.0, "fp8"), all_reduces((4,)), *attention()])
    exact = {score.dtype: score for score in fitted(table)[1] if score.operation == "layer"}
    assert sorted(exact) == ["bf16", "fp8"]
    assert exact["bf16"].median < 0.03
    off = rows.join([layer_gemms(1.2), all_reduces((4,)), *attention()])
    profile, scores = fitted(off)
    layer = next(score for score in scores if score.operation == "layer")
    assert layer.hi > 1.04
    assert profile.kernel_residual("layer", "bf16", 64) is not None
    narrow = rows.join([gemms(), *attention()])
    assert not [score for score in fitted(narrow)[1] if score.operation == "layer"]


def layer_gemms(slower: float, dtype: str = "bf16") -> pd.DataFrame:
    """GEMMs that reach the widest layer; those of more than 16384 columns take longer."""
    table = gemms(dtype, noise=0.0, outliers=0.0)
    wide = table.query("n == 16384").copy()
    wide["n"] = 32768
    wide = timed(
        "gemm", np.ones(len(wide)), dtype=dtype, **{name: wide[name] for name in ("m", "n", "k")}
    )
    rate = table.query("n == 16384")["time_s"].to_numpy() - 4e-6
    wide["time_s"] = slower * (2 * rate + 4e-6)
    return rows.join([table, wide])


def attention() -> list[pd.DataFrame]:
    """Attention of Llama-3.1 heads among others."""
    return [decodes(), decodes("fp8", 0.7, 15.0), prompts()]


# Devices


def test_a_device_of_ones_own_is_described_in_its_profile(whole):
    mine = H100.model_copy(update={"name": "mybox"})
    own, _ = fitted(rows.join([gemms(), *attention()]), device=mine)
    assert own.device == "mybox"
    assert own.accelerator == mine
    assert (own.moe, own.all_reduce) == (None, {})
    assert whole[0].device == "h100_sxm"
    assert whole[0].accelerator is None


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ("attention", "gemm: no usable rows of bf16"),
        ("gemm", "attention: no usable rows of decode"),
    ],
)
def test_what_is_missing_is_named(kept, expected):
    with pytest.raises(ModelError, match=f"^{expected}$"):
        fitted(ALL[ALL["operation"] == kept])


def test_a_profile_needs_prompts():
    with pytest.raises(ModelError, match=r"^attention: no usable rows of prefill$"):
        fitted(rows.join([gemms(), decodes()]))


def test_a_profile_needs_rows_that_are_not_flagged():
    with pytest.raises(ModelError, match="gemm: no usable rows"):
        fitted(ALL.assign(flag="duplicate"))


# The file


def test_a_written_profile_reads_back_as_it_was(whole, tmp_path: Path):
    file = tmp_path / "made_up.yaml"
    write_profile(whole[0], file)
    assert catalog.profile(str(file)) == whole[0]
    own, _ = fitted(
        rows.join([gemms(), *attention()]), device=H100.model_copy(update={"name": "mybox"})
    )
    write_profile(own, file)
    assert catalog.profile(str(file)) == own


def test_the_same_table_gives_the_same_bytes(whole):
    made = Provenance(package="none", speccast="0", command="none")
    again, _ = fitted(everything(), provenance=made, table="made_up.parquet")
    assert profile_text(again) == profile_text(whole[0])


def test_the_file_reads_like_one_written_by_hand(whole):
    lines = profile_text(whole[0]).splitlines()
    assert lines[:4] == ["version: 2", "name: made_up", "device: h100_sxm", "engine: none"]
    assert "  m: [1, 4096]" in lines
    assert max(map(len, lines)) <= 130
    start = lines.index("residuals:")
    assert all(line.startswith("- {operation: ") for line in lines[start + 1 :])
    assert "" in lines


# Those of the catalogue


EVERY = [*shipped.shipped(), *shipped.of_engines()]


@pytest.mark.parametrize("one", shipped.shipped(), ids=lambda one: one.name)
def test_each_gpu_of_the_tables_has_its_own_profile(one):
    assert catalog.hardware(one.name).profile == one.name == catalog.profile(one.name).device


@pytest.mark.parametrize("one", shipped.of_engines(), ids=lambda one: one.name)
def test_an_engine_with_kernels_of_its_own_has_a_profile_beside_it(one):
    gpu, profile = catalog.hardware(one.device), catalog.profile(one.name)
    assert gpu.profile_for("tensorrt_llm") == one.name != gpu.profile_for("vllm_v1") == gpu.profile
    assert profile.device == gpu.name


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_a_shipped_profile_says_where_it_comes_from_and_has_all_kernels(one):
    profile = catalog.profile(one.name)
    assert profile.engine == f"{one.engine} {one.version}"
    assert profile.provenance is not None
    assert f"--system {one.system}" in profile.provenance.command
    assert sorted(profile.all_reduce) == [2, 4, 8]
    assert profile.kernel_residual("layer", "bf16", 64) is not None
    assert set(profile.gemm) == set(catalog.hardware(one.device).peak_flops) - {"int8"}


@pytest.mark.extras
@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_the_shipped_profiles_are_what_the_tables_give(one, tmp_path: Path):
    pytest.importorskip("aiconfigurator_core", reason="needs the extra 'tables'")
    there = catalog.profile(one.name)
    assert there.provenance is not None
    again, _ = shipped.calibrate(one, date=there.date, speccast=there.provenance.speccast)
    assert profile_text(again) == profile_text(there)
    file = Path(catalog.__file__).parent / "profiles" / f"{one.name}.yaml"
    assert file.read_text(encoding="utf-8") == profile_text(again)
