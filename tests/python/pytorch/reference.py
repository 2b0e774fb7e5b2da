"""What operators of kernwright compute, in PyTorch."""

import torch
from kernwright.torch.ops import plain
from kernwright.torch.ops.sequences import _attention_result

F = torch.nn.functional
ACTIVATIONS = {None: lambda x: x, "silu": F.silu, "gelu_erf": F.gelu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def rms(x, weight=None, eps=1e-6):
    wide = x.float()
    wide = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide if weight is None else wide * weight.float()).to(x.dtype)


def linear(x, weight, bias=None, residual=None, *, activation=None, out_dtype=None):
    result = x.float() @ weight.float().mT
    if bias is not None:
        result = result + bias.float()
    result = ACTIVATIONS[activation](result)
    if residual is not None:
        result = result + residual.float()
    return result.to(out_dtype or x.dtype)


def matmul(a, b, bias=None, residual=None, **named):
    return linear(a, b.mT, bias, residual, **named)


def gated_linear(x, weight, norm_weight=None, *, activation="silu", eps=1e-6):
    if norm_weight is not None:
        x = rms(x, norm_weight, eps)
    gate, up = (x.float() @ weight.float().t()).chunk(2, -1)
    return (ACTIVATIONS[activation](gate) * up).to(x.dtype)


def in_blocks(scales, rows, columns, of_rows):
    """Scales of blocks for every element."""
    return scales.repeat_interleave(of_rows, 0)[:rows].repeat_interleave(128, 1)[:, :columns]


def scaled_matmul(a, b, scale_a, scale_b, bias=None, residual=None, *, activation=None,
                  out_dtype=None):
    rows, weight = a.float().flatten(0, -2), b.float().t()
    if isinstance(scale_a, torch.Tensor) and scale_b.shape == (1, len(weight)):  # of rows
        scale_b = scale_b.t()
    elif isinstance(scale_a, torch.Tensor):
        scale_a = in_blocks(scale_a, *rows.shape, 1)
        scale_b = in_blocks(scale_b.t(), *weight.shape, 128)
    return linear((rows * scale_a).view(a.shape), weight * scale_b, bias, residual,
                  activation=activation, out_dtype=out_dtype or torch.bfloat16)


