"""Scaled and grouped matrix products."""

import math
from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ... import _operations as _arrays
from ..._operations.products import _are_numbers, _blocks
from . import plain
from .define import (_define_forward_only, _define_out, _direct, _expect, _expect_dims,
                     _expect_shape, _new, _or_plain)
from .products import _matrix, _product_shape

_FP8 = torch.float8_e4m3fn


def _dtype(tensor: Tensor) -> Optional[str]:
    return _arrays.dtype_text(tensor.dtype)


def _expect_one_dtype(a: Tensor, b: Tensor) -> None:
    _expect(a.dtype is b.dtype,
            lambda: f"b is {_dtype(b)}, and a is {_dtype(a)}: one dtype expected")


def _expect_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    _expect(tensor.dtype is dtype, lambda: f"{name} is {_dtype(tensor)}, and "
                                           f"{_arrays.dtype_text(dtype)} expected")


def _expect_no_gaps(name: str, tensor: Tensor) -> None:
    """Checks that rows, or a vector, have no gaps."""
    columns, last = tensor.shape[-1], tensor.stride(-1)
    _expect(last == 1 or columns == 1,
            lambda: f"{name} has a last stride of {last}, and 1 expected: its rows are not "
                    "contiguous")
    if tensor.dim() == 2:
        _expect(tensor.stride(0) == columns or tensor.shape[0] <= 1,
                lambda: f"{name} has rows {tensor.stride(0)} elements apart, and {columns} "
                        "expected: this operation takes arrays without gaps")


def _expect_layout(name: str, tensor: Tensor, shape: Tuple[Any, ...], strides: Tuple[Any, ...],
                   what: str) -> None:
    """Strides of dimensions of size 1 count for nothing."""
    _expect_shape(name, tensor, *shape)
    _expect(all(own == wanted or size == 1
                for size, own, wanted in zip(shape, tensor.stride(), strides)),
            lambda: f"{name} has the strides {tensor.stride()}, and {strides} expected: {what}")


def _expect_scales(name: str, scales: Tensor, shape: Tuple[Any, ...], strides: Tuple[Any, ...],
                   what: str) -> None:
    _expect_dtype(name, scales, torch.float32)
    _expect_layout(name, scales, shape, strides, what)


