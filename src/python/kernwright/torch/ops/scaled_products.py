"""Scaled and grouped matrix products."""

from typing import Any, Optional, Union

import torch
from torch import Tensor

from ... import _operations as _arrays
from ..._operations.products import _are_numbers
from . import plain
from .define import _direct, _new, _operator
from .products import _PRODUCT


def _our_scaled(a: Tensor, b: Tensor, scale_a: Union[Tensor, float],
                scale_b: Union[Tensor, float], bias: Optional[Tensor] = None,
                residual: Optional[Tensor] = None, *, out: Optional[Tensor] = None,
                out_dtype: Optional[torch.dtype] = None, **named: Any) -> Tensor:
    if out is None and out_dtype is None:
        out_dtype = torch.bfloat16
    result: Tensor = _arrays.scaled_matmul(a, b, scale_a, scale_b, bias=bias, residual=residual,
                                           out=out, out_dtype=out_dtype, **named)
    return result


for _name, _kind in (("scaled_matmul.Scalar", "float"), ("scaled_matmul", "Tensor")):
    _scaled_matmul = _operator(
        f"{_name}(Tensor a, Tensor b, {_kind} scale_a, {_kind} scale_b, {_PRODUCT})", _our_scaled,
        plain.scaled_matmul, strict=True)


def scaled_matmul(a: Tensor, b: Tensor, scale_a: Union[Tensor, float],
                  scale_b: Union[Tensor, float], *, bias: Optional[Tensor] = None,
                  activation: Optional[str] = None, residual: Optional[Tensor] = None,
                  out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """kernwright.scaled_matmul, without a backward.

    Scales that torch._scaled_mm takes as tensors of one element are numbers here; a CUDA graph
    keeps the numbers that it was captured with. Scales of rows are its RowWise, scales of blocks its
    BlockWise1x128 of a and BlockWise128x128 of b. Without out_dtype torch._scaled_mm returns a's
    dtype."""
    numbers = _are_numbers(scale_a, scale_b)
    if _direct(a, b, bias, residual, out, *(() if numbers else (scale_a, scale_b))):
        return _scaled_matmul(a, b, scale_a, scale_b, bias, residual, activation=activation,
                              out=out, out_dtype=out_dtype)
    operator = torch.ops.kernwright.scaled_matmul
    if out is None:
        return operator(a, b, scale_a, scale_b, bias, residual, activation=activation,
                        out_dtype=out_dtype)
    (operator.Scalar_out if numbers else operator.out)(a, b, scale_a, scale_b, bias, residual,
                                                       activation=activation, out=out)
    return out


def _our_grouped(a: Tensor, b: Tensor, offs: Tensor, scale_a: Optional[Tensor] = None, scale_b: Optional[Tensor] = None,
                 row_of: Optional[Tensor] = None, bias: Optional[Tensor] = None, **named: Any) -> Tensor:
    result: Tensor = _arrays.grouped_matmul(a, b, offs, scale_a=scale_a, scale_b=scale_b, row_of=row_of, bias=bias,
                                            **named)
    return result


def _new_grouped(a: Tensor, b: Tensor, offs: Tensor, scale_a: Optional[Tensor] = None,
                 scale_b: Optional[Tensor] = None, row_of: Optional[Tensor] = None, *_: Any,
                 gated: bool = False, out_dtype: Optional[torch.dtype] = None,
                 **named: Any) -> Tensor:
    columns = b.shape[2] // 2 if gated else b.shape[2]
    return _new(a, (a.shape[0] if row_of is None else row_of.shape[0], columns),
                out_dtype or (torch.bfloat16 if a.element_size() == 1 else a.dtype))


_grouped_matmul = _operator(
    "grouped_matmul(Tensor a, Tensor b, Tensor offs, Tensor? scale_a=None, Tensor? scale_b=None, "
    "Tensor? row_of=None, Tensor? bias=None, *, str? activation=None, bool gated=False, bool interleaved=False, "
    "float limit=7.0, float gate_alpha=1.702)", _our_grouped, plain.grouped_matmul, _new_grouped, strict=True)


def grouped_matmul(a: Tensor, b: Tensor, offs: Tensor, *, scale_a: Optional[Tensor] = None,
                   scale_b: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                   row_of: Optional[Tensor] = None, activation: Optional[str] = None,
                   gated: bool = False, interleaved: bool = False, limit: float = 7.0,
                   gate_alpha: float = 1.702, out: Optional[Tensor] = None,
                   out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """kernwright.grouped_matmul, without a backward. A new result has anything in rows of no group.

    torch._grouped_mm(mat_a, mat_b, offs) and torch.nn.functional.grouped_mm compute the same from
    mat_a with 2 dimensions and mat_b with 3, without activation and gate; their bias is one for all
    groups. torch._scaled_grouped_mm has a scale for each row instead of scales of blocks."""
    tensors = a, b, offs, scale_a, scale_b, row_of, bias
    named = dict(activation=activation, gated=gated, interleaved=interleaved, limit=limit, gate_alpha=gate_alpha)
    if _direct(*tensors, out):
        result: Tensor = _grouped_matmul(*tensors, **named, out=out, out_dtype=out_dtype)
        return result
    if out is None:
        return torch.ops.kernwright.grouped_matmul(*tensors, **named, out_dtype=out_dtype)
    torch.ops.kernwright.grouped_matmul.out(*tensors, **named, out=out)
    return out
