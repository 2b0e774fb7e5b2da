"""The fused parts of decode steps and prefills, on arrays. kernwright has these as flags of its
operations; they are not operations of the package's API, which has torch.nn.functional's."""

import math
from typing import Any, Optional, Sequence, Tuple

from .._arrays import Array, contiguous, make_error
from .._call import Form, Given, call, scalars_of, size_of

_SILU_MUL = Form("gated_activation", (("gate", "gate"), ("up", "up")), (("y", "out"),))


def silu_mul(gate: Any, up: Any) -> Any:
    """silu(gate) * up. Source: gated_activation with layout=separate."""
    return call(_SILU_MUL, ("silu_mul",), (gate, up), (None,))


def _expect_rows(weight: Array, names: Sequence[str], rows: Sequence[Optional[int]]) -> None:
    """Checks that the members of a tuple have that many rows, or as many as the first if None."""
    for name, own, wanted in zip(names, weight.members, rows):
        if own != (weight.members[0] if wanted is None else wanted):
            raise make_error(f"weight has {own} rows of {name}, and "
                             f"{weight.members[0] if wanted is None else wanted} expected")


_PRODUCT = (("a", "x"), ("b", "weight"), ("norm_weight", "norm_weight"), ("bias", "bias"))
_GATED_LINEAR = Form(
    "matmul", _PRODUCT[:3], (("d", "out"),), ("activation",), ("eps",),
    {"gate": "stacked", "batch": "1"},
    settle=lambda given: _expect_rows(given.arrays["b"], ("gate", "up"), (None, None)))


def gated_linear(x: Any, weight: Any, norm_weight: Any, activation: str, eps: float) -> Any:
    """gated_linear, with x normalised if there is norm_weight. `weight` may be (gate, up); returns
    NotImplemented if these are apart. Source: matmul with gate=stacked, and norm=rms."""
    return call(_GATED_LINEAR, ("gated_linear", activation), (x, weight, norm_weight), (None,),
                () if norm_weight is None else (eps,), stacks=True)


_NORM_LINEAR = Form("matmul", _PRODUCT, (("d", "out"),), (), ("eps",), {"batch": "1"})


def norm_linear(x: Any, weight: Any, norm_weight: Any, bias: Any, eps: float) -> Any:
    """linear of x with its rows normalised. Source: matmul with norm=rms."""
    return call(_NORM_LINEAR, ("norm_linear",), (x, weight, norm_weight, bias), (None,), (eps,))


def _settle_heads(given: Given) -> None:
    """Parts the columns of q, k and v into heads."""
    x, weight = given.arrays["a"], given.arrays["b"]
    kv_heads, head_dim = given.options.pop("_kv_heads"), given.options.pop("_head_dim")
    columns, rows = kv_heads * head_dim, weight.shape[0] if weight.shape else 0
    _expect_rows(weight, ("q", "k", "v"), (None, columns, columns))
    heads = rows // head_dim - 2 * kv_heads
    if heads < 1 or rows % head_dim != 0:
        raise make_error(f"weight has {rows} rows, and those of q, and 2 * {kv_heads} heads of "
                         f"{head_dim} expected")
    given.options["n_kv"] = columns
    for name, count in (("d", heads), ("d_k", kv_heads), ("d_v", kv_heads)):
        given.results[name] = (*x.shape[:-1], count, head_dim)


_QKV_LINEAR = Form(
    "matmul", _PRODUCT, (("d", "q"), ("d_k", "k"), ("d_v", "v")), ("_kv_heads", "_head_dim"),
    ("eps",), {"split": "qkv", "batch": "1"}, settle=_settle_heads)


def qkv_linear(x: Any, weight: Any, bias: Any, norm_weight: Any, kv_heads: int, head_dim: int,
               eps: float) -> Tuple[Any, Any, Any]:
    """A product whose columns go to q, k and v. `weight` may be a tuple of the weights of q, k and
    v, and so may `bias`; returns NotImplemented if these are apart. Source: matmul with
    split=qkv."""
    results: Tuple[Any, Any, Any] = call(
        _QKV_LINEAR, ("qkv_linear", kv_heads, head_dim), (x, weight, norm_weight, bias),
        (None, None, None), () if norm_weight is None else (eps,), stacks=True)
    return results


