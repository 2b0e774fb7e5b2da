"""Objects that are odd or hostile, for the package to read: hostile.py CASE... runs each case in this process,
which must end well. A case passes if every call returns a result or raises."""

import contextlib
import ctypes
import gc
import logging
import os
import sys
import tempfile
import threading
import time

os.environ.setdefault("KERNWRIGHT_CACHE", tempfile.mkdtemp(prefix="kernwright-tests-"))

import fakes  # noqa: E402
import kernwright as kw  # noqa: E402
from kernwright import _kernwright as extension  # noqa: E402

SERVICE = kw.Service(sku="h200")
ADD = "vector_add n=1024 dtype=fp32"
ADDS = SERVICE.kernel(ADD)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def plain(kind=fakes.TorchTensor):
    return kind(1024, dtype="fp32")


def attempt(function, *arguments, **named):
    """Returns what it raised, or None. An internal error of Python is a defect of the extension."""
    try:
        function(*arguments, **named)
    except SystemError:
        raise
    except BaseException as error:  # noqa: BLE001: also what ends a program
        return error
    return None


def chain(array):
    builder = kw.ChainBuilder()
    builder.add([ADDS], builder.parameter(array), plain(), plain())
    return builder.build()


def everywhere(array):
    """Gives it to all that reads arrays."""
    for call in (extension.read, extension.signature, extension.current_stream,
                 lambda x: ADDS(x, plain(), plain()), lambda x: ADDS(plain(), plain(), x),
                 lambda x: ADDS.bake(x, plain(), plain()), chain, kw.silu_and_mul):
        attempt(call, array)


class Exported:
    """An array with `__dlpack__`, whose tensor `change` changes."""

    def __init__(self, change=lambda tensor: None, destroyed=None):
        self.change, self.destroyed, self.keep = change, destroyed, []

    def __dlpack_device__(self):
        return (fakes.CUDA, 0)

    def __dlpack__(self, stream=None):
        tensor = fakes.tensor_of(fakes.DlpackArray(1024, dtype="fp32"), self.keep)
        self.change(tensor)
        managed = fakes.ManagedTensor(tensor, None, None)
        destroy = None
        if self.destroyed is not None:
            callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.destroyed())
            self.keep.append(callback)
            destroy = ctypes.cast(callback, ctypes.c_void_p)
        self.keep.append(managed)
        return fakes._new_capsule(ctypes.addressof(managed), fakes._TENSOR, destroy)


def having(**attributes):
    return type("Odd", (), attributes)()


def interface(**entries):
    """An object with this `__cuda_array_interface__`, and the dict itself."""
    described = {"shape": (1024,), "typestr": "<f4", "data": (1 << 40, False), **entries}
    return having(__cuda_array_interface__=described), described


@case
def tensors_of_dlpack():
    def setter(name, value):
        return lambda tensor: setattr(tensor, name, value)

    def item(name, value):
        return lambda tensor: getattr(tensor, name).__setitem__(0, value)

    nothing = ctypes.POINTER(ctypes.c_int64)()
    for change in [setter("ndim", count) for count in (-1, -2**31, 9, 2**31 - 1)] + [
            setter("shape", nothing), setter("strides", nothing), setter("byte_offset", 2**64 - 1),
            setter("device_id", -5), setter("device_id", 2**31 - 1),
            setter("device_type", 2**31 - 1),
            setter("data", None), item("shape", -2**63), item("shape", 2**63 - 1),
            item("strides", -2**63), item("strides", 2**63 - 1),
            lambda tensor: setattr(tensor.dtype, "lanes", 0)]:
        everywhere(Exported(change))
    for device in ((), (2,), (2**70, 0), 3, None, "ab", (2, 0, 0)):
        everywhere(having(__dlpack_device__=lambda self, device=device: device,
                          __dlpack__=lambda self, **_: 3))


@case
def exports_live_until_the_launch():
    events = []

    class Late(fakes.TorchTensor):
        def data_ptr(self):
            events.append("read")
            return super().data_ptr()

    def copy():
        return Exported(destroyed=lambda: events.append("destroyed"))

    error = attempt(ADDS, copy(), Late(1024, dtype="fp32"), Late(1024, dtype="fp32"))
    assert fakes.NO_GPU in str(error), error
    assert events == ["read", "read", "destroyed"], events
    events.clear()
    assert fakes.NO_GPU in str(attempt(chain, copy())), events
    assert events == ["destroyed"], events


