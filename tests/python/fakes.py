"""Arrays that claim to be on a GPU. Each offers one of the ways in which the package reads arrays. Their
addresses are made up: nothing may follow them."""

import ctypes
import itertools

_ADDRESSES = itertools.count(1 << 40, 1 << 30)
# name -> code and bits of DLPack, type string of __cuda_array_interface__, name in torch
DTYPES = {
    "bf16": (4, 16, None, "bfloat16"), "fp16": (2, 16, "<f2", "float16"),
    "fp32": (2, 32, "<f4", "float32"), "fp64": (2, 64, "<f8", "float64"),
    "fp8_e4m3": (10, 8, None, "float8_e4m3fn"), "fp8_e5m2": (12, 8, None, "float8_e5m2"),
    "int8": (0, 8, "|i1", "int8"), "int32": (0, 32, "<i4", "int32"),
    "int64": (0, 64, "<i8", "int64"), "uint8": (1, 8, "|u1", "uint8"),
    "bool": (6, 8, "|b1", "bool"),
}
CPU, CUDA = 1, 2
# The error of a launch that has passed every check, if the service is for a SKU alone.
NO_GPU = "the service has no GPU"


def contiguous(shape):
    strides, stride = [], 1
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    return tuple(strides)


class Array:
    """The facts that all fakes have. Strides count elements."""

    def __init__(self, *shape, dtype="bf16", strides=None, device=0, address=None):
        self.layout = (tuple(shape), contiguous(shape) if strides is None else tuple(strides))
        self.kind, self.gpu = dtype, device
        self.address = next(_ADDRESSES) if address is None else address
        self.shape = self.layout[0]

    def like(self, shape, strides, offset=0):
        """A view of the same memory, `offset` elements further on."""
        address = self.address + offset * DTYPES[self.kind][1] // 8
        return type(self)(*shape, dtype=self.kind, strides=strides, device=self.gpu, address=address)

    def t(self):
        return self.like(self.layout[0][::-1], self.layout[1][::-1])


class _Named:
    """A dtype or a device of torch."""

    def __init__(self, text, **members):
        self.text = text
        self.__dict__.update(members)

    def __str__(self):
        return self.text


class TorchTensor(Array):
    """A tensor of a torch without the exchange API. It is on the host if `device` is None."""

    def data_ptr(self):
        return self.address

    def stride(self):
        return self.layout[1]

    def new_empty(self, shape, dtype):
        name = next(name for name, names in DTYPES.items() if f"torch.{names[3]}" == str(dtype))
        return type(self)(*shape, dtype=name)

    @property
    def dtype(self):
        return _Named(f"torch.{DTYPES[self.kind][3]}")

    @property
    def device(self):
        if self.gpu is None:
            return _Named("cpu", type="cpu", index=None)
        return _Named("cuda", type="cuda", index=self.gpu)


def tensor(*shape, **named):
    return TorchTensor(*shape, **named)


def ints(*shape):
    return tensor(*shape, dtype="int32")


def floats(*shape):
    return tensor(*shape, dtype="fp32")


class InterfaceArray(Array):
    """An array of CuPy or Numba."""

    read_only = False

    @property
    def __cuda_array_interface__(self):
        _, bits, text, _ = DTYPES[self.kind]
        shape, strides = self.layout
        return {"version": 3, "data": (self.address, self.read_only), "shape": shape, "typestr": text,
                "strides": tuple(stride * bits // 8 for stride in strides), "stream": 1}


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("dtype", DType),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class ManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


# A capsule keeps the address of its name alone.
_EXCHANGE, _TENSOR = b"dlpack_exchange_api", b"dltensor"
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def tensor_of(array, keep):
    """DLPack's description of the array. The memory that it points to lives as long as `keep`."""
    code, bits, _, _ = DTYPES[array.kind]
    shape, strides = array.layout
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = (ctypes.c_int64 * max(len(shape), 1))(*strides)
    keep += [sizes, steps]
    return Tensor(array.address, CPU if array.gpu is None else CUDA, array.gpu or 0, len(shape),
                  DType(code, bits, 1), ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
                  ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)), 0)


class DlpackArray(Array):
    """An array of JAX. `streams` are those that readers named."""

    def __init__(self, *shape, **named):
        super().__init__(*shape, **named)
        self.streams, self._keep = [], []

    def __dlpack_device__(self):
        return (CPU, 0) if self.gpu is None else (CUDA, self.gpu)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        managed = ManagedTensor(tensor_of(self, self._keep), None, None)
        self._keep.append(managed)
        return _new_capsule(ctypes.addressof(managed), _TENSOR, None)


class _Header(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("previous", ctypes.c_void_p)]


_Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
_Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32,
                            ctypes.POINTER(ctypes.c_void_p))


class _Api(ctypes.Structure):
    _fields_ = [("header", _Header), ("allocate", ctypes.c_void_p), ("export", ctypes.c_void_p),
                ("import_", ctypes.c_void_p), ("borrow", _Borrow), ("stream", _Stream)]


@_Borrow
def _borrow(array, out):
    out[0] = tensor_of(array, array.keep)
    return 0


@_Stream
def _stream(_type, _id, out):
    out[0] = 7
    return 0


_API = _Api(_Header(1, 3, None), None, None, None, _borrow, _stream)
# A type of a later major version, which points to the version that the package knows.
_LATER = _Header(2, 0, ctypes.addressof(_API))


class ExchangeTensor(Array):
    """A tensor of a torch with DLPack's exchange API."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_API), _EXCHANGE, None)

    def __init__(self, *shape, **named):
        super().__init__(*shape, **named)
        self.keep = []


class LaterTensor(ExchangeTensor):
    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_LATER), _EXCHANGE, None)


KINDS = [TorchTensor, InterfaceArray, DlpackArray, ExchangeTensor, LaterTensor]
