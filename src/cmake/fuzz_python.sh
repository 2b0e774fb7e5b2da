#!/usr/bin/env bash
# fuzz_python.sh BUILD CALLS: calls the Python package of the build folder BUILD, which is built with
# AddressSanitizer and UndefinedBehaviorSanitizer, with random arguments.
set -euo pipefail
# Python's own allocator hides objects from the sanitizer, and its objects outlive it. LLVMSupport is
# not built with it: its containers' annotations do not match ours.
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0
export PYTHONPATH=$1/python
export LD_PRELOAD=$(clang++-19 -print-file-name=libclang_rt.asan-$(uname -m).so)
exec timeout --verbose 600 python3 -X faulthandler \
  "$(dirname "$0")"/../../tests/python/fuzz_calls.py "$2"
