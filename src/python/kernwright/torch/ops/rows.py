"""Norms, activations, softmax and rotary embedding."""

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ... import _operations as _arrays
from .. import _fused
from .define import (_define_forward_only, _direct, _expect, _expect_dims, _expect_shape, _new)


def _norm_shape(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None) -> Tensor:
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            _expect_shape(name, vector, x.shape[-1])
    return _new(x, x.shape)


def _sum_shape(x: Tensor, residual: Tensor, *vectors: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    _expect_shape("residual", residual, *x.shape)
    return _norm_shape(x, *vectors), _new(x, x.shape)


_define_forward_only("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor",
                     _arrays.rms_norm, lambda x, weight=None, eps=1e-6: _norm_shape(x, weight))
_define_forward_only("add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "float eps=1e-6) -> (Tensor, Tensor)",
                     lambda x, residual, *rest: _arrays.rms_norm(x, *rest, residual=residual),
                     lambda x, residual, weight=None, eps=1e-6: _sum_shape(x, residual, weight))
_define_forward_only("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, "
                     "float eps=1e-5) -> Tensor", _arrays.layer_norm,
                     lambda x, weight=None, bias=None, eps=1e-5: _norm_shape(x, weight, bias))
_define_forward_only("add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "Tensor? bias=None, float eps=1e-5) -> (Tensor, Tensor)",
                     lambda x, residual, *rest: _arrays.layer_norm(x, *rest, residual=residual),
                     lambda x, residual, weight=None, bias=None, eps=1e-5:
                     _sum_shape(x, residual, weight, bias))


def rms_norm(x: Tensor, weight: Optional[Tensor] = None, eps: float = 1e-6, *,
             residual: Optional[Tensor] = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as
    torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum)"""
    if _direct(x, weight, residual):
        return _arrays.rms_norm(x, weight, eps, residual=residual)
    if residual is None:
        return torch.ops.kernwright.rms_norm(x, weight, eps)
    return torch.ops.kernwright.add_rms_norm(x, residual, weight, eps)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5, *, residual: Optional[Tensor] = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`."""
    if _direct(x, weight, bias, residual):
        return _arrays.layer_norm(x, weight, bias, eps, residual=residual)
    if residual is None:
        return torch.ops.kernwright.layer_norm(x, weight, bias, eps)
    return torch.ops.kernwright.add_layer_norm(x, residual, weight, bias, eps)


def _halved_shape(x: Tensor) -> Tensor:
    _expect(x.shape[-1] % 2 == 0, lambda: f"x has {x.shape[-1]} columns, and an even number "
                                          "expected: the gate, then what it multiplies")
    return _new(x, (*x.shape[:-1], x.shape[-1] // 2))


def _silu_mul_shape(gate: Tensor, up: Tensor) -> Tensor:
    _expect_shape("up", up, *gate.shape)
    return _new(gate, gate.shape)


_define_forward_only("silu_and_mul(Tensor x) -> Tensor", _arrays.silu_and_mul, _halved_shape)
_define_forward_only("gelu_and_mul(Tensor x, *, str approximate='none') -> Tensor",
                     _arrays.gelu_and_mul,
                     lambda x, *, approximate="none": _halved_shape(x))
_define_forward_only("silu_mul(Tensor gate, Tensor up) -> Tensor", _fused.silu_mul,
                     _silu_mul_shape)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(x[..., :n]) * x[..., n:]. x: [..., 2 * n] without gaps; bf16, fp16 or fp32."""
    return _arrays.silu_and_mul(x) if _direct(x) else torch.ops.kernwright.silu_and_mul(x)


def gelu_and_mul(x: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as
    torch.nn.functional.gelu."""
    if _direct(x):
        return _arrays.gelu_and_mul(x, approximate=approximate)
    return torch.ops.kernwright.gelu_and_mul(x, approximate=approximate)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up. Two tensors of one shape without gaps; bf16, fp16 or fp32."""
    return _fused.silu_mul(gate, up) if _direct(gate, up) else torch.ops.kernwright.silu_mul(
        gate, up)


_define_forward_only("softmax(Tensor x, Tensor? mask=None, *, float scale=1.0, bool causal=False) "
                     "-> Tensor",
                     lambda x, mask=None, *, scale=1.0, causal=False:
                     _arrays.softmax(x, scale=scale, causal=causal, mask=mask),
                     lambda x, mask=None, *, scale=1.0, causal=False: _new(x, x.shape))


def softmax(x: Tensor, *, scale: float = 1.0, causal: bool = False,
            mask: Optional[Tensor] = None) -> Tensor:
    """softmax(scale * x + mask) over the last dimension; see kernwright.softmax."""
    if _direct(x, mask):
        return _arrays.softmax(x, scale=scale, causal=causal, mask=mask)
    return torch.ops.kernwright.softmax(x, mask, scale=scale, causal=causal)


def _rope_shape(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
                interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    _expect(q.dim() >= 3, lambda: f"q has {q.dim()} dimensions, and at least 3 expected: tokens, "
                                  "heads and head_dim")
    for name, table in (("cos", cos), ("sin", sin)):
        _expect_shape(name, table, math.prod(q.shape[:-2]), q.shape[-1] // 2)
    return _new(q, q.shape), _new(k, k.shape)


_define_forward_only("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool interleaved=False) "
                     "-> (Tensor, Tensor)",
                     _arrays.rope, _rope_shape)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
         interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps; cos, sin: [tokens,
    head_dim / 2] in fp32; see kernwright.rope."""
    if _direct(q, k, cos, sin):
        return _arrays.rope(q, k, cos, sin, interleaved=interleaved)
    return torch.ops.kernwright.rope(q, k, cos, sin, interleaved=interleaved)


def _norm_rope_shape(q: Tensor, k: Tensor, v: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor,
                     sin: Tensor, *, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _expect_dims(name, tensor, 4, ": batch, tokens, heads and head_dim")
    batch, tokens, _, head_dim = q.shape
    kv_heads, head_dim_v = v.shape[2:]
    _expect_shape("k", k, batch, tokens, kv_heads, head_dim)
    _expect_shape("v", v, batch, tokens, kv_heads, head_dim_v)
    for name, scale in (("q_norm", q_norm), ("k_norm", k_norm)):
        _expect_shape(name, scale, head_dim)
    for name, table in (("cos", cos), ("sin", sin)):
        _expect_shape(name, table, tokens, head_dim // 2)
    return _new(q, q.shape), _new(k, k.shape), _new(v, v.shape)


_define_forward_only("norm_rope(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, "
                     "Tensor cos, Tensor sin, *, float eps=1e-6) -> (Tensor, Tensor, Tensor)",
                     _fused.norm_rope, _norm_rope_shape)


def norm_rope(q: Tensor, k: Tensor, v: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor,
              sin: Tensor, *, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    """q and k with each head normalised, as by `rms_norm`, and rotated, as by `rope`, in one kernel
    that rounds once; and a copy of v, which the kernel writes beside k.

    q: [batch, tokens, heads, head_dim], k, v: [batch, tokens, kv_heads, head_dim], without gaps,
    as `qkv_linear` gives them; bf16 or fp16; q_norm, k_norm: [head_dim], as q
    cos, sin: [tokens, head_dim / 2] in fp32, the same for all sequences
    Source: the operation kv_append with rope=qk and norm=rms."""
    if _direct(q, k, v, q_norm, k_norm, cos, sin):
        return _fused.norm_rope(q, k, v, q_norm, k_norm, cos, sin, eps=eps)
    return torch.ops.kernwright.norm_rope(q, k, v, q_norm, k_norm, cos, sin, eps=eps)
