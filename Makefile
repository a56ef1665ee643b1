# Everything a fresh machine needs: Python 3.11 or newer, make, and root or sudo for apt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-full check bench java postgres clean

$(READY): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lsmstate needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { .ci/apt-install python3-venv && $(PYTHON) -m venv --clear $(VENV); }
	$(BIN)/python -m pip install -q -e '.[test,bench]'
	@touch $@

java:
	@command -v java >/dev/null || .ci/apt-install openjdk-17-jre-headless

postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || .ci/apt-install postgresql

demo: $(READY) java
	$(BIN)/lsmstate demo

test: $(READY) java postgres
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not long'

test-full: $(READY) java postgres
	LSMSTATE_TEST_SIZE=full $(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) java
	$(BIN)/python -m pytest bench -s --benchmark-sort=name

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
