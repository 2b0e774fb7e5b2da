"""The passes over the graph of a compiled model's inference, and those for its attention.

A decode step rotates q and k, writes k and v to its cache behind the tokens that this counts, and calls attention. If
that is `kernwright.attention` and the cache Transformers' StaticCache, one kernel does all of it. The kernel reads the
angles of a token from a table of all positions. The graph has those of the new token alone, and so a table is made
in which only their row is written, for all layers. That all of these count as many tokens is checked at each call.
Elsewhere one kernel rotates q and k."""

import operator
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import fx
from torch._inductor.pattern_matcher import stable_topological_sort
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import _lowered
from ._lowered import (_ATEN, _CONVERT, _DTYPES, _VIEWS, FINDERS, _any_norm, _converted, _factors, _half, _is, _same,
                       _value)
from ._operators import OPERATORS
from ._mixtures import mix
from ._passes import Found, _call, _insert, _replace, fuse

_OURS = torch.ops.kernwright
# They give each sequence the number of keys that it had.
_SELECTIONS = *_VIEWS, _ATEN.expand.default, _ATEN.select.int, _ATEN.slice.Tensor, _ATEN.clone.default
# The heads of q for one of k, and the elements of a head, that a kernel takes.
_MOST_GROUPED, _MOST_ELEMENTS = 32, 256


def fuse_model(graph: fx.Graph) -> None:
    """Fuses the graph of a model's inference, in which nothing is written in place yet. A graph with a backward stays
    as it is."""
    if not any(str(node.target).startswith(("primals", "tangents")) for node in graph.find_nodes(op="placeholder")):
        fuse(graph, FINDERS)
        mix(graph)
        _append_in_attention(graph)
        _rotate_at_once(graph)
        _count_at_once(graph)


def _count_at_once(graph: fx.Graph) -> None:
    """Adds to the counters of all layers' caches, which the graph ends with, in one kernel."""
    counts: Dict[Any, List[fx.Node]] = {}
    for node in graph.find_nodes(op="call_function", target=_ATEN.copy_.default):
        counter, total = node.args
        if (_is(total, _ATEN.add.Tensor) and total.args[0] is counter and type(total.args[1]) is int
                and not total.kwargs and list(total.users) == [node] and not node.users and _is_counter(counter)):
            value = counter.meta["val"]
            counts.setdefault((total.args[1], value.dtype, value.device), []).append(node)
    for (number, *_), nodes in counts.items():
        if len(nodes) > 1:
            with graph.inserting_before(nodes[-1]):
                graph.call_function(OPERATORS.count.default, ([node.args[0] for node in nodes], number))
            totals = [node.args[1] for node in nodes]
            for node in (*nodes, *totals):
                graph.erase_node(node)


def _is_counter(node: Any) -> bool:
    value = _value(node)
    return value is not None and node.op == "placeholder" and value.dim() == 0 and _lowered.on_gpu(value)


class _Angles(NamedTuple):
    """A rotation: the cosines and sines of a token's pairs, [1, tokens, ..], which may be followed by others."""
    cos: fx.Node
    sin: fx.Node
    pairs: int
    interleaved: bool


class _Append(NamedTuple):
    """A cache with a new token."""
    cache: fx.Node
    token: Any
    counter: fx.Node  # of the tokens that are there
    place: fx.Node    # [1], as the counter
    copy: fx.Node     # it writes the cache in place


class _Step(NamedTuple):
    """An attention of one token of each sequence, which is appended to the caches first."""
    attention: fx.Node
    # q, k and v before they are normalised and rotated, and whether they are [batch, 1, heads, head_dim].
    tokens: Tuple[Tuple[Any, bool], ...]
    norms: Tuple[Any, ...]       # the weights of q's and k's heads, and eps; or nothing
    angles: _Angles
    keys: _Append
    values: _Append
    lengths: fx.Node             # the keys of each sequence with the new one


