"""Fusions over the graph of a compiled model. A pass leaves the layers that it does not know.

A pass reads a graph by `Finders`, which know a layer as our operator or as what torch.compile made of it."""

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import fx
from torch._guards import detect_fake_mode

from ._operators import OPERATORS
from ._packing import are_together

_OURS = torch.ops.kernwright


class Found(NamedTuple):
    """A layer: the arguments that it is computed from, and the nodes that compute it, whose last one has its
    result."""
    args: Tuple[Any, ...]
    nodes: Set[fx.Node]


Finder = Callable[[Any], Optional[Found]]


class Finders(NamedTuple):
    """Functions that return the layer whose result a node is, if it is one."""
    product: Finder  # x, weight, bias or None
    norm: Finder  # x, weight, eps; not one that costs no kernel of its own
    gate: Finder  # the activation's name, and gate and up, or one x whose rows begin with the gate and end with up
    sum: Finder  # two tensors of one shape
    largest: Finder  # x, of whose rows it is the column of the largest value; not one that costs no kernel of its own
    parts: Finder  # the nodes that are the parts of its rows, in their order, if these are all of its users
    functional: bool  # true if nothing is written in place, so that a layer may be computed where another one is


def _of_operator(target: Any, count: int, *before: Any) -> Finder:
    """Returns the finder of our operator with so many arguments."""
    def find(node: Any) -> Optional[Found]:
        return Found((*before, *node.args[:count]), {node}) if _calls(node, target) else None

    return find


