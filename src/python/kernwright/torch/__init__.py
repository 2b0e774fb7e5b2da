"""kernwright in PyTorch: operators, models, Inductor, and attention and layers of Hugging Face.

    import kernwright.torch
    report = kernwright.torch.patch(model)        # Hugging Face: Llama, Mistral, Mixtral, Qwen, gpt-oss
    print(report)                                 # what was replaced, what was not, and why

The functions are kernwright's operations as operators, `torch.ops.kernwright`, which torch.compile
traces. Those with a backward have gradients; see `kernwright.torch.ops`."""

from . import layers
from ._load import load_quantized
from ._packing import pack
from ._patch import Report, patch, unpatch
from ._quantized import QuantizedRows, QuantizedWeight
from ._quantized_experts import QuantizedExperts
from ._quantized_mixtures import QuantizedMixture
from ._quantized_modules import QuantizedLinear
from .inductor import fuse_in_inductor, use_in_inductor
from .ops import (append_attention, attention, choose_experts, combine_experts, gated_linear,
                  gelu_and_mul, grouped_matmul, layer_norm, linear, matmul, norm_rope,
                  order_experts, qkv_linear, quantize_rows, quantized_grouped_matmul,
                  quantized_linear, rms_norm, rope, scaled_dot_product_attention, scaled_matmul,
                  silu_and_mul, silu_mul, softmax)
from .transformers import use_in_transformers

__all__ = ["QuantizedExperts", "QuantizedLinear", "QuantizedMixture", "QuantizedRows", "QuantizedWeight",
           "Report", "append_attention", "attention", "choose_experts", "combine_experts", "fuse_in_inductor",
           "gated_linear", "gelu_and_mul", "grouped_matmul", "layer_norm", "layers", "linear", "load_quantized",
           "matmul", "norm_rope", "order_experts", "pack", "patch", "qkv_linear", "quantize_rows", "quantized_grouped_matmul",
           "quantized_linear", "rms_norm", "rope", "scaled_dot_product_attention", "scaled_matmul",
           "silu_and_mul", "silu_mul", "softmax", "unpatch", "use_in_inductor", "use_in_transformers"]