@case
def interfaces_that_change():
    class Clears:
        """Clears a container when it is used in any way."""

        def __init__(self, container, value):
            self.container, self.value = container, value

        def clear(self):
            self.container.clear()
            gc.collect()
            self.waste = [bytearray(64) for _ in range(1000)]
            return self.value

        def __len__(self):
            return len(self.value)

        def __getitem__(self, index):
            return self.clear()[index]

        def __str__(self):
            return self.clear()

        def __bool__(self):
            return bool(self.clear())

        def __index__(self):
            return self.clear()

    for name, value in (("shape", (1024,)), ("strides", (4,)), ("data", (1 << 40, False)),
                        ("typestr", "<f4"), ("stream", 1), ("mask", None)):
        array, described = interface(strides=[4], stream=7)
        described[name] = Clears(described, value)
        everywhere(array)
    array, described = interface()
    described["data"] = (1 << 40, Clears(described, False))
    everywhere(array)
    sizes = []
    sizes += [Clears(sizes, 1024) for _ in range(3)]
    everywhere(interface(shape=sizes)[0])


@case
def interfaces_that_lie():
    for shape in ((-1,), (-2**63,), (2**63 - 1,) * 2, (0,), (), (1,) * 9, "1024", {1: 2}, None, 5,
                  (1.5,), (True,), (x for x in (1024,))):
        for strides in (None, (), (3,), (-4,), (2**63 - 1,), (-2**63,)):
            for kind in ("<f4", ">f4", "", None, "\ud800", "<f4" * 1000):
                everywhere(interface(shape=shape, strides=strides, typestr=kind)[0])
    for entries in ({"data": None}, {"data": ()}, {"data": (2**64, False)}, {"data": [0, True]},
                    {"stream": 2**80}, {"stream": "x"}, {"mask": 3}):
        everywhere(interface(**entries)[0])
    for given in (None, 3, [], "abc", type("D", (dict,), {})()):
        everywhere(having(__cuda_array_interface__=given))


@case
def arrays_that_change_others():
    lent = fakes.ExchangeTensor(1024, dtype="fp32")

    class Frees(fakes.TorchTensor):
        def data_ptr(self):
            lent.keep.clear()
            gc.collect()
            self.waste = [bytearray(8) for _ in range(1000)]
            return super().data_ptr()

    assert fakes.NO_GPU in str(attempt(ADDS, lent, Frees(1024, dtype="fp32"), plain()))
    attempt(extension.signature, fakes.ExchangeTensor(1024, dtype="fp32"),
            Frees(1024, dtype="fp32"))
    kernels = [ADDS]

    class Empties(fakes.TorchTensor):
        def data_ptr(self):
            kernels.clear()
            parameters.clear()
            gc.collect()
            return super().data_ptr()

    builder = kw.ChainBuilder()
    parameters = builder._parameters
    slot = builder.parameter(Empties(1024, dtype="fp32"))
    builder.parameter(plain())
    builder.add(kernels, slot, Empties(1024, dtype="fp32"), plain())
    attempt(builder.build)
    for offset in (2**62, -2**62, 2**63, 2**200):
        builder = kw.ChainBuilder()
        builder.add([ADDS], builder.parameter(plain()).at(offset), plain(), plain())
        attempt(builder.build)
    plans = {}

    class Forgets(fakes.TorchTensor):
        def data_ptr(self):
            plans.clear()
            gc.collect()
            return super().data_ptr()

    a, b = plain(), plain()
    plans["tag", extension.signature(a, b, a)] = (ADDS, ((), ()))
    attempt(extension.run, plans, {}, ("tag",), (Forgets(1024, dtype="fp32"), b, a), (), ())
    held = [SERVICE.kernel(ADD)]

    class Drops(fakes.TorchTensor):
        def data_ptr(self):
            held.clear()
            gc.collect()
            return super().data_ptr()

    attempt(lambda: held[0](Drops(1024, dtype="fp32"), plain(), plain()))


