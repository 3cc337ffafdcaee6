# `make run` shows the program at work, `make test` proves it; both set up whatever they need. `make help` tells the rest.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long packages bench lint format docs lock clean
.DELETE_ON_ERROR:

help:
	@echo 'make run      set up, then run a small example on this machine'
	@echo 'make test     set up, then run every check and test; WORKERS=6 processes share the tests'
	@echo 'make test-long  run the long campaigns, of which make test has a small part'
	@echo 'make bench    set up, then measure against the limit of this machine and peers; less: ONLY=noop,latency BENCH="--rounds 1"'
	@echo 'make setup    only set up: $(VENV) with the program and the tools of its developers'
	@echo 'make lint     check style, types and imports between packages'
	@echo 'make format   put the code in form'
	@echo 'make docs     build the documents as a site with search, in build/site'
	@echo 'make lock     choose versions of the dependencies anew (in requirements/)'
	@echo 'make clean    take away what the others made'
	@echo 'PYTHON=/path/to/python chooses the Python that $(VENV) is made with: 3.10 or later.'

setup: $(VENV)/dev.stamp

$(VENV)/bin/python:
	@PYTHON='$(PYTHON)' scripts/create-venv $(VENV)

$(VENV)/run.stamp: requirements/run.lock pyproject.toml $(wildcard src/qcg/pilotjob/agent/relay*.[ch]) | $(VENV)/bin/python
	@echo 'Installing into $(VENV) ...'
	@$(PIP) install --quiet --require-hashes -r requirements/run.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	@echo 'Installing the tools for tests into $(VENV) ...'
	@$(PIP) install --quiet --require-hashes -r requirements/dev.lock
	@touch $@

run: $(VENV)/run.stamp
	@$(BIN)/qcg-pm run examples/quickstart.json --wd build/run --nodes 2x4
	@echo && cat build/run/pi.txt

# More processes than cores: most tests wait for most of their time.
WORKERS ?= 6

test: packages lint docs
	$(BIN)/python -m pytest -n $(WORKERS)

test-long: packages $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --long

# First of all: a compiler is wanted when the program is installed.
packages:
	@tests/system-packages

bench: $(VENV)/run.stamp
	$(BIN)/python -m bench $(ONLY) $(BENCH)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# A warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/dev.stamp
	$(BIN)/zensical build --strict --clean

# uv lives in a virtual environment of its own, for it is no part of the project. The locks name versions and hashes
# only: they hold for every index that serves the same files.
lock:
	@PYTHON='$(PYTHON)' scripts/create-venv build/lock
	@build/lock/bin/python -m pip --disable-pip-version-check install --quiet --upgrade uv
	UV_PYTHON_DOWNLOADS=never build/lock/bin/$(LOCK) --upgrade --extra dev --group build pyproject.toml \
		--output-file requirements/dev.lock > /dev/null
	UV_PYTHON_DOWNLOADS=never build/lock/bin/$(LOCK) --upgrade --group build pyproject.toml \
		--constraints requirements/dev.lock --output-file requirements/run.lock > /dev/null

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/qcg/pilotjob/agent/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
