"""A small file of claims, reproduced only if, contradicted, and not decidable."""

SMALL = """\
scenarios:
  small:
    hardware: {gpu: h100_sxm}
    model: {transformer: llama-3.1-8b}
    workload:
      arrivals: {kind: closed_loop, users: 1}
      requests: 8
      sampling: greedy
      streams:
        - prompt_tokens: {kind: fixed, value: 100}
          output_tokens: {kind: fixed, value: 20}
    strategies:
      - {kind: autoregressive, label: plain}
      - {kind: medusa, label: heads, heads: 4, acceptance: {alpha: 0.9}}
claims:
  - id: fast
    claim: Heads make it faster.
    setting: one stream
    source: own notes
    scenario: small
    tested:
      - {measure: speedup, strategy: heads, claimed: {min: 1.2}}
    arithmetic:
      a step: {measure: step_s, strategy: plain}
    sensitivity:
      key: strategies[1].acceptance.alpha
      values: [0.9, 0.05]
  - id: free
    claim: Heads are free.
    setting: any
    source: own notes
    scenario: small
    tested:
      - {measure: added_weight_bytes, name: weights, claimed: {max: 0}}
    arithmetic:
      one head: {measure: head_lm_bytes}
    because: a head has {one head} of its own
  - id: open
    claim: Answers are better.
    setting: any
    source: own notes
    scenario: small
    missing: quality, which no clock shows
"""
