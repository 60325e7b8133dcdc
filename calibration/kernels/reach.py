"""How far a fit reaches: rows behind it, sizes it has seen, its errors, where rows do better."""

from __future__ import annotations

import pandas as pd

from calibration.kernels.fits.attention import decode_rows
from calibration.kernels.fits.gemm import DTYPES, form_name, served_shapes
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.interpolation import WITHOUT_M
from calibration.kernels.fits.robust import rounded
from calibration.kernels.fits.select import good, of_usual_heads
from models.hardware import Accelerator
from models.kernel_constants import GemmConstants
from models.profile import KernelResidual, TableWhere, TimedTable, Valid

RIDGE = (128, 512)
"""Tokens a step around which both roofs meet, where the closed form of bf16 is farthest off.

At m of 160 to 300 on H100 by 7 % (median), rows of other n by 5 %; on B200 by 7 and 4 %.
"""


FAR_BETTER = 0.5
"""Share of the closed form's error at which interpolation replaces it at all sizes."""


def timed_tables(rows: pd.DataFrame) -> tuple[TimedTable, ...]:
    """How many rows there are of each operation and version, and how many of them are flagged."""
    tables = []
    for (operation, version), group in rows.groupby(["operation", "version"], sort=True):
        kernels = sorted(set(group["kernel"]))
        tables.append(
            TimedTable(
                operation=operation,
                kernel=kernels[0] if len(kernels) == 1 else "",
                version=version,
                rows=len(group),
                flagged=int((group["flag"] != "").sum()),
            )
        )
    return tuple(tables)


def seen(rows: pd.DataFrame, accelerator: Accelerator) -> Valid:
    """Sizes among the rows that GEMMs and decode attention are fitted to."""
    m = served_shapes(rows, accelerator, "bf16")["m"]
    decode = decode_rows(of_usual_heads(good(rows, "attention")), accelerator)
    context, batch = decode["context_tokens"] + 1, decode["batch"]
    return Valid(
        m=(int(m.min()), int(m.max())),
        context_tokens=(int(context.min()), int(context.max())),
        batch=(int(batch.min()), int(batch.max())),
    )


def table_where(
    scores: list[Score], rows: pd.DataFrame, accelerator: Accelerator, own_shapes: bool
) -> TableWhere:
    """Where measured GEMMs replace the closed form: in fp8 everywhere, in bf16 on the ridge.

    In bf16 everywhere too where they are far better, or ``own_shapes``: of the shapes that are run.
    """
    where: dict[str, tuple[int, int]] = {}
    for dtype in DTYPES:
        own = [score for score in scores if score.dtype == dtype]
        table = {score.m: score.median + score.p90 for score in own if score.what == WITHOUT_M}
        taken = {score.m: score.median + score.p90 for score in reversed(own)}
        form = sum(taken[m] for m in table)
        if not table or sum(table.values()) >= form:
            continue
        m = served_shapes(rows, accelerator, dtype)["m"]
        everywhere = dtype == "fp8" or own_shapes
        everywhere |= sum(table.values()) < FAR_BETTER * form
        where[dtype] = (int(m.min()), int(m.max())) if everywhere else RIDGE
    return TableWhere(gemm=where)


def residuals(scores: list[Score], gemm: dict[str, GemmConstants]) -> tuple[KernelResidual, ...]:
    """Errors of the forms that were taken; of several group sizes the worst."""
    rows: dict[tuple[str, str, tuple[int, int] | None], KernelResidual] = {}
    for score in scores:
        if score.operation == "gemm" and score.what != form_name(gemm[score.dtype]):
            continue
        key = score.operation, score.dtype, score.m
        if key in rows and rows[key].p90 >= score.p90:
            continue
        rows[key] = KernelResidual(
            operation=score.operation,
            dtype=score.dtype,
            m=score.m,
            rows=score.rows,
            **{name: rounded(getattr(score, name), 3) for name in ("median", "p90", "lo", "hi")},
        )
    return tuple(rows.values())
