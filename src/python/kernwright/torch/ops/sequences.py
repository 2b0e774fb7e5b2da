"""Attention."""

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ... import _operations as _arrays
from ..._arrays import make_error
from .. import _fused
from . import plain
from .define import _direct, _new, _operator

def _attention_result(q: Tensor, v: Tensor) -> Tensor:
    """Returns a tensor for the result, with the layout of q: as [batch, heads, tokens, head_dim],
    or as the transposed view of [batch, tokens, heads, head_dim]."""
    batch, heads, tokens, _ = q.shape
    if q.stride(1) < q.stride(2):
        return _new(q, (batch, tokens, heads, v.shape[-1])).transpose(1, 2)
    return _new(q, (batch, heads, tokens, v.shape[-1]))


def _our_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor] = None,
                   alibi_slopes: Optional[Tensor] = None, kv_lengths: Optional[Tensor] = None,
                   seen: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                   **named: Any) -> Any:
    out = _attention_result(q, v) if q.dim() == 4 else None
    return _arrays.attention(q, k, v, sinks=sinks, alibi_slopes=alibi_slopes,
                             kv_lengths=kv_lengths, seen=seen, bias=bias, out=out, **named)


_ATTENTION = ("(Tensor q, Tensor k, Tensor v, Tensor? sinks=None, Tensor? alibi_slopes=None, "
              "Tensor? kv_lengths=None, Tensor? seen=None, Tensor? bias=None, *, "
              "bool causal=False, float? scale=None, int? window=None, float? softcap=None, "
              "bool causal_first=False)")
_attention = _operator(f"attention{_ATTENTION} -> Tensor", _our_attention, plain.attention,
                       lambda q, k, v, *_, **named: _attention_result(q, v))
