"""The replacement of a whole model: decides of a call whether it is a decode step or a prefill that its
layers know how to fuse."""

import weakref
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from .._kernwright import Error
from . import _modules as modules
from ._decoder import DecodeStep, Place, Prefill, is_causal_alone, layer_parts, sinks_of, window_of
from ._modules import (DTYPES, OF_MODELS, Front, asks_no_more, bind, cache_of, described, holds, is_capturing,
                       is_description, nobody_watches, note_refusal, weight_of)

_PLAIN = (Tensor, nn.Parameter)


class RotaryEmbedding(nn.Module):
    """Returns no angles if no positions are asked for."""

    def forward(self, *given: Any, **named: Any) -> Any:
        places = named.get("position_ids", given[-1] if given else None)
        if isinstance(places, Tensor) and places.numel() == 0:
            return None, None
        return super().forward(*given, **named)


class Model(Front):
    """Decides whether a call is a decode step or a prefill that the layers know how to fuse. It
    decides once, before Hugging Face makes a mask: in a capture and for a compiler it always makes
    one."""

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        call = bind(self._kernwright.names, given, named)
        if call is None:
            return NotImplemented
        step, cache = self._kernwright_step(call), cache_of(call)
        if step is None:
            return NotImplemented
        call["kernwright_step"] = step
        device = self.norm.weight.device
        if isinstance(step, DecodeStep) or step.unmasked:
            # A mask of four dimensions is handed on as it is, so none is made.
            call["attention_mask"] = torch.empty((1, 1, 1, 0), dtype=torch.bool, device=device)
        if isinstance(step, DecodeStep):
            call["position_ids"] = torch.empty((1, 0), dtype=torch.int64, device=device)
        if not isinstance(step, DecodeStep):
            return self._kernwright_own((), call)
        full = [layer for layer in cache.layers if _is_full(layer)]
        moved = _move(full)
        if torch.compiler.is_compiling():
            result = self._kernwright_own((), call)
        else:
            try:
                result = self._kernwright_own((), call)
            except Error as error:  # the own forward writes the same places of the cache
                if not error.is_refusal:
                    raise
                note_refusal(self, error)
                if full:
                    torch._foreach_copy_(_windows_of(full), moved)
                return NotImplemented
        torch._foreach_add_([layer.cumulative_length for layer in cache.layers if not _is_full(layer)], 1)
        windows = [layer for layer in cache.layers if _is_window(layer)]
        for layer in windows:
            layer.cumulative_length_int += 1
        if windows and not torch.compiler.is_compiling():
            self._kernwright.counts = _counts_of(cache)
        return result

    def _kernwright_may_retry(self, named: Dict[str, Any]) -> bool:
        return False  # a layer may have written to a growing cache

    def _kernwright_step(self, call: Dict[str, Any]) -> Union[DecodeStep, Prefill, None]:
        ids, embeds = call.get("input_ids"), call.get("inputs_embeds")
        given, weight = ids if embeds is None else embeds, weight_of(self.norm)
        config = self.config
        if (type(given) not in _PLAIN or type(weight) not in _PLAIN or given.dim() < 2
                or (ids is None) == (embeds is None) or torch.is_grad_enabled() or self.training
                or not asks_no_more(call, OF_MODELS)
                or getattr(config, "output_attentions", False)
                or getattr(config, "output_hidden_states", False)):
            return None
        if (weight.dtype not in DTYPES or not modules.on_gpu(weight) or given.device != weight.device
                or given.numel() == 0 or not nobody_watches(weight)
                or (embeds is not None and (embeds.dtype is not weight.dtype
                                            or not embeds.is_contiguous()))
                or not holds(self)):
            return None
        mask, places, cache = call.get("attention_mask"), call.get("position_ids"), cache_of(call)
        if given.shape[1] == 1:
            if self._kernwright_decodes(given, mask, places, cache):
                return self._kernwright_decode_step(given.shape[0], cache.layers)
            return None
        if not is_causal_alone(self.layers[0].self_attn):
            return None
        if mask is None and places is None and begins(cache) and not self._kernwright_has_windows():
            return Prefill([], True)
        if begins(cache) or self._kernwright_is_empty(cache):
            return Prefill([], False)
        return None

    def _kernwright_has_windows(self) -> bool:
        return any(window_of(layer.self_attn) for layer in self.layers)

    def _kernwright_is_empty(self, cache: Any) -> bool:
        """Returns true if a static cache is empty, which Hugging Face looks at too."""
        if type(cache) is not self._kernwright.caches[0] or torch.compiler.is_compiling():
            return False
        return not is_capturing(self.norm.weight) and all(
            int(layer.cumulative_length) == 0 and getattr(layer, "cumulative_length_int", 0) == 0
            for layer in cache.layers)

    def _kernwright_decode_step(self, batch: int, layers: Any) -> DecodeStep:
        """Writes angles of the new token at the places that kernels read. If the cache is full,
        that fails before anything is written to the cache."""
        whole = next(layer for layer in layers if not _is_window(layer))
        window = next((layer for layer in layers if _is_window(layer)), None)
        rotary, length, keys = self.rotary_emb, whole.cumulative_length, whole.keys
        angles = rotary.inv_freq.float() * length
        half = angles.shape[-1]
        if torch.compiler.is_compiling():
            row = torch.stack((angles.cos(), angles.sin())).unsqueeze(1)
            lengths = (length + 1).to(torch.int32).expand(batch).contiguous()
        else:  # a step waits for each of these kernels, so there are as few as possible
            row = torch.empty((2, 1, half), dtype=torch.float32, device=keys.device)
            torch.cos(angles, out=row[0, 0])
            torch.sin(angles, out=row[1, 0])
            lengths = torch.empty(batch, dtype=torch.int32, device=keys.device)
            torch.add(length.expand(batch), 1, out=lengths)
        if rotary.attention_scaling != 1:
            row = row * rotary.attention_scaling

        def place(at: Tensor, of: Any, known: Tensor) -> Place:
            tables = torch.empty((2, of.keys.shape[2], half), dtype=torch.float32, device=keys.device)
            tables.index_copy_(1, at, row)
            return Place(known, tables[0], tables[1])

        first, in_window = place(length.view(1), whole, lengths), None
        if window is not None and _is_full(window):  # its keys and values were moved to make room
            last = window.keys.shape[2]
            in_window = place(torch.full((1,), last - 1, device=keys.device), window,
                              torch.full((batch,), last, dtype=torch.int32, device=keys.device))
        elif window is not None:
            in_window = place(length.view(1), window, lengths)
        sinks = [own for own in (sinks_of(layer.self_attn) for layer in self.layers) if own is not None]
        return DecodeStep(first, in_window, torch.stack(sinks).float() if sinks else None)

    def _kernwright_decodes(self, given: Tensor, mask: Any, position_ids: Optional[Tensor],
                            cache: Any) -> bool:
        of_cache, of_layer, of_windows = self._kernwright.caches
        if type(cache) is not of_cache or getattr(cache, "offloading", False):
            return False
        layers, weight = cache.layers, self.norm.weight
        shapes: Dict[bool, Any] = {}  # of caches without a window and with one
        if len(layers) != len(self.layers):
            return False
        for layer, own in zip(layers, self.layers):
            has_window = bool(window_of(own.self_attn))
            if type(layer) is not (of_windows if has_window else of_layer) or not layer.is_initialized:
                return False
            keys, values = layer.keys, layer.values
            shape = shapes.setdefault(has_window, keys.shape)
            if (keys.dtype is not weight.dtype or keys.device != weight.device
                    or keys.shape != shape or values.shape != shape
                    or not keys.is_contiguous() or not values.is_contiguous()
                    or layer.cumulative_length.device != weight.device):
                return False
        if False not in shapes or any(shape[0] != given.shape[0] for shape in shapes.values()):
            return False
        # Layers that were called alone may be at other places.
        whole = [layer for layer in layers if not _is_window(layer)]
        if not torch.compiler.is_compiling() and len(
                {layer.cumulative_length._version for layer in whole
                 if not layer.cumulative_length.is_inference()}) > 1:
            return False
        if len(whole) < len(layers) and not self._kernwright_counts_alike(cache):
            return False
        if self._kernwright.unpadded or (mask is None and position_ids is None):
            return True
        return self._kernwright_is_unpadded(mask, position_ids, whole[0].cumulative_length, shapes)

    def _kernwright_counts_alike(self, cache: Any) -> bool:
        """Returns true if all layers have seen as many tokens. Those with windows count on the host, so this waits for
        the GPU, unless the last to change the lengths was a step of ours. Returns False if waiting is not possible."""
        if torch.compiler.is_compiling() or self._kernwright.counts == _counts_of(cache):
            return True
        if is_capturing(cache.layers[0].keys):
            return False
        counts = {layer.cumulative_length_int for layer in cache.layers if _is_window(layer)}
        counts |= {int(layer.cumulative_length) for layer in cache.layers if not _is_full(layer)}
        return len(counts) == 1

    def _kernwright_is_unpadded(self, mask: Any, position_ids: Optional[Tensor], length: Tensor,
                                shapes: Dict[bool, Any]) -> bool:
        """Looks at the masks and positions, and so waits for the GPU. Returns False if waiting is
        not possible."""
        if torch.compiler.is_compiling() or is_capturing(length):
            return False
        masks = {"full_attention": mask}
        if isinstance(mask, dict):  # as generate() prepares them
            masks = mask if True in shapes else {"full_attention": value for value in mask.values()}
            if len(mask) != len(shapes) or not set(masks) <= {"full_attention", "sliding_attention"}:
                return False
        elif True in shapes and mask is not None and (not isinstance(mask, Tensor) or mask.dim() != 2):
            return False  # one mask for caches of two sizes
        right = torch.ones((), dtype=torch.bool, device=length.device)
        for kind, each in masks.items():
            has_window = kind == "sliding_attention"
            if is_description(each):
                each = described(each, 1, shapes[has_window][2])
            if each is None:
                continue
            if not isinstance(each, Tensor) or each.dim() not in (2, 4):
                return False
            places = torch.arange(each.shape[-1], device=length.device)
            last = length.clamp(max=each.shape[-1] - 1) if has_window else length
            right = right & (last < each.shape[-1])
            if each.dim() == 2 or each.dtype is torch.bool:
                seen = each.to(torch.bool)
                unseen = ~seen
            else:
                seen, unseen = each == 0, each <= torch.finfo(each.dtype).min / 2
            # A mask of two dimensions says nothing about keys behind the new token.
            right = right & torch.where(places <= last, seen, unseen | (each.dim() == 2)).all()
        if position_ids is not None:
            right = right & (position_ids == length).all()
        return bool(right)


