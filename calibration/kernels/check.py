"""Which timed kernels not to trust: flagged with a reason and kept, never silently used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.kernels import rows
from calibration.kernels.fits.select import ANOTHER_KERNEL
from calibration.kernels.work import OPERANDS
from models import catalog
from models.hardware import Accelerator
from models.strict_yaml import InputError

NON_POSITIVE = "non-positive time"
DUPLICATE = "duplicate"
TOO_FAST = "faster than the datasheet"
OFF_ROOFLINE = "2x off the roofline"

GIVEN_ANEW = (NON_POSITIVE, DUPLICATE, TOO_FAST, OFF_ROOFLINE, ANOTHER_KERNEL)
"""Reasons of an earlier fit: they rest on the rows it had, and none of them is kept."""

FACTOR = 2.0
"""How far off the fitted roofline of its kernel a time may lie."""

MARGIN = 1.1
"""How much faster than the datasheet's peak and bandwidth a time may be."""

MOST_ROWS = 2000
"""Rows of a kernel its fit uses at most, drawn at random."""

Floats = NDArray[np.float64]


class Sound(NamedTuple):
    """What a sound kernel reaches at least: shares of peak and bandwidth, and a fixed time [s].

    A fit stays within them: a kernel that needs worse was not timed well, or is not what serving
    would run, and its rows then lie off the roofline.
    """

    compute: float
    memory: float
    fixed_s: float


SOUND = {
    "gemm": Sound(0.3, 0.5, 25e-6),
    "decode": Sound(1.0, 0.35, 25e-6),
    "attention": Sound(0.15, 0.1, 25e-6),
    "all_reduce": Sound(1.0, 0.03, 60e-6),
    "moe": Sound(0.15, 0.5, 70e-6),
    "elementwise": Sound(1.0, 0.3, 200e-6),
    "stream": Sound(1.0, 0.3, 50e-6),
}
"""Set by the tables of H100, H200, A100, L40S and B200; ``decode`` is attention of one query token.

Low for prefill attention, whose short prompts fill no GPU, and for links that are not direct.
Operations not listed have no roofline.
"""

OWN_BOX = 10.0
"""How much less a device that the catalogue does not have may reach: a CPU is no small GPU."""

_KERNEL = ["operation", "kernel", "dtype", "kv_dtype", "gpus", "device", "engine", "version"]
_SAME = [*_KERNEL, *(name for name in rows.SHAPE if name not in _KERNEL)]


def flag(timed: pd.DataFrame, accelerator: Accelerator) -> pd.DataFrame:
    """Rows with a reason in ``flag`` for those that fits leave out.

    Parameters
    ----------
    timed : DataFrame
        Columns of ``sim.kernel_rows.KERNELS``. Reasons already given stay, such as the spread of
        repeats, but those of an earlier fit (``GIVEN_ANEW``) are found anew.
    accelerator : Accelerator
        What they were timed on: its datasheet bounds every time from below.

    Returns
    -------
    DataFrame
        The same rows in the same order. Reasons, the first that holds:

        - ``non-positive time``;
        - ``duplicate``: timed more than once with the same kernel; the one with the (lower)
          median time stays;
        - ``faster than the datasheet`` by more than 10 %: mostly operands left in a cache;
        - ``2x off the roofline`` of its kernel, ``max(flops / (compute peak), bytes / (memory
          bandwidth)) + fixed``, fitted robustly in log space within ``SOUND``.

    Raises
    ------
    InputError
        If the times of an operation of a source are a power of 1000 off: it names the units.
    """
    checked = timed.copy()
    own_box = accelerator.name not in catalog.names("hardware")
    reason = checked["flag"].replace(GIVEN_ANEW, "").to_numpy(dtype=object, copy=True)
    positive = (checked["time_s"] > 0).to_numpy()
    _note(reason, ~positive, NON_POSITIVE)
    _note(reason, _repeats(checked, reason == ""), DUPLICATE)
    compute_s, memory_s = _datasheet_times(checked, accelerator)
    _check_units(checked, np.fmax(compute_s, memory_s), positive, each=not own_box)
    time_s = checked["time_s"].to_numpy()
    _note(reason, time_s * MARGIN < np.fmax(compute_s, memory_s), TOO_FAST)
    by_kernel = checked.groupby([*_KERNEL, checked["query_tokens"] == 1], sort=False)
    groups: Any = by_kernel.indices
    for key, members in groups.items():
        operation, *_, one_query = key
        sound = SOUND.get("decode" if operation == "attention" and one_query else operation)
        if sound is not None and own_box:
            compute, memory, fixed_s = sound
            sound = Sound(compute / OWN_BOX, memory / OWN_BOX, fixed_s * OWN_BOX)
        used = members[reason[members] == ""]
        if sound is not None and len(used):
            c, m, t = compute_s[used], memory_s[used], time_s[used]
            if np.isnan(c).any():
                flops = checked["flops"].to_numpy()[used]
                c = flops / max(float(np.quantile(flops / t, 0.99)), 1.0)
            off = np.abs(np.log(t / _roofline(c, m, t, sound))) > np.log(FACTOR)
            reason[used[off]] = OFF_ROOFLINE
    checked["flag"] = pd.Series(reason, checked.index).astype(str)
    return checked


