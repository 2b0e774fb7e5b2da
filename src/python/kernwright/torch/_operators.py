"""Operators of compiled graphs. A graph is compiled once for all numbers of tokens, so which kernel a
call takes is decided inside of the operator: kernwright's, else PyTorch's."""

import functools
import logging
import operator
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.nn import functional

from .. import _operations as _arrays
from .._arrays import dtype_text
from .._call import make_function
from .._kernwright import Error
from .._service import default_service
from . import _fused
from ._quantized import QuantizedWeight
from ._quantized_experts import QuantizedExperts
from ._quantized_mixtures import QuantizedMixture
from .ops import plain, quantized_products
from .ops import rows as of_rows

_log = logging.getLogger("kernwright")
_library = torch.library.Library("kernwright_engine", "DEF")
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)
_said: Set[str] = set()

#: Rows up to which kernels are made ready. All larger numbers are of the same families.
MOST_ROWS = 8192
#: Rows up to which a product normalises its rows itself.
MOST_NORMALISED = 16
_ready: Set[str] = set()


def say_once(text: str, *values: Any) -> None:
    """Writes a line to the log, unless the same one was written before."""
    line = text % values
    if line not in _said:
        _said.add(line)
        _log.warning(line)


def _make_ready(x: Optional[Tensor], *problems: str) -> None:
    """Gets the kernels of problems, of x's dtype if there is one, into memory, unless they were
    asked for."""
    dtype = "" if x is None else f" dtype={dtype_text(x.dtype)}"
    missing = [problem for problem in (one + dtype for one in problems) if problem not in _ready]
    if missing:
        _ready.update(missing)
        default_service().prewarm(missing)


def _or_torch(name: str, ours: Callable[[], Any], torchs: Callable[[], Any]) -> Any:
    """Computes by kernwright's kernel, or by what takes its place if that is refused, or if weights
    that it reads as one are apart."""
    try:
        result = ours()
    except Error as error:
        say_once("%s is left to PyTorch: %s", name, error)
        return torchs()
    if result is not NotImplemented:
        return result
    say_once("%s multiplies its weights one by one: they are apart", name)
    return torchs()


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    def ours() -> Any:
        _make_ready(x, f"rmsnorm rows=1..{MOST_ROWS} columns={x.shape[-1]}")
        return _arrays.rms_norm(x, weight, eps)

    return _or_torch("rms_norm", ours,
                     lambda: functional.rms_norm(x, x.shape[-1:], weight, eps).contiguous())


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
    def ours() -> Any:
        _make_ready(x, f"rmsnorm rows=1..{MOST_ROWS} columns={x.shape[-1]} residual=add")
        return _arrays.rms_norm(x, weight, eps, residual=residual)

    def torchs() -> Tuple[Tensor, Tensor]:
        both = x + residual
        return functional.rms_norm(both, x.shape[-1:], weight, eps).contiguous(), both.contiguous()

    return _or_torch("rms_norm", ours, torchs)


def _silu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2

    def ours() -> Any:
        _make_ready(x, f"gated_activation layout=packed rows=1..{MOST_ROWS} columns={half}")
        return _arrays.silu_and_mul(x)

    return _or_torch("silu_and_mul", ours,
                     lambda: (functional.silu(x[..., :half]) * x[..., half:]).contiguous())


def _argmax(x: Tensor) -> Tensor:
    def ours() -> Any:
        _make_ready(x, f"argmax rows=1..{MOST_ROWS} columns={x.shape[-1]}")
        return make_function("argmax")(x).long()

    return _or_torch("argmax", ours, lambda: x.argmax(-1))


def _count(counters: List[Tensor], number: int) -> None:
    """Adds a number to counters in one kernel. Inductor would also read them in it, while it adds to others."""
    torch._foreach_add_(counters, number)


def _product(weights: Sequence[Tensor], rows: int, flags: str, parts: int = 1) -> str:
    """Returns the problem of products of up to so many rows with weights that are read as one, the
    columns of which have so many parts."""
    columns = sum(weight.shape[0] for weight in weights) // parts
    return (f"matmul m=1..{rows} n={columns} k={weights[0].shape[1]} ldb={weights[0].stride(0)}"
            f" {flags}")


def _as_one(tensors: Sequence[Tensor]) -> Any:
    """Returns several as the tuple that kernels read as one, None for none."""
    return tuple(tensors) if len(tensors) > 1 else tensors[0] if tensors else None


def _of_bias(bias: Any) -> str:
    return "bias=none" if bias is None else "bias=column"


