#!/usr/bin/env bash
# engines_test.sh BUILD: compares the names and arguments of vLLM and SGLang that the plug-ins build on
# with those in the newest wheels from PyPI, about 375 MB, which are kept for the next run. Neither is
# installed or run. Without PyPI the newest wheels of before are taken.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/$1
. src/cmake/torch_python.sh
kept=$folder/engines
for engine in vllm sglang; do
  "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$kept" "$engine" ||
    echo "engines_test.sh: $engine could not be had from PyPI" >&2
  newest=$(ls "$kept" 2> /dev/null | grep "^$engine-.*whl$" | sort -V | tail -n 1) || true
  [[ -n $newest ]] || fail "$kept has no wheel of $engine"
  echo "$newest"
  export "KERNWRIGHT_${engine^^}_WHEEL=$kept/$newest"
done
PYTHONPATH=$build/python "$python" -m pytest -q -k wheel tests/python/plugins {lock}>&-
