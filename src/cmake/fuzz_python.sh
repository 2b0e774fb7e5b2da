#!/usr/bin/env bash
# fuzz_python.sh BUILD CALLS: calls the Python package of the build folder BUILD, which is built with
# AddressSanitizer and UndefinedBehaviorSanitizer, with random arguments: a share of the calls on each
# core, from a seed of its own.
set -euo pipefail
# Python's own allocator hides objects from the sanitizer, and its objects outlive it. LLVMSupport is
# not built with it: its containers' annotations do not match ours.
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0
export PYTHONPATH=$1/python
export LD_PRELOAD=$(clang++-19 -print-file-name=libclang_rt.asan-$(uname -m).so)
cores=$(nproc)
running=()
for ((seed = 1; seed <= cores; ++seed)); do
  timeout --verbose 600 python3 -X faulthandler "$(dirname "$0")"/../../tests/python/fuzz_calls.py \
    $((($2 + cores - 1) / cores)) "$seed" &
  running+=($!)
done
failed=0
for process in "${running[@]}"; do
  wait "$process" || failed=1
done
exit "$failed"
