"""The folder of an observation, written from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.live import recording
from calibration.live.address import public
from calibration.live.observe import rows
from calibration.live.observe.journal import FILE, Journal, Key, Measured
from calibration.live.observe.options import Options
from calibration.live.observe.remarks import contradicted, remarks
from calibration.live.observe.rows import Row
from calibration.live.observe.schedule import Planned, stages
from calibration.live.recording import Stage
from calibration.live.rows import LATE_S
from calibration.live.server.per_request import Speculated, acceptance_columns
from sim.manifest import speccast_version
from sim.tables import STATUS_NAMES, Columns, RunTable, Status

FILES = (
    *(recording.ABOUT, recording.TABLE, recording.STAGES, recording.STEPS_TABLE),
    *(recording.SAMPLES, recording.ERRORS, FILE),
)


class Kept:
    """What an observation has measured so far, stage by stage.

    Attributes
    ----------
    stages : list of Stage
        Those of which any request is known.
    runs : list of RunTable
        Their requests.
    rows : list of list of Row
        The same as they were kept.
    notes : list of str
        What the tables leave out, and what is odd about them.
    wrong : str
        What the server told against the strategy that was stated; empty for nothing.
    """

    def __init__(self, options: Options, journal: Journal) -> None:
        self._options, self._journal = options, journal
        self.stages: list[Stage] = []
        self.runs: list[RunTable] = []
        self.rows: list[list[Row]] = []
        self.notes: list[str] = []
        self.wrong = ""
        self._steps: Columns | None = None
        self._told: list[list[Speculated | None]] = []
        self._collect({})

    def write(
        self,
        flying: Mapping[Key, Sequence[Row]] = {},
        at: Planned | None = None,
        texts: Mapping[str, str] = {},
    ) -> list[Path]:
        """Write all tables; rows of ``flying`` are in no journal, since they are sent again."""
        self._collect(flying)
        named = self._named(at, texts) if at else {}
        if not self.runs:
            return []
        return recording.write(
            self._options.out,
            self.about(),
            self.stages,
            self.runs,
            acceptance=self._steps,
            samples=self._samples(),
            texts=named,
            errors=self.errors(),
        )

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        options = self._options
        return {
            "made_by": "observe",
            "date": self._journal.date,
            "speccast": speccast_version(),
            "target": options.asking.model,
            "machine": options.machine,
            "base_url": public(options.asking.base_url),
            "api": options.asking.api,
            "mode": options.asked.mode,
            "server": {"engine": "unknown", "version": None, **self._journal.server},
            "strategies": {options.label: options.block},
            "options": options.settings(),
            "notes": [*self.notes, *([f"the server {self.wrong}"] if self.wrong else [])],
        }

    def errors(self) -> list[dict[str, Any]]:
        """Every request that did not finish, and why."""
        return [
            {
                "point": stage.name,
                "replication": stage.replication,
                "id": row.id,
                "status": STATUS_NAMES[row.status],
                "http_status": row.http_status,
                "message": row.message,
            }
            for stage, own in zip(self.stages, self.rows, strict=True)
            for row in own
            if row.status != Status.FINISHED
        ]

    @property
    def answered(self) -> bool:
        """Whether any request finished."""
        return any(row.status == Status.FINISHED for own in self.rows for row in own)

    @property
    def failures(self) -> str:
        """How many requests failed, and why most did; empty where none did."""
        every = [row for own in self.rows for row in own]
        why = Counter(
            row.message for row in every if row.status not in (Status.FINISHED, Status.UNFINISHED)
        )
        if not why:
            return ""
        common = why.most_common(1)[0][0].rstrip(".")
        lead = f"{why.total()} of {len(every)} requests failed"
        return f"{lead}, most often as: {common}; see {recording.ERRORS}"

    def _collect(self, flying: Mapping[Key, Sequence[Row]]) -> None:
        """Put the stages together, those of earlier runs with other repeats included."""
        self.stages, self.runs, self.rows, self._told = [], [], [], []
        points = {one.name: one.point for one in stages(self._options.asked)}
        for key, measured in self._in_order(points):
            known = {**{row.id: row for row in flying.get(key, ())}, **measured.rows}
            own = [known[number] for number in sorted(known)]
            if not own:
                continue
            stage = self._stage(points[key[0]], key[1], measured, own)
            self.stages.append(stage)
            self.rows.append(own)
            told = [rows.speculation(row) for row in own]
            self._told.append(told)
            table = rows.columns(own, told)
            self.runs.append(RunTable(stage.point, stage.strategy, stage.replication, table))
        self._steps, notes = self._acceptance()
        self.notes = [*notes, *remarks(self._journal, self._options.same_prompts)]
        self.wrong = contradicted(self._journal, self._options.block)

    def _named(self, at: Planned, texts: Mapping[str, str]) -> dict[str, str]:
        """Files of what the server said around the last part of a stage: none is written twice."""
        part = len(self._journal.of(at).begun)
        stem = f"{at.name}.{at.replication}" + (f".part{part}" if part > 1 else "")
        return {f"{stem}.{when}.txt": text for when, text in texts.items()}

    def _acceptance(self) -> tuple[Columns | None, list[str]]:
        """Steps of requests, numbered through over all stages, which each begin at 0."""
        told, before = [], 0
        for own, said in zip(self.rows, self._told, strict=True):
            pairs = zip(own, said, strict=True)
            told += [(before + row.id, row.domain, one) for row, one in pairs if one is not None]
            before += max(row.id for row in own) + 1
        steps, note = acceptance_columns(self._options.label, told)
        of_requests = dict.fromkeys(one.note for _, _, one in told) if steps is None else {}
        return steps, [text for text in (*of_requests, note) if text]

    def _in_order(self, points: Mapping[str, Any]) -> list[tuple[Key, Measured]]:
        """By repeat, then as the ladder has them."""
        order = {name: place for place, name in enumerate(points)}
        found = self._journal.stages.items()
        return sorted(found, key=lambda one: (one[0][1], order[one[0][0]]))

    def _stage(
        self, point: dict[str, Any], replication: int, measured: Measured, own: Sequence[Row]
    ) -> Stage:
        late = [row.late_s for row in own if row.late_s > LATE_S]
        return Stage(
            point,
            replication,
            self._options.label,
            measured.begun[0],
            round(measured.elapsed_s, 6),
            len(late),
            max((row.late_s for row in own), default=0.0),
            rows.itl(own),
            _counters(measured),
            _gauges(measured),
        )

    def _samples(self) -> list[dict[str, Any]]:
        return [
            {
                "point": stage.name,
                "replication": stage.replication,
                "at_s": at_s,
                "name": name,
                "value": value,
            }
            for stage in self.stages
            for at_s, name, value in _sampled(self._journal.stages[stage.name, stage.replication])
        ]


def _counters(measured: Measured) -> dict[str, float]:
    """Sum over the parts of a stage; nothing where a part was killed, or a counter is missing."""
    parts = [end["counters"] for end in measured.ends]
    if measured.torn or not parts:
        return {}
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: sum(part[name] for part in parts) for name in names}


def _sampled(measured: Measured) -> list[tuple[float, str, float]]:
    """Samples of all parts on the clock of the stage."""
    return [
        (end["after_s"] + at_s, name, value)
        for end in measured.ends
        for at_s, name, value in end["samples"]
    ]


def _gauges(measured: Measured) -> dict[str, dict[str, float]]:
    """Mean and max of each gauge; the parts of a stage count by how long they took."""
    parts = [(end["gauges"], end["duration_s"]) for end in measured.ends]
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for gauges, _ in parts for name in gauges):
        own = [(gauges[name], weight_s) for gauges, weight_s in parts if name in gauges]
        total_s = sum(weight_s for _, weight_s in own)
        mean = sum(one["mean"] * weight_s for one, weight_s in own) / total_s
        found[name] = {"mean": mean, "max": max(one["max"] for one, _ in own)}
    return found
