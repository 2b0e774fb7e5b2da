"""Models of Hugging Face from quantized checkpoints, which transformers alone cannot load without the
libraries that made them."""

import functools
import json
import pathlib
import re
import struct
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import torch
from torch import nn

from ._checks import Left, how_experts_lie
from ._quantized import QuantizedRows
from ._quantized_experts import QuantizedExperts
from ._quantized_mixtures import PRODUCTS, QuantizedMixture, gate_of
from ._quantized_modules import QuantizedLinear, names_of, pack, sources_of, tensors_of

_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "I32": torch.int32,
           "I64": torch.int64, "U8": torch.uint8, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn}
_ROWS = ("I8", "F8_E4M3")  # of a weight with a scale for each row
_FIRST = ("qweight", "weight_packed")  # of a linear layer
_BLOCKS = "_blocks"  # of experts in mxfp4
_LARGEST_HEADER = 100 << 20  # of a file, as safetensors limits it
_Tensors = Dict[str, List[Any]]  # the dtype and the shape of each
_Layers = Dict[str, _Tensors]
# The layers of an expert: a gate, what it opens, and what follows.
_OF_EXPERTS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
_EXPERT = re.compile(rf"(?P<at>.+)\.(?P<expert>\d+)\.(?P<layer>{'|'.join(sum(_OF_EXPERTS, ()))})")


def _headers(folder: pathlib.Path) -> Dict[str, Any]:
    """Returns the headers of all tensors in the folder's safetensors."""
    tensors: Dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            if size > _LARGEST_HEADER:
                raise ValueError(f"{path} is no file of safetensors")
            tensors.update(json.loads(file.read(size)))
    if not tensors:
        raise ValueError(f"{folder} has no *.safetensors")
    return tensors


def _layers(folder: pathlib.Path) -> _Layers:
    modules: _Layers = {}
    for name, header in _headers(folder).items():
        if name != "__metadata__":
            at, _, own = name.rpartition(".")
            modules.setdefault(at, {})[own] = [header["dtype"], header["shape"]]
    layers = {at: tensors for at, tensors in modules.items()
              if _is_by_rows(tensors) or any(own in _FIRST or own.endswith(_BLOCKS) for own in tensors)}
    if not layers:
        raise ValueError(f"{folder} has no quantized layers that are known, and its config.json a quantization_config")
    return layers


def _is_by_rows(tensors: _Tensors) -> bool:
    return "weight_scale" in tensors and tensors.get("weight", [None])[0] in _ROWS


def _expect_rows(name: str, group: Dict[str, Any]) -> None:
    """Refuses a group of compressed-tensors that is not quantized by rows in 8 bits, weights and activations."""
    for side, strategies, dynamic in (("weights", ("channel", "tensor"), False), ("input_activations", ("token",), True)):
        own = group.get(side) or {}
        wrong = [f"{key} of {own.get(key)!r}" for key, known in (
            ("num_bits", (8,)), ("type", ("int", "float")), ("strategy", strategies), ("symmetric", (None, True)),
            ("dynamic", (dynamic,) if dynamic else (None, False))) if own.get(key) not in known]
        if wrong:
            raise ValueError(f"{name} of config_groups has {side} with {', '.join(wrong)}, and 8 bits with a scale for "
                             "each row expected, of activations while it runs")


def _expect_known(config: Dict[str, Any]) -> None:
    """Refuses what the layers' tensors do not say and quantized_linear does not compute."""
    method = config.get("quant_method")
    if method == "compressed-tensors" and config.get("format") in ("int-quantized", "float-quantized"):
        for name, group in (config.get("config_groups") or {}).items():
            _expect_rows(name, group)
    elif method == "compressed-tensors":
        if config.get("format") != "pack-quantized":
            raise ValueError(f"compressed-tensors' format is {config.get('format')!r}, and 'pack-quantized', "
                             "'int-quantized' or 'float-quantized' expected")
        for name, group in (config.get("config_groups") or {}).items():
            if group.get("input_activations") is not None:
                raise ValueError(f"{name} of config_groups quantizes activations, and weights alone expected")
            if (group.get("weights") or {}).get("type", "int") != "int":
                raise ValueError(f"{name} of config_groups has weights of {group['weights']['type']}, and int expected")
    elif method == "awq":
        if str(config.get("version", "gemm")).lower() != "gemm":
            raise ValueError(f"AWQ's version is {config['version']!r}, and 'gemm' expected")
    elif method == "gptq":
        if config.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
            raise ValueError(f"GPTQ's checkpoint_format is {config['checkpoint_format']!r}, and 'gptq' or 'gptq_v2' "
                             "expected")
    elif method != "mxfp4":
        raise ValueError(f"quant_method is {method!r}, and 'gptq', 'awq', 'compressed-tensors' or 'mxfp4' expected")


