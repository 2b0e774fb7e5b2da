"""Norms, activations, softmax, reductions, rotary embedding and formulas."""

from typing import Any, Optional, Tuple

from .._arrays import contiguous_rows, dtype_text, has_shape, make_error, read, same_dtype
from .plan import (Output, Plan, _call, _kernel, _size, _read_optional, _output,
                   _contiguous_output)


def _norm_plan(x: Any, residual: Any, weight: Any, bias: Any, *outs_and_operation: Any) -> Plan:
    """x, plus the residual, with its rows normalised; with a residual also their sum."""
    *outs, operation = outs_and_operation
    array, added = read("x", x), _read_optional("residual", residual)
    scale, shift = _read_optional("weight", weight), _read_optional("bias", bias)
    dtype = same_dtype(array, added, scale, shift)
    rows = contiguous_rows(array)
    if added is not None:
        contiguous_rows(has_shape(added, *array.shape))
    for vector in (scale, shift):
        if vector is not None:
            contiguous_rows(has_shape(vector, rows.columns))
    for name, result in zip(("out", "out[1], the sum,"), outs):
        _contiguous_output(name, result, array.shape, dtype)
    results = tuple(Output(array.shape, dtype) for _ in outs)
    if array.elements == 0:
        return Plan(None, results)
    values = {"rows": rows.rows, "columns": rows.columns, "dtype": dtype,
              "weight": "scale" if scale is not None else "none",
              "residual": "add" if added is not None else "none"}
    if operation == "layernorm":
        values["bias"] = "add" if shift is not None else "none"
    return Plan(_kernel(operation, array.device, values), results)


def _normalise(name: str, operation: str, x: Any, residual: Any, weight: Any, bias: Any, eps: float,
               out: Any) -> Any:
    if residual is None:
        return _call((name, operation), (x, None, weight, bias), (out,), (eps,), _norm_plan)
    return _call((name, operation), (x, residual, weight, bias), _pair(out), (eps,), _norm_plan)


def _pair(out: Any) -> Tuple[Any, Any]:
    """The two outputs that a caller gave as one argument, or neither."""
    if out is None:
        return None, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise make_error(f"out is {type(out).__name__}, and a pair of arrays expected")
    return out[0], out[1]


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, *, residual: Any = None,
             out: Any = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum); `out` is then a
    pair too. Source: the operation rmsnorm."""
    return _normalise("rms_norm", "rmsnorm", x, residual, weight, None, eps, out)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *,
               residual: Any = None, out: Any = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`. Source: the operation layernorm."""
    return _normalise("layer_norm", "layernorm", x, residual, weight, bias, eps, out)


