"""Stateless layers by the contract of Hugging Face's `kernels`: a layer has a forward and nothing else,
and reads the members of the module whose place it takes."""

from kernwright.torch import ops
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean(x * x) + variance_epsilon) over the last dimension."""
    can_torch_compile = True
    has_backward = False
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)


class SiluAndMul(nn.Module):
    """silu(x[..., :n]) * x[..., n:]."""
    can_torch_compile = True
    has_backward = False

    def forward(self, x: Tensor) -> Tensor:
        return ops.silu_and_mul(x)