def _group_size(config: Dict[str, Any]) -> Optional[int]:
    """Returns the columns of a group, None if layers differ: then their tensors say it."""
    if config.get("dynamic"):  # GPTQ's rules for some modules
        return None
    sizes = {config.get("group_size"), *((group.get("weights") or {}).get("group_size")
                                         for group in (config.get("config_groups") or {}).values())} - {None}
    return sizes.pop() if len(sizes) == 1 else None


class _Unpacked(nn.Module):
    """Takes the place of a linear layer until its tensors are loaded."""

    def __init__(self, tensors: _Tensors, bias: Optional[nn.Parameter], dtype: torch.dtype) -> None:
        super().__init__()
        for name, (kind, shape) in tensors.items():
            if name != "bias":
                self.register_buffer(name, torch.empty(shape, dtype=_DTYPES[kind], device="meta"))
        if bias is None and "bias" in tensors:
            bias = nn.Parameter(torch.empty(tensors["bias"][1], dtype=dtype, device="meta"), requires_grad=False)
        self.register_parameter("bias", bias)

    def packed(self, name: str, config: Dict[str, Any]) -> QuantizedLinear:
        if "weight" in self._buffers:
            return QuantizedLinear(self._by_rows(name), self.bias)
        format, tensors = config.get("checkpoint_format", "gptq"), tensors_of(self)
        sources = [each for each in sources_of(tensors, _group_size(config))
                   if not each.format.startswith("gptq") or each.format == format]
        if len(sources) != 1:
            raise ValueError(f"{name}: its tensors, {names_of(tensors)}, are of no format that is known")
        try:
            return QuantizedLinear(pack(tensors, sources[0]), self.bias)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def _by_rows(self, name: str) -> QuantizedRows:
        if set(self._buffers) != {"weight", "weight_scale"}:
            raise ValueError(f"{name}: its tensors are {', '.join(self._buffers)}, and weight and weight_scale expected")
        try:
            return QuantizedRows.from_compressed_tensors(self.weight, self.weight_scale)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


class _UnpackedExperts(nn.Module):
    """Takes the place of experts until their tensors are loaded."""

    def __init__(self, name: str, own: Any) -> None:
        super().__init__()
        try:
            how_experts_lie(own)
            self.gate = gate_of(own)
        except Left as left:
            raise ValueError(f"{name}: {left}") from left
        self.dtype = own.down_proj.dtype
        self.shapes = {product: getattr(own, product).mT.shape if own.is_transposed else getattr(own, product).shape
                       for product in PRODUCTS}  # [experts, rows, columns]

    def _experts(self, product: str, config: Dict[str, Any]) -> QuantizedExperts:
        raise NotImplementedError

    def packed(self, name: str, config: Dict[str, Any]) -> QuantizedMixture:
        try:
            mixture = QuantizedMixture(*(self._experts(product, config) for product in PRODUCTS), *self.gate)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        experts, columns, inner = self.shapes["down_proj"]
        down = mixture.down
        if (down.experts, down.n, down.k) != (experts, columns, inner):
            raise ValueError(f"{name}: the checkpoint has {down.experts} experts from {down.n} to {down.k} columns, and "
                             f"{experts} from {columns} to {inner} expected")
        return mixture


