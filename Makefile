# Two commands do everything: `make train` (the main job) and `make test` (every check).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# reaches the build of the package too
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

# the packages that the guarantee rests on: tests must run 90 % of the lines of each
PROVED := accounting encoding mechanisms noise planning rounds secagg

.PHONY: train test bench docs clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make train   set up, fetch MNIST, train a linear model on fixed features, 0.25 bits per weight, eps = 3, delta = 1e-5"
	@echo "make test    set up, then ruff, mypy, import-linter and pytest"
	@echo "make bench   every benchmark, side by side with its peers"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove the environment and everything that was built"

train: $(VENV)/.ready-train $(VENV)/.kernels
	$(BIN)/skelmix train --recipe best

test: $(VENV)/.ready-dev $(VENV)/.kernels
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadgroup --cov --cov-report=
	@for room in $(PROVED); do \
		$(BIN)/coverage report --skip-covered --fail-under=90 --include="src/skelmix/$$room/*" || \
		{ echo "coverage of $$room is below 90 %"; exit 1; }; \
	done

bench: $(VENV)/.ready-dev $(VENV)/.kernels
	$(BIN)/skelmix bench noise
	$(BIN)/skelmix bench encode
	$(BIN)/skelmix bench secagg
	$(BIN)/skelmix bench train
	$(BIN)/skelmix bench flower
	$(BIN)/skelmix bench stats

docs: $(VENV)/.ready-docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "skelmix needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "could not make .venv: install your system's python3-venv"; exit 1; }

$(VENV)/.ready-train: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[torch,plot]"
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[torch,flower,docs,dev]"
	@touch $@

$(VENV)/.ready-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[torch,docs]"
	@touch $@

# numba keeps a compiled kernel until its own file changes, even if another file has a kernel that it calls
$(VENV)/.kernels: $(shell grep -rl --include='*.py' njit src) | $(VENV)/bin/python
	@find src -name '*.nb[ic]' -delete
	@touch $@
