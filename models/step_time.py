"""Time of one engine step: the draft phase, the verify pass after it, the host around both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.engine import Engine
from models.forward_pass import (
    Attention,
    PassTime,
    draft_seconds,
    graph_sizes,
    head_parts,
    layer_parts,
    padded,
    total,
)
from models.gemm import US
from models.kernels import Kernels
from models.launches import NO_LAUNCHES, Launches
from models.schema import Dtype, KvDtype
from models.strategies import DraftPass, Strategy
from models.transformer import Transformer


@dataclass(frozen=True)
class Deployed:
    """The network a step runs, and how it is placed on the GPUs."""

    kernels: Kernels
    target: Transformer
    engine: Engine
    weights: Dtype
    kv: KvDtype
    tp: int
    top_p: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    launches: Launches = NO_LAUNCHES


class StepTime:
    """Step time of one strategy on one deployment, as look-ups.

    Parameters
    ----------
    deployed : Deployed
        ``top_p`` says that sampling sorts or filters the logits; greedy sampling is free beyond
        the arg-max of the LM head.
    strategy : Strategy
    """

    def __init__(self, deployed: Deployed, strategy: Strategy) -> None:
        self.deployed, self.strategy = deployed, strategy
        self.width = strategy.verify_tokens
        self._tokens = deployed.max_num_batched_tokens + 1
        self._rows = self._tokens + deployed.max_num_seqs
        kernels, target, tp = deployed.kernels, deployed.target, deployed.tp
        self._decode_pad = self._padding(decode_only=True)
        self._mixed_pad = self._padding(decode_only=False)
        m, rows = np.arange(self._tokens), np.arange(self._rows)
        layers = total(layer_parts(kernels, target, deployed.weights, deployed.kv, tp, m))
        self._decode_body: list[float] = layers[self._decode_pad].tolist()
        self._mixed_body: list[float] = layers[self._mixed_pad].tolist()
        self._head: list[float] = total(head_parts(kernels, target, tp, rows)).tolist()
        tree = deployed.engine.tree_attention if strategy.needs_tree else None
        placed = kernels, target, deployed.kv, tp, self.width
        self._attention = Attention.of_tree(*placed, tree) if tree else Attention.of(*placed)
        engine, weights = deployed.engine, deployed.weights
        sampler = engine.sampler
        self._draft_sampler = self._sampling(sampler.draft_s_per_logit.value)
        shared = sampler.bonus_with_drafts and strategy.drafted > 0
        own = self._sampling(sampler.s_per_logit.value)
        self._sampler = self._draft_sampler if shared else own
        self._passes = [
            self._pass_time(draft) for draft in strategy.draft_passes(target, engine, weights, tp)
        ]
        self._host, self._host_drafts = self._host_table(), self._host_of_drafts()
        drafted = zip(self._draft_sampler, self._host_drafts, strict=True)
        self._drafted = [sampler + host for sampler, host in drafted]
        drafts = sum(draft.slope(self.width) for draft in self._passes)
        far = self._attention.far(self.width)
        self._slope = self._attention.slope(self.width) + drafts
        self._turn, self._far_s, self._far_slope = far or (0.0, 0.0, 0.0)
        self._far_slope += drafts
        self._decode = [self._start(n, far is not None) for n in range(deployed.max_num_seqs + 1)]

    def _padding(self, decode_only: bool) -> NDArray[np.int64]:
        deployed = self.deployed
        sizes = graph_sizes(
            deployed.engine.graphs,
            self.width,
            deployed.max_num_seqs,
            deployed.max_num_batched_tokens,
            decode_only,
        )
        return padded(sizes, self._tokens)

    def _sampling(self, s_per_logit: float) -> list[float]:
        """Time to filter 0, 1, ... rows of logits [s]; few or many rows may take other kernels."""
        rows = np.arange(self._rows)
        if not self.deployed.top_p:
            return [0.0] * self._rows
        sampler, vocab = self.deployed.engine.sampler, self.deployed.target.vocab
        rate = np.full(self._rows, s_per_logit)
        sorted_below = sampler.many_rows
        if sampler.small_batch_s_per_logit is not None:
            sorted_below = sampler.small_batch_rows
            rate[rows < sorted_below] = sampler.small_batch_s_per_logit.value
        if sampler.many_s_per_logit is not None:
            rate[rows >= sampler.many_rows] = sampler.many_s_per_logit.value
        seconds = rows * vocab * rate
        if sampler.sort_fixed_us is not None:
            seconds[1:sorted_below] += sampler.sort_fixed_us.value * US
        table: list[float] = seconds.tolist()
        return table

    def _pass_time(self, draft: DraftPass) -> PassTime:
        kernels, engine, net = self.deployed.kernels, self.deployed.engine, draft.net
        m = np.arange(max(self._rows, self.deployed.max_num_seqs * draft.rows + 1))
        if draft.head_only:
            head = kernels.medusa_head(m, net.hidden, net.vocab, draft.tp)
            head = head + kernels.all_reduce(2.0 * m * net.vocab, draft.tp)
            nothing = np.zeros(len(m)).tolist()
            return PassTime(draft.repeat, False, draft.rows, nothing, head.tolist(), *[0.0] * 7)
        parts = layer_parts(kernels, net, draft.weights, self.deployed.kv, draft.tp, m)
        own_vocab = net.vocab != self.deployed.target.vocab
        pass_us, layer_us = engine.draft_us(self.strategy.kind, own_vocab)
        pass_us += self.deployed.launches.per_pass_us
        branches = draft.rows if engine.tree_attention else 1
        if self.strategy.needs_tree and engine.tree_pass_us is not None:
            pass_us += engine.tree_pass_us.value
        pad = np.concatenate([self._mixed_pad, m[self._tokens :]])
        width = self.width if draft.covers_prefill else draft.rows
        attention = Attention.of(kernels, net, self.deployed.kv, draft.tp, width)
        return PassTime(
            draft.repeat,
            draft.covers_prefill,
            draft.rows,
            body=total(parts)[pad].tolist(),
            head=total(head_parts(kernels, net, draft.tp, m)).tolist(),
            kv_s=branches * attention.kv_s,
            read_s=branches * attention.read_s,
            query_s=attention.query_s,
            pair_s=attention.pair_s,
            token_s=attention.token_s,
            floor_s=net.layers * layer_us * US,
            launch_s=pass_us * US,
        )

    def _host_table(self) -> list[float]:
        engine, drafts = self.deployed.engine, self.strategy.depth > 0
        launch_s = US * self.deployed.launches.step_us(drafts)
        if self.strategy.scheduled_ahead(engine):
            return [launch_s] * self._rows
        cost = engine.host_speculative if drafts else engine.host_plain
        step = cost.per_step_us.value + (engine.sampling_us.value if drafts else 0.0)
        if self.deployed.tp in engine.host_step_by_tp_us:
            step += engine.host_step_by_tp_us[self.deployed.tp].value
        fixed, each = self.strategy.host_draft_us()
        sequences = (cost.per_sequence_us.value + each) * np.arange(self._rows)
        table: list[float] = (US * (step + fixed + sequences) + launch_s).tolist()
        return table

    def _host_of_drafts(self) -> list[float]:
        """Host time of 0, 1, ... drafted tokens of a step [s]."""
        engine = self.deployed.engine
        each = engine.host_speculative.per_draft_token_us
        if each is None or self.strategy.scheduled_ahead(engine):
            return [0.0] * self._rows
        table: list[float] = (US * each.value * np.arange(self._rows)).tolist()
        return table

    def _start(self, n: int, lines: bool) -> float | None:
        """Step of ``n`` sequences of no context; None where contexts may not add by a line."""
        if not lines or n * self.width >= self._tokens:
            return None
        if any(draft.floor_binds(n, self.width) for draft in self._passes):
            return None
        return self._full_width(n, 0.0)

    def _full_width(self, n: int, ctx: float) -> float:
        tokens, query_ctx = n * self.width, self.width * ctx
        gpu = self._decode_body[tokens] + self._head[tokens] + self._sampler[n]
        gpu += self._drafted[tokens - n] + self._attention.seconds(ctx, query_ctx)
        return gpu + self.draft_s(n, tokens, ctx, query_ctx, 0.0) + self._host[n]

    def decode(self, n: int, ctx: int) -> float:
        """Step of ``n`` sequences at full width whose contexts sum to ``ctx``, no prefill [s]."""
        start = self._decode[n]
        if start is None:
            return self._full_width(n, ctx)
        if ctx > self._turn:
            return start + self._far_s + self._far_slope * ctx
        return start + self._slope * ctx

    def mixed(
        self,
        n: int,
        ctx: float,
        query_tokens: int,
        query_ctx: float,
        prefill_tokens: int = 0,
        prefill_ctx: float = 0.0,
        pairs: float = 0.0,
        finishing: int = 0,
    ) -> float:
        """Any step [s].

        Parameters
        ----------
        n : int
            Decoding sequences.
        ctx : float
            Sum of their contexts [token].
        query_tokens : int
            Sum of their query tokens.
        query_ctx : float
            Sum of query tokens x context.
        prefill_tokens, prefill_ctx : int, float
            Tokens of all prefill chunks; sum of (done + chunk).
        pairs : float
            Causal pairs of the chunks, sum of ``chunk done + chunk^2 / 2``.
        finishing : int
            Prefills that end in this step and take a head row each.
        """
        tokens, rows = query_tokens + prefill_tokens, n + finishing
        verify = (
            self._mixed_body[tokens]
            + self._head[query_tokens + finishing]
            + self._attention.seconds(ctx + prefill_ctx, query_ctx, pairs, prefill_tokens)
            + self._sampler[rows]
            + self._drafted[query_tokens - n]
        )
        if self._passes:
            all_ctx = ctx + prefill_ctx
            verify += self.draft_s(rows, tokens, all_ctx, query_ctx, pairs, prefill_tokens)
        return verify + self._host[rows]

    def draft_s(
        self,
        sequences: int,
        tokens: int,
        ctx: float,
        query_ctx: float,
        pairs: float,
        prompt_tokens: float = 0.0,
    ) -> float:
        """Draft phase of a step: all passes, one after another [s]."""
        return draft_seconds(self._passes, sequences, tokens, ctx, query_ctx, pairs, prompt_tokens)

    def host_s(self, sequences: int, drafted: int = 0) -> float:
        """Host time a step of ``sequences`` rows and ``drafted`` tokens waits for [s]."""
        return self._host[sequences] + self._host_drafts[drafted]

    def padded(self, n: int, tokens: int) -> NDArray[np.int64]:
        """Tokens computed in a step of ``n`` sequences and ``tokens`` tokens, shape (1,)."""
        full = tokens == n * self.width
        return (self._decode_pad if full else self._mixed_pad)[tokens : tokens + 1]

    def breakdown(self, n: int, ctx: float, query_tokens: int | None = None) -> dict[str, float]:
        """One decode step by component [s]; the values sum to the step.

        Parameters
        ----------
        n : int
            Decoding sequences.
        ctx : float
            Sum of their contexts [token].
        query_tokens : int, optional
            Sum of their query tokens; by default the full width of each.
        """
        deployed = self.deployed
        tokens = n * self.width if query_tokens is None else query_tokens
        kernels, target, tp = deployed.kernels, deployed.target, deployed.tp
        m = self.padded(n, tokens)
        layers = layer_parts(kernels, target, deployed.weights, deployed.kv, tp, m)
        head = head_parts(kernels, target, tp, np.array([tokens]))
        query_ctx = tokens / n * ctx
        return {
            "weights": float(layers["weights"][0]),
            "attention": float(layers["attention"][0]),
            "kv": self._attention.seconds(ctx, query_ctx),
            "elementwise": float(layers["elementwise"][0]),
            "lm_head": float(head["lm_head"][0]),
            "sampling": self._sampler[n] + self._draft_sampler[tokens - n],
            "collectives": float(layers["collectives"][0] + head["collectives"][0]),
            "draft": self.draft_s(n, tokens, ctx, query_ctx, 0.0),
            "host": self.host_s(n, tokens - n),
        }
