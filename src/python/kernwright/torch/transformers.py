"""kernwright's attention as an implementation of Transformers, by its two registries.

    kernwright.torch.use_in_transformers()
    model.set_attn_implementation("kernwright")     # or attn_implementation="kernwright" when it is loaded

A mask function of Transformers is asked for what it lets through. If that is all keys up to a query's own, or the last
of these, and no token is padding, no mask is made: `attention_mask` is then a description, [batch, 1, 1 + window, 1] in
int32, with the number of keys up to the last query's own as its values and a window of 0 for none. Other masks are made
as for PyTorch's attention, which also gets what kernels do not take."""

import functools
import logging
import sys
import types
from typing import Any, Callable, Dict, Optional, Set, Tuple

import torch
from torch import Tensor

from .. import _fallbacks
from . import _modules as modules
from . import ops as kw
from .ops import plain

NAME = "kernwright"
_log = logging.getLogger("kernwright")
_said: Set[Tuple[str, str]] = set()
# Arguments that attention's own forward in PyTorch does not read.
_SILENT = ("cache_position", "layer_idx", "output_router_logits", "position_ids", "sliding_window", "use_cache")


class _Seen:
    """The keys that a mask function lets through: those up to a query's own if `causal`, and of these the last
    `window`, if not 0."""
    device = None

    def __init__(self, causal: bool, window: int) -> None:
        self.causal, self.window = causal, window

    def to(self, _: Any) -> "_Seen":
        return self

    def __and__(self, other: "_Seen") -> "_Seen":
        windows = [part.window for part in (self, other) if part.window]
        return _Seen(self.causal or other.causal, min(windows) if windows else 0)


class _Query:
    """Stands in for the index of a query, less a number, in a call of a mask function."""

    def __init__(self, less: int = 0) -> None:
        self.less = less

    def new_ones(self, *_: Any, **__: Any) -> _Seen:
        return _Seen(False, 0)

    def __sub__(self, number: int) -> "_Query":
        return _Query(self.less + number)


class _Key:
    """Stands in for the index of a key, which a mask function may compare with the query's."""

    def __le__(self, query: Any) -> Any:
        return _Seen(True, 0) if isinstance(query, _Query) and query.less == 0 else NotImplemented

    def __sub__(self, _: Any) -> Any:
        raise TypeError("an index that is used in another way")

    def __gt__(self, query: Any) -> Any:
        return _Seen(False, query.less) if isinstance(query, _Query) and query.less > 0 else NotImplemented


def _window_of(mask_function: Callable[..., Any]) -> Optional[int]:
    """Returns the window that a mask function is, 0 for all keys up to a query's own; None for another
    function."""
    try:
        seen = mask_function(0, 0, _Query(), _Key())
        return seen.window if isinstance(seen, _Seen) and seen.causal else None
    except Exception:  # it does something else with its indices
        return None


def _is_padded(mask: Any, last: Any) -> bool:
    """Returns true if a mask [batch, tokens] of the tokens that are no padding may hide one of the first `last`.
    Looks at it, and so waits for the GPU, as Transformers does for PyTorch's attention."""
    if mask is None:
        return False
    if (not isinstance(mask, Tensor) or mask.dim() != 2 or torch.compiler.is_compiling() or modules.is_capturing(mask)
            or not modules.nobody_watches(mask)):
        return True
    return mask.shape[-1] < int(last) or not bool(mask[:, :int(last)].all())


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
         mask_function: Any = None, attention_mask: Optional[Tensor] = None, **more: Any) -> Optional[Tensor]:
    """Transformers' mask for `attention`: a description if it is one, else PyTorch's."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    # Masks of more than one query that may not be left out are combined with others.
    plain_one = more.get("allow_is_causal_skip", True) or (q_length == 1 and kv_length > 1)
    window = _window_of(function) if plain_one and not more.get("use_vmap") else None
    if window is None or _is_padded(attention_mask, q_offset + q_length):
        return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                         kv_offset=kv_offset, mask_function=function, attention_mask=attention_mask, **more)
    last = q_offset - kv_offset + q_length
    if not isinstance(last, Tensor) and last == kv_length and q_length in (1, kv_length) and not 0 < window < kv_length:
        return None
    if not isinstance(last, Tensor):
        last = torch.full((), last, dtype=torch.int32, device=more.get("device", "cpu"))
    return _lengths(last, batch_size).view(batch_size, 1, 1, 1).expand(batch_size, 1, 1 + window, 1)


@torch.library.custom_op("kernwright::lengths", mutates_args=())
def _lengths(last: Tensor, batch: int) -> Tensor:
    """Returns the number `last` for each sequence. It is an operator, which a compiler calls once. Inductor would write
    what it can look into anew for each layer's attention."""
    return last.reshape(1).to(torch.int32).expand(batch).clone()


@_lengths.register_fake
def _(last: Tensor, batch: int) -> Tensor:
    return torch.empty(batch, dtype=torch.int32, device=last.device)


@torch.compiler.assume_constant_result
def _is_known(kind: type, groups: int, capped: bool, sunk: bool) -> bool:
    """Returns true if the attention of a module's file computes softmax(q @ k.T) @ v for grouped heads, with a cap
    and with sinks if these are given. It may read nothing else of the module."""
    return _computes_attention(_eager_of(kind), groups, capped, sunk)


