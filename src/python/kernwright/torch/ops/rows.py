"""Norms, activations, softmax and rotary embedding."""

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from ... import _operations as _arrays
from ..._arrays import make_error
from .. import _fused
from .._checkpoints import LARGEST
from . import plain
from .define import _direct, _operator


_NORM = "Tensor? weight=None, float eps=1e-6) ->"
_LAYER_NORM = "Tensor? weight=None, Tensor? bias=None, float eps=1e-5) ->"
_rms_norm = _operator(f"rms_norm(Tensor x, {_NORM} Tensor", _arrays.rms_norm, plain.rms_norm)
_layer_norm = _operator(f"layer_norm(Tensor x, {_LAYER_NORM} Tensor", _arrays.layer_norm,
                        plain.layer_norm)
_add_rms_norm = _operator(
    f"add_rms_norm(Tensor x, Tensor residual, {_NORM} (Tensor, Tensor)",
    lambda x, residual, *rest: _arrays.rms_norm(x, *rest, residual=residual),
    plain.add_norm(plain.rms_norm))
_add_layer_norm = _operator(
    f"add_layer_norm(Tensor x, Tensor residual, {_LAYER_NORM} (Tensor, Tensor)",
    lambda x, residual, *rest: _arrays.layer_norm(x, *rest, residual=residual),
    plain.add_norm(plain.layer_norm))


def _our_quantized_norm(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor],
                        scale: Optional[Tensor], eps: float, *, norm: str, quantize: str,
                        dtype: torch.dtype) -> List[Tensor]:
    named = {"residual": residual, "quantize": quantize, "scale": scale, "out_dtype": dtype}
    return _listed(_arrays.rms_norm(x, weight, eps, **named) if norm == "rms_norm" else
                   _arrays.layer_norm(x, weight, bias, eps, **named))


def _listed(results: Any) -> List[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


_quantized_norm = _operator(
    "quantized_norm(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, Tensor? scale, float eps, *, "
    "str norm, str quantize, ScalarType dtype) -> Tensor[]", _our_quantized_norm, plain.quantized_norm)


def _expect_way(quantize: str, scale: Optional[Tensor], dtype: torch.dtype) -> None:
    if quantize not in ("tensor", "row", "block"):
        raise make_error(f"quantize is {quantize!r}, and 'tensor', 'row' or 'block' expected")
    if (scale is None) == (quantize == "tensor"):
        raise make_error("scale is " + ("missing" if scale is None else f"given, and quantize is {quantize!r}"))
    if dtype not in LARGEST:
        raise make_error(f"out_dtype is {dtype}, and {' or '.join(map(str, LARGEST))} expected")


def _norm_to_codes(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor],
                   scale: Optional[Tensor], eps: float, **named: Any) -> Any:
    _expect_way(named["quantize"], scale, named["dtype"])
    tensors = x, residual, weight, bias, scale
    compute = _quantized_norm if _direct(*tensors) else torch.ops.kernwright.quantized_norm
    return _with_rows_first(compute(*tensors, eps, **named), named["quantize"])


def _with_rows_first(results: List[Tensor], quantize: str) -> Any:
    """The results of a call, with the scales as `scaled_matmul` takes them."""
    if quantize == "tensor":
        return tuple(results) if len(results) > 1 else results[0]
    codes, scales, *sums = results
    return (codes, scales.t(), *sums)


def rms_norm(x: Tensor, weight: Optional[Tensor] = None, eps: float = 1e-6, *,
             residual: Optional[Tensor] = None, quantize: Optional[str] = None, scale: Optional[Tensor] = None,
             out_dtype: torch.dtype = torch.int8) -> Any:
    """kernwright.rms_norm.

    With quantize="row" or "block" it returns codes of out_dtype, int8 or float8_e4m3fn, and their scales
    as `scaled_matmul` takes them, [rows, 1] or [rows, ceil(columns / 128)]. The backward is missing then."""
    if quantize is not None:
        return _norm_to_codes(x, residual, weight, None, scale, eps, norm="rms_norm", quantize=quantize,
                              dtype=out_dtype)
    if _direct(x, weight, residual):
        if residual is None:
            return _rms_norm(x, weight, eps)
        return _add_rms_norm(x, residual, weight, eps)
    if residual is None:
        return torch.ops.kernwright.rms_norm(x, weight, eps)
    return torch.ops.kernwright.add_rms_norm(x, residual, weight, eps)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5, *, residual: Optional[Tensor] = None, quantize: Optional[str] = None,
               scale: Optional[Tensor] = None, out_dtype: torch.dtype = torch.int8) -> Any:
    """kernwright.layer_norm. quantize, scale and out_dtype are as in `rms_norm`."""
    if quantize is not None:
        return _norm_to_codes(x, residual, weight, bias, scale, eps, norm="layer_norm", quantize=quantize,
                              dtype=out_dtype)
    if _direct(x, weight, bias, residual):
        if residual is None:
            return _layer_norm(x, weight, bias, eps)
        return _add_layer_norm(x, residual, weight, bias, eps)
    if residual is None:
        return torch.ops.kernwright.layer_norm(x, weight, bias, eps)
    return torch.ops.kernwright.add_layer_norm(x, residual, weight, bias, eps)