def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    def ours() -> Any:
        _make_ready(x, _product([weight], MOST_ROWS, _of_bias(bias)))
        return _arrays.linear(x, weight, bias)

    return _or_torch("linear", ours, lambda: functional.linear(x, weight, bias))


def _linear_add(x: Tensor, weight: Tensor, bias: Optional[Tensor], residual: Tensor) -> Tensor:
    def ours() -> Any:
        _make_ready(x, _product([weight], MOST_ROWS, f"{_of_bias(bias)} residual=add"))
        return _arrays.linear(x, weight, bias, residual=residual)

    return _or_torch("linear", ours, lambda: functional.linear(x, weight, bias) + residual)


def _quantized_linear(x: Tensor, codes: Tensor, scales: Tensor, zeros: Optional[Tensor], order: Optional[Tensor],
                      bias: Optional[Tensor], n: int, group: int, weights: str) -> Tensor:
    tensors, of = (x, codes, scales, zeros, order, bias), {"n": n, "group": group, "weights": weights}

    def ours() -> Any:
        _make_ready(x, f"quantized_matmul m=1..{MOST_ROWS} n={n} k={x.shape[-1]} group={group} weights={weights} "
                       f"scale={dtype_text(scales.dtype)} zero={'none' if zeros is None else 'code'} {_of_bias(bias)}")
        return quantized_products._our_quantized_linear(*tensors, **of)

    return _or_torch("quantized_linear", ours, lambda: plain.quantized_linear(*tensors, **of))


def _of_fp8(x: Tensor, weight: Tensor, bias: Optional[Tensor], dtype: torch.dtype, scaling: str) -> str:
    return _product([weight], MOST_ROWS, f"{_of_bias(bias)} out={dtype_text(dtype)} scaling={scaling}")


def _scaled_linear(x: Tensor, weight: Tensor, scale: float, bias: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    """The product of fp8 with one scale, the scales of x and of the weight multiplied."""
    def ours() -> Any:
        _make_ready(x, _of_fp8(x, weight, bias, dtype, "alpha"))
        return _arrays.scaled_matmul(x, weight.t(), scale, 1.0, bias=bias, out_dtype=dtype)

    return _or_torch("scaled_linear", ours,
                     lambda: plain.scaled_matmul(x, weight.t(), scale, 1.0, bias, out_dtype=dtype))


def _block_scaled_linear(x: Tensor, weight: Tensor, x_scale: Tensor, weight_scale: Tensor,
                         dtype: torch.dtype) -> Tensor:
    """The product of fp8 with scales of blocks, as they are in kernwright.scaled_matmul, those of the weight as
    checkpoints have them."""
    def ours() -> Any:
        _make_ready(x, _of_fp8(x, weight, None, dtype, "block"))
        return _arrays.scaled_matmul(x, weight.t(), x_scale, weight_scale.t(), out_dtype=dtype)

    return _or_torch("block_scaled_linear", ours, lambda: plain.scaled_matmul(
        x, weight.t(), x_scale, weight_scale.t(), out_dtype=dtype))


def _quantize_rows(x: Tensor, *, dtype: torch.dtype, quantize: str = "row") -> Tuple[Tensor, Tensor]:
    """Quantizes each row, or with quantize="block" each 128 of it. The scales are [1 or groups, rows]."""
    def ours() -> Any:
        _make_ready(x, f"quantize_rows rows=1..{MOST_ROWS} columns={x.shape[-1]} out={dtype_text(dtype)} "
                       f"scaling={quantize}")
        return tuple(make_function("quantize_rows")(x, out_dtype=dtype, scaling=quantize))

    return _or_torch("quantize_rows", ours, lambda: tuple(plain._quantized(x, None, quantize, dtype)))


def _row_scaled_linear(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor, bias: Optional[Tensor],
                       dtype: torch.dtype) -> Tensor:
    """The product of 8 bits with a scale for each row of both, [1, rows] and [1, n]."""
    def ours() -> Any:
        _make_ready(x, _of_fp8(x, weight, bias, dtype, "row"))
        return _arrays.scaled_matmul(x, weight.t(), x_scale.t(), weight_scale, bias=bias, out_dtype=dtype)

    return _or_torch("row_scaled_linear", ours, lambda: plain.scaled_matmul(
        x, weight.t(), x_scale.t(), weight_scale, bias, out_dtype=dtype))


def _quantized_norm(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor],
                    scale: Optional[Tensor], eps: float, *, norm: str, quantize: str, dtype: torch.dtype) -> List[Tensor]:
    tensors, named = (x, residual, weight, bias, scale), {"norm": norm, "quantize": quantize, "dtype": dtype}

    def ours() -> Any:
        _make_ready(x, f"{norm.replace('_', '')} rows=1..{MOST_ROWS} columns={x.shape[-1]} out={dtype_text(dtype)} "
                       f"quantize={quantize} residual={'none' if residual is None else 'add'}")
        return of_rows._our_quantized_norm(*tensors, eps, **named)

    return _or_torch("quantized_norm", ours, lambda: plain.quantized_norm(*tensors, eps, **named))


