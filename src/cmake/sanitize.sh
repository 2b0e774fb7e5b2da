#!/usr/bin/env bash
# sanitize.sh BUILD: runs the test programs of a build with a sanitizer, a share of their tests on each
# core; what that finds fails it.
set -euo pipefail
# LLVMSupport is not built with AddressSanitizer: its containers' annotations do not match ours.
export ASAN_OPTIONS=detect_container_overflow=0
# Some tests fork while other threads run; ThreadSanitizer would end the process.
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1
GTEST_TOTAL_SHARDS=$(nproc)
export GTEST_TOTAL_SHARDS
for program in kernwright_sanitized_test kernwright_examples_test; do
  [ -e "$1/bin/$program" ] || continue  # ThreadSanitizer has one of them
  running=()
  for ((shard = 0; shard < GTEST_TOTAL_SHARDS; ++shard)); do
    # NVRTC's use of memory is not ours to judge. A test that hangs fails after a quarter of an hour.
    GTEST_SHARD_INDEX=$shard timeout --verbose 900 "$1/bin/$program" --gtest_brief=1 \
      --gtest_filter='-*Toolkit*' &
    running+=($!)
  done
  failed=0
  for process in "${running[@]}"; do
    wait "$process" || failed=1
  done
  [ "$failed" -eq 0 ] || exit 1
done