def _ends(node: Any) -> Tuple[Any, ...]:
    """Returns what is joined along the last dim, if it has as much of each."""
    if not _is(node, _ATEN.cat.default) or node.kwargs:
        return ()
    parts, dim = (*node.args, 0)[:2]
    return tuple(parts) if dim in (-1, node.meta["val"].dim() - 1) else ()


def _slice_of(node: Any, begin: int, step: int = 1) -> Any:
    """Returns what a node is the elements of from this one on in the last dim; None for another node."""
    if not _is(node, _ATEN.slice.Tensor):
        return None
    x, dim, first, end, every = (*node.args, *(0, 0, 2**63 - 1, 1)[len(node.args) - 1:])
    size = x.meta["val"].shape[-1]
    whole = dim in (-1, x.meta["val"].dim() - 1) and statically_known_true(first == begin) and every == step
    return x if whole and (end == 2**63 - 1 or statically_known_true(end >= size)) else None


def _base(node: Any) -> Any:
    """Returns what dims of size 1 were added to."""
    while _is(node, _ATEN.unsqueeze.default, *_VIEWS) and _same(
            node.meta["val"].shape[-1:], node.args[0].meta["val"].shape[-1:]):
        node = node.args[0]
    return node


def _repeated(node: Any, interleaved: bool) -> Any:
    """Returns what a node repeats: all of it behind itself, or each element. None for another node."""
    value = _value(node)
    if value is None or not _is(node, *_VIEWS):
        parts = () if interleaved else _ends(node)
        return parts[0] if len(parts) == 2 and parts[0] is parts[1] else None
    size = value.shape[-1] // 2
    twice = node.args[0]
    twice = twice.args[0] if _is(twice, _ATEN.clone.default) else twice
    if not _is(twice, _ATEN.expand.default) or not _is(twice.args[0], _ATEN.unsqueeze.default):
        return None
    rows, once = value.shape[:-1], twice.args[0].meta["val"].shape
    if _same(twice.meta["val"].shape, (*rows, size, 2) if interleaved else (*rows, 2, size)) and _same(
            once, (*rows, size, 1) if interleaved else (*rows, 1, size)):
        return twice.args[0].args[0]
    return None


def _halves_agree(node: Any) -> bool:
    """Returns true if the second half of rows is as the first: functions of elements of what is repeated."""
    while _is(node, _CONVERT, _ATEN.cos.default, _ATEN.sin.default, _ATEN.mul.Tensor):
        if _is(node, _ATEN.mul.Tensor) and type(node.args[1]) not in (int, float):
            return False
        node = _base(node.args[0])
    return _repeated(node, interleaved=False) is not None


def _angles(cos: Any, sin: Any, x: fx.Node, interleaved: bool, half: bool) -> Optional[_Angles]:
    """Returns the angles by which [batch, heads, tokens, head_dim] is rotated: one of each pair if `half`, else of each
    element. None if sequences may have others, or if the elements of a pair may."""
    tokens, elements = x.meta["val"].shape[-2:]
    pairs = elements // 2
    found = []
    for node in (cos, sin):
        node = _base(node)
        if interleaved and not half:
            node = _base(_repeated(node, interleaved=True))
            size = pairs
        else:
            size = pairs if half else elements
        value = _value(node)
        if value is None or not _same(value.shape[-1:], (size,)):
            return None
        if not interleaved and not half and not _halves_agree(node):
            return None
        if _is(node, _ATEN.slice.Tensor) and node.args[1:3] == (value.dim() - 1, 0) and len(node.args) == 4:
            node = _base(node.args[0])  # each layer may take its part anew
        value = node.meta["val"]
        if value.dim() < 2 or not _same(value.shape, (*(1,) * (value.dim() - 2), tokens, value.shape[-1])):
            return None
        found.append(node)
    return _Angles(found[0], found[1], pairs, interleaved)