def _scaled_shape(a: Tensor, b: Tensor, scale_a: Union[Tensor, float],
                  scale_b: Union[Tensor, float], bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    _expect_one_dtype(a, b)
    _expect(a.dtype is _FP8, lambda: f"a and b are {_dtype(a)}, and fp8_e4m3 expected")
    k, n = _matrix("b", b)
    _expect(b.stride(0) == 1 or k == 1,
            lambda: f"b has the strides {b.stride()}, and {(1, k)} expected: the transposed view "
                    "of [n, k]")
    if isinstance(scale_a, Tensor) and isinstance(scale_b, Tensor):
        m, blocks = math.prod(a.shape[:-1]), _blocks(k)
        _expect_scales("scale_a", scale_a, (m, blocks), (1, m),
                       "the transposed view of [ceil(k / 128), m]")
        _expect_scales("scale_b", scale_b, (blocks, _blocks(n)), (1, blocks),
                       "the transposed view of [ceil(n / 128), ceil(k / 128)]")
    return _product_shape(a, k, n, bias, residual, out_dtype or torch.bfloat16, ("a", "b"))


def _our_scaled(a: Tensor, b: Tensor, scale_a: Union[Tensor, float],
                scale_b: Union[Tensor, float], bias: Optional[Tensor] = None,
                residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                out: Optional[Tensor] = None,
                out_dtype: Optional[torch.dtype] = None) -> Tensor:
    if out is None and out_dtype is None:
        out_dtype = torch.bfloat16
    return _arrays.scaled_matmul(a, b, scale_a, scale_b, bias=bias, residual=residual,
                                 activation=activation, out=out, out_dtype=out_dtype)


_compute_scaled = _or_plain("scaled_matmul", _our_scaled, plain.scaled_matmul, _scaled_shape)
for _name, _kind in (("scaled_matmul", "Tensor"), ("scaled_matmul.Scalar", "float")):
    _arguments = (f"Tensor a, Tensor b, {_kind} scale_a, {_kind} scale_b, Tensor? bias=None, "
                  "Tensor? residual=None, *, str? activation=None")
    _define_forward_only(f"{_name}({_arguments}, ScalarType? out_dtype=None) -> Tensor",
                         _compute_scaled, _scaled_shape)
    _define_out(_name, _arguments, _compute_scaled, _scaled_shape)


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
        return _compute_scaled(a, b, scale_a, scale_b, bias, residual, activation=activation,
                               out=out, out_dtype=out_dtype)
    operator = torch.ops.kernwright.scaled_matmul
    if out is None:
        return operator(a, b, scale_a, scale_b, bias, residual, activation=activation,
                        out_dtype=out_dtype)
    (operator.Scalar_out if numbers else operator.out)(a, b, scale_a, scale_b, bias, residual,
                                                       activation=activation, out=out)
    return out


def _grouped_shape(a: Tensor, b: Tensor, offs: Tensor, scale_a: Optional[Tensor] = None,
                   scale_b: Optional[Tensor] = None, *, activation: Optional[str] = None,
                   gated: bool = False, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    _expect_one_dtype(a, b)
    for name, tensor, dims, what in (("a", a, 2, "rows and k"), ("b", b, 3, "groups, k and n"),
                                     ("offs", offs, 1, "groups")):
        _expect_dims(name, tensor, dims, f": {what}")
    _expect_no_gaps("a", a)
    rows, groups, k, columns = a.shape[0], *b.shape
    _expect(a.shape[1] == k, lambda: f"a has rows of {a.shape[1]} elements, and b has k={k}")
    if gated:
        _expect(columns % 2 == 0, lambda: f"b has {columns} columns, and an even number expected: "
                                          "those of the gates, then those of what they open")
    _expect_layout("b", b, (groups, k, columns), (k * columns, 1, k),
                   "the transposed view of [groups, n, k]")
    _expect_dtype("offs", offs, torch.int32)
    _expect_shape("offs", offs, groups)
    _expect_no_gaps("offs", offs)
    scaled = a.dtype is _FP8
    _expect(scaled == (scale_a is not None) and scaled == (scale_b is not None),
            lambda: f"a is {_dtype(a)}: scale_a and scale_b are for fp8_e4m3, and needed there")
    if scale_a is not None and scale_b is not None:
        blocks, of_columns = _blocks(k), _blocks(columns)
        _expect_scales("scale_a", scale_a, (rows, blocks), (1, rows),
                       "the transposed view of [ceil(k / 128), rows]")
        _expect_scales("scale_b", scale_b, (groups, blocks, of_columns),
                       (blocks * of_columns, 1, blocks),
                       "the transposed view of [groups, ceil(n / 128), ceil(k / 128)]")
    return _new(a, (rows, columns // 2 if gated else columns),
                out_dtype or (torch.bfloat16 if scaled else a.dtype))


def _our_grouped(a: Tensor, b: Tensor, offs: Tensor, scale_a: Optional[Tensor] = None,
                 scale_b: Optional[Tensor] = None, **named: Any) -> Tensor:
    return _arrays.grouped_matmul(a, b, offs, scale_a=scale_a, scale_b=scale_b, **named)


_compute_grouped = _or_plain("grouped_matmul", _our_grouped, plain.grouped_matmul, _grouped_shape)
_GROUPED = ("Tensor a, Tensor b, Tensor offs, Tensor? scale_a=None, Tensor? scale_b=None, *, "
            "str? activation=None, bool gated=False")
_define_forward_only(f"grouped_matmul({_GROUPED}, ScalarType? out_dtype=None) -> Tensor",
                     _compute_grouped, _grouped_shape)
_define_out("grouped_matmul", _GROUPED, _compute_grouped, _grouped_shape)


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
        return _compute_grouped(a, b, offs, scale_a, scale_b, activation=activation, gated=gated,
                                out=out, out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.grouped_matmul(a, b, offs, scale_a, scale_b,
                                                   activation=activation, gated=gated,
                                                   out_dtype=out_dtype)
    torch.ops.kernwright.grouped_matmul.out(a, b, offs, scale_a, scale_b, activation=activation,
                                            gated=gated, out=out)
    return out
