# Everything runs in .venv; it is filled again only when pyproject.toml changes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test check lint browser screenshots bench clean

demo: $(VENV)/.installed  ## which strategy for Llama-3.1-70B on H100 at this load?
	$(BIN)/speccast run examples/llama70b_strategies.yaml

test: lint  ## everything that must hold
	$(BIN)/python -m pytest -q -n 2

check: lint  ## linters, types, import contract, and the tests that need no worker processes
	$(BIN)/python -m pytest -q -x

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

browser: $(VENV)/.installed-browser  ## the report in headless chromium (Debian: chromium, chromium-driver)
	$(BIN)/python -m pytest -q -m browser tests/test_report_in_browser.py

screenshots: $(VENV)/.installed-browser  ## pictures of the report for docs/images
	$(BIN)/python tests/screenshots.py

bench: $(VENV)/.installed  ## steps and requests a second, beside raw SimPy
	$(BIN)/python -m sim.bench

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-browser: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev,browser]'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed
