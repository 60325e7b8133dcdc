"""A fit to recorded stages finds what made them, and says what they do not tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.live import fit as fitting
from calibration.live import recording
from calibration.live.fit import IDENTIFIED, PRIOR, Fit
from calibration.live.knobs import Factors, Serving
from calibration.live.recording import Stage
from calibration.live.stages import Case, serving_of
from models import catalog
from models.gemm import US
from sim.scenario.schema import Scenario
from sim.tables import Columns, RunTable, Status

CPU = str(Path(__file__).parent / "measured" / "decoding" / "cpu.yaml")
PLAIN = {"kind": "autoregressive"}
NGRAM = {"kind": "ngram", "k": 4, "acceptance": {"match_rate": 0.6, "alpha": 0.5}}
ON = {
    "cpu": ({"profile": CPU}, "smollm2-135m", "vllm_cpu_0.32"),
    "h100": ({"gpu": "h100_sxm"}, "llama-3.1-8b", "vllm_0.15"),
    "older": ({"gpu": "h100_sxm"}, "llama-3.1-8b", "vllm_0.10"),
}


def scenario(where: str, strategy: dict[str, Any] = PLAIN) -> Scenario:
    hardware, transformer, engine = ON[where]
    return Scenario.model_validate(
        {
            "hardware": hardware,
            "model": {"transformer": transformer},
            "engine": {"name": engine, "max_model_len": 8192},
            "workload": {"arrivals": {"kind": "closed_loop", "users": 1}, "sampling": "greedy"},
            "strategies": [strategy],
            "run": {"baseline": False, "band": False},
        }
    )


def asked(n: int, prompts: tuple[int, int], outputs: tuple[int, int]) -> Columns:
    """Requests yet to be answered: only their lengths count."""
    rng = np.random.default_rng(n)
    counts = ("replica", "cached_tokens", "n_steps", "drafted", "accepted", "preemptions")
    columns: Columns = {name: np.zeros(n, dtype=np.int64) for name in counts}
    return columns | {
        "id": np.arange(n),
        "session": np.arange(n),
        "attempts": np.ones(n, dtype=np.int64),
        "discarded_tokens": np.zeros(n, dtype=np.int64),
        "status": np.full(n, Status.FINISHED, dtype=np.int8),
        "prompt_tokens": rng.integers(*prompts, size=n),
        "output_tokens": rng.integers(*outputs, size=n),
        "arrival_s": np.arange(n) * 1e-6,
        "schedule_s": np.full(n, np.nan),
        "first_token_s": np.ones(n),
        "finish_s": np.full(n, 2.0),
        "stream": np.full(n, "live", dtype=object),
        "domain": np.full(n, "text", dtype=object),
    }


def served(
    where: str,
    factors: Factors,
    folder: Path,
    loads: tuple[int, ...] = (1, 4),
    strategy: dict[str, Any] = PLAIN,
    prompts: tuple[int, int] = (20, 400),
    noise: float = 0.0,
) -> tuple[list[Case], Serving]:
    """Stages as a server with other constants than ours would leave them."""
    made, cases = scenario(where, strategy), []
    rng = np.random.default_rng(7)
    for users in loads:
        stage = Stage({"concurrency": users}, 0, "live")
        columns = asked(3 * users + 6, prompts, (16, 32))
        run = RunTable(stage.point, "live", 0, columns)
        first = Case.of(made, made.strategies[0], stage, run, folder)
        serving = serving_of(made, first.deployment)
        seen = first.simulated(serving, factors)
        late = rng.lognormal(0.0, noise, len(columns["id"])) if noise else 1.0
        begun, first_s, last_s = (seen[name] for name in ("arrival_s", "first_token_s", "finish_s"))
        seen["first_token_s"] = begun + late * (first_s - begun)
        seen["finish_s"] = seen["first_token_s"] + late * (last_s - first_s)
        answered = {**columns, **{k: seen[k] for k in ("arrival_s", "first_token_s", "finish_s")}}
        run = RunTable(stage.point, "live", 0, answered)
        cases.append(Case.of(made, made.strategies[0], stage, run, folder))
    return cases, serving


def found(cases: list[Case], serving: Serving) -> tuple[Fit, dict[str, Any]]:
    fit = fitting.fit(cases, serving)
    return fit, {one.name: one for one in fit.estimates}


@pytest.mark.parametrize(("where", "prompts"), [("cpu", (20, 400)), ("older", (100, 6000))])
def test_the_constants_that_made_the_stages_are_found(
    tmp_path: Path, where: str, prompts: tuple[int, int]
) -> None:
    truth = Factors(request=2.5, fixed=0.6, memory=1.0, compute=0.8)
    cases, serving = served(where, truth, tmp_path, prompts=prompts)
    fit, by_name = found(cases, serving)
    assert np.abs(fit.residuals).max() < 0.04 < np.abs(fit.before).max()
    for name in ("request", "fixed", "compute"):
        one = by_name[name]
        if one.identified:
            assert abs(one.factor - getattr(truth, name)) < 3 * one.error + 0.02, name
    assert by_name["compute"].identified
    assert by_name["fixed"].identified


def test_what_stages_do_not_tell_is_left_alone_and_said(tmp_path: Path) -> None:
    """One user, prompts all of one length: a step and a prompt, for four unknowns."""
    cases, serving = served("cpu", Factors(fixed=0.5), tmp_path, (1,), prompts=(30, 31))
    fit, by_name = found(cases, serving)
    vague = [name for name, one in by_name.items() if not one.identified]
    assert "memory" in vague
    assert len(vague) >= 2
    assert all(by_name[name].factor == 1.0 and by_name[name].left > IDENTIFIED for name in vague)
    assert np.abs(fit.residuals).max() < 0.02


def test_noisy_stages_leave_larger_errors(tmp_path: Path) -> None:
    truth = Factors(fixed=0.5, compute=0.8)
    quiet = found(*served("cpu", truth, tmp_path))[1]["fixed"]
    noisy = found(*served("cpu", truth, tmp_path, noise=0.3))[1]["fixed"]
    assert noisy.left > 1.3 * quiet.left


def test_host_time_for_drafts_is_told_by_a_server_that_drafts(tmp_path: Path) -> None:
    truth = Factors(fixed=0.5, draft=60.0)
    plain, serving = served("cpu", Factors(fixed=0.5), tmp_path, (2,))
    drafting, _ = served("cpu", truth, tmp_path, (2,), strategy=NGRAM)
    _, by_name = found([*plain, *drafting], serving)
    assert by_name["draft"].identified
    assert abs(by_name["draft"].factor - 60) < 2 * by_name["draft"].error < 20
    assert "draft" not in found(plain, serving)[1]
    assert set(PRIOR) == set(Factors._fields)


def test_nothing_moves_where_every_factor_is_one(tmp_path: Path) -> None:
    for where in ON:
        made = scenario(where)
        _, serving = served(where, Factors(), tmp_path, (1,))
        same = serving.moved(Factors())
        assert same.profile == serving.profile, where
        assert {k: v.value for k, v in same.engine.constants.items()} == pytest.approx(
            {k: v.value for k, v in serving.engine.constants.items()}
        )
        assert made.strategies[0].kind == "autoregressive"


def test_a_step_shorter_than_its_launches_takes_them_from_the_kernels(tmp_path: Path) -> None:
    _, serving = served("cpu", Factors(), tmp_path, (1,))
    launches, host = serving.launches_us(), serving.host_us("autoregressive")
    assert 20_000 < launches < 30_000
    assert host == 1500
    moved = serving.moved(Factors(fixed=0.5))
    share = 0.5 * (launches + host) / launches
    before, after = serving.profile.elementwise, moved.profile.elementwise
    assert after.fixed_us.value == pytest.approx(share * before.fixed_us.value)
    assert moved.engine.host_plain.per_step_us.value == 0
    assert moved.launches_us() == pytest.approx(share * launches)
    slower = serving.moved(Factors(fixed=2.0))
    assert slower.profile == serving.profile
    assert slower.engine.host_plain.per_step_us.value == pytest.approx(launches + 2 * host)


def test_a_hidden_host_is_never_moved(tmp_path: Path) -> None:
    """Where a step is scheduled ahead only launches show."""
    _, serving = served("h100", Factors(), tmp_path, (1,))
    moved = serving.moved(Factors(fixed=1.5))
    assert moved.engine.host_plain == serving.engine.host_plain
    assert moved.launches_us() == pytest.approx(1.5 * serving.launches_us())


def test_measured_rows_move_as_their_closed_form(tmp_path: Path) -> None:
    _, serving = served("cpu", Factors(), tmp_path, (1,))
    assert serving.rows is not None
    moved = serving.moved(Factors(fixed=1e-9, compute=0.5, memory=0.5))
    assert moved.rows is not None
    gemm = serving.rows["operation"] == "gemm"
    before, after = serving.rows["time_s"], moved.rows["time_s"]
    assert (after[~gemm] == before[~gemm]).all()
    large = gemm & (serving.rows["m"] >= 256)
    assert after[large] / before[large] == pytest.approx(2.0, rel=0.05)
    launch_s = serving.profile.gemm["bf16"].launch_us.value * US
    assert (after[gemm] < 2 * before[gemm]).all()
    assert (after[gemm] > 2 * (before[gemm] - 2 * launch_s) - before[gemm]).all()


def test_a_file_may_describe_an_engine(tmp_path: Path) -> None:
    shipped = (Path(catalog.__file__).parent / "engines" / "vllm_0.15.yaml").read_text("utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(shipped.replace("name: vllm_0.15", "name: mine"), "utf-8")
    assert catalog.engine(str(mine)).name == "mine"
    assert recording.VERSION == 1
