"""The facts that an operation must know about its arrays: dtypes, and the layout of rows in
memory."""

import math
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from . import _kernwright
from ._kernwright import Error

_FRAMEWORK_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
                     "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "half": "fp16",
                     "float": "fp32"}


class Array(NamedTuple):
    """An array as kernwright sees it. Strides count elements."""
    name: str
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Rows(NamedTuple):
    """An array as rows of contiguous elements, `pitch` elements apart."""
    rows: int
    columns: int
    pitch: int


#: A shape and strides, in elements.
Layout = Tuple[Tuple[int, ...], Tuple[int, ...]]


def contiguous(shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the strides of an array without gaps."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def read(name: str, array: Any) -> Array:
    """Returns the array under the name that errors use for it. Errors: Error if it is not an array,
    is not on a GPU, or has a dtype that kernwright does not have."""
    if isinstance(array, tuple):
        raise make_error(f"{name} is a tuple, and an array expected")
    return _read(name, array)


def read_stack(name: str, arrays: Any) -> Array:
    """Returns the same for an array, or for a tuple of arrays if each begins at the end of the one
    before."""
    return _read(name, arrays)


def _read(name: str, array: Any) -> Array:
    try:
        _, dtype, shape, strides, device = _kernwright.read(array)
    except Exception as error:  # also what the array itself raises
        raise make_error(f"{name}: {error}") from error
    if isinstance(device, str):
        raise make_error(f"{name} lies on {device}, and a GPU (CUDA) expected")
    if dtype is None:
        raise make_error(f"{name}: kernwright has no dtype {getattr(array, 'dtype', '?')}")
    return Array(name, dtype, shape, strides, device)


def make_error(reason: str, problem: str = "") -> Error:
    error = Error(f"{problem}: {reason}" if problem else reason)
    error.problem, error.reason, error.is_refusal = problem, reason, True
    return error


def rows_of(array: Array) -> Rows:
    """Returns the array with all its dimensions but the last as one. Errors: Error if rows are not
    contiguous or not equally far apart; nothing is ever copied."""
    if not array.shape:
        raise make_error(f"{array.name} has no dimension, and at least 1 expected")
    columns = array.shape[-1]
    if array.elements == 0:  # it has no memory
        return Rows(math.prod(array.shape[:-1]), columns, columns)
    if columns > 1 and array.strides[-1] != 1:
        raise make_error(f"{array.name} has a last stride of {array.strides[-1]}, and 1 expected: "
                         "its rows are not contiguous")
    pitch, reach, rows = None, None, 1
    for size, stride in zip(reversed(array.shape[:-1]), reversed(array.strides[:-1])):
        if size == 1:
            continue
        if pitch is None:
            pitch, reach = stride, stride
        if stride != reach:
            raise make_error(f"{array.name} has the shape {array.shape} and the strides "
                             f"{array.strides}: its rows are not equally far apart")
        reach = stride * size
        rows *= size
    return Rows(rows, columns, columns if pitch is None else pitch)


def contiguous_rows(array: Array) -> Rows:
    """The same of an array without gaps."""
    rows = rows_of(array)
    if rows.pitch != rows.columns:
        raise make_error(f"{array.name} has rows {rows.pitch} elements apart, and "
                         f"{rows.columns} expected: this operation takes arrays without gaps")
    return rows


def same_dtype(*arrays: Optional[Array]) -> str:
    given = [array for array in arrays if array is not None]
    for array in given[1:]:
        if array.dtype != given[0].dtype:
            raise make_error(f"{array.name} is {array.dtype}, and {given[0].name} is "
                             f"{given[0].dtype}: one dtype expected")
    return given[0].dtype


def has_shape(array: Array, *shape: int) -> Array:
    if array.shape != shape:
        raise make_error(f"{array.name} has the shape {array.shape}, and {shape} expected")
    return array


def dtype_text(dtype: Any) -> Optional[str]:
    """kernwright's name of a dtype, which may be one of a framework's; None of None."""
    if dtype is None:
        return None
    # NumPy's and JAX's are classes too.
    name = str(getattr(dtype, "__name__", dtype)).rpartition(".")[2]
    return _FRAMEWORK_DTYPES.get(name, name)
