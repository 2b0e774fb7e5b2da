"""Fusions over the graph of a compiled model. A pass leaves the layers that it does not know.

A pass reads a graph by `Finders`, which know a layer as our operator or as what torch.compile made of it."""

import operator
from typing import Any, Callable, NamedTuple, Optional, Set, Tuple

from torch import fx

from ._operators import OPERATORS


class Found(NamedTuple):
    """A layer: the arguments that it is computed from, and the nodes that compute it, whose last one has its
    result."""
    args: Tuple[Any, ...]
    nodes: Set[fx.Node]


Finder = Callable[[Any], Optional[Found]]


class Finders(NamedTuple):
    """Functions that return the layer whose result a node is, if it is one."""
    product: Finder  # x, weight: without bias
    norm: Finder  # x, weight, eps
    gate: Finder  # x: silu of the first half of each row, times the second
    sum: Finder  # two tensors of one shape


def _of_operator(target: Any, count: int) -> Finder:
    """Returns the finder of our operator, whose arguments behind so many must be None."""
    def find(node: Any) -> Optional[Found]:
        if isinstance(node, fx.Node) and node.target is target and all(arg is None for arg in node.args[count:]):
            return Found(node.args[:count], {node})
        return None

    return find


OWN = Finders(_of_operator(OPERATORS.linear.default, 2), _of_operator(OPERATORS.rms_norm.default, 3),
              _of_operator(OPERATORS.silu_and_mul.default, 1), lambda node: None)


def fuse(graph: fx.Graph, find: Finders = OWN) -> None:
    """Adds residuals in the product before a norm or a sum, gates in the product before an activation, and
    normalises in the product behind a norm."""
    for step in (_fuse_norm_of_sum, _fuse_sum, _fuse_gate, _fuse_norm):
        for node in list(graph.nodes):
            if not node._erased:
                step(graph, node, find)


def _insert(graph: fx.Graph, before: fx.Node, like: fx.Node, target: Any, *args: Any) -> fx.Node:
    """Inserts a node whose result has the shape of another's."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args)
    node.meta["val"] = like.meta["val"]
    # By these Inductor gives operators their inputs with the strides that they were traced with.
    node.meta["eager_input_vals"] = tuple(arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args), {}
    return node


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
    sums = _insert(graph, norm, x, OPERATORS.linear_add.default, *product.args, residual)
    normal = _insert(graph, norm, parts[0], OPERATORS.rms_norm.default, sums, weight, eps)
    nodes = {norm, *product.nodes}
    for part, new in ((0, normal), (1, sums)):
        if part in parts:
            _replace(graph, parts[part], new, {parts[part], *nodes})


def _fuse_sum(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    found = find.sum(node)
    for x, residual in () if found is None else (found.args, found.args[::-1]):
        product = find.product(x)
        if product is not None and x is not residual and _only(product, x, {node}):
            _replace(graph, node, _insert(graph, node, node, OPERATORS.linear_add.default, *product.args, residual),
                     {node, *product.nodes})
            return


def _fuse_gate(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    gate = find.gate(node)
    if gate is None:
        return
    product = find.product(gate.args[0])
    if product is not None and _only(product, gate.args[0], gate.nodes):
        _replace(graph, node, _insert(graph, node, node, OPERATORS.gated_linear.default, *product.args),
                 gate.nodes | product.nodes)


def _fuse_norm(graph: fx.Graph, node: fx.Node, find: Finders) -> None:
    product, target = find.product(node), OPERATORS.norm_linear.default
    if node.target is OPERATORS.gated_linear.default:
        product, target = Found(node.args, {node}), OPERATORS.norm_gated_linear.default
    norm = None if product is None else find.norm(product.args[0])
    if product is not None and norm is not None and _only(norm, product.args[0], product.nodes):
        _replace(graph, node, _insert(graph, node, node, target, *norm.args, product.args[1]),
                 product.nodes | norm.nodes)
