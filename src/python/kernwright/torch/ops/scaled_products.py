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
    """activation(dequantised a @ dequantised b + bias) + residual of fp8, as torch._scaled_mm.

    a: [..., k], float8_e4m3fn; b: [k, n], the transposed view of [n, k], as a
    scale_a, scale_b: numbers, one for the whole of a and of b, or scales of blocks in fp32, as
        transposed views: [m, ceil(k / 128)] for the m rows of a, and [ceil(k / 128), ceil(n / 128)]
    bias: [n]; residual: [..., n]; both of the result's dtype; activation: as in `linear`
    out: [..., n]; out_dtype: by default bfloat16, or float16, float32 or float8_e4m3fn

    Scales that torch._scaled_mm takes as tensors of one element are numbers here; a CUDA graph
    keeps the numbers that it was captured with. Scales of blocks are its BlockWise1x128 of a and
    BlockWise128x128 of b. No kernel takes a scale for each row. Without out_dtype torch._scaled_mm
    returns a's dtype. There is no backward. Errors: kernwright.Error, see
    kernwright.scaled_matmul."""
    numbers = _are_numbers(scale_a, scale_b)
    if _direct(a, b, bias, residual, out, *(() if numbers else (scale_a, scale_b))):
        return _scaled_matmul(a, b, scale_a, scale_b, bias, residual, activation=activation, out=out,
                              out_dtype=out_dtype)
    operator = torch.ops.kernwright.scaled_matmul
    if out is None:
        return operator(a, b, scale_a, scale_b, bias, residual, activation=activation,
                        out_dtype=out_dtype)
    (operator.Scalar_out if numbers else operator.out)(a, b, scale_a, scale_b, bias, residual,
                                                       activation=activation, out=out)
    return out


def _new_grouped(a: Tensor, b: Tensor, *_: Any, gated: bool = False,
                 out_dtype: Optional[torch.dtype] = None, **named: Any) -> Tensor:
    columns = b.shape[2] // 2 if gated else b.shape[2]
    return _new(a, (a.shape[0], columns),
                out_dtype or (torch.bfloat16 if a.element_size() == 1 else a.dtype))


_grouped_matmul = _operator(
    "grouped_matmul(Tensor a, Tensor b, Tensor offs, Tensor? scale_a=None, Tensor? scale_b=None, *, "
    "str? activation=None, bool gated=False)",
    lambda a, b, offs, scale_a=None, scale_b=None, **named:
    _arrays.grouped_matmul(a, b, offs, scale_a=scale_a, scale_b=scale_b, **named),
    plain.grouped_matmul, _new_grouped, strict=True)


def grouped_matmul(a: Tensor, b: Tensor, offs: Tensor, *, scale_a: Optional[Tensor] = None,
                   scale_b: Optional[Tensor] = None, activation: Optional[str] = None,
                   gated: bool = False, out: Optional[Tensor] = None,
                   out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """activation(a of group g @ b[g]) for each group, the experts of a mixture.

    a: [rows, k] without gaps, sorted by group; bfloat16, float16 or float8_e4m3fn
    b: [groups, k, n], the transposed view of [groups, n, k], as a
    offs: [groups], int32, on the GPU: the ends of the rows of each group. They never fall, and the
        last is at most `rows`, which nothing checks. A new result has anything in rows of no group.
    scale_a, scale_b: for fp8, scales of blocks in fp32, as transposed views: [rows, ceil(k / 128)]
        and [groups, ceil(k / 128), ceil(n / 128)]
    gated: b has 2 * n columns, and the result is activation(a @ first half) * (a @ second half)
    out: [rows, n], which keeps what it has in rows of no group; out_dtype: dtype of a new result,
        by default a's, and for fp8 bfloat16

    torch._grouped_mm(mat_a, mat_b, offs) and torch.nn.functional.grouped_mm compute the same from
    mat_a with 2 dimensions and mat_b with 3, without activation and gate. No kernel takes their
    bias, or a mat_b that is not a transposed view. torch._scaled_grouped_mm has a scale for each
    row instead of scales of blocks. There is no backward. Errors: kernwright.Error, see
    kernwright.grouped_matmul."""
    if _direct(a, b, offs, scale_a, scale_b, out):
        return _grouped_matmul(a, b, offs, scale_a, scale_b, activation=activation, gated=gated,
                               out=out, out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.grouped_matmul(a, b, offs, scale_a, scale_b,
                                                   activation=activation, gated=gated,
                                                   out_dtype=out_dtype)
    torch.ops.kernwright.grouped_matmul.out(a, b, offs, scale_a, scale_b, activation=activation,
                                            gated=gated, out=out)
    return out
