"""The profile file: its schema, what may be missing, and a device of one's own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from models import catalog
from models.profile import Profile
from models.schema import ModelError
from models.strict_yaml import InputError, load_yaml
from sim.scenario.build import Deployment, build
from sim.scenario.dump import to_yaml
from sim.scenario.load import parse_scenario

SHIPPED = catalog.entry("profiles", "h100_sxm")
BOX = {
    "name": "mybox",
    "title": "the machine under my desk",
    "memory_bytes": 64e9,
    "memory_bandwidth_bytes_per_s": 40e9,
    "peak_flops": {"bf16": 1e12},
    "host_link_bytes_per_s": 40e9,
    "source": "measured",
}


def without(data: dict[str, Any], *paths: str) -> dict[str, Any]:
    """A copy with the dotted keys taken out."""
    made = copy.deepcopy(data)
    for path in paths:
        *parents, last = path.split(".")
        block = made
        for part in parents:
            block = block[part]
        del block[last]
    return made


def own(**changes: Any) -> dict[str, Any]:
    """A profile of one's own device: bf16 alone, one GPU, no experts."""
    parts = without(SHIPPED, "all_reduce", "moe", "gemm.fp8", "attention.fp8")
    return parts | {"name": "mine", "device": "mybox", "accelerator": BOX} | changes


def written(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(to_yaml(data), "utf-8")
    return path


def refusal(tmp_path: Path, data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        catalog.profile(str(written(tmp_path / "mine.yaml", data)))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(tmp_path / "mine.yaml"))


def test_a_profile_of_another_version_is_refused_in_one_line(tmp_path):
    assert refusal(tmp_path, SHIPPED | {"version": 1}) == (
        ":1: version: must be 2, the profiles this speccast reads; write it anew with "
        "`speccast calibrate`, got 1"
    )
    # profiles had no version when tokens a step stood under `valid_m`
    old = without(SHIPPED, "version", "valid") | {"valid_m": [1, 4352]}
    assert "version: must be 2" in refusal(tmp_path, old)
    assert "version: must be 2" in refusal(tmp_path, SHIPPED | {"version": 3})


def edited(key: str, value: float) -> dict[str, Any]:
    """The shipped profile's section of a dotted key, with another value there."""
    section, *path = [int(part) if part.isdigit() else part for part in key.split(".")]
    data = copy.deepcopy(SHIPPED[section])
    inner = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return {section: data}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid": {"m": [9, 1]}}, "valid.m: must rise, got [9, 1]"),
        ({"gemm": {}}, "gemm: must have at least 1 item"),
        ({"gemm": {"fp8": SHIPPED["gemm"]["fp8"]}}, "gemm: needs bf16"),
        ({"devise": "x"}, "devise: unknown key; did you mean 'device'?"),
        ({"accelerator": BOX}, "device: must be the name of the accelerator, 'mybox'"),
        (
            {"accelerator": BOX | {"peak_flops": {"fp8": 1e12}}, "device": "mybox"},
            "accelerator.peak_flops: needs bf16",
        ),
        (edited("gemm.bf16.compute.value", -0.8), "gemm.bf16.compute: value must be above 0"),
        (edited("gemm.bf16.memory.value", 1e7), "gemm.bf16.memory: value must be above 0 and at"),
        (edited("gemm.bf16.launch_us.value", -5), "gemm.bf16.launch_us: value must not be neg"),
        (edited("all_reduce.2.efficiency.value", 0), "all_reduce.2.efficiency: value must be"),
        (
            edited("elementwise.fixed_us.se", -1),
            "elementwise.fixed_us.se: must be greater than or equal to 0",
        ),
        (
            {"residuals": [{"operation": "gem", "dtype": "bf16", "rows": 1}]},
            "residuals[0].operation: must be one of gemm",
        ),
    ],
)
def test_what_is_wrong_is_named_by_key(tmp_path, changes, message):
    assert message in refusal(tmp_path, SHIPPED | changes)


def tiles(*ends: int | None) -> dict[str, Any]:
    number = {"value": 1.0, "source": "test"}
    step = {"pad_rows": 64, "tile_rows": 64, "tile_columns": 64}
    steps = [{"up_to_m": end, **step} for end in ends]
    fp8 = SHIPPED["gemm"]["fp8"]
    tile = {"sms": 132, "steps": steps, "wave_exponent": number, "norm": number}
    return {"gemm": {**SHIPPED["gemm"], "fp8": fp8 | {"tile": tile}}}


@pytest.mark.parametrize("ends", [(64,), (None, None), (128, 64, None), (64, 64, None), ()])
def test_tiles_cover_every_number_of_rows_once(tmp_path, ends):
    assert "gemm.fp8.tile.steps" in refusal(tmp_path, SHIPPED | tiles(*ends))


def test_tiles_in_order_are_read():
    profile = Profile.model_validate(SHIPPED | tiles(64, 128, None))
    tile = profile.gemm["fp8"].tile
    assert tile is not None
    assert [step.up_to_m for step in tile.steps] == [64, 128, None]


def test_the_error_of_a_kernel_is_that_of_the_narrowest_range_that_holds_it():
    def row(m: list[int] | None, median: float) -> dict[str, Any]:
        size = {"rows": 10, "median": median, "p90": 0.2, "lo": 0.9, "hi": 1.2}
        return {"operation": "layer", "dtype": "bf16", "m": m, **size}

    rows = [row(None, 0.3), row([1, 512], 0.2), row([1, 64], 0.1)]
    profile = Profile.model_validate(SHIPPED | {"residuals": rows})
    medians = [profile.kernel_residual("layer", "bf16", m) for m in (1, 64, 65, 512, 513)]
    assert [found and found.median for found in medians] == [0.1, 0.1, 0.2, 0.2, 0.3]
    assert profile.kernel_residual("layer", "fp8", 1) is None
    assert profile.kernel_residual("gemm", "bf16", 1) is None


