"""Forward passes of SmolLM2-135M timed on one CPU, and the profile of that CPU."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from calibration.decoding.weights import TRANSFORMER
from calibration.validation.forward import ForwardTime, Point, predict_forward
from models import catalog
from models.kernels import Backend, Kernels
from sim.scenario.device import device_of
from sim.scenario.schema import Hardware

MEASURED = Path(__file__).parent / "measured"
PROFILE = MEASURED / "smollm2_cpu.yaml"
FORWARDS = MEASURED / "smollm2_cpu_forward.csv"


def kernels_of(profile: Path, backend: Backend = "auto") -> Kernels:
    """Kernels of a device of one's own, as a scenario that names its profile gets them."""
    device = device_of(Hardware(profile=str(profile), kernels=backend))
    return Kernels(device.accelerator, device.profile, device.table, backend)


def recorded() -> list[ForwardTime]:
    with FORWARDS.open(encoding="utf-8", newline="") as file:
        return [
            ForwardTime(
                Point(int(row["batch"]), int(row["new_tokens"]), int(row["context"])),
                float(row["forward_ms"]) / 1e3,
                float(row["spread"]),
            )
            for row in csv.DictReader(file)
        ]


def write(timed: Iterable[ForwardTime], about: dict[str, object], path: Path = FORWARDS) -> None:
    """One row a forward pass; ``about`` says where and with what it was timed."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*Point._fields, "forward_ms", "spread", *about])
        for point, forward_s, spread in timed:
            rows.writerow([*point, f"{forward_s * 1e3:.3f}", f"{spread:.4f}", *about.values()])


def errors(kernels: Kernels, timed: Iterable[ForwardTime]) -> dict[Point, float]:
    """Predicted over measured - 1."""
    net = catalog.transformer(TRANSFORMER)
    return {
        point: predict_forward(kernels, net, point) / forward_s - 1 for point, forward_s, _ in timed
    }


def mape(errors: dict[Point, float]) -> float:
    return float(np.mean(np.abs([*errors.values()])))


def worst(errors: dict[Point, float]) -> float:
    return max(abs(error) for error in errors.values())
