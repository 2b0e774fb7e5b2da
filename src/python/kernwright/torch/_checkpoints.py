"""The layouts of quantized weights, in plain PyTorch: those of checkpoints, and the packed one that
kernels read. Between them are rows: codes [n, k * bits / 8], the first of two in the lower half of a
byte, with scales and zero points [n, groups]. All conversions but those to 8 bits are exact."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64  # rows and columns
_ROWS_OF_AWQ = [0, 2, 4, 6, 1, 3, 5, 7]  # by the nibbles of a word
_NIBBLES_OF_AWQ = [0, 4, 1, 5, 2, 6, 3, 7]  # by rows


class Rows(NamedTuple):
    """Quantized weights with a row's codes one after another. `zeros` is None if all of them are in
    the middle of the codes."""
    codes: Tensor
    scales: Tensor
    zeros: Optional[Tensor]


def bits_of(weights: str) -> int:
    return 8 if weights == "int8" else 4


def middle_of(bits: int) -> int:
    """Returns the code of 0 without zero points."""
    return 1 << (bits - 1)


def unpacked(codes: Tensor, bits: int) -> Tensor:
    """Returns a byte for each code of [..., bytes]."""
    if bits == 8:
        return codes
    return torch.stack((codes & 15, codes >> 4), -1).flatten(-2)


def packed(codes: Tensor, bits: int) -> Tensor:
    """Undoes `unpacked`."""
    return codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4


def bytes_of(words: Tensor) -> Tensor:
    """Returns int32 [..., words] as bytes."""
    return words.contiguous().flatten().view(torch.uint8).view(*words.shape[:-1], -1)


def words_of(codes: Tensor) -> Tensor:
    """Undoes `bytes_of`."""
    return codes.contiguous().flatten().view(torch.int32).view(*codes.shape[:-1], -1)


# From checkpoints to rows, and back. Words of checkpoints are four bytes each.

def rows_of_gptq(qweight: Tensor) -> Tensor:
    return qweight.unflatten(1, (-1, 4)).transpose(0, 1).flatten(1)


def gptq_of_rows(codes: Tensor) -> Tensor:
    return codes.unflatten(1, (-1, 4)).transpose(0, 1).flatten(1)


def codes_of_awq(words: Tensor) -> Tensor:
    return unpacked(words, 4).unflatten(-1, (-1, 8))[..., _NIBBLES_OF_AWQ].flatten(-2)


def awq_of_codes(codes: Tensor) -> Tensor:
    return packed(codes.unflatten(-1, (-1, 8))[..., _ROWS_OF_AWQ].flatten(-2), 4)


def in_order(codes: Tensor, order: Tensor, bits: int) -> Tensor:
    """Returns rows of codes with their columns in another order."""
    return packed(unpacked(codes, bits).index_select(1, order), bits)


# The bits of a word of nibbles that are moved, and by how far, where mxfp4 is packed.
_MOVES = ((0x00070007, 6), (0x00080008, 12), (0x00700070, -1), (0x00800080, 5), (0x07000700, -8),
          (0x08000800, 3), (0x70007000, -3), (0x80008000, -2))


def _moved(codes: Tensor, back: bool = False) -> Tensor:
    """Returns bytes of nibbles as mxfp4 is packed, or the other way."""
    words, moved = codes.contiguous().view(torch.int32).long(), 0
    for mask, by in _MOVES:
        from_ = words & (mask if not back else mask << by if by > 0 else mask >> -by)
        left = -by if back else by
        moved = moved | (from_ << left if left > 0 else from_ >> -left)
    return moved.where(moved < 1 << 31, moved - (1 << 32)).int().view(torch.uint8)


# Between rows and the packed layout of kernels, which templates/dequantize_weights/README.md has.

def pack(rows: Rows, weights: str) -> Rows:
    """Does what the operation pack_weights does with source=rows."""
    bits = bits_of(weights)
    codes = unpacked(rows.codes, bits)
    (n, k), groups = codes.shape, rows.scales.shape[1]
    more = -n % BLOCK, -k % BLOCK
    none = middle_of(bits) if weights != "mxfp4" else 0
    if rows.zeros is None:
        codes = functional.pad(codes, (0, more[1]), value=none)
    else:
        codes = torch.cat((codes, rows.zeros[:, -1:].clamp(max=(1 << bits) - 1).expand(n, more[1])), 1)
    codes = functional.pad(codes, (0, 0, 0, more[0]),
                                    value=none if rows.zeros is None else 0)
    # Rows are 64 i + 16 w + 8 h + g, columns 64 j + 16 s + 8 q + 2 c + e.
    places = codes.view(-1, 4, 2, 8, (k + more[1]) // BLOCK, 4, 2, 4, 2)
    if bits == 4:
        places = places.permute(0, 4, 1, 3, 7, 5, 8, 6, 2)
    else:
        places = places.unflatten(5, (2, 2)).permute(0, 4, 1, 5, 3, 8, 6, 7, 2, 9)
    blocks = packed(places.flatten(1), bits).contiguous()
    return Rows(_moved(blocks) if weights == "mxfp4" else blocks, *(
        part if part is None else functional.pad(part, (0, 0, 0, more[0])).view(
            -1, 4, 2, 8, groups).permute(0, 4, 1, 3, 2).flatten(1).contiguous()
        for part in rows[1:]))


def rows_of_gates(n: int) -> int:
    """Returns the packed rows of n gates and of the n rows that these open."""
    return -(-n // 32) * BLOCK


def opened(gates: Rows, ups: Rows, weights: str) -> Rows:
    """Returns gates and the rows that these open in the order of a gated product, 8 of each in turn, both filled
    up to multiples of 32 rows of zeros."""
    more = -gates.codes.shape[0] % 32
    none = 0 if weights == "mxfp4" or gates.zeros is not None else {4: 0x88, 8: 0x80}[bits_of(weights)]

    def in_turn(gate: Tensor, up: Tensor, value: int = 0) -> Tensor:
        both = functional.pad(torch.stack((gate, up)), (0, 0, 0, more), value=value)
        return both.unflatten(1, (-1, 8)).transpose(0, 1).flatten(0, 2)

    return Rows(in_turn(gates.codes, ups.codes, none), in_turn(gates.scales, ups.scales),
                None if gates.zeros is None or ups.zeros is None else in_turn(gates.zeros, ups.zeros))


def closed(rows: Rows, n: int) -> Rows:
    """Undoes `opened`: returns n gates, then the n rows that these open."""
    return Rows(*(part if part is None else part.unflatten(0, (-1, 2, 8)).transpose(0, 1).flatten(1, 2)[:, :n].flatten(
        0, 1) for part in rows))


def _half(part: Tensor, gate: str, half: int) -> Tensor:
    """Returns the gates, 0, or the rows that they open, 1, as contiguous rows."""
    return part.chunk(2)[half] if gate == "stacked" else part[half::2]


def pack_experts(rows: Rows, weights: str, experts: int, gate: str) -> Rows:
    """Does the same for the rows of `experts` matrices, with gates as they are in a checkpoint."""
    made = []
    for one in zip(*(part.chunk(experts) if part is not None else [None] * experts for part in rows)):
        own = Rows(*one)
        if gate != "none":
            own = opened(*(Rows(*(part if part is None else _half(part, gate, half) for part in own))
                           for half in range(2)), weights)
        made.append(pack(own, weights))
    return Rows(*(None if parts[0] is None else torch.cat(parts) for parts in zip(*made)))


def unpack_experts(blocks: Rows, experts: int, n: int, k: int, weights: str, gated: bool) -> List[Rows]:
    """Undoes `pack_experts`: the rows of each expert, with a gate n gates and then the n rows that
    they open."""
    packed_rows = blocks.codes.shape[0] // experts * BLOCK
    made = []
    for one in zip(*(part.chunk(experts) if part is not None else [None] * experts for part in blocks)):
        own = unpack(Rows(*one), packed_rows if gated else n, k, weights)
        made.append(closed(own, n) if gated else own)
    return made


def unpack(blocks: Rows, n: int, k: int, weights: str) -> Rows:
    """Undoes `pack`."""
    bits = bits_of(weights)
    codes = _moved(blocks.codes, back=True) if weights == "mxfp4" else blocks.codes
    codes, columns = unpacked(codes, bits), -(-k // BLOCK)
    if bits == 4:
        places = codes.view(-1, columns, 4, 8, 4, 4, 2, 2, 2).permute(0, 2, 8, 3, 1, 5, 7, 4, 6)
    else:
        places = codes.view(-1, columns, 4, 2, 8, 4, 2, 2, 2, 2).permute(0, 2, 8, 4, 1, 3, 6, 7, 5, 9)
    codes = places.reshape(-1, columns * BLOCK)[:n, :k]
    return Rows(packed(codes, bits).contiguous(), *(
        part if part is None else part.view(part.shape[0], -1, 4, 8, 2).permute(
            0, 2, 4, 3, 1).reshape(part.shape[0] * BLOCK, -1)[:n].contiguous()
        for part in blocks[1:]))


_OF_MXFP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantized(rows: Rows, weights: str, group: int) -> Tensor:
    """Returns w [n, k] in fp32, where every product of a code with a scale of 16 bits is exact."""
    bits = bits_of(weights)
    codes = unpacked(rows.codes, bits)

    def of_columns(part: Tensor) -> Tensor:
        return part.repeat_interleave(group, 1)[:, :codes.shape[1]]

    if weights == "mxfp4":
        table = torch.tensor((*_OF_MXFP4, *(-x for x in _OF_MXFP4)), device=codes.device)
        powers = torch.ldexp(torch.ones_like(rows.scales, dtype=torch.float32), rows.scales.int() - 127)
        powers = powers.masked_fill(rows.scales == 255, torch.nan)
        return table[codes.int()] * of_columns(powers)
    zeros = middle_of(bits) if rows.zeros is None else of_columns(rows.zeros.float())
    return (codes.float() - zeros) * of_columns(rows.scales.float())


def mxfp4_of(matrix: Tensor) -> Optional[Rows]:
    """Returns a matrix [n, k] in mxfp4, None if this does not hold each element exactly, with its sign. A matrix
    that was dequantized from mxfp4 is held, maybe with other scales: if a scale holds a group, so does every smaller
    one by which the largest element is 6 at most."""
    groups = matrix.contiguous().double().unflatten(1, (-1, 32))
    # The largest element becomes 4 or more, and less than 8.
    powers = (groups.abs().amax(-1, keepdim=True).frexp().exponent - 3).clamp(min=-127)
    numbers = torch.tensor(_OF_MXFP4, dtype=torch.float64, device=matrix.device)
    sizes = torch.ldexp(groups, -powers).abs()
    codes = torch.searchsorted(numbers, sizes).clamp(max=7)
    if not torch.equal(numbers[codes], sizes):
        return None
    codes = (codes + 8 * groups.signbit()).to(torch.uint8)
    return Rows(packed(codes.flatten(1), 4), (powers[..., 0] + 127).to(torch.uint8), None)


# The largest number of each dtype of 8 bits that rows are quantized to.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def quantized_rows(x: Tensor, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    """Returns the rows of a matrix in 8 bits, and fp32 [rows, 1], the scale of each: its largest
    element divided by the largest number, and 1e-10 at least."""
    scales = (x.float().abs().amax(-1, keepdim=True) / LARGEST[dtype]).clamp(min=1e-10)
    return codes_by(x, scales, dtype), scales


def quantized_blocks(x: Tensor, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    """Does the same for each 128 of a row: fp32 [rows, ceil(columns / 128)]."""
    blocks = functional.pad(x.float(), (0, -x.shape[1] % 128)).unflatten(1, (-1, 128))
    scales = quantized_rows(blocks, dtype)[1][..., 0]
    return codes_by(x, scales.repeat_interleave(128, 1)[:, :x.shape[1]], dtype), scales


def codes_by(x: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns x divided by scales, rounded and limited to the dtype."""
    codes = (x.float() / scales).clamp(-LARGEST[dtype] - (dtype is torch.int8), LARGEST[dtype])
    return (codes.round() if dtype is torch.int8 else codes).to(dtype)
