"""CONTRIBUTING.md keeps its promise: one more file is all a strategy takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ("models/", "sim/", "calibration/", "tests/", "docs/", "examples/")

# What dropping a file into models/strategies/ does, without touching the tree under test.
WITH_STRATEGY = """
import sys
import models.strategies
models.strategies.__path__.append(sys.argv[1])
from sim.cli import main
main(sys.argv[2:])
"""


def block(language: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def speccast(tmp_path_factory):
    """Run the command line with the toy strategy in place: status, stdout, stderr."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "suffix.py").write_text(block("python"), "utf-8")
    (folder / "toy.yaml").write_text(block("yaml"), "utf-8")

    def call(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-W", "error", "-c", WITH_STRATEGY, str(folder), *arguments]
        done = subprocess.run(
            [part.replace("TOY", str(folder / "toy.yaml")) for part in command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def test_one_file_adds_a_strategy(speccast):
    status, out, err = speccast("run", "TOY", "--json", "--quiet")
    assert (status, err) == (0, "")
    plain, suffix = json.loads(out)["rows"]
    assert suffix["strategy"] == "suffix K=8"
    assert suffix["hypothetical"]
    assert suffix["tau"] == pytest.approx(2.5, rel=0.03)
    assert suffix["acceptance_rate"] == pytest.approx(1.5 / 8, rel=0.05)
    assert suffix["finished"] == plain["finished"] == 200
    assert suffix["speedup"] > 1
    assert suffix["band"]["speedup"]["basis"] == "assumed"


def test_its_mistakes_are_found_like_those_of_any_other(speccast):
    status, out, err = speccast("run", "TOY", "--set", "strategies[1].k=0")
    assert (status, out) == (2, "")
    assert "strategies[1].k" in err
    status, out, err = speccast("run", "TOY", "--set", "strategies[1].hypothetical=false")
    assert (status, out) == (2, "")
    assert "vllm_0.15 cannot run it" in err


def test_every_document_names_files_that_exist():
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
        paths = re.findall(r"[`| ]((?:[\w.-]+/)+[\w.-]*)[`|, ]", text)
        missing = [link for link in links if not (document.parent / link).exists()]
        missing += [
            path for path in paths if path.startswith(PACKAGES) and not (ROOT / path).exists()
        ]
        assert not missing, document.name
