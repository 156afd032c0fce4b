# SPDX-License-Identifier: Apache-2.0
# Everything a developer types. Each target makes what it needs first; a second call finds it done.
#
#   make demo      train a small model that overflows, find the operator, cut it out, run it alone
#   make test      the tests, some five minutes    make lint     style, types, layers, sizes
#   make zoo       whole programs in processes of their own, most through the real command line, some thirty minutes
#   make zoo SHARE=32  of those tests that have several cases each thirty-second, as continuous integration does
#   make zoo-all   ports of models beside their originals, all of them: the score of opscope compare; shared models
#   make bench     what recording costs            make docs     the documentation, docs/_build/html
#   make interop   tests against real producers, each in its own environment
#   make attack    faults, kills and random programs by the hundred
#   make fuzz      every parser of foreign files under atheris, FUZZ_SECONDS (60) each
#   make dist      sdist, wheel of this platform and the wheel without kernels, in dist, each held to its linters; what GitHub and Read the Docs read, too
#   make mutate    the same parsers on MUTATIONS (1000000) changed inputs: no crash, no hang over 2 s, growth under 64 MiB
#
# PYTHON=python3.12 chooses the interpreter, JOBS=4 how many tests run at once (2), PIP_FLAGS is passed to every pip install (an
# index of CPU builds of torch, say).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.SUFFIXES:
# Python keeps what it has compiled: without that, each of the thousands of processes that tests start compiles opscope anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints-dev.txt
PYTEST := $(BIN)/python -m pytest --durations 20
FUZZ_SECONDS ?= 60
SEEDS ?= 0-200
SHARE ?= 1
MUTATIONS ?= 1000000
NATIVE := $(wildcard src/opscope/kernels/native/*)
BENCHMARKS = $(shell grep -l __main__ benchmarks/*.py)
PRODUCERS := $(patsubst tests/interop/%.txt,%,$(wildcard tests/interop/*.txt))
# Where tests find them.
INTERPRETERS = $(foreach name,$(PRODUCERS),OPSCOPE_$(shell echo $(name) | tr a-z A-Z)_PYTHON=$(CURDIR)/.venv-$(name)/bin/python)

.PHONY: venv build demo test zoo zoo-all attack lint interop producers fuzz mutate bench docs dist clean

venv: $(VENV)/.tools

$(VENV)/.tools:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "opscope needs Python 3.10 or newer; make PYTHON=… chooses one")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) "scikit-build-core>=0.10" "nanobind>=2.2"
	command -v cmake >/dev/null || $(PIP_INSTALL) cmake
	touch $@

build: $(VENV)/.built

# No build isolation: what builds the kernels is in the environment already, so that this also works without a network.
$(VENV)/.built: $(VENV)/.tools pyproject.toml constraints-dev.txt CMakeLists.txt $(NATIVE)
	@echo "opscope: installing torch, the developers' tools and what they need into $(VENV), 1.2 GB where PIP_FLAGS names an index of CPU builds of torch"
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	touch $@

demo: build
	$(BIN)/python scripts/demo.py

# Without the zoo, but with what is marked as its sample: of each verb a program or two. The cores are the tests': several threads
# of torch in each would only wait for each other.
test: build
	env OMP_NUM_THREADS=1 $(PYTEST) -n $(JOBS) --dist worksteal -m "(sample or not zoo) and not interop and not attack"

# Whole programs in processes of their own: the zoo of faults, runs to compare, wrong kernels, endings, folders that run alone.
zoo: build
	env OMP_NUM_THREADS=1 $(PYTEST) -n $(JOBS) --dist worksteal --share $(SHARE) -m "zoo and not interop and not attack"

# A score, no test: what is missed is said, and the zoo holds a sample of what is not.
zoo-all: .venv-models/.ready .venv-mindspore/.ready .venv-jax/.ready .venv-tensorflow/.ready
	env OMP_NUM_THREADS=1 $(INTERPRETERS) .venv-models/bin/python -m tests.compare_zoo.ports --jobs $(JOBS)
	$(PYTEST) -n $(JOBS) --dist worksteal -m attack tests/compare_zoo

# Faults in every call of the recorder, kills at random moments, random programs; the ordinary tests have a sample of each.
attack: build
	env OPSCOPE_ATTACK_SEEDS=$(SEEDS) $(BIN)/python -m pytest -o faulthandler_timeout=3600 -m "(attack or zoo) and not interop" tests/attack

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_size.py

# Each real producer has an environment of its own, .venv-NAME, made from tests/interop/NAME.txt; the tests are told by variables.
# As many environments are made at once as tests run; each says what it has to say when it is done.
interop: build
	+$(MAKE) --no-print-directory --output-sync=target -j $(JOBS) producers
	env $(INTERPRETERS) $(PYTEST) -n $(JOBS) --dist loadfile -m interop

producers: $(PRODUCERS:%=.venv-%/.ready)

# Most of what is installed there is never imported; what is, Python compiles when it is.
INTO := -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_FLAGS)
SITE := 'import sysconfig; print(sysconfig.get_path("purelib"))'
# Everything that the developers' environment has, in another one.
developers = echo "import site; site.addsitedir('$$($(BIN)/python -c $(SITE))')" >$$($(1)/bin/python -c $(SITE))/developers.pth
# torch_npu is put beside the developers' torch, which it wants but must not install, with a stand-in of CANN under it.
.venv-npu/.ready: tests/interop/npu.txt $(wildcard tests/interop/npu/*) | build
	test -x .venv-npu/bin/python || $(PYTHON) -m venv .venv-npu
	.venv-npu/bin/python $(INTO) --no-deps -r $<
	$(call developers,.venv-npu)
	.venv-npu/bin/python tests/interop/npu/build.py .venv-npu/cann
	touch $@

# Those in which the developers' torch runs as well, beside ONNX Runtime or JAX, and opscope is the one with compiled kernels.
.venv-onnx/.ready .venv-jax/.ready: .venv-%/.ready: tests/interop/%.txt | build
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(INTO) -r $<
	$(call developers,.venv-$*)
	touch $@

# Packages of models beside the developers' torch, which they want but must not install. Not torchvision, nor timm, which wants it: its
# wheels on PyPI are of torch with CUDA, and load beside no other.
.venv-models/.ready: tests/compare_zoo/ports/models.txt | build
	test -x .venv-models/bin/python || $(PYTHON) -m venv .venv-models
	.venv-models/bin/python $(INTO) --no-deps -r $<
	$(call developers,.venv-models)
	touch $@

.venv-%/.ready: tests/interop/%.txt
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(INTO) -r $<
	touch $@

# What it finds lies in the folder it is run in; copy that to tests/fuzz/corpus/TARGET, where make test replays it.
fuzz: $(VENV)/.fuzz
	@for target in $(notdir $(wildcard tests/fuzz/corpus/*)); do \
		echo "# $$target"; $(BIN)/python tests/fuzz/fuzz.py $$target -max_total_time=$(FUZZ_SECONDS) -verbosity=0; \
	done

mutate: build
	$(BIN)/python -W ignore tests/fuzz/mutate.py --inputs $(MUTATIONS)

$(VENV)/.fuzz: $(VENV)/.built tests/fuzz/atheris.txt
	$(PIP_INSTALL) -r tests/fuzz/atheris.txt
	touch $@

bench: build
	@for script in $(BENCHMARKS); do echo "# $$script"; env PYTHONPATH=. $(BIN)/python "$$script"; done

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

$(VENV)/.docs: $(VENV)/.built
	$(PIP_INSTALL) --no-build-isolation -e '.[docs]'
	touch $@

# The wheel that any platform takes has no kernels: NumPy does their work, slower.
PURE := -C wheel.cmake=false -C wheel.py-api=py3 -C wheel.platlib=false
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir dist --wheel $(PURE)
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/zizmor --offline --quiet .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action/action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# actionlint comes as a binary or an image: GitHub's job runs it (checks.yml).
$(VENV)/.dist: $(VENV)/.tools
	$(PIP_INSTALL) build twine check-wheel-contents validate-pyproject zizmor check-jsonschema
	touch $@

clean:
	rm -rf build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
