# Needs Python 3.11 or newer and make; everything else goes into .venv/.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
            if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
            then echo $$p; break; fi; done)
STAMP  := $(VENV)/.installed

.PHONY: setup run test test-slow check lint types fix wheel bench real clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: none is on the PATH."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# The whole path on real text: installs, trains for about five minutes on two cores, shows the result.
run: setup
	$(BIN)/python -m txlab +recipe=pretrain model.attn=gqa

test: setup
	$(BIN)/python -m pytest -n auto

test-slow: setup
	$(BIN)/python -m pytest -n auto --slow

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/pyright --pythonpath $(BIN)/python

# The tests come last, so that their closing line ends the output.
check: lint types test

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup
	$(BIN)/python -m hatchling build -t wheel

bench: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python -m pip install --quiet --no-deps litgpt jsonargparse docstring-parser
	for how in "" "--dtype bf16" "--compile" "--dtype bf16 --compile"; do \
	    $(BIN)/python -m benchmarks.train_step $$how; done
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.head_memory
	$(BIN)/python -m benchmarks.ranks
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.data
	if test -n "$$TXLAB_SMOLLM2"; then $(BIN)/python -m benchmarks.trl; fi

# Tests on real weights (TXLAB_SMOLLM2=DIR, TXLAB_MINILM=DIR), also beside TRL; not part of check.
real: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python -m pytest -m real --slow

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
