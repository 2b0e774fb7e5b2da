#!/usr/bin/env python3
"""Measures what a call from Python costs the host: a tuned kernel on three tensors of PyTorch and its current
stream, beside a bare kw_launch in C, the same by ctypes, and operations of PyTorch.

A batch is so few calls that the stream's queue never fills, and is timed without waiting for the GPU;
the GPU is waited for between batches. Contestants take turns. "over_launch_us" is the median less
the median of a bare kw_launch.

Two things that are not work of the call are in these figures: what the driver does to the caches that
the call finds, and what the call does to the caches that kw_launch finds, which the loop in C has for
itself. Rows
"without a launch" have neither. They are of a process of its own, whose kw_launch does nothing.

usage: python_call.py --json FILE [--batches N] [--cache DIR] [--compiled FOLDER]

kernwright is the package that Python finds. FOLDER has python_call_loop.c and python_call_nothing.c
compiled, as .so; without it `cc` compiles them, and without `cc` their rows are not there."""

import argparse
import ctypes
import datetime
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import timeit

BATCH = 200  # a stream's queue takes 1024 launches
ELEMENTS = 4096
# name -> what is timed, in the scope of `contestants`
CALLS = {
    "kernel(a, b, c)": "kernel(a, b, c)",
    "kernel.launch(a, b, c)": "kernel.launch(a, b, c)",
    "kernel(a, b, c, stream=number)": "kernel(a, b, c, stream=number)",
    "kernel(a, b, c, stream=torch's)": "kernel(a, b, c, stream=stream)",
    "ctypes": "by_ctypes()",
    "ctypes, array and stream kept": "kw_launch(handle, number, kept, 3, None, 0, None)",
    "torch.add(out=)": "torch.add(a, b, out=c)",
    "kw.rms_norm(out=)": "kw.rms_norm(x, scale, out=y)",
    "kw.rms_norm": "kw.rms_norm(x, scale)",
    "F.rms_norm": "rms_norm(x, (1024,), scale)",
    "kw.linear(out=)": "kw.linear(x, w, out=y)",
    "kw.linear": "kw.linear(x, w)",
    "F.linear": "linear(x, w)",
    "torch.empty_like": "torch.empty_like(x)",
    "reading three tensors": "extension.signature(a, b, c)",
    "asking the driver for the GPU": "extension.current_device()",
    "nothing": "pass",
}


# The contestants that are timed without a launch too.
BARE = ("kernel(a, b, c)", "kernel(a, b, c, stream=torch's)", "kw.rms_norm(out=)", "kw.linear(out=)", "kw.linear",
        "torch.empty_like")
WITHOUT = ", without a launch"


def compiled(name, folder):
    """Returns the path of a source of this bench as a library, or None if nothing can compile it."""
    if folder:
        return str(pathlib.Path(folder).resolve() / f"{name}.so")
    path = pathlib.Path(tempfile.mkdtemp()) / f"{name}.so"
    source = pathlib.Path(__file__).with_name(f"{name}.c")
    try:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(path)


def bare_loop(path):
    """Returns the function of python_call_loop.c, or None if it is not there."""
    if path is None:
        return None
    loop = ctypes.CDLL(path).launch_often
    pointer = ctypes.c_void_p
    loop.argtypes = [pointer, pointer, pointer, ctypes.POINTER(pointer), ctypes.c_size_t, ctypes.c_size_t]
    return loop


