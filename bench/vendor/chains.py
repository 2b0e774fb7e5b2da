"""Chains of kernwright's kernels over the C ABI, for benches in Python."""

import ctypes
import json


class ChainArg(ctypes.Structure):
    """kw_chain_arg of kernwright/c.h."""
    _fields_ = [("kind", ctypes.c_int), ("pointer", ctypes.c_void_p), ("scalar", ctypes.c_double),
                ("slot", ctypes.c_size_t), ("offset_bytes", ctypes.c_longlong)]


POINTER, SCALAR, PARAMETER, BUFFER = range(4)
ALTERNATIVES = 8


def pointer(tensor, offset_bytes=0):
    """A tensor of PyTorch, which has to stay where it is as long as the chain is used."""
    return ChainArg(POINTER, tensor.data_ptr() + offset_bytes, 0, 0, 0)


def scalar(value):
    return ChainArg(SCALAR, None, value, 0, 0)


def alternatives(library, problem, seconds):
    """The best kernel of a problem, tuned for so many seconds unless a record is exact, and behind it
    what may take its place in a chain."""
    api, held = library.api, ctypes.c_void_p
    api.kw_get_best_kernels.argtypes = [held, ctypes.c_char_p, ctypes.POINTER(held), ctypes.c_size_t,
                                        ctypes.POINTER(ctypes.c_size_t)]
    api.kw_release(library.kernel(problem, seconds))
    kernels, found = (held * ALTERNATIVES)(), ctypes.c_size_t()
    library.expect(api.kw_get_best_kernels(library.service, problem.encode(), kernels, ALTERNATIVES,
                                           ctypes.byref(found)))
    return [held(kernel) for kernel in kernels[:found.value]]


class ChainBuilder:
    """`library` is a Library of rows_vs_pytorch.py."""

    def __init__(self, library):
        self.library, api, held = library, library.api, ctypes.c_void_p
        api.kw_chain_parameter.argtypes = [held, held, ctypes.POINTER(ctypes.c_size_t)]
        api.kw_chain_buffer.argtypes = [held, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
        api.kw_chain_add_alternatives.argtypes = [held, ctypes.POINTER(held), ctypes.c_size_t,
                                                  ctypes.POINTER(ChainArg), ctypes.c_size_t]
        api.kw_chain_build.argtypes = [held, ctypes.POINTER(held)]
        api.kw_chain_end.argtypes = [held]
        self.builder = held()
        library.expect(api.kw_chain_begin(ctypes.byref(self.builder)))

    def _slot(self, make, value, kind):
        index = ctypes.c_size_t()
        self.library.expect(make(self.builder, value, ctypes.byref(index)))
        return ChainArg(kind, None, 0, index.value, 0)

    def parameter(self, tensor):
        return self._slot(self.library.api.kw_chain_parameter, tensor.data_ptr(), PARAMETER)

    def buffer(self, size_bytes):
        return self._slot(self.library.api.kw_chain_buffer, size_bytes, BUFFER)

    def add(self, kernels, arguments):
        """A step that each of `kernels` computes, such as `alternatives` gives."""
        held = (ctypes.c_void_p * len(kernels))(*[kernel.value for kernel in kernels])
        self.library.expect(self.library.api.kw_chain_add_alternatives(
            self.builder, held, len(kernels), (ChainArg * len(arguments))(*arguments), len(arguments)))

    def build(self):
        chain = ctypes.c_void_p()
        self.library.expect(self.library.api.kw_chain_build(self.builder, ctypes.byref(chain)))
        self.library.api.kw_chain_end(self.builder)
        return Chain(self.library, chain)


class Chain:
    def __init__(self, library, chain):
        self.library, self.chain, api, held = library, chain, library.api, ctypes.c_void_p
        api.kw_launch_chain.argtypes = [held, held]
        api.kw_tune_chain.argtypes = [held, held]
        api.kw_set_chain_path.argtypes = [held, ctypes.c_char_p]
        api.kw_rebind_chain.argtypes = [held, ctypes.POINTER(held), ctypes.c_size_t]
        api.kw_describe_chain.argtypes = [held]
        api.kw_describe_chain.restype = ctypes.c_char_p

    def describe(self):
        return json.loads(self.library.api.kw_describe_chain(self.chain))

    def tune(self, stream):
        self.library.expect(self.library.api.kw_tune_chain(self.chain, stream.cuda_stream))
        return self.describe()

    def set_path(self, path):
        self.library.expect(self.library.api.kw_set_chain_path(self.chain, path.encode()))

    def rebind(self, *tensors):
        """Gives other addresses to all parameters, in order."""
        held = (ctypes.c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors])
        self.library.expect(self.library.api.kw_rebind_chain(self.chain, held, len(tensors)))

    def launch(self, stream):
        self.library.expect(self.library.api.kw_launch_chain(self.chain, stream.cuda_stream))
