"""Notebooks: thin, stripped, with a rendered copy; all of them run."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from notebook_pages import FOLDER, PAGES, PATHS, cells, executed, head

NAMES = [
    "01_first_run",
    "02_when_does_speculation_pay",
    "03_capacity_plan",
    "04_calibrate_a_live_gpu",
]
LOGIC = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.For,
    ast.While,
    ast.If,
    ast.IfExp,
    ast.Try,
    ast.With,
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.GeneratorExp,
)


def code(path: Path) -> list[str]:
    return [text for kind, text in cells(path) if kind == "code"]


def name(path: Path) -> str:
    return path.stem


each = pytest.mark.parametrize("path", PATHS, ids=name)


def test_these_are_the_notebooks() -> None:
    assert [path.stem for path in PATHS] == NAMES


@each
def test_nothing_is_kept_of_a_run_and_keys_are_sorted(path: Path) -> None:
    text = path.read_text("utf-8")
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    again = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    assert text == f"{again}\n"


@each
def test_cells_only_call_what_is_public(path: Path) -> None:
    for text in code(path):
        for node in ast.walk(ast.parse(text)):
            assert not isinstance(node, LOGIC), ast.unparse(node)
            if isinstance(node, ast.alias):
                assert not node.name.startswith("_")
        assert len(text.splitlines()) <= 10


@each
def test_it_begins_with_a_title_and_ends_with_what_to_change_next(path: Path) -> None:
    every = list(cells(path))
    assert every[0][0] == "markdown"
    assert every[0][1].startswith("# ")
    assert every[-1][0] == "markdown"
    assert "## What to change next" in every[-1][1]


@each
def test_every_command_and_example_it_names_exists(path: Path) -> None:
    text = "\n".join(text for _, text in cells(path))
    for file in re.findall(r"(?:examples|docs)/\w+\.(?:yaml|md)", text):
        assert (FOLDER.parent / file).is_file(), file


@each
def test_the_rendered_copy_has_its_cells_and_pictures(path: Path) -> None:
    page = (PAGES / f"{path.stem}.md").read_text("utf-8")
    assert page.startswith(head(path.stem))
    place = 0
    for _, text in cells(path):
        flat = "\n".join(line.rstrip() for line in text.splitlines())
        place = page.index(flat, place)
    pictures = re.findall(r"!\[Picture\]\((.+?)\)", page)
    assert pictures
    assert sorted(pictures) == sorted(p.name for p in PAGES.glob(f"{path.stem}_*.svg"))


@pytest.mark.extras
@each
def test_it_runs(path: Path) -> None:
    pytest.importorskip("nbclient")
    shown = [cell for cell in executed(path).cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) >= 3
