#!/usr/bin/env bash
# fuzz.sh FOLDER [SECONDS]: runs every fuzzer in FOLDER for SECONDS (60), one on each core. Seeds are
# the project's own operations and manifests and tests/fuzz/corpus/; what was reached stays in
# FOLDER/<fuzzer>.corpus, what crashed in FOLDER/<fuzzer>.crash-*.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$1
seconds=${2:-60}
# LLVMSupport is not built with AddressSanitizer: its containers' annotations do not match ours.
export ASAN_OPTIONS=detect_container_overflow=0
run() {
  local fuzzer=$1 what=${1##*/fuzz_}
  mkdir -p "$fuzzer.corpus" "$fuzzer.seeds"
  case $what in
    operation | manifest) find templates -name "$what.json" ;;
    *) find "tests/fuzz/corpus/$what" -type f ;;
  esac | while read -r file; do
    cp "$file" "$fuzzer.seeds/$(tr / - <<< "$file")"
  done
  echo "fuzz_$what: $seconds s"
  "$fuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=10 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$fuzzer.crash-" "$fuzzer.corpus" "$fuzzer.seeds" \
    2> "$fuzzer.log" || { cat "$fuzzer.log"; return 1; }
  echo "fuzz_$what: $(grep number_of_executed_units "$fuzzer.log")"
}

running=()
ran=0
for fuzzer in "$bin"/fuzz_*; do
  [[ -f $fuzzer && -x $fuzzer ]] || continue
  if [[ ${#running[@]} -ge $(nproc) ]]; then
    wait "${running[0]}"
    running=("${running[@]:1}")
  fi
  run "$fuzzer" &
  running+=($!)
  ran=$((ran + 1))
done
[[ $ran -gt 0 ]] || { echo "fuzz.sh: no fuzzer in $bin" >&2; exit 1; }
for process in "${running[@]}"; do
  wait "$process"
done
