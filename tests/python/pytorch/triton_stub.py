"""Stands in for the kernels that Transformers loads gpt-oss with: the same names, in plain PyTorch."""

import dataclasses
import types

import torch


class Layout:
    """Keeps a tensor mirrored along its last dim."""

    @staticmethod
    def unswizzle_data(data):
        return data.flip(-1)


class Strided:
    @staticmethod
    def unswizzle_data(data):
        return data


@dataclasses.dataclass
class Converted:
    storage: types.SimpleNamespace
    shape: torch.Size


def convert_layout(tensor, layout, **_):
    data = tensor.flip(-1) if layout is Layout else tensor
    return Converted(types.SimpleNamespace(data=data, layout=layout), tensor.shape)


def routing(logits, top):
    values, index = logits.topk(top)
    return types.SimpleNamespace(index=index, gate_scal=values.softmax(-1)), None, None


def matmul_ogs(x, weight, bias, data, gather_indx=None, scatter_indx=None, precision_config=None, gammas=None,
               fused_activation=None):
    """Rows are those of each token's experts in turn. The second product adds them up."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    own, scales = (part.storage.layout.unswizzle_data(part.storage.data).mT.contiguous()
                   for part in (weight, precision_config.weight_scale))
    dense = convert_moe_packed_tensors(own.unflatten(2, (-1, 16)), scales, dtype=torch.float32)
    of = data.index.flatten()
    rows = x.repeat_interleave(data.index.shape[1], 0) if gammas is None else x
    sums = (rows.float()[:, None] @ dense[of])[:, 0] + bias[of]
    if fused_activation is not None:
        alpha, limit = fused_activation.numbers
        gates, ups = sums[:, ::2].clamp(max=limit), sums[:, 1::2].clamp(-limit, limit)
        sums = gates * torch.sigmoid(alpha * gates) * (ups + 1)
    if gammas is not None:
        sums = (sums.view(*data.index.shape, -1) * gammas[..., None].float()).sum(1)
    return sums.to(x.dtype)


HUB = types.SimpleNamespace(
    tensor=types.SimpleNamespace(FP4="fp4", convert_layout=convert_layout, wrap_torch_tensor=lambda tensor, dtype=None: tensor),
    tensor_details=types.SimpleNamespace(layout=types.SimpleNamespace(
        StridedLayout=Strided, make_default_matmul_mxfp4_w_layout=lambda mx_axis: (Layout, {}))),
    matmul_ogs=types.SimpleNamespace(
        matmul_ogs=matmul_ogs, FnSpecs=lambda *given: None, FlexCtx=lambda **named: None, InFlexData=lambda: None,
        FusedActivation=lambda specs, numbers, width: types.SimpleNamespace(numbers=numbers),
        PrecisionConfig=lambda weight_scale, flex_ctx: types.SimpleNamespace(weight_scale=weight_scale)),
    swiglu=types.SimpleNamespace(swiglu_fn=None), routing=types.SimpleNamespace(routing=routing))
