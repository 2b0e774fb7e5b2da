"""Mixtures of experts in the graph of a compiled model, as Transformers computes them by grouped products: the choice
of experts, the order of rows, the products, and their sum are a kernel each. A pass leaves what it does not know: other
routers, products with weights that lie otherwise, and what rows go through between the products."""

import operator
from typing import Any, Dict, NamedTuple, Optional, Set

import torch
from torch import fx
from torch._inductor.pattern_matcher import stable_topological_sort

from . import _lowered
from ._checks import MOST_EXPERTS
from ._lowered import (_ATEN, _CONVERT, _DTYPES, _VIEWS, _converted, _factors, _fits, _gate, _is, _is_weight, _same,
                       _value)
from ._passes import _call, _insert, _only, _replace

_OURS = torch.ops.kernwright
_MOST_CHOSEN = 32  # experts of a token


class _Order(NamedTuple):
    """Rows, one for each pair of a token and one of its experts, that are sorted by expert."""
    ids: Any                      # [tokens, top]
    experts: int
    pairs: fx.Node                # the pair of each row
    expert_of: Optional[fx.Node]  # the expert of each row, if it is asked for
    ends: fx.Node


class _Sum(NamedTuple):
    """The sum of the rows of each token, by their weights."""
    rows: Any
    weights: Any      # [tokens, top]
    numbers: fx.Node  # of all rows
    result: fx.Node
    pairs: Any        # the pair of each row
    users: Set[Any]   # of the pairs


def mix(graph: fx.Graph) -> None:
    """Makes kernels of ours of the parts of mixtures."""
    for node in graph.find_nodes(op="call_function", target=_ATEN.topk.default):
        _choose(graph, node)
    for node in graph.find_nodes(op="call_function", target=_ATEN.sum.dim_IntList):
        found = _sum(node)
        order = None if found is None else _order(found)
        if found is not None and order is not None:
            _order_and_sum(graph, order, found)
    for step in _multiply_gated, _multiply:
        for node in list(graph.nodes):
            if not node._erased:
                step(graph, node)


def _results(node: Any, count: int) -> Optional[Dict[int, fx.Node]]:
    """Returns the results of a node that are used, if it has so many and they are not all taken at once."""
    parts = {user.args[1]: user for user in node.users if _is(user, operator.getitem)}
    return parts if len(parts) == len(node.users) and set(parts) <= set(range(count)) else None


def _over_rows(node: Any, *targets: Any) -> Any:
    """Returns the rows of which a node has the sum or the largest value, one of each; None for another node."""
    if not _is(node, *targets) or node.kwargs or len(node.args) != 3 or node.args[2] is not True:
        return None
    return node.args[0] if list(node.args[1]) in ([-1], [node.meta["val"].dim() - 1]) else None


def _softmax(node: Any) -> Any:
    """Returns the rows in fp32 that a node is the softmax of, None for another node."""
    power, total = node.args if _is(node, _ATEN.div.Tensor) and not node.kwargs else (None, None)
    is_share = _is(power, _ATEN.exp.default) and _over_rows(total, _ATEN.sum.dim_IntList) is power
    minus = power.args[0] if is_share else None
    x, most = minus.args if _is(minus, _ATEN.sub.Tensor) and not minus.kwargs else (None, None)
    value = _value(x)
    fits = value is not None and value.dtype is torch.float32 and _over_rows(most, _ATEN.amax.default) is x
    return x if fits else None


def _softmax_of(x: fx.Node) -> Optional[fx.Node]:
    """Returns the softmax of rows that nothing else reads."""
    wide = x
    if x.meta["val"].dtype is not torch.float32:
        wide = next(iter(x.users)) if len(x.users) == 1 else x
        if _converted(wide, torch.float32) is not x:
            return None
    for minus in wide.users:
        for power in minus.users if len(wide.users) == 2 and _is(minus, _ATEN.sub.Tensor) else ():
            for node in power.users:
                if _softmax(node) is wide:
                    return node
    return None


def _shares_of(x: fx.Node) -> Optional[fx.Node]:
    """Returns rows divided by their sums, if nothing else reads them."""
    for node in x.users if len(x.users) == 2 else ():
        if (_is(node, _ATEN.div.Tensor) and not node.kwargs and node.args[0] is x
                and _over_rows(node.args[1], _ATEN.sum.dim_IntList) is x):
            return node
    return None


