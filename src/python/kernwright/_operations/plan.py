"""Plans for calls of one signature, and checks that all operations share."""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import _kernwright
from .._arrays import Array, View, contiguous_rows, dtype_text, has_shape, make_error, read
from .._service import Kernel, active, launching_like

_MOST_PLANS = 1 << 16

class Output(NamedTuple):
    """A result as it is made: contiguous, and then with these two axes swapped."""
    shape: Tuple[int, ...]
    dtype: str
    swap: Optional[Tuple[int, int]] = None


class Plan(NamedTuple):
    """The plan for calls of one signature: the kernel that is launched, and the results that are
    made if the caller passes none. Without a kernel there is nothing to compute."""
    kernel: Optional[Kernel]
    outputs: Tuple[Output, ...]


def _call(tag: Tuple[Any, ...], inputs: Tuple[Any, ...], outs: Tuple[Any, ...],
          scalars: Tuple[float, ...], make: Callable[..., Plan], stacks: bool = False) -> Any:
    """Returns the results of an operation on its inputs, some of which may be None. Results are
    made for the `outs` that are None. `tag` is its name and whatever else a plan depends on. Plans
    are kept by tag and signature of the arrays. `make` makes a new one from the arrays as they were
    passed and from the tag's items behind the name. With `stacks` an input may be a tuple of arrays
    that are read as one; if they are apart, NotImplemented is returned."""
    service = active()
    plans, ran = service.plans, service.ran
    results = _kernwright.run(plans, ran, tag, inputs, outs, scalars, stacks)
    if results is not None:
        return results
    if len(plans) >= _MOST_PLANS:
        plans.clear()
    with launching_like(inputs):
        plan = make(*inputs, *outs, *tag[1:])
    key = tag, _kernwright.signature(*inputs, *outs)
    plans[key] = plan
    # Not by `plans`, which another thread may empty at any time.
    results = _kernwright.run({key: plan}, ran, tag, inputs, outs, scalars, stacks)
    if results is None:
        raise make_error("an array says something else each time that it is read")
    return results


def _kernel(operation: str, device: int, values: Dict[str, Any],
            views: Mapping[str, View] = {}, read_only: Sequence[str] = ()) -> Kernel:
    given = {name: str(value) for name, value in values.items() if value is not None}
    for name, value in given.items():
        if len(value.split()) != 1:
            raise make_error(f"{name} is {value!r}, and one word expected", operation)
    words = [operation] + [f"{name}={value}" for name, value in given.items()]
    return active().kernel_on(device, " ".join(words), views, read_only)


def _size(name: str, array: Any, axis: int) -> int:
    """Returns the size of an axis counted from the last, at least 1."""
    try:
        return max(int(array.shape[axis]), 1)
    except Exception:
        raise make_error(f"{name} is no array of as many dimensions: at least {-axis} expected"
                         ) from None


def _read_optional(name: str, array: Any) -> Optional[Array]:
    return None if array is None else read(name, array)


def _output(name: str, out: Any, shape: Tuple[int, ...], dtype: str) -> Optional[Array]:
    """Returns `out` as an array of that shape and dtype, or None if it must be made."""
    if out is None:
        return None
    array = has_shape(read(name, out), *shape)
    if array.dtype != dtype:
        raise make_error(f"{name} is {array.dtype}, and {dtype} expected")
    return array


def _contiguous_output(name: str, out: Any, shape: Tuple[int, ...], dtype: str) -> None:
    given = _output(name, out, shape, dtype)
    if given is not None:
        contiguous_rows(given)
