"""Matrix products."""

from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from ... import _operations as _arrays
from .. import _fused, _gradients
from . import plain
from .define import (_are_apart, _define, _define_forward_only, _define_out, _direct, _expect,
                     _expect_dims, _expect_shape, _library, _new, _or_plain)
from .rows import rms_norm


def _product_shape(x: Tensor, k: Any, n: Any, bias: Optional[Tensor] = None,
                   residual: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None,
                   names: Tuple[str, str] = ("x", "weight")) -> Tensor:
    """Checks the arguments of a product of x, and returns a tensor for its result. `names` are the
    names of x and of the matrix."""
    _expect(x.shape[-1] == k, lambda: f"{names[0]} has rows of {x.shape[-1]} elements, and "
                                      f"{names[1]} has k={k}")
    shape = (*x.shape[:-1], n)
    if bias is not None:
        _expect_shape("bias", bias, n)
    if residual is not None:
        _expect_shape("residual", residual, *shape)
    return _new(x, shape, dtype)


def _matrix(name: str, tensor: Tensor) -> Tuple[Any, Any]:
    _expect_dims(name, tensor, 2)
    return tensor.shape[0], tensor.shape[1]


def _linear_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    n, k = _matrix("weight", weight)
    return _product_shape(x, k, n, bias, residual, out_dtype)


_LINEAR = ("Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, "
           "str? activation=None")
_compute_linear = _or_plain(
    "linear", lambda x, weight, bias=None, residual=None, **named:
    _arrays.linear(x, weight, bias, residual=residual, **named), plain.linear, _linear_shape)
