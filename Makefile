# Every target but `clean` and `help` begins with `setup`, which does nothing the second time; `test-spark` has its own.
# PYTHON=/path/to/python3 chooses the Python that the virtual environment is made with.

.DEFAULT_GOAL := help
SHELL := /bin/bash
# Each Python process that a test starts would compile kdsl anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
# What fails in the middle and goes on, on every Spark: exactly-once, upserts, targets, and the order of keys.
SCENARIOS := $(shell cat tests/spark_core/scenarios.txt)

.PHONY: help setup demo test test-fast test-spark simulate test-reliability test-debezium bench bench-formats bench-scale check format docs site dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv and install kdsl with its tools (about a minute, once)
	@PYTHON='$(PYTHON)' .ci/setup

demo: setup ## Start a real Kafka, let orders flow through Spark, stop it again
	@$(BIN)/kdsl demo

test: setup ## Run all tests but the long ones
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'not reliability and not debezium and not core'

test-fast: setup ## Run the tests that need neither a JVM nor a broker (seconds)
	@$(BIN)/python -m pytest -q -m 'not spark and not kafka and not reliability and not debezium'

test-spark: ## Run the core and what fails and goes on on another Spark: make test-spark VERSION=4.1.1 [ARGS=tests]
	@[[ -n '$(VERSION)' ]] || { echo 'say which Spark: make test-spark VERSION=4.1.1' >&2; exit 2; }
	@SPARK='$(VERSION)' PYTHON='$(PYTHON)' .ci/setup
	@KDSL_SPARK_RUNS=docs/generate/spark_runs.json .venv-spark-$(VERSION)/bin/python -m pytest \
		-p tests.spark_core.recorder -m 'not reliability and not debezium' $(or $(ARGS),tests/spark_core $(SCENARIOS))

simulate: setup ## Run the protocols in virtual time: make simulate SEEDS=1-10000 [ARGS=--help]
	@$(BIN)/python -m tests.simulation $(or $(SEEDS),1-10000) --jobs 2 $(ARGS)

test-reliability: setup ## Run the long tests, most of them with real kills, and print what held (before a release)
	@$(BIN)/python -m pytest -m reliability

test-debezium: setup ## Run the tests behind a real Postgres, Kafka Connect and Debezium (fetched once, about 110 MB)
	@$(BIN)/python -m pytest -m 'debezium and not reliability' tests/debezium $(ARGS)

bench: setup ## Compare kdsl with hand-written PySpark in pairs of runs (only the formats: make bench-formats)
	@$(BIN)/python -m bench $(ARGS)

bench-formats: setup ## Compare reading and writing of every format with Spark's from_json
	@$(BIN)/python -m bench.formats $(ARGS)

bench-scale: setup ## Measure many partitions, columns and tables, and the memory of reading 20 million records
	@$(BIN)/python -m bench.scale $(ARGS)

check: setup ## What must pass before a commit: ruff, mypy, pyright, the fast tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/python -m pytest -q -m 'not spark and not kafka and not reliability and not debezium'

format: setup ## Put the code into its form, and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup ## Write the generated pages of docs/
	@$(BIN)/python -m docs.generate

site: setup ## Build the site of the documentation into build/site, without a network
	@$(BIN)/python -m docs.generate.site

dist: setup ## Build and check what is published, into dist/ (before a release: make dist RELEASE=1)
	@RELEASE='$(RELEASE)' $(BIN)/python -m release

clean: ## Remove .venv, caches and what was built
	@rm -rf .venv .venv-spark-* .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
