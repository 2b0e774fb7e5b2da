"""kernwright's experts of mixtures in vLLM, in MXFP4 and with integers of 4 and 8 bits. vLLM asks the configuration of a
quantization for the method of each layer. Ours, registered under the same names, ask vLLM's, and return its method with
another way to compute if kernels take the layer. Weights are made and loaded as vLLM does it."""

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from vllm import envs
from vllm.model_executor.layers import quantization
from vllm.platforms import current_platform

from ..torch import _operators as operators
from ..torch._checks import MOST_EXPERTS
from ..torch._quantized import QuantizedWeight
from ..torch._quantized_experts import QuantizedExperts
from ..torch._quantized_mixtures import QuantizedMixture
from ._packed_layers import DTYPES, those_that_hold

#: Names of quantizations whose layers may have such experts.
METHODS = ("gpt_oss_mxfp4", "mxfp4", "compressed-tensors", "gptq", "gptq_marlin", "auto_gptq", "awq", "awq_marlin",
           "auto_awq")
NAME = "KernwrightExperts"  # by which VLLM_DISABLED_KERNELS leaves them out
_PACKED = "kernwright_experts"  # the child of a layer that has its packed weights
_PLACES = "kernwright_places"  # of all experts among those of a rank
# Of vLLM's activations ours, and how rows of gates lie.
_ACTIVATIONS = {"silu": ("silu", "stacked"), "gelu": ("gelu_erf", "stacked"), "gelu_tanh": ("gelu_tanh", "stacked"),
                "swigluoai": ("swiglu_oai", "interleaved"), "swigluoai_uninterleave": ("swiglu_oai", "stacked")}


class Format(NamedTuple):
    """How a method of vLLM keeps the weights of experts."""
    reasons: Callable[[Any], Dict[str, bool]]  # why a method is left
    read: Callable[[Any, nn.Module, str, str], QuantizedExperts]  # packs a product, "w13" or "w2"
    step: int = 1  # columns of which ranks have whole multiples


def _bias_of(method: Any, layer: nn.Module, product: str) -> Optional[Tensor]:
    bias = getattr(layer, f"{product}_bias", None)
    return None if bias is None else bias.data.to(method.moe.in_dtype)


def _rows(layer: nn.Module, name: str) -> Tensor:
    """Returns a parameter as [experts, rows, ...]."""
    own = getattr(layer, name)
    rows: Tensor = own.data.mT.contiguous() if getattr(own, "is_transposed", False) else own.data
    return rows


def _mxfp4(method: Any, layer: nn.Module, product: str, gate: str) -> QuantizedExperts:
    return QuantizedExperts.from_mxfp4(getattr(layer, f"{product}_weight").data,
                                       getattr(layer, f"{product}_weight_scale").data,
                                       _bias_of(method, layer, product), gate=gate)


def _compressed(method: Any, layer: nn.Module, product: str, gate: str) -> QuantizedExperts:
    codes, scales = (_rows(layer, f"{product}_{name}") for name in ("weight_packed", "weight_scale"))
    bias, named = _bias_of(method, layer, product), {"bits": method.num_bits, "group": method.group_size}
    zeros = getattr(layer, f"{product}_weight_zero_point", None)
    if zeros is None:
        return QuantizedExperts.from_compressed_tensors(codes, scales, bias, gate=gate, **named)
    return QuantizedExperts.join([(QuantizedWeight.from_compressed_tensors(*own, **named),)
                                  for own in zip(codes, scales, zeros.data)], bias, gate=gate)


def _gptq(method: Any, layer: nn.Module, product: str, gate: str) -> QuantizedExperts:
    """Words along k are those of compressed-tensors, and zero points of symmetric weights are not read."""
    config = method.quant_config
    # vLLM makes biases of zeros, and reads them if the checkpoint has some.
    has_bias = f"{product}_bias" in getattr(layer, "_loaded_expert_biases", ())
    return QuantizedExperts.from_compressed_tensors(
        _rows(layer, f"{product}_qweight"), _rows(layer, f"{product}_scales"),
        _bias_of(method, layer, product) if has_bias else None, gate=gate, bits=config.weight_bits, group=config.group_size)


