"""The fused parts of decode steps and prefills, on arrays. kernwright has these as flags of its
operations; they are not operations of the package's API, which has torch.nn.functional's."""

from typing import Any, Dict, Optional, Sequence, Tuple

from .._arrays import (Array, contiguous_rows, has_shape, make_error, read, read_stack, rows_of,
                       same_dtype)
from .._call import Form, Output, Plan, call, call_planned
from .._service import Kernel, active


_SILU_MUL = Form("gated_activation", (("gate", "gate"), ("up", "up")), (("y", "out"),))


def silu_mul(gate: Any, up: Any) -> Any:
    """silu(gate) * up. Source: gated_activation with layout=separate."""
    return call(_SILU_MUL, ("silu_mul",), (gate, up), (None,))


def _kernel(operation: str, device: int, values: Dict[str, Any]) -> Kernel:
    words = [f"{name}={value}" for name, value in values.items() if value is not None]
    return active().kernel_on(device, " ".join([operation, *words]))


def _read_optional(name: str, array: Any) -> Optional[Array]:
    return None if array is None else read(name, array)


def _expect_rows(weight: Any, names: Sequence[str], rows: Sequence[Optional[int]]) -> None:
    """Returns true if each member of a tuple has that many rows, or as many as the first if
    None."""
    if not isinstance(weight, tuple):
        return
    first = weight[0].shape[0]
    for name, array, wanted in zip(names, weight, rows):
        if array.shape[0] != (first if wanted is None else wanted):
            raise make_error(f"weight has {array.shape[0]} rows of {name}, and "
                             f"{first if wanted is None else wanted} expected")