class _UnpackedLayers(_UnpackedExperts):
    """Experts each of whose products is a quantized layer."""

    def __init__(self, name: str, own: Any, layers: Dict[str, Dict[str, _Tensors]]) -> None:
        super().__init__(name, own)
        self.names = next((names for names in _OF_EXPERTS if all(set(names) == set(each) for each in layers.values())), ())
        experts = self.shapes["down_proj"][0]
        if not self.names or set(layers) != {str(expert) for expert in range(experts)}:
            raise ValueError(f"{name}: {len(layers)} of {experts} experts are quantized, or some of their layers alone")
        if any(_is_by_rows(tensors) for each in layers.values() for tensors in each.values()):
            raise ValueError(f"{name}: its experts have 8 bits by rows, and 4 or 8 bits in words expected")
        for expert in range(experts):
            self.add_module(str(expert), nn.ModuleDict({
                each: _Unpacked(tensors, None, self.dtype) for each, tensors in layers[str(expert)].items()}))

    def _experts(self, product: str, config: Dict[str, Any]) -> QuantizedExperts:
        names = self.names[:2] if product == "gate_up_proj" else self.names[2:]
        made = [[own[name].packed(f"{place}.{name}", config) for name in names] for place, own in self.named_children()]
        bias = None
        if any(layer.bias is not None for own in made for layer in own):
            bias = torch.stack([torch.cat([layer.weight.codes.new_zeros(layer.weight.n, dtype=self.dtype)
                                           if layer.bias is None else layer.bias for layer in own]) for own in made])
        return QuantizedExperts.join([[layer.weight for layer in own] for own in made], bias,
                                     gate="stacked" if len(names) == 2 else "none")


