# `make run` runs an example, `make test` runs all tests; both install what they need. `make help` lists all targets.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long packages compiled-tests bench lint format docs lock clean
.DELETE_ON_ERROR:

help:
	@echo 'make run      set up, then run a small example on this machine'
	@echo 'make test     set up, then run all checks and tests, in 12 processes; WORKERS=N sets the number'
	@echo 'make test-long  run the long random tests, of which make test runs a small part'
	@echo 'make bench    set up, then run the benchmarks; a part of them: ONLY=noop,latency BENCH="--rounds 1"'
	@echo 'make setup    install the program and the development tools into $(VENV)'
	@echo 'make lint     check style, types and imports between packages'
	@echo 'make format   format the code'
	@echo 'make docs     build the documentation site in build/site'
	@echo 'make lock     update the locked versions of the dependencies in requirements/'
	@echo 'make clean    remove generated files'
	@echo 'PYTHON=/path/to/python selects the Python for $(VENV): 3.10 or later.'

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
WORKERS ?= 12

test: packages $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory --jobs=2 --output-sync compiled-tests lint docs
	$(BIN)/python -m pytest -n $(WORKERS)

# Otherwise each process compiles all tests. Errors are reported when the tests run.
compiled-tests: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true

test-long: TIER := long
test-long: packages $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --long --timeout 1800

# This comes first: installing the program needs a compiler.
packages:
	@tests/system-packages $(TIER)

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
