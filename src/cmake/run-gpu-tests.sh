#!/usr/bin/env bash
# Runs the GPU tests of every test program in bin/, or those that a GoogleTest filter names:
#   run-gpu-tests.sh [FILTER]
set -uo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
failed=()
for program in "$folder"/bin/kernwright_*_test; do
  echo "== $(basename "$program")"
  "$program" --gtest_filter="${1:-*Gpu*.*}" --gtest_brief=1 || failed+=("$(basename "$program")")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all GPU tests passed"