@case
def descriptions_that_change():
    class Clears:
        def __init__(self, container, value):
            self.container, self.value = container, value

        def __bool__(self):
            self.container.clear()
            gc.collect()
            return self.value

        def __index__(self):
            self.container.clear()
            gc.collect()
            return 4

    def described(**entries):
        return {"name": "n", "dtype": "fp32", "scalar": False, "output": True, "extent": [1024],
                "strides": [1], **entries}

    def expect(arguments):
        attempt(extension.best_kernel(SERVICE._handle, kw.Kernel, ADD)._expect, arguments, 0)

    for value in (True, False):
        given = []
        given += [described(scalar=Clears(given, value)) for _ in range(3)]
        expect(given)
    extent = []
    extent += [Clears(extent, True) for _ in range(3)]
    expect([described(extent=extent, strides=[1] * 3)])
    for entries in ({"extent": [2**63 - 1] * 2, "strides": [2**63 - 1, 1]}, {"extent": [-1]},
                    {"name": "\ud800"}, {"name": None}, {"extent": [1] * 9}, {"dtype": "x"}):
        expect([described(**entries)])
    expect([described()] * 33)

    class Again:
        def __bool__(self):
            attempt(kernel._expect, [described()], -1)
            return False

    kernel = extension.best_kernel(SERVICE._handle, kw.Kernel, ADD)
    assert attempt(kernel._expect, [described(scalar=Again())], -1) is not None


@case
def types_with_odd_exchange():
    header = fakes._Header(9, 0, None)
    header.previous = ctypes.addressof(header)

    class Circle:
        __dlpack_c_exchange_api__ = fakes._new_capsule(ctypes.addressof(header),
                                                       fakes._EXCHANGE, None)

    class Number:
        __dlpack_c_exchange_api__ = 5

    class Raises(type):
        def __getattr__(cls, name):
            raise RuntimeError(name)

    class Inherits:  # what the functions read is not there
        __dlpack_c_exchange_api__ = fakes.ExchangeTensor.__dlpack_c_exchange_api__

    fails = fakes._Api(fakes._Header(1, 3, None), None, None, None,
                       fakes._Borrow(lambda array, out: -1), fakes._stream)

    class Fails:  # without saying why
        __dlpack_c_exchange_api__ = fakes._new_capsule(ctypes.addressof(fails),
                                                       fakes._EXCHANGE, None)

    for kind in (Circle, Number, Raises("Odd", (), {}), Inherits, Fails):
        everywhere(kind())
    for _ in range(40):  # more types than are remembered
        everywhere(type("Many", (fakes.ExchangeTensor,), {})(1024, dtype="fp32"))


@case
def recursion():
    for limit in (3000, 10**6):
        sys.setrecursionlimit(limit)
        for call in (extension.read, extension.signature, lambda x: ADDS(x, plain(), plain())):
            class Interface:
                @property
                def __cuda_array_interface__(self, call=call):
                    return call(self)

            class Capsule(Exported):
                def __dlpack__(self, call=call, **_):
                    return call(self)

            for array in (Interface(), Capsule()):
                assert attempt(call, array) is not None


