"""kernwright's operations as operators of PyTorch, `torch.ops.kernwright`.

torch.compile traces them without graph breaks, and CUDA graphs capture them. They compute on a GPU,
and on meta and fake tensors they give shapes. The functions of this module take the same arguments:
where nothing but the kernel has to see a call, they launch it at once, without the dispatcher.

`linear`, `matmul` and `gated_linear` have a backward, by PyTorch's products. The others refuse
arguments that require a gradient."""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _operations as _arrays
from .._arrays import make_error
from . import _fused, _gradients

_library = torch.library.Library("kernwright", "DEF")

# A kernel is made for the strides that it met, so a compiler may not lay a tensor out otherwise.
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)

_PLAIN = (Tensor, torch.nn.Parameter)


def _direct(*tensors: Optional[Tensor]) -> bool:
    """Whether a kernel may be launched at once: nobody traces, transforms, or needs a gradient."""
    if torch.compiler.is_compiling():
        return False
    if (torch._C._len_torch_dispatch_stack() or forward_ad._current_level >= 0
            or torch._C._get_tracing_state() is not None
            or torch._C._functorch.peek_interpreter_stack() is not None):
        return False
    differentiates = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or not tensor.is_cuda
                                   or (differentiates and tensor.requires_grad)):
            return False
    return True


def _define(schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    """Defines an operator that gives what `compute` does, in tensors that `shapes` gives. On tensors that
    lie on no GPU `compute` says so."""
    name = schema[:schema.index("(")]
    _library.define(schema, tags=_TAGS)
    for key in ("CUDA", "CompositeExplicitAutograd"):
        _library.impl(name, compute, key)
    _library.impl(name, shapes, "Meta")
    return name


def _define_forward_only(schema: str, compute: Callable[..., Any],
                         shapes: Callable[..., Any]) -> None:
    """The same of an operator that refuses arguments which require a gradient."""
    name = _define(schema, compute, shapes)
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.kernwright, packet), overload or "default")

    def refuse_gradients(keyset: Any, *arguments: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, *named.values()):
            raise make_error(f"kernwright::{packet} has no backward, and an argument requires a "
                             "gradient; call it under torch.no_grad(), or use PyTorch's own")
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments,
                                       **named)

    _library.impl(name, refuse_gradients, "Autograd", with_keyset=True)


def _expect(right: Any, text: Callable[[], str]) -> None:
    """Refuses on meta and fake tensors what a kernel would refuse."""
    torch._check(right, text)


def _new(like: Tensor, shape: Sequence[Any], dtype: Optional[torch.dtype] = None) -> Tensor:
    return torch.empty(shape, dtype=like.dtype if dtype is None else dtype, device=like.device)


# Products.

def _product_shape(x: Tensor, k: Any, n: Any, bias: Optional[Tensor], residual: Optional[Tensor],
                   dtype: Optional[torch.dtype]) -> Tensor:
    _expect(x.shape[-1] == k, lambda: f"x has rows of {x.shape[-1]} elements, and the weight has "
                                      f"k={k}")
    shape = (*x.shape[:-1], n)
    if bias is not None:
        _expect(bias.dim() == 1 and bias.shape[0] == n,
                lambda: f"bias has the shape {tuple(bias.shape)}, and ({n},) expected")
    if residual is not None:
        _expect(tuple(residual.shape) == shape,
                lambda: f"residual has the shape {tuple(residual.shape)}, and {shape} expected")
    return _new(x, shape, dtype)


def _matrix(name: str, tensor: Tensor) -> Tuple[Any, Any]:
    _expect(tensor.dim() == 2, lambda: f"{name} has {tensor.dim()} dimensions, and 2 expected")
    return tensor.shape[0], tensor.shape[1]


def _compute_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                    residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                    out_dtype: Optional[torch.dtype] = None) -> Tensor:
    return _arrays.linear(x, weight, bias, residual=residual, activation=activation,
                          out_dtype=out_dtype)


def _linear_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    n, k = _matrix("weight", weight)
    return _product_shape(x, k, n, bias, residual, out_dtype)


_define("linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, "
        "str? activation=None, ScalarType? out_dtype=None) -> Tensor",
        _compute_linear, _linear_shape)


