# Each target makes its own environment in .venv the first time. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
TESTS ?= tests
BENCH ?= $(basename $(notdir $(shell grep -l '__main__' benchmarks/*.py)))

# Programs are started hundreds of times: what Python has compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
# Without venv (Debian leaves it out) the environment is made by virtualenv, fetched for the purpose.
MAKER := $(VENV)-maker
LOWEST := $(VENV)-lowest

.PHONY: site demo test check coverage mutants bench experiments wheel-check lower-bounds lock clean help

help:
	@echo "make demo     release an invented survey, print its errors and where the report is"
	@echo "make test     run the tests (make test TESTS=tests/releases for some of them)"
	@echo "make check    ruff and mypy"
	@echo "make coverage line coverage of the privacy code by its own tests"
	@echo "make mutants  put 200 faults into the privacy code, one at a time, and count those that tests notice"
	@echo "make bench    measure speed, memory and accuracy (make bench BENCH=counting for one of them)"
	@echo "make experiments          the papers' figures and the peers, in minutes (ONLY=accounting for some of them)"
	@echo "make experiments FULL=1   the same at the papers' sizes; goes on where a broken run stopped"
	@echo "make site     build the pages and the reference made from docstrings, in site/"
	@echo "make wheel-check   a wheel in an empty environment makes the demo, without a network"
	@echo "make lower-bounds  tests with the lowest versions that pyproject.toml allows"
	@echo "make lock          write requirements-dev.lock, the exact versions for development"
	@echo "make clean    remove the environments and everything made here"

# What the program needs; the rest, for tests and development, is several times as large and comes with $(READY).
$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed; name one with PYTHON=..." >&2; exit 2; }
	@echo "Making the environment in $(VENV); this happens once and takes a minute."
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	    rm -rf $(VENV) $(MAKER); \
	    $(PYTHON) -m pip install --quiet --target $(MAKER) virtualenv && \
	    PYTHONPATH=$(MAKER) $(PYTHON) -m virtualenv --quiet $(VENV); } || \
	    { echo "Neither venv nor pip works for $(PYTHON); on Debian: apt-get install python3-venv" >&2; exit 2; }
	@rm -rf $(MAKER)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(READY): $(CORE)
	@echo "Adding what tests and development need; this happens once and takes a minute or two."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(CORE)
	@rm -rf demo-release
	@$(BIN)/dualquery demo --out demo-release

test: $(READY)
	@sh tools/programs.sh
	$(BIN)/python -m pytest -n 3 --dist worksteal $(TESTS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Compiled kernels run as plain Python in the second run, where their lines can be counted.
coverage: $(READY)
	$(BIN)/python -m pytest tests/privacy tests/golden --cov=dualquery.privacy --cov-report=
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest tests/privacy/test_noise.py tests/privacy/test_selection.py tests/golden \
	    -k "not any_number_of_threads and not about_its_size" \
	    --cov=dualquery.privacy --cov-append --cov-report=term-missing

mutants: $(READY)
	$(BIN)/python tools/mutate.py

bench: $(READY)
	@for name in $(BENCH); do $(BIN)/python -m benchmarks.$$name || exit 1; done

experiments: $(READY)
	@$(BIN)/python -m experiments $(if $(FULL),--full) $(if $(DATA),--data $(DATA)) $(if $(OUT),--out $(OUT)) \
	    $(if $(ONLY),--only $(ONLY))

site: $(READY)
	$(BIN)/mkdocs build --strict --quiet

wheel-check: $(READY)
	$(BIN)/python -m pytest -s -m long tests/distribution

# Direct dependencies at their lowest; what they depend on, at its newest.
lower-bounds: $(READY)
	@rm -rf $(LOWEST)
	@$(BIN)/python -m venv --without-pip $(LOWEST)
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --extra exact --extra sign \
	    --no-header --no-annotate pyproject.toml -o $(LOWEST)/lowest.txt
	@cat $(LOWEST)/lowest.txt
	@$(BIN)/python -m pip --python $(LOWEST)/bin/python install --quiet -r $(LOWEST)/lowest.txt \
	    pytest hypothesis pandas polars psutil scipy
	PYTHONPATH=src $(LOWEST)/bin/python -m pytest tests/releases tests/table tests/cli/test_cli.py

lock: $(READY)
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --extra test --annotation-style line \
	    --custom-compile-command "make lock" pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) $(MAKER) $(LOWEST) .peers site demo-release benchmarks/results experiments/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +
