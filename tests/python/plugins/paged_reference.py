"""The attention of one sequence in fp32, by PyTorch."""

import torch


def attended(of, q, k, v):
    """q: [new, heads, head_dim]; k, v: [keys, kv_heads, head_dim], the new tokens among them. `of` has what
    PagedAttention has."""
    new, keys = len(q), len(k)
    k, v = ((x.float() * scale).repeat_interleave(of.heads // of.kv_heads, 1)
            for x, scale in zip((k, v), of.scales or (1.0, 1.0)))
    logits = torch.einsum("qhd,khd->hqk", q.float(), k) * of.scale
    if of.softcap:
        logits = of.softcap * torch.tanh(logits / of.softcap)
    own = torch.arange(new, device=q.device)[:, None] + keys - new
    at = torch.arange(keys, device=q.device)
    if of.slopes is not None:
        logits = logits - of.slopes[:, None, None] * (own - at)
    seen = (at <= own) & (at > own - of.window) if of.window else at <= own
    logits = logits.masked_fill(~seen, -torch.inf)
    if of.sinks is not None:
        logits = torch.cat((logits, of.sinks[:, None, None].expand(-1, new, 1)), -1)
    return torch.einsum("hqk,khd->qhd", logits.softmax(-1)[..., :keys], v)
