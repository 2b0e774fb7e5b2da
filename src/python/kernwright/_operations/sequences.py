"""Attention."""

from typing import Any, Optional, Tuple

from .._arrays import make_error
from .._call import Form, call, results_of, scalars_of, size_of

_ATTENTION = Form("attention", (("q", "q"), ("k", "k"), ("v", "v"), ("kv_lengths", "kv_lengths"),
                                ("sinks", "sinks"), ("slopes", "alibi_slopes")),
                  (("o", "out"), ("lse", "out[1], the lse,")), ("mask", "window", "lse", ""),
                  ("scale", "cap"))

# The same with what few calls have.
_ARRAYS = {"q": "q", "k": "k", "v": "v", "k_new": "k_new", "v_new": "v_new", "q_norm": "q_norm",
           "k_norm": "k_norm", "cosine": "cos", "sine": "sin", "q_offsets": "q_offsets",
           "kv_offsets": "kv_offsets", "kv_lengths": "kv_lengths", "page_table": "page_table",
           "sinks": "sinks", "slopes": "alibi_slopes", "q_descale": "q_descale",
           "k_descale": "k_descale", "v_descale": "v_descale", "work": "work"}
_OPTIONS = {"q_len": "q_len", "kv_len": "kv_len", "kv_total": "kv_total", "layout": "layout",
            "pairs": "pairs", "invariant": "invariant", "out_dtype": "out"}
_SCALARS = ("q_scale", "k_scale", "v_scale", "eps")
_FULL = _ATTENTION._replace(inputs=tuple(_ARRAYS.items()),
                            options=(*_ATTENTION.options, *_OPTIONS.values()))


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: Optional[float] = None,
              window: Optional[int] = None, softcap: Optional[float] = None, sinks: Any = None,
              alibi_slopes: Any = None, kv_lengths: Any = None, return_lse: bool = False,
              out: Any = None, **more: Any) -> Any:
    """softmax(scale * q @ k.T) @ v for each head, as scaled_dot_product_attention.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim]; v: the same with its
    own head_dim; bf16 or fp16, k and v also fp8_e4m3. Each is contiguous or the transposed view of
    [batch, tokens, heads, head_dim], all alike. kv_heads divides heads.
    causal: the last query sees all keys; window: keys that a query sees, with its own, of those
    softcap: cap * tanh(logit / cap); sinks, alibi_slopes: [heads], fp32
    kv_lengths: [batch], int32: how many of a sequence's kv_len keys are there
    return_lse: also the logarithm of the sum, [batch, heads, q_len] in fp32; `out` may be a pair
    Result: as q, with v's head_dim. Source: the operation attention.

    By keyword also, of the operation:
    page_table: [batch, pages of a sequence], int32; k and v are then [pages, kv_heads, page,
        head_dim], and kv_lengths is needed
    q_offsets, kv_offsets: [batch + 1], int32: where sequences of different lengths begin; q is then
        [heads, all tokens, head_dim], the transposed view of [all tokens, heads, head_dim], and so
        are k and v without a page_table; q_len, and kv_len without a page_table, are the longest
    q_descale, k_descale, v_descale: [batch, kv_heads], fp32, of fp8; or q_scale, k_scale, v_scale:
        numbers
    k_new, v_new: [batch, kv_heads, 1, head_dim]; cos, sin: [kv_len, head_dim / 2], fp32; q_norm,
        k_norm: [head_dim], with eps: a new token of each sequence, rotated and written to the caches
    work: [slots, 8], int32, from attention_schedule
    kv_total: all keys together, for the choice of a kernel; layout: "bshd" or "bhsd"; pairs:
        "halves" or "neighbours"; invariant: "batch" if results do not depend on the batch; out_dtype"""
    outs = results_of(out, 2 if return_lse else 1)
    scalars: Tuple[float, ...] = (size_of("q", q, -1) ** -0.5 if scale is None else scale,)
    if softcap is not None:
        scalars += (softcap,)
    tag = ("attention", "window" if window else "causal" if causal else None, window,
           "natural" if return_lse else None, len(scalars))
    if not more:
        return call(_ATTENTION, tag, (q, k, v, kv_lengths, sinks, alibi_slopes), outs, scalars)
    for name in more:
        if name not in _ARRAYS.values() and name not in _OPTIONS and name not in _SCALARS:
            raise make_error(f"attention has no argument {name}")
    arrays = {"q": q, "k": k, "v": v, "kv_lengths": kv_lengths, "sinks": sinks,
              "alibi_slopes": alibi_slopes, **more}
    names, numbers = scalars_of({name: more.get(name) for name in _SCALARS})
    names = (*_ATTENTION.scalars[:len(scalars)], *names)
    return call(_FULL, (*tag[:-1], names, *(more.get(name) for name in _OPTIONS)),
                tuple(arrays.get(name) for name in _ARRAYS.values()), outs,
                (*scalars, *numbers), names)
