"""The facts that an operation must know about its arrays."""

from typing import Any, NamedTuple, Optional, Sequence, Tuple

from . import _kernwright
from ._kernwright import Error

_FRAMEWORK_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
                     "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "half": "fp16",
                     "float": "fp32"}


class Array(NamedTuple):
    """An array as kernwright sees it. Strides count elements."""
    name: str
    dtype: Optional[str]  # None: it is not compared
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # None: they are not compared
    device: int = 0
    members: Tuple[int, ...] = ()  # the rows of each, if it was a tuple of arrays


#: A shape and strides, in elements.
Layout = Tuple[Tuple[int, ...], Tuple[int, ...]]


def contiguous(shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the strides of an array without gaps."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def read(name: str, array: Any, stacks: bool = False) -> Array:
    """Returns the array under the name that errors use for it. With `stacks` it may be a tuple of
    arrays if each begins at the end of the one before. Errors: Error if it is not an array, is not
    on a GPU, or has a dtype that kernwright does not have."""
    if isinstance(array, tuple) and not stacks:
        raise make_error(f"{name} is a tuple, and an array expected")
    try:
        _, dtype, shape, strides, device = _kernwright.read(array)
        members = tuple(int(one.shape[0]) for one in array) if isinstance(array, tuple) else ()
    except Exception as error:  # also what the array itself raises
        raise make_error(f"{name}: {error}") from error
    if isinstance(device, str):
        raise make_error(f"{name} lies on {device}, and a GPU (CUDA) expected")
    if dtype is None:
        raise make_error(f"{name}: kernwright has no dtype {getattr(array, 'dtype', '?')}")
    return Array(name, dtype, shape, strides, device, members)


def make_error(reason: str, problem: str = "") -> Error:
    error = Error(f"{problem}: {reason}" if problem else reason)
    error.problem, error.reason, error.is_refusal = problem, reason, True
    return error


def dtype_text(dtype: Any) -> Optional[str]:
    """kernwright's name of a dtype, which may be one of a framework's; None of None."""
    if dtype is None:
        return None
    # NumPy's and JAX's are classes too.
    name = str(getattr(dtype, "__name__", dtype)).rpartition(".")[2]
    return _FRAMEWORK_DTYPES.get(name, name)
