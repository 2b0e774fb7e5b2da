"""Norms, activations, softmax and rotary embedding."""

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ... import _operations as _arrays
from .. import _fused
from . import plain
from .define import (_define_forward_only, _direct, _expect, _expect_dims, _expect_shape, _new,
                     _or_plain)


def _norm_shape(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None) -> Tensor:
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            _expect_shape(name, vector, x.shape[-1])
    return _new(x, x.shape)


def _sum_shape(x: Tensor, residual: Tensor, *vectors: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    _expect_shape("residual", residual, *x.shape)
    return _norm_shape(x, *vectors), _new(x, x.shape)


_rms_norm = _or_plain("rms_norm", _arrays.rms_norm, plain.rms_norm,
                      lambda x, weight=None, eps=1e-6: _norm_shape(x, weight))
_add_rms_norm = _or_plain(
    "rms_norm", lambda x, residual, *rest: _arrays.rms_norm(x, *rest, residual=residual),
    plain.add_norm(plain.rms_norm),
    lambda x, residual, weight=None, eps=1e-6: _sum_shape(x, residual, weight))
_layer_norm = _or_plain("layer_norm", _arrays.layer_norm, plain.layer_norm,
                        lambda x, weight=None, bias=None, eps=1e-5: _norm_shape(x, weight, bias))
_add_layer_norm = _or_plain(
    "layer_norm", lambda x, residual, *rest: _arrays.layer_norm(x, *rest, residual=residual),
    plain.add_norm(plain.layer_norm),
    lambda x, residual, weight=None, bias=None, eps=1e-5: _sum_shape(x, residual, weight, bias))
_define_forward_only("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor",
                     _rms_norm, lambda x, weight=None, eps=1e-6: _norm_shape(x, weight))
_define_forward_only("add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "float eps=1e-6) -> (Tensor, Tensor)", _add_rms_norm,
                     lambda x, residual, weight=None, eps=1e-6: _sum_shape(x, residual, weight))
_define_forward_only("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, "
                     "float eps=1e-5) -> Tensor", _layer_norm,
                     lambda x, weight=None, bias=None, eps=1e-5: _norm_shape(x, weight, bias))
_define_forward_only("add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "Tensor? bias=None, float eps=1e-5) -> (Tensor, Tensor)", _add_layer_norm,
                     lambda x, residual, weight=None, bias=None, eps=1e-5:
                     _sum_shape(x, residual, weight, bias))


def rms_norm(x: Tensor, weight: Optional[Tensor] = None, eps: float = 1e-6, *,
             residual: Optional[Tensor] = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as
    torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum)"""
    if _direct(x, weight, residual):
        if residual is None:
            return _rms_norm(x, weight, eps)
        return _add_rms_norm(x, residual, weight, eps)
    if residual is None:
        return torch.ops.kernwright.rms_norm(x, weight, eps)
    return torch.ops.kernwright.add_rms_norm(x, residual, weight, eps)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5, *, residual: Optional[Tensor] = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`."""
    if _direct(x, weight, bias, residual):
        if residual is None:
            return _layer_norm(x, weight, bias, eps)
        return _add_layer_norm(x, residual, weight, bias, eps)
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


_silu_and_mul = _or_plain("silu_and_mul", _arrays.silu_and_mul, plain.silu_and_mul, _halved_shape)
_gelu_and_mul = _or_plain("gelu_and_mul", _arrays.gelu_and_mul, plain.gelu_and_mul,
                          lambda x, *, approximate="none": _halved_shape(x))
_silu_mul = _or_plain("silu_mul", _fused.silu_mul, plain.silu_mul, _silu_mul_shape)
_define_forward_only("silu_and_mul(Tensor x) -> Tensor", _silu_and_mul, _halved_shape)
_define_forward_only("gelu_and_mul(Tensor x, *, str approximate='none') -> Tensor", _gelu_and_mul,
                     lambda x, *, approximate="none": _halved_shape(x))