def _calls(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is target


OWN = Finders(_of_operator(OPERATORS.linear.default, 3), _of_operator(OPERATORS.rms_norm.default, 3),
              _of_operator(OPERATORS.silu_and_mul.default, 1, "silu"), lambda node: None, lambda node: None,
              lambda node: None, functional=False)


def fuse(graph: fx.Graph, find: Finders = OWN) -> None:
    """Adds residuals in the product before a norm or a sum, gates in the product before an activation, makes one
    product of q, k and v, normalises in the product behind a norm, quantizes in the norm or the gate, and takes the
    most probable token from logits."""
    for step in (_fuse_norm_of_sum, _fuse_sum, _fuse_gate, _take_largest, _quantize_before):
        for node in list(graph.nodes):
            if not node._erased:
                step(graph, node, find)
    if find.functional:
        _fuse_qkv(graph, find)
        for node in list(graph.nodes):
            if not node._erased:
                _split_qkv(graph, node, find)
    for node in list(graph.nodes):
        if not node._erased:
            _fuse_norm(graph, node, find)


def _insert(graph: fx.Graph, before: fx.Node, value: Any, target: Any, *args: Any, **named: Any) -> fx.Node:
    """Inserts a node whose result is like a value."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args, named)
    node.meta["val"] = value
    # By these Inductor gives operators their inputs with the strides that they were traced with.
    node.meta["eager_input_vals"] = fx.node.map_arg(args, lambda arg: arg.meta["val"]), named
    return node


def _call(graph: fx.Graph, before: fx.Node, target: Any, *args: Any, **named: Any) -> fx.Node:
    """Inserts a call whose result follows from its inputs."""
    values = fx.node.map_arg(args, lambda arg: arg.meta["val"])
    with detect_fake_mode(values):
        return _insert(graph, before, target(*values, **named), target, *args, **named)


def _replace(graph: fx.Graph, old: fx.Node, new: fx.Node, nodes: Set[fx.Node]) -> None:
    """Gives the users of a node another, and erases those of the nodes that nothing uses then."""
    old.replace_all_uses_with(new)
    _erase(graph, old, nodes)


def _erase(graph: fx.Graph, node: fx.Node, nodes: Set[fx.Node]) -> None:
    if node not in nodes or node._erased or node.users:
        return
    inputs = node.all_input_nodes
    graph.erase_node(node)
    for each in inputs:
        _erase(graph, each, nodes)


def _only(found: Optional[Found], node: Any, users: Set[fx.Node]) -> bool:
    """Returns true for a layer whose result, this node, has no other users."""
    return found is not None and set(node.users) <= users


def _fuse_norm_of_sum(graph: fx.Graph, norm: fx.Node, find: Finders) -> None:
    if norm.target is not OPERATORS.add_rms_norm.default:
        return
    x, residual, weight, eps = norm.args
    product = find.product(x)
    parts = {user.args[1]: user for user in norm.users if user.target is operator.getitem}
    if product is None or not _only(product, x, {norm}) or len(parts) != len(norm.users) or 0 not in parts:
        return
    sums = _insert(graph, norm, x.meta["val"], OPERATORS.linear_add.default, *product.args, residual)
    normal = _insert(graph, norm, parts[0].meta["val"], OPERATORS.rms_norm.default, sums, weight, eps)
    nodes = {norm, *product.nodes}
    for part, new in ((0, normal), (1, sums)):
        if part in parts:
            _replace(graph, parts[part], new, {parts[part], *nodes})


def _fuse_sum(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    found = find.sum(node)
    for x, residual in () if found is None else (found.args, found.args[::-1]):
        product = find.product(x)
        if product is not None and x is not residual and _only(product, x, {node}):
            sums = _insert(graph, node, node.meta["val"], OPERATORS.linear_add.default, *product.args, residual)
            _replace(graph, node, sums, {node, *product.nodes})
            return


def _fuse_gate(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    gate = find.gate(node)
    if gate is None:
        return
    activation, *results = gate.args
    products = [find.product(result) for result in results]
    if not all(_only(product, result, gate.nodes) for product, result in zip(products, results)):
        return
    inputs, weights, biases = zip(*(product.args for product in products if product is not None))
    if any(bias is not None for bias in biases) or len(set(inputs)) > 1 or not _are_one(weights) or (
            len(weights) == 2 and weights[0].meta["val"].shape != weights[1].meta["val"].shape):
        return
    gated = _insert(graph, node, node.meta["val"], OPERATORS.gated_linear.default, inputs[0], list(weights), activation)
    _replace(graph, node, gated, gate.nodes.union(*(product.nodes for product in products if product is not None)))


def _take_largest(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    found = find.largest(node)
    if found is not None:
        _replace(graph, node, _insert(graph, node, node.meta["val"], OPERATORS.argmax.default, *found.args), found.nodes)


def _quantize_before(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    """Makes one kernel of `quantize_rows` and the norm or the gate before it if nothing else reads the rows. Several
    that quantize them alike are one."""
    operators = next((each for each in (OPERATORS, _OURS) if _calls(node, each.quantize_rows.default)), None)
    if operators is None:
        return
    x = node.args[0]
    alike = [user for user in x.users if (user.target, user.args, user.kwargs) == (node.target, node.args, node.kwargs)]
    for each in alike:
        if each is not node:
            _replace(graph, each, node, {each})
    if set(x.users) == {node}:
        _quantize_in_gate(graph, node, find, operators)
        if not node._erased:
            _quantize_in_norm(graph, node, find, operators)


def _quantize_in_gate(graph: fx.Graph, node: fx.Node, find: Finders, operators: Any) -> None:
    x = node.args[0]
    gate = find.gate(x)
    if _calls(x, _OURS.silu_and_mul.default):
        gate = Found(("silu", x.args[0]), {x})
    elif _calls(x, _OURS.gelu_and_mul.default):
        tanh = x.kwargs.get("approximate", "none") == "tanh"
        gate = Found(("gelu_tanh" if tanh else "gelu_erf", x.args[0]), {x})
    if gate is None or len(gate.args) != 2:
        return
    activation, rows = gate.args
    named = {"activation": activation, "quantize": "row", **node.kwargs}
    codes = _insert(graph, node, list(node.meta["val"]), operators.quantized_gate.default, rows, None, **named)
    _replace(graph, node, codes, {node, *gate.nodes})


def _quantize_in_norm(graph: fx.Graph, node: fx.Node, find: Finders, operators: Any) -> None:
    x = node.args[0]
    normal = x.args[0] if x.target is operator.getitem and x.args[1] == 0 else x
    named = {"norm": "rms_norm", "quantize": "row", **node.kwargs}
    values = list(node.meta["val"])
    if _calls(normal, _OURS.add_rms_norm.default) or _calls(normal, OPERATORS.add_rms_norm.default):
        given, residual, *rest = normal.args
        sums = [user for user in normal.users if user is not x]
        values.append(normal.meta["val"][1])
    else:
        norm = find.norm(x) or (Found(x.args, {x}) if _calls(x, _OURS.rms_norm.default) else None)
        if norm is None:
            return
        (given, *rest), residual, sums = norm.args, None, []
    weight, eps = (*rest, *(None, 1e-6)[len(rest):])
    codes = _insert(graph, normal, values, operators.quantized_norm.default, given, residual, weight, None, None, eps, **named)
    for each in sums:
        _replace(graph, each, _insert(graph, normal, values[2], operator.getitem, codes, 2), {each})
    _replace(graph, node, codes, {node, x, normal})


def _are_one(weights: Sequence[Any]) -> bool:
    """Returns true for one weight, and for inputs of a graph that are one behind the other in memory. Operators look
    again at each call."""
    return len(weights) == 1 or are_together([weight.meta["val"] for weight in weights])


def _fuse_qkv(graph: fx.Graph, find: Finders) -> None:
    products: Dict[fx.Node, List[Tuple[fx.Node, Found]]] = {}
    seen: Set[fx.Node] = set()
    for node in reversed(graph.nodes):  # a result before the product itself, of which it may be a view
        found = None if node in seen else find.product(node)
        if found is not None:
            products.setdefault(found.args[0], []).append((node, found))
            seen |= found.nodes
    for x, group in products.items():
        if len(group) != 3 or not all(found.args[1].op in ("placeholder", "get_attr") for _, found in group):
            continue
        first = group[-1][0]
        group.sort(key=lambda each: each[1].args[1].meta["val"].storage_offset())
        weights, biases = ([found.args[place] for _, found in group] for place in (1, 2))
        rows = [weight.meta["val"].shape[0] for weight in weights]
        if None in biases:
            biases = [bias for bias in biases if bias is not None]
        if not _are_one(weights) or rows[1] != rows[2] or rows[0] % rows[1] != 0 or (
                biases and (len(biases) != 3 or not _are_one(biases))):
            continue
        qkv = _insert(graph, first, tuple(node.meta["val"] for node, _ in group), OPERATORS.qkv_linear.default, x,
                      weights, biases)
        parts = [_insert(graph, first, node.meta["val"], operator.getitem, qkv, i) for i, (node, _) in enumerate(group)]
        for (node, found), part in zip(group, parts):
            _replace(graph, node, part, found.nodes)


def _split_qkv(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    """Writes q, k and v without gaps, if they are the parts of one product."""
    product, parts = find.product(node), find.parts(node)
    if product is None or parts is None or len(parts.args) != 3:
        return
    sizes = [part.meta["val"].shape[-1] for part in parts.args]
    if any(type(size) is not int for size in sizes) or sizes[1] != sizes[2] or sizes[0] % sizes[1] != 0:
        return
    x, *tensors = product.args

    def rows(tensor: fx.Node) -> List[fx.Node]:
        begins, value = [0, sizes[0], sizes[0] + sizes[1]], tensor.meta["val"]
        return [_insert(graph, node, value[begin:begin + size], torch.ops.aten.slice.Tensor, tensor, 0, begin,
                        begin + size) for begin, size in zip(begins, sizes)]

    weights, biases = (rows(tensor) if tensor is not None else [] for tensor in tensors)
    values = tuple(part.meta["val"].new_empty(part.meta["val"].shape) for part in parts.args)
    qkv = _insert(graph, node, values, OPERATORS.qkv_linear.default, x, weights, biases)
    for i, (part, value) in enumerate(zip(parts.args, values)):
        _replace(graph, part, _insert(graph, node, value, operator.getitem, qkv, i), {part, *product.nodes})


def _fuse_norm(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    product, target = find.product(node), OPERATORS.norm_linear.default
    for plain, fused in ((OPERATORS.gated_linear.default, OPERATORS.norm_gated_linear.default),
                         (OPERATORS.qkv_linear.default, OPERATORS.norm_qkv_linear.default)):
        if node.target is plain:
            product, target = Found(node.args, {node}), fused
    norm = None if product is None else find.norm(product.args[0])
    if product is not None and norm is not None and _only(norm, product.args[0], product.nodes):
        fused = _insert(graph, node, node.meta["val"], target, *norm.args, *product.args[1:])
        _replace(graph, node, fused, product.nodes | norm.nodes)
