#!/usr/bin/env python3
"""leaving_host.cpp for PyTorch: leaving_host.py CACHE WAY MILLISECONDS DEVICE SEED. WAY is return,
leak (a module that outlives this one keeps the service), daemon (a thread asks for kernels until
the end), _exit or wait. Exits 77 without PyTorch, a GPU or the package kernwright."""

import os
import random
import sys
import threading
import time

STATUS = 7


def ask(service, arguments, random_numbers, leave):
    while not leave.is_set():
        size = random_numbers.choice(list(arguments))
        kernel = service.kernel(f"vector_add n={size} dtype=fp32")
        kernel(*arguments[size])


def main():
    cache, way, milliseconds, device, seed = sys.argv[1:]
    try:
        import kernwright
        import torch
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        os._exit(77)
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        os._exit(77)
    torch.cuda.set_device(int(device))
    service = kernwright.Service(cache, on_miss="tune_in_background")
    leave, numbers = threading.Event(), random.Random(int(seed))
    # Not by the thread: a daemon within PyTorch's own calls aborts when the interpreter ends, with
    # "terminate called without an active exception".
    tensors = {64 * i: [torch.randn(64 * i, device="cuda") for _ in range(3)] for i in range(1, 40)}
    arguments = service, tensors, numbers, leave
    thread = threading.Thread(target=ask, args=arguments, daemon=way in ("daemon", "wait", "_exit"))
    thread.start()
    time.sleep(int(milliseconds) / 1000)
    if way in ("return", "leak"):
        leave.set()
        thread.join()
    if way == "leak":
        sys.modules["kept_service"] = service
    print("leaving", flush=True)
    if way == "wait":
        time.sleep(3600)
    if way == "_exit":
        os._exit(STATUS)
    sys.exit(STATUS)


main()
