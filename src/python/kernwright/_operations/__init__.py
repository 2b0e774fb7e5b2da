"""Operations on arrays, under the names of torch.nn.functional and FlashInfer.

They take arrays of any framework with DLPack or `__cuda_array_interface__` that are on a GPU, and
work on the framework's current stream. Results are new arrays of the same framework, or `out=`.
Nothing is copied: an array whose layout no kernel takes is refused. All of them raise Error."""

from .._arrays import dtype_text
from .products import (gated_linear, grouped_matmul, grouped_quantized_matmul, linear, matmul,
                       scaled_matmul)
from .rows import (elementwise, gelu_and_mul, layer_norm, reduce, rms_norm, rope, silu_and_mul,
                   softmax)
from .sequences import attention

__all__ = ["attention", "dtype_text", "elementwise", "gated_linear", "gelu_and_mul",
           "grouped_matmul", "grouped_quantized_matmul", "layer_norm", "linear", "matmul", "reduce",
           "rms_norm", "rope", "scaled_matmul", "silu_and_mul", "softmax"]
