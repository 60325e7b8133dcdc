"""A fit to recorded stages finds what made them, and says what they do not tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.live.fit import estimate as fitting
from calibration.live.fit.estimate import IDENTIFIED, Fit
from calibration.live.fit.knobs import HOST, Factors, Serving
from calibration.live.fit.stages import Case, serving_of
from calibration.live.recording import Stage
from models import catalog
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
            "engine": {"name": engine, "max_model_len": 8192, "max_num_batched_tokens": 2048},
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
        columns = asked(3 * users + 6, prompts, (12, 24))
        run = RunTable(stage.point, "live", 0, columns)
        first = Case.of(made, made.strategies[0], stage, run, folder)
        serving = serving_of(made, first.deployment)
        seen = first.simulated(first.setup(serving.moved(factors)))
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


@pytest.mark.parametrize(
    ("where", "prompts", "truth"),
    [
        ("cpu", (20, 400), Factors(request=2.5, launches=0.4, compute=0.8)),
        ("older", (100, 6000), Factors(request=2.5, host=1.8, compute=0.8)),
        ("h100", (100, 6000), Factors(request=0.4, memory=0.75)),
    ],
)
def test_the_constants_that_made_the_stages_are_found(
    tmp_path: Path, where: str, prompts: tuple[int, int], truth: Factors
) -> None:
    """Each within twice its error, those that were not moved included."""
    fit, by_name = found(*served(where, truth, tmp_path, prompts=prompts))
    assert np.abs(fit.residuals).max() < 0.05 < np.abs(fit.before).max()
    for name, one in by_name.items():
        assert abs(one.factor - getattr(truth, name)) < 2 * one.error + 0.02, one
        assert 0 < one.left <= 1
        assert one.identified == (one.left <= IDENTIFIED)
    assert sum(one.identified for one in by_name.values()) >= 2


def test_what_stages_do_not_tell_is_left_alone_and_said(tmp_path: Path) -> None:
    """One user, prompts all of one length: a step and a prompt, for five unknowns."""
    truth = Factors(launches=0.5)
    fit, by_name = found(*served("cpu", truth, tmp_path, (1,), prompts=(30, 31)))
    vague = [one for one in by_name.values() if not one.identified]
    assert {"memory", "host"} <= {one.name for one in vague}
    assert all(one.factor == 1.0 and one.left > IDENTIFIED for one in vague)
    assert np.abs(fit.residuals).max() < 0.03


def test_an_error_is_as_large_as_all_the_factors_leave_it(tmp_path: Path) -> None:
    """One user cannot tell bandwidth from host: whichever is blamed, the error says so."""
    _, by_name = found(*served("older", Factors(memory=0.8), tmp_path, (1,), prompts=(100, 6000)))
    for name, true in (("memory", 0.8), ("host", 1.0), ("launches", 1.0)):
        assert abs(by_name[name].factor - true) < 2 * by_name[name].error


@pytest.mark.extras  # seconds of fits
def test_repeats_do_not_make_the_model_surer_of_itself(tmp_path: Path) -> None:
    cases, serving = served("cpu", Factors(launches=0.5, compute=0.8), tmp_path, (1,))
    once, often = (found(cases * times, serving)[1] for times in (1, 4))
    for name, one in once.items():
        assert often[name].left > 0.85 * one.left, name


@pytest.mark.extras  # seconds of fits
def test_noisy_stages_leave_larger_errors(tmp_path: Path) -> None:
    truth = Factors(launches=0.5, compute=0.8)
    quiet = found(*served("cpu", truth, tmp_path))[1]["launches"]
    noisy = found(*served("cpu", truth, tmp_path, noise=0.8))[1]["launches"]
    assert 1.0 >= noisy.left > 1.2 * quiet.left


@pytest.mark.extras  # seconds of fits
def test_stages_that_contradict_each_other_leave_at_most_what_was_uncertain(tmp_path: Path) -> None:
    """One load a quarter too slow, the other a quarter too fast: nobody has such a server."""
    slow, serving = served("cpu", Factors(launches=1.5, memory=0.7, compute=0.7), tmp_path, (1,))
    fast, _ = served("cpu", Factors(launches=0.1, memory=1.4, compute=1.4), tmp_path, (4,))
    fit, by_name = found([*slow, *fast], serving)
    assert all(one.left <= 1 for one in by_name.values())
    assert np.abs(fit.residuals).mean() < np.abs(fit.before).mean()


def test_host_time_for_drafts_is_told_by_a_server_that_drafts(tmp_path: Path) -> None:
    truth = Factors(launches=0.5, draft=60.0)
    plain, serving = served("cpu", Factors(launches=0.5), tmp_path, (2,))
    drafting, _ = served("cpu", truth, tmp_path, (2,), strategy=NGRAM)
    _, by_name = found([*plain, *drafting], serving)
    assert by_name["draft"].identified
    assert abs(by_name["draft"].factor - 60) < 2 * by_name["draft"].error < 30
    assert "draft" not in found(plain, serving)[1]


def test_a_hidden_host_is_no_unknown(tmp_path: Path) -> None:
    """Where steps are scheduled ahead only launches show."""
    _, hidden = found(*served("h100", Factors(), tmp_path, (2,)))
    _, waiting = found(*served("older", Factors(), tmp_path, (2,)))
    assert "host" not in hidden
    assert "host" in waiting


def test_nothing_moves_where_every_factor_is_one(tmp_path: Path) -> None:
    for where in ON:
        _, serving = served(where, Factors(), tmp_path, (1,))
        same = serving.moved(Factors())
        assert (same.profile, same.engine) == (serving.profile, serving.engine), where


def test_every_factor_moves_its_own_constants(tmp_path: Path) -> None:
    _, serving = served("cpu", Factors(), tmp_path, (1,))
    launches = serving.launches_us()
    assert 20_000 < launches < 30_000
    assert serving.eager
    moved = serving.moved(Factors(3.0, 0.5, 2.0, 1.5, 0.5, 4.0))
    before, after = serving.engine.constants, moved.engine.constants
    times = {name: after[name].value / before[name].value for name in HOST if name in before}
    assert times == pytest.approx(
        {
            "request_us": 3,
            "host_plain.per_step_us": 2,
            "host_speculative.per_step_us": 2,
            "sampling_us": 4,
            "draft_pass_us": 4,
        }
    )
    assert moved.launches_us() == pytest.approx(0.5 * launches)
    old, new = serving.profile, moved.profile
    assert new.gemm["bf16"].memory.value == pytest.approx(1.5 * old.gemm["bf16"].memory.value)
    assert new.elementwise.memory.value == pytest.approx(1.5 * old.elementwise.memory.value)
    compute = (one.prefill_attention.compute.value for one in (old, new))
    assert next(compute) == pytest.approx(2 * next(compute))


def test_measured_rows_move_as_their_closed_form(tmp_path: Path) -> None:
    _, serving = served("cpu", Factors(), tmp_path, (1,))
    assert serving.rows is not None
    moved = serving.moved(Factors(compute=0.5, memory=0.5))
    assert moved.rows is not None
    gemm = serving.rows["operation"] == "gemm"
    before, after = serving.rows["time_s"], moved.rows["time_s"]
    assert (after[~gemm] == before[~gemm]).all()
    assert (after[gemm] > before[gemm]).all()
    assert (after[gemm] < 2 * before[gemm]).all()
    large = gemm & (serving.rows["m"] >= 256)
    assert after[large] / before[large] == pytest.approx(2.0, rel=0.05)


def test_a_file_may_describe_an_engine(tmp_path: Path) -> None:
    shipped = (Path(catalog.__file__).parent / "engines" / "vllm_0.15.yaml").read_text("utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(shipped.replace("name: vllm_0.15", "name: mine"), "utf-8")
    assert catalog.engine(str(mine)).name == "mine"
