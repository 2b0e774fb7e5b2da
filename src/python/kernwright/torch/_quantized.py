"""Quantized weights as kernels read them, made from the tensors of checkpoints."""

from typing import Any, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from .._call import make_function
from . import _checkpoints as layouts
from ._checkpoints import BLOCK, Rows
from .ops.define import _or_plain

_SCALES = (torch.bfloat16, torch.float16, torch.float32)


def _pack_by_kernel(b: Tensor, scales: Tensor, zeros: Optional[Tensor], source: str, zero: str,
                    weights: str, group: int, experts: int = 1, gate: str = "none") -> Rows:
    codes, packed_scales, *packed_zeros = make_function("pack_weights")(
        b, scales, b_zero=zeros, source=source, zero=zero, weights=weights, group=group, experts=experts,
        gate=gate)
    return Rows(codes, packed_scales, *(packed_zeros or [None]))


def _pack_in_torch(b: Tensor, scales: Tensor, zeros: Optional[Tensor], source: str, zero: str,
                   weights: str, group: int, experts: int = 1, gate: str = "none") -> Rows:
    if experts > 1 or gate != "none":
        return layouts.pack_experts(Rows(b, scales, zeros), weights, experts, gate)
    if source == "awq":
        zeros = None if zeros is None else layouts.codes_of_awq(zeros).t()
        b, scales = layouts.packed(layouts.codes_of_awq(b).t(), 4), scales.t()
    if source == "gptq":
        b, scales, zeros = _rows_of_gptq(b, scales, zeros, zero, weights)
    return layouts.pack(Rows(b, scales, zeros), weights)


def _rows_of_gptq(b: Tensor, scales: Tensor, zeros: Optional[Tensor], zero: str, weights: str) -> Rows:
    if zeros is not None:
        zeros = layouts.unpacked(zeros, layouts.bits_of(weights)).t() + (zero == "less_one")
    return Rows(layouts.rows_of_gptq(b), scales.t(), zeros)


def _dequantize_by_kernel(blocks: Rows, n: int, k: int, group: int, weights: str, dtype: torch.dtype) -> Tensor:
    result: Tensor = make_function("dequantize_weights")(
        blocks.codes, blocks.scales, b_zero=blocks.zeros, n=n, k=k, group=group, weights=weights,
        dtype_dtype=dtype)
    return result


def _dequantize_in_torch(blocks: Rows, n: int, k: int, group: int, weights: str, dtype: torch.dtype) -> Tensor:
    return layouts.dequantized(layouts.unpack(blocks, n, k, weights), weights, group).to(dtype)


_dequantize_on_gpu = _or_plain("dequantize_weights", _dequantize_by_kernel, _dequantize_in_torch,
                               lambda *given: None)
_pack_on_gpu = _or_plain("pack_weights", _pack_by_kernel, _pack_in_torch, lambda *given: None)


def _expect(name: str, tensor: Any, shape: Tuple[int, ...], *dtypes: torch.dtype) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, and a tensor expected")
    if tensor.shape != shape:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, and {list(shape)} expected")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name} is {tensor.dtype}, and {' or '.join(map(str, dtypes))} expected")


def _sizes(name: str, tensor: Any) -> Tuple[int, int]:
    if not isinstance(tensor, Tensor) or tensor.dim() != 2:
        raise ValueError(f"{name} is {list(tensor.shape) if isinstance(tensor, Tensor) else tensor}, and a matrix "
                         "expected")
    return tensor.shape[0], tensor.shape[1]


def _expect_bits(bits: int) -> None:
    if bits not in (4, 8):
        raise ValueError(f"bits is {bits}, and 4 or 8 expected")


