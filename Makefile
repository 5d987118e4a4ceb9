# The two commands: `make demo` and `make test`. Each sets up everything it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint format clean

demo: $(READY)
	$(BIN)/glstm demo

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# torch first and alone: left to a dependency's open range, pip would take the newest build there is.
$(READY): pyproject.toml CMakeLists.txt $(wildcard src/glstm/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "glstm needs Python 3.11 or later; say which with: make PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python -c 'from glstm.ops import cpu; print(cpu.status())'
	@touch $@

clean:
	rm -rf .venv build dist runs .pytest_cache .ruff_cache .hypothesis
