"""Mixtures of experts in the graph of a compiled model, as Transformers computes them by grouped products: the choice
of experts, the order of rows, the products, and their sum are a kernel each. A pass leaves what it does not know: other
routers, products with weights that lie otherwise, and what rows go through between the products."""

import operator
from typing import Any, Dict, NamedTuple, Optional, Set, Tuple

import torch
from torch import fx
from torch._inductor.pattern_matcher import stable_topological_sort

from . import _lowered
from ._checks import MOST_EXPERTS
from ._lowered import (_ATEN, _CONVERT, _DTYPES, _VIEWS, _between, _converted, _factors, _gate, _half, _is, _is_weight,
                       _same, _value)
from ._passes import Found, _call, _insert, _only, _replace

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
        for node in reversed(list(graph.nodes)):  # what is added to a product before the product
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


def _product(node: Any, parts: int = 1) -> Optional[Found]:
    """Finds a product of groups that kernels take, if the columns of its weights are so many parts, from its rows,
    weights [groups, k, n] and ends, and what is added to the rows of each group, or None."""
    found = _grouped_mm(node, parts)
    if found is not None:
        return Found((*found.args, None), found.nodes)
    terms = [node.args, node.args[::-1]] if _is(node, _ATEN.add.Tensor) and not node.kwargs else []
    for product, addend in terms:
        found, bias = _grouped_mm(product, parts), _bias(addend, product)
        if found is not None and bias is not None and set(product.users) == {node}:
            return Found((*found.args, bias), {node, addend, *addend.args[1], *found.nodes})
    return None


def _grouped_mm(node: Any, parts: int) -> Optional[Found]:
    if not _is(node, _ATEN._grouped_mm.default) or node.kwargs or len(node.args) != 3:
        return None
    a, b, ends = node.args
    is_turned = _is(b, _ATEN.permute.default) and list(b.args[1]) == [0, 2, 1]
    weight, rows = b.args[0] if is_turned else b, _value(a)
    if not _is_weight(weight, 3) or rows is None or rows.dim() != 2 or not rows.is_contiguous():
        return None
    of_weight, (groups, k, n) = weight.meta["val"], b.meta["val"].shape
    fits = (all(type(size) is int for size in (groups, k, n)) and groups <= MOST_EXPERTS and n % (8 * parts) == 0
            and k % 8 == 0 and rows.dtype is of_weight.dtype and rows.device == of_weight.device
            and _same(rows.shape[1:], (k,)) and _value(ends) is not None and ends.meta["val"].dtype is torch.int32)
    return Found((a, b, ends), {node}) if fits else None


def _bias(addend: Any, product: Any) -> Optional[fx.Node]:
    """Returns the biases [groups, n] of which each row of a product gets that of its group."""
    of_rows, of_product = _value(addend), _value(product)
    if not _is(addend, _ATEN.index.Tensor) or len(addend.args[1]) != 1 or of_product is None or not _same(
            of_rows.shape, of_product.shape):
        return None
    bias, (group,) = addend.args
    if (not _is(product, _ATEN._grouped_mm.default) or not _is_weight(bias, 2)
            or not _is(group, _ATEN.searchsorted.Tensor) or group.args[0] is not product.args[2]
            or group.kwargs != {"right": True}):
        return None
    numbers = _converted(group.args[1], torch.int32)
    are_all = _is(numbers, torch.ops.prims.iota.default) and numbers.kwargs["start"] == 0 and numbers.kwargs["step"] == 1
    fits = bias.meta["val"].dtype is of_product.dtype and bias.meta["val"].device == of_product.device
    return bias if are_all and fits and _same(bias.meta["val"].shape, (
        product.args[1].meta["val"].shape[0], of_product.shape[1])) else None


def _clamped(node: Any) -> Any:
    """Returns what a node clamps, its least number or None, and its largest one, both before it is rounded."""
    value = _value(node)
    wide = _converted(node, value.dtype) if value is not None else None
    node = node if wide is None else wide
    if not _is(node, _ATEN.clamp_max.default) or node.kwargs:
        return None, None, None
    (x, most), least = node.args, None
    if _is(x, _ATEN.clamp_min.default) and not x.kwargs:
        x, least = x.args
    narrow = _converted(x, torch.float32)
    return narrow if wide is not None and narrow is not None else x, least, most


