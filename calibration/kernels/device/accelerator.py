"""The timed device as an accelerator: the catalogue's, or one described by what was measured."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from calibration.kernels.device.machine import Machine
from models import catalog
from models.hardware import Accelerator
from models.strict_yaml import Document, validate

KNOWN = {
    "NVIDIA H100 80GB HBM3": "h100_sxm",
    "NVIDIA H100 PCIe": "h100_pcie",
    "NVIDIA H100 NVL": "h100_nvl",
    "NVIDIA H200": "h200_sxm",
    "NVIDIA A100-SXM4-80GB": "a100_80g_sxm",
    "NVIDIA L40S": "l40s",
    "NVIDIA B200": "b200_sxm",
}
"""Entries of the catalogue by the name the driver gives the device."""

PCIE_4_BYTES_PER_S = 32e9


def name_of(machine: Machine) -> str:
    """Name of a device in profiles: the catalogue's, or its own in lower case."""
    plain = re.sub(r"\W+", "_", re.sub(r"\((R|TM)\)", "", machine.name)).strip("_").lower()
    return KNOWN.get(machine.name, plain)


def accelerator_of(machine: Machine, rows: pd.DataFrame) -> Accelerator:
    """Accelerator for the profile of a device.

    Parameters
    ----------
    machine : Machine
        The device.
    rows : DataFrame
        Kernels timed on it: the best stream is its bandwidth, the best GEMM its peak.

    Raises
    ------
    RuntimeError
        If the catalogue does not hold it and no stream or GEMM was timed.
    """
    if machine.name in KNOWN:
        return catalog.hardware(KNOWN[machine.name])
    bandwidth = best(rows, "stream", "bytes")
    peaks = {kind: best(rows, "gemm", "flops", dtype=kind) for kind in ("bf16", "fp8")}
    peak_flops = {kind: round(peak) for kind, peak in peaks.items() if peak is not None}
    if bandwidth is None or not peak_flops:
        raise RuntimeError("too little was timed to describe the device: no stream, or no GEMM")
    on_host = machine.device == "cpu"
    block = {
        "name": name_of(machine),
        "title": f"{machine.name}, threads: {machine.threads}" if on_host else machine.name,
        "memory_bytes": machine.memory_bytes,
        "memory_bandwidth_bytes_per_s": round(bandwidth),
        "peak_flops": peak_flops,
        "host_link_bytes_per_s": round(bandwidth) if on_host else PCIE_4_BYTES_PER_S,
        "price_per_gpu_hour": 0.0,
        "profile": "",
        "profile_basis": "validated",
        "large_batch_defaults": False,
        "source": f"measured by calibrate device with torch {machine.torch}: best stream and best "
        f"GEMM of each type; price not known; "
        + ("host link: its own memory" if on_host else "host link: PCIe 4.0 x16 assumed"),
    }
    fields = {key: value for key, value in block.items() if key in Accelerator.model_fields}
    return validate(Accelerator, Document(fields, machine.name))


def best(rows: pd.DataFrame, operation: str, of: str, **where: str) -> float | None:
    """Highest rate of unflagged rows of an operation: ``bytes`` or ``flops`` a second."""
    chosen = rows[(rows["operation"] == operation) & (rows["flag"] == "")]
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    if chosen.empty:
        return None
    return float(np.max(chosen[of].to_numpy() / chosen["time_s"].to_numpy()))
