# Thin entries over the CMake presets; PRESET=dev or PRESET=ci builds in build/dev or build/ci.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build/$(PRESET))
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
# Folders that clang-tidy reads; all unless said.
LINT ?=
SETUP := src/cmake/setup.sh

# Where no toolkit is installed, the one that setup.sh unpacked: asked when a recipe runs, since that
# may happen in the same run.
TOOLKIT := $(CURDIR)/build/cuda/nvidia/cu13
WITH_TOOLKIT := [ ! -d $(TOOLKIT)/lib ] || export KERNWRIGHT_CUDA_PATH=$${KERNWRIGHT_CUDA_PATH:-$(TOOLKIT)};

.PHONY: build all tune test fleet-test fresh-test golden docs dist wheel wheel-test fuzz-python patch-test engines-test data-wheel bench format lint fuzz sanitize aarch64 clean

# What `cmake --install` installs.
build:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target installed

# With tests, benches and examples.
all:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS)

# One real shape of every operation: on the GPU if there is one, else by prediction for an H200.
tune:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_cli
	@$(WITH_TOOLKIT) src/cmake/tune.sh $(BUILD)/bin/kernwright

# What tests run: neither the other benches nor what is installed alone.
test:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target tests
	@$(WITH_TOOLKIT) python3 src/cmake/run_tests.py --preset $(PRESET) --jobs $(JOBS)

# What src/examples/deployment says, with real daemons: Slurm, and Kubernetes' schemas. Installs Slurm
# and munge with apt; their services are neither started nor enabled.
fleet-test:
	@$(SETUP) --fleet
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_cli
	@PYTHONPATH=build/kubernetes-validate python3 -m kubernetes_validate --strict src/examples/deployment/*.yaml
	@$(WITH_TOOLKIT) python3 -B tests/deployment/slurm_test.py $(BUILD)/bin/kernwright

# Both commands of the README, and the wheel, in an empty Debian of each suite; before a release.
SUITES ?= bookworm trixie
fresh-test:
	@$(SETUP) --fresh
	@src/cmake/fresh_test.sh $(SUITES)

# Accepts what the commands print today, in tests/data/cli and in the documents, and how reports look.
# doctor's text needs a machine without a GPU, reports Chromium.
golden:
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_cli_test kernwright_cli \
	  kernwright_report_samples kernwright
	@python3 -B tests/build/c_abi_test.py c++ src/kernwright/c.h tests/data/c_abi.txt --update
	@$(WITH_TOOLKIT) KERNWRIGHT_GOLDEN=$(CURDIR)/tests/data/cli \
	  $(BUILD)/bin/kernwright_cli_test --gtest_brief=1 --gtest_filter='Golden*'
	@$(WITH_TOOLKIT) python3 -B tests/build/snippets_test.py --update $(BUILD) .
	@$(WITH_TOOLKIT) KERNWRIGHT_GOLDEN=$(CURDIR)/tests/data/report \
	  python3 tests/build/report_test.py $(BUILD)/bin/kernwright $(BUILD)/bin/kernwright_report_samples \
	  $(BUILD)/lib/libkernwright.so -k as_they_were

# The documents as a site, build/docs/index.html, with references made of the sources; a link that
# leads nowhere is an error.
docs:
	@$(SETUP) --docs
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_cli
	@KERNWRIGHT=$(CURDIR)/$(BUILD)/bin/kernwright PYTHONDONTWRITEBYTECODE=1 NO_MKDOCS_2_WARNING=1 \
	  build/docs-tools/bin/mkdocs build --strict --quiet -f src/docs/mkdocs.yml
	@echo build/docs/index.html

# What is installed, with its libraries, and the tests and benches, as two archives.
dist:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target dist

# The Python package as dist/kernwright-*.whl, from the objects of `make build`.
wheel:
	@$(SETUP) --wheel
	@cmake --preset $(PRESET) -DKERNWRIGHT_PYTHON=ON --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_python
	@src/cmake/wheel.sh $(BUILD)

# Installs it in fresh environments, and runs its tests there.
wheel-test: wheel
	@$(WITH_TOOLKIT) src/cmake/wheel_test.sh

# Calls the package with random arguments, all of it under AddressSanitizer.
CALLS ?= 100000
fuzz-python:
	@$(SETUP) --sanitize --wheel
	@cmake --preset asan --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset asan -j $(JOBS) --target kernwright_python
	@$(WITH_TOOLKIT) src/cmake/fuzz_python.sh build/asan $(CALLS)

# Compares patched models with what they were, with releases of transformers from PyPI, which are kept
# with PyTorch for the next run; PATCH_TEST has further arguments of tests/python/patch/run.py.
VERSIONS ?= all
SHARE ?= 1
patch-test:
	@$(SETUP) --wheel
	@cmake --preset $(PRESET) -DKERNWRIGHT_PYTHON=ON --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_python
	@src/cmake/patch_test.sh $(BUILD) "$(VERSIONS)" --share $(SHARE) --jobs $(JOBS) $(PATCH_TEST)

# Compares the names and arguments that the plug-ins build on with those in
# the newest vLLM and SGLang, whose wheels come from PyPI.
engines-test:
	@$(SETUP) --wheel
	@cmake --preset $(PRESET) -DKERNWRIGHT_PYTHON=ON --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_python
	@src/cmake/engines_test.sh $(BUILD)

# The wheel kernwright-$(SKU) of a bundle, and what is in it as the JSON
# file RESULTS.
data-wheel: BUNDLE ?= src/python/data/bundles/$(SKU).tar.zst
data-wheel:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target kernwright_cli
	@python3 src/python/data/build_wheel.py --name $(SKU) --bundle $(BUNDLE) \
	  --tool $(BUILD)/bin/kernwright --out dist $(if $(RESULTS),--json $(RESULTS))

bench: all
	@$(WITH_TOOLKIT) src/cmake/bench.sh $(BUILD)

format:
	@$(SETUP) --lint
	@src/cmake/lint.sh --fix-format

# Nothing is built. The Python extension is left out: its names follow CPython's.
lint:
	@$(SETUP) --lint
	@cmake --preset $(PRESET) -DKERNWRIGHT_PYTHON=OFF --log-level=WARNING -Wno-dev > /dev/null
	@src/cmake/lint.sh $(BUILD) $(LINT)

fuzz:
	@$(SETUP) --sanitize --wheel
	@cmake --preset asan --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset fuzz -j $(JOBS)
	@src/cmake/fuzz.sh build/asan/bin $(FUZZ_SECONDS)

# The suites that tests/CMakeLists.txt names for each.
sanitize:
	@$(SETUP) --sanitize --wheel
	@for preset in asan tsan; do \
	  cmake --preset $$preset --log-level=WARNING -Wno-dev > /dev/null && \
	  cmake --build --preset $$preset -j $(JOBS) && \
	  src/cmake/sanitize.sh build/$$preset || exit 1; \
	done

# Compiles the installed programs for the hosts of GH200, without linking them.
aarch64:
	@$(SETUP) --aarch64
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target installed
	@src/cmake/aarch64_check.py $(BUILD)

clean:
	@rm -rf build dist
