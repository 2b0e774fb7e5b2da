#!/usr/bin/env python3
"""Calls the package with random arguments: fuzz_calls.py [CALLS [SEED]]. Nothing may end the interpreter.
Whatever a call raises is right, but SystemError, which says that the extension broke a rule of
Python. Meant for an extension built with AddressSanitizer, see src/cmake/fuzz_python.sh."""

import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ["KERNWRIGHT_CACHE"] = tempfile.mkdtemp(prefix="kernwright-fuzz-")

from fakes import DTYPES, KINDS, DlpackArray, TorchTensor, _new_capsule

import kernwright as kw
from kernwright import _kernwright as extension

PROBLEMS = ["vector_add n=1024 dtype=fp32", "elementwise n=1024 dtype=fp32 formula=a*x"]
_NAME = b"something else"


class Raising:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise random.choice([AttributeError, ValueError, RuntimeError, MemoryError])(name)

    def __index__(self):
        raise ValueError("no number")


class Shrinking(TorchTensor):
    """Says something else each time that it is asked."""

    @property
    def shape(self):
        return tuple(range(random.randint(0, 12)))

    @shape.setter
    def shape(self, value):
        pass

    def stride(self):
        return tuple(range(random.randint(0, 12)))


class Capsule(DlpackArray):
    """Exports an object that is not a tensor."""

    def __dlpack__(self, stream=None):
        return random.choice([None, 3, _new_capsule(8, _NAME, None), self])


class Interface:
    def __init__(self, members):
        self.__cuda_array_interface__ = members