def _quantized_gate(x: Tensor, scale: Optional[Tensor], *, activation: str, quantize: str,
                    dtype: torch.dtype) -> List[Tensor]:
    named = {"activation": activation, "quantize": quantize, "dtype": dtype}

    def ours() -> Any:
        _make_ready(x, f"gated_activation layout=packed rows=1..{MOST_ROWS} columns={x.shape[-1] // 2} "
                       f"activation={activation} out={dtype_text(dtype)} quantize={quantize}")
        return of_rows._our_quantized_gate(x, scale, **named)

    return _or_torch("quantized_gate", ours, lambda: plain.quantized_gate(x, scale, **named))


def _new_codes(x: Tensor, columns: Any, dtype: torch.dtype, quantize: str, *sums: Tensor) -> List[Tensor]:
    """Returns new codes with their scales, and new tensors like the others."""
    groups = 1 if quantize == "row" else (columns + 127) // 128
    shape = groups, functools.reduce(operator.mul, x.shape[:-1], 1)
    return [_new(x, columns, dtype), torch.empty(shape, dtype=torch.float32, device=x.device),
            *(torch.empty_like(each) for each in sums)]


def _gated(activation: str) -> str:
    return f"gate=stacked activation={activation}"


def _gated_linear(x: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    """The product of one weight with the rows of gate and up, or of these two."""
    def ours() -> Any:
        _make_ready(x, _product(weights, MOST_ROWS, _gated(activation), 2))
        return _fused.gated_linear(x, _as_one(weights), None, activation, 0.0)

    def apart() -> Tensor:
        products = [_linear(x, weight, None) for weight in weights]
        gate, up = products[0].chunk(2, -1) if len(products) == 1 else products
        return (plain.activate(gate, activation) * up).contiguous()

    return _or_torch("gated_linear", ours, apart)


def _of_qkv(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> str:
    return f"split=qkv n_kv={weights[1].shape[0]} {_of_bias(biases or None)}"


def _by_qkv(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], norm_weight: Optional[Tensor] = None,
            eps: float = 0.0) -> Any:
    """Returns q, k and v by one product, in which k and v count as one head."""
    results = _fused.qkv_linear(x, _as_one(weights), _as_one(biases), norm_weight, 1, weights[1].shape[0], eps)
    return results if results is NotImplemented else tuple(result.flatten(-2) for result in results)


def _qkv_linear(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    def ours() -> Any:
        _make_ready(x, _product(weights, MOST_ROWS, _of_qkv(weights, biases)))
        return _by_qkv(x, weights, biases)

    return _or_torch("qkv_linear", ours, lambda: tuple(
        _linear(x, weight, bias) for weight, bias in zip(weights, biases or (None,) * 3)))


def _normalises(x: Tensor, weights: Sequence[Tensor], flags: str, parts: int = 1) -> bool:
    """Returns true if a product of x normalises its rows itself. Makes such products and the others ready at
    the same time."""
    if x.dtype is not torch.bfloat16:
        return False
    _make_ready(x, _product(weights, MOST_ROWS, flags, parts),
                _product(weights, MOST_NORMALISED, f"{flags} norm=rms", parts))
    return x.numel() <= MOST_NORMALISED * x.shape[-1]


def _norm_linear(x: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    def ours() -> Any:
        if not _normalises(x, [weight], _of_bias(bias)):
            return apart()
        return _fused.norm_linear(x, weight, norm_weight, bias, eps)

    def apart() -> Tensor:
        return _linear(_rms_norm(x, norm_weight, eps), weight, bias)

    return _or_torch("norm_linear", ours, apart)


def _norm_gated_linear(x: Tensor, norm_weight: Tensor, eps: float, weights: Sequence[Tensor],
                       activation: str) -> Tensor:
    def ours() -> Any:
        if not _normalises(x, weights, _gated(activation), 2):
            return apart()
        return _fused.gated_linear(x, _as_one(weights), norm_weight, activation, eps)

    def apart() -> Tensor:
        return _gated_linear(_rms_norm(x, norm_weight, eps), weights, activation)

    return _or_torch("norm_gated_linear", ours, apart)


def _norm_qkv_linear(x: Tensor, norm_weight: Tensor, eps: float, weights: Sequence[Tensor],
                     biases: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    def ours() -> Any:
        if not _normalises(x, weights, _of_qkv(weights, biases)):
            return apart()
        return _by_qkv(x, weights, biases, norm_weight, eps)

    def apart() -> Tuple[Tensor, ...]:
        return _qkv_linear(_rms_norm(x, norm_weight, eps), weights, biases)

    return _or_torch("norm_qkv_linear", ours, apart)


def _new(x: Tensor, columns: Any, dtype: Optional[torch.dtype] = None) -> Tensor:
    return torch.empty((*x.shape[:-1], columns), dtype=dtype or x.dtype, device=x.device)


def _new_product(x: Tensor, weights: Sequence[Tensor], parts: int = 1) -> Tensor:
    return _new(x, sum(weight.shape[0] for weight in weights) // parts)


def _new_qkv(x: Tensor, weights: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    return tuple(_new_product(x, [weight]) for weight in weights)


_NORMAL = "Tensor x, Tensor norm_weight, float eps"
for _schema, _compute, _shape in (
        ("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", _rms_norm,
         lambda x, weight, eps: _new(x, x.shape[-1])),
        ("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor)",
         _add_rms_norm,
         lambda x, residual, weight, eps: (_new(x, x.shape[-1]), _new(x, x.shape[-1]))),
        ("silu_and_mul(Tensor x) -> Tensor", _silu_and_mul, lambda x: _new(x, x.shape[-1] // 2)),
        ("argmax(Tensor x) -> Tensor", _argmax,
         lambda x: torch.empty(x.shape[:-1], dtype=torch.int64, device=x.device)),
        ("count(Tensor(a!)[] counters, int number) -> ()", _count, lambda counters, number: None),
        ("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", _linear,
         lambda x, weight, bias: _new_product(x, [weight])),
        ("linear_add(Tensor x, Tensor weight, Tensor? bias, Tensor residual) -> Tensor", _linear_add,
         lambda x, weight, bias, residual: _new_product(x, [weight])),
        ("quantized_linear(Tensor x, Tensor codes, Tensor scales, Tensor? zeros, Tensor? order, Tensor? bias, "
         "int n, int group, str weights) -> Tensor", _quantized_linear,
         lambda x, codes, scales, zeros, order, bias, n, group, weights: _new(x, n)),
        ("scaled_linear(Tensor x, Tensor weight, float scale, Tensor? bias, ScalarType dtype) -> Tensor",
         _scaled_linear, lambda x, weight, scale, bias, dtype: _new(x, weight.shape[0], dtype)),
        ("block_scaled_linear(Tensor x, Tensor weight, Tensor x_scale, Tensor weight_scale, ScalarType dtype)"
         " -> Tensor", _block_scaled_linear,
         lambda x, weight, x_scale, weight_scale, dtype: _new(x, weight.shape[0], dtype)),
        ("quantize_rows(Tensor x, *, ScalarType dtype, str quantize='row') -> (Tensor, Tensor)", _quantize_rows,
         lambda x, dtype, quantize="row": tuple(_new_codes(x, x.shape[-1], dtype, quantize))),
        ("row_scaled_linear(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor? bias, "
         "ScalarType dtype) -> Tensor", _row_scaled_linear,
         lambda x, x_scale, weight, weight_scale, bias, dtype: _new(x, weight.shape[0], dtype)),
        ("quantized_norm(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, Tensor? scale, float eps, *, "
         "str norm, str quantize, ScalarType dtype) -> Tensor[]", _quantized_norm,
         lambda x, residual, weight, bias, scale, eps, norm, quantize, dtype: _new_codes(
             x, x.shape[-1], dtype, quantize, *(() if residual is None else (residual,)))),
        ("quantized_gate(Tensor x, Tensor? scale, *, str activation, str quantize, ScalarType dtype) -> Tensor[]",
         _quantized_gate, lambda x, scale, activation, quantize, dtype: _new_codes(
             x, x.shape[-1] // 2, dtype, quantize)),
        ("gated_linear(Tensor x, Tensor[] weights, str activation) -> Tensor", _gated_linear,
         lambda x, weights, activation: _new_product(x, weights, 2)),
        ("qkv_linear(Tensor x, Tensor[] weights, Tensor[] biases) -> (Tensor, Tensor, Tensor)", _qkv_linear,
         lambda x, weights, biases: _new_qkv(x, weights)),
        (f"norm_linear({_NORMAL}, Tensor weight, Tensor? bias) -> Tensor", _norm_linear,
         lambda x, norm_weight, eps, weight, bias: _new_product(x, [weight])),
        (f"norm_gated_linear({_NORMAL}, Tensor[] weights, str activation) -> Tensor", _norm_gated_linear,
         lambda x, norm_weight, eps, weights, activation: _new_product(x, weights, 2)),
        (f"norm_qkv_linear({_NORMAL}, Tensor[] weights, Tensor[] biases) -> (Tensor, Tensor, Tensor)",
         _norm_qkv_linear, lambda x, norm_weight, eps, weights, biases: _new_qkv(x, weights))):
    _name = _schema[:_schema.index("(")]
    _library.define(_schema, tags=_TAGS)
    _library.impl(_name, _compute, "CUDA")
    _library.impl(_name, _shape, "Meta")

OPERATORS = torch.ops.kernwright_engine


def norm(x: Tensor, residual: Optional[Tensor], weight: Any, eps: float) -> Any:
    """Returns a norm as engines have it, (y, sum) with a residual; None if the engine must compute
    it."""
    if not isinstance(weight, Tensor) or weight.dtype is not x.dtype or not x.is_contiguous():
        return None
    if residual is None:
        return OPERATORS.rms_norm(x, weight, eps)
    if residual.dtype is not x.dtype or not residual.is_contiguous():
        return None
    return OPERATORS.add_rms_norm(x, residual, weight, eps)


def silu_and_mul(x: Tensor) -> Optional[Tensor]:
    """Returns None if the engine must compute it."""
    return OPERATORS.silu_and_mul(x) if x.is_contiguous() else None


def linear(x: Tensor, weight: Any, bias: Optional[Tensor]) -> Optional[Tensor]:
    """Returns None if the engine must compute it."""
    if (not isinstance(weight, Tensor) or weight.dim() != 2 or weight.dtype is not x.dtype
            or x.dtype not in (torch.bfloat16, torch.float16) or not x.is_contiguous()):
        return None
    return OPERATORS.linear(x, weight, bias)


def quantized_linear(x: Tensor, weight: QuantizedWeight, bias: Optional[Tensor]) -> Tensor:
    """The product with packed weights, beside which an engine has none of its own."""
    result: Tensor = OPERATORS.quantized_linear(
        x.contiguous(), weight.codes, weight.scales, weight.zeros, weight.order, bias, weight.n, weight.group,
        weight.weights)
    return result


def rows_linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    """The product with weights [n, k] in 8 bits that have a scale for each row, [1, n], of rows that are quantized
    alike."""
    codes, scale = OPERATORS.quantize_rows(x.contiguous(), dtype=weight.dtype)
    result: Tensor = OPERATORS.row_scaled_linear(codes, scale, weight, scales, bias, dtype)
    return result


def _grouped(experts: QuantizedExperts, choices: int, flags: str = "") -> str:
    zero, bias = "none" if experts.zeros is None else "code", "none" if experts.bias is None else "expert"
    return (f"grouped_quantized_matmul experts={experts.experts} rows=1..{MOST_ROWS * choices} n={experts.n} "
            f"k={experts.k} group={experts.group} weights={experts.weights} "
            f"scale={dtype_text(experts.scales.dtype)} zero={zero} bias={bias}{flags}")


def quantized_mixture(x: Tensor, mixture: QuantizedMixture, index: Tensor, shares: Tensor) -> Tensor:
    """The experts of each row by their shares, beside which an engine has none of its own. An expert that is not here
    gives nothing."""
    choices, experts = index.shape[1], mixture.down
    _make_ready(x, _grouped(mixture.gate_up, choices, f" tokens=1..{MOST_ROWS} a_rows=indexed gate=stacked "
                                                      f"activation={mixture.gate.activation}"),
                _grouped(experts, choices),
                f"combine_experts tokens=1..{MOST_ROWS} top={choices} columns={experts.n}")
    _make_ready(None, f"order_experts tokens=1..{MOST_ROWS} top={choices} experts={experts.experts}")
    result: Tensor = mixture(x, index, shares)
    return result
