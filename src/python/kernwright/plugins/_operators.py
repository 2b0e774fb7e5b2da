"""Operators for engines. An engine compiles a model once for all numbers of tokens, so which kernel a
call takes is decided inside of the operator: kernwright's, else PyTorch's."""

import logging
from typing import Any, Callable, Optional, Set, Tuple

import torch
from torch import Tensor
from torch.nn import functional

from .. import _operations as _arrays
from .._arrays import dtype_text
from .._kernwright import Error
from .._service import default_service

_log = logging.getLogger("kernwright")
_library = torch.library.Library("kernwright_engine", "DEF")
_TAGS = (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides")
         else torch.Tag.needs_fixed_stride_order,)
_said: Set[str] = set()

#: Rows up to which kernels are made ready. All larger numbers are of the same families.
MOST_ROWS = 8192
_ready: Set[Tuple[Any, ...]] = set()


def say_once(text: str, *values: Any) -> None:
    """Writes one line to the log, and not again for the same text."""
    line = text % values
    if line not in _said:
        _said.add(line)
        _log.warning(line)


def _for_all_rows(result: Any, problem: str, x: Tensor, *facts: Any) -> Any:
    """Returns the first result of a problem once its kernels are in memory for all numbers of rows. `facts`
    fill the places of the problem's text, and its dtype is that of x. Errors: Error."""
    if (problem, x.dtype, *facts) not in _ready:
        _ready.add((problem, x.dtype, *facts))
        default_service().prewarm([problem.format(*facts) + f" dtype={dtype_text(x.dtype)}"])
    return result


def _or_torch(name: str, ours: Callable[[], Any], torchs: Callable[[], Any]) -> Any:
    try:
        return ours()
    except Error as error:
        say_once("%s is left to PyTorch: %s", name, error)
        return torchs()


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    def ours() -> Any:
        return _for_all_rows(_arrays.rms_norm(x, weight, eps),
                             f"rmsnorm rows=1..{MOST_ROWS} columns={{}}", x, x.shape[-1])

    return _or_torch("rms_norm", ours,
                     lambda: functional.rms_norm(x, x.shape[-1:], weight, eps).contiguous())


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
    def ours() -> Any:
        return _for_all_rows(_arrays.rms_norm(x, weight, eps, residual=residual),
                             f"rmsnorm rows=1..{MOST_ROWS} columns={{}} residual=add", x, x.shape[-1])

    def torchs() -> Tuple[Tensor, Tensor]:
        both = x + residual
        return functional.rms_norm(both, x.shape[-1:], weight, eps).contiguous(), both.contiguous()

    return _or_torch("rms_norm", ours, torchs)


def _silu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2

    def ours() -> Any:
        return _for_all_rows(_arrays.silu_and_mul(x),
                             f"gated_activation layout=packed rows=1..{MOST_ROWS} columns={{}}", x, half)

    return _or_torch("silu_and_mul", ours,
                     lambda: (functional.silu(x[..., :half]) * x[..., half:]).contiguous())


def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    def ours() -> Any:
        return _for_all_rows(_arrays.linear(x, weight, bias),
                             f"matmul m=1..{MOST_ROWS} n={{}} k={{}} ldb={{}} bias={{}}", x, *weight.shape,
                             weight.stride(0), "none" if bias is None else "column")

    return _or_torch("linear", ours,
                     lambda: functional.linear(x, weight, bias))


def _new(x: Tensor, columns: Any) -> Tensor:
    return torch.empty((*x.shape[:-1], columns), dtype=x.dtype, device=x.device)


for _schema, _compute, _shape in (
        ("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", _rms_norm,
         lambda x, weight, eps: _new(x, x.shape[-1])),
        ("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor)",
         _add_rms_norm,
         lambda x, residual, weight, eps: (_new(x, x.shape[-1]), _new(x, x.shape[-1]))),
        ("silu_and_mul(Tensor x) -> Tensor", _silu_and_mul, lambda x: _new(x, x.shape[-1] // 2)),
        ("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", _linear,
         lambda x, weight, bias: _new(x, weight.shape[0]))):
    _name = _schema[:_schema.index("(")]
    _library.define(_schema, tags=_TAGS)
    _library.impl(_name, _compute, "CUDA")
    _library.impl(_name, _shape, "Meta")

_OPERATORS = torch.ops.kernwright_engine


def norm(x: Tensor, residual: Optional[Tensor], weight: Any, eps: float) -> Any:
    """Returns a norm as engines have it, (y, sum) with a residual; None if the engine must compute
    it."""
    if not isinstance(weight, Tensor) or weight.dtype is not x.dtype or not x.is_contiguous():
        return None
    if residual is None:
        return _OPERATORS.rms_norm(x, weight, eps)
    if residual.dtype is not x.dtype or not residual.is_contiguous():
        return None
    return _OPERATORS.add_rms_norm(x, residual, weight, eps)


def silu_and_mul(x: Tensor) -> Optional[Tensor]:
    """Returns None if the engine must compute it."""
    return _OPERATORS.silu_and_mul(x) if x.is_contiguous() else None


def linear(x: Tensor, weight: Any, bias: Optional[Tensor]) -> Optional[Tensor]:
    """Returns None if the engine must compute it."""
    if (not isinstance(weight, Tensor) or weight.dim() != 2 or weight.dtype is not x.dtype
            or x.dtype not in (torch.bfloat16, torch.float16) or not x.is_contiguous()):
        return None
    return _OPERATORS.linear(x, weight, bias)
