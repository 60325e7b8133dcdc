"""From timed kernels to a profile: every fit, its errors, and what is assumed beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pandas as pd

from calibration.kernels import assumed
from calibration.kernels.fits.attention import fit_attention
from calibration.kernels.fits.collective import fit_all_reduce
from calibration.kernels.fits.elementwise import fit_elementwise
from calibration.kernels.fits.gemm import fit_gemm, times_whole_layers
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.moe import fit_moe
from calibration.kernels.layer import layer_scores
from calibration.kernels.reach import residuals, seen, table_where, timed_tables
from models import catalog
from models.hardware import Accelerator
from models.kernel_constants import GemmConstants
from models.profile import Profile, Provenance, TableWhere
from models.schema import Constant, ModelError

T = TypeVar("T")


def fit_profile(
    rows: pd.DataFrame,
    accelerator: Accelerator,
    *,
    name: str,
    engine: str,
    date: str,
    source: str,
    provenance: Provenance | None = None,
    table: str | None = None,
    own_shapes: bool = False,
) -> tuple[Profile, list[Score]]:
    """Profile of a device from its timed kernels.

    Parameters
    ----------
    rows : DataFrame
        Columns of ``sim.kernel_rows.KERNELS``; those with a ``flag`` are left out.
    accelerator : Accelerator
        The device; the profile carries it where the catalogue has none of its name.
    name, engine, date, source : str
        As they are to stand in the profile; ``date`` as ``2026-11-29``.
    provenance : Provenance, optional
        Package and command; the tables are filled in.
    table : str, optional
        File of the measured rows beside the profile.
    own_shapes : bool
        The rows are of the very shapes that are to be run, as those of a run on the device at hand.

    Returns
    -------
    profile : Profile
        Its constants come from all unflagged rows, its residuals from rows held out.
    scores : list of Score
        Errors of every form that was tried, held out.

    Raises
    ------
    ModelError
        If rows of an operation that every profile needs are missing or too few; it names it.
    """
    gemm, of_gemm = _named("gemm", lambda: fit_gemm(rows, accelerator))
    attention = _named("attention", lambda: fit_attention(rows, accelerator))
    links, of_links = _named("all_reduce", lambda: fit_all_reduce(rows, accelerator))
    moe, of_moe = _named("moe", lambda: fit_moe(rows, accelerator))
    small = _named("elementwise", lambda: fit_elementwise(rows, accelerator))
    scores = [*of_gemm, *attention.scores, *of_links, *of_moe, *small.scores]
    profile = Profile(
        name=name,
        device=accelerator.name,
        engine=engine,
        date=date,
        source=source,
        accelerator=None if accelerator.name in catalog.names("hardware") else accelerator,
        provenance=provenance and provenance.model_copy(update={"tables": timed_tables(rows)}),
        valid=seen(rows, accelerator),
        table=table,
        table_where=table_where(of_gemm, rows, accelerator, own_shapes) if table else TableWhere(),
        gemm={**gemm, **_quantising(gemm, rows, small.one_us)},
        attention=attention.decode,
        prefill_attention=attention.prefill,
        verify_attention=attention.verify,
        all_reduce=links,
        elementwise=small.layer,
        moe=moe,
        head=assumed.HEAD,
    )
    scores += layer_scores(rows, profile, accelerator)
    return profile.model_copy(update={"residuals": residuals(scores, gemm)}), scores


def _named(operation: str, fit: Callable[[], T]) -> T:
    try:
        return fit()
    except ModelError as error:
        raise ModelError(f"{operation}: {error}") from error


def _quantising(
    gemm: dict[str, GemmConstants], rows: pd.DataFrame, one_us: Constant
) -> dict[str, GemmConstants]:
    """fp8 with one small kernel before that quantises activations, unless that was timed too."""
    timed = rows[(rows["operation"] == "gemm") & (rows["dtype"] == "fp8")]
    if "fp8" not in gemm or times_whole_layers(timed):
        return {}
    return {"fp8": gemm["fp8"].model_copy(update={"quantise_us": one_us})}
