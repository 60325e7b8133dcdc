"""Attention of several query tokens against a context: kernels others timed on Hopper."""

from __future__ import annotations

from collections.abc import Mapping

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

PUBLISHED = "kernels/verify_attention_hopper.csv"
SHAPE = ("batch", "query_tokens", "context_tokens", "heads", "kv_width", "pair_width")


def cases() -> list[Case]:
    """One kernel call each; its ``scenario`` is a device and a shape, nothing to simulate."""
    return [_case(row) for row in read(PUBLISHED)]


def _case(row: Mapping[str, str]) -> Case:
    shape = {name: int(row[name]) for name in SHAPE}
    kernel = row["kernel"].lower().replace(",", "").replace(" ", "-")
    size = "b{batch}-q{query_tokens}-ctx{context_tokens}-h{heads}".format(**shape)
    return Case(
        name=f"verify-attention/{row['hardware'].replace('_', '-')}-{kernel}-{size}",
        suite="kernels",
        origin="verification attention",
        source=row["source"],
        labels={
            "model": "latent attention" if shape["kv_width"] == 576 else "grouped heads",
            "engine": row["kernel"],
            "strategy": "verification" if shape["query_tokens"] > 1 else "decode",
            "workload": f"{shape['query_tokens']} query tokens",
            "batch": str(shape["batch"]),
        },
        scenario={"hardware": {"gpu": row["hardware"]}, "attention": shape},
        measured={"time_s": float(row["time_us"]) * 1e-6},
        unscored=row["unscored"],
    )
