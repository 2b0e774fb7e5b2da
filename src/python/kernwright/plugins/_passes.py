"""Fusions over the graph of a compiled model, in which an engine's layers are our operators. What a pass does
not know it leaves."""

import operator
from typing import Any, Optional

from torch import fx

from ._operators import OPERATORS


def fuse(graph: fx.Graph) -> None:
    """Adds residuals in the product before a norm, gates in the product before an activation, and normalises in
    the product behind a norm."""
    for node in list(graph.nodes):
        if node.target is OPERATORS.add_rms_norm.default:
            _fuse_residual(graph, node)
        elif node.target is OPERATORS.silu_and_mul.default:
            _fuse_gate(graph, node)
    for node in list(graph.nodes):
        _fuse_norm(graph, node)


def _product_of(node: Any) -> Optional[fx.Node]:
    """Returns the node if it is a product without bias that has one user."""
    is_one = (isinstance(node, fx.Node) and node.target is OPERATORS.linear.default
              and node.args[2] is None and len(node.users) == 1)
    return node if is_one else None


def _insert(graph: fx.Graph, before: fx.Node, like: fx.Node, target: Any, *args: Any) -> fx.Node:
    """Inserts a node whose result has the shape of another's."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args)
    node.meta["val"] = like.meta["val"]
    # By these Inductor gives operators their inputs with the strides that they were traced with.
    node.meta["eager_input_vals"] = tuple(arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args), {}
    return node


def _replace(graph: fx.Graph, old: fx.Node, new: fx.Node) -> None:
    old.replace_all_uses_with(new)
    graph.erase_node(old)


def _fuse_residual(graph: fx.Graph, norm: fx.Node) -> None:
    x, residual, weight, eps = norm.args
    product = _product_of(x)
    parts = {user.args[1]: user for user in norm.users if user.target is operator.getitem}
    if product is None or len(parts) != len(norm.users) or 0 not in parts:
        return
    sums = _insert(graph, norm, product, OPERATORS.linear_add.default, *product.args[:2], residual)
    normal = _insert(graph, norm, parts[0], OPERATORS.rms_norm.default, sums, weight, eps)
    for part, new in ((0, normal), (1, sums)):
        if part in parts:
            _replace(graph, parts[part], new)
    for old in (norm, product):
        graph.erase_node(old)


def _fuse_gate(graph: fx.Graph, activation: fx.Node) -> None:
    product = _product_of(activation.args[0])
    if product is not None:
        _replace(graph, activation, _insert(graph, activation, activation, OPERATORS.gated_linear.default,
                                            *product.args[:2]))
        graph.erase_node(product)


def _fuse_norm(graph: fx.Graph, product: fx.Node) -> None:
    if product.target is OPERATORS.linear.default and product.args[2] is None:
        target = OPERATORS.norm_linear.default
    elif product.target is OPERATORS.gated_linear.default:
        target = OPERATORS.norm_gated_linear.default
    else:
        return
    norm, weight = product.args[:2]
    if (isinstance(norm, fx.Node) and norm.target is OPERATORS.rms_norm.default and len(norm.users) == 1):
        _replace(graph, product, _insert(graph, product, product, target, *norm.args, weight))
        graph.erase_node(norm)