@case
def raising():
    class BadText(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    for error in (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError,
                  StopIteration, BadText, UnicodeDecodeError("utf8", b"x", 0, 1, "r"),
                  RuntimeError("\ud800\0é")):
        class Raises:
            def __getattribute__(self, name):
                raise error

        everywhere(Raises())
        attempt(ADDS, plain(), plain(), plain(), stream=Raises())
        attempt(ADDS, plain(), plain(), plain(), Raises())
        attempt(SERVICE.prewarm, Raises())
    assert isinstance(attempt(ADDS, having(__getattr__=lambda self, name: 1 / 0), 1, 2), kw.Error)
    for stream in (-1, 5, 2**63, 2**64, "x", object(), having(ptr="x"), having(cuda_stream=-1),
                   having(__cuda_stream__=lambda self: ())):
        attempt(ADDS, plain(), plain(), plain(), stream=stream)


@case
def texts():
    for text in ("é", "€", "\U0001f600", "\ud800", "\0", "\x1b[31m", "a" * 10**6, "(" * 10**5):
        error = attempt(SERVICE.kernel, f"elementwise n=1024 dtype=fp32 formula={text}")
        assert error is not None
        attempt(SERVICE.kernel, text)
        attempt(kw.last_kernel, text)
        attempt(SERVICE.seal, text)
        attempt(SERVICE.record, text)
    error = attempt(SERVICE.kernel, "elementwise n=1024 dtype=fp32 formula=x+é")
    assert isinstance(error, kw.Error) and "é" in error.reason, error
    folder = os.path.join(os.fsencode(tempfile.mkdtemp()), b"\xff\xfe")
    os.mkdir(folder)
    for given in (folder, os.fsdecode(folder)):
        assert attempt(kw.Service, given, sku="h200", read_only_caches=[given]) is None
        assert isinstance(attempt(kw.Service, sku="h200", templates=given), (kw.Error, type(None)))
        with contextlib.suppress(kw.Error), SERVICE.record_shapes(os.path.join(given, given[:0])):
            pass


@case
def counts():
    for count in (2**62, 2**60, 0, -1, 2**70):
        attempt(SERVICE.kernels, ADD, count)

    class Long:
        def __len__(self):
            return 2**62

        def __getitem__(self, index):
            raise IndexError

    class Endless(Long):
        def __getitem__(self, index):
            return 1 / 0 if index > 1000 else ADD

    for given in (Long(), Endless(), (1 / 0 for _ in range(3)), [ADD, 3], [ADD, None], 3):
        attempt(extension.prewarm, SERVICE._handle, given)
        attempt(kw.Service, sku="h200", templates=given)
    for name in ("device", "tune_seconds", "compile_threads", "background_seconds"):
        for value in (2**31 - 1, -7, 2**200, float("nan"), float("inf"), None, "x"):
            attempt(kw.Service, **{"sku": "h200", name: value})


@case
def objects_of_others():
    wrong = fakes._new_capsule(16, b"kernwright.services", None)
    for handle in (wrong, None, 3):
        for name in ("metrics", "lookup_counts"):
            assert attempt(getattr(extension, name), handle) is not None
        for name, arguments in (("best_kernel", (kw.Kernel, ADD)), ("seal", ("error",)),
                                ("record", (ADD, "json")), ("prewarm", ([],)),
                                ("best_kernels", (kw.Kernel, ADD, 1)), ("autotune", (0.0,)),
                                ("record_shapes", (None,)), ("tune", (kw.Kernel, ADD, 1.0))):
            assert attempt(getattr(extension, name), handle, *arguments) is not None
    for kind in (kw.Kernel, extension.KernelHandle, extension.ChainHandle, extension.BakedHandle):
        assert attempt(kind) is not None and attempt(object.__new__, kind) is not None
    for kind in (int, object, extension.ChainHandle, None, 3):
        assert attempt(extension.best_kernel, SERVICE._handle, kind, ADD) is not None


@case
def garbage_while_reading():
    class Circle:
        def __init__(self):
            self.me = self

        def __del__(self):
            attempt(SERVICE.kernel, ADD)
            attempt(ADDS, plain(), plain(), plain())

    gc.set_threshold(1, 1, 1)
    for _ in range(100):
        Circle()
        attempt(ADDS, plain(), Exported(), plain())
        attempt(extension.signature, plain(), Exported())


@case
def handlers_that_raise():
    class Raises(logging.Handler):
        def emit(self, record):
            raise self.error

    handler = Raises()
    logging.getLogger("kernwright").addHandler(handler)
    for handler.error in (KeyboardInterrupt(), ZeroDivisionError()):
        attempt(kw.Service, sku="h200", read_only_caches=["/nowhere"])
        attempt(SERVICE.kernel, "vector_add n=2048 dtype=fp32")


@case
def threads():
    end, internal = time.monotonic() + 3, []

    def work(turn):
        calls = [lambda: SERVICE.kernel("vector_add n=2048 dtype=fp32"),
                 lambda: ADDS(plain(), plain(), plain()), lambda: everywhere(Exported()),
                 lambda: SERVICE.kernels(ADD, 3), SERVICE.metrics, SERVICE.lookup_counts,
                 gc.collect]
        while time.monotonic() < end:
            turn = (turn * 5 + 3) % 7
            try:
                attempt(calls[turn])
            except SystemError as error:
                internal.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not internal, internal


def leave_behind(work):
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.5)


@case
def exit_while_threads_look_up():
    def work():
        for i in range(1, 10**9):
            attempt(SERVICE.kernel, f"rmsnorm rows={i} columns=1024 dtype=bf16")

    leave_behind(work)


@case
def exit_while_threads_call():
    """Calls of Python from the extension, which wait for the GIL there."""
    def work():
        while True:
            everywhere(Exported(destroyed=lambda: None))
            everywhere(interface()[0])

    leave_behind(work)


@case
def exit_while_threads_are_told():
    logging.getLogger("kernwright").addHandler(logging.NullHandler())

    def work():
        while True:
            attempt(kw.Service, sku="h200", read_only_caches=["/nowhere"], templates=["/nowhere"])

    leave_behind(work)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, flush=True)
        CASES[name]()
