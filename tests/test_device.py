"""Timing kernels on the device at hand: what is timed, what is believed, what is kept. No torch."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.main import get_command

from calibration import cli
from calibration.kernels.device import machine as machines
from calibration.kernels.device.accelerator import accelerator_of
from calibration.kernels.device.grid import CPU, CUDA, grid
from calibration.kernels.device.machine import Machine
from calibration.kernels.device.resume import Partial, Timed, enough_time, kept_in, time_shapes
from calibration.kernels.device.run import (
    USUAL,
    Options,
    calibrate_device,
    partial_of,
    summed_up,
    to_rows,
)
from calibration.kernels.device.sweep import Shape, sweep
from calibration.kernels.device.timing import (
    CudaClock,
    HostClock,
    Limits,
    NoisyError,
    Timing,
    time_call,
)
from models import catalog
from models.forward_pass import head_parts, layer_parts
from models.kernels import Kernels
from models.schema import ModelError
from models.strict_yaml import InputError

LLAMA = catalog.transformer("llama-3.1-8b")
BOX = Machine("cpu", "Some CPU (R) 9000", "2.13.0", 2**34, 2**25, 1, 0, False)
SHAPES = [Shape("gemm", "linear", "bf16", m=m, n=64, k=64) for m in (1, 2, 4, 8)]
STEADY = Timing(1e-3, 0.01, 9)


class Ticking:
    """A clock that stands still but for what is computed: each call takes the next time."""

    def __init__(self, *times: float) -> None:
        self.now_s, self.times, self.calls = 0.0, times, 0

    def call(self) -> None:
        self.now_s += self.times[self.calls % len(self.times)]
        self.calls += 1

    def now(self) -> float:
        return self.now_s


def timed(ticking: Ticking, **limits: float) -> Timing:
    once = Limits(**{"warm_up_s": 0.0, "least": 8, "most": 8, "tries": 1, **limits})
    return time_call((ticking.call,), HostClock(ticking.now), once, "gemm m 1", ticking.now)


def test_the_time_of_a_call_is_the_median_and_the_spread_the_middle_half():
    found = timed(Ticking(1.0, 1.1, 1.2, 1.3), seconds=100)
    assert found.median_s == pytest.approx(1.15)
    assert found.spread == pytest.approx(
        np.subtract(*np.percentile([1, 1.1, 1.2, 1.3], [75, 25])) / 1.15
    )
    assert found.repeats == 8


def test_short_calls_are_repeated_until_the_clock_can_tell():
    ticking = Ticking(1e-6)
    found = timed(ticking)
    assert found.median_s == pytest.approx(1e-6)
    assert ticking.calls > 8 * 100


def test_repeats_end_with_the_time_for_them():
    found = timed(Ticking(0.1), most=100, seconds=2.05)
    assert found.repeats == 21


def test_noise_is_refused_with_what_was_timed_the_spread_and_the_bound():
    with pytest.raises(NoisyError, match=r"^gemm m 1: spread 1\.\d\d of 8 repeats .* of 0\.3;"):
        timed(Ticking(1.0, 3.0))


def test_a_noisy_call_is_tried_again_and_the_steadiest_try_kept():
    ticking = Ticking(*[1.0, 3.0] * 5, *[2.0] * 90)
    assert timed(ticking, tries=2) == Timing(2.0, 0.0, 8)
    with pytest.raises(NoisyError) as refused:
        timed(Ticking(*[1.0, 3.0] * 5, *[1.0, 1.6] * 90), tries=2)
    assert refused.value.timing.median_s == pytest.approx(1.3)


def test_each_try_has_twice_the_time_of_the_one_before():
    with pytest.raises(NoisyError) as refused:
        timed(Ticking(0.1, *[0.1, 0.3] * 40), tries=3, seconds=2.0, least=2, most=100)
    assert refused.value.timing.repeats > 2 * 2.0 / 0.2


def test_what_runs_between_the_pieces_of_a_call_is_not_timed():
    ticking, seen = Ticking(0.5), []

    def between() -> None:
        ticking.now_s += 100.0
        seen.append("between")

    clock = HostClock(ticking.now, between, 1e-8)
    run = clock.batch((ticking.call, ticking.call), 1)
    seen.clear()
    assert run() == pytest.approx(1.0)
    assert seen == ["between"] * 2


def test_reading_the_clock_is_not_counted():
    ticking = Ticking(0.5)

    def now() -> float:
        ticking.now_s += 0.125
        return ticking.now_s

    assert HostClock(now).batch((ticking.call,) * 3, 2)() == pytest.approx(3.0)


class Cuda:
    """Writes down what a CUDA clock asks of the driver."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.log.append("replay"))
        self.Stream = lambda: SimpleNamespace(wait_stream=lambda other: None)
        self.current_stream = self.Stream
        self.stream = lambda side: contextlib.nullcontext()
        self.synchronize = lambda: self.log.append("synchronize")

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:  # noqa: N802
        assert enable_timing
        return SimpleNamespace(
            record=lambda: self.log.append("record"),
            synchronize=lambda: self.log.append("wait"),
            elapsed_time=lambda end: 6.0,
        )

    @contextlib.contextmanager
    def graph(self, captured):
        self.log.append("capture")
        yield
        self.log.append("captured")


