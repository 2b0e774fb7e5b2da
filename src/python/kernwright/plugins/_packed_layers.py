"""Engines' linear layers with weights of 4 and 8 bits, as kernwright packs them. vLLM and SGLang describe them by
the same configuration, and their parameters say how their dims lie."""

from typing import Any, Dict, List, Optional

import torch
from torch import Tensor, nn

from ..torch._quantized import QuantizedWeight

DTYPES = (torch.bfloat16, torch.float16)
_BITS = {"uint4": 4, "uint4b8": 4, "uint8": 8, "uint8b128": 8}
_PACKED = "kernwright_weight"  # the child of a layer that has its packed weights


def those_that_hold(reasons: Dict[str, bool]) -> List[str]:
    return [reason for reason, holds in reasons.items() if holds]


def reasons_against(c: Any) -> List[str]:
    """Returns why a layer is left, by its configuration."""
    columns, part = c.full_weight_shape[0], c.partition_weight_shape[0]
    group = part if c.group_size == -1 else c.group_size
    kind = str(c.weight_type)
    return those_that_hold({
        f"weights of {kind} {'with' if c.zero_points else 'without'} zero points":
            kind not in _BITS or ("b" in kind) == c.zero_points,
        f"activations of {c.act_type}": c.act_type not in DTYPES,
        f"results of {getattr(c, 'out_type', None)}": getattr(c, "out_type", None) not in (None, c.act_type),
        f"{part} columns, no multiple of 8": part % 8 != 0,
        f"groups of {group} of {part} columns": part % group != 0 or group != part and group % 16 != 0,
        f"{part} of {columns} columns sorted by group": getattr(c, "has_g_idx", False) and part != columns})


def _rows(parameter: Any, packed_along: str = "") -> Tensor:
    """Returns a parameter as [output, input]. If it has several codes in a word, these follow each other along the
    input, or along the output."""
    output = parameter.output_dim
    if packed_along and parameter.packed_dim != (output if packed_along == "output" else 1 - output):
        raise ValueError(f"a parameter {list(parameter.shape)} is packed along dim {parameter.packed_dim}, and along "
                         f"its {packed_along} expected, whose outputs are dim {output}")
    rows: Tensor = parameter.data if output == 0 else parameter.data.t()
    return rows.contiguous()


def pack(layer: nn.Module, c: Any, codes: str, scales: str, zeros: Optional[str], order: Optional[str]) -> None:
    """Packs a layer's weights from its parameters of these names."""
    (columns, rows), names, given = c.partition_weight_shape, [codes, scales], {}
    if c.zero_points and zeros is not None:
        names.append(zeros)
        given["weight_zero_point"] = _rows(getattr(layer, zeros), "output")
    if getattr(c, "has_g_idx", False) and order is not None:
        names.append(order)
        given["weight_g_idx"] = getattr(layer, order).data
    keep(layer, names, QuantizedWeight.from_compressed_tensors(
        _rows(getattr(layer, codes), "input"), _rows(getattr(layer, scales)), weight_shape=(rows, columns),
        bits=_BITS[str(c.weight_type)], group=c.group_size, **given))


def keep(layer: nn.Module, names: List[str], weight: QuantizedWeight) -> None:
    """Gives a layer its packed weight, and leaves empty tensors in the places of its own."""
    for name in names:
        own = getattr(layer, name)
        own.data = own.data.new_empty(0)
    setattr(layer, _PACKED, weight)


def weight_of(layer: nn.Module) -> Any:
    """Returns the packed weight, None if the layer has its own."""
    return layer._modules.get(_PACKED)
