"""Attention."""

from typing import Any, Optional, Tuple

from .._arrays import make_error
from .._call import Form, call, make_function, results_of, size_of

_ATTENTION = Form("attention", (("q", "q"), ("k", "k"), ("v", "v"), ("kv_lengths", "kv_lengths"),
                                ("sinks", "sinks"), ("slopes", "alibi_slopes"), ("seen", "seen"),
                                ("bias", "bias")),
                  (("o", "out"), ("lse", "out[1], the lse,")), ("mask", "window", "lse", ""),
                  ("scale", "cap"))


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: Optional[float] = None,
              window: Optional[int] = None, softcap: Optional[float] = None, sinks: Any = None,
              alibi_slopes: Any = None, kv_lengths: Any = None, seen: Any = None, bias: Any = None,
              causal_first: bool = False, return_lse: bool = False, out: Any = None,
              **more: Any) -> Any:
    """softmax(scale * q @ k.T) @ v for each head, as scaled_dot_product_attention.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim]; v: the same with its
    own head_dim; bf16 or fp16, k and v also fp8_e4m3. Each is contiguous or the transposed view of
    [batch, tokens, heads, head_dim], all alike. kv_heads divides heads.
    causal: the last query sees all keys; window: keys that a query sees, with its own, of those
    softcap: cap * tanh(logit / cap); sinks, alibi_slopes: [heads], fp32
    causal_first: the first query sees the first key alone, the next one more, as PyTorch's is_causal
    kv_lengths: [batch], int32: how many of a sequence's kv_len keys are there
    seen, bias: [batch, heads, q_len, kv_len], of which leading axes may be missing or shared (size 1
        or stride 0): bool, true where a query sees a key; or numbers in fp32 or as q, which are
        added to the logits. A query that sees no key has a result of 0
    return_lse: also the logarithm of the sum, [batch, heads, q_len] in fp32; `out` may be a pair
    Result: as q, with v's head_dim. Source: the operation attention.

    By keyword also what else the operation takes: page_table, for pages [pages, kv_heads, page,
    head_dim], with table_rows, the row of each sequence in a table of more sequences; page_offsets
    and page_list in place of it, with kv_len; q_offsets and kv_offsets of sequences of different
    lengths, with q_len and kv_len, the longest, and q as the transposed view of [all tokens, heads,
    head_dim]; q_descale, k_descale and v_descale, or the numbers q_scale, k_scale and v_scale, of
    fp8; k_new, v_new, cos, sin, q_norm, k_norm and eps of new tokens that are rotated and written to
    the caches; work of attention_schedule; kv_total, layout, pairs, invariant and out_dtype.
    `kernwright operations attention` has their shapes."""
    outs = results_of(out, 2 if return_lse else 1)
    scalars: Tuple[float, ...] = (size_of("q", q, -1) ** -0.5 if scale is None else scale,)
    if softcap is not None:
        scalars += (softcap,)
    mask = "window" if window else "causal" if causal else None
    if causal_first:
        if mask is not None:
            raise make_error(f"causal_first and {mask} are given, and one of them expected")
        same = kv_lengths is None and not more and size_of("q", q, -2) == size_of("k", k, -2)
        mask = "causal" if same else "causal_first"
    tag = "attention", mask, window, "natural" if return_lse else None, len(scalars)
    if not more:
        return call(_ATTENTION, tag, (q, k, v, kv_lengths, sinks, alibi_slopes, seen, bias), outs,
                    scalars)
    return make_function("attention")(
        q, k, v, kv_lengths=kv_lengths, sinks=sinks, alibi_slopes=alibi_slopes, seen=seen, bias=bias,
        mask=mask, window=window, lse=tag[3], scale=scalars[0], cap=softcap, out=out, **more)
