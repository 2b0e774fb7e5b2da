"""Weights that kernels read as one: parameters one behind the other in one allocation."""

from typing import Any, List, Sequence

import torch
from torch import nn

# Linear layers with one input, in the order in which kernels read their rows.
_TOGETHER = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")


def is_shared(parameter: nn.Parameter) -> bool:
    """Returns true if another tensor has a part of its memory."""
    storage = parameter.untyped_storage()
    return (storage.nbytes() != parameter.numel() * parameter.element_size()
            # The parameter and `storage` itself count.
            or torch._C._storage_Use_Count(storage._cdata) > 2)


def pack_parameters(parameters: Sequence[nn.Parameter], one_storage: bool) -> bool:
    """Moves the parameters into one allocation, one behind the other, and says whether it did. They
    stay the same objects. Each has a storage of its own, so that savers see tensors that share
    nothing, or all have one, by which a compiler sees that they are together."""
    first = parameters[0]
    place, together = first.data_ptr(), True
    for parameter in parameters:
        if (type(parameter) is not nn.Parameter or parameter.is_meta
                or parameter.dtype is not first.dtype or parameter.device != first.device
                or parameter.shape[1:] != first.shape[1:]):
            return False
        together = together and parameter.is_contiguous() and parameter.data_ptr() == place
        place += parameter.numel() * parameter.element_size()
    if together or len({id(parameter) for parameter in parameters}) != len(parameters) or any(
            is_shared(parameter) for parameter in parameters):
        return False
    rows = [parameter.shape[0] for parameter in parameters]
    packed = torch.empty((sum(rows), *first.shape[1:]), dtype=first.dtype, device=first.device)
    for parameter, part in zip(parameters, packed.split(rows)):
        part.copy_(parameter.detach())
        parameter.data = part if one_storage else torch.from_dlpack(part)
    return True


def are_together(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns true if contiguous tensors, also fake ones, are one behind the other in one storage."""
    first, place = tensors[0], tensors[0].storage_offset()
    for tensor in tensors:
        if (tensor.dtype is not first.dtype or tensor.shape[1:] != first.shape[1:] or not tensor.is_contiguous()
                or tensor.untyped_storage()._cdata != first.untyped_storage()._cdata
                or tensor.storage_offset() != place):
            return False
        place += tensor.numel()
    return True


@torch.no_grad()
def pack(model: nn.Module) -> List[str]:
    """Moves the weights of linear layers with one input (q_proj, k_proj and v_proj; gate_proj and
    up_proj) into one allocation each, for `fuse_in_inductor`, which makes one product of each. Call
    it on the device that the model runs on, before it is compiled.

    Parameters stay the same objects with the same values, and nothing is held twice. Weights that
    are shared with others stay where they are. If one of them is moved later, as by `model.to`,
    compiled graphs multiply them one by one. Returns the names of the layers whose weights were
    moved. Errors: TypeError if the model is not a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, and a torch.nn.Module expected")
    moved = []
    for name, module in model.named_modules():
        for names in _TOGETHER:
            layers: List[Any] = [getattr(module, each, None) for each in names]
            if not all(isinstance(layer, nn.Linear) for layer in layers):
                continue
            members = [[layer.weight for layer in layers]]
            if all(layer.bias is not None for layer in layers):
                members.append([layer.bias for layer in layers])
            if any([pack_parameters(parameters, one_storage=True) for parameters in members]):
                moved += [f"{name}.{each}".lstrip(".") for each in names]
    return moved