def grouped_matmul(a, b, offs, scale_a=None, scale_b=None, row_of=None, bias=None, *, activation=None, gated=False,
                   interleaved=False, limit=7.0, gate_alpha=1.702, out_dtype=None):
    assert scale_a is None and scale_b is None
    a = a if row_of is None else a[row_of]
    result = a.new_full((a.shape[0], b.shape[2] // 2 if gated else b.shape[2]), torch.nan)
    for group, (begin, end) in enumerate(zip([0, *offs.tolist()], offs.tolist())):
        weight, shift = b[group].t(), torch.zeros(b.shape[2]) if bias is None else bias[group]
        if interleaved:
            weight, shift = (torch.cat((part[0::2], part[1::2])) for part in (weight, shift))
        sums = linear(a[begin:end].float(), weight.float(), shift.float())
        if activation == "swiglu_oai":
            gate, up = sums.chunk(2, -1)
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            sums = gate * torch.sigmoid(gate_alpha * gate) * (up + 1)
        elif gated:
            gate, up = sums.chunk(2, -1)
            sums = plain.activate(gate, activation) * up
        else:
            sums = plain.activate(sums, activation)
        result[begin:end] = sums
    return result.to(out_dtype or a.dtype)


def writing(function):
    """The form of an operator that writes to `out`: where the result has something."""
    def write(*arguments, out, **named):
        result = function(*arguments, **named)
        out.copy_(torch.where(result.isnan(), out, result))

    return write


def qkv_linear(x, weight, bias=None, norm_weight=None, *, kv_heads, head_dim, eps=1e-6):
    if norm_weight is not None:
        x = rms(x, norm_weight, eps)
    result = linear(x, weight, bias)
    result = result.unflatten(-1, (-1, head_dim))
    q, k, v = result.split([result.shape[-2] - 2 * kv_heads, kv_heads, kv_heads], -2)
    return q.contiguous(), k.contiguous(), v.contiguous()


def rope(q, k, cos, sin, *, interleaved=False):
    def rotate(x):
        shape = (*q.shape[:-2], 1, cos.shape[-1])
        c, s = cos.view(shape), sin.view(shape)
        first, second = (x.float()[..., ::2], x.float()[..., 1::2]) if interleaved else x.float().chunk(2, -1)
        parts = first * c - second * s, second * c + first * s
        return (torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)).to(x.dtype)

    return rotate(q), rotate(k)


def norm_rope(q, k, v, q_norm, k_norm, cos, sin, *, eps=1e-6):
    batch = q.shape[0]
    normal = rms(q.float(), q_norm, eps), rms(k.float(), k_norm, eps)
    turned = rope(*normal, cos.repeat(batch, 1), sin.repeat(batch, 1))
    return turned[0].to(q.dtype), turned[1].to(k.dtype), v.clone()


def attend(q, k, v, mask, scale, softcap=None, sinks=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    groups = q.shape[1] // k.shape[1]
    k, v = (part.float().repeat_interleave(groups, 1) for part in (k, v))
    logits = scale * q.float() @ k.transpose(2, 3)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~mask, -torch.inf)
    if sinks is not None:  # a further key, whose value is 0
        logits = torch.cat((logits, sinks.view(-1, 1, 1).expand(*logits.shape[:-1], 1)), -1)
    return (logits.softmax(-1)[..., :k.shape[2]] @ v).to(q.dtype)


def attention(q, k, v, sinks=None, alibi_slopes=None, kv_lengths=None, seen=None, bias=None, *,
              causal=False, scale=None, window=None, softcap=None, causal_first=False):
    assert alibi_slopes is None and bias is None
    (batch, _, queries, _), keys = q.shape, k.shape[2]
    lengths = (torch.full((batch,), keys) if kv_lengths is None else kv_lengths).view(-1, 1, 1, 1)
    own = (0 if causal_first else lengths - queries) + torch.arange(queries)[:, None]
    at = torch.arange(keys)
    mask = (at < lengths) & (own == own)
    if causal or causal_first or window:
        mask = mask & (at <= own)
    if window:
        mask = mask & (at > own - window)
    if seen is not None:
        mask = mask & seen
    result = _attention_result(q, v)
    result.copy_(attend(q, k, v, mask, scale, softcap, sinks))
    return result


def append_attention(q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm=None, k_norm=None,
                     sinks=None, *, scale=None, eps=1e-6, window=None, softcap=None,
                     interleaved=False):
    batch, kv_heads, length, head_dim = k.shape
    query, key = q.view(batch, 1, -1, head_dim), k_new.view(batch, 1, kv_heads, head_dim)
    if q_norm is not None:
        query, key = rms(query, q_norm, eps), rms(key, k_norm, eps)
    places = kv_lengths.long() - 1
    turns = [table[places.clamp(max=len(table) - 1)].view(batch, 1, -1) for table in (cos, sin)]
    query, key = rope(query, key, *turns, interleaved=interleaved)
    rows = torch.arange(batch)[(places >= 0) & (places < length)]  # what is written behind the end is not seen
    places = places[rows]
    k[rows, :, places] = key[rows, 0]
    v[rows, :, places] = v_new.view(batch, kv_heads, head_dim)[rows]
    at, lengths = torch.arange(length), kv_lengths[:, None, None, None]
    mask = (at < lengths) & (at >= lengths - (window or length))
    return attend(query.transpose(1, 2), k, v, mask, scale, softcap, sinks).reshape(q.shape)


def stacked(function):
    """The form of an operator that takes the members of what it reads as one."""
    def call(x, weight, *rest, **named):
        rest = [torch.cat(given) if isinstance(given, list) else given for given in rest]
        return function(x, torch.cat(weight), *rest, **named)

    return call


IMPLEMENTATIONS = {
    "linear": linear, "matmul": matmul, "gated_linear": gated_linear, "qkv_linear": qkv_linear,
    "gated_linear.members": stacked(gated_linear), "qkv_linear.members": stacked(qkv_linear),
    "linear.out": writing(linear), "matmul.out": writing(matmul),
    "scaled_matmul": scaled_matmul, "scaled_matmul.Scalar": scaled_matmul,
    "scaled_matmul.out": writing(scaled_matmul), "scaled_matmul.Scalar_out": writing(scaled_matmul),
    "grouped_matmul": grouped_matmul, "grouped_matmul.out": writing(grouped_matmul),
    # test_quantized.py compares these.
    "quantized_linear": plain.quantized_linear, "quantized_gated_linear": plain.quantized_gated_linear,
    # test_quantized_rows.py compares these.
    "quantize_rows": plain.quantize_rows, "quantized_norm": plain.quantized_norm, "quantized_gate": plain.quantized_gate,
    # test_quantized_experts.py compares it.
    "quantized_grouped_matmul": plain.quantized_grouped_matmul,
    "quantized_grouped_matmul.out": lambda *given, **named: plain.quantized_grouped_matmul(*given, **named),
    # test_routing.py compares these.
    "choose_experts": plain.choose_experts, "order_experts": plain.order_experts,
    "combine_experts": plain.combine_experts,
    "rms_norm": rms, "rope": rope, "norm_rope": norm_rope, "attention": attention, "append_attention": append_attention,
    "add_rms_norm": lambda x, residual, weight=None, eps=1e-6:
        (rms(x + residual, weight, eps), x + residual),
    "silu_and_mul": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "silu_mul": lambda gate, up: F.silu(gate) * up,
    "softmax": lambda x, mask=None, *, scale=1.0, causal=False: (scale * x).softmax(-1),
}