def _turned(node: Any, x: Any) -> Optional[bool]:
    """Returns whether the pairs of (-b, a), for the pairs (a, b) of x, are neighbours or halves; None for another
    node."""
    parts = _ends(node)
    if len(parts) == 2 and _is(parts[0], _ATEN.neg.default):
        halves = _half(parts[1], 0), _half(parts[0].args[0], 1)
        return False if all(half is not None and half.args[0] is x for half in halves) else None
    if not _is(node, *_VIEWS) or not _same(node.meta["val"].shape, x.meta["val"].shape):
        return None
    parts = _ends(node.args[0])
    if len(parts) != 2 or not all(_is(part, _ATEN.unsqueeze.default) and part.args[1] in (-1, x.meta["val"].dim())
                                  for part in parts):
        return None
    minus, one = (part.args[0] for part in parts)
    other = minus.args[0] if _is(minus, _ATEN.neg.default) else None
    return True if _slice_of(one, 0, 2) is x and _slice_of(other, 1, 2) is x else None


def _rotated_whole(node: Any) -> Optional[Tuple[Any, _Angles]]:
    """Finds x * cos + (-b, a) * sin with angles for all elements, and (a * cos - b * sin, b * cos + a * sin) with
    angles for pairs."""
    if _is(node, _ATEN.add.Tensor) and not node.kwargs:
        for x, cos in _factors(node.args[0]):
            for turned, sin in _factors(node.args[1]):
                interleaved = None if _value(x) is None else _turned(turned, x)
                if interleaved is not None:
                    angles = _angles(cos, sin, x, interleaved, half=False)
                    return None if angles is None else (x, angles)
    parts = _ends(node)
    if len(parts) != 2 or not _is(parts[0], _ATEN.sub.Tensor) or not _is(parts[1], _ATEN.add.Tensor) or (
            parts[0].kwargs or parts[1].kwargs):
        return None
    for a, cos in _factors(parts[0].args[0]):
        for b, sin in _factors(parts[0].args[1]):
            halves = _half(a, 0), _half(b, 1)
            if halves[0] is None or halves[1] is None or halves[0].args != halves[1].args or [
                    {*each.args} for each in parts[1].args if _is(each, _ATEN.mul.Tensor)] != [{b, cos}, {a, sin}]:
                continue
            x = halves[0].args[0]
            angles = _angles(cos, sin, x, False, half=True)
            return None if angles is None else (x, angles)
    return None


def _rotated(node: Any) -> Optional[Tuple[Any, _Angles]]:
    """Finds a rotation of heads, or of their first elements if pairs are neighbours: x and the angles. It may be
    rounded only at its end."""
    node = _converted(node, node.meta["val"].dtype) or node
    whole = _rotated_whole(node)
    parts = _ends(node) if whole is None else ()
    found = _rotated_whole(parts[0]) if len(parts) == 2 else None
    if found is None:
        return whole
    first, angles = found
    x = _slice_of(parts[1], first.meta["val"].shape[-1])
    begins = _is(first, _ATEN.slice.Tensor) and first.args[0] is x and first.args[2] == 0 and len(first.args) == 4
    return (x, angles) if begins and first.args[1] == x.meta["val"].dim() - 1 and angles.interleaved else None


def _appended(node: Any, attention: fx.Node) -> Optional[_Append]:
    """Finds a cache, which nothing else reads, with a token at the place that a counter says."""
    if not _is(node, _ATEN.index_put.default) or node.kwargs or len(node.args) != 3:
        return None
    cache, places, token = node.args
    others = [user for user in node.users if user is not attention]
    value, new = _value(cache), _value(token)
    if (value is None or new is None or cache.op != "placeholder" or len(others) != 1
            or not _is(others[0], _ATEN.copy_.default) or others[0].args != (cache, node) or others[0].users
            or set(cache.users) != {node, others[0]} or len(places) != 3 or list(places[:2]) != [None, None]):
        return None
    place = places[2]
    for start, counter in (place.args, place.args[::-1]) if _is(place, _ATEN.add.Tensor) and not place.kwargs else ():
        if (_is(start, torch.ops.prims.iota.default) and start.args == (1,) and start.kwargs["start"] == 0
                and _is_counter(counter) and value.is_contiguous() and value.dim() == 4
                and type(value.shape[2]) is int and value.dtype in _DTYPES
                and _same(new.shape, (*value.shape[:2], 1, value.shape[3]))):
            return _Append(cache, token, counter, place, others[0])
    return None