def refuse_wrong_gpu(checked: pd.DataFrame, accelerator: Accelerator) -> None:
    """Refuse rows that another GPU must have timed.

    Parameters
    ----------
    checked : DataFrame
        As ``flag`` returns it.
    accelerator : Accelerator
        What its rows are said to be timed on.

    Raises
    ------
    InputError
        If more than half of the GEMMs, or of the decode attention, are faster than its datasheet.
    """
    operation, judged = checked["operation"], checked["flag"].isin(("", TOO_FAST, OFF_ROOFLINE))
    decode = (operation == "attention") & (checked["query_tokens"] == 1)
    for name, of_it in {"gemm": operation == "gemm", "decode attention": decode}.items():
        flags = checked["flag"][of_it & judged]
        fast = int((flags == TOO_FAST).sum())
        if 2 * fast > len(flags):
            message = (
                f"{fast} of {len(flags)} rows of {name} are faster than the datasheet of "
                f"{accelerator.name}; is --gpu right?"
            )
            raise InputError("", None, "", message)


def flag_summary(checked: pd.DataFrame) -> pd.DataFrame:
    """How many rows were flagged, by operation, type and reason.

    Returns
    -------
    DataFrame
        Columns ``operation``, ``dtype``, ``flag``, ``rows`` and ``share`` of the rows of that
        operation and type, in alphabetical order.
    """
    kind = ["operation", "dtype"]
    total = checked.groupby(kind).size().rename("of")
    flagged = checked[checked["flag"] != ""].groupby([*kind, "flag"]).size().rename("rows")
    counted = flagged.reset_index().join(total, on=kind)
    counted["share"] = counted["rows"] / counted.pop("of")
    return counted


def _note(reason: NDArray[np.object_], wrong: NDArray[np.bool_], why: str) -> None:
    reason[wrong & (reason == "")] = why


def _repeats(checked: pd.DataFrame, open_rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows to drop of those timed more than once: all but the one of the lower median time."""
    candidates = checked[open_rows].assign(place=np.flatnonzero(open_rows))
    several = candidates[candidates.duplicated(_SAME, keep=False)]
    by_time = several.sort_values("time_s", kind="stable")
    same = by_time.groupby(_SAME, sort=False)["place"]
    kept = same.cumcount() == (same.transform("size") - 1) // 2
    drop = np.zeros(len(checked), dtype=bool)
    drop[by_time["place"][~kept]] = True
    return drop


def _datasheet_times(checked: pd.DataFrame, accelerator: Accelerator) -> tuple[Floats, Floats]:
    """Least compute and memory or link time [s] of each row; NaN where no peak is known."""
    peaks: dict[str, float] = dict(accelerator.peak_flops.items())
    rate = {name: peaks.get(operands.computes_in) for name, operands in OPERANDS.items()}
    flops = checked["flops"].to_numpy()
    peak = checked["dtype"].map(rate).to_numpy(dtype=np.float64, na_value=np.nan)
    compute_s = np.where(flops > 0, flops / peak, 0.0)
    link = accelerator.interconnect
    over_link = accelerator.host_link_bytes_per_s if link is None else link.bandwidth_bytes_per_s
    collective = (checked["operation"] == "all_reduce").to_numpy()
    bandwidth = np.where(collective, over_link, accelerator.memory_bandwidth_bytes_per_s)
    return compute_s, checked["bytes"].to_numpy() / bandwidth


def _check_units(
    checked: pd.DataFrame, least_s: Floats, positive: NDArray[np.bool_], each: bool
) -> None:
    """Refuse a source whose times are a power of 1000 off what its kernels take.

    Of ``each`` operation, or only of all together: a CPU calls small ones thousands of times
    slower than it computes them.
    """
    typical_fixed_s = 10e-6
    usable = positive & checked["operation"].isin(list(SOUND)).to_numpy()
    time_s = checked["time_s"].to_numpy()
    by = ["source", "operation"] if each else ["source"]
    groups: Any = checked[usable].groupby(by).indices
    for key, members in groups.items():
        source, *of = key if isinstance(key, tuple) else (key,)
        places = np.flatnonzero(usable)[members]
        off = float(np.median(time_s[places] / (least_s[places] + typical_fixed_s)))
        if 0.02 < off < 100:
            continue
        thousands = 1000 ** max(1, round(abs(np.log10(off)) / 3))
        units = {
            (True, 1000): "ms given as s, or us as ms",
            (False, 1000): "s given as ms, or ms as us",
        }
        guess = units.get((off > 1, thousands), "us given as s" if off > 1 else "s given as us")
        direction = "long" if off > 1 else "short"
        times = " ".join(["times", *(f"of {operation}" for operation in of)])
        message = f"{times} are about {thousands} times too {direction} for this device: {guess}?"
        raise InputError(str(source), None, "", message)


def _roofline(compute_s: Floats, memory_s: Floats, time_s: Floats, sound: Sound) -> Floats:
    """Fitted time [s] of each row of one kernel."""
    slowest = np.log([1 / sound.compute, 1 / sound.memory, sound.fixed_s])
    fastest = np.log([1 / MARGIN, 1 / MARGIN, 1e-8])

    def fitted(logs: Floats, compute: Floats, memory: Floats) -> Floats:
        slowdown, stretch, fixed = np.exp(logs)
        return np.asarray(np.fmax(slowdown * compute, stretch * memory) + fixed)

    drawn = np.random.default_rng(0).permutation(len(time_s))[:MOST_ROWS]
    order = np.lexsort((time_s, memory_s, compute_s))[drawn]
    c, m, t = compute_s[order], memory_s[order], np.log(time_s[order])
    start = np.clip([0.4, 0.2, np.quantile(t, 0.05)], fastest + 1e-6, slowest - 1e-6)

    def residuals(logs: Floats) -> Floats:
        return np.asarray(np.log(fitted(logs, c, m)) - t)

    best = least_squares(
        residuals,
        start,
        bounds=(fastest, slowest),
        loss="soft_l1",
        f_scale=0.2,
    )
    return fitted(best.x, compute_s, memory_s)
