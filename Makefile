# Thin entries over the CMake presets; PRESET=dev or PRESET=ci builds in build/dev or build/ci.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build/$(PRESET))
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
SETUP := src/cmake/setup.sh

# Where no toolkit is installed, the one that setup.sh unpacked.
ifneq ($(wildcard build/cuda/nvidia/cu13/lib),)
export KERNWRIGHT_CUDA_PATH ?= $(CURDIR)/build/cuda/nvidia/cu13
endif

.PHONY: build tune test dist bench format lint fuzz clean

build:
	@$(SETUP)
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS)

# One real shape of every operation: on the GPU if there is one, else by prediction for an H200.
tune: build
	@src/cmake/tune.sh $(BUILD)/bin/kernwright

test: build
	@python3 src/cmake/run_tests.py --preset $(PRESET) --jobs $(JOBS)

dist: build
	@cmake --build --preset $(PRESET) --target dist

bench: build
	@src/cmake/bench.sh $(BUILD)

format:
	@$(SETUP) --lint
	@src/cmake/lint.sh --fix-format

lint:
	@$(SETUP) --lint
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev > /dev/null
	@src/cmake/lint.sh $(BUILD)

fuzz:
	@$(SETUP) --fuzz
	@cmake --preset fuzz --log-level=WARNING -Wno-dev > /dev/null
	@cmake --build --preset fuzz -j $(JOBS)
	@src/cmake/fuzz.sh build/fuzz/bin $(FUZZ_SECONDS)

clean:
	@rm -rf build dist
