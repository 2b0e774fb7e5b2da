#!/usr/bin/env bash
# Runs the GPU tests of every test program in bin/, or those that a GoogleTest filter names:
#   run-gpu-tests.sh [FILTER]
# Exits 1 when a test failed, 77 when all were skipped.
set -uo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
passed=0
skipped=0
failed=()
for program in "$folder"/bin/kernwright_*_test; do
  echo "== $(basename "$program")"
  output=$("$program" --gtest_filter="${1:-*Gpu*.*}" --gtest_brief=1 2>&1 | tee >(cat >&2)) ||
    failed+=("$(basename "$program")")
  count() { sed -n "s/^\[ *$1 *\] \([0-9]*\) tests\?\..*/\1/p" <<< "$output" | tail -1; }
  passed=$((passed + $(count PASSED) + 0))
  skipped=$((skipped + $(count SKIPPED) + 0))
done
echo "$passed passed, $skipped skipped, ${#failed[@]} programs failed: ${failed[*]:-none}"
[[ ${#failed[@]} -eq 0 ]] || exit 1
[[ $passed -gt 0 ]] || exit 77