def _choose(graph: fx.Graph, topk: fx.Node) -> None:
    """Chooses by a softmax before or behind the choice."""
    scores, top, *rest = topk.args
    value, parts = _value(scores), _results(topk, 2)
    if (value is None or parts is None or set(parts) != {0, 1} or topk.kwargs or value.dim() != 2
            or rest not in ([], [-1], [1], [-1, True], [1, True], [-1, True, True], [1, True, True])
            or type(value.shape[1]) is not int or type(top) is not int or not _lowered.on_gpu(value)
            or value.shape[1] > MOST_EXPERTS or top > _MOST_CHOSEN):
        return
    logits, chosen, ids = _softmax(scores), parts[0], parts[1]
    named: Dict[str, Any] = {}
    if logits is None:
        logits, weights = scores, _softmax_of(chosen)
        named["softmax_at"] = "after"
    else:
        weights = _shares_of(chosen)
        if weights is not None:
            named["renormalise"] = "sum"
        weights = weights or chosen
    if weights is None:
        return
    narrow = _converted(logits, torch.float32)
    if narrow is not None and narrow.meta["val"].dtype in _DTYPES:
        logits = narrow
    given = logits.meta["val"]
    if given.dtype not in (*_DTYPES, torch.float32) or not given.is_contiguous():
        return
    new = _call(graph, topk, _OURS.choose_experts.default, logits, top=top, **named)
    numbers, shares = (_insert(graph, topk, value, operator.getitem, new, i) for i, value in enumerate(new.meta["val"]))
    everything = _calls(graph)
    _replace(graph, ids, _call(graph, topk, _CONVERT, numbers, ids.meta["val"].dtype), everything)
    _replace(graph, weights, shares, everything)


def _calls(graph: fx.Graph) -> Set[fx.Node]:
    return {node for node in graph.nodes if node.op == "call_function"}


def _rows_of(node: Any, *users: Any) -> Any:
    """Returns what a node takes rows of, and their numbers, if these are all of its users."""
    if not _is(node, _ATEN.index.Tensor) or node.kwargs or len(node.args[1]) != 1 or set(node.users) != set(users):
        return None, None
    return node.args[0], node.args[1][0]


def _sum(total: fx.Node) -> Optional[_Sum]:
    each = total.args[0]
    if total.args[1:] != ([1],) or total.kwargs or not _is(each, *_VIEWS) or set(each.users) != {total}:
        return None
    weighted, place = _rows_of(each.args[0], each)
    if not _is(place, _ATEN.index_put.default) or set(place.users) != {each.args[0]} or place.kwargs or (
            len(place.args) != 3 or set(getattr(weighted, "users", ())) != {each.args[0]}):
        return None
    _, (pairs, *others), numbers = place.args
    if others or not _is(numbers, torch.ops.prims.iota.default) or numbers.kwargs["start"] != 0 or (
            numbers.kwargs["step"] != 1):
        return None
    for rows, factor in _factors(weighted):
        if not _is(factor, _ATEN.unsqueeze.default) or factor.args[1] not in (-1, 1) or set(factor.users) != {weighted}:
            continue
        flat, own = _rows_of(factor.args[0], factor)
        weights = flat.args[0] if _is(flat, *_VIEWS) else None
        of_rows, of_weights, shape = _value(rows), _value(weights), each.meta["val"].shape
        if (own is not pairs or of_rows is None or of_weights is None or of_rows.dtype not in _DTYPES or len(shape) != 3
                or of_weights.dtype not in (*_DTYPES, torch.float32) or not of_weights.is_contiguous()
                or not of_rows.is_contiguous() or not _lowered.on_gpu(of_rows) or not _same(of_weights.shape, shape[:2])
                or not _same(of_rows.shape, weighted.meta["val"].shape)):
            continue
        result = total
        if total.meta["val"].dtype is not of_rows.dtype:  # weights in fp32 made wide sums
            result = next(iter(total.users)) if len(total.users) == 1 else total
            if _converted(result, of_rows.dtype) is not total:
                continue
        return _Sum(rows, weights, numbers, result, pairs, {place, factor.args[0]})
    return None


def _order(found: _Sum) -> Optional[_Order]:
    """Finds the sort of all pairs by expert. All that reads the pairs or their experts is known, since it must follow
    the order of our rows."""
    sort = found.pairs.args[0] if _is(found.pairs, operator.getitem) and found.pairs.args[1] == 1 else None
    if not _is(sort, _ATEN.sort.default) or len(sort.args) != 1 or sort.kwargs or not _is(sort.args[0], *_VIEWS):
        return None
    ids, parts, top = sort.args[0].args[0], _results(sort, 2), found.weights.meta["val"].shape[1]
    value = _value(ids)
    if value is None or parts is None or 0 not in parts or type(top) is not int or not _same(
            value.shape, found.weights.meta["val"].shape) or value.is_floating_point():
        return None
    for user in set(found.pairs.users) - found.users:
        if not _token_of(user, found.pairs, top):
            return None
    counts = [(user, count) for user in parts[0].users for count in (user, *user.users)
              if _is(count, _ATEN.histc.default)]
    if len(counts) != 1:
        return None
    user, count = counts[0]
    ends = next(iter(count.users)) if len(count.users) == 1 else None
    experts = count.args[1] if len(count.args) == 4 and not count.kwargs else None
    if (type(experts) is not int or experts > MOST_EXPERTS or tuple(count.args[2:]) != (0, experts - 1)
            or not (user is count or _is(user, _CONVERT) and set(user.users) == {count})
            or not _is(ends, _ATEN.cumsum.default) or ends.args != (count, 0)
            or ends.kwargs != {"dtype": torch.int32}):
        return None
    return _Order(ids, experts, found.pairs, parts[0] if len(parts[0].users) > 1 else None, ends)


