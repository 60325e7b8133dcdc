"""Who may import whom, read from the source: models <- sim <- calibration, nobody upwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(
    path for package in ("models", "sim", "calibration") for path in (ROOT / package).rglob("*.py")
)
FORBIDDEN = {"models": {"sim", "calibration"}, "sim": {"calibration"}, "calibration": set()}
ABSENT_FROM_MODELS = {"simpy", "pandas", "matplotlib", "pyarrow", "typer", "rich", "random", "time"}

# Parts of sim from the ground up; a file imports its own part and parts before it.
PARTS = ("scenario", "engine", "analysis", "experiment", "planning", "whole_run", "cli")
# Files anything in sim may import: of sim they import only one another.
GROUND = {"tables", "table_schemas", "histogram", "interrupts", "progress"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def in_package(package: str) -> list[Path]:
    return [path for path in FILES if path.relative_to(ROOT).parts[0] == package]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_package_imports_one_above_it(path):
    package = path.relative_to(ROOT).parts[0]
    above = {module.partition(".")[0] for module in imported(path)} & FORBIDDEN[package]
    assert not above


@pytest.mark.parametrize("path", in_package("models"), ids=name)
def test_models_is_arithmetic(path):
    assert not {module.partition(".")[0] for module in imported(path)} & ABSENT_FROM_MODELS


def part(module: str) -> str:
    """The part of sim a dotted module belongs to."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


@pytest.mark.parametrize("path", in_package("sim"), ids=name)
def test_no_file_of_sim_imports_one_above_it(path):
    verb = path.name == "cli.py"  # of whatever part, it is the command line
    own = "cli" if verb else path.relative_to(ROOT / "sim").with_suffix("").parts[0]
    used = {part(module) for module in imported(path) if module.startswith("sim.")} - {own}
    if own in GROUND:
        assert not used - GROUND
    elif own in PARTS:
        higher = set(PARTS[PARTS.index(own) + 1 :])
        assert not used & higher


def test_only_plots_import_matplotlib():
    users = [p for p in FILES if any(m.startswith("matplotlib") for m in imported(p))]
    assert {p.name for p in users} <= {"plots.py"}


def test_only_the_command_line_prints_or_exits():
    for path in FILES:
        if path.name in {"cli.py", "bench.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in {"print", "exit"}), path
            assert not (isinstance(called, ast.Attribute) and ast.unparse(called) == "sys.exit")


def test_files_stay_small():
    long = {name(p): n for p in FILES if (n := len(p.read_text("utf-8").splitlines())) > 300}
    assert not long
