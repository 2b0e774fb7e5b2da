"""Layers as Inductor's graphs have them: products of matrices, and functions of elements in fp32."""

import math
import operator
from typing import Any, List, Optional, Set, Tuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._passes import OWN, Finder, Finders, Found

_ATEN = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default
_VIEWS = (_ATEN.reshape.default, _ATEN.view.default, _ATEN._unsafe_view.default)
_PRODUCTS = _ATEN.mm.default, _ATEN.addmm.default
_DTYPES = (torch.bfloat16, torch.float16)


def on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


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
    """Finds mm and addmm, also between views that make a matrix of x and the shape of x of the result."""
    nodes: Set[fx.Node] = {node}
    inner = node
    if _is(node, *_VIEWS):
        inner = node.args[0]
        nodes.add(inner)
    if not _is(inner, *_PRODUCTS) or inner.kwargs or inner is not node and len(inner.users) != 1:
        return None
    bias, x, turned = (None, *inner.args)[-3:]
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
    if bias is not None and not (_is_weight(bias, 1) and _value(bias).dtype is value.dtype
                                 and _same(bias.meta["val"].shape, weight.meta["val"].shape[:1])):
        return None
    return Found((x, weight, bias), nodes)


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


def _is_stored(node: Any) -> bool:
    """Returns true for what another's kernel computes, or is given. All else Inductor computes in the same kernel as
    a norm of it, which therefore costs nothing."""
    while _is(node, *_VIEWS, operator.getitem):
        node = node.args[0]
    return node.op != "call_function" or _is(node, *_PRODUCTS) or (
        getattr(node.target, "namespace", "").startswith("kernwright"))


def _any_norm(node: Any) -> Optional[Found]:
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


def _norm(node: Any) -> Optional[Found]:
    """Finds a norm of what is stored."""
    found = _any_norm(node)
    return found if found is not None and _is_stored(found.args[0]) else None


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


def _parts(node: Any) -> Optional[Found]:
    """Finds rows that are read by parts alone, one behind the other."""
    value = _value(node)
    slices = [user for user in getattr(node, "users", ()) if _is(user, _ATEN.slice.Tensor) and len(user.args) == 4
              and user.args[0] is node and user.args[1] in (-1, value.dim() - 1) and type(user.args[2]) is int]
    slices.sort(key=lambda part: part.args[2])
    end = 0
    for part in slices:
        if part.args[2] != end:
            return None
        end = part.args[2] + part.meta["val"].shape[-1]
    if not slices or len(slices) != len(node.users) or not statically_known_true(end == value.shape[-1]):
        return None
    return Found(tuple(slices), set(slices))


def _silu(node: Any) -> Any:
    """Returns x of x / (1 + exp(-x)), None for another node."""
    if not _is(node, _ATEN.div.Tensor):
        return None
    x, below = node.args
    power = below.args[0] if _is(below, _ATEN.add.Tensor) and below.args[1:] == (1,) and not below.kwargs else None
    minus = power.args[0] if _is(power, _ATEN.exp.default) else None
    return x if _is(minus, _ATEN.neg.default) and minus.args == (x,) else None


def _scaled(node: Any, number: float) -> Any:
    """Returns what a node multiplies by the number, None for another node."""
    return node.args[0] if _is(node, _ATEN.mul.Tensor) and node.args[1] == number else None


def _gelu_tanh(node: Any) -> Any:
    """Returns x of x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), None for another node."""
    for half, above in _factors(node):
        x = _scaled(half, 0.5)
        tanh = above.args[0] if _is(above, _ATEN.add.Tensor) and above.args[1:] == (1,) and not above.kwargs else None
        inner = _scaled(tanh.args[0], math.sqrt(2 / math.pi)) if _is(tanh, _ATEN.tanh.default) else None
        if x is None or not _is(inner, _ATEN.add.Tensor) or inner.kwargs or inner.args[0] is not x:
            continue
        cube = _scaled(inner.args[1], 0.044715)
        square = cube.args[0] if _is(cube, _ATEN.mul.Tensor) and cube.args[1] is x else None
        if _is(square, _ATEN.mul.Tensor) and square.args == (x, x):
            return x
    return None


_ACTIVATIONS = {"silu": _silu, "gelu_tanh": _gelu_tanh}


def _activation(node: Any, dtype: torch.dtype) -> Optional[Tuple[str, Any]]:
    """Returns the name of an activation that is computed in fp32 and rounded to the dtype, and what it is of."""
    rounded = _converted(node, dtype)
    for name, find in _ACTIVATIONS.items():
        x = _converted(find(rounded), torch.float32)
        if x is not None:
            return name, x
    return None


def _between(node: fx.Node, begin: fx.Node) -> Set[fx.Node]:
    """Returns the nodes by which a function of `begin` alone is computed, the last of which is `node`."""
    if node is begin:
        return set()
    return {node}.union(*(_between(each, begin) for each in node.all_input_nodes))


def _gate(node: Any) -> Optional[Found]:
    value = _value(node)
    if value is None or value.dtype not in _DTYPES or not on_gpu(value):
        return None
    for activated, up in _factors(node):
        activation = _activation(activated, value.dtype)
        if activation is None or not _same(value.shape, getattr(_value(up), "shape", ())):
            continue
        name, gate = activation
        nodes = {node} | _between(activated, gate)
        halves = _half(gate, 0), _half(up, 1)
        if halves[0] is None or halves[1] is None:
            return Found((name, gate, up), nodes)
        rows = halves[0].args[0].meta["val"]
        if halves[0].args == halves[1].args and rows.dtype is value.dtype and rows.is_contiguous():
            return Found((name, *halves[0].args), nodes | halves[0].nodes | halves[1].nodes)
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


def _largest(node: Any) -> Optional[Found]:
    """Finds argmax over the last dim of logits without gaps, also if they are converted to fp32 first, which keeps
    their order, and of a part of them."""
    if not _is(node, _ATEN.argmax.default) or len(node.args) != 2 or node.kwargs:
        return None
    x, dim = node.args
    nodes = {node}
    if _converted(x, torch.float32) is not None:
        nodes.add(x)
        x = x.args[0]
    value, inner = _value(x), x
    while _is(inner, _ATEN.select.int, _ATEN.slice.Tensor):
        inner = inner.args[0]
    if value is None or value.dim() == 0 or dim not in (-1, value.dim() - 1) or not on_gpu(value) or not (
            value.dtype in (*_DTYPES, torch.float32) and value.is_contiguous() and _is_stored(inner)):
        return None
    return Found((x,), nodes)


def _either(own: Finder, lowered: Finder) -> Finder:
    return lambda node: own(node) or lowered(node)


FINDERS = Finders(*(_either(own, lowered) for own, lowered in zip(OWN, (_product, _norm, _gate, _sum, _largest, _parts))),
                  functional=True)
