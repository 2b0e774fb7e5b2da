"""Products with quantized weights."""

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ... import _operations as _arrays
from ..._arrays import make_error
from ..._call import make_function
from .._quantized import GatedWeight, QuantizedRows, QuantizedWeight
from .._quantized_experts import QuantizedExperts
from . import plain
from .define import _direct, _new, _operator
from .scaled_products import scaled_matmul


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


def _our_quantize_rows(x: Tensor, *, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    codes, scales = make_function("quantize_rows")(x, out_dtype=dtype)
    return codes, scales


_quantize_rows = _operator("quantize_rows(Tensor x, *, ScalarType dtype) -> (Tensor, Tensor)",
                           _our_quantize_rows, plain.quantize_rows)


def quantize_rows(x: Tensor, dtype: torch.dtype = torch.int8) -> Tuple[Tensor, Tensor]:
    """Quantizes each row of x [..., k], in bf16 or fp16, to int8 or float8_e4m3fn; without a backward.

    Returns the codes [..., k], and fp32 [rows, 1], the scale of each row: its largest element divided
    by 127 or 448. `scaled_matmul` takes both. Source: quantize_rows."""
    compute = _quantize_rows if _direct(x) else torch.ops.kernwright.quantize_rows
    codes, scales = compute(x, dtype=dtype)
    return codes, scales.t()


def quantized_linear(x: Union[Tensor, Tuple[Tensor, Tensor]], weight: Union[QuantizedWeight, QuantizedRows],
                     bias: Optional[Tensor] = None, *, activation: Optional[str] = None,
                     residual: Optional[Tensor] = None, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """activation(x @ w.T + bias) + residual with quantized weights w, in one kernel; without a
    backward. With QuantizedRows a kernel before it quantizes the rows of x.

    x: [..., k] in bf16 or fp16; bias: [n]; residual and result: [..., n], all of x's dtype
        With QuantizedRows x may be codes and scales, as a norm or a gate with quantize="row" returns
        them. Then no kernel is before the product, and the rest is of out_dtype.
    activation: "silu", "gelu_tanh" or "gelu_erf"

    Tensors that no kernel takes, such as those on a CPU, are computed with the dequantized weights.
    Errors: kernwright.Error if shapes do not fit together. Source: quantized_matmul, or quantize_rows
    and matmul with scaling=row."""
    columns = (x if isinstance(x, Tensor) else x[0]).shape[-1]
    if columns != weight.k:
        raise make_error(f"x has {columns} columns, and {weight.k} expected as its weights")
    if isinstance(weight, QuantizedRows):
        if isinstance(x, Tensor):
            x, out_dtype = quantize_rows(x, weight.codes.dtype), x.dtype
        return scaled_matmul(x[0], weight.codes.t(), x[1], weight.scales, bias=bias,
                             activation=activation, residual=residual, out_dtype=out_dtype)
    if not isinstance(x, Tensor):
        raise make_error("x is codes and scales, which QuantizedRows alone multiplies")
    tensors = (x, weight.codes, weight.scales, weight.zeros, weight.order, bias, residual)
    compute = _quantized_linear if _direct(*tensors) else torch.ops.kernwright.quantized_linear
    result: Tensor = compute(*tensors, n=weight.n, group=weight.group, weights=weight.weights,
                             activation=activation)
    return result


def _our_grouped(x: Tensor, codes: Tensor, scales: Tensor, offs: Tensor, zeros: Optional[Tensor] = None,
                 bias: Optional[Tensor] = None, row_of: Optional[Tensor] = None, row_scale: Optional[Tensor] = None,
                 **named: Any) -> Tensor:
    result: Tensor = _arrays.grouped_quantized_matmul(x, codes, scales, offs, b_zero=zeros, bias=bias,
                                                      row_of=row_of, row_scale=row_scale, **named)
    return result


def _new_grouped(x: Tensor, codes: Tensor, scales: Tensor, offs: Tensor, zeros: Optional[Tensor] = None,
                 bias: Optional[Tensor] = None, row_of: Optional[Tensor] = None, *_: Any, n: int,
                 out_dtype: Optional[torch.dtype] = None, **named: Any) -> Tensor:
    return _new(x, (x.shape[0] if row_of is None else row_of.shape[0], n), out_dtype)


_quantized_grouped_matmul = _operator(
    "quantized_grouped_matmul(Tensor x, Tensor codes, Tensor scales, Tensor offs, Tensor? zeros=None, "
    "Tensor? bias=None, Tensor? row_of=None, Tensor? row_scale=None, *, int n, int group, str weights, "
    "str? activation=None, bool gated=False, float limit=7.0, float gate_alpha=1.702)",
    _our_grouped, plain.quantized_grouped_matmul, _new_grouped)


def quantized_grouped_matmul(x: Tensor, experts: QuantizedExperts, offs: Tensor, *, row_of: Optional[Tensor] = None,
                             row_scale: Optional[Tensor] = None, activation: Optional[str] = None,
                             limit: float = 7.0, gate_alpha: float = 1.702, out: Optional[Tensor] = None) -> Tensor:
    """row_scale * activation(x of expert e @ w[e].T + bias[e]) for each expert of a mixture, in one
    kernel; gated experts give activation(gate) * up. Without a backward.

    x: [rows, k] in bf16 or fp16, sorted by expert; with row_of [tokens, k] in any order
    offs: [experts], int32: the ends of the rows of each expert, as in `grouped_matmul`
    row_of: [rows], int32: the row of x for each row; row_scale: [rows], fp32
    activation: "silu", "gelu_tanh", "gelu_erf", or "swiglu_oai" of gpt-oss, with limit and gate_alpha
    Result: [rows, n], of x's dtype, with anything in rows of no expert; in `out` they stay as they are

    Tensors that no kernel takes, such as those on a CPU, are computed with the dequantized weights.
    Errors: kernwright.Error if shapes do not fit together. Source: grouped_quantized_matmul."""
    if x.shape[-1] != experts.k:
        raise make_error(f"x has {x.shape[-1]} columns, and {experts.k} expected as its weights")
    tensors = (x, experts.codes, experts.scales, offs, experts.zeros, experts.bias, row_of, row_scale)
    named = dict(n=experts.n, group=experts.group, weights=experts.weights, activation=activation,
                 gated=experts.gated, limit=limit, gate_alpha=gate_alpha)
    if _direct(*tensors, out):
        result: Tensor = _quantized_grouped_matmul(*tensors, **named, out=out)
        return result
    if out is None:
        return torch.ops.kernwright.quantized_grouped_matmul(*tensors, **named)
    torch.ops.kernwright.quantized_grouped_matmul.out(*tensors, **named, out=out)
    return out