def _compute_linear_out(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                        residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                        out: Tensor) -> None:
    _arrays.linear(x, weight, bias, residual=residual, activation=activation, out=out)


def _linear_out_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                      residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                      out: Tensor) -> None:
    shape = tuple(_linear_shape(x, weight, bias, residual).shape)
    _expect(tuple(out.shape) == shape,
            lambda: f"out has the shape {tuple(out.shape)}, and {shape} expected")


_define_forward_only("linear.out(Tensor x, Tensor weight, Tensor? bias=None, "
                     "Tensor? residual=None, *, str? activation=None, Tensor(a!) out) -> ()",
                     _compute_linear_out, _linear_out_shape)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """activation(x @ weight.T + bias) + residual, as torch.nn.functional.linear with more fused.

    x: [..., k]; weight: [n, k], bf16, fp16 or fp8_e4m3 as x; bias: [n]; residual: [..., n]
    activation: None, "gelu_tanh", "gelu_erf" or "silu"
    out: [..., n], without gradients; out_dtype: of a new result, x's where left out

    Differentiable in x, weight, bias and residual. Errors: kernwright.Error, see
    kernwright.linear."""
    if _direct(x, weight, bias, residual, out):
        return _arrays.linear(x, weight, bias, activation=activation, residual=residual, out=out,
                              out_dtype=out_dtype)
    if out is None:
        return torch.ops.kernwright.linear(x, weight, bias, residual, activation=activation,
                                           out_dtype=out_dtype)
    torch.ops.kernwright.linear.out(x, weight, bias, residual, activation=activation, out=out)
    return out


def _compute_matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                    residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                    out_dtype: Optional[torch.dtype] = None) -> Tensor:
    return _arrays.matmul(a, b, bias=bias, residual=residual, activation=activation,
                          out_dtype=out_dtype)


def _matmul_shape(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, *, activation: Optional[str] = None,
                  out_dtype: Optional[torch.dtype] = None) -> Tensor:
    k, n = _matrix("b", b)
    return _product_shape(a, k, n, bias, residual, out_dtype)


_define("matmul(Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, *, "
        "str? activation=None, ScalarType? out_dtype=None) -> Tensor",
        _compute_matmul, _matmul_shape)


def _compute_matmul_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    _arrays.matmul(a, b, out=out)


