"""A small run in which sequences switch, by request, by stream and for a whole engine."""

from __future__ import annotations

from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.load import ScenarioFile, parse_scenario

STREAM = "prompt_tokens: {kind: fixed, value: 99}, output_tokens: {kind: fixed, value: 70}"
DRAFTS = "{kind: eagle3, k: 3, acceptance: {by_domain: {chat: {alpha: 0.8}, sql: {alpha: 0.1}}}}"
GATE = f"kind: adaptive, hypothetical: true, primary: {DRAFTS}, window_tokens: 20, dwell_steps: 4"
TEXT = f"""\
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-8b, replicas: 2}}
engine: {{max_num_seqs: 4}}
workload:
  arrivals: {{kind: closed_loop, users: 8}}
  requests: 40
  streams:
    - {{name: chat, share: 0.5, domain: chat, {STREAM}}}
    - {{name: sql, share: 0.5, domain: sql, {STREAM}}}
strategies:
  - {DRAFTS}
  - {{{GATE}, label: gate, return: {{kind: probe, every_steps: 8}}}}
  - {{{GATE}, label: by stream, window_of: stream, fallback: {{kind: lookahead, label: window}}}}
  - {{kind: dynamic_k, hypothetical: true, label: dynamic, primary: {DRAFTS},
     rule: {{kind: schedule, by_batch: [[1, 3], [3, 1]]}}}}
  - {{kind: oracle, hypothetical: true, label: oracle, among: [{{kind: autoregressive}}, {DRAFTS}]}}
run: {{band: false}}
"""
FIXED = ("autoregressive", "eagle3 K=3")
SWITCHING = ("gate", "by stream", "dynamic", "oracle")


def scenario(*changes: str, text: str = TEXT) -> ScenarioFile:
    return parse_scenario(load_yaml(text, "modes.yaml"), changes)


def ran(*changes: str, keep_steps: bool = False) -> experiment.Result:
    return experiment.run(scenario(*changes), keep_steps=keep_steps)
