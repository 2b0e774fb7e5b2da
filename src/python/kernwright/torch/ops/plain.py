"""The operators by PyTorch's own functions: for tensors that no kernel takes. Sums are kept in
fp32, or a wider type, and results are rounded once if a kernel rounds once."""

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch.nn import functional

from .. import _checkpoints as layouts

# The largest logit that hides a key beside a bias: kernels count in base 2, where it is infinite.
_HIDDEN = -2.0**128 * math.log(2)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.is_floating_point() and x.dtype != torch.float64 else x


def activate(x: Tensor, activation: Optional[str]) -> Tensor:
    """Errors: ValueError for an unknown name."""
    functions: Dict[Optional[str], Callable[[Tensor], Tensor]] = {
        None: lambda x: x, "silu": functional.silu, "gelu_erf": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}
    if activation not in functions:
        raise ValueError(f"activation is {activation!r}, and None, 'silu', 'gelu_erf' or "
                         "'gelu_tanh' expected")
    return functions[activation](x)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
           residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    result = _wide(x) @ _wide(weight).mT
    if bias is not None:
        result = result + _wide(bias)
    result = activate(result, activation)
    if residual is not None:
        result = result + _wide(residual)
    return _to(result, out, x.dtype if out_dtype is None else out_dtype)


def _to(result: Tensor, out: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    if out is None:
        return result.to(dtype)
    if out.shape != result.shape:
        raise ValueError(f"out has the shape {tuple(out.shape)}, and {tuple(result.shape)} "
                         "expected")
    return out.copy_(result)


def matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
           residual: Optional[Tensor] = None, **named: Any) -> Tensor:
    return linear(a, b.mT, bias, residual, **named)


Weights = Union[Tensor, Sequence[Tensor]]


def _whole(weight: Weights) -> Tensor:
    return weight if isinstance(weight, Tensor) else torch.cat(tuple(weight))


def gated_linear(x: Tensor, weight: Weights, norm_weight: Optional[Tensor] = None, *,
                 activation: str = "silu", eps: float = 1e-6) -> Tensor:
    wide = _wide(x) if norm_weight is None else _normal(x, norm_weight, eps)
    gate, up = functional.linear(wide, _wide(_whole(weight))).chunk(2, -1)
    return (activate(gate, activation) * up).to(x.dtype)


def qkv_linear(x: Tensor, weight: Weights, bias: Optional[Weights] = None,
               norm_weight: Optional[Tensor] = None, *, kv_heads: int, head_dim: int,
               eps: float = 1e-6) -> Tuple[Tensor, ...]:
    wide = _wide(x) if norm_weight is None else _normal(x, norm_weight, eps)
    whole = functional.linear(wide, _wide(_whole(weight)),
                              None if bias is None else _wide(_whole(bias)))
    heads = whole.to(x.dtype).unflatten(-1, (-1, head_dim))
    return tuple(part.contiguous() for part in heads.split(
        (heads.shape[-2] - 2 * kv_heads, kv_heads, kv_heads), -2))