def _group_of(k: int, groups: int, group: Optional[int]) -> int:
    """Returns the columns of a group. A number of groups alone may stand for several, but for one
    power of two at most."""
    if group in (None, -1):
        group = k // groups if groups > 0 else 0
        if groups != 1 and (group * groups != k or group & (group - 1) != 0):
            raise ValueError(f"the columns of a group do not follow from {k} columns in {groups} "
                             "groups; give group")
    if not isinstance(group, int) or group < 1 or -(-k // group) != groups:
        raise ValueError(f"group is {group}, and {k} columns have {groups} scales")
    return min(group, k)


def _order_of(g_idx: Optional[Tensor], k: int, groups: int,
              group: Optional[int]) -> Tuple[Optional[Tensor], int]:
    """Returns the columns sorted by group, None if they are, and the columns of a group."""
    if g_idx is None or bool((g_idx == -1).all()):  # compressed-tensors writes -1 for none
        return None, _group_of(k, groups, group)
    if g_idx.shape != (k,) or g_idx.is_floating_point() or g_idx.min() < 0 or g_idx.max() >= groups:
        raise ValueError(f"g_idx is {g_idx.dtype} {list(g_idx.shape)}, and the numbers of {groups} "
                         f"groups for {k} columns expected")
    group = _group_of(k, groups, int((g_idx == 0).sum()) if group in (None, -1) else group)
    whole = torch.arange(k, device=g_idx.device) // group
    if torch.equal(g_idx.to(whole.dtype), whole):
        return None, group
    numbers, order = g_idx.to(whole.dtype).sort(stable=True)
    if not torch.equal(numbers, whole):
        sizes = g_idx.to(whole.dtype).bincount(minlength=groups).tolist()
        raise ValueError(f"g_idx, sorted, is not whole groups of {group} columns: they have {sizes}")
    return order.to(torch.int32), group


class Buffers(nn.Module):
    """Buffers without gradients, which move with a model, and stay as they are if its dtype is
    changed."""

    @property
    def bytes(self) -> int:
        """The bytes of all buffers."""
        return sum(tensor.nbytes for tensor in self.buffers())

    def _apply(self, function: Any, recurse: bool = True) -> Any:
        """Moves the buffers, as bytes, so that nothing rounds the scales."""
        def of_bytes(tensor: Tensor) -> Tensor:
            moved: Tensor = function(tensor.view(torch.uint8)).view(tensor.dtype)
            return moved

        return super()._apply(of_bytes, recurse)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, strict: bool,
                              missing: List[str], unexpected: List[str], errors: List[str]) -> None:
        """Loads the buffers. Refuses those of other dtypes, which would be rounded."""
        for name, own in self.named_buffers():
            given = state_dict.get(prefix + name)
            if isinstance(given, Tensor) and given.dtype is not own.dtype:
                errors.append(f"{prefix}{name} is {given.dtype}, and {own.dtype} expected")
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)


class PackedBuffers(Buffers):
    """The packed weights of a layer or of experts."""

    n: int
    k: int
    group: int
    weights: str

    def _expect_sizes(self) -> None:
        if self.weights not in ("int4", "int8", "mxfp4"):
            raise ValueError(f"weights is {self.weights!r}, and 'int4', 'int8' or 'mxfp4' expected")
        if self.n < 1 or self.k < 8 or self.k % 8 != 0:
            raise ValueError(f"the weights are [{self.n}, {self.k}], and rows of a multiple of 8 columns "
                             "expected")
        if self.group != self.k and (self.group < 16 or self.group % 16 != 0):
            raise ValueError(f"group is {self.group}, and a multiple of 16 or all {self.k} columns expected")

    def _keep(self, blocks: Rows, **more: Optional[Tensor]) -> None:
        for name, tensor in (*zip(("codes", "scales", "zeros"), blocks), *more.items()):
            self.register_buffer(name, tensor)


