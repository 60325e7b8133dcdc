"""What ``speccast plan --out`` leaves: plan.json, report.html, pictures, and chosen.yaml."""

from __future__ import annotations

from pathlib import Path

from models.strict_yaml import InputError
from sim.interrupts import held
from sim.output import PICTURES, to_json
from sim.planning.document import Planned
from sim.scenario.dump import resolved_yaml
from sim.scenario.schema import Scenario
from sim.staging import foreign, obstacle, staged

JSON, CHOSEN, PAGE = "plan.json", "chosen.yaml", "report.html"
FILES = (JSON, CHOSEN, PAGE)


def check_out(out: str | None, file: Path) -> Path | None:
    """Refuse a folder that cannot be written, before anything is searched.

    Raises
    ------
    InputError
        If it cannot be written, or would replace the plan file or what no plan left.
    """
    if out is None:
        return None
    problem = None if out else "needs a folder, got ''"
    problem = problem or obstacle(Path(out), FILES, file)
    problem = problem or obstacle(Path(out) / PICTURES, ["plan.svg"], file)
    problem = problem or foreign(Path(out), "plan", FILES)
    if problem is not None:
        raise InputError(out, None, "--out", problem)
    return Path(out)


def write(found: Planned, folder: Path) -> None:
    """Write everything; all files appear together, those of an earlier plan replaced.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    from sim.analysis import plan_html

    with staged(folder) as scratch:
        names = plan_html.write(found.document, scratch)
        (scratch / JSON).write_text(to_json(found.document), "utf-8")
        names.append(JSON)
        if found.chosen is not None:
            (scratch / CHOSEN).write_text(_commented(found), "utf-8")
            names.append(CHOSEN)
        with held():
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).replace(folder / name)
            if found.chosen is None:
                (folder / CHOSEN).unlink(missing_ok=True)


def _commented(found: Planned) -> str:
    """The scenario of the plan chosen: a whole day, a replica killed at its peak."""
    chosen: Scenario | None = found.chosen
    assert chosen is not None
    plan = found.document["plans"][found.document["chosen"]]
    title = f"# A day of the plan chosen: {plan['gpus']} {plan['gpu']}, {plan['strategy']}\n"
    return title + resolved_yaml(chosen)
