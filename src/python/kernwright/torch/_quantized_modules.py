"""Quantized linear layers: our own, and layers of other libraries, which are known by their tensors; and
feed-forward layers of them."""

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import _checkpoints as layouts
from . import _modules as modules
from . import ops as kw
from ._checks import LARGEST_ERROR, Left, check_swiglu_of, random_rows, relative_error
from ._guards import hooks_of
from ._modules import DTYPES, Front, epsilon, fits, holds, only_argument, takes
from ._quantized import GatedWeight, PartOfGated, QuantizedRows, QuantizedWeight
from .ops.quantized_products import quantized_gated_linear

# The tensors of a layer, the first of which say that it is one.
_OF_WORDS = ("qweight", "qzeros", "scales", "g_idx")
_OF_COMPRESSED = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
_KEPT = ("g_idx", "weight_shape", "weight_g_idx")  # small ones, which a packed layer keeps
_PACKED = "kernwright_weight"  # the child that has the packed weights


class Source(NamedTuple):
    """How a layer keeps its weights."""
    format: str  # "gptq", "gptq_v2", "awq" or "compressed_tensors"
    bits: int
    group: Optional[int]


def tensors_of(module: nn.Module) -> Dict[str, Tensor]:
    names = _OF_WORDS if isinstance(getattr(module, "qweight", None), Tensor) else _OF_COMPRESSED
    return {name: tensor.detach() for name in names if isinstance(tensor := getattr(module, name, None), Tensor)}


def is_quantized(module: nn.Module) -> bool:
    """Returns true if the module has the tensors of a layer of GPTQ, AWQ or compressed-tensors."""
    return any(isinstance(getattr(module, names[0], None), Tensor) for names in (_OF_WORDS, _OF_COMPRESSED))


