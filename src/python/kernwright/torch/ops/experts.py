"""The routing of a mixture of experts: the choice, the order of rows for grouped products, and their sum."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..._call import make_function
from . import plain
from .define import _direct, _new, _operator


def _our_choice(logits: Tensor, bias: Optional[Tensor] = None, real: Optional[Tensor] = None,
                **named: Any) -> Tuple[Tensor, Tensor]:
    ids, weights = make_function("choose_experts")(logits, bias=bias, real=real, **named)
    return ids, weights


def _new_choice(logits: Tensor, *_: Any, top: int, **named: Any) -> Tuple[Tensor, Tensor]:
    shape = (*logits.shape[:-1], top)
    return _new(logits, shape, torch.int32), _new(logits, shape, torch.float32)


_choose_experts = _operator(
    "choose_experts(Tensor logits, Tensor? bias=None, Tensor? real=None, *, int top, str? score=None, "
    "str? softmax_at=None, str? renormalise=None, int? expert_groups=None, int? kept_groups=None, "
    "str? group_score=None, float? factor=None, str? softcap=None, float? cap=None) -> (Tensor, Tensor)",
    _our_choice, plain.choose_experts, _new_choice)


def choose_experts(logits: Tensor, *, top: int, bias: Optional[Tensor] = None, real: Optional[Tensor] = None,
                   score: Optional[str] = None, softmax_at: Optional[str] = None, renormalise: Optional[str] = None,
                   expert_groups: Optional[int] = None, kept_groups: Optional[int] = None,
                   group_score: Optional[str] = None, factor: Optional[float] = None, softcap: Optional[str] = None,
                   cap: Optional[float] = None) -> Tuple[Tensor, Tensor]:
    """kernwright.choose_experts, without a backward.

    logits: [..., experts] in bf16, fp16 or fp32; bias: [experts]; real: [1] in int32, the tokens that are no padding
    Returns ids, int32 [..., top], and weights, fp32 [..., top], both of each token from the largest score on."""
    compute = _choose_experts if _direct(logits, bias, real) else torch.ops.kernwright.choose_experts
    ids, weights = compute(logits, bias, real, top=top, score=score, softmax_at=softmax_at, renormalise=renormalise,
                           expert_groups=expert_groups, kept_groups=kept_groups, group_score=group_score,
                           factor=factor, softcap=softcap, cap=cap)
    return ids, weights


def _our_order(ids: Tensor, *, experts: int, first: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    ends, row_of, place = make_function("order_experts")(ids, experts=experts, first=first)
    return ends, row_of, place


def _new_order(ids: Tensor, *, experts: int, first: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    return _new(ids, (experts,)), _new(ids, (ids.numel(),)), _new(ids, ids.shape)


_order_experts = _operator("order_experts(Tensor ids, *, int experts, int first=0) -> (Tensor, Tensor, Tensor)",
                           _our_order, plain.order_experts, _new_order)


def order_experts(ids: Tensor, experts: int, *, first: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    """kernwright.order_experts.

    ids: [..., top] in int32. Returns int32 (ends, row_of, place): ends [experts], the end of the rows of each expert
    from `first` on, as `grouped_matmul` takes them; row_of [tokens * top], the token of each row; place [..., top], the
    row of each id, and -1 for other experts, whose tokens are the last in row_of."""
    compute = _order_experts if _direct(ids) else torch.ops.kernwright.order_experts
    ends, row_of, place = compute(ids, experts=experts, first=first)
    return ends, row_of, place


def _our_sum(y: Tensor, place: Tensor, weights: Optional[Tensor] = None, shared: Optional[Tensor] = None,
             residual: Optional[Tensor] = None) -> Tensor:
    result: Tensor = make_function("combine_experts")(y, place, weights=weights, shared=shared, residual=residual)
    return result


_combine_experts = _operator(
    "combine_experts(Tensor y, Tensor place, Tensor? weights=None, Tensor? shared=None, Tensor? residual=None) -> Tensor",
    _our_sum, plain.combine_experts, lambda y, place, *_: _new(y, (*place.shape[:-1], y.shape[-1])))


def combine_experts(y: Tensor, place: Tensor, weights: Optional[Tensor] = None, *, shared: Optional[Tensor] = None,
                    residual: Optional[Tensor] = None) -> Tensor:
    """kernwright.combine_experts, without a backward.

    y: [rows, columns] in bf16, fp16 or fp32; place: [..., top] in int32, as `order_experts` returns it; weights:
    [..., top] in fp32; shared, residual and result: [..., columns], as y. Rows that no place names are not read."""
    tensors = y, place, weights, shared, residual
    compute = _combine_experts if _direct(*tensors) else torch.ops.kernwright.combine_experts
    result: Tensor = compute(*tensors)
    return result
