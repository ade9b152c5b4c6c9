# Everyday commands. Each one first makes the virtual environment .venv if it is missing or out of date; nothing has to be activated.
#
#   make demo PYTHON=python3.12      another Python than python3 (3.11 or later)
#   make test TESTS=tests/data       some of the tests
#   make test WORKERS=0              in one process, for debuggers

PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
SPACE_VENV ?= .venv-space
CLIENTS_VENV ?= .venv-clients
NEWEST_VENV ?= .venv-newest
PEERS ?= .peers
# The last four minor versions of transformers that babelens' own bound allows; saved folders load in each.
TRANSFORMERS ?= 5.20 5.21 5.22 5.23
TRANSFORMERS_JS ?= .transformers-js
METHOD ?=
STEPS ?=
TESTS ?=
WORKERS ?= auto

BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
DEMO_INSTALLED := $(VENV)/demo-installed
BENCH_INSTALLED := $(BENCH_VENV)/installed
SPACE_INSTALLED := $(SPACE_VENV)/installed
CLIENTS_INSTALLED := $(CLIENTS_VENV)/installed
NEWEST_INSTALLED := $(NEWEST_VENV)/installed
# What models, adapters and data are built on; above the bounds of pyproject.toml too.
NEWEST := transformers peft datasets sentence-transformers huggingface_hub
DOCS_INSTALLED := $(VENV)/docs-installed
NOTEBOOK_INSTALLED := $(VENV)/notebook-installed

# Without the notice of the theme's authors about their next program.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-live test-peers test-space test-clients test-newest test-transformers test-data test-exports fuzz check format docs docs-serve tutorial build bench-env bench-gpu bench-gpu-tiny clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO_INSTALLED) ## Train a small model on the emoji benchmark and try it (METHOD=mural picks the method, STEPS=200 trains less)
	$(BIN)/babelens demo $(if $(METHOD),--method $(METHOD)) $(if $(STEPS),--steps $(STEPS))

serve: $(INSTALLED) ## Search the emoji with the demo's model in a browser, at http://127.0.0.1:7860 (METHOD=mural picks the model)
	test -d runs/demo-$(or $(METHOD),mural)/evaluation || $(MAKE) demo
	test -f runs/emoji/LICENSES.txt || $(BIN)/python examples/emoji_images.py runs/emoji
	$(BIN)/babelens serve runs/demo-$(or $(METHOD),mural) --images runs/emoji

test: $(INSTALLED) ## Run the tests, without network
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

test-peers: $(INSTALLED) ## Run transformers' and peft's own test suites on every model, processor and adapter
	$(BIN)/python tests/peers/fetch.py $(PEERS)
	BABELENS_PEERS=$(PEERS) HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --tb native tests/peers

test-space: $(INSTALLED) $(SPACE_INSTALLED) ## Start the Space that babelens push --space writes, in an environment of its own, and ask it
	BABELENS_SPACE=$(SPACE_VENV) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/space

test-clients: $(CLIENTS_INSTALLED) ## Run programs of others on saved folders: LangChain, LlamaIndex, Chroma, LanceDB, txtai, mteb
	BABELENS_CLIENTS=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(CLIENTS_VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --confcutdir tests/clients tests/clients

test-newest: $(NEWEST_INSTALLED) ## Run the tests of models, processors, trainers and the Hub with the newest transformers, peft and datasets; may fail
	$(NEWEST_VENV)/bin/python -m pip list | grep -iE "^($$(echo $(NEWEST) | tr ' ' '|' | tr '_-' '..')) "
	OMP_NUM_THREADS=1 $(NEWEST_VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile $(or $(TESTS),tests/modeling tests/processing tests/trainers tests/inference tests/hub tests/saved)

test-transformers: $(INSTALLED) ## Load saved folders in the last minor versions of transformers, without babelens (TRANSFORMERS="5.22 5.23")
	rm -rf .transformers && mkdir -p .transformers/folders
	$(BIN)/python -m tests.clients.make_folders .transformers/folders
	for version in $(TRANSFORMERS); do \
		$(BIN)/python -m pip install --quiet --no-deps --target .transformers/$$version "transformers==$$version.*" && \
		PYTHONPATH=.transformers/$$version:. HF_HOME=.transformers/hf HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
			$(BIN)/python -m tests.saved.with_transformers .transformers/folders || exit; \
	done

test-live: $(INSTALLED) ## Run what takes longer: servers, browsers (Chromium), a Ray cluster, runs that are killed, installs, the examples
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m live tests

test-data: $(INSTALLED) ## Build the emoji benchmark from its sources (npm registry) and check it
	$(BIN)/python -m pytest -m data tests

fuzz: $(INSTALLED) ## Give functions 10,000 random inputs each, where the tests give 300 (CASES=100000 for more)
	BABELENS_FUZZ=$(or $(CASES),10000) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --timeout 0 tests/fuzz

test-exports: $(INSTALLED) ## Export every kind of model to ONNX, and run it in Python and, with transformers.js (npm registry), under node
	$(BIN)/python -m tests.support.transformers_js $(TRANSFORMERS_JS)
	BABELENS_TRANSFORMERS_JS=$(abspath $(TRANSFORMERS_JS)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m exports tests

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

bench-gpu: $(INSTALLED) ## Print one table of what this machine's GPUs reach: steps, batches, encoding, several devices
	$(BIN)/python benchmarks/gpu.py

bench-gpu-tiny: $(INSTALLED) ## Try the code of that table in small, on the processor
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/gpu.py --device cpu --tiny

clean: ## Remove the virtual environments, builds and caches; what was trained in runs/ stays
	rm -rf $(VENV) $(BENCH_VENV) $(SPACE_VENV) $(CLIENTS_VENV) $(NEWEST_VENV) $(PEERS) .transformers $(TRANSFORMERS_JS) site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: python-version
python-version:
	@$(PYTHON) -c 'import sys; sys.exit("babelens needs Python 3.11 or later; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

$(INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@

# What the demo needs: a small part of what the tests need. Nothing is installed where all of that is there.
$(DEMO_INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(VENV)
	[ $(INSTALLED) -nt pyproject.toml ] && [ $(INSTALLED) -nt constraints.txt ] || \
		$(BIN)/python -m pip install -c constraints.txt -e '.[emoji]'
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

# What a Space installs: its Gradio, and what the code of a model imports. Gradio does not take the pinned Pillow yet.
$(SPACE_INSTALLED): pyproject.toml constraints.txt babelens/spaces.py | python-version
	$(PYTHON) -m venv $(SPACE_VENV)
	grep -v '^pillow==' constraints.txt > $(SPACE_VENV)/constraints.txt
	$(SPACE_VENV)/bin/python -m pip install -c $(SPACE_VENV)/constraints.txt gradio==$$(sed -n 's/^GRADIO = "\(.*\)".*/\1/p' babelens/spaces.py) torch transformers pillow numpy langcodes safetensors
	@touch $@

# What people run with models of the Hub; torch and transformers are the pinned ones.
$(CLIENTS_INSTALLED): pyproject.toml constraints.txt tests/clients/requirements.txt | python-version
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip install -c constraints.txt -e '.[lance,mteb,onnx,sentence-transformers,serve]' -r tests/clients/requirements.txt
	@touch $@

# The newest versions, whatever bounds others state for them: what that breaks is what the target is for.
$(NEWEST_INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip install -c constraints.txt -e '.[dev]'
	$(NEWEST_VENV)/bin/python -m pip install --upgrade $(NEWEST)
	@touch $@