def _settle_caches(given: Given) -> None:
    """Adds the results, which lie as q, k and v without gaps: the caches are as large as what is
    written to them. Contracts have heads before tokens."""
    for name, source in (("q_out", "q"), ("k_cache", "k"), ("v_cache", "v")):
        array = given.arrays[source]
        given.arrays[name] = array._replace(name=f"the new {source}",
                                            strides=contiguous(array.shape))
    for name, array in given.arrays.items():
        if len(array.shape) == 4:
            given.orders[name] = 0, 2, 1, 3
            given.options.setdefault("kv_len", array.shape[1])


_NORM_ROPE = Form(
    "kv_append", (("q", "q"), ("k", "k"), ("v", "v"), ("q_norm", "q_norm"), ("k_norm", "k_norm"),
                  ("cosine", "cos"), ("sine", "sin")),
    (("q_out", "q"), ("k_cache", "k"), ("v_cache", "v")), (), ("eps",),
    {"layout": "bshd", "lengths": "full", "cache": "contiguous", "rope": "qk", "norm": "rms"},
    settle=_settle_caches)


def norm_rope(q: Any, k: Any, v: Any, q_norm: Any, k_norm: Any, cos: Any, sin: Any, *,
              eps: float = 1e-6) -> Tuple[Any, Any, Any]:
    """q and k with their heads normalised and rotated, and v. Source: kv_append with rope=qk and
    norm=rms, for sequences that begin with these tokens; their cache is the result."""
    results: Tuple[Any, Any, Any] = call(_NORM_ROPE, ("norm_rope",),
                                         (q, k, v, q_norm, k_norm, cos, sin), (None, None, None),
                                         (eps,))
    return results


def _settle_step(given: Given) -> None:
    """Reads q, k_new and v_new, [batch, ..., heads, head_dim], as one token of each sequence."""
    batch = given.arrays["k"].shape[0] if given.arrays["k"].shape else 0
    given.results["o"] = given.arrays["q"].shape
    for name in ("q", "k_new", "v_new"):
        array = given.arrays[name]
        lead = array.shape[:-2]
        if math.prod(lead) != batch or len(array.shape) < 2:
            raise make_error(f"{name} has the shape {list(array.shape)}, and one token of each of "
                             f"the {batch} sequences of the cache expected")
        right = contiguous(array.shape)
        if array.strides is not None and any(
                size != 1 and own != wanted
                for size, own, wanted in zip(array.shape, array.strides, right)):
            raise make_error(f"{name} has the strides {list(array.strides)}, and "
                             f"{list(right)} expected: it is taken without gaps")
        shape = (batch, array.shape[-2], 1, array.shape[-1])
        given.arrays[name] = array._replace(
            shape=shape, strides=array.strides and contiguous(shape))


_APPEND_ATTENTION = Form(
    "attention", (("q", "q"), ("k", "k"), ("v", "v"), ("k_new", "k_new"), ("v_new", "v_new"),
                  ("q_norm", "q_norm"), ("k_norm", "k_norm"), ("cosine", "cos"), ("sine", "sin"),
                  ("kv_lengths", "kv_lengths"), ("sinks", "sinks")), (("o", "out"),),
    ("mask", "window", "pairs", ""), fixed={"layout": "bhsd"}, settle=_settle_step)


def append_attention(q: Any, k: Any, v: Any, k_new: Any, v_new: Any, kv_lengths: Any, cos: Any,
                     sin: Any, q_norm: Any = None, k_norm: Any = None, sinks: Any = None, *,
                     scale: Optional[float] = None, eps: float = 1e-6, window: Optional[int] = None,
                     softcap: Optional[float] = None, interleaved: bool = False) -> Any:
    """A decode step of attention over a cache [batch, kv_heads, tokens, head_dim]. Source:
    attention with append=rope or norm_rope."""
    names, scalars = scalars_of({
        "scale": size_of("k", k, -1) ** -0.5 if scale is None else scale, "cap": softcap,
        "eps": None if q_norm is None else eps})
    tag = ("append_attention", "window" if window else None, window or None,
           "neighbours" if interleaved else None, names)
    return call(_APPEND_ATTENTION, tag,
                (q, k, v, k_new, v_new, q_norm, k_norm, cos, sin, kv_lengths, sinks), (None,),
                scalars, names)
