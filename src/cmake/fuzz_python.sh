#!/usr/bin/env bash
# fuzz_python.sh BUILD CALLS: builds the Python extension with AddressSanitizer and
# UndefinedBehaviorSanitizer, over the package of the build folder BUILD, and calls it with random
# arguments.
set -euo pipefail
build=$1
calls=$2
cd "$(dirname "$0")/../.."
package=build/fuzz-python/kernwright
rm -rf build/fuzz-python
mkdir -p "$package"
cp -rL src/python/kernwright/. "$package"
cp -rL "$build"/python/kernwright/{lib,bin} "$package"
include=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
clang++-19 -std=c++20 -fPIC -shared -O1 -gline-tables-only -fno-omit-frame-pointer \
  -fsanitize=address,undefined -fno-sanitize-recover=all -shared-libasan -Isrc -isystem "$include" \
  src/python/extension/*.cpp -o "$package/_kernwright.abi3.so" \
  -L"$package/lib" -l:libkernwright.so.0 '-Wl,-rpath,$ORIGIN/lib'
# Python's own allocator hides objects from the sanitizer, and its objects outlive it.
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/fuzz-python
export LD_PRELOAD=$(clang++-19 -print-file-name=libclang_rt.asan-$(uname -m).so)
exec timeout --verbose 600 python3 -X faulthandler tests/python/fuzz_calls.py "$calls"
