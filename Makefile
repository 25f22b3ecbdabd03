# `make test` sets up and checks everything; it needs python3, make and Go.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Without cached bytecode, each test process compiles all tests again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help venv dev test lint unit test-slow test-coder campaign bench binaries coder simulate generate check-generated docs lock format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

test: lint check-generated docs binaries unit ## set up, lint, check types, generated files and docs, and run the tests

venv: $(STAMP) ## create the virtual environment in .venv

dev: $(STAMP) ## run the complete product on this machine, with samples (ARGS=--fresh deletes earlier state)
	@$(BIN)/coder-k8s dev $(ARGS)

lint: $(STAMP) ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(STAMP) ## run the tests (ARGS="-k name" selects)
	$(BIN)/pytest -n 4 --dist worksteal $(ARGS)

test-slow: binaries ## run the tests that take many seconds, most of them on a cluster of their own (ARGS="-k name" selects)
	$(BIN)/pytest -n 4 --dist worksteal -m "slow and not campaign" $(ARGS)

campaign: binaries unit test-slow ## run all tests, then all crash, mutation and fault tests with their figures; takes an hour
	$(BIN)/pytest -n 4 --dist worksteal -m campaign -rP $(ARGS)

binaries: $(STAMP) ## build the Go programs that the tests need
	$(BIN)/python -m coder_k8s.dev.binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kwok \
	  helm promtool

coder: $(STAMP) ## build the versions of Coder that the tests use; takes up to 15 minutes
	$(BIN)/python -m coder_k8s.dev.coder_build 2.36.1 2.36.0 2.30.0

test-coder: binaries coder ## build Coder and run the tests that need it (ARGS="-k name" selects)
	$(BIN)/pytest -n 2 --dist worksteal -m "coder and not campaign" $(ARGS)

bench: binaries ## run the benchmarks and write docs/performance.md (ARGS="--only converge"; ARGS=--help lists more); takes 45 minutes
	$(BIN)/python -m bench $(ARGS)

simulate: $(STAMP) ## simulate autoscaling of provisioners (ARGS="--trace morning --seeds 10")
	@$(BIN)/coder-k8s simulate $(ARGS)

generate: $(STAMP) ## generate CRDs, roles, chart files, alerts and reference pages
	$(BIN)/python -m coder_k8s.manifests

check-generated: $(STAMP) ## fail if a generated file is stale
	$(BIN)/python -m coder_k8s.manifests --check

SOURCE_URL ?= $(shell git remote get-url origin 2>/dev/null)

docs: $(VENV)/docs/.installed ## build the documentation into build/docs; fails for dead links (SOURCE_URL links it to the source)
	@NO_MKDOCS_2_WARNING=1 SOURCE_URL='$(SOURCE_URL)' $(VENV)/docs/bin/mkdocs build --quiet

format: $(STAMP) ## format the code with ruff
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11

lock: $(STAMP) ## update the locked dependencies
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

# The documentation tools have their own environment.
$(VENV)/docs/.installed: requirements/docs.txt | $(STAMP)
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

.PHONY: audit sbom
audit: $(VENV)/audit/.installed ## check all locked dependencies for known vulnerabilities; fails if the service does not respond
	$(VENV)/audit/bin/pip-audit --strict --require-hashes --disable-pip \
	  $(addprefix --requirement=,$(wildcard requirements/*.txt))

sbom: $(VENV)/audit/.installed ## write the components of the operator to build/sbom.json (CycloneDX)
	@mkdir -p build
	$(VENV)/audit/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml \
	  --output-reproducible --output-file build/sbom.json

# The audit tools have their own environment.
$(VENV)/audit/.installed: requirements/audit.txt | $(STAMP)
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet --require-hashes -r requirements/audit.txt
	@touch $@

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
