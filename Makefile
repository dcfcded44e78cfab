# `make demo` and `make test` set everything up themselves (Python 3.11 or newer).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ORACLES ?= .venv-oracles
LOGGERS ?= .venv-loggers
SOURCES ?= .venv-sources
CONSTRAINTS ?= constraints.txt
CHROMIUM ?= chromium
.PHONY: demo picture docs docs-serve notebooks test test-lowest dist bench-check test-all test-fast test-slow test-oracles test-loggers test-sources lint format types clean

$(VENV)/.installed: pyproject.toml compare/pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "churn_jax needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@echo "Installing churn_jax and JAX into $(VENV); this takes a few minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e '.[test]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e '.[test,docs]'
	touch $@

# Three rows of the README's study; `churn-jax study digits` trains the others, too.
demo: $(VENV)/.installed
	$(BIN)/churn-jax study digits --only baseline ensemble codistill_skl

# The top of the whole study's report, with a palette so that it is small.
picture: $(VENV)/.installed
	$(CHROMIUM) --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
		--user-data-dir=$$(mktemp -d) --window-size=1280,1230 \
		--screenshot=docs/report.png file://$(CURDIR)/runs/digits/report.html
	$(BIN)/python -c "from PIL import Image; path = 'docs/report.png'; \
		Image.open(path).convert('RGB').quantize(256, method=1).save(path, optimize=True)"

test: test-fast

test-all: test-fast test-slow

# The site in docs/_build/html. Warnings are errors; nothing is read from the network;
# links, public names and the commands' options are checked afterwards.
docs docs/_build/gallery/.made: export JAX_PLATFORMS ?= cpu

# The gallery's reports, in four minutes; again when the package changes.
docs/_build/gallery/.made: $(VENV)/.installed-docs $(wildcard docs/gallery/*) $(shell find churn_jax compare/churn_compare -name '*.py')
	$(BIN)/python docs/gallery/build.py docs/_build/gallery
	touch $@

docs: $(VENV)/.installed-docs docs/_build/gallery/.made
	$(BIN)/python -m sphinx -q -W --keep-going -j 2 -d docs/_build/doctrees -b html docs docs/_build/html
	rm -rf docs/_build/html/_sources docs/_build/html/jupyter_execute
	$(BIN)/python docs/check_site.py docs/_build/html

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

# Runs the notebooks in full and stores their outputs: a quarter of an hour, or NOTEBOOKS=quickstart.
notebooks: export JAX_PLATFORMS ?= cpu

notebooks: $(VENV)/.installed-test
	$(BIN)/python colabs/execute.py $(NOTEBOOKS)

# With the lowest versions that pyproject.toml allows, on Python 3.11.
test-lowest:
	$(MAKE) test-fast VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt

# Empty environments get the wheels that were built from the sdists, alone and together.
dist:
	rm -rf dist build .venv-dist
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check build
	.venv-dist/bin/python -m build --outdir dist .
	.venv-dist/bin/python -m build --outdir dist compare
	$(PYTHON) packaging/check.py dist --constraints $(CONSTRAINTS)
	ls -l dist

test-fast test-slow: export JAX_PLATFORMS ?= cpu

# Bytecode is kept, whatever the shell says: some tests start Python dozens of times.
test-fast test-slow: export PYTHONDONTWRITEBYTECODE =

test-fast: $(VENV)/.installed-test
	cd compare && ../$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

test-slow: $(VENV)/.installed-test
	cd compare && ../$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

# Public torch models against ours, in an environment of their own. timm asks for
# torchvision, which chooses another torch; timm's networks need neither.
$(ORACLES)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e '.[oracles]'
	$(ORACLES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps timm==1.0.31
	touch $@

test-oracles: export JAX_PLATFORMS ?= cpu

test-oracles: $(ORACLES)/.installed
	$(ORACLES)/bin/python -m pytest -q -s -m oracle tests/oracles

# Tests against optional packages, each kind in an environment of its own.
$(LOGGERS)/.installed: EXTRA = loggers
$(SOURCES)/.installed: EXTRA = sources

$(LOGGERS)/.installed $(SOURCES)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ./compare -e '.[test,tfds,$(EXTRA)]'
	touch $@

test-loggers test-sources: export JAX_PLATFORMS ?= cpu

# The adapters of loggers with CLU, Weights & Biases and MLflow, without network.
test-loggers: $(LOGGERS)/.installed
	$(LOGGERS)/bin/python -m pytest -q tests/training/test_tracking.py tests/training/test_loggers.py

# Data sets of Hugging Face, TensorFlow, PyTorch and pandas as `data.from_source` reads them,
# frames of these and of polars as a comparison does.
test-sources: $(SOURCES)/.installed
	$(SOURCES)/bin/python -m pytest -q tests/data/test_sources.py tests/data/test_example_sources.py
	cd compare && ../$(SOURCES)/bin/python -m pytest -q tests/outcomes/test_frames.py

# The key ratios of benchmarks/README.md, in three minutes of an idle machine.
bench-check: export JAX_PLATFORMS ?= cpu

bench-check: $(VENV)/.installed
	$(BIN)/python benchmarks/check.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyrefly check

format: $(VENV)/.installed-dev
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(ORACLES) $(LOGGERS) .venv-lowest .venv-dist dist runs