_define_forward_only("silu_mul(Tensor gate, Tensor up) -> Tensor", _silu_mul, _silu_mul_shape)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(x[..., :n]) * x[..., n:]. x: [..., 2 * n] without gaps; bf16, fp16 or fp32."""
    return _silu_and_mul(x) if _direct(x) else torch.ops.kernwright.silu_and_mul(x)


def gelu_and_mul(x: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as
    torch.nn.functional.gelu."""
    if _direct(x):
        return _gelu_and_mul(x, approximate=approximate)
    return torch.ops.kernwright.gelu_and_mul(x, approximate=approximate)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up. Two tensors of one shape without gaps; bf16, fp16 or fp32."""
    return _silu_mul(gate, up) if _direct(gate, up) else torch.ops.kernwright.silu_mul(
        gate, up)


def _our_softmax(x: Tensor, mask: Optional[Tensor] = None, *, scale: float = 1.0,
                 causal: bool = False) -> Tensor:
    return _arrays.softmax(x, scale=scale, causal=causal, mask=mask)


def _softmax_shape(x: Tensor, mask: Optional[Tensor] = None, *, scale: float = 1.0,
                   causal: bool = False) -> Tensor:
    _expect(mask is None or not causal, lambda: "causal=True and a mask are given, and one of them "
                                                "expected")
    _expect(x.dim() >= 2 or not causal,
            lambda: "x has 1 dimension, and with causal=True at least 2 expected")
    if mask is not None:
        _expect_shape("mask", mask, *x.shape)
    return _new(x, x.shape)


_softmax = _or_plain("softmax", _our_softmax, plain.softmax, _softmax_shape)
_define_forward_only("softmax(Tensor x, Tensor? mask=None, *, float scale=1.0, bool causal=False) "
                     "-> Tensor", _softmax, _softmax_shape)


def softmax(x: Tensor, *, scale: float = 1.0, causal: bool = False,
            mask: Optional[Tensor] = None) -> Tensor:
    """softmax(scale * x + mask) over the last dimension; see kernwright.softmax."""
    if _direct(x, mask):
        return _softmax(x, mask, scale=scale, causal=causal)
    return torch.ops.kernwright.softmax(x, mask, scale=scale, causal=causal)


def _rope_shape(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
                interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    _expect(q.dim() >= 3, lambda: f"q has {q.dim()} dimensions, and at least 3 expected: tokens, "
                                  "heads and head_dim")
    for name, table in (("cos", cos), ("sin", sin)):
        _expect_shape(name, table, math.prod(q.shape[:-2]), q.shape[-1] // 2)
    return _new(q, q.shape), _new(k, k.shape)


_rope = _or_plain("rope", _arrays.rope, plain.rope, _rope_shape)
_define_forward_only("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool interleaved=False) "
                     "-> (Tensor, Tensor)",
                     _rope, _rope_shape)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
         interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps; cos, sin: [tokens,
    head_dim / 2] in fp32; see kernwright.rope."""
    if _direct(q, k, cos, sin):
        return _rope(q, k, cos, sin, interleaved=interleaved)
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


_norm_rope = _or_plain("norm_rope", _fused.norm_rope, plain.norm_rope, _norm_rope_shape)
_define_forward_only("norm_rope(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, "
                     "Tensor cos, Tensor sin, *, float eps=1e-6) -> (Tensor, Tensor, Tensor)",
                     _norm_rope, _norm_rope_shape)


def norm_rope(q: Tensor, k: Tensor, v: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor,
              sin: Tensor, *, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    """q and k with each head normalised, as by `rms_norm`, and rotated, as by `rope`, in one kernel
    that rounds once; and a copy of v, which the kernel writes beside k.

    q: [batch, tokens, heads, head_dim], k, v: [batch, tokens, kv_heads, head_dim], without gaps,
        as `qkv_linear` returns them; bf16 or fp16; q_norm, k_norm: [head_dim], as q
    cos, sin: [tokens, head_dim / 2] in fp32, the same for all sequences
    Source: the operation kv_append with rope=qk and norm=rms."""
    if _direct(q, k, v, q_norm, k_norm, cos, sin):
        return _norm_rope(q, k, v, q_norm, k_norm, cos, sin, eps=eps)
    return torch.ops.kernwright.norm_rope(q, k, v, q_norm, k_norm, cos, sin, eps=eps)
