"""Calls of torch.nn.functional.scaled_dot_product_attention: PyTorch's own samples, and masks of all
kinds."""

import torch


def own_samples(device, dtype):
    """Pairs of arguments and named ones: those with which PyTorch tests every backend. Errors:
    ImportError if PyTorch has no tests that can be imported."""
    from torch.testing._internal.common_methods_invocations import op_db

    name = "nn.functional.scaled_dot_product_attention"
    operator = next(one for one in op_db if one.name == name)
    return [((sample.input, *sample.args), sample.kwargs)
            for sample in operator.sample_inputs(device, dtype, requires_grad=False)]


def masked_samples(device, dtype):
    """The same with masks that are shared, lie anywhere or hide whole rows, with grouped heads, and
    with other numbers of queries than of keys."""
    generator = torch.Generator().manual_seed(1)

    def new(*shape, dtype=dtype):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    def seen(*shape):
        return (torch.rand(*shape, generator=generator) < 0.7).to(device)

    q, k, v = new(2, 4, 9, 64), new(2, 4, 21, 64), new(2, 4, 21, 72)
    grouped = new(2, 2, 21, 64), new(2, 2, 21, 64)
    nothing = seen(9, 21)
    nothing[3] = False
    lowest = new(9, 21, dtype=torch.float32)
    lowest[2:, 5:] = -torch.inf
    padded = seen(2, 1, 9, 32)[..., :21]
    masks = [seen(9, 21), seen(2, 1, 9, 21), seen(2, 4, 9, 21), seen(1, 4, 9, 21), seen(4, 1, 21),
             seen(2, 1, 1, 21), seen(9, 1), seen(2, 1, 9, 21).expand(2, 4, 9, 21), nothing,
             padded, padded.transpose(0, 1).contiguous().transpose(0, 1), new(9, 21), new(2, 4, 9, 21),
             new(1, 1, 1, 21), new(1, 4, 9, 21, dtype=torch.float32), lowest]
    calls = [((q, k, v), {"attn_mask": mask}) for mask in masks]
    calls += [((q, *grouped), {"attn_mask": mask, "enable_gqa": True}) for mask in masks]
    calls += [
        ((q, *grouped), {"is_causal": True, "enable_gqa": True}),
        ((k, q, q), {"is_causal": True}), ((q, k, v), {"is_causal": True, "scale": 0.3}),
        ((q, grouped[0][:, :1].contiguous(), grouped[1][:, :1].contiguous()), {"attn_mask": masks[1]}),
        ((q[0, 0], k[0, 0], v[0, 0]), {"attn_mask": masks[0]}),
        ((q[0], k[0], v[0]), {"attn_mask": seen(4, 9, 21)}),
        ((q[0, 0], k[0], v[0]), {"attn_mask": seen(4, 1, 21)}),
        ((q[:, None], k[:, None], v[:, None]), {"attn_mask": seen(2, 1, 4, 9, 21)}),
        ((q[:, None], k[:, None], v[:, None]), {"is_causal": True})]
    return calls


def named(arguments, options):
    """What a call is, for messages."""
    def text(value):
        if not isinstance(value, torch.Tensor):
            return str(value)
        return f"{str(value.dtype)[6:]}{list(value.shape)}"

    return ", ".join([*map(text, arguments), *(f"{name}={text(value)}" for name, value in
                                               options.items())])
