"""Attention."""

from typing import Any, Optional

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
    """torch.nn.functional.scaled_dot_product_attention for the arguments that kernels take. Errors:
    Error for a mask, for dropout, for is_causal with other numbers of queries than of keys
    (PyTorch's first query then sees the first key alone), and for grouped heads without
    enable_gqa."""
    if attn_mask is not None or dropout_p != 0:
        raise make_error("attn_mask or dropout_p is given, and no kernel takes them")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise make_error(f"is_causal with {query.shape[-2]} queries and {key.shape[-2]} keys, and "
                         "equally many expected")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise make_error(f"q has {query.shape[1]} heads and k {key.shape[1]}, and equally many "
                         "expected without enable_gqa=True")
    return attention(query, key, value, causal=is_causal, scale=scale)


_append_attention = _operator(
    "append_attention(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, Tensor v_new, "
    "Tensor kv_lengths, Tensor cos, Tensor sin, Tensor? q_norm=None, Tensor? k_norm=None, *, "
    "float? scale=None, float eps=1e-6) -> Tensor", _fused.append_attention,
    plain.append_attention, lambda q, *_, **named: _new(q, q.shape))


def append_attention(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor,
                     kv_lengths: Tensor, cos: Tensor, sin: Tensor,
                     q_norm: Optional[Tensor] = None, k_norm: Optional[Tensor] = None, *,
                     scale: Optional[float] = None, eps: float = 1e-6) -> Tensor:
    """One decode step of attention in one kernel: the new token's q and k are normalised if there
    are q_norm and k_norm, and rotated; k and v go to their place in the cache; and q attends.

    q: [batch, ..., heads, head_dim], k_new, v_new: [batch, ..., kv_heads, head_dim], as
        `qkv_linear` returns them; k, v: the cache, [batch, kv_heads, tokens, head_dim], changed
    kv_lengths: [batch] in int32, keys of each sequence with the new one
    cos, sin: [tokens, head_dim / 2] in fp32, of all positions; q_norm, k_norm: [head_dim]
    Result: as q. Source: the operation attention with append=rope or norm_rope."""
    if _direct(q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm, k_norm):
        return _append_attention(q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm, k_norm,
                                 scale=scale, eps=eps)
    return torch.ops.kernwright.append_attention(q, k, v, k_new, v_new, kv_lengths, cos, sin,
                                                 q_norm, k_norm, scale=scale, eps=eps)
