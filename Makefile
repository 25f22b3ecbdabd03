# One command, `make test`, does everything on a fresh machine with python3, make and Go.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help venv dev test lint unit campaign bench binaries generate check-generated docs lock format clean
.DEFAULT_GOAL := help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

test: lint check-generated docs binaries unit ## set up, lint, check types, generated files and docs, run all tests

venv: $(STAMP) ## set up .venv

dev: $(STAMP) ## run the whole product on this machine, with samples (ARGS=--fresh forgets earlier runs)
	@$(BIN)/coder-k8s dev $(ARGS)

lint: $(STAMP) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(STAMP) ## the tests alone (ARGS="-k name" chooses)
	$(BIN)/pytest -n 3 --dist worksteal $(ARGS)

campaign: binaries unit ## all tests, then every crash, mutation and storm with their figures; takes an hour
	$(BIN)/pytest -n 4 --dist worksteal -m campaign -rP $(ARGS)

binaries: $(STAMP) ## build the Go programs that the tests run, once
	$(BIN)/python -m coder_k8s.dev.binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kwok \
	  helm promtool

bench: binaries ## measure the operator and write docs/performance.md (ARGS="--only converge"); takes 45 minutes
	$(BIN)/python -m bench $(ARGS)

generate: $(STAMP) ## write CRDs, RBAC and the API reference anew
	$(BIN)/python -m coder_k8s.manifests

check-generated: $(STAMP) ## fail when a generated file is stale
	$(BIN)/python -m coder_k8s.manifests --check

docs: $(VENV)/docs/.installed ## build the documentation into build/docs; a link that leads nowhere fails it
	@NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --quiet

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11

lock: $(STAMP) ## resolve the dependencies anew
	$(BIN)/pip install --quiet uv
	$(COMPILE) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) --group pyproject.toml:build -o requirements/build.txt
	$(COMPILE) --group test --group build pyproject.toml -o requirements/test.txt
	$(COMPILE) --group pyproject.toml:docs -o requirements/docs.txt
	$(COMPILE) --group pyproject.toml:audit -o requirements/audit.txt

$(STAMP): requirements/test.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coder-k8s needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/test.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# What builds the documentation stands apart from what is tested.
$(VENV)/docs/.installed: requirements/docs.txt | $(STAMP)
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

.PHONY: audit sbom
audit: $(VENV)/audit/.installed ## look for known weaknesses in all that is locked; fails as well when nobody can be asked
	$(VENV)/audit/bin/pip-audit --strict --require-hashes --disable-pip \
	  $(addprefix --requirement=,$(wildcard requirements/*.txt))

sbom: $(VENV)/audit/.installed ## write what the operator is made of to build/sbom.json, in CycloneDX
	@mkdir -p build
	$(VENV)/audit/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml \
	  --output-reproducible --output-file build/sbom.json

# These two look at the operator from outside, and are no part of it.
$(VENV)/audit/.installed: requirements/audit.txt | $(STAMP)
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet --require-hashes -r requirements/audit.txt
	@touch $@

clean: ## remove the virtual environment and caches of this folder
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