class _UnpackedMxfp4(_UnpackedExperts):
    """Experts in MXFP4, as gpt-oss has them."""

    def __init__(self, name: str, own: Any, tensors: _Tensors) -> None:
        super().__init__(name, own)
        self.how = "stacked" if own.is_concatenated else "interleaved"
        for product, (experts, rows, columns) in self.shapes.items():
            expected = {"blocks": (experts, rows, columns // 32, 16), "scales": (experts, rows, columns // 32),
                        **({"bias": (experts, rows)} if own.has_bias else {})}
            for part, shape in expected.items():
                kind, found = tensors.get(f"{product}_{part}", ("none", []))
                if tuple(found) != shape:
                    raise ValueError(f"{name}: {product}_{part} of the checkpoint is {found}, and {list(shape)} expected")
                if part != "bias" and kind != "U8":
                    raise ValueError(f"{name}: {product}_{part} of the checkpoint is {kind}, and U8 expected")
                dtype = self.dtype if part == "bias" else _DTYPES[kind]
                self.register_buffer(f"{product}_{part}", torch.empty(shape, dtype=dtype, device="meta"))

    def _experts(self, product: str, config: Dict[str, Any]) -> QuantizedExperts:
        blocks, scales, bias = (self._buffers.get(f"{product}_{part}") for part in ("blocks", "scales", "bias"))
        assert blocks is not None and scales is not None
        return QuantizedExperts.from_mxfp4(blocks, scales, bias, gate=self.how if product == "gate_up_proj" else "none")


def _renamed(model: Any, names: Iterable[str]) -> Dict[str, str]:
    """Returns the names that Transformers gives to layers of a checkpoint."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, rename_source_key
    except ImportError:  # of an older Transformers
        return {name: name for name in names}
    renamings = [each for each in get_model_conversion_mapping(model) if isinstance(each, WeightRenaming)]
    return {name: rename_source_key(f"{name}.", renamings, [])[0][:-1] for name in names}


def _places(model: Any, layers: _Layers) -> Iterator[Tuple[str, nn.Module]]:
    """Returns what takes the place of each quantized module of a model, by the module's name."""
    modules: Dict[str, Any] = dict(model.named_modules())
    prefix, missing = f"{model.base_model_prefix}.", []
    experts: Dict[str, Dict[str, Dict[str, _Tensors]]] = {}
    for name, own in _renamed(model, layers).items():
        found = _EXPERT.fullmatch(own)
        if own not in modules and (found is None or found["at"] not in modules):  # of a model without a head
            own = own.removeprefix(prefix)
            found = _EXPERT.fullmatch(own)
        module, tensors = modules.get(own), layers[name]
        if isinstance(module, nn.Linear):
            yield own, _Unpacked(tensors, module.bias, module.weight.dtype)
        elif module is not None and f"{PRODUCTS[0]}{_BLOCKS}" in tensors:
            yield own, _UnpackedMxfp4(name, module, tensors)
        elif found and hasattr(modules.get(found["at"]), PRODUCTS[0]):
            experts.setdefault(found["at"], {}).setdefault(found["expert"], {})[found["layer"]] = tensors
        else:
            missing.append(name)
    if missing:
        raise ValueError(f"{len(missing)} quantized layers of the checkpoint are no linear layers of "
                         f"{type(model).__name__}, and no experts that are known, such as {missing[0]}")
    for at, of_experts in experts.items():
        yield at, _UnpackedLayers(at, modules[at], of_experts)


@functools.lru_cache(None)
def _register() -> None:
    """Makes transformers know how these checkpoints are loaded."""
    from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    @register_quantization_config("kernwright")
    class Config(QuantizationConfigMixin):  # type: ignore[misc]
        """The checkpoint's own quantization_config, with the headers of its layers."""

        def __init__(self, checkpoint: Dict[str, Any], layers: _Layers, **_: Any) -> None:
            self.quant_method, self.checkpoint, self.layers = "kernwright", checkpoint, layers

        def to_dict(self) -> Dict[str, Any]:
            return {"quant_method": self.quant_method, "checkpoint": self.checkpoint}

    @register_quantizer("kernwright")
    class Quantizer(HfQuantizer):  # type: ignore[misc]
        requires_calibration = True

        def _process_model_before_weight_loading(self, model: Any, **_: Any) -> None:
            for name, made in list(_places(model, self.quantization_config.layers)):
                at, _, last = name.rpartition(".")
                setattr(model.get_submodule(at), last, made)

        def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> None:
            found = [(name, module) for name, module in model.named_modules()
                     if isinstance(module, (_Unpacked, _UnpackedExperts))]
            of_experts = tuple(f"{name}." for name, module in found if isinstance(module, _UnpackedExperts))
            for name, module in found:
                if not name.startswith(of_experts):
                    at, _, last = name.rpartition(".")
                    setattr(model.get_submodule(at), last, module.packed(name, self.quantization_config.checkpoint))

        def is_serializable(self, *_: Any, **__: Any) -> bool:
            return False

        @property
        def is_trainable(self) -> bool:
            return False

        @property
        def is_compileable(self) -> bool:
            return True


def load_quantized(folder: Union[str, pathlib.Path], model_class: Any = None, **named: Any) -> nn.Module:
    """Loads a model of Hugging Face whose linear layers are quantized, for inference, with transformers
    alone: by GPTQ, also sorted by activation, by AWQ, or by compressed-tensors (pack-quantized), in 4 or
    8 bits, with experts of mixtures in the same formats; by compressed-tensors in int8 or fp8 with a
    scale for each row, of activations while it runs; or gpt-oss, whose experts are in MXFP4.

    folder: with config.json and *.safetensors
    model_class: a class of transformers, by default AutoModelForCausalLM
    named: further arguments of its from_pretrained, such as dtype and device_map

    The layers become QuantizedLinear, and experts QuantizedMixture, packed one after another where their
    tensors were loaded; layers that are not quantized stay what they are. `patch` then replaces norms, and
    joins gates with what they open. The model cannot be saved by save_pretrained. Errors: ValueError naming
    what is not known of its quantization_config, and for quantized layers that are neither linear layers
    nor such experts."""
    import transformers

    _register()
    folder = pathlib.Path(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    own = getattr(config, "quantization_config", None)
    if own is None:
        raise ValueError(f"{folder / 'config.json'} has no quantization_config")
    _expect_known(own)
    config.quantization_config = {"quant_method": "kernwright", "checkpoint": own, "layers": _layers(folder)}
    model: nn.Module = (model_class or transformers.AutoModelForCausalLM).from_pretrained(
        folder, config=config, **named)
    return model