def _token_of(node: Any, pairs: fx.Node, top: int) -> bool:
    """Returns true for the token of each pair."""
    return _is(node, _ATEN.div.Tensor_mode) and node.args == (pairs, top) and node.kwargs == {"rounding_mode": "floor"}


def _order_and_sum(graph: fx.Graph, order: _Order, found: _Sum) -> None:
    sort, top = order.pairs.args[0], found.weights.meta["val"].shape[1]
    ids = order.ids
    if _is(ids, _CONVERT) and ids.args[0].meta["val"].dtype is torch.int32:
        ids = ids.args[0]
    if ids.meta["val"].dtype is not torch.int32:
        ids = _call(graph, sort, _CONVERT, ids, torch.int32)
    if not ids.meta["val"].is_contiguous():
        ids = _call(graph, sort, _ATEN.clone.default, ids, memory_format=torch.contiguous_format)
    new = _call(graph, sort, _OURS.order_experts.default, ids, experts=order.experts)
    ends, row_of, place = (_insert(graph, sort, value, operator.getitem, new, i)
                           for i, value in enumerate(new.meta["val"]))
    everything = _calls(graph)
    _replace(graph, order.ends, ends, everything)
    for node in list(order.pairs.users):
        if _token_of(node, order.pairs, top):
            _replace(graph, node, _call(graph, node, _CONVERT, row_of, node.meta["val"].dtype), everything)
    if order.expert_of is not None:
        numbers = _call(graph, found.result, _CONVERT, found.numbers, torch.int32)
        expert_of = _call(graph, found.result, _ATEN.searchsorted.Tensor, ends, numbers, right=True)
        _replace(graph, order.expert_of, expert_of, everything)
    weights = _converted(found.weights, found.weights.meta["val"].dtype) or found.weights
    if weights.meta["val"].dtype is not torch.float32:
        weights = _call(graph, found.result, _CONVERT, found.weights, torch.float32)
    result = _call(graph, found.result, _OURS.combine_experts.default, found.rows, place, weights)
    _replace(graph, found.result, result, everything)
    # The numbers of rows are behind what asks for the experts of rows.
    stable_topological_sort(graph)


def _product(node: Any, parts: int = 1) -> bool:
    """Returns true for a product of groups with weights [groups, n, k] that kernels take, if n has so many parts."""
    if not _is(node, _ATEN._grouped_mm.default) or node.kwargs or len(node.args) != 3:
        return False
    a, b, ends = node.args
    if not _is(b, _ATEN.permute.default) or list(b.args[1]) != [0, 2, 1] or not _is_weight(b.args[0], 3):
        return False
    groups, n, k = b.args[0].meta["val"].shape
    return (all(type(size) is int for size in (groups, n, k)) and groups <= MOST_EXPERTS and n % (8 * parts) == 0
            and k % 8 == 0 and _fits(a, b.args[0]) and a.meta["val"].dim() == 2
            and _value(ends) is not None and ends.meta["val"].dtype is torch.int32)


def _multiply_gated(graph: fx.Graph, node: fx.Node) -> None:
    gate = _gate(node)
    if gate is not None and len(gate.args) == 2 and _product(gate.args[1], 2) and _only(gate, gate.args[1], gate.nodes):
        activation, product = gate.args
        _grouped(graph, node, product, gate.nodes | {product}, activation=activation, gated=True)


def _multiply(graph: fx.Graph, node: fx.Node) -> None:
    if _product(node):
        _grouped(graph, node, node, {node})


def _grouped(graph: fx.Graph, node: fx.Node, product: fx.Node, nodes: Set[fx.Node], **named: Any) -> None:
    """Replaces a node by a product of ours, which reads the rows of tokens where they are."""
    a, b, ends = product.args
    x, row_of = _rows_of(a, product)
    number = row_of.args[0] if _is(row_of, _CONVERT) else None
    value, rows = _value(x), ()
    if (_is(number, operator.getitem) and number.args[1] == 1 and _is(number.args[0], _OURS.order_experts.default)
            and value is not None and value.dim() == 2 and value.is_contiguous()):
        a, rows, nodes = x, (None, None, number), nodes | {a, row_of}
    new = _insert(graph, node, node.meta["val"], _OURS.grouped_matmul.default, a, b, ends, *rows, **named)
    _replace(graph, node, new, nodes)
