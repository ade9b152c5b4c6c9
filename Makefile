# Everyday commands. Each one first makes the virtual environment .venv if it is missing or out of date; nothing has to be activated.
#
#   make demo PYTHON=python3.12      another Python than python3 (3.11 or later)
#   make test TESTS=tests/data       some of the tests
#   make test WORKERS=0              in one process, for debuggers

PYTHON ?= python3
VENV ?= .venv
CLIENTS_VENV ?= .venv-clients
# What is fetched for tests, and the folders that they share.
FETCHED ?= .fetched
METHOD ?=
TESTS ?=
WORKERS ?= auto

BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
DEMO_INSTALLED := $(VENV)/demo-installed
DOCS_INSTALLED := $(VENV)/docs-installed
CLIENTS_INSTALLED := $(CLIENTS_VENV)/installed
# Folders of tiny models, which other programs and other versions of transformers load.
FOLDERS = rm -rf $(FETCHED)/folders && mkdir -p $(FETCHED)/folders && \
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.clients.make_folders $(FETCHED)/folders
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The oldest and the newest versions of what models, adapters and data are built on.
OLDEST := transformers==5.20.* peft==0.21.0
NEWEST := transformers peft datasets sentence-transformers huggingface_hub

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-peers test-versions check format docs bench-gpu

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO_INSTALLED) ## Train a small English model, teach it three languages and search (METHOD=mural trains a method)
	OMP_NUM_THREADS=1 $(BIN)/babelens demo $(if $(METHOD),--method $(METHOD))

test: $(INSTALLED) ## Run the tests, without network
	$(PYTEST) $(TESTS)

test-slow: $(INSTALLED) $(CLIENTS_INSTALLED) ## Run what takes longer: browsers, servers, a cluster, kills, recipes, exports under node, other programs
	$(BIN)/python -m tests.support.transformers_js $(FETCHED)/transformers.js
	$(FOLDERS)
	failed=0; \
	BABELENS_TRANSFORMERS_JS=$(abspath $(FETCHED)/transformers.js) BABELENS_CLIENTS=$(abspath $(CLIENTS_VENV)) \
		$(PYTEST) -m slow $(or $(TESTS),tests) || failed=1; \
	BABELENS_FOLDERS=$(abspath $(FETCHED)/folders) HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
		$(CLIENTS_VENV)/bin/python -m pytest --confcutdir tests/clients tests/clients || failed=1; \
	exit $$failed

test-peers: $(INSTALLED) ## Run transformers' and peft's own test suites on every model, processor and adapter
	$(BIN)/python tests/peers/fetch.py $(FETCHED)/peers
	BABELENS_PEERS=$(FETCHED)/peers HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --tb native tests/peers

test-versions: $(INSTALLED) ## Run the tests of models, processors, trainers and the Hub with the oldest and the newest transformers and peft
	$(FOLDERS)
	failed=0; \
	for versions in "oldest $(OLDEST)" "newest $(NEWEST)"; do \
		set -- $$versions; name=$$1; shift; \
		$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(FETCHED)/$$name "$$@" || exit; \
		echo "=== $$name: $$(ls $(FETCHED)/$$name | grep dist-info | tr '\n' ' ')"; \
		PYTHONPATH=$(abspath $(FETCHED))/$$name HF_HUB_OFFLINE=1 $(BIN)/python -m tests.saved.with_transformers $(FETCHED)/folders || failed=1; \
		PYTHONPATH=$(abspath $(FETCHED))/$$name $(PYTEST) \
			$(or $(TESTS),tests/modeling tests/processing tests/trainers tests/hub tests/saved) || failed=1; \
	done; \
	exit $$failed

check: $(INSTALLED) ## Check formatting, lint, spelling and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/mypy -p babelens
	$(BIN)/mypy benchmarks examples docs/tools

format: $(INSTALLED) ## Format the code and fix what lint can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS_INSTALLED) ## Build the documentation into site/; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-gpu: $(INSTALLED) ## Print one table of what this machine's GPUs reach (TINY=1 tries its code on the processor)
	$(if $(TINY),OMP_NUM_THREADS=1 )$(BIN)/python benchmarks/gpu.py $(if $(TINY),--device cpu --tiny)

.PHONY: python-version
python-version:
	@$(PYTHON) -c 'import sys; sys.exit("babelens needs Python 3.11 or later; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

$(INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@

# The demo needs a small part of what the tests need. Nothing is installed where all of that is there.
$(DEMO_INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(VENV)
	[ $(INSTALLED) -nt pyproject.toml ] && [ $(INSTALLED) -nt constraints.txt ] || \
		$(BIN)/python -m pip install -c constraints.txt -e '.[emoji]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt -e '.[docs]'
	@touch $@

# The programs that people run with saved folders, and a Space's Gradio, without babelens; torch and transformers are the pinned ones.
# Gradio does not take the pinned Pillow yet.
$(CLIENTS_INSTALLED): constraints.txt tests/clients/requirements.txt | python-version
	$(PYTHON) -m venv $(CLIENTS_VENV)
	grep -v '^pillow==' constraints.txt > $(CLIENTS_VENV)/constraints.txt
	$(CLIENTS_VENV)/bin/python -m pip install -c $(CLIENTS_VENV)/constraints.txt -r tests/clients/requirements.txt
	@touch $@
