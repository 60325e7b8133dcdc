"""Host constants of the decoding loop, from the plain steps of recorded runs alone."""

from __future__ import annotations

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast.recorded import Recorded
from models import catalog
from models.gemm import US
from models.kernels import Kernels

ENGINE = "transformers_5"


def argmax_s(kernels: Kernels, vocab: int) -> float:
    """What the LM head's price holds for choosing the best of one row of logits [s]."""
    profile = kernels.profile
    stream = profile.elementwise.memory.value * kernels.accelerator.memory_bandwidth_bytes_per_s
    return profile.head.logit_bytes.value * vocab / stream


def of_runs(recorded: Recorded, kernels: Kernels, vocab: int) -> dict[str, float]:
    """Constants of engine ``transformers_5`` on the machine of these runs.

    What a pass takes besides its layers and LM head (embedding, positions, mask, last norm) is not
    told apart in recorded steps; it stays that of the catalogue, for the target as for a draft.

    Parameters
    ----------
    recorded : Recorded
        Only its plain decoding is looked at: what speculation costs remains a prediction.
    kernels : Kernels
        Of the device; the arg-max is priced with the LM head, so only the rest is the host's.
    vocab : int
        Of the target.

    Returns
    -------
    dict
        Dotted name of a constant to its value [us], as ``engine.constants`` takes them.
    """
    plain = recorded.steps[recorded.steps["strategy"] == BASELINE]
    prefills = recorded.prefills[recorded.prefills["strategy"] == BASELINE]
    pass_us = catalog.engine(ENGINE).draft_pass_us.value
    host_us = float(plain["host_s"].median()) / US + pass_us
    choosing_us = (float(plain["sample_s"].median()) - argmax_s(kernels, vocab)) / US
    choosing_us = max(0.0, choosing_us)
    return {
        "host_plain.per_step_us": _rounded(host_us + choosing_us),
        "host_speculative.per_step_us": _rounded(host_us),
        "sampling_us": _rounded(choosing_us),
        "request_us": _rounded(float(prefills["host_s"].median()) / US),
    }


def _rounded(microseconds: float) -> float:
    """Six digits: they stand in a file for people."""
    return float(f"{microseconds:.6g}")