def sources_of(tensors: Dict[str, Tensor], group: Any) -> List[Source]:
    """Returns what the tensors may be by their shapes. Zero points of GPTQ may be stored less one."""
    group = group if isinstance(group, int) and group > 0 else None
    if "weight_packed" in tensors:
        shape = tensors.get("weight_shape")
        k = 0 if shape is None else int(shape[1])
        columns = tensors["weight_packed"].shape[1]
        return [Source("compressed_tensors", bits, group) for bits in (4, 8) if not k or -(-k * bits // 32) == columns]
    if not {"qzeros", "scales"} <= tensors.keys() or any(tensors[name].dim() != 2 for name in _OF_WORDS[:3]):
        return []
    n, words = tensors["scales"].shape[1], tensors["qzeros"].shape[1]
    if tensors["qweight"].shape[1] * 8 == n:
        return [Source("awq", 4, group)]
    if tensors["qweight"].shape[1] != n or words * 32 not in (n * 4, n * 8):
        return []
    return [Source(format, words * 32 // n, group) for format in ("gptq", "gptq_v2")]


def names_of(tensors: Dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())


def pack(tensors: Dict[str, Tensor], source: Source) -> QuantizedWeight:
    """Errors: ValueError if the tensors are not what `source` says."""
    if source.format == "awq":
        return QuantizedWeight.from_awq(*(tensors[name] for name in _OF_WORDS[:3]), group=source.group)
    if source.format == "compressed_tensors":
        return QuantizedWeight.from_compressed_tensors(**tensors, bits=source.bits, group=source.group)
    return QuantizedWeight.from_gptq(**tensors, format=source.format, bits=source.bits, group=source.group)


def unpack(weight: QuantizedWeight, source: Source) -> Dict[str, Tensor]:
    """Undoes `pack`, but for the tensors that a packed layer keeps."""
    rows = layouts.unpack(layouts.Rows(weight.codes, weight.scales, weight.zeros), weight.n, weight.k, weight.weights)
    codes, bits = layouts.unpacked(rows.codes, source.bits), source.bits
    if weight.order is not None:
        codes = torch.empty_like(codes).index_copy_(1, weight.order.long(), codes)
    zeros = (torch.full_like(rows.scales, layouts.middle_of(bits), dtype=torch.uint8)
             if rows.zeros is None else rows.zeros).t()
    if source.format == "compressed_tensors":
        in_words = functional.pad(codes, (0, -codes.shape[1] % (32 // bits)))
        of_zeros = functional.pad(zeros, (0, -weight.n % (32 // bits)))
        return {"weight_packed": layouts.words_of(layouts.packed(in_words, bits)), "weight_scale": rows.scales,
                "weight_zero_point": layouts.words_of(layouts.packed(of_zeros, bits)).t().contiguous()}
    scales = rows.scales.t().contiguous()
    if source.format == "awq":
        return {"qweight": layouts.words_of(layouts.awq_of_codes(codes.t())),
                "qzeros": layouts.words_of(layouts.awq_of_codes(zeros)), "scales": scales}
    zeros = zeros - int(source.format == "gptq")
    return {"qweight": layouts.words_of(layouts.gptq_of_rows(layouts.packed(codes, bits))),
            "qzeros": layouts.words_of(layouts.packed(zeros, bits)), "scales": scales}


def _expect_same(tensors: Dict[str, Tensor], weight: QuantizedWeight, source: Source) -> None:
    restored = unpack(weight, source)
    for name, tensor in tensors.items():
        if name not in _KEPT and not (restored[name].dtype is tensor.dtype and torch.equal(restored[name], tensor)):
            raise Left(f"{name} could not be restored when it is unpacked")


def check_quantized(module: nn.Module) -> Source:
    """Returns how the module keeps its weights."""
    tensors = tensors_of(module)
    first = next(iter(tensors.values()))
    if first.is_meta:
        raise Left("its weights are on the meta device; patch the model when it has weights")
    if not modules.on_gpu(first):
        raise Left(f"its weights are on {first.device}, and kernels are for GPUs")
    scales = tensors.get("scales", tensors.get("weight_scale"))
    if scales is None or scales.dtype not in DTYPES:
        raise Left("its scales are " + ("missing" if scales is None else f"{scales.dtype}, and 16 bits expected"))
    found, reasons = [], []
    for source in sources_of(tensors, getattr(module, "group_size", None)):
        try:
            weight = pack(tensors, source)
        except ValueError as error:
            reasons.append(str(error))
            continue
        error = _error_of(module, weight, scales)
        if error <= LARGEST_ERROR:
            found.append((error, source, weight))
        else:
            reasons.append(f"does not compute a product with its weights as {source.format} of {source.bits} bits")
    if not found:
        raise Left("; ".join(reasons) or f"its tensors, {names_of(tensors)}, are of no format that is known")
    found.sort(key=lambda each: each[0])
    if len(found) > 1 and not found[0][0] < found[1][0] / 2:
        raise Left(f"its weights may be {found[0][1].format} and {found[1][1].format}")
    _, source, weight = found[0]
    _expect_same(tensors, weight, source)
    return source


def _error_of(module: nn.Module, weight: QuantizedWeight, scales: Tensor) -> float:
    """Returns how far the module is from a product with the weights. Half of the rows are positive, in
    which a zero point that is one less counts most."""
    x, bias = random_rows(scales, 4, weight.k), getattr(module, "bias", None)
    x[2:].abs_()
    expected = functional.linear(x.float(), weight.dequantize(torch.float32), None if bias is None else bias.float())
    try:
        return relative_error(module(x), expected)
    except Exception as error:
        raise Left(f"its forward fails: {error}") from error


_Weight = Union[QuantizedWeight, QuantizedRows]
_SCALES = "kernwright_scales"  # of codes that stand in for rows, with the dtype of these


def _alone(weight: Union[_Weight, PartOfGated]) -> _Weight:
    return weight.alone() if isinstance(weight, PartOfGated) else weight


def as_rows(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns codes in place of rows of the dtype. A reader of rows alone refuses their dtype, which it does not
    know."""
    setattr(codes, _SCALES, (scales, dtype))
    return codes


def _by_rows(x: Tensor, weight: QuantizedRows, bias: Optional[Tensor]) -> Tensor:
    """The product of rows, or of codes that stand in for them."""
    given = None if torch.compiler.is_compiling() else getattr(x, _SCALES, None)
    if given is None:
        return kw.quantized_linear(x, weight, bias)
    scales, dtype = given
    return kw.quantized_linear((x, scales), weight, bias, out_dtype=dtype)


class QuantizedLinear(nn.Module):
    """A linear layer with quantized weights, for inference."""

    def __init__(self, weight: _Weight, bias: Optional[Tensor] = None) -> None:
        super().__init__()
        self.weight = weight
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.detach(), requires_grad=False))

    @property
    def in_features(self) -> int:
        return self.weight.k

    @property
    def out_features(self) -> int:
        return self.weight.n

    def forward(self, x: Tensor) -> Tensor:
        weight = _alone(self.weight)
        if isinstance(weight, QuantizedRows):
            return _by_rows(x, weight, self.bias)
        return kw.quantized_linear(x, weight, self.bias)


class PackedLinear(Front):
    """A quantized layer of another library whose weights were packed, and its own tensors freed. If it
    is no longer what it was, it gets these back, and computes as before."""
    bias: Optional[Tensor]

    def forward(self, *given: Any, **named: Any) -> Any:
        weight, x = self._modules.get(_PACKED), only_argument(given, named)
        if isinstance(weight, (QuantizedWeight, PartOfGated)):
            if isinstance(x, Tensor) and holds(self):
                return self._kernwright_product(x, _alone(weight))
            self._kernwright_release()
        return super()._kernwright_own(given, named)

    def _kernwright_product(self, x: Tensor, weight: QuantizedWeight) -> Tensor:
        bias = self.bias if hasattr(self, "bias") else None
        if fits(x) and (bias is None or bias.dtype is x.dtype) and not (
                torch.is_grad_enabled() and bias is not None and bias.requires_grad):
            return kw.quantized_linear(x, weight, bias)
        return functional.linear(x, weight.dequantize(x.dtype), bias)

    def _kernwright_pack(self, source: Source) -> str:
        """Packs the weights, frees the module's own, and says so."""
        tensors = tensors_of(self)
        weight = pack(tensors, source)
        for name in tensors:
            if name not in _KEPT:
                setattr(self, name, None)
        self._modules[_PACKED], self._kernwright_source = weight, source
        return (f"packed from {source.format}, {source.bits} bits in groups of {weight.group}, and its own "
                "tensors freed; undo() unpacks them")

    @torch.compiler.disable
    def _kernwright_release(self) -> None:
        weight = self._modules.pop(_PACKED, None)
        if weight is None:
            return
        for name, tensor in unpack(_alone(weight), self._kernwright_source).items():
            if name in self._parameters:
                self._parameters[name] = nn.Parameter(tensor, requires_grad=False)
            elif name in self._buffers:
                self._buffers[name] = tensor


# Feed-forward layers whose gate and up projection are one product.

def _place_of(part: Any) -> str:
    """Returns the name of the child of a quantized linear layer that has its weights."""
    if isinstance(part, QuantizedLinear):
        return "weight"
    if isinstance(part, PackedLinear):
        return _PACKED
    raise Left("its gate or up projection is quantized, and was left")


def _gated_of(mlp: nn.Module) -> Optional[GatedWeight]:
    """Returns the weight that the gate and the up projection have parts of, None if they have their own."""
    found = [part._modules.get("weight", part._modules.get(_PACKED)) for part in (mlp.gate_proj, mlp.up_proj)]
    if all(isinstance(part, PartOfGated) and part.index == i and part.gated is found[0].gated
           for i, part in enumerate(found)):
        gated: GatedWeight = found[0].gated
        return gated
    return None


def is_part_quantized(part: Any) -> bool:
    """Returns true for a linear layer with quantized weights, packed or not."""
    return isinstance(part, (QuantizedLinear, PackedLinear)) or isinstance(part, nn.Module) and is_quantized(part)


class QuantizedSwiGLU(Front):
    """down(activation(gate(x)) * up(x)), the first half of which is one kernel, or by rows of 8 bits a product and
    an activation that quantizes for the other product. If it is no longer what it was, the two projections get
    their own weights again."""

    def forward(self, *given: Any, **named: Any) -> Any:
        gated, x = _gated_of(self), only_argument(given, named)
        if gated is not None:
            if not holds(self):
                self._kernwright_release()
            elif isinstance(x, Tensor) and isinstance(gated.rows, QuantizedRows):
                if fits(x) or hasattr(x, _SCALES):
                    return self.down_proj(self._kernwright_opened(_by_rows(x, gated.rows, None)))
            elif isinstance(x, Tensor) and fits(x):
                return self.down_proj(quantized_gated_linear(x, gated, activation=self._kernwright_activation))
        return super()._kernwright_own(given, named)

    def _kernwright_opened(self, x: Tensor) -> Tensor:
        activation, dtype = self._kernwright_activation, codes_read_by([self.down_proj])
        opens = functools.partial(kw.silu_and_mul if activation == "silu" else kw.gelu_and_mul, **(
            {} if activation == "silu" else {"approximate": activation.replace("gelu_", "").replace("erf", "none")}))
        return opens(x) if dtype is None else as_rows(*opens(x, quantize="row", out_dtype=dtype), x.dtype)

    def _kernwright_join(self) -> None:
        """Joins the weights of both, and frees their own. Raises Left if they cannot be joined."""
        parts = (self.gate_proj, self.up_proj)
        places = [_place_of(part) for part in parts]
        try:
            gated = GatedWeight.join(*(getattr(part, place) for part, place in zip(parts, places)))
        except ValueError as error:
            raise Left(str(error)) from error
        for index, (part, place) in enumerate(zip(parts, places)):
            part._modules[place] = PartOfGated(gated, index)

    @torch.compiler.disable
    def _kernwright_release(self) -> None:
        for part in (self.gate_proj, self.up_proj):
            for place, weight in part._modules.items():
                if isinstance(weight, PartOfGated):
                    part._modules[place] = weight.alone()


def check_quantized_swiglu(mlp: nn.Module) -> str:
    """Returns the activation of a feed-forward layer whose parts have been packed."""
    weight, up = (getattr(part, _place_of(part)) for part in (mlp.gate_proj, mlp.up_proj))
    if (weight.n, weight.k) != (up.n, up.k):
        raise Left("gate and up projection have other shapes")
    like = weight.scales.to(torch.bfloat16) if isinstance(weight, QuantizedRows) else weight.scales
    return check_swiglu_of(mlp, random_rows(like, 4, weight.k), lambda part, x: part(x))


# Norms whose rows are read by products of 8 bits alone.

def codes_read_by(readers: Sequence[Any]) -> Optional[torch.dtype]:
    """Returns the dtype of the codes that all of the modules take in place of rows, None if one of them needs the
    rows. A compiled graph has the rows, and its passes find what quantizes them."""
    found = set()
    for reader in readers:
        weight = reader._modules["weight"] if type(reader) is QuantizedLinear else None
        rows = weight.gated.rows if isinstance(weight, PartOfGated) else weight
        if not isinstance(rows, QuantizedRows) or "forward" in vars(reader) or hooks_of(reader):
            return None
        found.add(rows.codes.dtype)
    return found.pop() if len(found) == 1 and not torch.compiler.is_compiling() else None


def quantized_norm(norm: nn.Module, x: Tensor, readers: Sequence[Any]) -> Tensor:
    """Returns codes that stand in for the norm of rows, or the norm itself if a reader or a hook needs it."""
    dtype = None if hooks_of(norm) else codes_read_by(readers)
    if dtype is None:
        return kw.rms_norm(x, norm.weight, epsilon(norm))
    return as_rows(*kw.rms_norm(x, norm.weight, epsilon(norm), quantize="row", out_dtype=dtype), x.dtype)


class RowsNorm(Front):
    """An RMSNorm that quantizes its rows for the products that read them. `_kernwright_path` are the modules that
    hand them on, and `_kernwright_readers` the names of the products in the last one."""
    weight: Tensor

    def _kernwright_fused(self, given: Any, named: Any) -> Any:
        x = only_argument(given, named)
        if not takes(x, self.weight) or not holds(self):
            return NotImplemented
        return quantized_norm(self, x, _readers_in(self._kernwright_path[-1], self._kernwright_readers))


def modules_around(norm: nn.Module) -> Dict[str, nn.Module]:
    """Returns the modules that the rows of a RowsNorm come to."""
    layer, through = norm._kernwright_path
    return {"layer": layer, "rows": through, **{
        name: getattr(through, name) for name in norm._kernwright_readers}}


def _readers_in(through: nn.Module, names: Sequence[str]) -> List[Any]:
    return [getattr(through, name, None) for name in names]


class Readers(NamedTuple):
    """The modules that hand the rows of a norm on, and the names of the products in the last one that read them."""
    path: Tuple[nn.Module, nn.Module]
    names: Tuple[str, ...]

    def modules(self) -> List[Any]:
        return _readers_in(self.path[-1], self.names)


def readers_of_norms(layer: nn.Module) -> Dict[nn.Module, Readers]:
    """Returns the norms of a decoder layer that are before products of 8 bits. Raises Left if there is none."""
    found = {norm: readers for norm, readers in (
        (layer.input_layernorm, Readers((layer, layer.self_attn), ("q_proj", "k_proj", "v_proj"))),
        (layer.post_attention_layernorm, Readers((layer, layer.mlp), ("gate_proj", "up_proj"))))
             if codes_read_by(readers.modules()) is not None}
    if not found:
        raise Left("none of its norms is read by products of 8 bits alone")
    return found
