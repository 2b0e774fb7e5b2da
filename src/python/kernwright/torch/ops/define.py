"""How an operator is defined, which calls go past it, and what its shapes are checked by."""

from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..._arrays import make_error
from ..._kernwright import Error

_library = torch.library.Library("kernwright", "DEF")

# A kernel is made for the strides that it met, so a compiler may not lay a tensor out otherwise.
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)

_PLAIN = (Tensor, torch.nn.Parameter)


def _direct(*tensors: Optional[Tensor]) -> bool:
    """Whether a kernel may be launched at once: nobody traces, transforms, or needs a gradient."""
    if torch.compiler.is_compiling():
        return False
    if (torch._C._len_torch_dispatch_stack() or forward_ad._current_level >= 0
            or torch._C._get_tracing_state() is not None
            or torch._C._functorch.peek_interpreter_stack() is not None):
        return False
    differentiates = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or not tensor.is_cuda
                                   or (differentiates and tensor.requires_grad)):
            return False
    return True


def _define(schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    """Defines an operator that gives what `compute` does, in tensors that `shapes` gives. On tensors that
    lie on no GPU `compute` says so."""
    name = schema[:schema.index("(")]
    _library.define(schema, tags=_TAGS)
    for key in ("CUDA", "CompositeExplicitAutograd"):
        _library.impl(name, compute, key)
    _library.impl(name, shapes, "Meta")
    return name


def _define_forward_only(schema: str, compute: Callable[..., Any],
                         shapes: Callable[..., Any]) -> None:
    """The same of an operator that refuses arguments which require a gradient."""
    name = _define(schema, compute, shapes)
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.kernwright, packet), overload or "default")

    def refuse_gradients(keyset: Any, *arguments: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, *named.values()):
            raise make_error(f"kernwright::{packet} has no backward, and an argument requires a "
                             "gradient; call it under torch.no_grad(), or use PyTorch's own")
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments,
                                       **named)

    _library.impl(name, refuse_gradients, "Autograd", with_keyset=True)


def _define_out(name: str, arguments: str, compute: Callable[..., Any],
                shapes: Callable[..., Tensor]) -> None:
    """The form of an operator with one result that writes it to `out`: name.out, or of an overload
    name_out. `compute` takes `out` too. It has no backward."""
    def write(*given: Any, out: Tensor, **named: Any) -> None:
        compute(*given, out=out, **named)

    def check(*given: Any, out: Tensor, **named: Any) -> None:
        _expect_shape("out", out, *shapes(*given, **named).shape)

    suffix = "_out" if "." in name else ".out"
    _define_forward_only(f"{name}{suffix}({arguments}, Tensor(a!) out) -> ()", write, check)


def _expect(right: Any, text: Callable[[], str]) -> None:
    """Refuses on meta and fake tensors what a kernel would refuse. What is symbolic is checked where
    the compiled program runs."""
    try:
        torch._check_with(Error, right, text)
    except Error as error:
        error.problem, error.reason = "", str(error)
        raise


def _expect_shape(name: str, tensor: Tensor, *shape: Any) -> None:
    def text() -> str:
        return f"{name} has the shape {tuple(tensor.shape)}, and {shape} expected"

    _expect(tensor.dim() == len(shape), text)
    for own, wanted in zip(tensor.shape, shape):
        _expect(own == wanted, text)


def _expect_dims(name: str, tensor: Tensor, dims: int, what: str = "") -> None:
    _expect(tensor.dim() == dims,
            lambda: f"{name} has {tensor.dim()} dimensions, and {dims} expected{what}")


def _new(like: Tensor, shape: Sequence[Any], dtype: Optional[torch.dtype] = None) -> Tensor:
    return torch.empty(shape, dtype=like.dtype if dtype is None else dtype, device=like.device)
