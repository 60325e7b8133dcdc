"""A folder of decoding runs as real ones leave it, its times those of the simulator's own model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cpu_forwards import PROFILE, kernels_of

from calibration.decoding.forecast.constants import ENGINE
from calibration.decoding.forecast.steps import Forecast, forecast
from models import catalog
from models.acceptance_file import AcceptanceFile, dump
from models.step_time import Deployed, StepTime
from models.strategies import strategy_types
from sim.tables import COUNT, REQUESTS, SECONDS, STEPS, field, to_arrow, write_parquet

TARGET = "smollm2-135m"
CONSTANTS = {
    "host_plain.per_step_us": 800.0,
    "host_speculative.per_step_us": 680.0,
    "sampling_us": 120.0,
    "request_us": 2500.0,
}
BLOCKS: dict[str, dict[str, Any]] = {
    "autoregressive": {"kind": "autoregressive"},
    "ngram": {"kind": "ngram", "k": 4},
    "draft_model": {"kind": "draft_model", "draft": TARGET, "k": 3},
    "medusa": {"kind": "medusa", "heads": 2, "tree": [2, 2], "shared_lm_head": True},
    "dynamic_k": {"kind": "dynamic_k"},
}
DOMAINS = ("code", "prose")
EACH = 3
STEPS_SCHEMA = [
    *STEPS,
    field("request", COUNT, "", "id"),
    field("sample_s", SECONDS, "s", "choosing tokens"),
]

Record = dict[str, Any]


@cache
def step_time(label: str) -> StepTime:
    """The model's own step time, with `CONSTANTS`."""
    block = {"kind": "autoregressive"} if label == "dynamic_k" else BLOCKS[label]
    engine = catalog.engine(ENGINE).with_constants(CONSTANTS)
    net = catalog.transformer(TARGET)
    deployed = Deployed(
        kernels_of(PROFILE), net, engine, "bf16", "bf16", 1, False, 1, max_num_batched_tokens=1024
    )
    return StepTime(deployed, strategy_types()[block["kind"]].model_validate(block))