_define(f"linear({_LINEAR}, ScalarType? out_dtype=None) -> Tensor", _compute_linear, _linear_shape)
_define_out("linear", _LINEAR, _compute_linear, _linear_shape)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """activation(x @ weight.T + bias) + residual, as torch.nn.functional.linear with more fused.

    x: [..., k]; weight: [n, k], bf16, fp16 or fp8_e4m3 as x; bias: [n]; residual: [..., n]
    activation: None, "gelu_tanh", "gelu_erf" or "silu"
    out: [..., n], without gradients; out_dtype: dtype of a new result, by default x's

    Differentiable in x, weight, bias and residual. Errors: kernwright.Error, see
    kernwright.linear."""
    if _direct(x, weight, bias, residual, out):
        return _compute_linear(x, weight, bias, residual, activation=activation, out=out,
                               out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.linear(x, weight, bias, residual, activation=activation,
                                           out_dtype=out_dtype)
    torch.ops.kernwright.linear.out(x, weight, bias, residual, activation=activation, out=out)
    return out


def _matmul_shape(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    k, n = _matrix("b", b)
    return _product_shape(a, k, n, bias, residual, out_dtype, ("a", "b"))


_MATMUL = "Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, *, str? activation=None"
_compute_matmul = _or_plain(
    "matmul", lambda a, b, bias=None, residual=None, **named:
    _arrays.matmul(a, b, bias=bias, residual=residual, **named), plain.matmul, _matmul_shape)
_define(f"matmul({_MATMUL}, ScalarType? out_dtype=None) -> Tensor", _compute_matmul, _matmul_shape)
_define_out("matmul", _MATMUL, _compute_matmul, _matmul_shape)


def matmul(a: Tensor, b: Tensor, *, bias: Optional[Tensor] = None,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """activation(a @ b + bias) + residual, as torch.matmul of matrices.

    a: [..., k]; b: [k, n], or the transposed view of [n, k]; the rest as in `linear`."""
    if _direct(a, b, bias, residual, out):
        return _compute_matmul(a, b, bias, residual, activation=activation, out=out,
                               out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.matmul(a, b, bias, residual, activation=activation,
                                           out_dtype=out_dtype)
    torch.ops.kernwright.matmul.out(a, b, bias, residual, activation=activation, out=out)
    return out


Weights = Union[Tensor, Sequence[Tensor]]


def _our_gated_linear(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                      activation: str = "silu", eps: float = 1e-6) -> Tensor:
    if isinstance(weight, Tensor):
        if norm_weight is None:
            return _arrays.gated_linear(x, weight, activation=activation)
        return _fused.gated_linear(x, weight, norm_weight, activation, eps)
    result = _fused.gated_linear(x, tuple(weight), norm_weight, activation, eps)
    if result is NotImplemented:
        if _are_apart("gated_linear", x):
            return plain.gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
        x, (gate, up) = _normalised(x, norm_weight, eps), weight
        result = linear(x, gate, activation=activation).mul_(linear(x, up))
    return result


def _normalised(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    return x if weight is None else rms_norm(x, weight, eps)


def _rows_of(name: str, weight: Weights) -> Tuple[Any, Any]:
    """Returns rows of all matrices, and their columns."""
    if isinstance(weight, Tensor):
        return _matrix(name, weight)
    sizes = [_matrix(name, member) for member in weight]
    for _, columns in sizes:
        _expect(columns == sizes[0][1], lambda: f"{name} has rows of {columns} and of "
                                                f"{sizes[0][1]} elements")
    return sum(rows for rows, _ in sizes), sizes[0][1]


def _gated_linear_shape(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                        activation: str = "silu", eps: float = 1e-6) -> Tensor:
    rows, k = _rows_of("weight", weight)
    if not isinstance(weight, Tensor):
        _expect_shape("weight of up", weight[1], *weight[0].shape)
    _expect(rows % 2 == 0, lambda: f"weight has {rows} rows, and an even number expected: those of "
                                   "the gate, then those of the up projection")
    return _product_shape(x, k, rows // 2)


_compute_gated_linear = _or_plain("gated_linear", _our_gated_linear, plain.gated_linear,
                                  _gated_linear_shape)
_GATED = "Tensor? norm_weight=None, *, str activation='silu', float eps=1e-6) -> Tensor"
_define(f"gated_linear(Tensor x, Tensor weight, {_GATED}", _compute_gated_linear,
        _gated_linear_shape)
_define_forward_only(f"gated_linear.members(Tensor x, Tensor[] weight, {_GATED}",
                     _compute_gated_linear, _gated_linear_shape)


def gated_linear(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                 activation: str = "silu", eps: float = 1e-6) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) in one kernel, the first half of a SwiGLU.

    x: [..., k]; weight: [2 * n, k], the rows of the gate, then those of up; result: [..., n];
        or the pair (gate, up), which one kernel reads if up begins at the end of gate
    norm_weight: [k], for at most 16 rows of x in bf16: they are first normalised as by `rms_norm`
    activation: "silu", "gelu_tanh" or "gelu_erf"

    Differentiable in x and weight if this is a tensor and there is no norm_weight."""
    if isinstance(weight, Tensor):
        if _direct(x, weight, norm_weight):
            return _compute_gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
        return torch.ops.kernwright.gated_linear(x, weight, norm_weight, activation=activation,
                                                 eps=eps)
    if _direct(x, *weight, norm_weight):
        return _compute_gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
    return torch.ops.kernwright.gated_linear.members(x, weight, norm_weight, activation=activation,
                                                     eps=eps)


def _our_qkv_linear(x: Tensor, weight: Weights, bias: Optional[Weights] = None,
                    norm_weight: Optional[Tensor] = None, *, kv_heads: int,
                    head_dim: int, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    if isinstance(weight, Tensor):
        return _fused.qkv_linear(x, weight, bias, norm_weight, kv_heads, head_dim, eps)
    results = _fused.qkv_linear(x, tuple(weight), None if bias is None else tuple(bias),
                                norm_weight, kv_heads, head_dim, eps)
    if results is NotImplemented:
        if _are_apart("qkv_linear", x):
            return plain.qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                    head_dim=head_dim, eps=eps)
        x = _normalised(x, norm_weight, eps)
        q, k, v = (linear(x, member, of_member).unflatten(-1, (-1, head_dim))
                   for member, of_member in zip(weight, (None,) * 3 if bias is None else bias))
        results = q, k, v
    return results


def _qkv_linear_shape(x: Tensor, weight: Weights, bias: Optional[Weights] = None,
                      norm_weight: Optional[Tensor] = None, *, kv_heads: int, head_dim: int,
                      eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    rows, k = _rows_of("weight", weight)
    if not isinstance(weight, Tensor):
        for name, member in zip("kv", weight[1:]):
            _expect_shape(f"weight of {name}", member, kv_heads * head_dim, k)
    heads = rows // head_dim - 2 * kv_heads
    _expect(heads > 0 and rows % head_dim == 0,
            lambda: f"weight has {rows} rows, and those of q, and 2 * {kv_heads} heads of "
                    f"{head_dim} expected")
    if isinstance(weight, Tensor):
        _product_shape(x, k, rows, bias)
    else:
        for member, of_member in zip(weight, (None,) * 3 if bias is None else bias):
            _product_shape(x, k, member.shape[0], of_member)
    q, k_new, v_new = (_new(x, (*x.shape[:-1], count, head_dim))
                       for count in (heads, kv_heads, kv_heads))
    return q, k_new, v_new


_compute_qkv_linear = _or_plain("qkv_linear", _our_qkv_linear, plain.qkv_linear, _qkv_linear_shape)
_QKV = ("Tensor? norm_weight=None, *, int kv_heads, int head_dim, float eps=1e-6) "
        "-> (Tensor, Tensor, Tensor)")
_define_forward_only(f"qkv_linear(Tensor x, Tensor weight, Tensor? bias=None, {_QKV}",
                     _compute_qkv_linear, _qkv_linear_shape)
_define_forward_only(f"qkv_linear.members(Tensor x, Tensor[] weight, Tensor[]? bias=None, {_QKV}",
                     _compute_qkv_linear, _qkv_linear_shape)


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
            return _compute_qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                       head_dim=head_dim, eps=eps)
        return torch.ops.kernwright.qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                               head_dim=head_dim, eps=eps)
    if _direct(x, *weight, *(bias or ()), norm_weight):
        return _compute_qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                   head_dim=head_dim, eps=eps)
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
