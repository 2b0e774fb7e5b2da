"""Quantized weights of the experts of a mixture, made from the tensors of checkpoints."""

from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _checkpoints as layouts
from ._checkpoints import Rows
from ._quantized import (_SCALES, PackedBuffers, QuantizedWeight, _expect, _expect_bits, _group_of, _pack_in_torch,
                         _pack_on_gpu)

_GATES = ("none", "stacked", "interleaved")


def _sizes(name: str, tensor: Any) -> Tuple[int, int, int]:
    if not isinstance(tensor, Tensor) or tensor.dim() != 3:
        raise ValueError(f"{name} is {list(tensor.shape) if isinstance(tensor, Tensor) else tensor}, and a matrix "
                         "for each expert expected")
    return tensor.shape[0], tensor.shape[1], tensor.shape[2]


class QuantizedExperts(PackedBuffers):
    """The weights of the experts of a mixture in 4 or 8 bits, in the layout that kernels read.
    buffers without gradients, which move with a model, and stay as they are if its dtype is changed.

    codes, scales, zeros: as the operation pack_weights writes them, no zeros if every zero point is
        the middle of the codes
    bias: [experts, n], with a gate [experts, 2 * n], n elements of gates and then of the rows that
        they open, or None
    experts; n: columns of a result; k; group: columns that share a scale; weights: the code, "int4",
        "int8" or "mxfp4"; gated: n rows of gates and n that they open

    `gate` of the constructors says how rows of gates lie in the checkpoint: "none", there are none,
    "stacked", all of them first, or "interleaved", a gate and then the row that it opens, as in
    gpt-oss; the bias is in the same order. Errors: ValueError naming what does not fit."""

    codes: Tensor
    scales: Tensor
    zeros: Optional[Tensor]
    bias: Optional[Tensor]

    def __init__(self, experts: int, n: int, k: int, group: int, weights: str, gate: str, codes: Tensor,
                 scales: Tensor, zeros: Optional[Tensor], bias: Optional[Tensor]) -> None:
        super().__init__()
        self.experts, self.n, self.k, self.group, self.weights = experts, n, k, group, weights
        self.gate, self.gated = gate, gate != "none"
        self._expect_sizes()
        pack = _pack_on_gpu if codes.is_cuda else _pack_in_torch
        with torch.no_grad():
            blocks: Rows = pack(codes.flatten(0, 1).contiguous(), scales.flatten(0, 1).contiguous(),
                                None if zeros is None else zeros.flatten(0, 1).contiguous(), "rows",
                                "none" if zeros is None else "code", weights, group, experts, gate)
            if bias is not None:
                if gate == "interleaved":
                    bias = bias.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)
                bias = bias.detach().clone(memory_format=torch.contiguous_format)
        self._keep(blocks, bias=bias)

    @classmethod
    def _of(cls, weights: str, group: int, gate: str, codes: Tensor, k: int, scales: Tensor,
            zeros: Optional[Tensor], bias: Optional[Tensor]) -> "QuantizedExperts":
        if gate not in _GATES:
            raise ValueError(f"gate is {gate!r}, and 'none', 'stacked' or 'interleaved' expected")
        experts, rows, _ = codes.shape
        if gate != "none" and rows % 2 != 0:
            raise ValueError(f"an expert has {rows} rows of weights, and gates with as many others expected")
        if bias is not None:
            _expect("bias", bias, (experts, rows), *_SCALES)
        return cls(experts, rows if gate == "none" else rows // 2, k, group, weights, gate, codes, scales,
                   zeros, bias)

    @classmethod
    def from_mxfp4(cls, blocks: Tensor, scales: Tensor, bias: Optional[Tensor] = None, *,
                   gate: str = "none") -> "QuantizedExperts":
        """Packs experts in MXFP4: blocks uint8 [experts, rows, k / 32, 16] or [experts, rows, k / 2],
        scales uint8 [experts, rows, k / 32], bias [experts, rows]. gpt-oss has gate="interleaved" in
        its first product."""
        experts, rows, groups = _sizes("scales", scales)
        _expect("scales", scales, (experts, rows, groups), torch.uint8)
        codes = blocks.flatten(2) if blocks.dim() == 4 else blocks
        _expect("blocks", codes, (experts, rows, groups * 16), torch.uint8)
        return cls._of("mxfp4", 32, gate, codes, groups * 32, scales, None, bias)

    @classmethod
    def from_dequantized(cls, weight: Tensor, bias: Optional[Tensor] = None, *,
                         gate: str = "none") -> "QuantizedExperts":
        """Packs experts [experts, rows, k] that were dequantized from MXFP4, exactly. Errors: ValueError also if
        MXFP4 does not hold an element."""
        experts, rows, k = _sizes("weight", weight)
        _expect("weight", weight, (experts, rows, k), *_SCALES)
        if k % 32 != 0:
            raise ValueError(f"weight has {k} columns, and groups of 32 expected")
        made = []
        for expert, own in enumerate(weight.detach()):
            of_expert = layouts.mxfp4_of(own)
            if of_expert is None:
                raise ValueError(f"weight of expert {expert} has elements that MXFP4 does not hold")
            made.append(of_expert)
        return cls._of("mxfp4", 32, gate, torch.stack([own.codes for own in made]), k,
                       torch.stack([own.scales for own in made]), None, bias)

    @classmethod
    def join(cls, weights: Sequence[Sequence[QuantizedWeight]], bias: Optional[Tensor] = None, *,
             gate: str = "none") -> "QuantizedExperts":
        """Packs the weights of each expert, one or several whose rows follow each other, such as a gate and what it
        opens. Errors: ValueError also if they differ, or if columns are sorted by activation."""
        first = weights[0][0]
        for expert, own in enumerate(weights):
            for weight in own:
                for name, found, expected in (("k", weight.k, first.k), ("group", weight.group, first.group),
                                              ("weights", weight.weights, first.weights),
                                              ("scales", weight.scales.dtype, first.scales.dtype)):
                    if found != expected:
                        raise ValueError(f"{name} of expert {expert} is {found}, and {expected} of the first one")
                if weight.order is not None:
                    raise ValueError(f"the columns of expert {expert} are sorted by activation, and experts share an "
                                     "order")
        sizes = [sum(weight.n for weight in own) for own in weights]
        if len(set(sizes)) != 1:
            raise ValueError(f"experts have {sorted(set(sizes))} rows, and as many of each expected")
        rows = [[layouts.unpack(Rows(weight.codes, weight.scales, weight.zeros), weight.n, weight.k, weight.weights)
                 for weight in own] for own in weights]

        def all_of(part_of: Callable[[Rows], Tensor]) -> Tensor:
            return torch.stack([torch.cat([part_of(part) for part in own]) for own in rows])

        middle, zeros = layouts.middle_of(layouts.bits_of(first.weights)), None
        if any(part.zeros is not None for own in rows for part in own):
            zeros = all_of(lambda part: torch.full_like(part.scales, middle, dtype=torch.uint8)
                           if part.zeros is None else part.zeros)
        codes, scales = all_of(lambda part: part.codes), all_of(lambda part: part.scales)
        return cls._of(first.weights, first.group, gate, codes, first.k, scales, zeros, bias)

    @classmethod
    def from_compressed_tensors(cls, weight_packed: Tensor, weight_scale: Tensor, bias: Optional[Tensor] = None,
                                *, gate: str = "none", bits: int = 4,
                                group: Optional[int] = None) -> "QuantizedExperts":
        """Packs experts of compressed-tensors' pack-quantized without zero points, stacked by expert:
        weight_packed int32 [experts, rows, k * bits / 32], weight_scale [experts, rows, groups]."""
        _expect_bits(bits)
        experts, rows, groups = _sizes("weight_scale", weight_scale)
        _expect("weight_scale", weight_scale, (experts, rows, groups), *_SCALES)
        k = _sizes("weight_packed", weight_packed)[2] * 32 // bits
        _expect("weight_packed", weight_packed, (experts, rows, k * bits // 32), torch.int32)
        return cls._of(f"int{bits}", _group_of(k, groups, group), gate, layouts.bytes_of(weight_packed), k,
                       weight_scale, None, bias)

    def _rows_of(self, expert: int) -> Rows:
        own = Rows(*(part if part is None else part.chunk(self.experts)[expert]
                     for part in (self.codes, self.scales, self.zeros)))
        return layouts.unpack_experts(own, 1, self.n, self.k, self.weights, self.gated)[0]

    def matrix_of(self, expert: int) -> Tensor:
        """Returns the matrix [rows, k] of an expert in fp32, with a gate n rows of gates and then n that they
        open."""
        return layouts.dequantized(self._rows_of(expert), self.weights, self.group)

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Returns the matrices [experts, rows, k], each element rounded once to `dtype`, with a gate n
        rows of gates and then n that they open."""
        return torch.stack([self.matrix_of(expert).to(dtype) for expert in range(self.experts)])

    def as_it_was(self, rows: Tensor) -> Tensor:
        """Returns the rows of all experts, [experts, rows, ...], in the order of the checkpoint."""
        return rows.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2) if self.gate == "interleaved" else rows

    def to_mxfp4(self) -> Tuple[Tensor, Tensor]:
        """Undoes `from_mxfp4`: returns blocks [experts, rows, k / 32, 16] and scales."""
        rows = [self._rows_of(expert) for expert in range(self.experts)]
        blocks = self.as_it_was(torch.stack([own.codes for own in rows]))
        return blocks.unflatten(2, (-1, 16)), self.as_it_was(torch.stack([own.scales for own in rows]))

    def extra_repr(self) -> str:
        return (f"experts={self.experts}, n={self.n}, k={self.k}, group={self.group}, weights={self.weights!r}, "
                f"gated={self.gated}")