def _gated_plan(x: Any, out: Any, activation: str) -> Plan:
    array = read("x", x)
    rows = contiguous_rows(array)
    if rows.columns % 2 != 0:
        raise make_error(f"x has {rows.columns} columns, and an even number expected: the gate, "
                         "then what it multiplies")
    shape = array.shape[:-1] + (rows.columns // 2,)
    _contiguous_output("out", out, shape, array.dtype)
    result = (Output(shape, array.dtype),)
    if array.elements == 0:
        return Plan(None, result)
    return Plan(_kernel("gated_activation", array.device, {
        "rows": rows.rows, "columns": rows.columns // 2, "dtype": array.dtype,
        "activation": activation, "layout": "packed"}), result)


def _gated(name: str, x: Any, activation: str, out: Any) -> Any:
    return _call((name, activation), (x,), (out,), (), _gated_plan)


def silu_and_mul(x: Any, *, out: Any = None) -> Any:
    """silu(x[..., :n]) * x[..., n:], as FlashInfer's. x: [..., 2 * n] without gaps; bf16, fp16 or
    fp32. Source: the operation gated_activation."""
    return _gated("silu_and_mul", x, "silu", out)


def gelu_and_mul(x: Any, *, approximate: str = "none", out: Any = None) -> Any:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as torch.nn.functional.gelu."""
    activations = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    if approximate not in activations:
        raise make_error(f"approximate is {approximate!r}, and 'none' or 'tanh' expected")
    return _gated("gelu_and_mul", x, activations[approximate], out)


def _softmax_plan(x: Any, mask: Any, out: Any, causal: bool) -> Plan:
    array, added = read("x", x), _read_optional("mask", mask)
    dtype = same_dtype(array, added)
    rows = contiguous_rows(array)
    if causal and len(array.shape) < 2:
        raise make_error("x has 1 dimension, and with causal=True at least 2 expected")
    if added is not None:
        contiguous_rows(has_shape(added, *array.shape))
    _contiguous_output("out", out, array.shape, dtype)
    result = (Output(array.shape, dtype),)
    if array.elements == 0:
        return Plan(None, result)
    kind = "causal" if causal else "additive" if added is not None else None
    return Plan(_kernel("softmax", array.device, {
        "rows": rows.rows, "columns": rows.columns, "dtype": dtype, "mask": kind}), result)


def softmax(x: Any, *, scale: float = 1.0, causal: bool = False, mask: Any = None,
            out: Any = None) -> Any:
    """softmax(scale * x + mask) over the last dimension.

    x: [..., columns] without gaps, bf16, fp16 or fp32; mask: as x, added
    causal: x is [..., queries, keys], and a query does not see keys after its own, which is the
    last for the last query. Source: the operation softmax."""
    if causal and mask is not None:
        raise make_error("causal=True and a mask are given, and one of them expected")
    scalars: Tuple[float, ...] = (scale,)
    if causal:
        scalars = (scale, _size("x", x, -2))
    return _call(("softmax", causal), (x, mask), (out,), scalars, _softmax_plan)


def _reduce_plan(x: Any, out: Any, op: str, dim: Optional[int], out_dtype: Any) -> Plan:
    array = read("x", x)
    rows = contiguous_rows(array)
    if dim not in (-1, None, len(array.shape) - 1):
        raise make_error(f"dim is {dim}, and -1 or None expected: rows are reduced, or all")
    shape = () if dim is None else array.shape[:-1]
    kind = dtype_text(out_dtype) or (array.dtype if out is None else read("out", out).dtype)
    _output("out", out, shape, kind)
    result = (Output(shape, kind),)
    if rows.rows == 0 and dim is not None:
        return Plan(None, result)
    return Plan(_kernel("reduce", array.device, {
        "rows": rows.rows, "columns": rows.columns, "dtype": array.dtype,
        "out": kind if kind != array.dtype else None, "kind": op,
        "over": "tensor" if dim is None else None}), result)


def reduce(x: Any, op: str = "sum", dim: Optional[int] = -1, *, out: Any = None,
           out_dtype: Any = None) -> Any:
    """The sum, largest, mean or sum of squares of x.

    x: without gaps, bf16, fp16 or fp32; op: "sum", "max", "mean" or "sum_squares"
    dim: -1 for the last dimension, None for all. Sums are kept in fp32. Source: the operation
    reduce."""
    return _call(("reduce", op, dim, out_dtype), (x,), (out,), (), _reduce_plan)


def _rope_plan(q: Any, k: Any, cos: Any, sin: Any, q_out: Any, k_out: Any,
               interleaved: bool) -> Plan:
    q_array, k_array = read("q", q), read("k", k)
    dtype = same_dtype(q_array, k_array)
    for array in (q_array, k_array):
        contiguous_rows(array)
        if len(array.shape) < 3:
            raise make_error(f"{array.name} has {len(array.shape)} dimensions, and at least 3 "
                             "expected: tokens, heads and head_dim")
    heads, head_dim = q_array.shape[-2:]
    kv_heads = k_array.shape[-2]
    tokens = q_array.elements // max(heads * head_dim, 1)
    has_shape(k_array, *q_array.shape[:-2], kv_heads, head_dim)
    for name, angles in (("cos", cos), ("sin", sin)):
        contiguous_rows(has_shape(read(name, angles), tokens, head_dim // 2))
    for name, given, wanted in (("out[0]", q_out, q_array), ("out[1]", k_out, k_array)):
        _contiguous_output(name, given, wanted.shape, dtype)
    results = (Output(q_array.shape, dtype), Output(k_array.shape, dtype))
    if q_array.elements == 0:
        return Plan(None, results)
    return Plan(_kernel("rope", q_array.device, {
        "tokens": tokens, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
        "dtype": dtype, "pairs": "neighbours" if interleaved else None}), results)


def rope(q: Any, k: Any, cos: Any, sin: Any, *, interleaved: bool = False,
         out: Optional[Tuple[Any, Any]] = None) -> Tuple[Any, Any]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps, bf16, fp16 or fp32; the
        dimensions before the heads are tokens, equally many in both
    cos, sin: [tokens, head_dim / 2], fp32
    interleaved: pairs are neighbours, else elements head_dim / 2 apart
    Source: the operation rope."""
    rotated: Tuple[Any, Any] = _call(("rope", interleaved), (q, k, cos, sin), _pair(out), (),
                                     _rope_plan)
    return rotated


def _elementwise_plan(x: Any, y: Any, z: Any, w: Any, out: Any, formula: str,
                      out_dtype: Any) -> Plan:
    given = {"x": x, "y": y, "z": z, "w": w}
    arrays = {name: read(name, array) for name, array in given.items() if array is not None}
    if not arrays:
        raise make_error("no array is given, and at least one of x, y, z and w expected")
    first = next(iter(arrays.values()))
    for array in arrays.values():
        contiguous_rows(has_shape(array, *first.shape))
    kind = dtype_text(out_dtype) or (first.dtype if out is None else read("out", out).dtype)
    _contiguous_output("out", out, first.shape, kind)
    result = (Output(first.shape, kind),)
    if first.elements == 0:
        return Plan(None, result)
    dtypes = {f"{name}_dtype" if name != "x" else "dtype": array.dtype
              for name, array in arrays.items()}
    return Plan(_kernel("elementwise", first.device, {
        "n": first.elements, "dtype": first.dtype, **dtypes,
        "out": kind, "formula": formula}), result)


def elementwise(formula: str, *, x: Any = None, y: Any = None, z: Any = None, w: Any = None,
                a: float = 1.0, b: float = 1.0, out: Any = None, out_dtype: Any = None) -> Any:
    """A formula over up to four arrays of one shape, "a*x+silu(y)", in fp32 and in one kernel.

    x, y, z, w: without gaps, bf16, fp16 or fp32; those that the formula names
    a, b: numbers. Source: the operation elementwise, whose README has the functions."""
    try:
        compact = formula.replace(" ", "")
    except (AttributeError, TypeError):
        raise make_error(f"formula is {type(formula).__name__}, and a text expected") from None
    return _call(("elementwise", compact, out_dtype), (x, y, z, w), (out,), (a, b),
                 _elementwise_plan)