def contestants(torch, kw, service, loop):
    """Returns name -> a function that makes `BATCH` calls and returns their seconds; and the kernel."""
    kernel = service.kernel(f"vector_add n={ELEMENTS} dtype=fp32")
    a, b, c = (torch.rand(ELEMENTS, device="cuda") for _ in range(3))
    number = torch.cuda.current_stream().cuda_stream
    stream = torch.cuda.current_stream()
    x, w = (torch.rand(n, 1024, device="cuda", dtype=torch.bfloat16) for n in (1, 1024))
    y, scale = torch.empty_like(x), torch.ones(1024, device="cuda", dtype=torch.bfloat16)
    linear, rms_norm = torch.nn.functional.linear, torch.nn.functional.rms_norm
    library = ctypes.CDLL(str(pathlib.Path(kw.__file__).parent / "lib" / "libkernwright.so.0"))
    pointer = ctypes.c_void_p
    kw_launch = library.kw_launch
    kw_launch.argtypes = [pointer, pointer, ctypes.POINTER(pointer), ctypes.c_size_t,
                          ctypes.POINTER(ctypes.c_double), ctypes.c_size_t, pointer]
    handle = kernel.handle
    kept = (pointer * 3)(a.data_ptr(), b.data_ptr(), c.data_ptr())

    def by_ctypes():
        tensors = (pointer * 3)(a.data_ptr(), b.data_ptr(), c.data_ptr())
        kw_launch(handle, torch.cuda.current_stream().cuda_stream, tensors, 3, None, 0, None)

    scope = {**locals(), "extension": kw._kernwright}
    timers = {name: timeit.Timer(code, globals=scope) for name, code in CALLS.items()}
    batches = {name: functools.partial(timer.timeit, BATCH) for name, timer in timers.items()}
    if loop is not None:
        address = ctypes.cast(kw_launch, pointer)
        in_c = timeit.Timer(lambda: loop(address, handle, number, kept, 3, BATCH))
        batches["kw_launch in C"] = functools.partial(in_c.timeit, 1)
    return batches, kernel


def measure(torch, batches, rounds):
    """Microseconds of a call: name -> a list, one for each round."""
    times = {name: [] for name in batches}
    for batch in batches.values():  # what is done once is done
        batch()
        torch.cuda.synchronize()
    for _ in range(rounds):
        for name, batch in batches.items():
            times[name].append(batch() / BATCH * 1e6)
            torch.cuda.synchronize()
    return times


def without_a_launch(arguments):
    """Returns the times of a call whose kw_launch does nothing, as `measure` returns them."""
    library = compiled("python_call_nothing", arguments.compiled)
    if library is None:
        return {}
    command = [sys.executable, *sys.argv, "--without-a-launch"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                             env={**os.environ, "LD_PRELOAD": library}).stdout
    return json.loads(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True)
    parser.add_argument("--batches", type=int, default=41)
    parser.add_argument("--cache")
    parser.add_argument("--compiled")
    parser.add_argument("--without-a-launch", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    import torch

    import kernwright as kw
    service = kw.Service(arguments.cache)
    with service, torch.inference_mode():
        loop = compiled("python_call_loop", arguments.compiled)
        batches, kernel = contestants(torch, kw, service, bare_loop(loop))
        if arguments.without_a_launch:
            bare = {name + WITHOUT: batches[name] for name in BARE}
            print(json.dumps(measure(torch, bare, arguments.batches)))
            return
        times = measure(torch, batches, arguments.batches)
        times.update(without_a_launch(arguments))
    bare = times.get("kw_launch in C")
    rows = []
    for name, values in times.items():
        median = statistics.median(values)
        row = {"call": name, "host_us": round(median, 4),
               "p95_us": round(sorted(values)[int(0.95 * len(values))], 4)}
        if bare is not None and not name.endswith(WITHOUT):
            row["over_launch_us"] = round(median - statistics.median(bare), 4)
        rows.append(row)
        print(f"{name:48s} {row['host_us']:8.3f} us"
              + (f"   over kw_launch {row['over_launch_us']:8.3f} us" if "over_launch_us" in row else ""))
    document = {"bench": "python_call", "command": " ".join(["python_call.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": kw.__version__,
                "device": {"name": torch.cuda.get_device_name(), "python": sys.version.split()[0],
                           "torch": torch.__version__},
                "kernel": str(kernel), "rows": rows}
    pathlib.Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
