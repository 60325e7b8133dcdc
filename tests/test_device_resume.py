"""A run on the device at hand that ends early: what is kept, and who goes on with it. No torch."""

from __future__ import annotations

import pytest
from device_cases import SHAPES, STEADY, Ticking

from calibration.kernels.device.resume import Partial, kept_in, time_shapes
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import (
    NoisyError,
    Timing,
)
from models.strict_yaml import InputError


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
