# The task runner. `make run` shows the product, `make test` is what CI runs, `make check` is the gate of every commit.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
PYTEST := $(BIN)/python -m pytest -q
MINUTES ?= 10
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python keeps compiled modules, whatever the caller's environment says: tests start hundreds of processes, and rewriting
# the assertions of all unit tests takes each process of pytest as long as everything else that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help system system-run setup archive run test check format unit contract integration pipeline e2e bench soak soak-pipeline mutants goldens lock clean

help:           ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

system:         ## Debian packages that are missing: Java, Maven, Node, Graphviz, and what tests and benchmarks need
	@scripts/system all

system-run:
	@scripts/system run

setup: $(STAMPS)/python $(STAMPS)/java $(STAMPS)/page   ## .venv, Java parts and the page; nothing to do when nothing changed

$(STAMPS)/python: requirements.lock pyproject.toml
	@mkdir -p $(STAMPS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-cache-dir --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(STAMPS)/java: java/pom.xml scripts/jars $(shell find java -name '*.java' 2>/dev/null)
	@mkdir -p $(STAMPS)
	scripts/jars
	@touch $@

$(STAMPS)/node: ui/package-lock.json ui/package.json ui/.npmrc
	@mkdir -p $(STAMPS)
	cd ui && npm ci --no-progress --loglevel=error
	@touch $@

$(STAMPS)/page: $(STAMPS)/node ui/index.html ui/vite.config.ts ui/tsconfig.json $(shell find ui/src ui/public -type f ! -name '*.test.ts' 2>/dev/null)
	cd ui && npm run -s build -- --logLevel warn
	@touch $@

# The classes of a broker, which the brokers of the tests start from: loading them from jars takes much of a start.
$(STAMPS)/archive: $(STAMPS)/java scripts/class-archive
	$(BIN)/python scripts/class-archive
	@touch $@

archive: setup $(STAMPS)/archive

run: system-run setup   ## a real Kafka with Headgate in front of it
	@exec $(BIN)/headgate dev

test: system    ## everything that CI runs
	scripts/tier setup 6 $(MAKE) --no-print-directory archive
	scripts/tier check 2 $(MAKE) --no-print-directory check
	scripts/tier unit 4 $(MAKE) --no-print-directory unit
	scripts/tier contract 3 $(MAKE) --no-print-directory contract
	scripts/tier integration 18 $(MAKE) --no-print-directory integration
	scripts/tier pipeline 5 $(MAKE) --no-print-directory pipeline
	scripts/tier e2e 5 $(MAKE) --no-print-directory e2e

check: setup    ## format, lint, types, import contracts
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup   ## put the code into its form
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

unit: setup     ## pure tests, in parallel; three at a time, because many of them wait
	$(PYTEST) -n 3 -m "not object_store" tests/unit

contract: setup ## our codec against Kafka's own classes, and tables against an S3 server
	$(PYTEST) tests/contract
	$(PYTEST) -n 2 -m object_store tests/unit

integration: archive  ## real Kafka, real clients
	$(PYTEST) -n 2 --dist loadfile tests/integration

pipeline: archive ## real Spark on a real Kafka: facts to tables
	$(PYTEST) -n 3 --dist loadfile tests/pipeline

e2e: setup      ## the page: its logic, and a real browser against the real web process
	cd ui && npm run -s test
	$(PYTEST) tests/e2e

bench: setup    ## side-by-side benchmarks into bench/RESULTS.md; incidents of real share consumers, and the verdict on them
	$(BIN)/python -m bench
	$(BIN)/python -m bench.record_incidents
	$(BIN)/python -m bench.triage

soak: setup     ## campaigns against outages, kills and hostile peers; at 10, about a quarter of an hour: make soak MINUTES=10
	HEADGATE_TEST_MINUTES=$(MINUTES) $(PYTEST) -p no:randomly --ignore tests/soak/pipeline tests/soak

soak-pipeline: setup    ## the pipeline on a full disk, on a Spark cluster, on a real S3 server (versitygw, see docs/storage.md), and killed at every point of a batch
	HEADGATE_TEST_MINUTES=$(MINUTES) $(PYTEST) -p no:randomly tests/soak/pipeline

mutants: setup  ## rules broken one at a time (tests/mutants.toml), each noticed by its tests
	$(BIN)/python scripts/mutants

goldens: setup  ## make the golden topologies anew with the real Kafka Streams
	java -cp 'java/lib/headgate-goldens.jar:java/lib/broker/*' headgate.goldens.Main tests/fixtures/topologies/generated

lock:           ## make the lock file anew from pyproject.toml
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header -q -o requirements.lock

clean:
	rm -rf $(VENV) $(STAMPS) java/lib java/target ui/node_modules src/headgate/web/static
