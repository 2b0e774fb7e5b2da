"""The definition of operators, the calls that bypass them, and the checks of their tensors."""

import logging
from typing import Any, Callable, Dict, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from ... import _fallbacks, _kernwright
from ..._arrays import Array, dtype_text, make_error
from ..._kernwright import Error
from ..._service import asking

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


class _Fit(Exception):
    """The tensors of a call fit together."""


class _Contracts:
    """Stands in for a service, and asks the contracts of operations whether tensors fit together.
    Only if it is `strict` are dtypes and strides compared: else PyTorch takes what no kernel
    takes."""

    def __init__(self, strict: bool) -> None:
        self.plans: Dict[Any, Any] = {}
        self.patterns: Dict[Any, Any] = {}
        self.ran: Dict[str, Any] = {}
        self._strict = strict

    def read(self, name: str, given: Any, stacks: bool) -> Array:
        if isinstance(given, tuple):
            sizes = [self.read(name, member, stacks).shape for member in given]
            for size in sizes:
                if size[1:] != sizes[0][1:]:
                    raise make_error(f"{name} has rows of the shapes {list(size[1:])} and "
                                     f"{list(sizes[0][1:])}, and one expected")
            rows = tuple(size[0] for size in sizes)
            return Array(name, None, (sum(rows), *sizes[0][1:]), None, members=rows)
        if not self._strict:
            return Array(name, None, tuple(given.shape), None)
        return Array(name, dtype_text(given.dtype), tuple(given.shape), given.stride())

    def bind(self, _: int, options: str, tensors: Tuple[Any, ...], scalars: Sequence[str]) -> None:
        _kernwright.bind(None, options, tensors, scalars)
        raise _Fit


def _check(ours: Callable[..., Any], given: Tuple[Any, ...], named: Dict[str, Any],
           strict: bool) -> None:
    """Raises the Error of `ours` if the tensors of its call do not fit together. Symbolic sizes are
    checked when the compiled program runs."""
    if any(type(size) is not int for tensor in tree_leaves((given, named))
           if isinstance(tensor, Tensor) for size in (*tensor.shape, *tensor.stride())):
        return
    with asking(_Contracts(strict)):
        try:
            ours(*given, **named)
        except _Fit:
            pass


def _or_plain(name: str, ours: Callable[..., Any], plain: Callable[..., Any],
              check: Callable[..., None]) -> Callable[..., Any]:
    """Returns a function that calls `ours`, and if that refuses its arguments, `plain`, which does
    the same in PyTorch, with one line in the log for each reason. Other failures are errors, and so
    are those of `check`."""
    def compute(*given: Any, **named: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents((*given, *named.values()))
        try:
            return ours(*given, **named)
        except Error as error:
            if not error.is_refusal:
                raise
            reason = error
        check(*given, **named)
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


def _define(schema: str, compute: Callable[..., Any], shapes: Callable[..., Any],
            differentiable: bool) -> None:
    """Defines an operator that computes by `compute`, and by `shapes` without data. If it is not
    differentiable, it refuses arguments which require a gradient."""
    name = schema[:schema.index("(")]
    _library.define(schema, tags=_TAGS)
    for key in ("CUDA", "CompositeExplicitAutograd"):
        _library.impl(name, compute, key)
    torch.library.register_fake(f"kernwright::{name}", shapes, lib=_library)
    if differentiable:
        return
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


def _operator(schema: str, ours: Callable[..., Any], plain: Callable[..., Any],
              result: Optional[Callable[..., Any]] = None, *, differentiable: bool = False,
              strict: bool = False) -> Callable[..., Any]:
    """Defines an operator by `ours` and, for what that refuses, `plain`, and returns the function
    that computes it. Its results without data are those of `result`, or else of `plain`. A schema
    that has no results of its own stands for two: one with out_dtype, and one that writes its
    result to `out` and has no backward: name.out, or name_out for an overload."""
    name = schema[:schema.index("(")]

    def check(*given: Any, **named: Any) -> None:
        _check(ours, given, named, strict)

    def shapes(*given: Any, **named: Any) -> Any:
        check(*given, **named)
        return (result or plain)(*given, **named)

    compute = _or_plain(name.partition(".")[0], ours, plain, check)

    if "->" in schema:
        _define(schema, compute, shapes, differentiable)
        return compute
    arguments = schema[len(name) + 1:-1]
    _define(f"{name}({arguments}, ScalarType? out_dtype=None) -> Tensor", compute, shapes,
            differentiable)

    def write(*given: Any, **named: Any) -> None:
        compute(*given, **named)

    suffix = "_out" if "." in name else ".out"
    _define(f"{name}{suffix}({arguments}, Tensor(a!) out) -> ()", write, check, False)
    return compute


def _new(like: Tensor, shape: Sequence[Any], dtype: Optional[torch.dtype] = None) -> Tensor:
    return torch.empty(shape, dtype=like.dtype if dtype is None else dtype, device=like.device)