def _by_token(node: Any) -> Tuple[Any, bool]:
    """Returns heads, [batch, heads, 1, head_dim], as they were before their dims were exchanged, and whether they
    were."""
    exchanged = _is(node, _ATEN.permute.default) and list(node.args[1]) == [0, 2, 1, 3]
    return (node.args[0], True) if exchanged else (node, False)


def _norm_of_heads(node: Any) -> Optional[Found]:
    """Finds a norm of each head of [batch, heads, 1, head_dim], whose x may still be [batch, 1, heads, head_dim]."""
    return _any_norm(_by_token(node)[0])


def _before_norms(q: fx.Node, k: fx.Node) -> Tuple[Tuple[Tuple[Any, bool], ...], Tuple[Any, ...]]:
    """Returns q and k as they were before their heads were normalised, if both were, and the weights and eps."""
    tokens, norms = (_by_token(q), _by_token(k)), (_norm_of_heads(q), _norm_of_heads(k))
    if norms[0] is None or norms[1] is None or norms[0].args[2] != norms[1].args[2]:
        return tokens, ()
    before = [(norm.args[0], True) if exchanged else _by_token(norm.args[0])
              for norm, (_, exchanged) in zip(norms, tokens)]
    return tuple(before), (norms[0].args[1], norms[1].args[1], norms[0].args[2])


def _step(attention: fx.Node) -> Optional[_Step]:
    q, *caches = attention.args[:3]
    _, slopes, lengths, seen, bias = (*attention.args[3:], *(None,) * 5)[:5]
    while _is(lengths, *_SELECTIONS):
        lengths = lengths.args[0]
    value, keys, values = _value(q), _appended(caches[0], attention), _appended(caches[1], attention)
    if (keys is None or values is None or keys.place is not values.place or not _is(lengths, _OURS.lengths.default)
            or (slopes, seen, bias) != (None,) * 3 or attention.kwargs.get("causal_first") or value.dim() != 4
            or not _lowered.on_gpu(value) or value.dtype is not keys.cache.meta["val"].dtype):
        return None
    own = keys.cache.meta["val"].shape
    if (not _same(value.shape, (own[0], value.shape[1], 1, own[3])) or not _same(own, values.cache.meta["val"].shape)
            or own[3] % 16 != 0 or own[3] > _MOST_ELEMENTS or value.shape[1] > _MOST_GROUPED * own[1]):
        return None
    parts = _rotated(q), _rotated(keys.token)
    if parts[0] is None or parts[1] is None or parts[0][1] != parts[1][1]:
        return None
    (q, angles), (k, _) = parts
    if any(x.meta["val"].dtype is not value.dtype for x in (q, k, values.token)):
        return None
    tokens, norms = _before_norms(q, k)
    return _Step(attention, (*tokens, _by_token(values.token)), norms, angles, keys, values, lengths)


def _append_in_attention(graph: fx.Graph) -> None:
    """Appends the token of a decode step in its attention."""
    steps = [_step(node) for node in graph.find_nodes(op="call_function", target=_OURS.attention.default)]
    groups: Dict[Any, List[_Step]] = {}
    for step in steps:
        if step is not None:
            groups.setdefault((step.lengths, step.angles, step.keys.cache.meta["val"].shape[2:]), []).append(step)
    for group in groups.values():
        shared = _shared(graph, group)
        for step in group:
            _append(graph, step, *shared)