def test_what_was_written_is_read_back_unchanged(tmp_path):
    profile = Profile.model_validate(own())
    file = written(tmp_path / "mine.yaml", profile.model_dump(mode="json"))
    assert catalog.profile(str(file)) == profile


def test_a_profile_cannot_be_changed():
    with pytest.raises(ValidationError):
        catalog.profile("h100_sxm").name = "other"


# A device of one's own

SCENARIO = """\
hardware: {hardware}
model: {{transformer: llama-3.2-1b}}
workload: {{arrivals: {{kind: poisson, rate_per_s: 1}}}}
strategies: [{{kind: autoregressive}}]
"""


def deployed(hardware: str, tmp_path: Path, *overrides: str) -> Deployment:
    text = SCENARIO.format(hardware=hardware)
    (point,) = parse_scenario(load_yaml(text, str(tmp_path / "s.yaml")), overrides).points
    return build(point.scenario)


def test_a_profile_may_bring_its_device(tmp_path):
    written(tmp_path / "mine.yaml", own())
    deployment = deployed("{profile: mine.yaml}", tmp_path)
    assert deployment.accelerator.title == "the machine under my desk"
    assert deployment.profile.name == "mine"
    assert deployment.profile_basis == "validated"
    assert deployment.price_per_gpu_hour == 0
    # named as well, it is the same device
    again = deployed("{gpu: mybox, profile: mine.yaml}", tmp_path)
    assert again.accelerator == deployment.accelerator


def test_a_shipped_profile_stands_for_the_gpu_it_was_measured_on(tmp_path):
    assert deployed("{profile: h100_sxm}", tmp_path).accelerator == catalog.hardware("h100_sxm")


def test_a_profile_on_another_gpu_is_extrapolated(tmp_path):
    written(tmp_path / "mine.yaml", own())
    deployment = deployed("{gpu: h100_sxm, profile: mine.yaml}", tmp_path)
    assert deployment.accelerator.name == "h100_sxm"
    assert deployment.profile_basis == "extrapolated"


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ("{gpus: 2}", r"hardware\.gpu: is missing: name a GPU, or in hardware\.profile"),
        ("{gpu: mybox}", r"hardware\.gpu: unknown hardware 'mybox'"),
        ("{profile: other.yaml}", r"hardware\.profile: unknown hardware 'nobody'"),
    ],
)
def test_without_a_device_the_keys_at_fault_are_named(tmp_path, hardware, message):
    written(tmp_path / "other.yaml", own(device="nobody", accelerator=None))
    with pytest.raises(InputError, match=message):
        deployed(hardware, tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.tp=2", "mybox has no interconnect"),
        ("model.weights=fp8", "no fp8 tensor cores"),
        ("model.kv=fp8", "attention constants for bf16, got 'fp8'"),
        ("model.transformer=qwen3-30b-a3b", "profile mine has no constants of experts"),
    ],
)
def test_what_was_not_measured_is_refused_when_needed(tmp_path, override, message):
    written(tmp_path / "mine.yaml", own())
    with pytest.raises(InputError, match=message):
        deployed("{profile: mine.yaml}", tmp_path, override)


def test_a_linked_device_without_collectives_is_refused_when_split(tmp_path):
    link = {"kind": "pcie", "bandwidth_bytes_per_s": 32e9, "largest_group": 2}
    written(tmp_path / "mine.yaml", own(accelerator=BOX | {"interconnect": link}))
    with pytest.raises(InputError, match="profile mine has no all-reduce constants, got 2"):
        deployed("{profile: mine.yaml}", tmp_path, "model.tp=2")


# Measured rows


def test_measured_rows_are_asked_for_where_there_are_some(tmp_path):
    with pytest.raises(InputError, match="profile h100_sxm has no measured rows of h100_sxm"):
        deployed("{gpu: h100_sxm, kernels: table}", tmp_path)
    written(tmp_path / "mine.yaml", own(table="mine.parquet"))
    with pytest.raises(InputError, match="no measured rows of h100_sxm"):
        deployed("{gpu: h100_sxm, profile: mine.yaml, kernels: table}", tmp_path)
    with pytest.raises(InputError, match=r"mine\.parquet: no such file.*kernels: roofline"):
        deployed("{profile: mine.yaml, kernels: table}", tmp_path)
    assert deployed("{profile: mine.yaml, kernels: roofline}", tmp_path).kernel_table is None


def test_measured_rows_that_no_closed_form_yields_to_are_left_alone(tmp_path):
    # the file is not even there
    written(tmp_path / "mine.yaml", own(table="mine.parquet"))
    assert deployed("{profile: mine.yaml}", tmp_path).kernel_table is None
    better = {"gemm": {"bf16": [160, 300]}}
    written(tmp_path / "mine.yaml", own(table="mine.parquet", table_where=better))
    with pytest.raises(InputError, match=r"mine\.yaml: table: .*mine\.parquet: no such file"):
        deployed("{profile: mine.yaml}", tmp_path)


def test_measured_rows_of_another_device_are_left_alone(tmp_path):
    better = {"gemm": {"bf16": [160, 300]}}
    written(tmp_path / "mine.yaml", own(table="mine.parquet", table_where=better))
    assert deployed("{gpu: h100_sxm, profile: mine.yaml}", tmp_path).kernel_table is None


def test_the_error_of_a_missing_name_is_that_of_the_catalogue():
    with pytest.raises(ModelError, match="unknown profile 'h100'"):
        catalog.profile("h100")