def _every_second(node: Any, which: int) -> Optional[Found]:
    """Finds the even or the odd columns of rows."""
    if not _is(node, _ATEN.slice.Tensor) or len(node.args) != 5 or node.kwargs:
        return None
    rows, dim, begin, end, step = node.args
    whole = _value(rows)
    if whole is None or dim not in (-1, whole.dim() - 1) or (begin, step) != (which, 2) or type(end) is not int or (
            not _same(whole.shape[-1:], (2 * node.meta["val"].shape[-1],))):
        return None
    return Found((rows,), {node})


def _clamped_gate(node: Any) -> Tuple[Optional[Found], Dict[str, Any]]:
    """Finds min(g, limit) * sigmoid(alpha * min(g, limit)) * (clamp(u, -limit, limit) + 1), which is "swiglu_oai"."""
    value = _value(node)
    if value is None or value.dtype not in _DTYPES or not _lowered.on_gpu(value):
        return None, {}
    for opened, other in _factors(node):
        up, least, most = _clamped(other.args[0]) if _is(other, _ATEN.add.Tensor) and other.args[1:] == (1,) and (
            not other.kwargs) else (None, None, None)
        for gate, share in _factors(opened) if up is not None else ():
            scaled = share.args[0] if _is(share, _ATEN.sigmoid.default) else None
            alpha = scaled.args[1] if _is(scaled, _ATEN.mul.Tensor) and scaled.args[0] is gate else None
            x, lowest, limit = _clamped(gate)
            if (x is None or lowest is not None or type(alpha) is not float or type(limit) not in (int, float)
                    or (least, most) != (-limit, limit)):
                continue
            nodes = {node} | _between(opened, x) | _between(other, up)
            for part, interleaved in ((_half, False), (_every_second, True)):
                gates, ups = part(x, 0), part(up, 1)
                if gates is None or ups is None or gates.args != ups.args:
                    continue
                rows = gates.args[0].meta["val"]
                if rows.dtype is value.dtype and rows.is_contiguous():
                    return Found(("swiglu_oai", *gates.args), nodes | gates.nodes | ups.nodes), dict(
                        interleaved=interleaved, limit=float(limit), gate_alpha=alpha)
    return None, {}


def _multiply_gated(graph: fx.Graph, node: fx.Node) -> None:
    gate, named = _gate(node), {}
    if gate is None or len(gate.args) != 2:
        gate, named = _clamped_gate(node)
    product = None if gate is None else _product(gate.args[1], 2)
    if gate is not None and product is not None and _only(gate, gate.args[1], gate.nodes):
        _grouped(graph, node, Found(product.args, product.nodes | gate.nodes), activation=gate.args[0], gated=True,
                 **named)


def _multiply(graph: fx.Graph, node: fx.Node) -> None:
    product = _product(node)
    if product is not None:
        _grouped(graph, node, product)


def _grouped(graph: fx.Graph, node: fx.Node, product: Found, **named: Any) -> None:
    """Replaces a node by a product of ours, which reads the rows of tokens where they are."""
    a, b, ends, bias = product.args
    nodes, row_of = product.nodes, None
    x, of_rows = _rows_of(a, *(user for user in a.users if user in nodes))
    number = of_rows.args[0] if _is(of_rows, _CONVERT) else None
    value = _value(x)
    if (_is(number, operator.getitem) and number.args[1] == 1 and _is(number.args[0], _OURS.order_experts.default)
            and value is not None and value.dim() == 2 and value.is_contiguous()):
        nodes = nodes | {a, of_rows}
        a, row_of = x, number
    new = _insert(graph, node, node.meta["val"], _OURS.grouped_matmul.default, a, b, ends, None, None, row_of, bias,
                  **named)
    _replace(graph, node, new, nodes)
