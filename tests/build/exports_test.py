#!/usr/bin/env python3
"""exports_test.py LIBRARY [FUNCTION]: libkernwright.so shows kernwright:: and kw_* and nothing else,
but for FUNCTION nothing of the command line, and needs no CUDA library."""

import re
import subprocess
import sys

library, *more = sys.argv[1:]
ALLOWED = re.compile(
    r"(kw_\w+|KERNWRIGHT_C_\d+|KERNWRIGHT_CXX_[\d.]+|"
    r"((non-virtual thunk to|typeinfo( name)? for|vtable for) )?kernwright::(?!cli::).*"
    + "".join(rf"|{re.escape(name)}\(.*" for name in more) + ")$")

failures = []
names = []
for line in subprocess.run(["nm", "-DC", "--defined-only", "--without-symbol-versions", library],
                           check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines():
    _, kind, name = line.split(" ", 2)
    names.append(name)
    if not ALLOWED.match(name):
        failures.append(f"exported, but not public: {kind} {name}")
if not any(name.startswith("kw_") for name in names):
    failures.append("the C ABI is not exported")
if not any(name.startswith("kernwright::get_best_kernel") for name in names):
    failures.append("kernwright::get_best_kernel is not exported")
for wanted in more:
    if not any(name.startswith(f"{wanted}(") for name in names):
        failures.append(f"{wanted} is not exported")

dynamic = subprocess.run(["readelf", "-d", library], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
    if not re.match(r"(libtbb(-\w+)?|libstdc\+\+|libgcc_s|libc|libm|libdl|librt|libpthread|ld-linux.*)\.so",
                    needed):
        failures.append(f"needs {needed}")

print("\n".join(failures) or f"{len(names)} symbols, all public")
sys.exit(1 if failures else 0)