_silu_and_mul = _operator("silu_and_mul(Tensor x) -> Tensor", _arrays.silu_and_mul,
                          plain.silu_and_mul)
_gelu_and_mul = _operator("gelu_and_mul(Tensor x, *, str approximate='none') -> Tensor",
                          _arrays.gelu_and_mul, plain.gelu_and_mul)
_silu_mul = _operator("silu_mul(Tensor gate, Tensor up) -> Tensor", _fused.silu_mul, plain.silu_mul)


def _our_quantized_gate(x: Tensor, scale: Optional[Tensor], *, activation: str, quantize: str,
                        dtype: torch.dtype) -> List[Tensor]:
    named = {"quantize": quantize, "scale": scale, "out_dtype": dtype}
    if activation == "silu":
        return _listed(_arrays.silu_and_mul(x, **named))
    return _listed(_arrays.gelu_and_mul(x, approximate="tanh" if activation == "gelu_tanh" else "none", **named))


_quantized_gate = _operator(
    "quantized_gate(Tensor x, Tensor? scale, *, str activation, str quantize, ScalarType dtype) -> Tensor[]",
    _our_quantized_gate, plain.quantized_gate)


def _gate_to_codes(x: Tensor, scale: Optional[Tensor], **named: Any) -> Any:
    _expect_way(named["quantize"], scale, named["dtype"])
    compute = _quantized_gate if _direct(x, scale) else torch.ops.kernwright.quantized_gate
    return _with_rows_first(compute(x, scale, **named), named["quantize"])


def silu_and_mul(x: Tensor, *, quantize: Optional[str] = None, scale: Optional[Tensor] = None,
                 out_dtype: torch.dtype = torch.int8) -> Any:
    """kernwright.silu_and_mul. quantize, scale and out_dtype are as in `rms_norm`."""
    if quantize is not None:
        return _gate_to_codes(x, scale, activation="silu", quantize=quantize, dtype=out_dtype)
    return _silu_and_mul(x) if _direct(x) else torch.ops.kernwright.silu_and_mul(x)


def gelu_and_mul(x: Tensor, *, approximate: str = "none", quantize: Optional[str] = None,
                 scale: Optional[Tensor] = None, out_dtype: torch.dtype = torch.int8) -> Any:
    """kernwright.gelu_and_mul. quantize, scale and out_dtype are as in `rms_norm`."""
    if quantize is not None:
        activation = "gelu_tanh" if approximate == "tanh" else "gelu_erf"
        return _gate_to_codes(x, scale, activation=activation, quantize=quantize, dtype=out_dtype)
    if _direct(x):
        return _gelu_and_mul(x, approximate=approximate)
    return torch.ops.kernwright.gelu_and_mul(x, approximate=approximate)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up. Two tensors of one shape without gaps; bf16, fp16 or fp32."""
    return _silu_mul(gate, up) if _direct(gate, up) else torch.ops.kernwright.silu_mul(
        gate, up)


_softmax = _operator(
    "softmax(Tensor x, Tensor? mask=None, *, float scale=1.0, bool causal=False) -> Tensor",
    lambda x, mask=None, **named: _arrays.softmax(x, mask=mask, **named), plain.softmax)


def softmax(x: Tensor, *, scale: float = 1.0, causal: bool = False,
            mask: Optional[Tensor] = None) -> Tensor:
    """kernwright.softmax over the last dimension."""
    if _direct(x, mask):
        return _softmax(x, mask, scale=scale, causal=causal)
    return torch.ops.kernwright.softmax(x, mask, scale=scale, causal=causal)


_rope = _operator("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool interleaved=False) "
                  "-> (Tensor, Tensor)", _arrays.rope, plain.rope)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
         interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    """kernwright.rope."""
    if _direct(q, k, cos, sin):
        return _rope(q, k, cos, sin, interleaved=interleaved)
    return torch.ops.kernwright.rope(q, k, cos, sin, interleaved=interleaved)


_norm_rope = _operator(
    "norm_rope(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, Tensor cos, Tensor sin, "
    "*, float eps=1e-6) -> (Tensor, Tensor, Tensor)", _fused.norm_rope, plain.norm_rope)


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