def _gated_linear_plan(x: Any, weight: Any, norm_weight: Any, _: Any, activation: str) -> Plan:
    array, matrix = read("x", x), read_stack("weight", weight)
    dtype = same_dtype(array, matrix, _read_optional("norm_weight", norm_weight))
    _expect_rows(weight, ("gate", "up"), (None, None))
    a, b = rows_of(array), contiguous_rows(matrix)
    has_shape(matrix, b.rows, a.columns)
    result = (Output(array.shape[:-1] + (b.rows // 2,), dtype),)
    if a.rows == 0:
        return Plan(None, result)
    return Plan(_kernel("matmul", array.device, {
        "m": a.rows, "n": b.rows // 2, "k": a.columns,
        "lda": a.pitch if a.pitch != a.columns else None, "dtype": dtype,
        "norm": None if norm_weight is None else "rms",
        "activation": activation, "gate": "stacked"}), result)


def gated_linear(x: Any, weight: Any, norm_weight: Any, activation: str, eps: float) -> Any:
    """gated_linear, with x normalised if there is norm_weight. `weight` may be (gate, up); returns
    NotImplemented if these are apart. Source: matmul with gate=stacked, and norm=rms."""
    return call_planned(("gated_linear", activation), (x, weight, norm_weight), (None,),
                 () if norm_weight is None else (eps,), _gated_linear_plan, stacks=True)


def _qkv_linear_plan(x: Any, weight: Any, norm_weight: Any, bias: Any, *outs_and_heads: Any) -> Plan:
    kv_heads, head_dim = outs_and_heads[-2:]
    array, matrix = read("x", x), read_stack("weight", weight)
    dtype = same_dtype(array, matrix, _read_optional("norm_weight", norm_weight),
                       None if bias is None else read_stack("bias", bias))
    _expect_rows(weight, ("q", "k", "v"), (None, *[kv_heads * head_dim] * 2))
    a, b = rows_of(array), contiguous_rows(matrix)
    has_shape(matrix, b.rows, a.columns)
    heads = b.rows // head_dim - 2 * kv_heads
    if heads < 1 or b.rows % head_dim != 0:
        raise make_error(f"weight has {b.rows} rows, and those of q, and 2 * {kv_heads} heads of "
                         f"{head_dim} expected")
    results = tuple(Output((*array.shape[:-1], count, head_dim), dtype)
                    for count in (heads, kv_heads, kv_heads))
    if a.rows == 0:
        return Plan(None, results)
    return Plan(_kernel("matmul", array.device, {
        "m": a.rows, "n": b.rows, "k": a.columns, "n_kv": kv_heads * head_dim,
        "lda": a.pitch if a.pitch != a.columns else None, "dtype": dtype,
        "norm": None if norm_weight is None else "rms", "split": "qkv",
        "bias": None if bias is None else "column"}), results)


def qkv_linear(x: Any, weight: Any, bias: Any, norm_weight: Any, kv_heads: int, head_dim: int,
               eps: float) -> Tuple[Any, Any, Any]:
    """A product whose columns go to q, k and v. `weight` may be a tuple of the weights of q, k and
    v, and so may `bias`; returns NotImplemented if these are apart. Source: matmul with
    split=qkv."""
    return call_planned(("qkv_linear", kv_heads, head_dim), (x, weight, norm_weight, bias),
                 (None, None, None), () if norm_weight is None else (eps,), _qkv_linear_plan,
                 stacks=True)


def _norm_rope_plan(q: Any, k: Any, v: Any, q_norm: Any, k_norm: Any, cos: Any, sin: Any,
                    *_: Any) -> Plan:
    query, key, value = read("q", q), read("k", k), read("v", v)
    scales = read("q_norm", q_norm), read("k_norm", k_norm)
    dtype = same_dtype(query, key, value, *scales)
    for array in (query, key, value):
        if len(array.shape) != 4:
            raise make_error(f"{array.name} has {len(array.shape)} dimensions, and 4 expected: "
                             "batch, tokens, heads and head_dim")
        contiguous_rows(array)
    batch, tokens, heads, head_dim = query.shape
    kv_heads, head_dim_v = value.shape[2:]
    has_shape(key, batch, tokens, kv_heads, head_dim)
    has_shape(value, batch, tokens, kv_heads, head_dim_v)
    for scale in scales:
        contiguous_rows(has_shape(scale, head_dim))
    for name, angles in (("cos", cos), ("sin", sin)):
        contiguous_rows(has_shape(read(name, angles), tokens, head_dim // 2))
    results = tuple(Output(array.shape, dtype) for array in (query, key, value))
    if query.elements == 0:
        return Plan(None, results)
    return Plan(_kernel("kv_append", query.device, {
        "batch": batch, "kv_heads": kv_heads, "heads": heads, "q_len": tokens, "kv_len": tokens,
        "head_dim": head_dim, "head_dim_v": head_dim_v if head_dim_v != head_dim else None,
        "dtype": dtype, "rope": "qk", "norm": "rms"}), results)


def norm_rope(q: Any, k: Any, v: Any, q_norm: Any, k_norm: Any, cos: Any, sin: Any, *,
              eps: float = 1e-6) -> Tuple[Any, Any, Any]:
    """q and k with their heads normalised and rotated, and v. Source: kv_append with rope=qk and
    norm=rms, for sequences that begin with these tokens; their cache is the result."""
    return call_planned(("norm_rope",), (q, k, v, q_norm, k_norm, cos, sin), (None, None, None), (eps,),
                 _norm_rope_plan)


def _append_attention_plan(q: Any, k: Any, v: Any, k_new: Any, v_new: Any, q_norm: Any,
                           *_: Any) -> Plan:
    query, keys = read("q", q), read("k", k)
    dtype = same_dtype(query, keys, read("v", v), read("k_new", k_new), read("v_new", v_new))
    if len(keys.shape) != 4:
        raise make_error(f"k has {len(keys.shape)} dimensions, and 4 expected: batch, kv_heads, "
                         "tokens and head_dim")
    batch, kv_heads, tokens, head_dim = keys.shape
    heads = query.shape[-2]
    has_shape(query, *query.shape[:-2], heads, head_dim)
    if query.elements != batch * heads * head_dim:
        raise make_error(f"q has the shape {query.shape}, and one token of each of the {batch} "
                         "sequences of the cache expected")
    return Plan(_kernel("attention", query.device, {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "q_len": 1, "kv_len": tokens,
        "head_dim": head_dim, "dtype": dtype, "layout": "bhsd", "lengths": "kv",
        "append": "rope" if q_norm is None else "norm_rope"}), (Output(query.shape, dtype),))


def append_attention(q: Any, k: Any, v: Any, k_new: Any, v_new: Any, kv_lengths: Any, cos: Any,
                     sin: Any, q_norm: Any = None, k_norm: Any = None, *,
                     scale: Optional[float] = None, eps: float = 1e-6) -> Any:
    """A decode step of attention over a cache [batch, kv_heads, tokens, head_dim]. Source: attention
    with append=rope or norm_rope."""
    scalars = (k.shape[-1] ** -0.5 if scale is None else scale,)
    return call_planned(("append_attention",),
                 (q, k, v, k_new, v_new, q_norm, k_norm, cos, sin, kv_lengths), (None,),
                 scalars if q_norm is None else (*scalars, eps), _append_attention_plan)
