"""Products with quantized weights."""

from typing import Any, Optional

import torch
from torch import Tensor

from ..._arrays import make_error
from ..._call import make_function
from .._quantized import GatedWeight, QuantizedWeight
from . import plain
from .define import _direct, _new, _operator


def _our_quantized_linear(x: Tensor, codes: Tensor, scales: Tensor, zeros: Optional[Tensor] = None,
                          order: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                          residual: Optional[Tensor] = None, **named: Any) -> Tensor:
    if order is not None:
        x = x.index_select(-1, order)
    result: Tensor = make_function("quantized_matmul")(x, codes, scales, b_zero=zeros, bias=bias,
                                                       residual=residual, **named)
    return result


_quantized_linear = _operator(
    "quantized_linear(Tensor x, Tensor codes, Tensor scales, Tensor? zeros=None, Tensor? order=None, "
    "Tensor? bias=None, Tensor? residual=None, *, int n, int group, str weights, str? activation=None) -> Tensor",
    _our_quantized_linear, plain.quantized_linear, lambda x, *_, n, **named: _new(x, (*x.shape[:-1], n)))


def _our_quantized_gated_linear(x: Tensor, codes: Tensor, scales: Tensor, zeros: Optional[Tensor] = None,
                                order: Optional[Tensor] = None, **named: Any) -> Tensor:
    return _our_quantized_linear(x, codes, scales, zeros, order, gate="stacked", **named)


_quantized_gated_linear = _operator(
    "quantized_gated_linear(Tensor x, Tensor codes, Tensor scales, Tensor? zeros=None, Tensor? order=None, *, "
    "int n, int group, str weights, str activation) -> Tensor",
    _our_quantized_gated_linear, plain.quantized_gated_linear, lambda x, *_, n, **named: _new(x, (*x.shape[:-1], n)))


def quantized_gated_linear(x: Tensor, weight: GatedWeight, *, activation: str = "silu") -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) with quantized weights, in one kernel; without a backward. The rest as
    in `quantized_linear`."""
    rows = weight.rows
    if x.shape[-1] != rows.k:
        raise make_error(f"x has {x.shape[-1]} columns, and {rows.k} expected as its weights")
    tensors = (x, rows.codes, rows.scales, rows.zeros, rows.order)
    compute = _quantized_gated_linear if _direct(*tensors) else torch.ops.kernwright.quantized_gated_linear
    result: Tensor = compute(*tensors, n=weight.n, group=rows.group, weights=rows.weights, activation=activation)
    return result


def quantized_linear(x: Tensor, weight: QuantizedWeight, bias: Optional[Tensor] = None, *,
                     activation: Optional[str] = None, residual: Optional[Tensor] = None) -> Tensor:
    """activation(x @ w.T + bias) + residual with quantized weights w, in one kernel; without a
    backward.

    x: [..., k] in bf16 or fp16; bias: [n]; residual and result: [..., n], all of x's dtype
    activation: "silu", "gelu_tanh" or "gelu_erf"

    Tensors that no kernel takes, such as those on a CPU, are computed with the dequantized weights.
    Errors: kernwright.Error if shapes do not fit together. Source: quantized_matmul."""
    if x.shape[-1] != weight.k:
        raise make_error(f"x has {x.shape[-1]} columns, and {weight.k} expected as its weights")
    tensors = (x, weight.codes, weight.scales, weight.zeros, weight.order, bias, residual)
    compute = _quantized_linear if _direct(*tensors) else torch.ops.kernwright.quantized_linear
    result: Tensor = compute(*tensors, n=weight.n, group=weight.group, weights=weight.weights,
                             activation=activation)
    return result