def _awq(method: Any, layer: nn.Module, product: str, gate: str) -> QuantizedExperts:
    parts = [getattr(layer, f"{product}_{name}").data for name in ("qweight", "qzeros", "scales")]
    return QuantizedExperts.join([(QuantizedWeight.from_awq(*own, group=method.quant_config.group_size),)
                                  for own in zip(*parts)], _bias_of(method, layer, product), gate=gate)


_MXFP4 = Format(lambda method: {f"activations of {method.moe.in_dtype}": method.moe.in_dtype is not torch.bfloat16},
                _mxfp4, step=32)
_COMPRESSED = Format(
    lambda method: {f"{method.num_bits} bits": method.num_bits not in (4, 8),
                    "columns sorted by group": "group" in str(getattr(method.weight_quant, "actorder", None)).lower()},
    _compressed)
_GPTQ = Format(
    lambda method: {f"{method.quant_config.weight_bits} bits": method.quant_config.weight_bits not in (4, 8),
                    "weights with zero points": not method.quant_config.is_sym,
                    "columns sorted by group": bool(getattr(method.quant_config, "desc_act", False))}, _gptq)
_AWQ = Format(lambda method: {f"{method.quant_config.weight_bits} bits": method.quant_config.weight_bits != 4,
                              "weights without zero points": not method.quant_config.zero_point}, _awq)

#: The methods of vLLM 0.20 to 0.33, by the names of their classes.
FORMATS = {"GptOssMxfp4MoEMethod": _MXFP4, "Mxfp4MoEMethod": _MXFP4,
           "CompressedTensorsWNA16MoEMethod": _COMPRESSED, "CompressedTensorsWNA16MarlinMoEMethod": _COMPRESSED,
           "AutoGPTQMoEMethod": _GPTQ, "GPTQMarlinMoEMethod": _GPTQ,
           "AutoAWQMoEMethod": _AWQ, "AWQMarlinMoEMethod": _AWQ}


def _gate_of(method: Any, layer: nn.Module) -> Tuple[Tuple[str, float, float], str]:
    """Returns how gates open rows, and how they lie."""
    activation, how = _ACTIVATIONS[_activation_of(layer)]
    # vLLM's method for gpt-oss has these numbers, whatever its layer says.
    limit, alpha = (None if type(method).__name__ == "GptOssMxfp4MoEMethod" else getattr(layer, name, None)
                    for name in ("swiglu_limit", "swiglu_alpha"))
    return (activation, 7.0 if limit is None else float(limit), 1.702 if alpha is None else float(alpha)), how


def _activation_of(layer: nn.Module) -> str:
    return str(getattr(layer.activation, "value", layer.activation))


def reasons_against(method: Any, layer: nn.Module, format: Format) -> List[str]:
    """Returns why a layer is left to vLLM."""
    moe, activation = method.moe, _activation_of(layer)
    limit, beta = (getattr(layer, name, None) for name in ("swiglu_limit", "swiglu_beta"))
    return those_that_hold({
        f"{NAME} in VLLM_DISABLED_KERNELS": NAME in (getattr(envs, "VLLM_DISABLED_KERNELS", None) or ()),
        f"the backend {moe.moe_backend} that is asked for": moe.moe_backend != "auto",
        "GPUs older than sm_80": not current_platform.has_device_capability(80),
        f"the activation {activation}": activation not in _ACTIVATIONS,
        f"{activation} limited to {limit}": not activation.startswith("swigluoai") and limit is not None,
        f"{activation} with {beta} added": activation.startswith("swigluoai") and beta not in (None, 1.0),
        f"activations of {moe.in_dtype}": moe.in_dtype not in DTYPES,
        "weights of the router on the input": bool(layer.apply_router_weight_on_input),
        "tokens that ranks exchange": moe.dp_size > 1 or moe.pcp_size > 1 or bool(moe.is_sequence_parallel),
        "experts that move between ranks": bool(moe.moe_parallel_config.enable_eplb),
        "adapters": bool(moe.is_lora_enabled),
        f"{moe.num_local_experts} experts": moe.num_local_experts > MOST_EXPERTS, **format.reasons(method)})


