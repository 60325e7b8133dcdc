"""Tables and pictures of docs/planning.md: ``make planning-page``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import Lines, replaced, table

from sim.analysis import plots
from sim.analysis.capacity_report import capacity_report
from sim.analysis.plan_evidence import check
from sim.analysis.plan_plots import pictures
from sim.analysis.plan_words import answer, chosen
from sim.planning.by_strategy import Asked, capacities
from sim.scenario.load import load_scenario

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/planning.md"
README = ROOT / "README.md"
IMAGES = ROOT / "docs/images"
CAPACITY = ROOT / "examples/capacity_by_strategy.yaml"
WIDTH = 100

Json = Mapping[str, Any]


def main(folder: str) -> None:
    """Write what the page shows of a plan in ``folder``, and of a capacity search."""
    document = json.loads((Path(folder) / "plan.json").read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    for name, lines in (
        ("capacity", capacity()),
        ("answer", said(document)),
        ("plans", plans(document)),
        ("check", iter([check(document) or "", ""])),
        ("tornado", tornado(document)),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, "utf-8")
    README.write_text(replaced(README.read_text("utf-8"), "plan", said(document)), "utf-8")
    for picture in pictures(document):
        (IMAGES / f"plan_{picture.name}.svg").write_bytes(plots.save(picture.figure, "svg"))


def capacity() -> Lines:
    """What ``speccast capacity`` prints of the example."""
    found = capacities(load_scenario(CAPACITY), Asked())
    yield from ("```text", *capacity_report(found, WIDTH).rstrip("\n").split("\n"), "```")


def said(document: Json) -> Lines:
    """The answer in words, and how it is launched."""
    yield answer(document)
    yield ""
    best = chosen(document)
    if best is not None and best["launch"]:
        yield from ("```sh", *best["launch"].split("\n"), "```", "")


def plans(document: Json) -> Lines:
    """A line a strategy and GPU, cheapest first."""
    header = (
        "strategy",
        "GPUs (90 %)",
        "how",
        "USD a day",
        "USD/M tokens (90 %)",
        "a replica [req/s] (90 %)",
        "headroom",
        "sure; GPUs for 90 %",
        "worst five minutes, p95 TTFT, TPOT [ms]",
    )
    yield from table(header, (_plan(document, plan) for plan in document["plans"]))
    yield ""
    for lost in document["impossible"]:
        yield f"- {lost['strategy']} on {lost['gpu']}: {lost['why']}"


def _plan(document: Json, plan: Json) -> tuple[str, ...]:
    best = plan is chosen(document)
    mark = "**" if best else ""
    worst, carried = plan["worst"] or {}, plan["replica_capacity_req_s"]
    how = [f"{plan['replicas']} x TP {plan['tp']}"]
    how += [f"{key.split('.')[-1]} {value}" for key, value in plan["settings"].items()]
    return (
        f"{mark}{plan['strategy']}{mark}{' ?' if plan['hypothetical'] else ''}",
        f"{plan['gpus']} {plan['gpu']} ({_ends(plan['gpus_band'])})",
        ", ".join(part for part in how if not part.startswith("tp ")),
        f"{plan['usd_per_day']:,.0f}",
        f"{plan['usd_per_million_tokens']:.2f} ({_ends(plan['usd_per_million_band'])})",
        f"{carried['value']:.2f} ({_ends(carried)})",
        f"{plan['headroom']:.0%}",
        f"{_share(plan['confidence'])}; {plan['gpus_for_confidence'] or '?'}",
        f"{_ms(worst.get('ttft_s_p95'))}, {_ms(worst.get('tpot_s_p95'))}",
    )


def tornado(document: Json) -> Lines:
    """A line an input: how far it may be off, and the GPUs that would take."""
    rows = (
        (
            row["input"],
            row["basis"],
            f"{row['lo']:.2f} to {row['hi']:.2f}",
            f"{_gpus(row['gpus_lo'])} to {_gpus(row['gpus_hi'])}",
        )
        for row in document["tornado"]
    )
    yield from table(("input", "basis", "5 % to 95 %, over the prediction", "GPUs"), rows)


def _ends(band: Json | None) -> str:
    if band is None:
        return "?"
    return "-".join("?" if band[end] is None else f"{band[end]:.3g}" for end in ("lo", "hi"))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.3g}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"


def _gpus(value: float | None) -> str:
    return "none is enough" if value is None else f"{value:.1f}"


def arguments(words: Sequence[str]) -> str:
    """The folder ``speccast plan --out`` wrote."""
    if len(words) != 1:
        raise SystemExit("usage: planning_page.py DIR")
    return words[0]


if __name__ == "__main__":
    main(arguments(sys.argv[1:]))
