#!/usr/bin/env python3
"""Shows which calls of the CUDA driver wait for kernels of other streams while code is loaded.

A kernel spins on one stream. Meanwhile each call that loading and launching takes is made on its
own, and timed, and then the same with an idle GPU. A call waits if it takes half of the spin longer. The
calls are made for code without a stack, for code with one that is larger than any before, and for
both once more. It needs the driver alone, and prints a table.

usage: load_waits.py [--json FILE] [--spin MILLISECONDS] [--device NUMBER]
"""

import argparse
import ctypes
import datetime
import json
import pathlib
import sys
import time

SPIN = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 ns)
{
  .reg .u64 %r<4>;
  .reg .pred %p;
  ld.param.u64 %r0, [ns];
  mov.u64 %r1, %globaltimer;
again:
  mov.u64 %r2, %globaltimer;
  sub.u64 %r3, %r2, %r1;
  setp.lt.u64 %p, %r3, %r0;
  @%p bra again;
  ret;
}
"""
# Writes to a place of its stack that the compiler does not know, so that the stack stays.
WORK = """
.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 shared[];
.visible .entry %(name)s(.param .u64 to)
{
  %(stack)s
  .reg .u64 %%r<6>;
  .reg .u32 %%x<4>;
  ld.param.u64 %%r0, [to];
  mov.u32 %%x0, %%tid.x;
  %(work)s
  st.global.u32 [%%r0], %%x0;
  ret;
}
"""
STACK = """mov.u64 %r1, stack;
  cvt.u64.u32 %r2, %x0;
  shl.b64 %r3, %r2, 2;
  add.u64 %r4, %r1, %r3;
  st.local.u32 [%r4], %x0;
  ld.global.u32 %x1, [%r0];
  and.b32 %x1, %x1, 1020;
  cvt.u64.u32 %r2, %x1;
  add.u64 %r4, %r1, %r2;
  ld.local.u32 %x0, [%r4];"""
SMEM_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
NON_BLOCKING = 1


def work(name, stack):
    place = f".local .align 8 .b8 stack[{stack}];" if stack else ""
    return (WORK % {"name": name, "stack": place, "work": STACK if stack else ""}).encode()


class Driver:
    def __init__(self, device):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: error {status}")

    def pointer(self, function, *arguments):
        made = ctypes.c_void_p()
        self.call(function, ctypes.byref(made), *arguments)
        return made

    def library_of(self, ptx):
        return self.pointer("cuLibraryLoadData", ptx, None, None, 0, None, None, 0)

    def stream(self):
        return self.pointer("cuStreamCreate", NON_BLOCKING)

    def launch(self, function, stream, argument, smem=0):
        value = ctypes.c_uint64(argument)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(value), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, smem, stream, parameters, None)

    def text(self, function, size=100):
        buffer = ctypes.create_string_buffer(size)
        self.call(function, buffer, size, self.device)
        return buffer.value.decode()


def steps(driver, name, stack, spare):
    """The calls of a load and a first launch, in their order, each with its name."""
    made = {}
    value, size, offset = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    stream = driver.stream()

    def keep(key, function, *arguments):
        made[key] = driver.pointer(function, *arguments)

    def graph():
        keep("graph", "cuGraphCreate", 0)
        node = Node(func=made["function"].value, grid=(1, 1, 1), block=(32, 1, 1),
                    parameters=ctypes.cast(argument_list, ctypes.c_void_p))
        driver.call("cuGraphAddKernelNode_v2", ctypes.byref(ctypes.c_void_p()), made["graph"], None,
                    ctypes.c_size_t(0), ctypes.byref(node))

    address = ctypes.c_uint64(spare.value)
    argument_list = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
    yield "cuLibraryLoadData", lambda: made.update(library=driver.library_of(work(name, stack)))
    yield "cuLibraryGetKernel", lambda: keep(
        "kernel", "cuLibraryGetKernel", made["library"], name.encode())
    yield "cuKernelGetAttribute", lambda: driver.call(
        "cuKernelGetAttribute", ctypes.byref(value), 0, made["kernel"], driver.device)
    yield "cuKernelGetParamInfo", lambda: driver.call(
        "cuKernelGetParamInfo", made["kernel"], ctypes.c_size_t(0), ctypes.byref(offset),
        ctypes.byref(size))
    yield "cuKernelSetAttribute", lambda: driver.call(
        "cuKernelSetAttribute", SMEM_ATTRIBUTE, 65536, made["kernel"], driver.device)
    yield "cuKernelGetFunction", lambda: keep("function", "cuKernelGetFunction", made["kernel"])
    yield "first cuLaunchKernel", lambda: driver.launch(made["function"], stream, spare.value, 1024)
    yield "cuStreamSynchronize", lambda: driver.call("cuStreamSynchronize", stream)
    yield "second cuLaunchKernel", lambda: driver.launch(
        made["function"], stream, spare.value, 1024)
    yield "cuMemAlloc", lambda: keep("memory", "cuMemAlloc_v2", ctypes.c_size_t(1 << 20))
    yield "cuMemFree", lambda: driver.call("cuMemFree_v2", made["memory"])
    yield "cuMemAllocAsync", lambda: keep(
        "async", "cuMemAllocAsync", ctypes.c_size_t(1 << 20), stream)
    yield "cuMemFreeAsync", lambda: driver.call("cuMemFreeAsync", made["async"], stream)
    yield "cuGraphCreate and a node", graph
    yield "cuGraphInstantiate", lambda: keep(
        "exec", "cuGraphInstantiateWithFlags", made["graph"], ctypes.c_uint64(0))
    yield "cuGraphUpload", lambda: driver.call("cuGraphUpload", made["exec"], stream)
    yield "cuGraphLaunch", lambda: driver.call("cuGraphLaunch", made["exec"], stream)
    yield "cuGraphExecDestroy", lambda: driver.call("cuGraphExecDestroy", made["exec"])
    yield "cuStreamCreate", driver.stream
    yield "cuLibraryUnload", lambda: driver.call("cuLibraryUnload", made["library"])


class Node(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""
    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3),
                ("block", ctypes.c_uint * 3), ("smem", ctypes.c_uint),
                ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
                ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]


def measure(driver, spin, busy, name, stack, spare, spin_ms):
    """The ms of each step; while a kernel spins if `busy`."""
    times = []
    for step, call in steps(driver, name, stack, spare):
        stream = driver.stream()
        if busy:
            driver.launch(spin, stream, int(spin_ms * 1e6))
            time.sleep(0.005)  # it runs by now
        begun = time.perf_counter()
        call()
        times.append((step, (time.perf_counter() - begun) * 1e3))
        driver.call("cuStreamSynchronize", stream)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--spin", type=float, default=200, help="ms")
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    try:
        driver = Driver(options.device)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"no GPU: {error}\n")
        return 77
    spinner = driver.library_of(SPIN.encode())
    kernel = driver.pointer("cuLibraryGetKernel", spinner, b"spin")
    spin = driver.pointer("cuKernelGetFunction", kernel)
    driver.launch(spin, driver.stream(), 1000)
    spare = driver.pointer("cuMemAlloc_v2", ctypes.c_size_t(4096))
    rows = []
    # A stack that is larger than any before makes the driver resize the memory of all stacks.
    for code, stack, larger in (("no stack", 0, 0), ("no stack, again", 0, 0),
                                ("stack", 4096, 65536), ("stack, no larger", 4096, 4096)):
        busy = measure(driver, spin, True, "busy", stack, spare, options.spin)
        idle = measure(driver, spin, False, "idle", larger, spare, options.spin)
        rows += [{"code": code, "call": call, "busy_ms": ms, "idle_ms": idle_ms,
                  "waits": ms - idle_ms > options.spin / 2}
                 for (call, ms), (_, idle_ms) in zip(busy, idle)]
    for row in rows:
        print(f"{row['code']:18} {row['call']:26} {row['busy_ms']:9.2f} ms, "
              f"idle {row['idle_ms']:8.2f} ms"
              f"{'   WAITS' if row['waits'] else ''}")
    if options.json:
        options.json.write_text(json.dumps({
            "bench": "load_waits", "command": " ".join(["load_waits.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(),
            "device": {"name": driver.text("cuDeviceGetName")},
            "spin_ms": options.spin, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
