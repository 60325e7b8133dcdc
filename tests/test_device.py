"""A run on the device at hand: what is described and refused. No torch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from device_cases import BOX, SHAPES, STEADY
from typer.main import get_command

from calibration import cli
from calibration.kernels.device import machine as machines
from calibration.kernels.device.accelerator import accelerator_of
from calibration.kernels.device.machine import Machine
from calibration.kernels.device.resume import Partial, Timed, enough_time, time_shapes
from calibration.kernels.device.run import (
    USUAL,
    Options,
    calibrate_device,
    partial_of,
    summed_up,
    to_rows,
)
from calibration.kernels.device.sweep import Shape
from models import catalog
from models.schema import ModelError


def measured(device: Machine = BOX):
    shapes = [
        Shape("stream", "copy", n=10**9, bytes=1e9),
        Shape("stream", "read", n=10**9, bytes=1e9),
        Shape("launch", "eager"),
        *SHAPES,
    ]
    times = [0.1, 0.05, 2e-6, *[1e-6] * 3, 8e-6]
    flags = ["", "spread 0.9", *[""] * 5]
    kept = [Timed(str(s), t, 0.0, f) for s, t, f in zip(shapes, times, flags, strict=True)]
    return to_rows(list(zip(shapes, kept, strict=True)), device, "here")


def test_an_unknown_device_is_described_by_its_best_stream_and_gemm():
    found = accelerator_of(BOX, measured())
    assert found.name == "some_cpu_9000"
    assert found.memory_bytes == 2**34
    assert found.memory_bandwidth_bytes_per_s == 1e10  # the read that spread is not believed
    assert found.peak_flops == {"bf16": round(2 * 4 * 64 * 64 / 1e-6)}
    assert found.price_per_gpu_hour == 0
    assert "measured" in found.source
    with pytest.raises(RuntimeError, match="too little was timed"):
        accelerator_of(BOX, measured().iloc[:3])


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA B200", "b200_sxm"),
    ],
)
def test_a_known_gpu_is_that_of_the_catalogue(driver, name):
    gpu = BOX._replace(device="cuda", name=driver)
    assert accelerator_of(gpu, measured(gpu)) == catalog.hardware(name)


def test_a_run_sums_up_in_one_json_line():
    line = json.dumps(summed_up(BOX, measured(), 12.34))
    assert json.loads(line) == {
        "device": "Some CPU (R) 9000",
        "rows": 7,
        "seconds": 12.3,
        "copy_gb_per_s": 10.0,
        "read_gb_per_s": None,
        "gemm_tflop_per_s": 0.033,
        "launch_us": {"eager": 2.0},
        "noisy_rows": 1,
    }


def test_cuda_where_there_is_none_is_refused_in_one_line(monkeypatch):
    no_gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(machines, "import_torch", lambda: no_gpu)
    with pytest.raises(ModelError, match=r"^torch finds no CUDA device on this machine") as refused:
        machines.find("cuda")
    assert refused.value.key == "device"


def test_devices_and_threads_that_are_not_there_are_refused(monkeypatch):
    with pytest.raises(ModelError, match="must be one of cuda, cpu, got 'tpu'"):
        machines.find("tpu")
    monkeypatch.setattr(machines, "import_torch", lambda: SimpleNamespace(__version__="2"))
    with pytest.raises(ModelError, match=r"must be 1 to the \d+ cores at hand, got 4096"):
        machines.find("cpu", threads=4096)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(RuntimeError, match=r"pip install 'speccast\[torch\]'"):
        machines.find("cpu")


def test_a_gpu_is_described_by_its_driver(monkeypatch):
    facts = SimpleNamespace(name="NVIDIA H200", total_memory=150 * 10**9, L2_cache_size=60 * 2**20)
    cuda = SimpleNamespace(
        is_available=lambda: True,
        get_device_properties=lambda index: facts,
        get_device_capability=lambda index: (9, 0),
        device_count=lambda: 1,
    )
    fake = SimpleNamespace(cuda=cuda, __version__="2.13.0+cu130")
    monkeypatch.setattr(machines, "import_torch", lambda: fake)
    found = machines.find("cuda")
    assert (found.name, found.cache_bytes, found.fp8) == ("NVIDIA H200", 60 * 2**20, True)
    cuda.get_device_capability = lambda index: (8, 0)
    assert not machines.find("cuda").fp8


def test_the_cpu_is_called_as_its_maker_calls_it(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz \nflags: x\n", "utf-8")
    assert machines.cpu_name(file) == "Some CPU @ 2 GHz"
    assert machines.cpu_name(tmp_path / "none")


def test_what_is_kept_lies_beside_the_profile():
    assert partial_of(Path("here/box.yaml")) == Path("here/box.yaml.partial")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("tpu", None, 1, 1), "--device: must be one of cuda, cpu, got 'tpu'"),
        (("cpu", None, 1, 4096), "--threads: must be 1 to the 8 cores at hand, got 4096"),
        (("cpu", "smollm2", 1, 1), "--transformer: unknown transformer 'smollm2'; did you"),
        (
            ("cpu", None, 2, 1),
            "--tp: must divide the 9 heads of smollm2-135m, got 2, the default --transf",
        ),
        (("cpu", "llama-3.1-8b", 3, 1), "--tp: must divide the 32 heads of llama-3.1-8b, got 3"),
    ],
)
def test_options_that_are_refused_are_named(monkeypatch, tmp_path, given, said):
    monkeypatch.setattr(machines, "import_torch", lambda: SimpleNamespace(__version__="2"))
    monkeypatch.setattr(machines, "_cores", lambda: list(range(8)))
    device, transformer, tp, threads = given
    with pytest.raises(ModelError) as refused:
        calibrate_device(device, transformer, tp, tmp_path / "a.yaml", Options(threads=threads))
    told = f"{refused.value.key}: {refused.value}"
    assert told.startswith(said)
    assert ("default" in told) == ("default" in said)


@pytest.mark.parametrize("error", [ModelError("gemm: too few"), RuntimeError("gemm: too few")])
def test_a_budget_too_short_for_a_fit_says_what_is_kept_and_how_to_go_on(tmp_path, error):
    path = tmp_path / "box.yaml.partial"
    time_shapes(SHAPES, lambda shape: STEADY, Partial(path, {}))
    with pytest.raises(ModelError) as refused, enough_time(7, path):
        raise error
    assert refused.value.key == "--budget-s"
    assert str(refused.value) == (
        f"too short for a profile (gemm: too few); 4 kernels timed so far are kept in {path}, "
        "7 are left: run the same command again to go on"
    )
    with pytest.raises(type(error), match=r"^gemm: too few$"), enough_time(0, path):
        raise error


def test_help_tells_the_transformer_that_is_timed_by_default():
    (option,) = (
        one for one in get_command(cli.app).commands["device"].params if one.name == "transformer"
    )
    assert option.show_default == ", ".join(f"{net} on {on}" for on, net in USUAL.items())