class Runs:
    """Everything a runs folder and its acceptance file hold; ``slower`` scales measured steps."""

    def __init__(self, seed: int = 5, slower: float = 1.0) -> None:
        self.rng, self.slower = np.random.default_rng(seed), slower
        self.requests: list[Record] = []
        self.steps: list[Record] = []
        self.accepted: dict[str, dict[str, list[str]]] = {}
        self.drafted: dict[str, dict[str, list[str]]] = {}
        for label in BLOCKS:
            now_s = 0.0
            for request, domain in enumerate(d for d in DOMAINS for _ in range(EACH)):
                now_s = self._request(label, request, domain, now_s)

    def _request(self, label: str, request: int, domain: str, now_s: float) -> float:
        prompt, output = 40 + 17 * request, 20 + 5 * request
        own = {"strategy": label, "point": "", "replication": 0, "replica": 0}
        start_s, prefill_s = now_s, self._prefill(own, label, request, prompt, now_s)
        now_s += prefill_s
        steps = list(self._steps(label, prompt, output))
        for _, width, context, emitted in steps:
            now_s += self._step(own, label, request, now_s, (width, context, emitted))
        self.requests.append(
            own
            | {
                "id": request,
                "session": request,
                "stream": domain,
                "domain": domain,
                "status": "finished",
                "arrival_s": start_s,
                "schedule_s": start_s,
                "first_token_s": start_s + prefill_s,
                "finish_s": now_s,
                "prompt_tokens": prompt,
                "output_tokens": output,
                "n_steps": len(steps),
                "drafted": sum(width - 1 for _, width, _, _ in steps),
                "accepted": sum(accepted for accepted, _, _, _ in steps),
                **dict.fromkeys(("cached_tokens", "preemptions", "discarded_tokens"), 0),
                "attempts": 1,
            }
        )
        for kept, column in ((self.accepted, 0), (self.drafted, 1)):
            numbers = [step[column] - column for step in steps]
            text = " ".join(map(str, numbers))
            kept.setdefault(label, {}).setdefault(domain, []).append(text)
        return now_s

    def _steps(self, label: str, prompt: int, output: int) -> Iterator[tuple[int, int, int, int]]:
        """Accepted, width, context and emitted of each step."""
        strategy, emitted = step_time(label).strategy, 1
        while emitted < output:
            drafted = strategy.drafted
            if label == "ngram" and self.rng.random() < 0.5:
                drafted = 0
            accepted = int(self.rng.integers(min(strategy.depth, drafted) + 1))
            kept = min(accepted + 1, output - emitted)
            yield accepted, 1 + drafted, prompt + emitted, kept
            emitted += kept

    def _prefill(self, own: Record, label: str, request: int, prompt: int, now_s: float) -> float:
        seconds = step_time(label).mixed(0, 0, 0, 0, prompt, prompt, prompt**2 / 2, 1)
        host_s = CONSTANTS["request_us"] * 1e-6
        self._add(own, request, now_s, Forecast(0.0, seconds, 0.0, host_s), (0, prompt, 0, 1))
        return seconds + host_s

    def _step(
        self, own: Record, label: str, request: int, now_s: float, counts: tuple[int, int, int]
    ) -> float:
        width, context, emitted = counts
        parts = Forecast(*(self.slower * s for s in forecast(step_time(label), context, width)))
        self._add(own, request, now_s, parts, (1, 0, width, emitted))
        return sum(parts)

    def _add(
        self,
        own: Record,
        request: int,
        start_s: float,
        parts: Forecast,
        counts: tuple[int, int, int, int],
    ) -> None:
        names = ("n_decode", "prefill_tokens", "verify_tokens", "emitted")
        self.steps.append(
            {
                **own,
                "request": request,
                "start_s": start_s,
                "duration_s": sum(parts),
                **parts._asdict(),
                **dict(zip(names, counts, strict=True)),
                "blocks_used": 0,
                "waiting": 0,
            }
        )

    def write(self, folder: Path) -> Path:
        """Write the folder; the acceptance file lies beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        tables = (
            ("requests", REQUESTS, self.requests),
            ("steps", pa.schema(STEPS_SCHEMA), self.steps),
        )
        for name, schema, records in tables:
            columns = {one.name: np.array([r[one.name] for r in records]) for one in schema}
            write_parquet(to_arrow(schema, columns), folder / f"{name}.parquet")
        about = {"target": TARGET, "strategies": BLOCKS, "date": "2026-11-30", "machine": "here"}
        (folder / "run.json").write_text(json.dumps(about), "utf-8")
        acceptance = folder.parent / "acceptance.yaml"
        acceptance.write_text(dump(self.acceptance()), "utf-8")
        return acceptance

    def acceptance(self) -> AcceptanceFile:
        """Rates by position as they were recorded, and the records."""
        entries = {
            label: self._entry(label, block)
            for label, block in BLOCKS.items()
            if label not in ("autoregressive", "dynamic_k")
        }
        about = {"version": 1, "title": "made up", "target": TARGET, "date": "2026-11-30"}
        return AcceptanceFile.model_validate(about | {"source": "made up", "entries": entries})

    def _entry(self, label: str, block: dict[str, Any]) -> Record:
        strategy = step_time(label).strategy
        replay, fits = {}, {}
        for domain, texts in self.accepted[label].items():
            replay[domain] = {"accepted": texts}
            fits[domain] = {"alpha_by_pos": [0.5] * strategy.depth, "spread": 0.0}
            if label == "ngram":
                replay[domain]["drafted"] = self.drafted[label][domain]
                fits[domain]["match_rate"] = 0.5
        shape = {"drafted": strategy.drafted, "depth": strategy.depth}
        return {
            "strategy": block,
            **({"shape": shape} if label == "medusa" else {}),
            "acceptance": {"by_domain": fits},
            "replay": replay,
        }
