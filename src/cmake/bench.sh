#!/usr/bin/env bash
# bench.sh BUILD: runs every bench program; results go to BUILD/bench-results/<bench>.json, what it
# printed beside it. A bench that cannot run here, or not without arguments, exits with 77 and has
# said why, or its usage.
set -uo pipefail
build=$1
mkdir -p "$build/bench-results"
failed=()
while read -r bench; do
  echo "== $bench"
  log=$build/bench-results/$bench.log
  "$build/bin/$bench" --json "$build/bench-results/$bench.json" < /dev/null 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  if [[ $status -eq 77 ]]; then
    grep -q "^usage: " "$log" && echo "skipped: needs arguments" || echo "skipped: cannot run here"
  elif [[ $status -ne 0 ]]; then
    failed+=("$bench")
  fi
done < "$build/benches.txt"
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
