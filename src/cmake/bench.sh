#!/usr/bin/env bash
# bench.sh BUILD: runs every bench program; results go to BUILD/bench-results/<bench>.json. A bench
# that cannot run here exits with 77 and has said why.
set -uo pipefail
build=$1
mkdir -p "$build/bench-results"
failed=()
while read -r bench; do
  echo "== $bench"
  "$build/bin/$bench" --json "$build/bench-results/$bench.json"
  status=$?
  [[ $status -eq 0 || $status -eq 77 ]] || failed+=("$bench")
done < "$build/benches.txt"
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
