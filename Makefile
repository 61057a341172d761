# Two commands for newcomers, then the others:
#
#   make demo     set up, report on a real log that ships with the project
#   make test     set up, run every test
#   make attach   train a small ZeRO job on two CPU ranks, one of them slow; record it and report
#   make check    lint, format, types
#   make fmt      format
#   make bench    speed and exactness on generated logs with known truth
#   make truth    train jobs with planted faults and score the verdicts, half an hour
#   make corpus   read every real log that is at hand and compare with its truth
#   make oldest   run the tests that need no torch with the oldest dependencies that are allowed
#
# Everything lives in .venv; nothing here needs a GPU or a compiler. Tests of the hook run real
# DeepSpeed jobs on two CPU ranks: `make test` and `make attach` install torch, `make demo` does not.
# Tests start hundreds of processes: without bytecode on disk, each would compile the project again.
# A worker waits a part of its time, so there is one more than cores; one has all real jobs, and more
# than ten would only wait for it. pip compiles on one core, including modules that nobody imports;
# compileall uses all cores and skips packages' own tests, and packages of which hardly a module is
# imported. What pip has installed is compiled while it unpacks the next; what it still writes is
# not, or bytecode of half a file could pass for that of the whole.

PYTHON  ?= python3
CORES   := nproc 2>/dev/null || getconf _NPROCESSORS_ONLN
WORKERS ?= $(shell n=$$($(CORES)); echo $$((n < 9 ? n + 1 : 10)))
CORPUS  ?= ../shared
TORCH     ?= torch==2.13.0
JOBS      ?= deepspeed==0.19.8 transformers accelerate lightning
BIN     := .venv/bin
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --prefer-binary \
	--no-compile
COMPILER := $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|models|pip|plotly)/'
COMPILE  := $(COMPILER) .venv/lib || true
WHAT_IS_THERE := set -- .venv/lib/python*/site-packages/*; $(COMPILER) "$$@"

.PHONY: demo test attach check fmt bench truth corpus oldest

demo: .venv/installed
	$(BIN)/dsprof report sample_logs/neox_pipeline_2023.log -o report.html
	@echo "The same with every step, timeline and proof: $(CURDIR)/report.html"

test: .venv/installed-test .venv/installed-jobs
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

attach: .venv/installed-jobs
	rm -rf runs/demo
	OMP_NUM_THREADS=1 $(BIN)/dsprof attach --out runs/demo -- $(BIN)/torchrun --standalone \
		--nproc-per-node 2 examples/train_zero.py --slow-rank 1
	$(BIN)/dsprof report runs/demo -o runs/demo.html

check: .venv/installed-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: .venv/installed-check
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.bench

truth: .venv/installed-jobs
	$(PIP) traceml-ai==0.5.0
	$(BIN)/python -m benchmarks.truth --rival --write

corpus: .venv/installed
	$(BIN)/python -m benchmarks.corpus $(CORPUS)

oldest:
	$(PYTHON) -m venv --clear .venv/oldest
	.venv/oldest/bin/pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt \
		--editable '.[test]'
	.venv/oldest/bin/python -m pytest -n $(WORKERS) --dist worksteal -p no:cacheprovider

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("dsprof needs Python 3.11 or later, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(PIP) --editable .
	@$(COMPILE)
	@touch $@

# DeepSpeed asks the installed torch how it was built. If either cannot be installed, the tests that
# need them skip and say so; the next `make` tries again.
.venv/installed-jobs: .venv/installed-test
	$(WHAT_IS_THERE) & \
	$(PIP) $(TORCH) setuptools wheel && \
		{ $(WHAT_IS_THERE) & $(PIP) --no-build-isolation $(JOBS); } && touch $@ || \
		echo 'no torch, DeepSpeed or trainer for this Python: tests of real jobs will skip'; \
	wait
	@$(COMPILE)

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[test]'
	@touch $@

.venv/installed-%: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[test,$*]'
	@$(COMPILE)
	@touch $@