def _shared(graph: fx.Graph, group: Sequence[_Step]) -> Tuple[fx.Node, ...]:
    """Returns the lengths, none if a layer's counter disagrees with them or with its cache, which is an error of the
    call; and the tables of angles."""
    first = group[0]
    before, (_, _, keys, elements) = first.attention, first.keys.cache.meta["val"].shape
    last, counters = first.lengths.args[0], list(dict.fromkeys(step.keys.counter for step in group))
    fits = _call(graph, before, _ATEN.logical_and.default, _call(graph, before, _ATEN.ge.Scalar, counters[0], 0),
                 _call(graph, before, _ATEN.lt.Scalar, counters[0], keys))
    there = _call(graph, before, _ATEN.sub.Tensor, last, 1)
    for counter in counters:
        fits = _call(graph, before, _ATEN.logical_and.default, fits,
                     _call(graph, before, _ATEN.eq.Tensor, counter, there))
    with graph.inserting_before(before):
        graph.call_function(_ATEN._assert_async.msg, (
            fits, f"layers of a model count different numbers of tokens in their caches, or more than {keys}"))
    lengths = _call(graph, before, _OURS.lengths.default, _call(graph, before, _ATEN.mul.Tensor, last, fits),
                    first.lengths.args[1])
    place = _call(graph, before, _ATEN.reshape.default, counters[0], [1])
    tables = []
    for row in _rows(graph, before, first.angles, elements // 2):
        table = _call(graph, before, _ATEN.empty.memory_format, [keys, elements // 2], dtype=torch.float32,
                      device=row.meta["val"].device)
        tables.append(_call(graph, before, _ATEN.index_put.default, table, [place], row))
    return (lengths, *tables)


def _rows(graph: fx.Graph, before: fx.Node, angles: _Angles, half: int) -> List[fx.Node]:
    """Returns cosines and sines as kernels take them, [tokens, half] in fp32. Pairs without an angle stay as they
    are."""
    found = []
    for node, rest in ((angles.cos, 1.0), (angles.sin, 0.0)):
        node = _call(graph, before, _ATEN.reshape.default, node, [-1, node.meta["val"].shape[-1]])
        node = _call(graph, before, _ATEN.slice.Tensor, node, 1, 0, angles.pairs)
        node = _call(graph, before, _CONVERT, node, torch.float32)
        if angles.pairs < half:
            node = _call(graph, before, _ATEN.constant_pad_nd.default, node, [0, half - angles.pairs], rest)
        found.append(node)
    return found


def _laid_out(node: fx.Node) -> torch.Tensor:
    """Returns the fake tensor of a node, whose strides follow anew from what it is a view of: that may have been
    written without gaps since it was traced."""
    if _is(node, *_VIEWS, _ATEN.permute.default):
        node.meta["val"] = node.target(_laid_out(node.args[0]), *node.args[1:])
    value: torch.Tensor = node.meta["val"]
    return value


def _contiguous(graph: fx.Graph, before: fx.Node, tokens: Sequence[Tuple[Any, bool]]) -> List[fx.Node]:
    """Returns [batch, tokens, heads, head_dim] without gaps."""
    found = []
    for node, exchanged in tokens:
        if not exchanged:
            node = _call(graph, before, _ATEN.permute.default, node, [0, 2, 1, 3])
        if not _laid_out(node).is_contiguous():
            node = _call(graph, before, _ATEN.clone.default, node, memory_format=torch.contiguous_format)
        found.append(node)
    return found


def _append(graph: fx.Graph, step: _Step, lengths: fx.Node, cos: fx.Node, sin: fx.Node) -> None:
    attention = step.attention
    named = {name: value for name, value in attention.kwargs.items() if name in ("scale", "window", "softcap")}
    *weights, eps = step.norms or (None, None, 1e-6)
    sinks = attention.args[3] if len(attention.args) > 3 else None
    q, k, v = _contiguous(graph, attention, step.tokens)
    result = _insert(graph, attention, q.meta["val"], _OURS.append_attention.default, q, step.keys.cache,
                     step.values.cache, k, v, lengths, cos, sin, *weights, sinks, eps=eps,
                     interleaved=step.angles.interleaved, **named)
    for appended in (step.keys, step.values):
        graph.erase_node(appended.copy)
    _replace(graph, attention, _call(graph, attention, _ATEN.permute.default, result, [0, 2, 1, 3]),
             {node for node in graph.nodes if node.op == "call_function"})


def _rotate_at_once(graph: fx.Graph) -> None:
    """Rotates q and k of a prompt in one kernel, which also normalises their heads."""
    tables: Dict[Any, List[fx.Node]] = {}
    for attention in graph.find_nodes(op="call_function", target=_OURS.attention.default):
        _rotate(graph, attention, tables)
    if tables:
        stable_topological_sort(graph)


def _new_of(node: fx.Node) -> Any:
    """Returns the new tokens of keys or values."""
    if _is(node, _ATEN.index_put.default):
        return node.args[2]
    if _is(node, _ATEN.cat.default) and node.args[1:] in ((2,), (-2,)):
        return node.args[0][-1]
    return node


def _read_by_tokens(graph: fx.Graph, attention: fx.Node, own: Sequence[fx.Node]) -> None:
    """Lets attention read q, k and v with all heads of a token side by side, if they are so, as its result is then."""
    if not all(_laid_out(node).transpose(1, 2).is_contiguous() for node in own):
        return
    new = _call(graph, attention, attention.target, *own, *attention.args[3:], **attention.kwargs)
    _replace(graph, attention, new, {attention, *attention.args[:3]})
    for node in list(new.users):
        if _is(node, _ATEN.permute.default) and _laid_out(node).is_contiguous():
            for copy in list(node.users):
                if _is(copy, _ATEN.clone.default):
                    _replace(graph, copy, node, {copy})


def _rotate(graph: fx.Graph, attention: fx.Node, tables: Dict[Any, List[fx.Node]]) -> None:
    own = [node.args[0] if _is(node, _ATEN.clone.default) else node for node in attention.args[:3]]
    q, k, v = own[0], _new_of(own[1]), _new_of(own[2])
    if _value(q) is None or _value(k) is None or q is k or not _lowered.on_gpu(_value(q)):
        return
    parts = _rotated(q), _rotated(k)
    value, batch = q.meta["val"], q.meta["val"].shape[0]
    if (parts[0] is None or parts[1] is None or parts[0][1] != parts[1][1] or value.dtype not in _DTYPES
            or value.shape[3] % 16 != 0 or type(batch) is not int
            or any(x.meta["val"].dtype is not value.dtype for x, _ in parts)):
        return
    (x, angles), (y, _) = parts
    tokens, norms = _before_norms(x, y)
    if norms and angles.interleaved:
        return
    table = tables.get((angles, bool(norms) or batch))
    if table is None:
        table = _rows(graph, attention, angles, value.shape[3] // 2)
        if not norms and batch > 1:
            table = [_call(graph, attention, _ATEN.expand.default, row, [batch, -1, -1]) for row in table]
            table = [_call(graph, attention, _ATEN.reshape.default, row, [-1, value.shape[3] // 2]) for row in table]
        tables[angles, bool(norms) or batch] = table
    if norms:
        given = _contiguous(graph, attention, (*tokens, _by_token(v)))
        target, args, named = _OURS.norm_rope.default, (*given, *norms[:2], *table), {"eps": norms[2]}
    else:
        given = _contiguous(graph, attention, tokens)
        target, args, named = _OURS.rope.default, (*given, *table), {"interleaved": angles.interleaved}
    # All nodes are sorted at the end, so that others that read q and k are behind this one.
    turned = _insert(graph, attention, tuple(_laid_out(node) for node in given), target, *args, **named)
    everything = {node for node in graph.nodes if node.op == "call_function"}
    results = []
    for i, node in enumerate((q, k)):
        part = _insert(graph, attention, given[i].meta["val"], operator.getitem, turned, i)
        part = _call(graph, attention, _ATEN.permute.default, part, [0, 2, 1, 3])
        _replace(graph, node, part, everything)
        results.append(part)
    if own[0] is q and own[1] is k:
        _read_by_tokens(graph, attention, (*results, own[2]))
