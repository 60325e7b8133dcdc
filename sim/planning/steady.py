"""One replica in a steady state, by closed forms: what its requests wait for at a given batch.

Little's law turns a batch into the rate that keeps it. A request is held up by the prefills of
others like a customer whose service urgent ones interrupt; its own prefill waits for the step that
runs and shares the next one with whoever else came meanwhile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from models.acceptance import Law
from models.queueing import erlang_c
from models.step_cost import StepCost
from models.strategies import Strategy
from sim.beside import Beside, decode_s, prefill_s
from sim.planning.state import Spread, State
from sim.planning.traffic import Traffic
from sim.scenario.distributions import Floats, Ints
from sim.setup import Setup

STRATA = 8
"""Prompt lengths whose prefill is priced; others lie between two of them."""


class Mode(NamedTuple):
    """One way to decode: its step time, the steps of every request, and query tokens of a step."""

    cost: StepCost
    steps: Floats
    width: float


class Replica:
    """Closed forms of one setup and the traffic it serves.

    Parameters
    ----------
    setup : Setup
    traffic : Traffic
    replicas : int
        Replicas whose router sends each request where the fewest are: as if they took turns, so
        arrivals at one of them vary less (squared coefficient of variation 1 / ``replicas``).

    Attributes
    ----------
    most : float
        Sequences it can hold: by KV memory and by the engine's limit.
    short_of : str
        Which of them is the smaller.
    """

    def __init__(self, setup: Setup, traffic: Traffic, replicas: int = 1) -> None:
        self._even = 1 / replicas
        self.setup, self.traffic, self.rules = setup, traffic, setup.rules
        self.modes = _modes(setup, traffic)
        cached = traffic.cached_tokens * self.rules.prefix_cache
        self._computed = (traffic.prompt_tokens - cached).astype(float)
        self._cached = float(cached.mean())
        at = np.quantile(self._computed, np.linspace(0, 1, STRATA))
        self._priced = np.unique(np.round(at))
        steps = self.modes[0].steps
        context = traffic.prompt_tokens + (1 + traffic.output_tokens) // 2
        weights = np.maximum(steps, 1e-9)
        kv, prompt = self.rules.kv, traffic.prompt_tokens
        self._context = float(np.average(kv.attended(prompt, context), weights=weights))
        self._cold = float(np.average(kv.cold(prompt, context), weights=weights))
        shared = cached // self.rules.block_tokens
        held = float(np.average(_blocks(setup, prompt, context) - shared, weights=weights))
        by_memory = (self.rules.n_blocks - self.rules.watermark_blocks) / max(held, 1e-9)
        self.most = min(float(self.rules.max_num_seqs), by_memory)
        self.short_of = "kv_blocks" if by_memory < self.rules.max_num_seqs else "max_num_seqs"
        self._known: dict[tuple[int, int], float] = {}

    def _step_s(self, mode: int, n: float) -> float:
        """Decode step of a real number of sequences, between those of whole ones [s]."""
        low = min(max(int(n), 1), self.rules.max_num_seqs)
        high = min(low + 1, self.rules.max_num_seqs)
        part = min(max(n - low, 0.0), 1.0)
        return (1 - part) * self._whole_s(mode, low) + part * self._whole_s(mode, high)

    def _whole_s(self, mode: int, n: int) -> float:
        if (mode, n) not in self._known:
            cost, _, width = self.modes[mode]
            fitting = min(n, int(self.rules.max_num_batched_tokens / width))
            beside = Beside(max(fitting, 1), self._context, width, self._cold)
            self._known[mode, n] = decode_s(cost, self.rules, beside)
        return self._known[mode, n]

    def at(self, n: float, among: bool = True) -> State:
        """The state in which ``n`` sequences decode on average.

        Parameters
        ----------
        n : float
        among : bool
            A request sees them beside itself; else it is alone.
        """
        seen = 1 + n if among else 1.0
        mode, work_s, step_s = self._work(seen)
        full_s, extra_s = self._prefills(mode, seen if among else 0.0, step_s)
        # Where nobody decodes, any time will do: prefills alone then fill the replica.
        alone_s = float(work_s.mean() or extra_s.mean() or full_s.mean())
        rate = n / (alone_s + n * float(extra_s.mean()))
        load = rate * float(extra_s.mean())
        slope = self._slope(mode, n) / step_s if among else 0.0
        square = float(extra_s.var()) + self._even * float(extra_s.mean()) ** 2
        held = _held(work_s, square, rate, load, slope * math.sqrt(self._even * n))
        wait = self._wait(rate, load, step_s, square)
        behind, fits = self._behind(rate, seen, step_s, extra_s, wait)
        busy = 1 - math.exp(-n - rate * float(full_s.mean()))
        wait = Spread(busy * (wait.mean + behind.mean), busy * (wait.variance + behind.variance))
        offered = min(n + rate * float(full_s.mean()), 0.999 * self.most)
        queued, queue_s = self._admission(offered, work_s + held.mean)
        own = full_s + self.rules.request_s
        return State(n, rate, load, fits, work_s, own, held, wait, queued, queue_s)

    def _work(self, n: float) -> tuple[int, Floats, float]:
        """Best mode, decode time of each request, and a mean step [s]."""
        each = [(mode.steps * self._step_s(i, n)) for i, mode in enumerate(self.modes)]
        best = min(range(len(each)), key=lambda i: float(each[i].sum()))
        work = np.minimum.reduce(each)
        return best, work, self._step_s(best, n)

    def _slope(self, mode: int, n: float) -> float:
        """What one more sequence adds to a step, over the batches it may meet [s]."""
        around = max(math.sqrt(n), 0.5)
        low, high = max(1 + n - around, 1.0), 1 + n + around
        return (self._step_s(mode, high) - self._step_s(mode, low)) / (high - low)

    def _prefills(self, mode: int, n: float, step_s: float) -> tuple[Floats, Floats]:
        """Each request's prefill, and what it adds to the steps of others [s]."""
        exclusive = self.rules.exclusive_prefill
        cost, _, width = self.modes[mode]
        beside = Beside(0 if exclusive else round(n), self._context, width, self._cold)
        priced = [prefill_s(cost, self.rules, beside, p, self._cached) for p in self._priced]
        full = np.array([seconds for seconds, _ in priced])
        steps = np.array([count for _, count in priced], dtype=float)
        extra = full if exclusive else np.maximum(full - steps * step_s, 0.0)
        at, priced_at = self._computed, self._priced
        return np.interp(at, priced_at, full), np.interp(at, priced_at, extra)

    def _wait(self, rate: float, load: float, step_s: float, square: float) -> Spread:
        """The rest of the step that runs, and prefills of those who came in it.

        A step carries the prefills of those who came during an earlier one: its length has mean
        ``step / (1 - load)``, and a variance that repeats itself by ``load ** 2``. An engine that
        plans ahead lets one more step pass.
        """
        mean = step_s / max(1 - load, 1e-6)
        spread = rate * mean * square / max(1 - load**2, 1e-6)
        c = spread / mean**2
        met, met_var = mean * (1 + c), mean**2 * (1 + c) * c
        rest, rest_var = met / 2, mean**2 * ((1 + c) * (1 + 2 * c) / 3 - (1 + c) ** 2 / 4)
        total = rest + load * met
        variance = rest_var + rate * met * square + (load**2 + load) * met_var
        if self.rules.async_scheduling:
            total, variance = total + mean, variance + spread
        return Spread(total, variance)

    def _behind(
        self, rate: float, n: float, step_s: float, extra_s: Floats, wait: Spread
    ) -> tuple[Spread, bool]:
        """What a queue of prompts adds where steps are filled by their budget of tokens."""
        room = self.rules.max_num_batched_tokens
        if not self.rules.exclusive_prefill:
            room -= round(n * self.modes[0].width)
        if room <= 0:
            return Spread(0.0, 0.0), False
        part = self._computed / room
        service = extra_s + (0.0 if self.rules.exclusive_prefill else step_s) * part
        load = rate * float(service.mean())
        if load >= 1:
            return Spread(0.0, 0.0), False
        mean = rate * float((service**2).mean()) / (2 * (1 - load))
        variance = mean**2 + rate * float((service**3).mean()) / (3 * (1 - load))
        more = max(mean - float(wait.mean), 0.0)
        return Spread(more, max(variance - float(wait.variance), 0.0) if more else 0.0), True

    def _admission(self, offered: float, stays_s: Floats) -> tuple[float, float]:
        """P(no place is free), and the mean wait for one then [s]: G/G/c of as many places."""
        places, stay_s = int(self.most), max(float(stays_s.mean()), 1e-9)
        if offered < places - 8 * math.sqrt(places):
            return 0.0, 1.0
        # Allen and Cunneen's factor for arrivals and stays that are not exponential.
        uneven = (self._even + float(stays_s.var()) / stay_s**2) / 2
        busy = erlang_c(offered / stay_s, stay_s, places) if offered < places else 1.0
        return busy, uneven * stay_s / max(places - offered, 1e-3)


