"""Norms, activations, softmax, reductions, rotary embedding and formulas."""

from typing import Any, Optional, Tuple

from .._arrays import make_error
from .._call import Form, Given, call, moved_last, size_of

_NORMS = {operation: Form(
    operation, (("x", "x"), ("r", "residual"), ("w", "weight"), ("b", "bias"),
                ("given_scale", "scale")),
    (("y", "out"), ("y_scale", "out[1], the scales,"), ("sum", "out[-1], the sum,")),
    ("quantize", "out"), ("eps",)) for operation in ("rmsnorm", "layernorm")}


def _normalise(name: str, operation: str, x: Any, residual: Any, weight: Any, bias: Any, eps: float,
               quantize: Optional[str], scale: Any, out: Any, out_dtype: Any) -> Any:
    results = _results_of(out, quantize, residual is not None)
    return call(_NORMS[operation], (name, quantize, _codes(quantize, out, out_dtype)),
                (x, residual, weight, bias, scale), results, (eps,))


def _codes(quantize: Optional[str], out: Any, out_dtype: Any) -> Any:
    """The dtype of a new result."""
    return "int8" if quantize and out is None and out_dtype is None else out_dtype


def _results_of(out: Any, quantize: Optional[str], adds: bool = False) -> Tuple[Any, ...]:
    """The outputs that a caller gave as one argument: the result, its scales if they are found, and
    the sum."""
    scales = quantize in ("row", "block")
    results = list(_several(out, 1 + scales + adds))
    if adds and not scales:
        results.insert(1, None)
    return tuple(results)


def _several(out: Any, count: int) -> Tuple[Any, ...]:
    """The outputs that a caller gave as one argument, or none of them."""
    if count == 1:
        return (out,)
    if out is None:
        return (None,) * count
    if not isinstance(out, (tuple, list)) or len(out) != count:
        raise make_error(f"out is {type(out).__name__}, and {'a pair of' if count == 2 else 'three'} "
                         "arrays expected")
    return tuple(out)


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, *, residual: Any = None,
             quantize: Optional[str] = None, scale: Any = None, out: Any = None,
             out_dtype: Any = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum); `out` is then a
        pair too
    quantize: "row" or "block": the result is rounded to 8 bits, as `quantize_rows` does it, but
        from fp32. Instead of it (codes, scales) is returned, before a sum; scales: fp32 [1, rows],
        or [columns / 128, rows], rounded up. Or "tensor": codes by `scale`, fp32 [1], alone
    out_dtype: the dtype of a new result, by default x's; of codes int8, or fp8_e4m3
    Source: the operation rmsnorm."""
    return _normalise("rms_norm", "rmsnorm", x, residual, weight, None, eps, quantize, scale, out,
                      out_dtype)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *,
               residual: Any = None, quantize: Optional[str] = None, scale: Any = None,
               out: Any = None, out_dtype: Any = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`. Source: the operation layernorm."""
    return _normalise("layer_norm", "layernorm", x, residual, weight, bias, eps, quantize, scale,
                      out, out_dtype)


_GATED = Form("gated_activation", (("x", "x"), ("given_scale", "scale")),
              (("y", "out"), ("y_scale", "out[1], the scales,")), ("activation", "quantize", "out"))


def _gate(name: str, activation: str, x: Any, quantize: Optional[str], scale: Any, out: Any,
          out_dtype: Any) -> Any:
    return call(_GATED, (name, activation, quantize, _codes(quantize, out, out_dtype)), (x, scale),
                _results_of(out, quantize))


def silu_and_mul(x: Any, *, quantize: Optional[str] = None, scale: Any = None, out: Any = None,
                 out_dtype: Any = None) -> Any:
    """silu(x[..., :n]) * x[..., n:], as FlashInfer's. x: [..., 2 * n] without gaps; bf16, fp16 or
    fp32; the rest as in `rms_norm`. Source: the operation gated_activation."""
    return _gate("silu_and_mul", "silu", x, quantize, scale, out, out_dtype)


