# Everyday commands. Each one first makes the virtual environment .venv if it is missing or out of date; nothing has to be activated.
#
#   make demo PYTHON=python3.12      another Python than python3 (3.11 or later)
#   make test TESTS=tests/data       some of the tests
#   make test WORKERS=0              in one process, for debuggers

PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
PEERS ?= .peers
METHOD ?=
MINUTES ?=
TESTS ?=
WORKERS ?= auto

BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
BENCH_INSTALLED := $(BENCH_VENV)/installed
DOCS_INSTALLED := $(VENV)/docs-installed
NOTEBOOK_INSTALLED := $(VENV)/notebook-installed

# Without the notice of the theme's authors about their next program.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help demo test test-peers test-data check format docs docs-serve tutorial build bench-env clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Train a small model on the emoji benchmark and try it (METHOD=mural picks the method, MINUTES=5 how long it trains)
	$(BIN)/babelens demo $(if $(METHOD),--method $(METHOD)) $(if $(MINUTES),--minutes $(MINUTES))

test: $(INSTALLED) ## Run the tests, without network
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

test-peers: $(INSTALLED) ## Run transformers' and peft's own test suites on every model, processor and adapter
	$(BIN)/python tests/peers/fetch.py $(PEERS)
	BABELENS_PEERS=$(PEERS) HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --tb native tests/peers

test-data: $(INSTALLED) ## Build the emoji benchmark from its sources (npm registry) and check it
	$(BIN)/python -m pytest -m data tests

check: $(INSTALLED) ## Check formatting, lint, spelling and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/mypy -p babelens

format: $(INSTALLED) ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS_INSTALLED) ## Build the documentation's site into site/; a broken link or reference is an error
	$(MKDOCS) build --strict

docs-serve: $(DOCS_INSTALLED) ## Show the documentation at http://127.0.0.1:8000, and again after each change
	$(MKDOCS) serve

tutorial: $(NOTEBOOK_INSTALLED) ## Run the tutorial as a notebook, into runs/tutorial.ipynb
	mkdir -p runs
	$(BIN)/jupytext --to ipynb --execute --run-path . --output runs/tutorial.ipynb examples/tutorial.py

build: $(INSTALLED) ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build

bench-env: $(BENCH_INSTALLED) ## Make .venv-bench, where benchmarks/ find the libraries that they compare with

clean: ## Remove the virtual environments, builds and caches; what was trained in runs/ stays
	rm -rf $(VENV) $(BENCH_VENV) $(PEERS) site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: python-version
python-version:
	@$(PYTHON) -c 'import sys; sys.exit("babelens needs Python 3.11 or later; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

$(INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@

$(NOTEBOOK_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt -e '.[notebook]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt -e '.[docs]'
	@touch $@

$(BENCH_INSTALLED): pyproject.toml constraints.txt benchmarks/requirements.txt | python-version
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install -c constraints.txt -e .
	$(BENCH_VENV)/bin/python -m pip install --no-deps -r benchmarks/requirements.txt
	@touch $@
