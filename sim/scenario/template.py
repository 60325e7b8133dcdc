"""A commented scenario to start from, and the JSON schema for editors."""

from __future__ import annotations

import json
from typing import Any

from models import catalog
from models.schema import ModelError
from models.strategies import strategy_types
from models.strategies.modes import Switching
from models.strict_yaml import InputError, load_yaml
from sim.scenario.checks import blame
from sim.scenario.load import parse_scenario
from sim.scenario.schema import BASELINE, Scenario

_COMMON_KEYS = frozenset({"kind", "label", "hypothetical"})

_TEMPLATE = """\
# Which strategy should serve this model at this load? Keys behind a '#' are optional.
# Run it with `speccast run FILE`; `speccast explain FILE` takes one engine step apart.
hardware:
  gpu: {gpu:<26} # speccast catalog hardware
  # gpus: {tp:<23} # GPUs paid for; default tp x replicas
  # profile: h100_sxm             # kernel constants, a file of yours too; default the GPU's own
  # kernels: auto                 # roofline: closed forms; table: rows measured beside the profile
  # price_per_gpu_hour: 2.9       # USD; default a dated list price; 0: not known

model:
  transformer: {transformer:<18} # speccast catalog transformers, or a config.json
  tp: {tp:<27} # tensor-parallel GPUs a replica
  # replicas: 1                   # copies behind the router; default as many as the GPUs hold
  # weights: bf16                 # bf16, fp8, int8, int4
  # kv: bf16                      # bf16, fp8, int4
  # kv_loss: {{acceptance_loss: 0.02, quality_loss: 0.01}}  # of fp8 or int4 KV, which needs it

engine:
  name: vllm_0.15                 # speccast catalog engines
  # max_num_seqs: 256             # most sequences a step; default the engine's
  # max_num_batched_tokens: 8192  # most tokens a step; default the engine's
  # max_model_len: 32768          # longest prompt plus output; default the model's, at most this
  # gpu_memory_utilization: 0.9
  # tree_kv: inline               # copy_on_write, contiguous: where branches of a tree keep KV
  # kv_policy: {{kind: streaming_llm, sinks: 4, window: 2000, acceptance_loss: 0.02,
  #             quality_loss: 0.05}}  # both losses are yours to state; or one of
  # kv_policy: {{kind: snapkv, budget_tokens: 1024, acceptance_loss: 0, quality_loss: 0}}
  # kv_policy: {{kind: offload, hot_tokens: 2048, gb_per_s: 50, latency_us: 20, overlap: true,
  #             acceptance_loss: 0, quality_loss: 0}}
  # launches: {{per_step_us: 1400, per_pass_us: 100, plain: true}}  # overhead of the engine's mode
  # constants: {{host_plain.per_step_us: 600}}  # host constants of your own, by name
  # router: least_outstanding     # round_robin, power_of_two, prefix_affinity, shared_queue
  # router_refresh_s: 0           # how old the loads may be that it knows; 0: exact
  # queue_limit: 200              # requests waiting in a replica; more are refused (HTTP 429)

workload:
  arrivals: {{kind: poisson, rate_per_s: 4}}
  # arrivals: {{kind: poisson, rate_per_s: 4, exact_rate: true}}  # as load generators fill a stage
  # arrivals: {{kind: constant, rate_per_s: 4}}
  # arrivals: {{kind: gamma, rate_per_s: 4, cv: 2}}              # bursty above cv 1
  # arrivals: {{kind: on_off, rate_per_s: 4, on_s: 20, off_s: 60, off_share: 0.1}}   # bursts
  # arrivals: {{kind: ramp, from_per_s: 1, to_per_s: 8, over_s: 600}}
  # arrivals: {{kind: diurnal, mean_rate_per_s: 4, peak_factor: 2, peak_hour: 14, start_hour: 0,
  #            period_s: 86400, cv: 1}}                           # cv: of the gaps, 1 is Poisson
  # arrivals: {{kind: closed_loop, users: 32, think_s: 5, think_cv: 1, stagger_s: 2}}
  # arrivals:                     # a recorded trace: arrivals and lengths, so streams give none
  #   kind: trace
  #   file: traces/mine.csv       # plain or gzip
  #   format: auto                # azure, burstgpt, mooncake, csv
  #   rate_scale: 1               # 2: twice the requests in the same time; 0.5: half of them
  #   time_scale: 1               # 2: at half the speed
  #   from_s: 0                   # the part replayed, in the trace's own seconds
  #   to_s: 600
  #   bad_lines: refuse           # or skip
  #   stream_from: model          # column that names the stream: model, log_type or stream
  requests: 1000                  # in one replication; a closed loop needs many a user
  # duration_s: 3600              # in place of requests: all that arrives until then
  # sampling: default             # greedy, top_p, or as the model's own config says
  streams:                        # shares sum to 1
    - name: chat
      share: 0.7
      prompt_tokens: {{kind: lognormal, mean: 500, cv: 0.8}}     # min: and max: cut any length
      output_tokens: {{kind: lognormal, mean: 250, cv: 0.7}}
      prefix: {{tokens: 200, groups: 10, order: random}}         # shared system prompts; or
                                  # {{tokens: all, groups: 100, order: cycle}}: prompts recur
      # session: {{turns: {{kind: lognormal, mean: 3.5, cv: 1}}, think_s: 10, think_cv: 1,
      #           max_tokens: 8192}}  # prompts grow by prompt_tokens a turn; rates count sessions
      # lengths: {{kind: trace, file: traces/mine.csv}}  # in place of both: pairs of a trace's rows
    - name: sql
      share: 0.3
      prompt_tokens: {{kind: normal, mean: 900, sd: 100}}        # or {{kind: fixed, value: 900}}
      output_tokens: {{kind: empirical, values: [60, 120, 300], weights: [2, 5, 1]}}
      domain: sql                 # acceptance may differ by domain, see below
      # slo_class: batch            # one of slo.classes; default the bounds outside of them
  # Shares and domains may change: a place is a time in seconds or, with `unit: share`, the share of
  # the run's requests sent before. Where a share changes all are relative weights at each instant.
  #   share: {{at: [[0, 0.7], [600, 0.2]], unit: s}}   # lines; the same place twice is a step
  #   domain: {{kind: step, before: chat, after: sql, at: 0.5, unit: share}}
  #   domain: {{kind: linear, before: chat, after: sql, start: 300, end: 900}}
  #   domain: {{kind: regimes, domains: [chat, sql], dwell: [60, 20], dwell_cv: 1}}  # 0: constant
  #   domain: {{kind: trace, file: domains.csv}}       # columns at,domain

  # client: {{timeout_s: 60, first_token_timeout_s: 10, retries: 2, backoff_s: 1,
  #          backoff_factor: 2, jitter: 0.5}}

# Replicas that die; requests they had are sent again, or lost with `in_flight: lose`.
# failures:
#   - {{replica: 0, at_s: 600, restart: {{load_bytes_per_s: 5e9, boot_s: 30}}, in_flight: resend}}

# Plain decoding is the baseline. `label: name` renames a row, `hypothetical: true` allows what the
# engine version cannot run. Acceptance is published unless you state yours, in one of these ways:
#   acceptance: {{tau: 2.4}}                        tokens a step of this very strategy
#   acceptance: {{tau_at_k: 2.4, at_k: 3}}          tokens a step at another K
#   acceptance: {{alpha: 0.7}}                      chance of a draft token, all before accepted
#   acceptance: {{alpha_by_pos: [0.75, 0.7, 0.7]}}  the same by position
#   acceptance: {{catalog: NAME}}                   speccast catalog acceptance
#   acceptance: {{tau: 2.4, by_domain: {{sql: {{tau: 1.9}}}}}}
strategies:
  - {{kind: autoregressive}}
  - {{kind: eagle3, k: 3}}
  - {{kind: ngram, k: 3}}
{strategies}  # Strategies made of others, between which sequences switch; no engine ships one:
  # - {{kind: adaptive, hypothetical: true, primary: {{kind: medusa, hypothetical: true}},
  #    fallback: {{kind: ngram}}, measure: acceptance, leave_below: 0.35, return_above: 0.4,
  #    window_tokens: 50, window_of: request, dwell_steps: 16,
  #    return: {{kind: probe, every_steps: 64, steps: 1}}}}
  #    # or return: {{kind: dwell}}, return: {{kind: proxy, power: 0.5}}
  # - {{kind: dynamic_k, hypothetical: true, primary: {{kind: eagle3, k: 5}}, reserve: largest,
  #    rule: {{kind: schedule, by_batch: [[1, 5], [16, 3], [64, 0]], dead_band: 4}}}}
  #    # or rule: {{kind: goodput, window_tokens: 500}}, rule: {{kind: proxy, power: 0.5}}
  # - {{kind: oracle, hypothetical: true, among: [{{kind: autoregressive}}, {{kind: ngram}}]}}
  #    # a bound: every row tells its regret

slo:                              # p50, p90, p95, p99 of ttft_s, tpot_s, e2e_s, in seconds
  ttft_s: {{p95: 0.5}}
  tpot_s: {{p95: 0.05}}
  # e2e_s: {{p99: 30}}
  # attainment: 0.95              # share of requests that must meet every bound
  # classes:                      # bounds of the streams that name one by slo_class
  #   batch: {{e2e_s: {{p95: 60}}, attainment: 0.95}}

run:
  seed: 1
  # replications: 1               # independent repeats
  # warmup: auto                  # or the share of requests left out at the start
  # window_s: 300                 # the worst stretch of this length is told, five minutes here
  # band: true                    # also run at the low and high end of the band
  # baseline: true                # also run plain decoding where it is not listed

# vary:                           # all combinations, one run each
#   workload.arrivals.rate_per_s: [2, 4, 8]
#   strategies[1].k: [2, 3, 5]
#   strategies[2].k, strategies[3].k: [2, 4]  # several keys that take the same value
#   hardware.gpu: [h100_sxm, a100_80g_sxm]    # or words; mappings and lists too
# vary: [{{model.tp: 2, run.seed: 1}}, {{model.tp: 4, run.seed: 2}}]  # or these points only
"""


