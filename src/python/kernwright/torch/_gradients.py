"""Gradients of products, by PyTorch's products. A product with an activation is computed again
without it, so that a forward keeps nothing but its arguments."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional

from .._arrays import make_error


def _activation_backward(grad: Tensor, before: Tensor, activation: Optional[str]) -> Tensor:
    if activation is None:
        return grad
    if activation == "silu" and torch.is_grad_enabled():  # silu_backward has no backward of its own
        part = before.sigmoid()
        return grad * part * (1 + before * (1 - part))
    if activation == "silu":
        return torch.ops.aten.silu_backward(grad, before)
    approximate = "tanh" if activation == "gelu_tanh" else "none"
    return torch.ops.aten.gelu_backward(grad, before, approximate=approximate)


def _activate(x: Tensor, activation: str) -> Tensor:
    if activation == "silu":
        return functional.silu(x)
    return functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def _refuse_fp8(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.element_size() == 1:
            raise make_error("products of fp8 have no backward, and an argument requires a "
                             "gradient; call them under torch.no_grad()")


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _needed(ctx: Any, count: int) -> Tuple[bool, ...]:
    """Returns which arguments need a gradient. The dispatcher leaves out the last ones if they are
    defaults."""
    return (*ctx.needs_input_grad, False, False, False)[:count]


def _as_given(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
    """One gradient for each argument that the dispatcher handed on."""
    return grads[:len(ctx.needs_input_grad)]


def keep_product(ctx: Any, inputs: Tuple[Any, ...], keyword_only_inputs: Any, output: Any) -> None:
    x, weight, bias, residual = inputs
    _refuse_fp8(x, weight)
    ctx.save_for_backward(x, weight, bias)
    ctx.activation = keyword_only_inputs["activation"]
    ctx.residual_dtype = None if residual is None else residual.dtype


def product_backward(ctx: Any, grad: Tensor, transposed: bool) -> Tuple[Optional[Tensor], ...]:
    """Gradients of x, the matrix, bias and residual. The matrix is [n, k], or `transposed` [k, n],
    or several of these."""
    x, matrix, bias = ctx.saved_tensors
    weight = matrix.mT if transposed else matrix
    needs_x, needs_weight, needs_bias, needs_residual = _needed(ctx, 4)
    of_sum = grad.to(x.dtype)
    if ctx.activation is not None:
        before = x @ weight.mT if bias is None else x @ weight.mT + bias.to(x.dtype)
        of_sum = _activation_backward(of_sum, before, ctx.activation)
    of_weight = None
    if needs_weight:
        rows, of_rows = (x, of_sum) if matrix.dim() > 2 else (_rows(x), _rows(of_sum))
        of_weight = rows.mT @ of_rows if transposed else of_rows.mT @ rows
    return _as_given(ctx, of_sum @ weight if needs_x else None, of_weight,
                     _rows(of_sum).sum(0).to(bias.dtype) if needs_bias else None,
                     grad.to(ctx.residual_dtype) if needs_residual else None)


def keep_gated(ctx: Any, inputs: Tuple[Any, ...], keyword_only_inputs: Any, output: Any) -> None:
    x, weight, norm_weight = inputs
    _refuse_fp8(x, weight)
    if norm_weight is not None:
        raise make_error("gated_linear with norm_weight has no backward, and an argument requires "
                         "a gradient; call rms_norm of PyTorch before it")
    ctx.save_for_backward(x, weight)
    ctx.activation = keyword_only_inputs["activation"]


def gated_backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
    x, weight = ctx.saved_tensors
    gate, up = functional.linear(x, weight).chunk(2, -1)
    of_gate = _activation_backward(grad * up, gate, ctx.activation)
    of_both = torch.cat((of_gate, grad * _activate(gate, ctx.activation)), -1)
    needs_x, needs_weight = _needed(ctx, 2)
    return _as_given(ctx, of_both @ weight if needs_x else None,
                     _rows(of_both).t() @ _rows(x) if needs_weight else None, None)
