# The habits of this project, one command each. Everything is installed into .venv, with pip, so a site's pip settings hold.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=
DATE ?= $(shell date -u +%F)
BIN := .venv/bin

.PHONY: help matrix test check format lock clean

help:  ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# The stamps say which lock the environment holds.
.venv/%.stamp: requirements-%.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 on PATH; install one, or say make PYTHON=/path/to/python" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "installing requirements-$*.lock into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-$*.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

matrix: .venv/host.stamp  ## run the matrix on this machine: results, report, where they lie (ARGS='--repeats 3')
	$(BIN)/runner matrix --gpus all $(ARGS)

test: .venv/dev.stamp  ## run every test that can run here, and say which cannot (ARGS='-k parity')
	$(BIN)/python -m pytest $(ARGS)

check: .venv/dev.stamp  ## lint, formatting, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev.stamp  ## format and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/host.stamp  ## make the host's locks again, as of today (DATE=2026-11-15 for another day)
	@for name in host dev; do \
	  { echo "# Made by \`make lock DATE=$(DATE)\` with uv. Do not edit: change pyproject.toml and make it again."; \
	    $(BIN)/uv pip compile pyproject.toml $$([ $$name = dev ] && echo --extra dev) --quiet --no-config --universal --python-version 3.11 \
	      --generate-hashes --no-header --no-annotate --exclude-newer $(DATE); } > requirements-$$name.lock.part; \
	  mv requirements-$$name.lock.part requirements-$$name.lock; \
	done

clean:  ## remove the environment and the tools' caches; results stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
