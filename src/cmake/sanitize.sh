#!/usr/bin/env bash
# sanitize.sh PROGRAM: runs a test program that was built with a sanitizer; what that finds fails it.
set -euo pipefail
# LLVMSupport is not built with AddressSanitizer: its containers' annotations do not match ours.
export ASAN_OPTIONS=detect_container_overflow=0
# Some tests fork while other threads run; ThreadSanitizer would end the process.
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1
# What NVRTC does with its memory is not ours to judge. A test that hangs fails after ten minutes.
exec timeout --verbose 600 "$1" --gtest_brief=1 --gtest_filter='-*Toolkit*'
