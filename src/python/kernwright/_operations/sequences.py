"""Attention."""

from typing import Any, List, NamedTuple, Optional, Tuple

from .._arrays import Array, View, has_shape, make_error, read, rows_of, same_dtype
from .._kernwright import Error
from .plan import Output, Plan, _call, _kernel, _size, _output


class _Heads(NamedTuple):
    """A tensor of attention as its operation has it."""
    batch: int
    heads: int
    tokens: int
    head_dim: int
    pitch: int


def _heads(array: Array, layout: str) -> Optional[_Heads]:
    """Returns a tensor [batch, heads, tokens, head_dim], as torch's attention takes it, if it has
    this layout: contiguous (bhsd), or the transposed view of [batch, tokens, heads, head_dim]
    (bshd). Tokens may be further apart. Returns None if it does not have it."""
    batch, heads, tokens, head_dim = array.shape
    rows = array
    if layout == "bshd":
        batch_stride, head_stride, token_stride, last = array.strides
        if heads > 1 and head_stride != head_dim:
            return None
        rows = array._replace(shape=(batch, tokens, heads * head_dim),
                              strides=(batch_stride, token_stride, last))
    try:
        pitch = rows_of(rows).pitch
    except Error:
        return None
    return _Heads(batch, heads, tokens, head_dim, pitch) if pitch >= rows.shape[-1] else None


def _layout(*arrays: Array) -> Tuple[str, List[_Heads]]:
    """Returns the layout that all of the arrays have, and the arrays in it."""
    for array in arrays:
        if len(array.shape) != 4:
            raise make_error(f"{array.name} has {len(array.shape)} dimensions, and 4 expected: "
                             "batch, heads, tokens and head_dim")
    for layout in ("bhsd", "bshd"):
        lying = [heads for array in arrays if (heads := _heads(array, layout))]
        if len(lying) == len(arrays):
            return layout, lying
    given = "; ".join(f"{array.name}: shape {array.shape}, strides {array.strides}"
                      for array in arrays)
    raise make_error("all contiguous, or all the transposed view of [batch, tokens, heads, "
                     f"head_dim] expected, and given {given}")


def _attention_plan(q: Any, k: Any, v: Any, kv_lengths: Any, sinks: Any, alibi_slopes: Any,
                    out: Any, *lse_and_flags: Any) -> Plan:
    *lse, causal, window, softcap = lse_and_flags
    return_lse = bool(lse)
    q_array, k_array, v_array = read("q", q), read("k", k), read("v", v)
    dtype = same_dtype(q_array, k_array, v_array)
    given = None if out is None else read("out", out)
    arrays = [q_array, k_array, v_array] + ([] if given is None else [given])
    layout, (queries, keys, values, *results_as) = _layout(*arrays)
    has_shape(k_array, queries.batch, keys.heads, keys.tokens, queries.head_dim)
    has_shape(v_array, queries.batch, keys.heads, keys.tokens, values.head_dim)
    shape = (queries.batch, queries.heads, queries.tokens, values.head_dim)
    _output("out", out, shape, dtype)
    pitch = results_as[0].pitch if results_as else None
    results = [Output(shape, dtype)]
    if layout == "bshd":
        batch, heads, tokens, head_dim = shape
        results = [Output((batch, tokens, heads, head_dim), dtype, (1, 2))]
    if return_lse:
        results.append(Output(shape[:3], "fp32"))
    if 0 in shape:
        return Plan(None, tuple(results))
    per_head = queries.heads if layout == "bshd" else 1
    natural = {"ldq": per_head * queries.head_dim, "ldo": per_head * values.head_dim,
               "ldk": (keys.heads if layout == "bshd" else 1) * keys.head_dim,
               "ldv": (keys.heads if layout == "bshd" else 1) * values.head_dim}
    pitches = {"ldq": queries.pitch, "ldk": keys.pitch, "ldv": values.pitch, "ldo": pitch}
    return Plan(_kernel("attention", q_array.device, {
        "batch": queries.batch, "heads": queries.heads, "kv_heads": keys.heads,
        "q_len": queries.tokens, "kv_len": keys.tokens, "head_dim": queries.head_dim,
        "head_dim_v": values.head_dim if values.head_dim != queries.head_dim else None,
        "window": window, "dtype": dtype, "layout": layout,
        "mask": "window" if window else "causal" if causal else None,
        "softcap": "tanh" if softcap else None,
        "bias": "alibi" if alibi_slopes is not None else None,
        "sink": "head" if sinks is not None else None,
        "lengths": "kv" if kv_lengths is not None else None,
        "lse": "natural" if return_lse else None,
        **{name: value for name, value in pitches.items()
           if value is not None and value != natural[name]}},
        {name: View((0, 2, 1, 3)) for name in "qkvo"} if layout == "bshd" else {},
        read_only=("k", "v")), tuple(results))


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: Optional[float] = None,
              window: Optional[int] = None, softcap: Optional[float] = None, sinks: Any = None,
              alibi_slopes: Any = None, kv_lengths: Any = None, return_lse: bool = False,
              out: Any = None) -> Any:
    """softmax(scale * q @ k.T) @ v for each head, as scaled_dot_product_attention.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim]; v: the same with its
    own head_dim; bf16 or fp16. Each is contiguous or the transposed view of [batch, tokens, heads,
    head_dim], all alike. kv_heads divides heads.
    causal: the last query sees all keys; window: keys that a query sees, with its own, of those
    softcap: cap * tanh(logit / cap); sinks, alibi_slopes: [heads], fp32
    kv_lengths: [batch], int32: how many of a sequence's kv_len keys are there
    return_lse: also the logarithm of the sum, [batch, heads, q_len] in fp32
    Result: as q, with v's head_dim. Source: the operation attention."""
    outs = (out, None) if return_lse else (out,)
    scalars: Tuple[float, ...] = (_size("q", q, -1) ** -0.5 if scale is None else scale,)
    if softcap is not None:
        scalars += (softcap,)
    flags = (causal, window, softcap is not None)
    return _call(("attention",) + flags, (q, k, v, kv_lengths, sinks, alibi_slopes), outs, scalars,
                 _attention_plan)