def _held(work_s: Floats, square: float, rate: float, load: float, swing: float) -> Spread:
    """Others' prefills while each request decodes, and what the batch's swings add.

    ``square`` is the variance that arrivals of one second bring, over their number [s^2]; ``swing``
    is the relative deviation of a step, which over a long stay averages out.
    """
    free = max(1 - load, 1e-6)
    mean, stay = work_s * load / free, work_s / free
    variance = work_s * rate * square / free**3
    x = np.maximum(stay / max(float(stay.mean()), 1e-12), 1e-6)
    kept = 2 * (x - 1 + np.exp(-x)) / x**2
    return Spread(mean, variance + (swing * work_s) ** 2 * kept)


def _blocks(setup: Setup, prompt: Ints, context: Ints) -> Ints:
    """Blocks each request holds half way through its answer, or all along."""
    kv = setup.rules.kv
    if setup.rules.preemption == "never":
        return kv.most(prompt, 2 * context - prompt)
    return kv.blocks(prompt, context)


def _modes(setup: Setup, traffic: Traffic) -> tuple[Mode, ...]:
    """Ways its sequences may decode; a request is taken to find the best of them at once."""
    engine, names = setup.deployment.engine, traffic.domain_names
    parts: list[tuple[Strategy, StepCost, Law]] = [(setup.strategy, setup.step_time, setup.law)]
    if setup.modes is not None:
        laws = (
            setup.deployment.thinned(mode.law(engine, names), names)
            for mode in setup.strategy.modes
        )
        parts = list(zip(setup.strategy.modes, setup.modes.time.times, laws, strict=True))
    found = []
    for strategy, cost, law in parts:
        key = f"{engine.name} {setup.deployment.kv_loss} {setup.deployment.kv_policy} {strategy!r}"
        drawn = traffic.decoding(law, key)
        found.append(Mode(cost, drawn.steps, drawn.width or strategy.verify_tokens))
    return tuple(found)
