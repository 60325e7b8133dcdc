"""SmolLM2-135M runs here: its forward passes are timed, and predicted from kernels timed beside.

Continuous integration runs on shared machines, so the bounds are wide; the strict ones are held
against times recorded on a quiet machine, in test_forward_prediction.py.
"""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

from cpu_forwards import errors, kernels_of

from calibration.decoding.weights import load
from calibration.kernels import output
from calibration.kernels.command import fit_device
from calibration.kernels.device import machine as machines
from calibration.kernels.device.run import Options, calibrate_device
from calibration.validation.forward import ForwardTime, Point, forward_times
from models import catalog, transformer

pytestmark = pytest.mark.extras

THE_CAPITAL_OF_FRANCE_IS = (504, 3575, 282, 4649, 314)
PARIS = 7042

POINTS = (Point(1, 1, 128), Point(1, 8, 128), Point(1, 64, 128), Point(4, 8, 128), Point(4, 8, 512))


@pytest.fixture(scope="module")
def model():
    """Loaded while every connection is refused."""

    def refuse(*_: object) -> None:
        raise AssertionError("the model must load without a network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        return load().model


@pytest.fixture(scope="module")
def timed(model) -> list[ForwardTime]:
    with machines.held(machines.find("cpu")):
        return forward_times(model, POINTS, repeats=3)


def test_it_knows_what_it_learned(model):
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([THE_CAPITAL_OF_FRANCE_IS])).logits
    assert int(logits[0, -1].argmax()) == PARIS
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_the_catalogue_has_its_shape(model, tmp_path):
    model.config.to_json_file(tmp_path / "config.json")
    read = transformer.from_hf_config(tmp_path, "smollm2-135m")
    known = catalog.transformer("smollm2-135m")
    told = {name: getattr(read, name) for name in ("title", "repository", "source")}
    assert read == known.model_copy(update=told)
    counted = sum(weight.numel() for weight in model.parameters())
    assert known.params() == pytest.approx(counted, rel=1e-3)


def test_more_tokens_and_more_context_take_longer(timed):
    seconds = {one.point: one.forward_s for one in timed}
    assert seconds[Point(1, 1, 128)] > 0
    assert seconds[Point(1, 1, 128)] < seconds[Point(1, 8, 128)] < seconds[Point(1, 64, 128)]
    assert seconds[Point(1, 8, 128)] < seconds[Point(4, 8, 128)] < seconds[Point(4, 8, 512)]


def test_passes_do_not_grow_the_cache_of_the_next(model):
    import torch

    lengths = []

    def remember(module: torch.nn.Module, inputs: object, keywords: dict[str, object]) -> None:
        lengths.append(keywords["cache"].get_seq_length())

    hook = model.register_forward_pre_hook(remember, with_kwargs=True)
    with machines.held(machines.find("cpu")):
        forward_times(model, [Point(2, 4, 32), Point(2, 2, 32)], repeats=2)
    hook.remove()
    assert lengths == [32] * 6


def test_kernels_timed_in_a_minute_predict_it_within_a_factor_of_two(timed, tmp_path):
    profile = tmp_path / "here.yaml"
    measured = calibrate_device("cpu", "smollm2-135m", 1, profile, Options(quick=True))
    fitted = fit_device(measured, profile, "--device cpu --quick")
    output.write(fitted.profile, fitted.rows, profile)
    for point, error in errors(kernels_of(profile), timed).items():
        assert 0.5 < 1 + error < 2, point