def gelu_and_mul(x: Any, *, approximate: str = "none", quantize: Optional[str] = None,
                 scale: Any = None, out: Any = None, out_dtype: Any = None) -> Any:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as torch.nn.functional.gelu;
    the rest as in `silu_and_mul`."""
    activations = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    if approximate not in activations:
        raise make_error(f"approximate is {approximate!r}, and 'none' or 'tanh' expected")
    return _gate("gelu_and_mul", activations[approximate], x, quantize, scale, out, out_dtype)


def _settle_dim(given: Given) -> None:
    """Brings the axis of a softmax to the end. Results lie as x does."""
    dim = given.options.pop("_dim")
    if dim == -1:
        return
    for name, array in given.arrays.items():
        order = list(range(len(array.shape)))
        axis = moved_last(array, dim)[-1]
        order[axis], order[-1] = order[-1], axis
        given.orders[name] = tuple(order)
        given.swaps["y"] = axis, order[axis]


_SOFTMAX = Form("softmax", (("x", "x"), ("bias", "mask")), (("y", "out"),), ("mask", "_dim"),
                ("scale", "queries"), settle=_settle_dim)


def softmax(x: Any, dim: int = -1, *, scale: float = 1.0, causal: bool = False, mask: Any = None,
            out: Any = None) -> Any:
    """softmax(scale * x + mask) over a dimension.

    x: [..., columns] without gaps, bf16, fp16 or fp32; mask: as x, added
    dim: the last dimension, or one with which it is exchanged in x, mask and out, as in a
        transposed view
    causal: x is [..., queries, keys], and a query does not see keys after its own, which is the
    last for the last query. Source: the operation softmax."""
    if causal and (mask is not None or dim != -1):
        raise make_error("causal=True and a mask or a dim are given, and one of them expected")
    scalars: Tuple[float, ...] = (scale, size_of("x", x, -2)) if causal else (scale,)
    return call(_SOFTMAX, ("softmax", "causal" if causal else None, dim), (x, mask), (out,),
                scalars)


def _settle_reduced(given: Given) -> None:
    """Brings the axis that is reduced to the end, and takes it out of the result, or keeps it there
    with size 1."""
    dim, keeps = given.options.pop("_dim", None), given.options.pop("_keepdim")
    x = given.arrays["x"]
    kept = [1] * len(x.shape)
    if dim is not None:
        given.orders["x"] = moved_last(x, dim)
        kept = list(x.shape)
        kept[dim] = 1
    if not keeps:
        return
    given.results["y"] = tuple(kept)
    out = given.arrays.get("y")
    if out is not None and out.strides is not None and out.shape == tuple(kept):
        axes = [(size, stride) for i, (size, stride) in enumerate(zip(out.shape, out.strides))
                if dim is not None and i != dim % len(kept)]
        given.arrays["y"] = out._replace(shape=tuple(size for size, _ in axes),
                                         strides=tuple(stride for _, stride in axes))


_REDUCE = Form("reduce", (("x", "x"),), (("y", "out"),),
               ("kind", "over", "out", "_dim", "_keepdim"), settle=_settle_reduced)


def reduce(x: Any, op: str = "sum", dim: Optional[int] = -1, keepdim: bool = False, *,
           out: Any = None, out_dtype: Any = None) -> Any:
    """The sum, largest, mean or sum of squares of x.

    x: without gaps, bf16, fp16 or fp32; op: "sum", "max", "mean" or "sum_squares"
    dim: -1 for the last dimension, or another one that is the last in memory, as that of a
        transposed view; None for all. Sums are kept in fp32.
    keepdim: what is reduced stays as dimensions of size 1. Source: the operation reduce."""
    over = "tensor" if dim is None else "row"
    return call(_REDUCE, ("reduce", op, over, out_dtype, dim, keepdim), (x,), (out,))


_ROPE = Form("rope", (("q", "q"), ("k", "k"), ("cosine", "cos"), ("sine", "sin")),
             (("q_out", "out[0]"), ("k_out", "out[1]")), ("pairs",))


def rope(q: Any, k: Any, cos: Any, sin: Any, *, interleaved: bool = False,
         out: Optional[Tuple[Any, Any]] = None) -> Tuple[Any, Any]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps, bf16, fp16 or fp32; the
        dimensions before the heads are tokens, equally many in both
    cos, sin: [tokens, head_dim / 2], fp32
    interleaved: pairs are neighbours, else elements head_dim / 2 apart
    Source: the operation rope."""
    rotated: Tuple[Any, Any] = call(_ROPE, ("rope", "neighbours" if interleaved else None),
                                    (q, k, cos, sin), _several(out, 2))
    return rotated


def _settle_broadcast(given: Given) -> None:
    """Gives all arrays as many dimensions as the one that has most, by sizes of 1 in front."""
    count = max(len(array.shape) for array in given.arrays.values())
    whole = [1] * count
    for name, array in given.arrays.items():
        missing = count - len(array.shape)
        given.arrays[name] = array._replace(
            shape=(1,) * missing + array.shape,
            strides=array.strides and (0,) * missing + array.strides)
        whole = [max(pair) for pair in zip(whole, given.arrays[name].shape)]
    for array in given.arrays.values():
        if all(size in (1, most) for size, most in zip(array.shape, whole)):
            if array.shape != tuple(whole):
                raise make_error(f"{array.name} has the shape {list(array.shape)}, and {whole} "
                                 "expected: no kernel repeats the elements of an array")


_ELEMENTWISE = Form("elementwise", tuple((name, name) for name in "xyzw"), (("r", "out"),),
                    ("formula", "out"), ("a", "b"), settle=_settle_broadcast)


def elementwise(formula: str, *, x: Any = None, y: Any = None, z: Any = None, w: Any = None,
                a: float = 1.0, b: float = 1.0, out: Any = None, out_dtype: Any = None) -> Any:
    """A formula over up to four arrays of one shape, "a*x+silu(y)", in fp32 and in one kernel.

    x, y, z, w: without gaps, bf16, fp16 or fp32; those that the formula names. They are broadcast
        if no element is repeated: dimensions of size 1 may be missing in front
    a, b: numbers. Source: the operation elementwise, whose README has the functions."""
    try:
        compact = formula.replace(" ", "")
    except (AttributeError, TypeError):
        raise make_error(f"formula is {type(formula).__name__}, and a text expected") from None
    if x is None and y is None and z is None and w is None:
        raise make_error("no array is given, and at least one of x, y, z and w expected")
    return call(_ELEMENTWISE, ("elementwise", compact, out_dtype), (x, y, z, w), (out,), (a, b))