def json_schema() -> dict[str, Any]:
    """JSON schema of a scenario file, for completion and checks in an editor."""
    schema = Scenario.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def commented_scenario(
    transformer: str = "llama-3.1-70b", hardware: str = "h100_sxm", tp: int = 4
) -> str:
    """Write a scenario file that runs as it is and explains every key.

    Parameters
    ----------
    transformer, hardware : str
        Catalogue names; the transformer may be a config.json.
    tp : int
        Tensor-parallel GPUs a replica.

    Raises
    ------
    InputError
        If a name is unknown, or the model cannot run there.
    """
    known = transformer in catalog.names("transformers")
    text = _TEMPLATE.format(
        gpu=hardware,
        transformer=transformer if known else json.dumps(transformer, ensure_ascii=False),
        tp=tp,
        strategies=_strategies(),
    )
    try:
        with blame("model.transformer"):
            catalog.transformer(transformer)
        with blame("hardware.gpu"):
            catalog.hardware(hardware)
        parse_scenario(load_yaml(text, "speccast init"))
    except (InputError, ModelError) as error:
        # The user never sees the text, so its lines would only puzzle.
        message = error.message if isinstance(error, InputError) else str(error)
        raise InputError("speccast init", None, error.key, message) from None
    return text


def _strategies() -> str:
    """Comment lines: every strategy and the keys it takes."""
    lines = ["  # the others, and the keys each takes:\n"]
    for kind, strategy in strategy_types().items():
        if kind == BASELINE or issubclass(strategy, Switching):
            continue
        keys = ", ".join(key for key in strategy.model_fields if key not in _COMMON_KEYS)
        lines.append(f"  # - {{kind: {kind}}}".ljust(32) + f"# {keys}\n")
    return "".join(lines)
