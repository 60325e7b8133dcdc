"""Recorded decoding runs as a forecast needs them: requests, steps, and what each strategy is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from calibration.acceptance.runs import ABOUT
from calibration.decoding.autoregressive import BASELINE
from models.strict_yaml import InputError, one_line, read_bytes

REQUESTS, STEPS = "requests.parquet", "steps.parquet"

_REQUEST_COLUMNS = (
    *("strategy", "id", "stream", "arrival_s", "first_token_s", "finish_s"),
    *("prompt_tokens", "output_tokens", "accepted", "n_steps"),
)
_STEP_COLUMNS = (
    *("strategy", "request", "start_s", "duration_s", "draft_s", "verify_s", "sample_s", "host_s"),
    *("n_decode", "prefill_tokens", "verify_tokens", "emitted"),
)


class Recorded(NamedTuple):
    """Decoding runs of one folder, one sequence at a time.

    Attributes
    ----------
    folder : Path
    target : str
        The model, as ``model.transformer`` of a scenario in the folder names it.
    blocks : dict
        Label of a strategy -> its block in a scenario, acceptance left out.
    requests : DataFrame
        A row a strategy and request: ``strategy``, ``id``, ``domain``, ``prompt_tokens``,
        ``output_tokens``, ``n_steps``, ``accepted``, ``ttft_s``, ``e2e_s``, ``tpot_s`` [s].
    steps : DataFrame
        A row a decode step, in order: ``strategy``, ``request``, ``domain``, ``context`` and
        ``width`` [token], ``duration_s`` and its parts [s].
    prefills : DataFrame
        A row a prompt: ``strategy``, ``request``, ``domain``, ``prompt_tokens``, ``duration_s`` and
        its parts [s].
    """

    folder: Path
    target: str
    blocks: dict[str, dict[str, Any]]
    requests: pd.DataFrame
    steps: pd.DataFrame
    prefills: pd.DataFrame

    @property
    def labels(self) -> tuple[str, ...]:
        """Strategies that have run, plain decoding first."""
        ran = list(dict.fromkeys(self.requests["strategy"]))
        return tuple(sorted(ran, key=lambda label: label != BASELINE))

    @property
    def domains(self) -> tuple[str, ...]:
        """Kinds of text, in order."""
        return tuple(dict.fromkeys(self.requests.sort_values("id", kind="stable")["domain"]))

    def of(self, label: str, domain: str = "") -> pd.DataFrame:
        """Requests of a strategy in their order, of one domain or of all."""
        own = self.requests[self.requests["strategy"] == label]
        own = own[own["domain"] == domain] if domain else own
        return own.sort_values("id", kind="stable")

    def complete(self, label: str, domain: str) -> bool:
        """Whether a strategy has answered the prompts that plain decoding has."""
        own, plain = (list(self.of(name, domain)["id"]) for name in (label, BASELINE))
        return own == plain


def read(folder: Path) -> Recorded:
    """Read the runs in a folder.

    Raises
    ------
    InputError
        If a file is missing or not of its schema, plain decoding is not among the strategies, or
        several sequences were decoded side by side.
    """
    about = _about(folder / ABOUT)
    requests = _table(folder / REQUESTS, _REQUEST_COLUMNS)
    steps = _table(folder / STEPS, _STEP_COLUMNS)
    if BASELINE not in set(requests["strategy"]):
        message = f"has no '{BASELINE}': nothing to compare with, no constants of the host"
        raise InputError(str(folder / REQUESTS), None, "strategy", message)
    if (steps["n_decode"] > 1).any():
        most = int(steps["n_decode"].max())
        message = f"only steps of one sequence are forecast, got {most} side by side"
        raise InputError(str(folder / STEPS), None, "n_decode", message)
    requests = _with_latencies(requests.rename(columns={"stream": "domain"}))
    steps = steps.merge(
        requests[["strategy", "id", "domain", "prompt_tokens"]],
        left_on=["strategy", "request"],
        right_on=["strategy", "id"],
    )
    decode = _with_context(steps[steps["n_decode"] == 1])
    prefills = steps[steps["prefill_tokens"] > 0].reset_index(drop=True)
    # Models of one's own have a name for people, and a folder that a scenario can name.
    target = str(about.get("transformer") or about["target"])
    return Recorded(folder, target, dict(about["strategies"]), requests, decode, prefills)


def _with_latencies(requests: pd.DataFrame) -> pd.DataFrame:
    later = requests["output_tokens"] - 1
    spent = requests["finish_s"] - requests["first_token_s"]
    return requests.assign(
        ttft_s=requests["first_token_s"] - requests["arrival_s"],
        e2e_s=requests["finish_s"] - requests["arrival_s"],
        tpot_s=(spent / later).where(later > 0),
    )


def _with_context(steps: pd.DataFrame) -> pd.DataFrame:
    """Tokens before each step: the prompt, the token it gave, and those of earlier steps."""
    own = steps.sort_values(["strategy", "request", "start_s"], kind="stable")
    emitted = own.groupby(["strategy", "request"])["emitted"]
    context = own["prompt_tokens"] + 1 + emitted.cumsum() - own["emitted"]
    found = own.assign(context=context, width=own["verify_tokens"], step=emitted.cumcount())
    return found.reset_index(drop=True)


def _table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise InputError(str(path), None, "", f"cannot read: {reason}") from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InputError(str(path), None, missing[0], "is missing: not a table of decoding runs")
    if not table.num_rows:
        raise InputError(str(path), None, "", "is empty: nothing was decoded")
    frame: pd.DataFrame = table.select(columns).to_pandas()
    texts = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(texts, object))


def _about(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(read_bytes(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise InputError(str(path), None, "", f"cannot read: {reason}") from None
    for key, kind in (("target", str), ("strategies", dict)):
        if not isinstance(about, dict) or not isinstance(about.get(key), kind):
            raise InputError(str(path), None, key, "is missing: not the settings of decoding runs")
    return dict(about)
