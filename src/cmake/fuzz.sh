#!/usr/bin/env bash
# fuzz.sh FOLDER [SECONDS]: runs every fuzzer in FOLDER for SECONDS (60), from the real operations and
# manifests as seeds; what it finds stays in FOLDER/<fuzzer>.corpus.
set -euo pipefail
bin=$(realpath "$1")
seconds=${2:-60}
templates=$(realpath "$(dirname "$0")/../../templates")
# LLVMSupport is not built with AddressSanitizer: its containers' annotations do not match ours.
export ASAN_OPTIONS=detect_container_overflow=0
for fuzzer in "$bin"/*_fuzz; do
  corpus=$fuzzer.corpus
  mkdir -p "$corpus"
  find "$templates" -name '*.json' | while read -r file; do
    cp "$file" "$corpus/seed-$(sha1sum < "$file" | cut -c1-12)"
  done
  echo "$(basename "$fuzzer"): $seconds s"
  (cd "$corpus" && "$fuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=10 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$corpus/../" "$corpus" 2>&1 |
    grep -E 'stat::number_of_executed_units|ERROR|SUMMARY' ; exit "${PIPESTATUS[0]}")
done