class _Experts:
    """The part of a method that is ours. It stands in front of vLLM's class."""
    is_monolithic = False  # vLLM chooses the experts
    supports_eplb = False
    skip_forward_padding = False
    has_unpadded_output = False
    moe: Any

    def maybe_roundup_sizes(self, hidden_size: int, intermediate_size_per_partition: int, act_dtype: Any,
                            moe_parallel_config: Any) -> Tuple[int, int]:
        step = FORMATS[type(self).__name__].step
        return hidden_size, -(-intermediate_size_per_partition // step) * step

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Packs the weights, and leaves empty tensors in the places of the layer's own."""
        read, (gate, how) = FORMATS[type(self).__name__].read, _gate_of(self, layer)
        mixture = QuantizedMixture(read(self, layer, "w13", how), read(self, layer, "w2", "none"), *gate)
        for name, own in layer.named_parameters(recurse=False):
            if name.startswith(("w13_", "w2_")):
                own.data = own.data.new_empty(0)
        setattr(layer, _PACKED, mixture)
        places = getattr(layer, "expert_map", None)
        if places is not None:  # with one more, for the expert -1
            places = torch.cat((places, places.new_full((1,), -1)))
        layer.register_buffer(_PLACES, places, persistent=False)

    def get_fused_moe_quant_config(self, layer: nn.Module) -> None:
        """Says that there is none, which vLLM's own kernels need."""

    def apply(self, layer: nn.Module, x: Tensor, topk_weights: Tensor, topk_ids: Tensor, shared_experts: Any = None,
              shared_experts_input: Any = None) -> Tensor:
        mixture, places = layer._modules[_PACKED], layer._buffers[_PLACES]
        if places is not None:
            topk_ids = places.index_select(0, topk_ids.remainder(places.shape[0]).flatten()).view_as(topk_ids)
        return operators.quantized_mixture(x, mixture, topk_ids, topk_weights)


@functools.lru_cache(maxsize=None)
def _method_class(theirs: type) -> type:
    """Returns the class of a method under the name of vLLM's, by which it loads weights."""
    return type(theirs.__name__, (_Experts, theirs), {"__module__": theirs.__module__})


def take(method: Any, layer: nn.Module) -> Any:
    """Returns the method of a layer, ours if kernels take it."""
    format = FORMATS.get(type(method).__name__)
    if format is None:
        return method
    reasons = reasons_against(method, layer, format)
    if reasons:
        operators.say_once("vLLM's experts stay as they are, because of %s", ", ".join(reasons))
        return method
    kind = _method_class(type(method))
    ours = kind.__new__(kind)
    vars(ours).update(vars(method))
    return ours


def _config_class(theirs: type) -> type:
    class Config(theirs):  # type: ignore[valid-type, misc]
        def get_quant_method(self, layer: nn.Module, prefix: str) -> Any:
            return take(super().get_quant_method(layer, prefix), layer)

    # vLLM hands configurations to other processes, which find the class here.
    Config.__name__ = Config.__qualname__ = f"Kernwright{theirs.__name__}"
    return Config


def _configs() -> Dict[str, type]:
    """Returns our classes, by the names of vLLM's quantizations that this vLLM has."""
    make = functools.lru_cache(maxsize=None)(_config_class)  # several names may have one class
    return {name: make(quantization.get_quantization_config(name)) for name in METHODS
            if name in quantization.QUANTIZATION_METHODS}


CONFIGS = _configs()
globals().update({kind.__name__: kind for kind in CONFIGS.values()})


def register_experts() -> List[str]:
    """Registers our configurations, and returns their names."""
    for name, kind in CONFIGS.items():
        quantization.register_quantization_config(name)(kind)
    return sorted({kind.__name__ for kind in CONFIGS.values()})