def _matmul_out_shape(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    shape = tuple(_matmul_shape(a, b).shape)
    _expect(tuple(out.shape) == shape,
            lambda: f"out has the shape {tuple(out.shape)}, and {shape} expected")


_define_forward_only("matmul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> ()",
                     _compute_matmul_out, _matmul_out_shape)


def matmul(a: Tensor, b: Tensor, *, bias: Optional[Tensor] = None,
           activation: Optional[str] = None, residual: Optional[Tensor] = None,
           out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """activation(a @ b + bias) + residual, as torch.matmul of matrices.

    a: [..., k]; b: [k, n], or the transposed view of [n, k]; the rest as in `linear`."""
    if _direct(a, b, bias, residual):
        return _arrays.matmul(a, b, bias=bias, activation=activation, residual=residual,
                              out_dtype=out_dtype)
    return torch.ops.kernwright.matmul(a, b, bias, residual, activation=activation,
                                       out_dtype=out_dtype)


def _compute_gated_linear(x: Tensor, weight: Tensor, norm_weight: Optional[Tensor] = None, *,
                          activation: str = "silu", eps: float = 1e-6) -> Tensor:
    if norm_weight is None:
        return _arrays.gated_linear(x, weight, activation=activation)
    return _fused.norm_gated_linear(x, weight, norm_weight, activation, eps)


def _gated_linear_shape(x: Tensor, weight: Tensor, norm_weight: Optional[Tensor] = None, *,
                        activation: str = "silu", eps: float = 1e-6) -> Tensor:
    rows, k = _matrix("weight", weight)
    _expect(rows % 2 == 0, lambda: f"weight has {rows} rows, and an even number expected: those of "
                                   "the gate, then those of the up projection")
    return _product_shape(x, k, rows // 2, None, None, None)


_define("gated_linear(Tensor x, Tensor weight, Tensor? norm_weight=None, *, str activation='silu', "
        "float eps=1e-6) -> Tensor", _compute_gated_linear, _gated_linear_shape)


def gated_linear(x: Tensor, weight: Tensor, norm_weight: Optional[Tensor] = None, *,
                 activation: str = "silu", eps: float = 1e-6) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) in one kernel, the first half of a SwiGLU.

    x: [..., k]; weight: [2 * n, k], the rows of the gate, then those of up; result: [..., n]
    norm_weight: [k], for at most 16 rows of x in bf16: they are first normalised as by `rms_norm`
    activation: "silu", "gelu_tanh" or "gelu_erf"

    Differentiable in x and weight where there is no norm_weight."""
    if _direct(x, weight, norm_weight):
        return _compute_gated_linear(x, weight, norm_weight, activation=activation, eps=eps)
    return torch.ops.kernwright.gated_linear(x, weight, norm_weight, activation=activation,
                                             eps=eps)


def _compute_qkv_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                        norm_weight: Optional[Tensor] = None, *, kv_heads: int,
                        head_dim: int, eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    return _fused.qkv_linear(x, weight, bias, norm_weight, kv_heads, head_dim, eps)


def _qkv_linear_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                      norm_weight: Optional[Tensor] = None, *, kv_heads: int, head_dim: int,
                      eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    rows, k = _matrix("weight", weight)
    heads = rows // head_dim - 2 * kv_heads
    _expect(heads > 0 and rows % head_dim == 0,
            lambda: f"weight has {rows} rows, and those of q, and 2 * {kv_heads} heads of "
                    f"{head_dim} expected")
    _product_shape(x, k, rows, bias, None, None)
    q, k_new, v_new = (_new(x, (*x.shape[:-1], count, head_dim))
                       for count in (heads, kv_heads, kv_heads))
    return q, k_new, v_new


_define_forward_only("qkv_linear(Tensor x, Tensor weight, Tensor? bias=None, "
                     "Tensor? norm_weight=None, *, int kv_heads, int head_dim, float eps=1e-6) "
                     "-> (Tensor, Tensor, Tensor)", _compute_qkv_linear, _qkv_linear_shape)


def qkv_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
               norm_weight: Optional[Tensor] = None, *, kv_heads: int, head_dim: int,
               eps: float = 1e-6) -> Tuple[Tensor, Tensor, Tensor]:
    """x @ weight.T + bias, split into q, k and v, in one kernel.

    x: [..., hidden]; weight: [(heads + 2 * kv_heads) * head_dim, hidden], the rows of q, of k, of v
    bias: one for each row; norm_weight: as in `gated_linear`
    Result: [..., heads, head_dim], [..., kv_heads, head_dim] and the same again, without gaps.
    Source: matmul with split=qkv."""
    if _direct(x, weight, bias, norm_weight):
        return _fused.qkv_linear(x, weight, bias, norm_weight, kv_heads, head_dim, eps)
    return torch.ops.kernwright.qkv_linear(x, weight, bias, norm_weight, kv_heads=kv_heads,
                                           head_dim=head_dim, eps=eps)


torch.library.register_autograd("kernwright::linear",
                                lambda ctx, grad: _gradients.product_backward(ctx, grad, False),
                                setup_context=_gradients.keep_product, lib=_library)
torch.library.register_autograd("kernwright::matmul",
                                lambda ctx, grad: _gradients.product_backward(ctx, grad, True),
                                setup_context=_gradients.keep_product, lib=_library)
torch.library.register_autograd("kernwright::gated_linear", _gradients.gated_backward,
                                setup_context=_gradients.keep_gated, lib=_library)


# Norms.

def _norm_shape(x: Tensor, *vectors: Optional[Tensor]) -> Tensor:
    for vector in vectors:
        if vector is not None:
            _expect(vector.dim() == 1 and vector.shape[0] == x.shape[-1],
                    lambda: f"weight or bias has the shape {tuple(vector.shape)}, and "
                            f"({x.shape[-1]},) expected")
    return _new(x, x.shape)


def _sum_shape(x: Tensor, residual: Tensor, *vectors: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    _expect(x.shape == residual.shape,
            lambda: f"residual has the shape {tuple(residual.shape)}, and {tuple(x.shape)} "
                    "expected")
    return _norm_shape(x, *vectors), _new(x, x.shape)


_define_forward_only("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor",
                     lambda x, weight=None, eps=1e-6: _arrays.rms_norm(x, weight, eps),
                     lambda x, weight=None, eps=1e-6: _norm_shape(x, weight))
_define_forward_only("add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "float eps=1e-6) -> (Tensor, Tensor)",
                     lambda x, residual, weight=None, eps=1e-6:
                     _arrays.rms_norm(x, weight, eps, residual=residual),
                     lambda x, residual, weight=None, eps=1e-6: _sum_shape(x, residual, weight))
_define_forward_only("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, "
                     "float eps=1e-5) -> Tensor",
                     lambda x, weight=None, bias=None, eps=1e-5:
                     _arrays.layer_norm(x, weight, bias, eps),
                     lambda x, weight=None, bias=None, eps=1e-5: _norm_shape(x, weight, bias))
_define_forward_only("add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, "
                     "Tensor? bias=None, float eps=1e-5) -> (Tensor, Tensor)",
                     lambda x, residual, weight=None, bias=None, eps=1e-5:
                     _arrays.layer_norm(x, weight, bias, eps, residual=residual),
                     lambda x, residual, weight=None, bias=None, eps=1e-5:
                     _sum_shape(x, residual, weight, bias))


def rms_norm(x: Tensor, weight: Optional[Tensor] = None, eps: float = 1e-6, *,
             residual: Optional[Tensor] = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as
    torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum)"""
    if _direct(x, weight, residual):
        return _arrays.rms_norm(x, weight, eps, residual=residual)
    if residual is None:
        return torch.ops.kernwright.rms_norm(x, weight, eps)
    return torch.ops.kernwright.add_rms_norm(x, residual, weight, eps)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5, *, residual: Optional[Tensor] = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`."""
    if _direct(x, weight, bias, residual):
        return _arrays.layer_norm(x, weight, bias, eps, residual=residual)
    if residual is None:
        return torch.ops.kernwright.layer_norm(x, weight, bias, eps)
    return torch.ops.kernwright.add_layer_norm(x, residual, weight, bias, eps)


# Activations.

def _halved_shape(x: Tensor) -> Tensor:
    _expect(x.shape[-1] % 2 == 0, lambda: f"x has {x.shape[-1]} columns, and an even number "
                                          "expected")
    return _new(x, (*x.shape[:-1], x.shape[-1] // 2))


def _silu_mul_shape(gate: Tensor, up: Tensor) -> Tensor:
    _expect(gate.shape == up.shape, lambda: f"up has the shape {tuple(up.shape)}, and "
                                            f"{tuple(gate.shape)} expected")
    return _new(gate, gate.shape)


_define_forward_only("silu_and_mul(Tensor x) -> Tensor", _arrays.silu_and_mul, _halved_shape)
_define_forward_only("gelu_and_mul(Tensor x, *, str approximate='none') -> Tensor",
                     lambda x, *, approximate="none":
                     _arrays.gelu_and_mul(x, approximate=approximate),
                     lambda x, *, approximate="none": _halved_shape(x))
_define_forward_only("silu_mul(Tensor gate, Tensor up) -> Tensor", _fused.silu_mul,
                     _silu_mul_shape)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(x[..., :n]) * x[..., n:]. x: [..., 2 * n] without gaps; bf16, fp16 or fp32."""
    return _arrays.silu_and_mul(x) if _direct(x) else torch.ops.kernwright.silu_and_mul(x)


def gelu_and_mul(x: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as
    torch.nn.functional.gelu."""
    if _direct(x):
        return _arrays.gelu_and_mul(x, approximate=approximate)
    return torch.ops.kernwright.gelu_and_mul(x, approximate=approximate)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up. Two tensors of one shape without gaps; bf16, fp16 or fp32."""
    return _fused.silu_mul(gate, up) if _direct(gate, up) else torch.ops.kernwright.silu_mul(
        gate, up)


# Attention and what belongs to it.

_define_forward_only("softmax(Tensor x, Tensor? mask=None, *, float scale=1.0, bool causal=False) "
                     "-> Tensor",
                     lambda x, mask=None, *, scale=1.0, causal=False:
                     _arrays.softmax(x, scale=scale, causal=causal, mask=mask),
                     lambda x, mask=None, *, scale=1.0, causal=False: _new(x, x.shape))


def softmax(x: Tensor, *, scale: float = 1.0, causal: bool = False,
            mask: Optional[Tensor] = None) -> Tensor:
    """softmax(scale * x + mask) over the last dimension; see kernwright.softmax."""
    if _direct(x, mask):
        return _arrays.softmax(x, scale=scale, causal=causal, mask=mask)
    return torch.ops.kernwright.softmax(x, mask, scale=scale, causal=causal)


def _rope_shape(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
                interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    for name, table in (("cos", cos), ("sin", sin)):
        _expect(table.dim() == 2 and table.shape[1] * 2 == q.shape[-1],
                lambda: f"{name} has the shape {tuple(table.shape)}, and [tokens, "
                        f"{q.shape[-1] // 2}] expected")
    return _new(q, q.shape), _new(k, k.shape)


_define_forward_only("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool interleaved=False) "
                     "-> (Tensor, Tensor)",
                     lambda q, k, cos, sin, *, interleaved=False:
                     _arrays.rope(q, k, cos, sin, interleaved=interleaved), _rope_shape)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *,
         interleaved: bool = False) -> Tuple[Tensor, Tensor]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps; cos, sin: [tokens,
    head_dim / 2] in fp32; see kernwright.rope."""
    if _direct(q, k, cos, sin):
        return _arrays.rope(q, k, cos, sin, interleaved=interleaved)
    return torch.ops.kernwright.rope(q, k, cos, sin, interleaved=interleaved)


def _attention_result(q: Tensor, v: Tensor) -> Tensor:
    """A tensor for the result, which lies as q does: as [batch, heads, tokens, head_dim], or as the
    transposed view of [batch, tokens, heads, head_dim]."""
    _expect(q.dim() == 4 and v.dim() == 4, lambda: "q and v have 4 dimensions: batch, heads, "
                                                   "tokens, head_dim")
    batch, heads, tokens, _ = q.shape
    if q.stride(1) < q.stride(2):
        return _new(q, (batch, tokens, heads, v.shape[-1])).transpose(1, 2)
    return _new(q, (batch, heads, tokens, v.shape[-1]))


def _compute_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor] = None,
                       alibi_slopes: Optional[Tensor] = None, kv_lengths: Optional[Tensor] = None,
                       *, causal: bool = False, scale: Optional[float] = None,
                       window: Optional[int] = None, softcap: Optional[float] = None) -> Tensor:
    return _arrays.attention(q, k, v, causal=causal, scale=scale, window=window, softcap=softcap,
                             sinks=sinks, alibi_slopes=alibi_slopes, kv_lengths=kv_lengths,
                             out=_attention_result(q, v))


_ATTENTION = ("(Tensor q, Tensor k, Tensor v, Tensor? sinks=None, Tensor? alibi_slopes=None, "
              "Tensor? kv_lengths=None, *, bool causal=False, float? scale=None, "
              "int? window=None, float? softcap=None)")
_define_forward_only(f"attention{_ATTENTION} -> Tensor", _compute_attention,
                     lambda q, k, v, *_, **named: _attention_result(q, v))


def _compute_attention_lse(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor] = None,
                           alibi_slopes: Optional[Tensor] = None,
                           kv_lengths: Optional[Tensor] = None, **named: Any
                           ) -> Tuple[Tensor, Tensor]:
    return _arrays.attention(q, k, v, sinks=sinks, alibi_slopes=alibi_slopes,
                             kv_lengths=kv_lengths, return_lse=True, out=_attention_result(q, v),
                             **named)


_define_forward_only(f"attention_lse{_ATTENTION} -> (Tensor, Tensor)", _compute_attention_lse,
                     lambda q, k, v, *_, **named: (_attention_result(q, v),
                                                   _new(q, q.shape[:3], torch.float32)))


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False,
              scale: Optional[float] = None, window: Optional[int] = None,
              softcap: Optional[float] = None, sinks: Optional[Tensor] = None,
              alibi_slopes: Optional[Tensor] = None, kv_lengths: Optional[Tensor] = None,
              return_lse: bool = False) -> Any:
    """softmax(scale * q @ k.T) @ v for each head; see kernwright.attention.

    q: [batch, heads, q_len, head_dim]; k, v: [batch, kv_heads, kv_len, head_dim]; bf16 or fp16;
    each contiguous or the transposed view of [batch, tokens, heads, head_dim], all alike.
    causal: the last query sees all keys. The result lies as q does."""
    if _direct(q, k, v, sinks, alibi_slopes, kv_lengths):
        return _arrays.attention(q, k, v, causal=causal, scale=scale, window=window,
                                 softcap=softcap, sinks=sinks, alibi_slopes=alibi_slopes,
                                 kv_lengths=kv_lengths, return_lse=return_lse)
    operator = torch.ops.kernwright.attention_lse if return_lse else torch.ops.kernwright.attention
    return operator(q, k, v, sinks, alibi_slopes, kv_lengths, causal=causal, scale=scale,
                    window=window, softcap=softcap)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention of what kernels take. Errors: Error for a
    mask, for dropout, for is_causal with other numbers of queries than of keys (PyTorch's first
    query then sees the first key alone), and for grouped heads without enable_gqa."""
    if attn_mask is not None or dropout_p != 0:
        raise make_error("attn_mask or dropout_p is given, and no kernel takes them")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise make_error(f"is_causal with {query.shape[-2]} queries and {key.shape[-2]} keys, and "
                         "equally many expected")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise make_error(f"q has {query.shape[1]} heads and k {key.shape[1]}, and equally many "
                         "expected without enable_gqa=True")
    return attention(query, key, value, causal=is_causal, scale=scale)


def _append_attention_shape(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor,
                            kv_lengths: Tensor, cos: Tensor, sin: Tensor,
                            q_norm: Optional[Tensor] = None, k_norm: Optional[Tensor] = None, *,
                            scale: Optional[float] = None, eps: float = 1e-6) -> Tensor:
    _expect(k.dim() == 4, lambda: f"k has {k.dim()} dimensions, and 4 expected: batch, kv_heads, "
                                  "tokens, head_dim")
    _expect(q.dim() >= 2 and q.numel() == k.shape[0] * q.shape[-2] * q.shape[-1],
            lambda: f"q has the shape {tuple(q.shape)}, and one token of each of the "
                    f"{k.shape[0]} sequences of the cache expected")
    return _new(q, q.shape)


_define_forward_only("append_attention(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, "
                     "Tensor v_new, Tensor kv_lengths, Tensor cos, Tensor sin, "
                     "Tensor? q_norm=None, Tensor? k_norm=None, *, float? scale=None, "
                     "float eps=1e-6) -> Tensor", _fused.append_attention, _append_attention_shape)


def append_attention(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor,
                     kv_lengths: Tensor, cos: Tensor, sin: Tensor,
                     q_norm: Optional[Tensor] = None, k_norm: Optional[Tensor] = None, *,
                     scale: Optional[float] = None, eps: float = 1e-6) -> Tensor:
    """One decode step of attention in one kernel: the new token's q and k are normalised where there
    are q_norm and k_norm, and rotated; k and v go to their place in the cache; and q attends.

    q: [batch, ..., heads, head_dim], k_new, v_new: [batch, ..., kv_heads, head_dim], as
    `qkv_linear` gives them; k, v: the cache, [batch, kv_heads, tokens, head_dim], changed
    kv_lengths: [batch] in int32, keys of each sequence with the new one
    cos, sin: [tokens, head_dim / 2] in fp32, of all positions; q_norm, k_norm: [head_dim]
    Result: as q. Source: the operation attention with append=rope or norm_rope."""
    if _direct(q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm, k_norm):
        return _fused.append_attention(q, k, v, k_new, v_new, kv_lengths, cos, sin, q_norm, k_norm,
                                       scale=scale, eps=eps)
    return torch.ops.kernwright.append_attention(q, k, v, k_new, v_new, kv_lengths, cos, sin,
                                                 q_norm, k_norm, scale=scale, eps=eps)


def names() -> List[str]:
    """The operators, as torch.ops.kernwright has them."""
    return sorted({name.split("::")[1].split(".")[0] for name in _library._op_defs})
