"""The files of a live calibration: a scenario ready to run, with profile, engine and acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import yaml
from scipy import stats

from calibration.live.fit.estimate import Estimate, Fit
from calibration.live.fit.knobs import HOST, MOVED, OF_KERNELS, Serving
from calibration.live.fit.stages import FLOOR, Case
from models.engine import Engine
from models.profile import KernelResidual, Profile, Provenance, TableWhere, Valid
from models.schema import Constant
from sim.kernel_rows import KERNELS, write_kernels
from sim.manifest import speccast_version

COVERED, METRIC = 0.9, "tpot_s"


class Loads(NamedTuple):
    """The loads a calibration saw: lowest and highest.

    Attributes
    ----------
    names : tuple of str
        Stages, as ``concurrency=8``.
    batch, prompt_tokens, context_tokens : (int, int)
        Requests at a time, at the peak of a stage, and tokens of one.
    requests : int
    """

    names: tuple[str, ...]
    batch: tuple[int, int]
    prompt_tokens: tuple[int, int]
    context_tokens: tuple[int, int]
    requests: int

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Loads:
        """The loads of some stages."""
        prompts = np.concatenate([case.requests.prompt_tokens for case in cases])
        whole = prompts + np.concatenate([case.requests.output_tokens for case in cases])
        users = [_at_a_time(case) for case in cases]
        return cls(
            tuple(dict.fromkeys(case.stage.name for case in cases)),
            (min(users), max(users)),
            (int(prompts.min()), int(prompts.max())),
            (int(prompts.min()), int(whole.max())),
            int(prompts.size),
        )

    def __str__(self) -> str:
        """In words."""
        low, high = self.prompt_tokens
        return f"{', '.join(self.names)}; {self.requests} requests, prompts of {low}-{high} tokens"


def _at_a_time(case: Case) -> int:
    """Most requests that were served at once."""
    arrived, left = (case.columns[key] for key in ("arrival_s", "finish_s"))
    times = np.concatenate([left, arrived])
    steps = np.repeat([-1, 1], [left.size, arrived.size])
    # One that ends as another comes is gone: ends are first among equals.
    peak = int(np.cumsum(steps[np.argsort(times, kind="stable")]).max())
    users = case.stage.point.get("concurrency", peak)
    return min(int(users), case.deployment.max_num_seqs_for(case.strategy))


class Origin(NamedTuple):
    """Where constants come from.

    Attributes
    ----------
    server : str
        Which server was observed, when and where, in words.
    date : str
        Of the observation.
    command : str
        That wrote them.
    """

    server: str
    date: str
    command: str


def fitted_profile(
    serving: Serving, fit: Fit, cases: Sequence[Case], name: str, origin: Origin
) -> Profile:
    """The profile with what was identified of it, and the loads it was seen at."""
    loads, known = Loads.of(cases), {one.name: one for one in fit.estimates}
    before, profile = serving.profile, serving.moved(fit.factors).profile
    parts = {
        part: _sourced(getattr(profile, part), getattr(before, part), known, loads)
        for part in MOVED
    }
    most = max(case.deployment.max_num_batched_tokens for case in cases)
    device, own = serving.accelerator, before.accelerator
    provenance = Provenance(
        package=f"live server {origin.server}; on top of profile {before.name}",
        speccast=speccast_version(),
        command=origin.command,
    )
    return profile.model_copy(
        update={
            **parts,
            "name": name,
            "device": device.name,
            "engine": serving.engine.title,
            "date": origin.date,
            "source": f"profile {before.name}, moved to meet a live server: {origin.server}; "
            f"{loads}",
            "accelerator": own if own is not None and own.name == device.name else None,
            "provenance": provenance,
            "valid": Valid(
                m=(1, min(most, loads.batch[1] * loads.prompt_tokens[1])),
                context_tokens=loads.context_tokens,
                batch=loads.batch,
            ),
            "table": None if serving.rows is None else f"{name}.parquet",
            "table_where": TableWhere() if serving.rows is None else before.table_where,
            "residuals": _residuals(fit, serving),
        }
    )


def _sourced(part: Any, before: Any, known: Mapping[str, Estimate], loads: Loads) -> Any:
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {key: _sourced(part[key], before[key], known, loads) for key in part}
    update: dict[str, Any] = {}
    for name in type(part).model_fields:
        now, was = getattr(part, name), getattr(before, name)
        if isinstance(now, Constant) and name in OF_KERNELS:
            update[name] = _constant(now, was, known[OF_KERNELS[name]], loads)
        elif name == "large" and now is not None:
            update[name] = _sourced(now, was, known, loads)
    return part.model_copy(update=update)


def _constant(now: Constant, was: Constant, estimate: Estimate, loads: Loads) -> Constant:
    """A moved constant with its source; one that was not moved stays as it was."""
    if now.value == was.value:
        return was
    own = 0.0 if was.se is None or not was.value else was.se / was.value
    error = float(np.hypot(own, estimate.error / estimate.factor))
    times = now.value / was.value if was.value else 0.0
    return Constant(
        value=_short(now.value),
        se=_short(error * now.value),
        source=f"{times:.3g} times {_short(was.value):g} ({was.source})",
        fitted_on=f"live server: {loads}",
    )


def fitted_engine(
    serving: Serving, fit: Fit, cases: Sequence[Case], name: str, origin: Origin
) -> Engine:
    """The engine entry with what was moved of it."""
    loads, known = Loads.of(cases), {one.name: one for one in fit.estimates}
    before, after = serving.engine, serving.moved(fit.factors).engine
    engine = after
    for key, factor in HOST.items():
        if key not in after.constants or factor not in known:
            continue
        now, was = after.constants[key], before.constants[key]
        if now.value == was.value:
            continue
        said = f"fitted to a live server; before {_short(was.value):g} us ({was.source})"
        constant = Constant(
            value=_short(now.value),
            se=_short(known[factor].error * was.value),
            source=said,
            fitted_on=str(loads),
        )
        engine = _with(engine, key, constant)
    return engine.model_copy(
        update={
            "name": name,
            "title": f"{before.title}, calibrated live",
            "source": f"{before.source}; host constants fitted to a live server: "
            f"{origin.server}; {loads}",
        }
    )


def _with(engine: Engine, key: str, constant: Constant) -> Engine:
    head, _, rest = key.partition(".")
    if not rest:
        return engine.model_copy(update={head: constant})
    inner = getattr(engine, head).model_copy(update={rest: constant})
    return engine.model_copy(update={head: inner})


def _residuals(fit: Fit, serving: Serving) -> tuple[KernelResidual, ...]:
    """How far the fitted model is off the time per token, a load each; few loads widen it.

    Repeats of a load share its error, and each factor moved takes one load's worth away. As they
    were where no request had more than one token.
    """
    own = fit.of(METRIC)
    if not own.size:
        return serving.profile.residuals
    freedom = max(1, own.size - sum(one.factor != 1 for one in fit.estimates))
    spread, tail = float(np.sqrt((own**2).sum() / freedom)), 0.5 + COVERED / 2
    size = max(
        spread * float(stats.t.ppf(tail, freedom)), FLOOR[METRIC] * float(stats.norm.ppf(tail))
    )
    off = np.abs(np.expm1(own))
    row = KernelResidual(
        operation="layer",
        dtype=serving.accelerator.compute_dtype(serving.weights),
        rows=int(own.size),
        median=_short(float(np.median(off))),
        p90=_short(float(np.quantile(off, COVERED))),
        lo=_short(float(np.exp(-size))),
        hi=_short(float(np.exp(size))),
    )
    return (row,)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def engine_text(engine: Engine) -> str:
    """An engine entry as YAML that reads like the shipped ones."""
    data = engine.model_dump(mode="json", exclude_none=True)
    data.pop("given", None)
    return yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)


def write_kernel_rows(serving: Serving, fit: Fit, path: Path) -> None:
    """Write the measured rows as the fit moved them."""
    moved = serving.moved(fit.factors)
    assert moved.rows is not None
    columns = {name: pa.array(moved.rows[name].tolist()) for name in KERNELS.names}
    write_kernels(pa.table(columns), path)
