#!/usr/bin/env python3
"""kernwright from Python through its C ABI, with ctypes alone:

    ctypes_example.py [--sku h200] [OPERATION dim=value ...]

Describes the best kernel for the problem. Where PyTorch is installed and has a GPU (and no --sku is
given), it also launches a matmul on PyTorch's tensors and stream and compares with PyTorch's result.
The library is the one in $KERNWRIGHT_LIBRARY, else the one of this build or installation, else what
the loader finds. Exits 77 where there is neither a GPU nor a --sku."""

import argparse
import ctypes
import json
import os
import pathlib
import sys


class Options(ctypes.Structure):
    """kw_options of kernwright/c.h."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("cache", ctypes.c_char_p),
                ("template_dir", ctypes.c_char_p), ("sku", ctypes.c_char_p),
                ("on_miss", ctypes.c_char_p), ("device", ctypes.c_int),
                ("tune_seconds", ctypes.c_double), ("l2", ctypes.c_char_p),
                ("worker", ctypes.c_char_p), ("measure_in_process", ctypes.c_int)]


def load_library():
    here = pathlib.Path(__file__).resolve()
    names = [os.environ.get("KERNWRIGHT_LIBRARY")]
    # Below share/kernwright/ of an installation, or below the source with its build.
    names += [parent / folder / "libkernwright.so.0" for parent in here.parents[1:5]
              for folder in ("lib", "build/lib")]
    found = next((str(name) for name in names if name and pathlib.Path(name).exists()),
                 "libkernwright.so.0")
    library = ctypes.CDLL(found)
    pointer = ctypes.c_void_p
    library.kw_open.argtypes = [ctypes.POINTER(Options), ctypes.POINTER(pointer)]
    library.kw_get_best_kernel.argtypes = [pointer, ctypes.c_char_p, ctypes.POINTER(pointer)]
    library.kw_describe.argtypes = [pointer]
    library.kw_describe.restype = ctypes.c_char_p
    library.kw_workspace_bytes.argtypes = [pointer]
    library.kw_workspace_bytes.restype = ctypes.c_size_t
    library.kw_launch.argtypes = [pointer, pointer, ctypes.POINTER(pointer), ctypes.c_size_t,
                                  ctypes.POINTER(ctypes.c_double), ctypes.c_size_t, pointer]
    library.kw_bake.argtypes = [pointer, ctypes.POINTER(pointer), ctypes.c_size_t,
                                ctypes.POINTER(ctypes.c_double), ctypes.c_size_t,
                                ctypes.POINTER(pointer)]
    library.kw_launch_baked.argtypes = [pointer, pointer]
    library.kw_rebind.argtypes = [pointer, ctypes.POINTER(pointer), ctypes.c_size_t,
                                  ctypes.POINTER(ctypes.c_double), ctypes.c_size_t]
    library.kw_release_baked.argtypes = [pointer]
    library.kw_release_baked.restype = None
    library.kw_release.argtypes = [pointer]
    library.kw_release.restype = None
    library.kw_close.argtypes = [pointer]
    library.kw_close.restype = None
    library.kw_last_error.restype = ctypes.c_char_p
    return library


def usable_torch():
    """PyTorch, if it is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def compare_with_torch(torch, library, kernel, description):
    """Launches a matmul on PyTorch's tensors, by itself and baked into a graph that is rebound to
    another output; whether both results agree with PyTorch's."""
    tensors = []
    for argument in description["arguments"]:
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[argument["dtype"]]
        make = torch.empty if argument["output"] else torch.randn
        tensors.append(make(argument["extent"], dtype=dtype, device="cuda"))
    workspace = torch.empty(max(library.kw_workspace_bytes(kernel), 1), dtype=torch.uint8,
                            device="cuda")

    def check(status):
        if status != 0:
            sys.exit(library.kw_last_error().decode())

    def pointers_to(*given):
        return (ctypes.c_void_p * len(given))(*[tensor.data_ptr() for tensor in given])

    a, b, d = tensors
    again = torch.empty_like(d)
    stream = torch.cuda.current_stream().cuda_stream
    check(library.kw_launch(kernel, stream, pointers_to(a, b, d), 3, None, 0,
                            workspace.data_ptr()))
    baked = ctypes.c_void_p()
    check(library.kw_bake(kernel, pointers_to(a, b, d), 3, None, 0, ctypes.byref(baked)))
    check(library.kw_rebind(baked, pointers_to(a, b, again), 3, None, 0))
    check(library.kw_launch_baked(baked, stream))
    torch.cuda.synchronize()
    library.kw_release_baked(baked)
    expected = a @ b.T
    return all(torch.allclose(result, expected, rtol=2e-2, atol=2e-2 * a.shape[1] ** 0.5)
               for result in (d, again))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sku")
    parser.add_argument("problem", nargs="*",
                        default=["matmul", "m=4096", "n=6144", "k=4096", "dtype=bf16"])
    arguments = parser.parse_args()

    library = load_library()
    options = Options(struct_size=ctypes.sizeof(Options))
    if arguments.sku:
        options.sku = arguments.sku.encode()
    service = ctypes.c_void_p()
    if library.kw_open(ctypes.byref(options), ctypes.byref(service)) != 0:
        print(library.kw_last_error().decode())
        return 1 if arguments.sku else 77
    kernel = ctypes.c_void_p()
    problem = " ".join(arguments.problem)
    if library.kw_get_best_kernel(service, problem.encode(), ctypes.byref(kernel)) != 0:
        sys.exit(library.kw_last_error().decode())
    description = json.loads(library.kw_describe(kernel))
    print(json.dumps(description, indent=2))

    torch = None if arguments.sku else usable_torch()
    agrees = True
    if torch and arguments.problem[0] == "matmul":
        agrees = compare_with_torch(torch, library, kernel, description)
        print("agrees with PyTorch" if agrees else "DIFFERS from PyTorch")
    library.kw_release(kernel)
    library.kw_close(service)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
