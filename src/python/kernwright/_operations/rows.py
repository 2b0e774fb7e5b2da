"""Norms, activations, softmax, reductions, rotary embedding and formulas."""

from typing import Any, Optional, Tuple

from .._arrays import make_error
from .._call import Form, call, size_of

_NORMS = {operation: Form(operation, (("x", "x"), ("r", "residual"), ("w", "weight"), ("b", "bias")),
                          (("y", "out"), ("sum", "out[1], the sum,")), scalars=("eps",))
          for operation in ("rmsnorm", "layernorm")}


def _normalise(name: str, operation: str, x: Any, residual: Any, weight: Any, bias: Any, eps: float,
               out: Any) -> Any:
    outs = (out,) if residual is None else _pair(out)
    return call(_NORMS[operation], (name,), (x, residual, weight, bias), outs, (eps,))


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


_GATED = Form("gated_activation", (("x", "x"),), (("y", "out"),), ("activation",))


def silu_and_mul(x: Any, *, out: Any = None) -> Any:
    """silu(x[..., :n]) * x[..., n:], as FlashInfer's. x: [..., 2 * n] without gaps; bf16, fp16 or
    fp32. Source: the operation gated_activation."""
    return call(_GATED, ("silu_and_mul", "silu"), (x,), (out,))


def gelu_and_mul(x: Any, *, approximate: str = "none", out: Any = None) -> Any:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as torch.nn.functional.gelu."""
    activations = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    if approximate not in activations:
        raise make_error(f"approximate is {approximate!r}, and 'none' or 'tanh' expected")
    return call(_GATED, ("gelu_and_mul", activations[approximate]), (x,), (out,))


_SOFTMAX = Form("softmax", (("x", "x"), ("bias", "mask")), (("y", "out"),), ("mask",),
                ("scale", "queries"))


def softmax(x: Any, *, scale: float = 1.0, causal: bool = False, mask: Any = None,
            out: Any = None) -> Any:
    """softmax(scale * x + mask) over the last dimension.

    x: [..., columns] without gaps, bf16, fp16 or fp32; mask: as x, added
    causal: x is [..., queries, keys], and a query does not see keys after its own, which is the
    last for the last query. Source: the operation softmax."""
    if causal and mask is not None:
        raise make_error("causal=True and a mask are given, and one of them expected")
    scalars: Tuple[float, ...] = (scale, size_of("x", x, -2)) if causal else (scale,)
    return call(_SOFTMAX, ("softmax", "causal" if causal else None), (x, mask), (out,), scalars)


_REDUCE = Form("reduce", (("x", "x"),), (("y", "out"),), ("kind", "over", "out"))


def reduce(x: Any, op: str = "sum", dim: Optional[int] = -1, *, out: Any = None,
           out_dtype: Any = None) -> Any:
    """The sum, largest, mean or sum of squares of x.

    x: without gaps, bf16, fp16 or fp32; op: "sum", "max", "mean" or "sum_squares"
    dim: -1 for the last dimension, None for all. Sums are kept in fp32. Source: the operation
    reduce."""
    if dim not in (-1, None) and dim != len(getattr(x, "shape", ())) - 1:
        raise make_error(f"dim is {dim}, and -1 or None expected: rows are reduced, or all")
    return call(_REDUCE, ("reduce", op, "tensor" if dim is None else "row", out_dtype), (x,), (out,))


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
                                    (q, k, cos, sin), _pair(out))
    return rotated


_ELEMENTWISE = Form("elementwise", tuple((name, name) for name in "xyzw"), (("r", "out"),),
                    ("formula", "out"), ("a", "b"))


def elementwise(formula: str, *, x: Any = None, y: Any = None, z: Any = None, w: Any = None,
                a: float = 1.0, b: float = 1.0, out: Any = None, out_dtype: Any = None) -> Any:
    """A formula over up to four arrays of one shape, "a*x+silu(y)", in fp32 and in one kernel.

    x, y, z, w: without gaps, bf16, fp16 or fp32; those that the formula names
    a, b: numbers. Source: the operation elementwise, whose README has the functions."""
    try:
        compact = formula.replace(" ", "")
    except (AttributeError, TypeError):
        raise make_error(f"formula is {type(formula).__name__}, and a text expected") from None
    if x is None and y is None and z is None and w is None:
        raise make_error("no array is given, and at least one of x, y, z and w expected")
    return call(_ELEMENTWISE, ("elementwise", compact, out_dtype), (x, y, z, w), (out,), (a, b))
