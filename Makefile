# Everything a fresh machine needs: Python 3.11 or newer, make, and root or sudo for apt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-full test-endless soak planted reliability fuzz check bench java postgres clean

$(READY): setup.cfg setup.py pyproject.toml $(wildcard lsmstate/native/*.[ch])
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

# What the tests count is left in FIGURES, for `make reliability`. tests/support/sizes.py says how much each does.
FIGURES := build/figures
NOTED = LSMSTATE_TEST_FIGURES=$(CURDIR)/$(FIGURES) LSMSTATE_TEST_NAME=$@

test: $(READY) java postgres
	$(NOTED) $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not long'

test-full: $(READY) java postgres
	$(NOTED) LSMSTATE_TEST_SIZE=full $(BIN)/python -m pytest -n 2 --dist worksteal

test-endless: $(READY) java postgres
	$(NOTED) LSMSTATE_TEST_SIZE=endless $(BIN)/python -m pytest -n 2 --dist worksteal

soak: $(READY)
	$(NOTED) LSMSTATE_TEST_SIZE=endless $(BIN)/python -m pytest tests/engine/test_mvcc_stress.py

planted: $(READY) java
	$(NOTED) $(BIN)/python -m tests.planted

reliability: $(READY)
	$(BIN)/python -m tests.support.report $(FIGURES)

# Ten minutes for each decoder, one after the other; `make fuzz FUZZ_SECONDS=60` for less.
FUZZ_SECONDS ?= 600
fuzz: $(READY)
	$(BIN)/python -m pip install -q -e '.[test,fuzz]'
	$(BIN)/python -m tests.fuzz all $(FUZZ_SECONDS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) java
	$(BIN)/python -m pytest bench -s --benchmark-sort=name

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
