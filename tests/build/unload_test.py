#!/usr/bin/env python3
"""unload_test.py KERNWRIGHT, with $KERNWRIGHT_LIBRARY: a host may dlclose the library after it has compiled.
Exits 77 where nothing can be compiled."""

import os
import subprocess
import sys
import tempfile

from toolkit import skip_without_compiler

HOST = r"""
import _ctypes, ctypes, os, sys, threading
sys.path.insert(0, sys.argv[1])
import ctypes_example
library = ctypes_example.load_library()
library.kw_close.argtypes = library.kw_release.argtypes = [ctypes.c_void_p]
library.kw_last_error.restype = ctypes.c_char_p
options = ctypes_example.Options(struct_size=ctypes.sizeof(ctypes_example.Options),
                                 cache=sys.argv[2].encode(), sku=b"h200")
service, kernel = ctypes.c_void_p(), ctypes.c_void_p()
if library.kw_open(ctypes.byref(options), ctypes.byref(service)):
    sys.exit(library.kw_last_error().decode())
if library.kw_get_best_kernel(service, b"vector_add n=4096 dtype=fp32", ctypes.byref(kernel)):
    sys.exit(library.kw_last_error().decode())
library.kw_release(kernel)
library.kw_close(service)
_ctypes.dlclose(library._handle)
# Threads of the library that went on would run into what is no longer mapped.
for _ in range(20):
    thread = threading.Thread(target=lambda: sum(range(100000)))
    thread.start()
    thread.join()
print("closed")
"""

skip_without_compiler(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
examples = os.path.join(here, "..", "..", "src", "examples")
with tempfile.TemporaryDirectory() as cache:
    ran = subprocess.run([sys.executable, "-B", "-c", HOST, examples, cache], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
print(ran.stdout + ran.stderr)
sys.exit(0 if ran.returncode == 0 and "closed" in ran.stdout else f"exit status {ran.returncode}")
