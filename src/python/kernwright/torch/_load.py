"""Models of Hugging Face from quantized checkpoints, which transformers alone cannot load without the
libraries that made them."""

import functools
import json
import pathlib
import struct
from typing import Any, Dict, List, Optional, Union

import torch
from torch import nn

from ._quantized_modules import QuantizedLinear, names_of, pack, sources_of, tensors_of

_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "I32": torch.int32,
           "I64": torch.int64, "U8": torch.uint8, "I8": torch.int8}
_FIRST = (".qweight", ".weight_packed")
_LARGEST_HEADER = 100 << 20  # of a file, as safetensors limits it
_Layers = Dict[str, Dict[str, List[Any]]]  # of each layer's tensors the dtype and the shape


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
    layers: _Layers = {}
    headers = _headers(folder)
    for name in headers:
        if name.endswith(_FIRST):
            at = name.rpartition(".")[0]
            layers[at] = {each[len(at) + 1:]: [headers[each]["dtype"], headers[each]["shape"]]
                          for each in headers if each.startswith(f"{at}.")}
    return layers


def _expect_known(config: Dict[str, Any]) -> None:
    """Refuses what the layers' tensors do not say and quantized_linear does not compute."""
    method = config.get("quant_method")
    if method == "compressed-tensors":
        if config.get("format") != "pack-quantized":
            raise ValueError(f"compressed-tensors' format is {config.get('format')!r}, and 'pack-quantized' expected")
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
    else:
        raise ValueError(f"quant_method is {method!r}, and 'gptq', 'awq' or 'compressed-tensors' expected")


def _group_size(config: Dict[str, Any]) -> Optional[int]:
    """Returns the columns of a group, None if layers differ: then their tensors say it."""
    if config.get("dynamic"):  # GPTQ's rules for some modules
        return None
    sizes = {config.get("group_size"), *((group.get("weights") or {}).get("group_size")
                                         for group in (config.get("config_groups") or {}).values())} - {None}
    return sizes.pop() if len(sizes) == 1 else None


class _Unpacked(nn.Module):
    """Takes the place of a linear layer until its tensors are loaded."""

    def __init__(self, tensors: Dict[str, List[Any]], bias: Optional[nn.Parameter], dtype: torch.dtype) -> None:
        super().__init__()
        for name, (kind, shape) in tensors.items():
            if name != "bias":
                self.register_buffer(name, torch.empty(shape, dtype=_DTYPES[kind], device="meta"))
        if bias is None and "bias" in tensors:
            bias = nn.Parameter(torch.empty(tensors["bias"][1], dtype=dtype, device="meta"), requires_grad=False)
        self.register_parameter("bias", bias)

    def packed(self, name: str, config: Dict[str, Any]) -> QuantizedLinear:
        format, tensors = config.get("checkpoint_format", "gptq"), tensors_of(self)
        sources = [each for each in sources_of(tensors, _group_size(config))
                   if not each.format.startswith("gptq") or each.format == format]
        if len(sources) != 1:
            raise ValueError(f"{name}: its tensors, {names_of(tensors)}, are of no format that is known")
        try:
            return QuantizedLinear(pack(tensors, sources[0]), self.bias)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


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
            modules: Dict[str, Any] = dict(model.named_modules())
            prefix, missing = f"{model.base_model_prefix}.", []
            for name, tensors in self.quantization_config.layers.items():
                own = name if name in modules else name.removeprefix(prefix)
                if not isinstance(modules.get(own), nn.Linear):
                    missing.append(name)
                    continue
                at, _, last = own.rpartition(".")
                setattr(model.get_submodule(at), last,
                        _Unpacked(tensors, modules[own].bias, modules[own].weight.dtype))
            if missing:
                raise ValueError(f"{len(missing)} quantized layers of the checkpoint are no linear layers of "
                                 f"{type(model).__name__}, such as {missing[0]}")

        def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> None:
            for name, module in list(model.named_modules()):
                if isinstance(module, _Unpacked):
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
    8 bits.

    folder: with config.json and *.safetensors
    model_class: a class of transformers, by default AutoModelForCausalLM
    named: further arguments of its from_pretrained, such as dtype and device_map

    The layers become QuantizedLinear, packed one after another where their tensors were loaded; layers
    that are not quantized stay what they are. `patch` then replaces norms, and joins gates with what they
    open. The model cannot be saved by save_pretrained. Errors: ValueError naming what is not known of its quantization_config, and for
    quantized layers that are no linear layers of the model, such as experts."""
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
