"""The definition of operators, the calls that bypass them, and the checks of their shapes."""

import logging
from typing import Any, Callable, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import _fallbacks
from ..._arrays import make_error
from ..._kernwright import Error

_log = logging.getLogger("kernwright")
_left: Set[Tuple[str, str]] = set()  # the operators and reasons that were logged
_library = torch.library.Library("kernwright", "DEF")

# A kernel is made for the strides that it met, so a compiler may not lay a tensor out otherwise.
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)

_PLAIN = (Tensor, torch.nn.Parameter)


def _direct(*tensors: Optional[Tensor]) -> bool:
    """Returns true if a kernel may be launched at once: nobody traces, transforms, or needs a
    gradient. Errors: Error if one of them has a tangent of forward-mode derivatives, which nothing
    here has."""
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        _refuse_tangents(tensors)
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


def _or_plain(name: str, ours: Callable[..., Any], plain: Callable[..., Any],
              shapes: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls `ours`, and if that refuses its arguments, `plain`, which does
    the same in PyTorch, with one line in the log for each reason. Other failures are errors, and so
    are refusals of `shapes`."""
    def compute(*given: Any, **named: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents((*given, *named.values()))
        try:
            return ours(*given, **named)
        except Error as error:
            if not error.is_refusal:
                raise
            reason = error
        shapes(*given, **{key: value for key, value in named.items() if key != "out"})
        _fallbacks.counts[f"operator {name}"] += 1
        if (name, reason.reason) not in _left:
            _left.add((name, reason.reason))
            _log.warning("%s is left to PyTorch: %s", name, reason)
        return plain(*given, **named)

    return compute


def _are_apart(name: str, x: Tensor) -> bool:
    """Counts a call whose weights are no longer together in memory, and logs the first of an
    operator. Returns whether PyTorch must compute it: kernels of the products by themselves may not
    be in memory, and nothing is loaded in a capture."""
    _fallbacks.counts["apart"] += 1
    if (name, "apart") not in _left:
        _left.add((name, "apart"))
        _log.warning("weights of %s no longer lie together, so its products are computed one by "
                     "one; patch the model anew to move them together", name)
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _refuse_tangents(given: Sequence[Any]) -> None:
    for tensor in given:
        if isinstance(tensor, (list, tuple)):
            _refuse_tangents(tensor)
        if isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise make_error("kernwright's operators have no forward-mode derivative, and an "
                             "argument has a tangent; use PyTorch's own")


def _define(schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    """Defines an operator that computes by `compute`, and whose results have the shapes of
    `shapes`."""
    name = schema[:schema.index("(")]
    _library.define(schema, tags=_TAGS)
    for key in ("CUDA", "CompositeExplicitAutograd"):
        _library.impl(name, compute, key)
    _library.impl(name, shapes, "Meta")
    return name


def _define_forward_only(schema: str, compute: Callable[..., Any],
                         shapes: Callable[..., Any]) -> None:
    """Defines in the same way an operator that refuses arguments which require a gradient."""
    name = _define(schema, compute, shapes)
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.kernwright, packet), overload or "default")

    def refuse_gradients(keyset: Any, *arguments: Any, **named: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents((*arguments, *named.values()))
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, *named.values()):
            raise make_error(f"kernwright::{packet} has no backward, and an argument requires a "
                             "gradient; call it under torch.no_grad(), or use PyTorch's own")
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments,
                                       **named)

    _library.impl(name, refuse_gradients, "Autograd", with_keyset=True)


def _define_out(name: str, arguments: str, compute: Callable[..., Any],
                shapes: Callable[..., Tensor]) -> None:
    """Defines the form of an operator with one result that writes it to `out`: name.out, or
    name_out for an overload. `compute` takes `out` too. It has no backward."""
    def write(*given: Any, out: Tensor, **named: Any) -> None:
        compute(*given, out=out, **named)

    def check(*given: Any, out: Tensor, **named: Any) -> None:
        _expect_shape("out", out, *shapes(*given, **named).shape)

    suffix = "_out" if "." in name else ".out"
    _define_forward_only(f"{name}{suffix}({arguments}, Tensor(a!) out) -> ()", write, check)


def _expect(right: Any, text: Callable[[], str]) -> None:
    """Refuses on meta and fake tensors what a kernel would refuse. Symbolic facts are checked when
    the compiled program runs."""
    try:
        torch._check_with(Error, right, text)
    except Error as error:
        error.problem, error.reason, error.is_refusal = "", str(error), True
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
