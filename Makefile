# Two commands do everything on a machine with Python 3.10-3.12 and make: `make demo` and `make test`.
PYTHON ?= $(shell for v in 3.11 3.12 3.10; do command -v python$$v >/dev/null 2>&1 && python$$v -c '' 2>/dev/null && echo python$$v && break; done || true)
PYTHON := $(if $(PYTHON),$(PYTHON),python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Three on two cores: tests that start ranks or commands wait more than they compute.
WORKERS ?= 3

.PHONY: demo test unit mutants test-slow test-devices test-gpu test-ascend test-random long-run crash fuzz lint types bench bench-check docs pictures licenses clean env

env: $(STAMP)

define environment
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 12) else f"boost-compile needs Python 3.10 to 3.12, this is {v[0]}.{v[1]}: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip
endef

# mindspore is a download of about 800 MB: pip shows its progress.
# The links of an editable install (setup.py) know the files of boost_compile/ one by one.
$(STAMP): pyproject.toml setup.py $(wildcard boost_compile/*.py)
	$(environment)
	$(BIN)/python -m pip install --progress-bar on -e '.[dev]'
	$(BIN)/python -m pip install --no-deps 'mindcv==0.3.0'
	touch $@

# The demo needs none of the tools that develop this project; where those are installed, it takes that environment.
DEMO := $(VENV)/.demo
$(DEMO): pyproject.toml setup.py $(wildcard boost_compile/*.py)
	$(environment)
	$(BIN)/python -m pip install --progress-bar on -e '.[demo]'
	touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO))
	$(BIN)/python examples/demo.py

# mypy and the rules of imports are shown the package as it is installed: build/links, which the installation made (setup.py).
lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd build/links && "$(CURDIR)/$(BIN)/lint-imports" --config "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.cache/imports"

types: $(STAMP)
	cd build/links && "$(CURDIR)/$(BIN)/mypy" --config-file "$(CURDIR)/pyproject.toml" -p boost_compile

# In parts, because MindSpore keeps what it has compiled: one process for all would need 10 GB by the end. A file of tests is
# one worker's, so that its tests share references and jobs of ranks; tests/conftest.py puts those that take long first.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What does without MindSpore, in about a minute; tests/fast.py says which tests these are.
unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --unit tests/ir tests/passes tests/tools tests/test_names.py

# Breaks a module (or all of a folder) in N small ways and says which of them `make unit` would not notice; tests/mutation/.
MODULE ?= passes/step
N ?= 40
mutants: $(STAMP)
	$(BIN)/python -m tests.mutation $(MODULE) -n $(N)

test: lint types
	$(PYTEST) -m 'not slow' tests --ignore tests/passes --ignore tests/random_programs
	$(PYTEST) -m 'not slow' tests/passes tests/random_programs

test-slow: $(STAMP)
	$(PYTEST) -m slow

# Programs on MindSpore's own GPU and Ascend backends, without such devices; docs/devices.md.
test-devices: $(STAMP)
	$(BIN)/python -m tests.devices

# On a machine with a card: from single operations to whole trainings, as tables.
test-gpu: $(STAMP)
	$(BIN)/python -m tests.devices.card --device GPU

test-ascend: $(STAMP)
	$(BIN)/python -m tests.devices.card --device Ascend

# Random networks, optimizers and pipelines against native training, by seed; docs/testing.md.
CASES ?= 500
FIRST ?= 0
test-random: $(STAMP)
	$(BIN)/python -m tests.random_programs --cases $(CASES) --first $(FIRST)

# 2,000 cycles with overflows, checkpoints and reloads; also part of test-slow.
long-run: $(STAMP)
	$(BIN)/python -m pytest -s -m slow tests/runtime/training/test_long_run.py

# Writers and trainings that are killed at random points, and full disks; docs/testing.md.
crash: $(STAMP)
	$(BIN)/python -m tests.crash.run

# Hostile files for every reader, for SECONDS in all: by coverage where there is atheris for this Python, else by plain
# mutation; docs/testing.md. Fails when it finds something, which is in .cache/fuzz then.
SECONDS ?= 600
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet -e '.[fuzz]' || echo "atheris is not to be had here: plain mutation instead"
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

# Some figures of docs/benchmarks.md anew: fails where one is worse than in the last run on the same type of machine.
# SECTIONS="models memory.cycles" for others, which take longer.
bench-check: $(STAMP)
	$(BIN)/python -m benchmarks.check $(SECTIONS)

# The documentation as a site in build/site, which opens from the disk; a link that leads nowhere fails. (With --quiet it would not.)
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The pictures of the documentation; needs Graphviz and Chromium.
pictures: $(STAMP)
	$(BIN)/python docs/pictures/make.py

# docs/licenses.md, from what is installed; fails where a licence is none of those that are accepted.
licenses: $(STAMP)
	$(BIN)/python docs/make_licenses.py

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache build *.egg-info