def _normal(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    wide = _wide(x)
    wide = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return wide if weight is None else wide * _wide(weight)


def rms_norm(x: Tensor, weight: Optional[Tensor] = None, eps: float = 1e-6) -> Tensor:
    return _normal(x, weight, eps).to(x.dtype)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:
    return functional.layer_norm(_wide(x), x.shape[-1:], None if weight is None else _wide(weight),
                                 None if bias is None else _wide(bias), eps).to(x.dtype)


def add_norm(norm: Callable[..., Tensor]) -> Callable[..., Tuple[Tensor, Tensor]]:
    """A norm of x and a residual, which also returns their sum."""
    def compute(x: Tensor, residual: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        both = _wide(x) + _wide(residual)
        return norm(both, *rest).to(x.dtype), both.to(x.dtype)

    return compute


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return (functional.silu(_wide(gate)) * _wide(up)).to(gate.dtype)


def silu_and_mul(x: Tensor) -> Tensor:
    return silu_mul(*x.chunk(2, -1))


def gelu_and_mul(x: Tensor, *, approximate: str = "none") -> Tensor:
    gate, up = x.chunk(2, -1)
    return (functional.gelu(_wide(gate), approximate=approximate) * _wide(up)).to(x.dtype)


def softmax(x: Tensor, mask: Optional[Tensor] = None, *, scale: float = 1.0,
            causal: bool = False) -> Tensor:
    wide = scale * _wide(x)
    if mask is not None:
        wide = wide + _wide(mask)
    if causal:
        wide = wide.masked_fill(~_sees(x.shape[-2], x.shape[-1], None, x.device), -torch.inf)
    return wide.softmax(-1).to(x.dtype)


def _sees(queries: int, keys: int, window: Optional[int], device: Any) -> Tensor:
    """Returns a mask: a query sees the keys up to its own, which is the last for the last query."""
    own = torch.arange(queries, device=device)[:, None] + keys - queries
    at = torch.arange(keys, device=device)
    return (at <= own) & (at > own - window) if window else at <= own


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
         interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    angles = [_wide(table).reshape(*q.shape[:-2], 1, q.shape[-1] // 2) for table in (cos, sin)]
    return (_turned(_wide(q), *angles, interleaved).to(q.dtype),
            _turned(_wide(k), *angles, interleaved).to(k.dtype))


def norm_rope(q: Tensor, k: Tensor, v: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor,
              sin: Tensor, *, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    angles = [_wide(table)[:, None] for table in (cos, sin)]
    return (_turned(_normal(q, q_norm, eps), *angles, False).to(q.dtype),
            _turned(_normal(k, k_norm, eps), *angles, False).to(k.dtype),
            v.clone(memory_format=torch.contiguous_format))


def attention(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor] = None,
              alibi_slopes: Optional[Tensor] = None, kv_lengths: Optional[Tensor] = None,
              seen: Optional[Tensor] = None, bias: Optional[Tensor] = None, *,
              causal: bool = False, scale: Optional[float] = None, window: Optional[int] = None,
              softcap: Optional[float] = None, causal_first: bool = False,
              return_lse: bool = False) -> Any:
    from .sequences import _attention_result

    queries, keys = q.shape[2], k.shape[2]
    groups = q.shape[1] // max(k.shape[1], 1)
    wide_k, wide_v = (_wide(part).repeat_interleave(groups, 1) for part in (k, v))
    logits = _wide(q) @ wide_k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    lengths = (torch.full((q.shape[0],), keys, device=q.device) if kv_lengths is None
               else kv_lengths.to(torch.int64))
    at = torch.arange(keys, device=q.device)
    first = torch.zeros_like(lengths) if causal_first else lengths - queries
    own = torch.arange(queries, device=q.device) + first[:, None]
    shown = (at < lengths[:, None])[:, None].expand(-1, queries, -1)
    if causal or causal_first or window:
        shown = shown & (at <= own[..., None])
    if window:
        shown = shown & (at > own[..., None] - window)
    if alibi_slopes is not None:
        distance = (at - own[..., None]).abs().to(logits.dtype)
        logits = logits - alibi_slopes[:, None, None] * distance[:, None]
    if bias is not None:
        logits = logits + _wide(bias)
        logits = logits.masked_fill(logits <= _HIDDEN, -torch.inf)
    shown = shown[:, None] if seen is None else shown[:, None] & seen
    logits = logits.masked_fill(~shown, -torch.inf)
    lse = logits.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, _wide(sinks)[:, None].expand_as(lse))
    weights = (logits - lse[..., None]).exp().nan_to_num(0.0)
    result = _attention_result(q, v)
    result.copy_(weights @ wide_v)
    return (result, lse.float()) if return_lse else result


def append_attention(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor,
                     kv_lengths: Tensor, cos: Tensor, sin: Tensor,
                     q_norm: Optional[Tensor] = None, k_norm: Optional[Tensor] = None,
                     sinks: Optional[Tensor] = None, *, scale: Optional[float] = None,
                     eps: float = 1e-6, window: Optional[int] = None,
                     softcap: Optional[float] = None, interleaved: bool = False) -> Tensor:
    batch, kv_heads, _, head_dim = k.shape
    heads = q.shape[-2]
    places = (kv_lengths.to(torch.int64) - 1).clamp(min=0)
    angles = [_wide(table)[places][:, None] for table in (cos, sin)]
    query = _wide(q).reshape(batch, heads, head_dim)
    key = _wide(k_new).reshape(batch, kv_heads, head_dim)
    if q_norm is not None:
        query = _normal(query, q_norm, eps)
    if k_norm is not None:
        key = _normal(key, k_norm, eps)
    query, key = (_turned(part, *angles, interleaved).to(q.dtype) for part in (query, key))
    at = torch.arange(batch, device=q.device), slice(None), places
    there = (kv_lengths > 0)[:, None, None]  # a sequence of length 0 has no new token
    for cache, new in (k, key), (v, v_new.reshape(batch, kv_heads, head_dim)):
        cache[at] = torch.where(there, new, cache[at])
    result: Tensor = attention(query[:, :, None], k, v, sinks, kv_lengths=kv_lengths, scale=scale,
                               window=window, softcap=softcap)
    return result[:, :, 0].reshape(q.shape)


def _in_blocks(scales: Tensor, rows: int, columns: int, of_rows: int) -> Tensor:
    """Scales of blocks, one for each element."""
    return scales.repeat_interleave(of_rows, 0)[:rows].repeat_interleave(128, 1)[:, :columns]


def _dequantised(a: Tensor, matrix: Tensor, scale_a: Union[Tensor, float],
                 scale_b: Union[Tensor, float]) -> Tuple[Tensor, Tensor]:
    """Rows of a and a matrix [n, k], with their scales."""
    rows, weight = a.float(), matrix.float()
    if isinstance(scale_b, Tensor) and scale_b.shape == (1, matrix.shape[0]):
        return rows * scale_a, weight * scale_b.t()
    if isinstance(scale_a, Tensor) and isinstance(scale_b, Tensor):
        scale_a = _in_blocks(scale_a, rows.shape[0], rows.shape[1], 1)
        scale_b = _in_blocks(scale_b.t(), weight.shape[0], weight.shape[1], 128)
    return rows * scale_a, weight * scale_b


def scaled_matmul(a: Tensor, b: Tensor, scale_a: Union[Tensor, float],
                  scale_b: Union[Tensor, float], bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out: Optional[Tensor] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    rows, weight = _dequantised(a.flatten(0, -2), b.t(), scale_a, scale_b)
    return linear(rows.view(a.shape), weight, bias, residual, activation=activation, out=out,
                  out_dtype=out_dtype or torch.bfloat16)


def quantize_rows(x: Tensor, *, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    codes, scales = layouts.quantized_rows(x.flatten(0, -2), dtype)
    return codes.view(x.shape), scales.t().contiguous()


def _quantized(x: Tensor, scale: Optional[Tensor], quantize: str, dtype: torch.dtype) -> List[Tensor]:
    if scale is not None:
        return [layouts.codes_by(x, scale, dtype)]
    by = layouts.quantized_rows if quantize == "row" else layouts.quantized_blocks
    codes, scales = by(x.flatten(0, -2), dtype)
    return [codes.view(x.shape), scales.t().contiguous()]


def quantized_norm(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor],
                   scale: Optional[Tensor], eps: float, *, norm: str, quantize: str,
                   dtype: torch.dtype) -> List[Tensor]:
    sums = [] if residual is None else [(_wide(x) + _wide(residual)).to(x.dtype)]
    wide = _wide(sums[0] if sums else x)
    normal = rms_norm(wide, weight, eps) if norm == "rms_norm" else layer_norm(wide, weight, bias, eps)
    return _quantized(normal, scale, quantize, dtype) + sums


def quantized_gate(x: Tensor, scale: Optional[Tensor], *, activation: str, quantize: str,
                   dtype: torch.dtype) -> List[Tensor]:
    gate, up = _wide(x).chunk(2, -1)
    return _quantized(activate(gate, activation) * up, scale, quantize, dtype)


def quantized_linear(x: Tensor, codes: Tensor, scales: Tensor, zeros: Optional[Tensor] = None,
                     order: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                     residual: Optional[Tensor] = None, *, n: int, group: int, weights: str,
                     activation: Optional[str] = None) -> Tensor:
    rows = layouts.unpack(layouts.Rows(codes, scales, zeros), n, x.shape[-1], weights)
    x = x if order is None else x.index_select(-1, order)
    return linear(x, layouts.dequantized(rows, weights, group), bias, residual, activation=activation)


def quantized_gated_linear(x: Tensor, codes: Tensor, scales: Tensor, zeros: Optional[Tensor] = None,
                           order: Optional[Tensor] = None, *, n: int, group: int, weights: str,
                           activation: str) -> Tensor:
    rows = layouts.unpack(layouts.Rows(codes, scales, zeros), layouts.rows_of_gates(n), x.shape[-1], weights)
    x = x if order is None else x.index_select(-1, order)
    return gated_linear(x, layouts.dequantized(layouts.closed(rows, n), weights, group), activation=activation)


def _swiglu_oai(gate: Tensor, up: Tensor, limit: float, gate_alpha: float) -> Tensor:
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(gate_alpha * gate) * (up.clamp(-limit, limit) + 1)


def _of_experts(sums: Tensor, activation: Optional[str], gated: bool, interleaved: bool, limit: float,
                gate_alpha: float) -> Tensor:
    """Activates the sums of a product, or opens them by their gates."""
    if not gated:
        return activate(sums, activation)
    gate, up = (sums[:, 0::2], sums[:, 1::2]) if interleaved else sums.chunk(2, 1)
    return _swiglu_oai(gate, up, limit, gate_alpha) if activation == "swiglu_oai" else activate(gate, activation) * up


def quantized_grouped_matmul(x: Tensor, codes: Tensor, scales: Tensor, offs: Tensor, zeros: Optional[Tensor] = None,
                             bias: Optional[Tensor] = None, row_of: Optional[Tensor] = None,
                             row_scale: Optional[Tensor] = None, *, n: int, group: int, weights: str,
                             activation: Optional[str] = None, gated: bool = False, limit: float = 7.0,
                             gate_alpha: float = 1.702, out: Optional[Tensor] = None,
                             out_dtype: Optional[torch.dtype] = None) -> Tensor:
    ends = list(map(int, offs.tolist()))
    experts = layouts.unpack_experts(layouts.Rows(codes, scales, zeros), len(ends), n, x.shape[-1], weights, gated)
    x = x if row_of is None else x.index_select(0, row_of)
    out = x.new_zeros((x.shape[0], n), dtype=out_dtype) if out is None else out
    begin = 0
    for expert, (own, end) in enumerate(zip(experts, ends)):
        sums = x[begin:end].float() @ layouts.dequantized(own, weights, group).t()
        if bias is not None:
            sums = sums + bias[expert].float()
        results = _of_experts(sums, activation, gated, False, limit, gate_alpha)
        out[begin:end] = results if row_scale is None else results * row_scale[begin:end, None]
        begin = end
    return out


def grouped_matmul(a: Tensor, b: Tensor, offs: Tensor, scale_a: Optional[Tensor] = None,
                   scale_b: Optional[Tensor] = None, row_of: Optional[Tensor] = None,
                   bias: Optional[Tensor] = None, *, activation: Optional[str] = None, gated: bool = False,
                   interleaved: bool = False, limit: float = 7.0, gate_alpha: float = 1.702,
                   out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    a = a if row_of is None else a.index_select(0, row_of)
    if out is None:
        dtype = out_dtype or (torch.bfloat16 if a.element_size() == 1 else a.dtype)
        out = a.new_empty((a.shape[0], b.shape[2] // 2 if gated else b.shape[2]), dtype=dtype)
    begin, ends = 0, list(map(int, offs.tolist()))
    for group, end in enumerate(ends):
        rows, weight = a[begin:end], b[group].t()
        if scale_a is not None and scale_b is not None:
            rows, weight = _dequantised(rows, weight, scale_a[begin:end], scale_b[group])
        sums = _wide(rows) @ _wide(weight).t()
        if bias is not None:
            sums = sums + _wide(bias[group])
        out[begin:end] = _of_experts(sums, activation, gated, interleaved, limit, gate_alpha)
        begin = end
    return out


def choose_experts(logits: Tensor, bias: Optional[Tensor] = None, real: Optional[Tensor] = None, *, top: int,
                   score: Optional[str] = None, softmax_at: Optional[str] = None, renormalise: Optional[str] = None,
                   expert_groups: Optional[int] = None, kept_groups: Optional[int] = None,
                   group_score: Optional[str] = None, factor: Optional[float] = None, softcap: Optional[str] = None,
                   cap: Optional[float] = None) -> Tuple[Tensor, Tensor]:
    groups = expert_groups or 1
    functions: Dict[Optional[str], Callable[[Tensor], Tensor]] = {
        "softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid, "none": lambda x: x,
        "sqrt_softplus": lambda x: functional.softplus(x).sqrt()}
    x = logits.float()
    if softcap == "tanh":
        limit = 30.0 if cap is None else cap
        x = limit * torch.tanh(x / limit)
    scores = x if softmax_at == "after" else functions[score or "softmax"](x)
    if bias is not None:
        keys = scores + bias.float()
    else:  # logits have the order of their scores
        keys = logits.float() if groups == 1 or group_score == "best" else scores
    ids = keys.sort(stable=True, dim=-1, descending=True).indices
    if (kept_groups or groups) < groups:
        best = keys.unflatten(-1, (groups, -1)).sort(-1, descending=True).values
        of_groups = best[..., 0] if group_score == "best" else best[..., 0] + best[..., 1]
        left = of_groups.sort(stable=True, dim=-1, descending=True).indices[..., kept_groups:]
        is_left = torch.zeros_like(of_groups, dtype=torch.uint8).scatter(-1, left, 1)
        of_ids = is_left.gather(-1, ids // (x.shape[-1] // groups))
        ids = ids.gather(-1, of_ids.sort(stable=True, dim=-1).indices)
    ids = ids[..., :top]
    weights = scores.gather(-1, ids)
    if softmax_at == "after":
        weights = weights.softmax(-1)
    elif renormalise == "sum":
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    weights = torch.zeros_like(weights) if factor == 0 else weights * (1.0 if factor is None else factor)
    if real is not None:
        counts = (torch.arange(ids[..., 0].numel(), device=ids.device) < real).view(*ids.shape[:-1], 1)
        ids, weights = ids.masked_fill(~counts, -1), weights.masked_fill(~counts, 0)
    return ids.int(), weights


def order_experts(ids: Tensor, *, experts: int, first: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    own = ids.flatten().long() - first
    own = torch.where((own >= 0) & (own < experts), own, experts)
    ordered, pairs = own.sort(stable=True)
    here = torch.arange(experts, device=ids.device)
    ends = torch.searchsorted(ordered, here, right=True, out_int32=True)
    rows = torch.arange(own.numel(), device=ids.device)
    place = torch.empty_like(rows).scatter(0, pairs, rows).masked_fill(own == experts, -1)
    return ends, (pairs // ids.shape[-1]).int(), place.view(ids.shape).int()


def combine_experts(y: Tensor, place: Tensor, weights: Optional[Tensor] = None, shared: Optional[Tensor] = None,
                    residual: Optional[Tensor] = None) -> Tensor:
    rows = _wide(y)[place.clamp(min=0).long()]
    rows = rows if weights is None else rows * weights.unsqueeze(-1)
    result = rows.masked_fill((place < 0).unsqueeze(-1), 0).sum(-2)
    for other in (shared, residual):
        result = result if other is None else result + _wide(other)
    return result.to(y.dtype)