class Fuzzer:
    def __init__(self, seed, service):
        self.chooser, self.service = random.Random(seed), service
        self.kernels = []
        for problem in PROBLEMS:
            try:
                self.kernels.append(service.kernel(problem))
            except kw.Error as error:
                print(f"without {problem}: {error.reason}")

    def number(self):
        return self.chooser.choice([0, 1, -1, 3, 2**31, -2**63, 2**63, 2**64, 2**200, 1.5, float("nan"),
                                    float("inf"), True])

    def size(self):
        return self.chooser.choice([0, 1, 2, 3, 8, 64, 1024, 1 << 20, 1 << 40])

    def array(self):
        kind = self.chooser.choice(KINDS + [Shrinking, Capsule])
        shape = [self.size() for _ in range(self.chooser.choice([0, 1, 1, 1, 2, 2, 3, 4, 8, 9, 12]))]
        if self.chooser.random() < 0.5:
            shape = [1024]
        strides = None
        if self.chooser.random() < 0.3:
            strides = [self.chooser.choice([0, 1, -1, 8, 1024, 2**62]) for _ in shape]
        dtype = "fp32" if self.chooser.random() < 0.6 else self.chooser.choice(list(DTYPES))
        if kind.__name__ == "InterfaceArray" and DTYPES[dtype][2] is None:
            dtype = "fp32"
        return kind(*shape, dtype=dtype, strides=strides,
                    device=self.chooser.choice([0, 0, 0, 1, None, 2**31 - 1]),
                    address=self.chooser.choice([None, None, 0, 1, 2**64 - 8]))

    def interface(self):
        keys = {"data": (self.number(), False), "shape": self.sequence(), "typestr": "<f4",
                "strides": self.sequence(), "stream": self.number()}
        for key in list(keys):
            if self.chooser.random() < 0.2:
                keys[key] = self.thing()
            if self.chooser.random() < 0.1:
                del keys[key]
        return Interface(keys if self.chooser.random() < 0.9 else self.thing())

    def sequence(self):
        return [self.chooser.choice([self.size, self.number, self.thing])()
                for _ in range(self.chooser.randint(0, 10))]

    def text(self):
        return self.chooser.choice(["", "x", "fp32", "bf16", "a\0b", "\ud800", "h200", "é" * 50, "%s%n",
                                    *PROBLEMS])

    def described(self):
        """Something like an element of kw_describe()'s arguments."""
        described = {"name": self.text(), "dtype": "fp32", "scalar": self.thing(), "output": True,
                     "extent": self.sequence(), "strides": self.sequence()}
        if self.chooser.random() < 0.5:
            described.update(scalar=False, extent=[1024], strides=[1])
        return described

    def thing(self):
        choice = self.chooser.randrange(14)
        if choice < 4:
            return self.array()
        return [self.number, self.text, lambda: None, object, Raising, self.interface,
                lambda: self.chooser.choice([b"bytes", (), [], {}, int, kw.Kernel, kw.Error, KeyError]),
                lambda: self.service._handle, lambda: _new_capsule(16, _NAME, None),
                lambda: self.chooser.choice(self.kernels or [None])][choice - 4]()

    def things(self, most=6):
        return [self.thing() for _ in range(self.chooser.randint(0, most))]

    # Calls that come close to being right, and get further.

    def launch(self):
        kernel = self.chooser.choice(self.kernels)
        arrays = [self.array() if self.chooser.random() < 0.9 else self.thing() for _ in range(3)]
        named = {}
        if self.chooser.random() < 0.2:
            named[self.chooser.choice(["stream", "other"])] = self.thing()
        self.chooser.choice([kernel, kernel.launch])(*arrays, *self.things(1), **named)

    def expect(self):
        kernel = extension.best_kernel(self.service._handle, kw.Kernel, self.chooser.choice(PROBLEMS))
        arguments = [self.described() for _ in range(self.chooser.choice([0, 1, 2, 3, 5, 40]))]
        try:
            kernel._expect(arguments, self.chooser.choice([0, -1, 64, 2**31 - 1]))
        finally:
            kernel(*[self.array() for _ in range(self.chooser.randint(0, 5))])

    def run(self):
        inputs = tuple(self.array() if self.chooser.random() < 0.8 else None
                       for _ in range(self.chooser.choice([0, 1, 2, 3, 17])))
        outs = tuple(self.array() if self.chooser.random() < 0.5 else None
                     for _ in range(self.chooser.randint(0, 3)))
        outputs = tuple((tuple(self.sequence()) if self.chooser.random() < 0.5 else (1024,), self.text(),
                         self.chooser.choice([None, (0, 1), self.thing()])) for _ in outs)
        if self.chooser.random() < 0.1:
            outputs = self.thing()
        plan = (self.chooser.choice([None, *self.kernels, self.thing()]), outputs)
        plans = {(("tag",), extension.signature(*inputs, *outs)): plan if self.chooser.random() < 0.9
                 else self.thing()}
        extension.run(plans, {}, ("tag",), inputs, outs, tuple(self.things(2)))

    def chain(self):
        """Slots, arrays and things for the arguments of a chain's steps."""
        builder = kw.ChainBuilder()
        slots = [builder.parameter(self.array()) for _ in range(self.chooser.randint(0, 2))]
        slots += [builder.buffer(self.chooser.choice([1, 4096, 1 << 62])) for _ in range(self.chooser.randint(0, 2))]
        slots.append(kw.ChainSlot(self.chooser.choice([False, True]), self.chooser.choice([0, 1, -1, 1 << 62])))
        for _ in range(self.chooser.randint(0, 3)):
            several = [self.chooser.choice(self.kernels + [self.thing()])
                       for _ in range(self.chooser.choice([0, 1, 1, 2]))]
            arguments = [self.chooser.choice([self.chooser.choice(slots).at(self.chooser.choice(
                [0, 0, 4096, -4, 1 << 61])), self.array(), self.thing()]) for _ in range(3)]
            builder.add(several, *arguments)
        if self.chooser.random() < 0.1:
            builder._steps.append(self.thing())
        builder.build()

    def bake(self):
        arrays = [self.array() if self.chooser.random() < 0.9 else self.thing() for _ in range(3)]
        self.chooser.choice(self.kernels).bake(*arrays, *self.things(1))

    def operation(self):
        operation = self.chooser.choice([kw.linear, kw.matmul, kw.gated_linear, kw.rms_norm, kw.layer_norm,
                                         kw.silu_and_mul, kw.softmax, kw.reduce, kw.rope, kw.attention,
                                         kw.grouped_matmul, kw.scaled_matmul])
        with self.service:
            operation(*[self.array() if self.chooser.random() < 0.8 else self.thing()
                        for _ in range(self.chooser.randint(1, 4))],
                      **({"out": self.thing()} if self.chooser.random() < 0.3 else {}))

    def function(self):
        names = ["best_kernel", "tune", "prewarm", "lookup_counts", "signature", "run", "read",
                 "current_device", "prewarm_worklist", "seal", "metrics", "autotune", "current_stream",
                 "best_kernels", "bake", "build_chain"]
        name = self.chooser.choice(names)
        getattr(extension, name)(*self.things())

    def open(self):
        arguments = [None, "h200", None, 0, 1.0, None, None, None, [], [], [], 1.0, 0, False, None,
                     []]
        place = self.chooser.randrange(1, len(arguments))
        arguments[place] = self.thing()
        extension.open_service(*arguments)

    def method(self):
        kernel = self.chooser.choice(self.kernels)
        self.chooser.choice([kernel._expect, kernel.launch, kernel, type(kernel).launch, kw.Kernel,
                             extension.KernelHandle])(*self.things(4))

    def once(self):
        calls = [self.function] * 8 + [self.operation] * 4
        if self.kernels:
            calls += [self.launch] * 12 + [self.run] * 6 + [self.method] * 4 + [self.expect]
            calls += [self.chain] * 4 + [self.bake] * 3
        if self.chooser.random() < 0.002:
            calls = [self.open]
        try:
            self.chooser.choice(calls)()
        except SystemError:
            raise
        except Exception as error:
            str(error)
            return type(error).__name__
        return "nothing"


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    random.seed(seed)
    fuzzer = Fuzzer(seed, kw.Service(sku="h200"))
    raised = {}
    for _ in range(calls):
        name = fuzzer.once()
        raised[name] = raised.get(name, 0) + 1
    print(f"{calls} calls, seed {seed}; raised: {raised}")


if __name__ == "__main__":
    main()
