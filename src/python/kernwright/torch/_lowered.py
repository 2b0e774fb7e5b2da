"""Layers as Inductor's graphs have them: products of matrices, and functions of elements in fp32."""

import operator
from typing import Any, List, Optional, Set, Tuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._passes import OWN, Finder, Finders, Found, fuse

_ATEN = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default
_VIEWS = (_ATEN.reshape.default, _ATEN.view.default, _ATEN._unsafe_view.default)
_DTYPES = (torch.bfloat16, torch.float16)


def on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def fuse_model(graph: fx.Graph) -> None:
    """Fuses the graph of a model's inference, in which nothing is written in place yet. A graph with a backward stays
    as it is."""
    if not any(str(node.target).startswith(("primals", "tangents")) for node in graph.find_nodes(op="placeholder")):
        fuse(graph, FINDERS)


def _is(node: Any, *targets: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def _value(node: Any) -> Optional[Tensor]:
    """Returns the fake tensor of a node, None for anything else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def _same(one: Any, other: Any) -> bool:
    """Returns true if two shapes are known to be the same."""
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other))


def _is_weight(node: Any, dims: int) -> bool:
    """Returns true for an input of the graph, without gaps, in a dtype of our products."""
    value = _value(node)
    return (value is not None and node.op in ("placeholder", "get_attr") and value.dim() == dims
            and value.dtype in _DTYPES and on_gpu(value) and value.is_contiguous())


def _fits(node: Any, weight: fx.Node) -> bool:
    """Returns true for rows without gaps, as long as those of a weight, and of its dtype."""
    value, of_weight = _value(node), weight.meta["val"]
    return (value is not None and value.dim() > 0 and value.dtype is of_weight.dtype
            and value.device == of_weight.device and value.is_contiguous() and _same(value.shape[-1:],
                                                                                     of_weight.shape[-1:]))


def _product(node: Any) -> Optional[Found]:
    """Finds mm, also between views that make a matrix of x and the shape of x of the result."""
    nodes: Set[fx.Node] = {node}
    inner = node
    if _is(node, *_VIEWS):
        inner = node.args[0]
        nodes.add(inner)
    if not _is(inner, _ATEN.mm.default) or inner is not node and len(inner.users) != 1:
        return None
    x, turned = inner.args
    if not _is(turned, _ATEN.permute.default, _ATEN.t.default) or not _is_weight(turned.args[0], 2):
        return None
    weight = turned.args[0]
    nodes.add(turned)
    if inner is not node:
        if not _is(x, *_VIEWS):
            return None
        nodes.add(x)
        x = x.args[0]
    value = _value(x)
    if value is None or not _fits(x, weight) or not _same((*value.shape[:-1], weight.meta["val"].shape[0]),
                                                          node.meta["val"].shape):
        return None
    return Found((x, weight), nodes)


def _converted(node: Any, dtype: torch.dtype) -> Any:
    """Returns what a node converts to the dtype, None for another node."""
    return node.args[0] if _is(node, _CONVERT) and node.args[1] is dtype else None


def _factors(node: Any) -> List[Tuple[Any, Any]]:
    """Returns the factors of a product of elements, in both orders."""
    return [node.args, node.args[::-1]] if _is(node, _ATEN.mul.Tensor) else []


def _normal(node: Any) -> Optional[Found]:
    """Finds x / sqrt(mean of x^2 + eps) in fp32, from x and eps."""
    for wide, root in _factors(node):
        total = root.args[0] if _is(root, _ATEN.rsqrt.default) else None
        if not _is(total, _ATEN.add.Tensor, _ATEN.add.Scalar) or total.kwargs:
            continue
        mean, eps = total.args
        if not _is(mean, _ATEN.mean.dim) or mean.kwargs or type(eps) is not float or (
                mean.args[1:] not in (([-1], True), ([node.meta["val"].dim() - 1], True))):
            continue
        square, x = mean.args[0], _converted(wide, torch.float32)
        if x is not None and _is(square, _ATEN.pow.Tensor_Scalar) and square.args == (wide, 2):
            return Found((x, eps), {node, root, total, mean, square, wide})
    return None


def _norm(node: Any) -> Optional[Found]:
    """Finds RMSNorm with a weight, by which rows are multiplied before or after they are rounded."""
    value = _value(node)
    if value is None:
        return None
    rounded = _converted(node, value.dtype)
    for weight, rows in _factors(node if rounded is None else rounded):
        nodes = {node, weight, rows} if rounded is None else {node, rounded, weight, rows}
        if rounded is None:
            rows = _converted(rows, value.dtype)
        else:
            weight = _converted(weight, torch.float32) or weight  # mul converts by itself
        found = _normal(rows)
        if found is None or not _is_weight(weight, 1) or not _fits(found.args[0], weight):
            continue
        x, eps = found.args
        if value.dtype is x.meta["val"].dtype and _same(value.shape, x.meta["val"].shape):
            return Found((x, weight, eps), (nodes | found.nodes) - {weight})
    return None


def _half(node: Any, which: int) -> Optional[Found]:
    """Finds the first or second half of rows."""
    value, dim = _value(node), 0
    if value is None:
        return None
    if _is(node, operator.getitem) and _is(node.args[0], _ATEN.split.Tensor) and node.args[1] == which:
        rows, size, *rest = node.args[0].args
        dim, nodes = rest[0] if rest else 0, {node, node.args[0]}
    elif _is(node, _ATEN.slice.Tensor) and len(node.args) == 4:
        rows, dim, begin, _ = node.args
        size, nodes = value.shape[-1], {node}
        if not statically_known_true(begin == which * size):
            return None
    else:
        return None
    whole = _value(rows)
    if whole is None or dim not in (-1, whole.dim() - 1) or not _same(whole.shape[-1:], (2 * size,)):
        return None
    return Found((rows,), nodes)


def _silu(node: Any, dtype: torch.dtype) -> Optional[Found]:
    """Finds silu, computed in fp32 and rounded to the dtype."""
    ratio = _converted(node, dtype)
    if not _is(ratio, _ATEN.div.Tensor):
        return None
    wide, below = ratio.args
    power = below.args[0] if _is(below, _ATEN.add.Tensor) and below.args[1] == 1 and not below.kwargs else None
    minus = power.args[0] if _is(power, _ATEN.exp.default) else None
    x = _converted(wide, torch.float32)
    if x is None or not _is(minus, _ATEN.neg.default) or minus.args[0] is not wide:
        return None
    return Found((x,), {node, ratio, wide, below, power, minus})


def _gate(node: Any) -> Optional[Found]:
    value = _value(node)
    if value is None or value.dtype not in _DTYPES or not on_gpu(value):
        return None
    for activated, other in _factors(node):
        silu, up = _silu(activated, value.dtype), _half(other, 1)
        gate = None if silu is None else _half(silu.args[0], 0)
        if silu is None or gate is None or up is None or gate.args != up.args:
            continue
        rows = gate.args[0].meta["val"]
        if rows.dtype is value.dtype and rows.is_contiguous():
            return Found(gate.args, {node} | silu.nodes | gate.nodes | up.nodes)
    return None


def _sum(node: Any) -> Optional[Found]:
    """Finds the sum of two tensors of one dtype and shape, without gaps."""
    if not _is(node, _ATEN.add.Tensor) or node.kwargs or len(node.args) != 2:
        return None
    one, other = _value(node.args[0]), _value(node.args[1])
    if one is None or other is None or one.dtype not in _DTYPES or one.dtype is not other.dtype or (
            one.device != other.device or not _same(one.shape, other.shape)):
        return None
    return Found(node.args, {node}) if one.is_contiguous() and other.is_contiguous() else None


def _either(own: Finder, lowered: Finder) -> Finder:
    return lambda node: own(node) or lowered(node)


FINDERS = Finders(*(_either(own, lowered) for own, lowered in zip(OWN, (_product, _norm, _gate, _sum))))
