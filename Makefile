# The habits of this project, one command each. Everything is installed into .venv, by uv. A site's pip settings hold.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=
DATE ?= $(shell date -u +%F)
# What `make matrix` may take. Empty: as long as all of the matrix takes.
MINUTES ?= 10
BEGAN := $(shell date +%s)
BIN := .venv/bin

# What `make test` and `make test-slow` leave out.
TIERS := DLBENCH_CURVES=all DLBENCH_SPEED=all DLBENCH_FAULTS=all DLBENCH_DEVICES=all DLBENCH_SIMULATIONS=all DLBENCH_STRANGERS=all

.PHONY: help matrix limit gpu-kit test test-slow test-all test-long check docs site picture format lock clean

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# The stamps say which lock the environment holds.
.venv/%.stamp: requirements-%.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 on PATH; install one, or say make PYTHON=/path/to/python" >&2; exit 2; }
	@$(PYTHON) -m runner.images.installing requirements-$*.lock
	@touch $@

matrix: limit .venv/host.stamp  ## run the matrix on this machine for ten minutes (MINUTES=60, or MINUTES= for all of it; ARGS='--images torch-*')
	@$(BIN)/runner matrix --gpus all $(if $(MINUTES),--minutes $$(awk 'BEGIN { left = $(MINUTES) - ('$$(date +%s)' - $(BEGAN)) / 60; print (left < 1 ? 1 : left) }')) $(ARGS)

# The first line says how long it takes. Installing the runner counts.
limit:
	@[[ '$(MINUTES)' =~ ^([0-9]+(\.[0-9]+)?)?$$ ]] && awk 'BEGIN { left = $(or $(MINUTES),1); exit !(left > 0 && left <= 525600) }' || { echo "MINUTES=$(MINUTES) is no number above 0 and at most 525600; give one, or MINUTES= for all of the matrix" >&2; exit 2; }
	@echo "$(if $(MINUTES),about $(if $(filter 1,$(MINUTES)),a minute,$(MINUTES) minutes) of the matrix (MINUTES=60 for an hour, MINUTES= for all of it),all of the matrix: hours)"

gpu-kit: .venv/host.stamp  ## make build/gpu-kit: it measures a GPU machine without a network and without an installation
	@$(BIN)/runner gpu-kit build/gpu-kit

# Run the tests of a marker expression: first those that share the CPUs, then those that nothing may run beside. pytest's 5: there is none.
# Its 1: some failed, and a few of them are run a second time (tests/again.py), which names what passes then.
# A file's tests share fixtures, so one process runs them (loadfile). The slow ones are in few files: tests/conftest.py groups and orders them
# (loadgroup), in two processes more than there are CPUs: those of the engines' tests wait for containers most of their time. Only
# files that have such a test are read for the slow tests, and for the second part.
define pytest
rm -f .pytest_cache/v/cache/lastfailed; \
$(BIN)/python -m pytest $(2) -m $(1) || { code=$$?; [ $$code = 5 ] || { [ $$code = 1 ] && $(BIN)/python -m tests.again $(1); }; } || status=1
endef
define tests
$(call pytest,'$(1) and not alone',--numprocesses $(2) --maxprocesses 8 --quiet); \
$(call pytest,'$(1) and alone',$$(grep -rl 'mark\.alone' tests --include='test_*.py'))
endef

test: .venv/dev.stamp  ## run the quick tests, and say which cannot run here (ARGS='-k parity' runs any tests)
ifeq ($(ARGS),)
	@status=0; $(call tests,not slow,auto --dist loadfile); exit $$status
else
	$(BIN)/python -m pytest $(ARGS)
endif

test-slow: .venv/dev.stamp  ## run the tests that `make test` leaves, as they take longer
	@status=0; $(call tests,slow,$$(($$(nproc) + 2)) --dist loadgroup --no-loadscope-reorder $$(grep -rl 'mark\.slow' tests --include='test_*.py' | sort)); exit $$status

test-all:  ## hours: the quick tests, then every test in full
	@status=0; $(MAKE) --no-print-directory test ARGS= || status=1; $(MAKE) --no-print-directory test-long ARGS= || status=1; exit $$status

test-long: .venv/dev.stamp  ## hours: every test in full; fails where an environment cannot be made (ARGS='tests/contract')
	$(TIERS) DLBENCH_KEYS=ignore DLBENCH_ENVIRONMENTS=required $(BIN)/python -m pytest $(ARGS)

check: .venv/dev.stamp  ## lint, formatting, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/host.stamp  ## make the documents again that follow from the code: the commands, their JSON, the tables of the catalog
	$(BIN)/python -m typer runner.cli.main utils docs --name runner > docs/cli.md.part
	mv docs/cli.md.part docs/cli.md
	$(BIN)/python -m tests.json_schemas
	$(BIN)/python -m tests.column_page
	$(BIN)/python -m tests.weights
	$(BIN)/runner images files

site: .venv/dev.stamp  ## make build/site: a page of each kind, with a start page, from measurements that lie in docs
	$(BIN)/python -m tests.site build/site

picture: .venv/dev.stamp  ## make docs/report.png again, the picture in README.md (needs Chromium and its driver)
	$(BIN)/python -m tests.picture

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
