"""Measures of one decode step at a given batch and context: no run is needed."""

from __future__ import annotations

from sim.audit.registry import register
from sim.audit.view import Look, Measured
from sim.band import step_scale
from sim.explain import mean_width
from sim.setup import Setup


@register("%", simulated=False)
def compute_utilisation(look: Look) -> Measured:
    """FLOP/s of a decode step over the dense peak of the type the weights are computed in."""
    row = look.step
    step, band = row["t_step_s"], row["band"]["t_step_s"]
    lo, hi = (row["mfu"] * step / band[end] for end in ("hi", "lo"))
    return Measured(row["mfu"], lo, hi, band["basis"])


@register("%", simulated=False)
def bandwidth_utilisation(look: Look) -> Measured:
    """Bytes a second of a decode step over the peak of the memory."""
    row = look.step
    step, band = row["t_step_s"], row["band"]["t_step_s"]
    lo, hi = (row["mbu"] * step / band[end] for end in ("hi", "lo"))
    return Measured(row["mbu"], lo, hi, band["basis"])


@register("s", simulated=False)
def step_s(look: Look) -> Measured:
    """Time of one decode step."""
    band = look.step["band"]["t_step_s"]
    return Measured(look.step["t_step_s"], band["lo"], band["hi"], band["basis"])


@register("s", simulated=False)
def draft_s(look: Look) -> Measured:
    """Time of the draft phase of a decode step."""
    return Measured(look.step["components"].get("draft", 0.0))


@register("s", simulated=False)
def host_s(look: Look) -> Measured:
    """Host time a decode step waits for."""
    return Measured(look.step["components"]["host"])


@register("%", simulated=False)
def host_share(look: Look) -> Measured:
    """Host time over the time of a decode step."""
    return Measured(look.step["components"]["host"] / look.step["t_step_s"])


@register("passes", simulated=False)
def forward_passes(look: Look) -> Measured:
    """Forward passes a decode step launches: one of the target, and all of its drafts."""
    return Measured(1.0 + _draft_passes(look))


def _draft_passes(look: Look) -> int:
    """Passes with layers of their own: Medusa heads run within the pass of the target."""
    deployment = look.view.deployment
    place = deployment.target, deployment.engine, deployment.weights, deployment.tp
    return sum(each.repeat for each in look.chosen.draft_passes(*place) if not each.head_only)


@register("s", simulated=False)
def launch_s(look: Look) -> Measured:
    """Launch overhead of a decode step, as `engine.launches` states it."""
    launches = look.view.deployment.launches
    drafts = look.chosen.drafted > 0
    total_us = launches.step_us(drafts) + launches.per_pass_us * _draft_passes(look)
    return Measured(1e-6 * total_us)


@register("%", simulated=False)
def launch_share(look: Look) -> Measured:
    """Launch overhead over the time of a decode step."""
    return Measured((launch_s(look).value or 0.0) / look.step["t_step_s"])


@register("tokens", simulated=False)
def query_tokens(look: Look) -> Measured:
    """Tokens a sequence sends through the target in a decode step."""
    return Measured(mean_width(look.setup))


@register("%", simulated=False)
def largest_acceptance_rate(look: Look) -> Measured:
    """Accepted over drafted tokens were every step accepted to the last level."""
    if not look.chosen.drafted:
        return Measured(None, why="nothing is drafted")
    return Measured(look.chosen.depth / look.chosen.drafted)


@register("tokens", simulated=False)
def stated_tau(look: Look) -> Measured:
    """Tokens a step emits by the acceptance stated, without a run."""
    return Measured(look.setup.law.tau)


@register("x", simulated=False)
def step_speedup(look: Look) -> Measured:
    """Time per token of plain decoding over the strategy's in steps of this batch, no prefill."""
    ratio = break_even_tau(look)
    if ratio.value is None:
        return ratio
    emitted = look.setup.law.tau
    lo, hi = (None if end is None else emitted / end for end in (ratio.hi, ratio.lo))
    return Measured(emitted / ratio.value, lo, hi, ratio.basis)


@register("x", simulated=False)
def step_ratio(look: Look) -> Measured:
    """Time of a decode step over that of plain decoding."""
    return break_even_tau(look)


@register("tokens", simulated=False)
def break_even_tau(look: Look) -> Measured:
    """Tokens a step must emit to equal plain decoding: the ratio of both step times."""
    setup, n = look.setup, look.batch
    if not setup.strategy.drafted:
        return Measured(None, why="nothing is drafted")
    ratio = _seconds(setup, n, look.context) / _seconds(look.plain, n, look.context)
    lo, hi, basis = _errors(setup, round(n * mean_width(setup)))
    return Measured(ratio, ratio * lo, ratio * hi, basis)


@register("%", simulated=False)
def break_even_acceptance(look: Look) -> Measured:
    """Accepted share of the levels of a step at which it only equals plain decoding."""
    needed, depth = break_even_tau(look), look.setup.strategy.depth
    if needed.value is None:
        return needed
    lo, hi = (None if end is None else max(end - 1, 0.0) / depth for end in needed[1:3])
    return Measured(max(needed.value - 1, 0.0) / depth, lo, hi, needed.basis)


@register("%", simulated=False)
def break_even_alpha(look: Look) -> Measured:
    """Chance of a level, given all before, at which a step only equals plain decoding."""
    needed, depth = break_even_tau(look), look.setup.strategy.depth
    if needed.value is None:
        return needed
    if needed.value > depth + 1:
        return Measured(None, why="not even accepting every level makes up for the step")
    lo, hi = (None if end is None else _alpha(end, depth) for end in needed[1:3])
    return Measured(_alpha(needed.value, depth), lo, hi, needed.basis)


def _alpha(tau: float, depth: int) -> float:
    """Root of ``1 + a + ... + a^depth = tau``, by halving; 0 and 1 where it is out of reach."""
    if tau <= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = 1 + sum(middle**level for level in range(1, depth + 1))
        low, high = (middle, high) if reached < tau else (low, middle)
    return (low + high) / 2


def _seconds(setup: Setup, n: int, context: int) -> float:
    width = mean_width(setup)
    if width == setup.rules.width:
        return setup.step_time.decode(n, n * context)
    query = round(n * width)
    return setup.step_time.mixed(n, n * context, query, query * context)


def _errors(setup: Setup, query_tokens: int) -> tuple[float, float, str]:
    """Ends of the error of a ratio of step times, and what it rests on; acceptance is no part."""
    deployment, strategy = setup.deployment, setup.strategy
    rows, family = deployment.residuals, deployment.engine.family
    own = rows.of_step(strategy.band_family, family, deployment.weights, query_tokens)
    return own.lo, own.hi, step_scale(setup, query_tokens).basis
