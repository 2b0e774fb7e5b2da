#!/usr/bin/env python3
"""unload_test.py KERNWRIGHT, with $KERNWRIGHT_LIBRARY: a host may dlclose the library after it has compiled.
Exits 77 where nothing can be compiled."""

import subprocess
import sys
import tempfile

from toolkit import skip_without_compiler

HOST = r"""
import _ctypes, ctypes, os, sys, threading

class Options(ctypes.Structure):  # the first of kw_options, in kernwright/c.h
    _fields_ = [("struct_size", ctypes.c_size_t), ("cache", ctypes.c_char_p),
                ("template_dir", ctypes.c_char_p), ("sku", ctypes.c_char_p),
                ("on_miss", ctypes.c_char_p), ("device", ctypes.c_int)]

library = ctypes.CDLL(os.environ["KERNWRIGHT_LIBRARY"])
library.kw_close.argtypes = library.kw_release.argtypes = [ctypes.c_void_p]
library.kw_last_error.restype = ctypes.c_char_p
options = Options(struct_size=ctypes.sizeof(Options), cache=sys.argv[1].encode(), sku=b"h200")
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
with tempfile.TemporaryDirectory() as cache:
    ran = subprocess.run([sys.executable, "-B", "-c", HOST, cache], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
print(ran.stdout + ran.stderr)
sys.exit(0 if ran.returncode == 0 and "closed" in ran.stdout else f"exit status {ran.returncode}")
