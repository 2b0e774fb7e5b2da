"""Matrix products."""

from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from ... import _operations as _arrays
from .. import _fused, _gradients
from . import plain
from .define import _are_apart, _direct, _library, _operator
from .rows import rms_norm


_PRODUCT = "Tensor? bias=None, Tensor? residual=None, *, str? activation=None"
_linear = _operator(
    f"linear(Tensor x, Tensor weight, {_PRODUCT})",
    lambda x, weight, bias=None, residual=None, **named:
    _arrays.linear(x, weight, bias, residual=residual, **named), plain.linear, differentiable=True)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """kernwright.linear, differentiable in x, weight, bias and residual without `out`."""
    if _direct(x, weight, bias, residual, out):
        return _linear(x, weight, bias, residual, activation=activation, out=out,
                       out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.linear(x, weight, bias, residual, activation=activation,
                                           out_dtype=out_dtype)
    torch.ops.kernwright.linear.out(x, weight, bias, residual, activation=activation, out=out)
    return out


_matmul = _operator(
    f"matmul(Tensor a, Tensor b, {_PRODUCT})",
    lambda a, b, bias=None, residual=None, **named:
    _arrays.matmul(a, b, bias=bias, residual=residual, **named), plain.matmul, differentiable=True)


def matmul(a: Tensor, b: Tensor, *, bias: Optional[Tensor] = None,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """kernwright.matmul, differentiable in a, b, bias and residual without `out`."""
    if _direct(a, b, bias, residual, out):
        return _matmul(a, b, bias, residual, activation=activation, out=out, out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.matmul(a, b, bias, residual, activation=activation,
                                           out_dtype=out_dtype)
    torch.ops.kernwright.matmul.out(a, b, bias, residual, activation=activation, out=out)
    return out


Weights = Union[Tensor, Sequence[Tensor]]


def _as_one(weight: Optional[Weights]) -> Any:
    """Returns several as the tuple that kernels read as one."""
    return weight if weight is None or isinstance(weight, Tensor) else tuple(weight)


def _our_gated_linear(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                      activation: str = "silu", eps: float = 1e-6) -> Tensor:
    result = _fused.gated_linear(x, _as_one(weight), norm_weight, activation, eps)
    if result is NotImplemented:
        if _are_apart("gated_linear", x):
            return plain.gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
        x, (gate, up) = _normalised(x, norm_weight, eps), weight
        result = linear(x, gate, activation=activation).mul_(linear(x, up))
    return result


def _normalised(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    return x if weight is None else rms_norm(x, weight, eps)


_GATED = "Tensor? norm_weight=None, *, str activation='silu', float eps=1e-6) -> Tensor"
_gated_linear = _operator(f"gated_linear(Tensor x, Tensor weight, {_GATED}", _our_gated_linear,
                          plain.gated_linear, differentiable=True)
_operator(f"gated_linear.members(Tensor x, Tensor[] weight, {_GATED}", _our_gated_linear,
          plain.gated_linear)


def gated_linear(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                 activation: str = "silu", eps: float = 1e-6) -> Tensor:
    """kernwright.gated_linear, the first half of a SwiGLU.

    weight: [2 * n, k], or the pair (gate, up), which one kernel reads if up begins at the end of
        gate
    norm_weight: [k], for at most 16 rows of x in bf16: they are first normalised as by `rms_norm`

    Differentiable in x and weight if this is a tensor and there is no norm_weight."""
    if isinstance(weight, Tensor):
        if _direct(x, weight, norm_weight):
            return _gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
        return torch.ops.kernwright.gated_linear(x, weight, norm_weight, activation=activation,
                                                 eps=eps)
    if _direct(x, *weight, norm_weight):
        return _gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
    return torch.ops.kernwright.gated_linear.members(x, weight, norm_weight, activation=activation,
                                                     eps=eps)


def _our_qkv_linear(x: Tensor, weight: Weights, bias: Optional[Weights] = None,
                    norm_weight: Optional[Tensor] = None, *, kv_heads: int,
                    head_dim: int, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    results = _fused.qkv_linear(x, _as_one(weight), _as_one(bias), norm_weight, kv_heads, head_dim,
                                eps)
    if results is NotImplemented:
        if _are_apart("qkv_linear", x):
            return plain.qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                    head_dim=head_dim, eps=eps)
        x = _normalised(x, norm_weight, eps)
        q, k, v = (linear(x, member, of_member).unflatten(-1, (-1, head_dim))
                   for member, of_member in zip(weight, (None,) * 3 if bias is None else bias))
        results = q, k, v
    return results


_QKV = ("Tensor? norm_weight=None, *, int kv_heads, int head_dim, float eps=1e-6) "
        "-> (Tensor, Tensor, Tensor)")
_qkv_linear = _operator(f"qkv_linear(Tensor x, Tensor weight, Tensor? bias=None, {_QKV}",
                        _our_qkv_linear, plain.qkv_linear)
_operator(f"qkv_linear.members(Tensor x, Tensor[] weight, Tensor[]? bias=None, {_QKV}",
          _our_qkv_linear, plain.qkv_linear)


def qkv_linear(x: Tensor, weight: Weights, bias: Optional[Weights] = None,
               norm_weight: Optional[Tensor] = None, *, kv_heads: int, head_dim: int,
               eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    """x @ weight.T + bias, split into q, k and v, in one kernel.

    x: [..., hidden]; weight: [(heads + 2 * kv_heads) * head_dim, hidden], the rows of q, k and v;
        or a tuple of these three, which one kernel reads if each begins at the end of the one
        before
    bias: one for each row, a tuple if weight is one; norm_weight: as in `gated_linear`
    Result: [..., heads, head_dim], [..., kv_heads, head_dim] and the same again, without gaps.
    Source: matmul with split=qkv."""
    if isinstance(weight, Tensor):
        if _direct(x, weight, bias, norm_weight):
            return _qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads, head_dim=head_dim,
                               eps=eps)
        return torch.ops.kernwright.qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                               head_dim=head_dim, eps=eps)
    if _direct(x, *weight, *(bias or ()), norm_weight):
        return _qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads, head_dim=head_dim,
                           eps=eps)
    return torch.ops.kernwright.qkv_linear.members(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                                   head_dim=head_dim, eps=eps)


torch.library.register_autograd("kernwright::linear",
                                lambda ctx, grad: _gradients.product_backward(ctx, grad, False),
                                setup_context=_gradients.keep_product, lib=_library)
torch.library.register_autograd("kernwright::matmul",
                                lambda ctx, grad: _gradients.product_backward(ctx, grad, True),
                                setup_context=_gradients.keep_product, lib=_library)
torch.library.register_autograd("kernwright::gated_linear", _gradients.gated_backward,
                                setup_context=_gradients.keep_gated, lib=_library)