def test_cuda_calls_are_captured_once_and_timed_between_events_that_are_waited_for():
    cuda = Cuda()
    run = CudaClock(SimpleNamespace(cuda=cuda)).batch((lambda: cuda.log.append("call"),), 3)
    assert cuda.log == ["call", "synchronize", "capture", "call", "call", "call", "captured"]
    cuda.log.clear()
    assert run() == pytest.approx(6e-3)
    assert cuda.log == ["synchronize", "record", "replay", "record", "wait"]


def test_without_graphs_every_call_is_launched_between_the_events():
    cuda = Cuda()
    clock = CudaClock(SimpleNamespace(cuda=cuda), graph=False)
    clock.batch((lambda: cuda.log.append("call"),), 2)()
    assert cuda.log == ["synchronize", "record", "call", "call", "record", "wait"]


NETS = {
    "llama": LLAMA,
    "smollm2": catalog.transformer("smollm2-135m"),
    "fewer KV heads than GPUs": LLAMA.model_copy(update={"kv_heads": 4}),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_gemms_timed_are_those_a_forward_pass_prices(monkeypatch, name, tp):
    net = NETS[name]
    if net.heads % tp:
        with pytest.raises(ModelError, match="must divide"):
            sweep(net, tp, CPU)
        return
    priced, gemm = set(), Kernels.gemm

    def spy(self, m, n, k, *rest):
        priced.add((n, k))
        return gemm(self, m, n, k, *rest)

    monkeypatch.setattr(Kernels, "gemm", spy)
    kernels = Kernels(catalog.hardware("h100_sxm"), catalog.profile("h100_sxm"))
    layer_parts(kernels, net, "bf16", "bf16", tp, np.arange(3))
    head_parts(kernels, net, tp, np.arange(3))
    for stack in ("fused", "transformers"):
        shapes = [s for s in sweep(net, tp, CPU, stack=stack) if s.operation == "gemm"]
        assert {(shape.n, shape.k) for shape in shapes} == priced
        assert {s.m for s in shapes if s.k == net.hidden} == set(CPU.m)


def test_projections_computed_apart_add_up_to_the_fused_one():
    shapes = sweep(LLAMA, 1, CPU, stack="transformers")
    apart = {shape.n: shape.parts for shape in shapes if shape.parts}
    assert apart == {6144: (4096, 1024, 1024), 28672: (14336, 14336)}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("stack", ["fused", "transformers"])
def test_no_two_kernels_of_a_sweep_have_one_text(device, stack):
    shapes = sweep(LLAMA, 2, grid(device), stack=stack, dtypes=("bf16", "fp8"), gpus=4)
    texts = [str(shape) for shape in shapes]
    assert len(set(texts)) == len(texts)
    assert all("  " not in text and not text.endswith(",") for text in texts)


def test_verification_is_timed_for_every_width_of_chain_and_tree():
    attention = [s for s in sweep(LLAMA, 1, CUDA) if s.operation == "attention"]
    chains = {s.query_tokens for s in attention if s.mask == "causal" and s.context_tokens}
    assert chains == set(CUDA.query)
    trees = [s for s in attention if s.mask == "tree"]
    assert {s.query_tokens for s in trees} == {8, 16, 32, 64}
    assert all(s.context_tokens for s in trees)
    assert {s.query_tokens for s in attention if not s.context_tokens} == set(CUDA.prompt)


def test_the_kv_of_a_sweep_fits_a_gpu():
    largest = max(s.batch * (s.context_tokens + s.query_tokens) for s in sweep(LLAMA, 1, CUDA))
    assert largest * LLAMA.kv_bytes_per_token("bf16", 1) / LLAMA.layers < 3e9


def test_what_matters_most_comes_first():
    order = list(dict.fromkeys(s.operation for s in sweep(LLAMA, 1, CUDA, graphs=True)))
    assert order == ["stream", "launch", "gemm", "elementwise", "attention", "sampling"]


def test_fp8_covers_the_layers_and_leaves_the_lm_head():
    fp8 = {(s.n, s.k) for s in sweep(LLAMA, 1, CUDA, dtypes=("bf16", "fp8")) if s.dtype == "fp8"}
    assert (6144, 4096) in fp8
    assert (LLAMA.vocab, LLAMA.hidden) not in fp8
    assert (LLAMA.hidden, 0) in fp8  # quantising the input of a GEMM


def test_all_reduce_is_timed_for_the_groups_there_are_gpus_for():
    groups = {s.gpus for s in sweep(LLAMA, 1, CUDA, gpus=6) if s.operation == "all_reduce"}
    assert groups == {2, 4}
    assert not [s for s in sweep(LLAMA, 1, CUDA) if s.operation == "all_reduce"]


def test_the_experts_of_a_mixture_are_left_out():
    mixture = catalog.transformer("qwen3-30b-a3b")
    widths = {(s.n, s.k) for s in sweep(mixture, 1, CPU) if s.operation == "gemm"}
    assert len(widths) == 3  # qkv, o, LM head


def test_every_kernel_has_a_row_of_the_schema():
    shapes = sweep(LLAMA, 1, CUDA, dtypes=("bf16", "fp8"), graphs=True, gpus=2)
    rows = to_rows([(s, Timed(str(s), 1e-3, 0.1)) for s in shapes], BOX, "here")
    assert list(rows["operation"]) == [shape.operation for shape in shapes]
    assert list(rows["m"]) == [shape.m for shape in shapes]
    assert (rows["bytes"] > 0).equals(rows["operation"] != "launch")
    assert (rows["flops"] > 0).equals(rows["operation"].isin(["gemm", "attention"]))
    assert set(rows["mask"]) == {"", "causal", "tree"}
    assert set(rows["device"]) == {"Some CPU (R) 9000"}


def test_small_kernels_of_a_layer_count_the_bytes_the_model_does():
    h100 = Kernels(catalog.hardware("h100_sxm"), catalog.profile("h100_sxm"))
    (small,) = (s for s in sweep(LLAMA, 2, CUDA) if s.operation == "elementwise" and s.m == 64)
    streamed = h100.elementwise(64, LLAMA, 2) - h100.elementwise(1e-9, LLAMA, 2)
    share = h100.profile.elementwise.memory.value
    assert streamed * share * 3.35e12 == pytest.approx(small.bytes)


def test_quick_is_a_part_of_the_whole():
    for device in ("cuda", "cpu"):
        whole = {str(s) for s in sweep(LLAMA, 1, grid(device))}
        quick = {str(s) for s in sweep(LLAMA, 1, grid(device, quick=True))}
        assert quick < whole
        assert len(quick) < 120


def test_a_run_goes_on_where_it_was(tmp_path):
    path, seen = tmp_path / "box.yaml.partial", []

    def timer(shape):
        seen.append(shape.m)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return STEADY

    with pytest.raises(KeyboardInterrupt):
        time_shapes(SHAPES, timer, Partial(path, {"torch": "2"}))
    assert kept_in(path) == 2
    again = Partial(path, {"torch": "2"})
    time_shapes(SHAPES, timer, again)
    assert seen == [1, 2, 4, 4, 8]
    assert [(s.m, one.time_s) for s, one in again.of(SHAPES)] == [(m, 1e-3) for m in (1, 2, 4, 8)]


def test_a_line_cut_short_is_timed_again(tmp_path):
    path = tmp_path / "partial"
    time_shapes(SHAPES[:2], lambda shape: STEADY, Partial(path, {}))
    path.write_bytes(path.read_bytes()[:-5])
    again = Partial(path, {})
    assert list(again.timed) == [str(SHAPES[0])]
    time_shapes(SHAPES[:2], lambda shape: STEADY, again)
    assert list(Partial(path, {}).timed) == [str(shape) for shape in SHAPES[:2]]


@pytest.mark.parametrize("left", ['{"torch": "1"}\n', ""])
def test_a_run_of_which_nothing_was_timed_makes_way(tmp_path, left):
    path = tmp_path / "partial"
    path.write_text(left, "utf-8")
    Partial(path, {"torch": "2"})
    assert path.read_text("utf-8") == '{"torch": "2"}\n'


@pytest.mark.parametrize("left", ["what\n", '{"torch": "2"}\n{"x": 1}\n', "[1]\n"])
def test_a_file_that_is_none_of_a_run_is_kept_and_refused(tmp_path, left):
    path = tmp_path / "partial"
    path.write_text(left, "utf-8")
    with pytest.raises(InputError, match="partial: holds no timed kernels that can be read"):
        Partial(path, {"torch": "2"})
    assert path.read_text("utf-8") == left
    assert kept_in(path) == 0


def test_what_another_run_timed_is_kept_and_refused_with_what_differs(tmp_path):
    path, before = tmp_path / "partial", {"transformer": {"name": "big", "layers": 9}, "tp": 1}
    time_shapes(SHAPES, lambda shape: STEADY, Partial(path, before))
    kept = path.read_bytes()
    with pytest.raises(InputError) as refused:
        Partial(path, {"transformer": {"name": "small", "layers": 9}, "tp": 2})
    assert str(refused.value) == (
        f"{path}: 4 kernels of another run are kept there (transformer: big, now small; tp: 1, now "
        "2); give the same options to go on with it, or remove it to start anew"
    )
    assert path.read_bytes() == kept


def test_the_folder_of_what_is_kept_is_made(tmp_path):
    path = tmp_path / "new" / "folder" / "box.yaml.partial"
    time_shapes(SHAPES, lambda shape: STEADY, Partial(path, {}))
    assert kept_in(path) == 4


def test_a_few_noisy_kernels_are_flagged_and_timed_again_by_the_next_run(tmp_path):
    shapes = [Shape("gemm", "linear", "bf16", m=m, n=8, k=8) for m in range(1, 21)]

    def timer(shape):
        if shape.m in (3, 4):
            raise NoisyError("gemm", Timing(2e-3, 0.456, 9), 0.3)
        return STEADY

    kept, notes = Partial(tmp_path / "partial", {}), []
    time_shapes(shapes, timer, kept, note=notes.append)
    assert kept_in(kept.path) == 18
    assert len(notes) == 2
    assert "gemm linear bf16 m 3, n 8, k 8: spread 0.46 is over the bound" in notes[0]
    flags = {shape.m: one.flag for shape, one in kept.of(shapes) if one.flag}
    assert flags == {3: "spread 0.46", 4: "spread 0.46"}
    again = Partial(tmp_path / "partial", {})
    assert len(again.timed) == 18


def test_a_run_of_noise_is_refused_and_keeps_what_is_good(tmp_path):
    def timer(shape):
        if shape.m == 2:
            raise NoisyError("gemm", Timing(2e-3, 0.456, 9), 0.3)
        return STEADY

    with pytest.raises(RuntimeError, match=r"^1 of 4 kernels spread too much \(first: gemm linear"):
        time_shapes(SHAPES, timer, Partial(tmp_path / "partial", {}))
    assert len(Partial(tmp_path / "partial", {}).timed) == 3


def test_a_kernel_there_is_no_memory_for_is_noted_and_left_out(tmp_path):
    def timer(shape):
        if shape.m == 8:
            raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB.\nMore")
        return STEADY

    kept, notes = Partial(tmp_path / "partial", {}), []
    time_shapes(SHAPES, timer, kept, note=notes.append)
    assert notes == [
        "left out: gemm linear bf16 m 8, n 64, k 64: CUDA out of memory. Tried to allocate 9 GiB."
    ]
    assert [shape.m for shape, _ in kept.of(SHAPES)] == [1, 2, 4]


def test_a_gpu_that_has_failed_ends_the_run(tmp_path):
    def timer(shape):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        time_shapes(SHAPES, timer, Partial(tmp_path / "partial", {}))


def test_no_kernel_is_begun_after_the_time_is_over(tmp_path):
    ticking, notes = Ticking(2.0), []

    def timer(shape):
        ticking.call()
        return STEADY

    kept = Partial(tmp_path / "partial", {})
    left = time_shapes(SHAPES, timer, kept, budget_s=3.0, note=notes.append, now=ticking.now)
    assert left == 2
    assert len(kept.timed) == 2
    assert notes == ["3 s are over: 2 kernels are left out"]


def test_progress_is_told(tmp_path):
    told = []
    kept = Partial(tmp_path / "partial", {})
    time_shapes(SHAPES, lambda s: STEADY, kept, on_progress=lambda *at: told.append(at))
    assert told == [("gemm", index, 4) for index in range(4)]


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