_operator(f"attention_lse{_ATTENTION} -> (Tensor, Tensor)",
          lambda *given, **named: _our_attention(*given, **named, return_lse=True),
          lambda *given, **named: plain.attention(*given, **named, return_lse=True),
          lambda q, k, v, *_, **named: (_attention_result(q, v),
                                        _new(q, q.shape[:3], torch.float32)))


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False,
              scale: Optional[float] = None, window: Optional[int] = None,
              softcap: Optional[float] = None, sinks: Optional[Tensor] = None,
              alibi_slopes: Optional[Tensor] = None, kv_lengths: Optional[Tensor] = None,
              seen: Optional[Tensor] = None, bias: Optional[Tensor] = None,
              causal_first: bool = False, return_lse: bool = False) -> Any:
    """kernwright.attention of contiguous sequences. The result has the layout of q."""
    tensors = q, k, v, sinks, alibi_slopes, kv_lengths, seen, bias
    if _direct(*tensors):
        return _attention(*tensors, causal=causal, scale=scale, window=window, softcap=softcap,
                          causal_first=causal_first, return_lse=return_lse)
    operator = torch.ops.kernwright.attention_lse if return_lse else torch.ops.kernwright.attention
    return operator(*tensors, causal=causal, scale=scale, window=window, softcap=softcap,
                    causal_first=causal_first)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention. Queries, keys, values and masks may share
    entries along leading axes. A query that sees no key has a result of 0, also if its mask is the
    lowest bf16 or fp32 everywhere; PyTorch's is then the mean of all values. Errors: Error for
    dropout, for a mask beside is_causal, for shapes that do not fit together, and for grouped heads
    without enable_gqa."""
    if dropout_p != 0:
        raise make_error(f"dropout_p is {dropout_p}, and no kernel drops anything")
    if attn_mask is not None and is_causal:
        raise make_error("attn_mask and is_causal are given, and one of them expected")
    shape = (*query.shape[:-1], value.shape[-1])
    if not (query.dim() == key.dim() == value.dim() == 4 and key.shape[:2] == value.shape[:2]
            and query.shape[0] == key.shape[0] and (query.shape[1] == key.shape[1] or enable_gqa)
            and (attn_mask is None or attn_mask.dim() <= 4)):
        shape, query, key, value, attn_mask = _in_four_axes(query, key, value, attn_mask,
                                                            enable_gqa)
    seen = bias = None
    if attn_mask is not None:
        if attn_mask.dim() == 0 or attn_mask.shape[-1] != key.shape[-2] or (
                attn_mask.stride(-1) != 1):
            attn_mask = attn_mask.expand(*attn_mask.shape[:-1], key.shape[-2]).contiguous()
        seen, bias = (attn_mask, None) if attn_mask.dtype is torch.bool else (None, attn_mask)
    result = attention(query, key, value, scale=scale, seen=seen, bias=bias,
                       causal_first=is_causal)
    return result if result.shape == shape else result.reshape(shape)


def _in_four_axes(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor],
                  grouped: bool) -> Tuple[Any, ...]:
    """Returns the shape of the result, and the tensors and the mask as [batch, heads, tokens, ...].
    Entries that are shared along leading axes are repeated, except a head of keys and values that
    all queries share, and rows of the mask."""
    parts = [query, key, value]
    least, most = min(part.dim() for part in parts), max(part.dim() for part in parts)
    if least < (3 if grouped else 2):
        raise make_error(f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} "
                         f"dimensions, and at least {3 if grouped else 2} expected")
    if most <= 3 and not grouped:  # one head
        parts = [part.unsqueeze(-3) for part in parts]
        mask = mask if mask is None or mask.dim() < 3 else mask.unsqueeze(-3)
    parts = [part if part.dim() > 2 else part[None] for part in parts]
    heads = [part.shape[-3] for part in parts]
    try:
        lead = torch.broadcast_shapes(*(part.shape[:-3] for part in parts))
        if not grouped:
            together, = torch.broadcast_shapes(*((count,) for count in heads))
            own = 1 if heads[1] == heads[2] == 1 else together
            heads = [together, own, own]
    except RuntimeError as error:
        raise make_error(f"query, key and value have the shapes {list(query.shape)}, "
                         f"{list(key.shape)} and {list(value.shape)}, which do not fit together"
                         + ("" if grouped else " without enable_gqa=True")) from error
    batch = math.prod(lead)
    for i, (part, count) in enumerate(zip(parts, heads)):
        whole = *lead, count, *part.shape[-2:]
        part = part if part.shape == whole else part.expand(whole).contiguous()
        parts[i] = part.reshape(batch, *whole[-3:])
    if mask is not None and mask.dim() > 3:
        mask = mask.expand(*lead, *mask.shape[-3:]).reshape(batch, *mask.shape[-3:])
    own_heads = heads[:1] if most > 3 or grouped else ()
    return (*lead, *own_heads, query.shape[-2], value.shape[-1]), *parts, mask


_append_attention = _operator(
    "append_attention(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, Tensor v_new, "
    "Tensor kv_lengths, Tensor cos, Tensor sin, Tensor? q_norm=None, Tensor? k_norm=None, "
    "Tensor? sinks=None, *, float? scale=None, float eps=1e-6, int? window=None, "
    "float? softcap=None, bool interleaved=False) -> Tensor", _fused.append_attention,
    plain.append_attention, lambda q, *_, **named: _new(q, q.shape))


def append_attention(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor,
                     kv_lengths: Tensor, cos: Tensor, sin: Tensor,
                     q_norm: Optional[Tensor] = None, k_norm: Optional[Tensor] = None,
                     sinks: Optional[Tensor] = None, *, scale: Optional[float] = None,
                     eps: float = 1e-6, window: Optional[int] = None,
                     softcap: Optional[float] = None, interleaved: bool = False) -> Tensor:
    """One decode step of attention in one kernel: the new token's q and k are normalised if there
    are q_norm and k_norm, and rotated; k and v go to their place in the cache; and q attends.

    q: [batch, ..., heads, head_dim], k_new, v_new: [batch, ..., kv_heads, head_dim], as
        `qkv_linear` returns them; k, v: the cache, [batch, kv_heads, tokens, head_dim], changed
    kv_lengths: [batch] in int32, keys of each sequence with the new one
    cos, sin: [tokens, head_dim / 2] in fp32, of all positions; q_norm, k_norm: [head_dim]
    interleaved: pairs are neighbours, as in `rope`; sinks, window, softcap: as in `attention`
    Result: as q. Source: the operation attention with append=rope or norm_rope."""
    tensors = q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm, k_norm, sinks
    compute = _append_attention if _direct(*tensors) else torch.ops.kernwright.append_attention
    result: Tensor = compute(*tensors, scale=scale, eps=eps, window=window, softcap=softcap,
                             interleaved=interleaved)
    return result