def _eager_of(kind: type) -> Any:
    """Returns the attention in plain PyTorch of the file that has the module's class, None if it has none."""
    return getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)


@functools.lru_cache(maxsize=None)
def _computes_attention(eager: Any, groups: int, capped: bool, sunk: bool) -> bool:
    generator = torch.Generator("cpu").manual_seed(1)
    q, k, v = (torch.randn(1, heads, 3, 8, generator=generator, device="cpu") for heads in (2 * groups, 2, 2))
    sinks = torch.randn(2 * groups, generator=generator, device="cpu") if sunk else None
    named = {**({"softcap": 2.0} if capped else {}), **({"s_aux": sinks} if sunk else {})}
    module = types.SimpleNamespace(num_key_value_groups=groups, head_dim=8, training=False,
                                   **({"sinks": sinks} if sunk else {}))
    try:
        result = eager(module, q, k, v, None, scaling=0.3, dropout=0.0, **named)[0]
    except Exception:  # it reads other members
        return False
    expected = plain.attention(q, k, v, sinks, scale=0.3, softcap=named.get("softcap"))
    return result.shape == (1, 3, 2 * groups, 8) and torch.allclose(result, expected.transpose(1, 2), atol=1e-4)


def _why_left(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool,
              softcap: Any, sinks: Any, more: Dict[str, Any]) -> Optional[str]:
    """Returns the reason why a call is PyTorch's; None if a kernel may compute it."""
    if not modules.fits(query, key, value) or torch.is_grad_enabled() and sinks is not None and sinks.requires_grad:
        return "its tensors are no bf16 or fp16 on one GPU, or need a gradient"
    if dropout != 0:
        return "it drops out"
    if not modules.asks_no_more(more, _SILENT):
        return f"one of its arguments {', '.join(sorted({*more} - {*_SILENT}))} is not understood"
    groups = query.shape[1] // key.shape[1]
    if groups * key.shape[1] != query.shape[1] or getattr(module, "num_key_value_groups", 1) != groups:
        return "its heads are grouped in another way"
    if mask is not None and not modules.is_description(mask):
        return "its mask is not known to be causal or a window"
    if mask is None and causal and query.shape[2] > 1 and query.shape[2] != key.shape[2]:
        return "it has other numbers of queries than of keys, and no mask"
    if not _is_known(modules.original(module), groups, softcap is not None, sinks is not None):
        return "its model's attention computes something else"
    return None


def _alike(*parts: Tensor) -> Tuple[Tensor, ...]:
    """Returns tensors [batch, heads, tokens, head_dim] with the same order of strides."""
    if all(part.transpose(1, 2).is_contiguous() for part in parts):
        return parts
    return tuple(part.contiguous() for part in parts)


def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
              dropout: float = 0.0, scaling: Optional[float] = None, is_causal: Optional[bool] = None,
              softcap: Optional[float] = None, s_aux: Optional[Tensor] = None,
              **more: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """Transformers' attention over query [batch, heads, tokens, head_dim], by a kernel if the call is known to be one
    that a kernel takes. Result: [batch, tokens, heads, head_dim], and None for the weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    reason = _why_left(module, query, key, value, attention_mask, dropout, causal, softcap, s_aux, more)
    if reason is not None:
        return _by_torch(reason, module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                         is_causal=causal, softcap=softcap, s_aux=s_aux, **more)
    lengths, window = None, 0
    if attention_mask is not None:
        lengths = attention_mask[:, 0, 0, 0].contiguous()
        window, causal = attention_mask.shape[2] - 1, True
    query, key, value = _alike(query, key, value)
    result = kw.attention(query, key, value, causal=causal, scale=scaling, window=window or None, softcap=softcap,
                          sinks=None if s_aux is None else s_aux.float(), kv_lengths=lengths)
    return result.transpose(1, 2).contiguous(), None


def _by_torch(reason: str, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], *,
              is_causal: bool, softcap: Optional[float], s_aux: Optional[Tensor],
              **named: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """Calls PyTorch's attention, or the one of the module's file if PyTorch has no such argument."""
    if not torch.compiler.is_compiling():
        _fallbacks.counts["attention"] += 1
        kind = type(module).__name__
        if (kind, reason) not in _said:
            _said.add((kind, reason))
            _log.warning("attention of %s is left to PyTorch: %s", kind, reason)
    queries, keys = query.shape[2], key.shape[2]
    if modules.is_description(mask):
        mask = modules.described(mask, queries, keys)
    if softcap is None and s_aux is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
        return sdpa_attention_forward(module, query, key, value, mask, is_causal=is_causal, **named)
    if mask is None and is_causal and queries > 1:
        own = torch.arange(queries, device=query.device)[:, None]
        mask = (torch.arange(keys, device=query.device) <= own)[None, None]
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    given = {name: value for name, value in (("softcap", softcap), ("s_aux", s_aux)) if value is not None}
    return _eager_of(modules.original(module))(module, query, key, value, mask, **given, **named)


def use_in_transformers() -> None:
    """Registers kernwright's attention in Transformers, under the name "kernwright". Models use it
    if they are asked to, by `model.set_attn_implementation("kernwright")`, until they are given
    another. Errors: ImportError without Transformers."""
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
