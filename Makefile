# The two commands: `make demo` and `make test`. Each sets up everything it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test site site-pictures notebook lint format crash fuzz soak fleet sanitize sanitize-threads valgrind arm clean

demo: $(READY)
	$(BIN)/glstm demo

test: lint
	$(BIN)/python -m pytest

# The documentation as a site with search, into build/site. It opens from there without a server.
site: $(READY)
	$(BIN)/python docs/site/build_site.py

site-pictures: $(READY)
	PYTHONPATH=docs/site:tests $(BIN)/python tests/site_pictures.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The notebook again, with its outputs, and docs/first-hour.md with its pictures. One thread: its networks are small.
notebook: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python examples/run_notebook.py

# torch first and alone: left to a dependency's open range, pip would take the newest build there is.
$(READY): pyproject.toml constraints-dev.txt CMakeLists.txt $(wildcard src/glstm/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "glstm needs Python 3.11 or later; say which with: make PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[dev]'
	@$(BIN)/python -c 'from glstm.ops import cpu; print(cpu.status())'
	@touch $@

# For those who work on what is saved: kills at every call that changes the disk, and a hundred random ones; minutes.
crash: $(READY)
	$(BIN)/python tests/crash.py

# Damaged files of every format, which must be read or refused; and drawn layers against float64.
FUZZ_INPUTS ?= 200000
FUZZ_CASES ?= 2000
fuzz: $(READY)
	$(BIN)/python tests/fuzz/harness.py --count $(FUZZ_INPUTS)
	GLSTM_FUZZ_CASES=$(FUZZ_CASES) $(BIN)/python -m pytest -n 0 tests/fuzz/test_engine.py

# Whether memory grows in 100000 calls of each kind.
soak: $(READY)
	$(BIN)/python tests/soak.py

# Training on many machines: Ray, which is large, and its tests on a real cluster of two nodes on this machine.
fleet: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[ray]'
	$(BIN)/python -m pytest -n 0 tests/sweeps

# For those who work on the C code: its tests on an engine that reports bad addresses and undefined behaviour. Those of
# CUDA's kernels have nothing to do with it, and NVRTC does not find its own files under the address sanitizer ...
OF_CUDA := $(addprefix tests/ops/test_,bn_step.py fused.py gpu.py gpu_choice.py gpu_gru.py gpu_sparse.py gpu_wide.py unit_scan.py)
sanitize: $(READY)
	cmake -S . -B build/sanitized -DGLSTM_SANITIZE=ON
	cmake --build build/sanitized
	GLSTM_ENGINE=$(CURDIR)/build/sanitized/engine.so \
	  LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(BIN)/python -m pytest -n 0 tests/ops tests/test_tables.py \
	  tests/runtime/test_runtime.py tests/runtime/test_stream.py tests/fuzz/test_engine.py tests/test_torch_conventions.py \
	  --deselect tests/ops/test_segments.py::test_segments_save_memory $(addprefix --ignore=,$(OF_CUDA))

# ... as a program without Python, with threads that the thread sanitizer watches ...
sanitize-threads:
	mkdir -p build/threads
	cc -std=gnu99 -O1 -g -ffp-contract=fast -fsanitize=thread -fopenmp -DTHREADS=3 -c -o build/threads/check.o \
	  tests/native/check.c
	cd build/threads && cc -std=gnu99 -O1 -g -ffp-contract=fast -fsanitize=thread -fopenmp -c \
	  $(addprefix ../../,$(wildcard src/glstm/native/*.c)) ../../tests/native/openmp.c
	cc -fsanitize=thread -o build/threads/check build/threads/*.o -lm -lpthread
	build/threads/check

# ... the same under valgrind ...
valgrind:
	mkdir -p build/valgrind
	cc -std=gnu99 -O1 -g -ffp-contract=fast -o build/valgrind/check \
	  tests/native/check.c src/glstm/native/*.c -lm -lpthread
	valgrind --quiet --error-exitcode=1 --leak-check=full build/valgrind/check

# ... and compiled for ARM; where there is an emulator, run on it.
arm:
	mkdir -p build/arm
	aarch64-linux-gnu-gcc -std=gnu99 -O1 -c -o build/arm/check.o tests/native/check.c
	aarch64-linux-gnu-gcc -std=gnu99 -O3 -Wall -Wextra -Werror -fopenmp -ffp-contract=fast -static -o build/arm/check \
	  build/arm/check.o src/glstm/native/*.c -lm -lpthread
	@if command -v qemu-aarch64 >/dev/null; then qemu-aarch64 build/arm/check; else echo "compiled for ARM, not run"; fi

clean:
	rm -rf .venv build dist runs .pytest_cache .ruff_cache .hypothesis