class QuantizedWeight(PackedBuffers):
    """The weights [n, k] of a linear layer in 4 or 8 bits, in the layout that kernels read.

    codes, scales, zeros: as the operation pack_weights writes them, no zeros if every zero point is
        the middle of the codes
    order: int32 [k], the column of each packed one if columns are sorted by group, else None
    weights: the code, "int4", "int8" or "mxfp4"; group: columns that share a scale; bytes: of all

    The constructor makes an empty one, for the state_dict of another one with the same arguments:
    scales of `scale`, with zeros and order if these are true. Errors of all constructors:
    ValueError naming what does not fit, such as k that is no multiple of 8, groups of other than
    multiples of 16 columns, or tensors of other shapes and dtypes."""

    codes: Tensor
    scales: Tensor
    zeros: Optional[Tensor]
    order: Optional[Tensor]

    def __init__(self, n: int, k: int, group: Optional[int] = None, weights: str = "int4", *,
                 scale: torch.dtype = torch.bfloat16, zeros: bool = False, order: bool = False,
                 device: Any = None) -> None:
        super().__init__()
        self.n, self.k, self.weights = n, k, weights
        self.group = k if group is None else min(group, k)
        self._expect_sizes()
        factors = -(-n // BLOCK), -(-k // self.group) * BLOCK
        scale = torch.uint8 if weights == "mxfp4" else scale
        self._keep(Rows(
            torch.empty(factors[0], -(-k // BLOCK) * 512 * layouts.bits_of(weights), dtype=torch.uint8,
                        device=device),
            torch.empty(factors, dtype=scale, device=device),
            torch.empty(factors, dtype=torch.uint8, device=device) if zeros else None),
            order=torch.empty(k, dtype=torch.int32, device=device) if order else None)

    @classmethod
    def _of(cls, n: int, k: int, group: int, weights: str, source: str, b: Tensor, scales: Tensor,
            zeros: Optional[Tensor], zero: str = "code", order: Optional[Tensor] = None) -> "QuantizedWeight":
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.n, made.k, made.group, made.weights = n, k, group, weights
        made._expect_sizes()
        if order is not None:
            if source == "gptq":
                (b, scales, zeros), source, zero = _rows_of_gptq(b, scales, zeros, zero, weights), "rows", "code"
            b = layouts.in_order(b, order, layouts.bits_of(weights))
        pack = _pack_on_gpu if b.is_cuda else _pack_in_torch
        with torch.no_grad():
            made._keep(pack(b.contiguous(), scales.contiguous(), None if zeros is None else zeros.contiguous(),
                            source, "none" if zeros is None else zero, weights, group), order=order)
        return made

    @classmethod
    def from_gptq(cls, qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Optional[Tensor] = None,
                  format: str = "gptq", bits: int = 4, group: Optional[int] = None) -> "QuantizedWeight":
        """Packs a layer of GPTQ: qweight int32 [k * bits / 32, n], qzeros int32 [groups, n * bits /
        32], scales [groups, n], g_idx the group of each column.

        format: "gptq", whose zero points are stored less one, or "gptq_v2", as they are
        group: needed without g_idx if k is no multiple of it

        Columns that g_idx sorts otherwise (act-order) are packed by group, and a product then takes
        those of x in this order. Errors: ValueError also if they are not whole groups then, and for
        a zero point of 256."""
        _expect_bits(bits)
        if format not in ("gptq", "gptq_v2"):
            raise ValueError(f"format is {format!r}, and 'gptq' or 'gptq_v2' expected")
        (groups, n), k = _sizes("scales", scales), _sizes("qweight", qweight)[0] * 32 // bits
        _expect("scales", scales, (groups, n), *_SCALES)
        _expect("qweight", qweight, (k * bits // 32, n), torch.int32)
        if n * bits % 32 != 0:
            raise ValueError(f"scales has {n} rows of weights, and words of {32 // bits} expected")
        _expect("qzeros", qzeros, (groups, n * bits // 32), torch.int32)
        order, group = _order_of(g_idx, k, groups, group)
        zeros, less = layouts.bytes_of(qzeros), int(format == "gptq")
        stored = layouts.unpacked(zeros, bits)
        if less and bits == 8 and bool((stored == 255).any()):
            raise ValueError("qzeros has a zero point of 256, stored less one, and at most 255 expected")
        plain = bool((stored == layouts.middle_of(bits) - less).all())
        return cls._of(n, k, group, f"int{bits}", "gptq", layouts.bytes_of(qweight), scales,
                       None if plain else zeros, "less_one" if less else "code", order)

    @classmethod
    def from_awq(cls, qweight: Tensor, qzeros: Tensor, scales: Tensor,
                 group: Optional[int] = None) -> "QuantizedWeight":
        """Packs a layer of AWQ: qweight int32 [k, n / 8], qzeros int32 [groups, n / 8], scales
        [groups, n]. `group` is needed if k is no multiple of it."""
        (groups, n), k = _sizes("scales", scales), _sizes("qweight", qweight)[0]
        _expect("scales", scales, (groups, n), *_SCALES)
        _expect("qweight", qweight, (k, n // 8), torch.int32)
        if n % 8 != 0:
            raise ValueError(f"scales has {n} rows of weights, and words of 8 expected")
        _expect("qzeros", qzeros, (groups, n // 8), torch.int32)
        zeros = layouts.bytes_of(qzeros)
        plain = bool((layouts.unpacked(zeros, 4) == 8).all())
        return cls._of(n, k, _group_of(k, groups, group), "int4", "awq", layouts.bytes_of(qweight), scales,
                       None if plain else zeros)

    @classmethod
    def from_compressed_tensors(cls, weight_packed: Tensor, weight_scale: Tensor,
                                weight_zero_point: Optional[Tensor] = None, weight_shape: Any = None, bits: int = 4,
                                group: Optional[int] = None,
                                weight_g_idx: Optional[Tensor] = None) -> "QuantizedWeight":
        """Packs a layer of compressed-tensors' pack-quantized: weight_packed int32 [n, ceil(k * bits
        / 32)], weight_scale [n, groups] or one number, weight_zero_point int32 [ceil(n * bits / 32),
        groups], weight_shape (n, k), needed if rows do not fill words. `group` and weight_g_idx are
        as in from_gptq."""
        _expect_bits(bits)
        n, words = _sizes("weight_packed", weight_packed)
        k = words * 32 // bits
        if weight_shape is not None:
            rows, k = (int(size) for size in weight_shape)
            if rows != n:
                raise ValueError(f"weight_shape is [{rows}, {k}], and weight_packed has {n} rows")
        _expect("weight_packed", weight_packed, (n, -(-k * bits // 32)), torch.int32)
        if weight_scale.numel() == 1:
            weight_scale = weight_scale.reshape(1, 1).expand(n, 1)
        groups = _sizes("weight_scale", weight_scale)[1]
        _expect("weight_scale", weight_scale, (n, groups), *_SCALES)
        order, group = _order_of(weight_g_idx, k, groups, group)
        zeros = None
        if weight_zero_point is not None:
            _expect("weight_zero_point", weight_zero_point, (-(-n * bits // 32), groups), torch.int32)
            zeros = layouts.unpacked(layouts.bytes_of(weight_zero_point.t()), bits)[:, :n].t()
            zeros = None if bool((zeros == layouts.middle_of(bits)).all()) else zeros
        codes = layouts.bytes_of(weight_packed)[:, :k * bits // 8]
        return cls._of(n, k, group, f"int{bits}", "rows", codes, weight_scale, zeros, order=order)

    @classmethod
    def from_mxfp4(cls, blocks: Tensor, scales: Tensor) -> "QuantizedWeight":
        """Packs weights in MXFP4: blocks uint8 [n, k / 32, 16] or [n, k / 2], scales uint8 [n, k /
        32]."""
        n, groups = _sizes("scales", scales)
        _expect("scales", scales, (n, groups), torch.uint8)
        codes = blocks.flatten(1) if blocks.dim() == 3 else blocks
        _expect("blocks", codes, (n, groups * 16), torch.uint8)
        return cls._of(n, groups * 32, 32, "mxfp4", "rows", codes, scales, None)

    @classmethod
    def from_float(cls, weight: Tensor, weights: str = "int4", group: Optional[int] = None) -> "QuantizedWeight":
        """Rounds a matrix [n, k] to the nearest codes, "int4" or "int8", with scales of its dtype by
        the largest element of each group: for trials and tests, since calibrated checkpoints are
        closer to their models."""
        n, k = _sizes("weight", weight)
        _expect("weight", weight, (n, k), *_SCALES)
        if weights not in ("int4", "int8"):
            raise ValueError(f"weights is {weights!r}, and 'int4' or 'int8' expected")
        group = _group_of(k, 1 if group is None else -(-k // group), group)
        middle = layouts.middle_of(layouts.bits_of(weights))
        wide = nn.functional.pad(weight.detach().float(), (0, -k % group)).unflatten(1, (-1, group))
        scales = (wide.abs().amax(-1) / (middle - 1)).to(weight.dtype)
        steps = scales.float().masked_fill(scales == 0, 1)[..., None]
        codes = (wide / steps).round().clamp(-middle, middle - 1).add(middle).to(torch.uint8)
        codes = layouts.packed(codes.flatten(1)[:, :k], layouts.bits_of(weights))
        return cls._of(n, k, group, weights, "rows", codes, scales, None)

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Returns the matrix [n, k], each element rounded once to `dtype`, its columns in the order
        of the checkpoint."""
        dequantize = _dequantize_on_gpu if self.codes.is_cuda else _dequantize_in_torch
        matrix: Tensor = dequantize(Rows(self.codes, self.scales, self.zeros), self.n, self.k, self.group,
                                    self.weights, dtype)
        if self.order is None:
            return matrix
        return torch.empty_like(matrix).index_copy_(1, self.order.long(), matrix)

    def extra_repr(self) -> str:
        return (f"n={self.n}, k={self.k}, group={self.group}, weights={self.weights!r}"
                + (", zeros" if self.zeros is not None else "") + (", order" if self.order is not None else ""))


class QuantizedRows(Buffers):
    """The weights [n, k] of a linear layer in 8 bits with a scale for each row. A product with them
    quantizes the rows of x alike, so that both operands have 8 bits.

    codes: [n, k], int8 or float8_e4m3fn; scales: fp32 [1, n]

    The constructor makes an empty one, for the state_dict of another one with the same arguments.
    Errors of all constructors: ValueError naming what does not fit."""

    codes: Tensor
    scales: Tensor

    def __init__(self, n: int, k: int, dtype: torch.dtype = torch.int8, *, device: Any = None) -> None:
        super().__init__()
        self._keep(torch.empty((n, k), dtype=dtype, device=device),
                   torch.empty((1, n), dtype=torch.float32, device=device))

    def _keep(self, codes: Tensor, scales: Tensor) -> None:
        self.n, self.k = _sizes("weight", codes)
        _expect("weight", codes, (self.n, self.k), *layouts.LARGEST)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    @classmethod
    def _of(cls, codes: Tensor, scales: Tensor) -> "QuantizedRows":
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._keep(codes, scales)
        return made

    @classmethod
    def from_compressed_tensors(cls, weight: Tensor, weight_scale: Tensor) -> "QuantizedRows":
        """Takes a layer of compressed-tensors' int-quantized or float-quantized, symmetric: weight
        [n, k], weight_scale [n, 1], [n] or one number."""
        n = _sizes("weight", weight)[0]
        if weight_scale.numel() not in (1, n):
            raise ValueError(f"weight_scale has the shape {list(weight_scale.shape)}, and [{n}, 1] expected")
        scales = weight_scale.detach().float().reshape(1, -1).expand(1, n)
        return cls._of(weight.detach().contiguous(), scales.contiguous())

    @classmethod
    def from_float(cls, weight: Tensor, dtype: torch.dtype = torch.int8) -> "QuantizedRows":
        """Rounds a matrix [n, k] to the nearest codes, with scales by the largest element of each row:
        for trials and tests."""
        _expect("weight", weight, _sizes("weight", weight), *_SCALES)
        if dtype not in layouts.LARGEST:
            raise ValueError(f"dtype is {dtype}, and {' or '.join(map(str, layouts.LARGEST))} expected")
        return cls.from_compressed_tensors(*layouts.quantized_rows(weight.detach(), dtype))

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Returns the matrix [n, k], each element rounded once to `dtype`."""
        return (self.codes.float() * self.scales.t()).to(dtype)

    def extra_repr(self) -> str:
        return f"n={self.n}, k={self.k}, dtype={self.codes.dtype}"


class GatedWeight(nn.Module):
    """The weights of a gate and of what it opens, [n, k] each, as one product reads them. `rows` has those of
    both, in the order of this product."""

    rows: Union[QuantizedWeight, QuantizedRows]

    def __init__(self, rows: Union[QuantizedWeight, QuantizedRows], n: int) -> None:
        super().__init__()
        self.rows, self.n = rows, n

    @classmethod
    def join(cls, gate: Union[QuantizedWeight, QuantizedRows],
             up: Union[QuantizedWeight, QuantizedRows]) -> "GatedWeight":
        """Errors: ValueError naming what differs between the two."""
        if not isinstance(gate, QuantizedWeight) or not isinstance(up, QuantizedWeight):
            return cls._join_rows(gate, up)
        for name in ("n", "k", "weights", "group"):
            of_gate, of_up = getattr(gate, name), getattr(up, name)
            if of_gate != of_up:
                raise ValueError(f"{name} of the gate is {of_gate}, and {of_up} of what it opens")
        if gate.scales.dtype is not up.scales.dtype:
            raise ValueError(f"scales of the gate are {gate.scales.dtype}, and {up.scales.dtype} of what it opens")
        orders = gate.order, up.order
        if (orders[0] is None) != (orders[1] is None) or orders[0] is not None and not torch.equal(*orders):
            raise ValueError("the columns of the gate have another order than those of what it opens")
        parts = [layouts.unpack(Rows(part.codes, part.scales, part.zeros), part.n, part.k, part.weights)
                 for part in (gate, up)]
        if any(part.zeros is not None for part in parts):
            middle = layouts.middle_of(layouts.bits_of(gate.weights))
            parts = [part if part.zeros is not None else part._replace(
                zeros=torch.full_like(part.scales, middle, dtype=torch.uint8)) for part in parts]
        rows = QuantizedWeight._of(layouts.rows_of_gates(gate.n), gate.k, gate.group, gate.weights, "rows",
                                   *layouts.opened(parts[0], parts[1], gate.weights))
        rows.order = gate.order
        return cls(rows, gate.n)

    @classmethod
    def _join_rows(cls, gate: Any, up: Any) -> "GatedWeight":
        kinds = [f"{type(part).__name__} {[*part.codes.shape]} in {part.codes.dtype}" for part in (gate, up)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"the gate is {kinds[0]}, and what it opens {kinds[1]}")
        return cls(QuantizedRows._of(torch.cat((gate.codes, up.codes)), torch.cat((gate.scales, up.scales), 1)), gate.n)

    def part(self, index: int) -> Union[QuantizedWeight, QuantizedRows]:
        """Returns the weight of the gate, 0, or of what it opens, 1, with the same bits as before it was joined."""
        own, n = self.rows, self.n
        if isinstance(own, QuantizedRows):
            return QuantizedRows._of(own.codes[index * n:(index + 1) * n], own.scales[:, index * n:(index + 1) * n])
        both = layouts.closed(layouts.unpack(Rows(own.codes, own.scales, own.zeros), own.n, own.k, own.weights), n)
        codes, scales, zeros = (part if part is None else part[index * n:(index + 1) * n] for part in both)
        if zeros is not None and bool((zeros == layouts.middle_of(layouts.bits_of(own.weights))).all()):
            zeros = None
        assert codes is not None and scales is not None
        made = QuantizedWeight._of(n, own.k, own.group, own.weights, "rows", codes, scales, zeros)
        made.order = own.order
        return made


class PartOfGated(nn.Module):
    """One of the two weights of a GatedWeight, in the place of its own."""

    gated: GatedWeight

    def __init__(self, gated: GatedWeight, index: int) -> None:
        super().__init__()
        self.gated, self.index = gated, index

    @property
    def n(self) -> int:
        return self.gated.n

    @property
    def k(self) -> int:
        return self.gated.rows.k

    def alone(self) -> Union[QuantizedWeight, QuantizedRows]:
        return self.gated.part(self.index)
