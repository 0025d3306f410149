# One machine, two commands: `make up` runs the product, `make test` passes the tests.
# Every target sets up what it needs; a second run finds it done.

SHELL := /bin/bash
export PYTHON ?= python3
RUNTIME := $(if $(GPU),gpu,cpu)

.DEFAULT_GOAL := help
.PHONY: help up test lint assets clean

help:
	@echo "make up      the whole product on this machine, with a demo; Ctrl-C stops it (GPU=1, ARGS='--port 8001')"
	@echo "make test    every test this machine can run; as root it installs what is missing from Debian"
	@echo "make lint    ruff, mypy, import contracts, migrations, templates, scripts"
	@echo "make assets  browser libraries into static/vendor"
	@echo "make clean   remove what the other targets made; the state in var/ stays"

up:
	@.ci/setup.sh $(RUNTIME) demo
	@.ci/assets.sh
	@exec .venv/bin/pilothouse up $(ARGS)

test:
	@.ci/setup.sh $(RUNTIME) demo dev
	@.ci/services.sh
	@.ci/assets.sh dev
	@.ci/test.sh $(ARGS)

lint:
	@.ci/setup.sh $(RUNTIME) demo dev
	@.ci/lint.sh

assets:
	@.ci/setup.sh $(RUNTIME) demo
	@.ci/assets.sh

clean:
	rm -rf .venv build node_modules static/vendor test-results pilothouse.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