def _is_window(layer: Any) -> bool:
    """Returns true for the part of a static cache that holds the last tokens of a layer with a window."""
    return hasattr(layer, "cumulative_length_int")


def _is_full(layer: Any) -> bool:
    """Returns true if each new token takes the place of the oldest one. Its length is then no longer counted on the
    device."""
    return _is_window(layer) and layer.cumulative_length_int >= layer.keys.shape[2]


def _counts_of(cache: Any) -> Any:
    """Returns what differs if somebody changed the number of tokens of a layer."""
    lengths = [layer.cumulative_length for layer in cache.layers]
    return (weakref.ref(cache), [-1 if length.is_inference() else length._version for length in lengths],
            [layer.cumulative_length_int for layer in cache.layers if _is_window(layer)])


def _windows_of(layers: List[Any]) -> List[Tensor]:
    return [part.view(-1) for layer in layers for part in (layer.keys, layer.values)]


def _move(layers: List[Any]) -> List[Tensor]:
    """Moves all tokens of full windows one place to the front, as Transformers does. Returns them as they were. The
    last place, which the new token gets, has that of the next head meanwhile."""
    if not layers:
        return []
    now, columns = _windows_of(layers), layers[0].keys.shape[3]
    before = torch._foreach_mul(now, 1)
    torch._foreach_copy_([part[:-columns] for part in now], [part[columns:] for part in before])
    return before


def begins(cache: Any) -> bool:
    """Returns true if there is no cache, or a growing one with nothing in it."""
    return cache is None or (type(cache).__name__ == "DynamicCache" and not any(
        type(layer).__name__ not in ("DynamicLayer", "DynamicSlidingWindowLayer") or layer.is_initialized
        for layer in cache.layers))


def model_parts(model: nn.Module) -> Dict[str, nn.Module]:
    parts = {"layers": model.layers, "rotary_emb": model.rotary_emb}
    for i, layer in enumerate(model.layers):
        parts[f"layers.{i}"] = layer
        parts.update({f"layers.{i}.{name}": part for name, part in layer_parts(layer).items()})
    return parts
