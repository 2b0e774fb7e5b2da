"""kernwright's operations as operators of PyTorch, `torch.ops.kernwright`.

torch.compile traces them without graph breaks, and CUDA graphs capture them. They compute on a GPU,
and return shapes on meta and fake tensors. The functions of this module take the same arguments: if
nothing but the kernel needs to see a call, they launch it at once, without the dispatcher. Their
docstrings say what they have besides the functions of kernwright of the same names.

`linear`, `matmul` and `gated_linear` have a backward, by PyTorch's products. The others refuse
arguments that require a gradient."""

from .experts import choose_experts, combine_experts, order_experts
from .products import gated_linear, linear, matmul, qkv_linear
from .quantized_products import quantize_rows, quantized_grouped_matmul, quantized_linear
from .rows import (gelu_and_mul, layer_norm, norm_rope, rms_norm, rope, silu_and_mul, silu_mul,
                   softmax)
from .scaled_products import grouped_matmul, scaled_matmul
from .sequences import append_attention, attention, scaled_dot_product_attention

__all__ = ["append_attention", "attention", "choose_experts", "combine_experts",
           "gated_linear", "gelu_and_mul", "grouped_matmul", "layer_norm", "linear",
           "matmul", "norm_rope", "order_experts", "qkv_linear", "quantize_rows",
           "quantized_grouped_matmul", "quantized_linear", "rms_norm", "rope",
           "scaled_dot_product_attention", "scaled_matmul", "silu_and_mul", "silu_mul",
           "softmax"]
