"""The replacement of a whole model: decides of a call whether it is a decode step or a prefill that its
layers know how to fuse."""

from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from .._kernwright import Error
from . import _modules as modules
from ._decoder import DecodeStep, Prefill, layer_parts
from ._modules import (DTYPES, IMPLEMENTATIONS, OF_MODELS, Front, asks_no_more, bind, cache_of, described, holds,
                       is_capturing, is_description, nobody_watches, note_refusal, weight_of)

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
        if torch.compiler.is_compiling():
            result = self._kernwright_own((), call)
        else:
            try:
                result = self._kernwright_own((), call)
            except Error as error:  # the own forward writes the same places of the cache
                if not error.is_refusal:
                    raise
                note_refusal(self, error)
                return NotImplemented
        torch._foreach_add_([layer.cumulative_length for layer in cache.layers], 1)
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
        if config._attn_implementation not in IMPLEMENTATIONS:
            return None
        if mask is None and places is None and begins(cache):
            return Prefill([], True)
        if begins(cache) or self._kernwright_is_empty(cache):
            return Prefill([], False)
        return None

    def _kernwright_is_empty(self, cache: Any) -> bool:
        """Returns true if a static cache is empty, which Hugging Face looks at too."""
        if type(cache) is not self._kernwright.caches[0] or torch.compiler.is_compiling():
            return False
        lengths = [layer.cumulative_length for layer in cache.layers]
        return not is_capturing(self.norm.weight) and all(int(length) == 0 for length in lengths)

    def _kernwright_decode_step(self, batch: int, layers: Any) -> DecodeStep:
        """Writes angles of the new token at the place that the kernel reads. If the cache is full,
        that fails before anything is written to the cache."""
        rotary, length, keys = self.rotary_emb, layers[0].cumulative_length, layers[0].keys
        angles = rotary.inv_freq.float() * length
        half = angles.shape[-1]
        tables = torch.empty((2, keys.shape[2], half), dtype=torch.float32, device=keys.device)
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
        tables.index_copy_(1, length.view(1), row)
        return DecodeStep(lengths, tables[0], tables[1])

    def _kernwright_decodes(self, given: Tensor, mask: Any, position_ids: Optional[Tensor],
                            cache: Any) -> bool:
        of_cache, of_layer = self._kernwright.caches
        if type(cache) is not of_cache or getattr(cache, "offloading", False):
            return False
        layers, weight, first = cache.layers, self.norm.weight, None
        if len(layers) != len(self.layers):
            return False
        for layer in layers:
            if type(layer) is not of_layer or not layer.is_initialized:
                return False
            keys, values = layer.keys, layer.values
            if first is None:
                first = keys.shape
            if (keys.dtype is not weight.dtype or keys.device != weight.device
                    or keys.shape != first or values.shape != first
                    or not keys.is_contiguous() or not values.is_contiguous()
                    or layer.cumulative_length.device != weight.device):
                return False
        if first is None or first[0] != given.shape[0]:
            return False
        # Layers that were called alone may be at other places.
        if not torch.compiler.is_compiling() and len(
                {layer.cumulative_length._version for layer in layers
                 if not layer.cumulative_length.is_inference()}) > 1:
            return False
        if self._kernwright.unpadded or (mask is None and position_ids is None):
            return True
        return self._kernwright_is_unpadded(mask, position_ids, layers[0].cumulative_length, first[2])

    def _kernwright_is_unpadded(self, mask: Any, position_ids: Optional[Tensor], length: Tensor,
                                keys: int) -> bool:
        """Looks at the mask and positions, and so waits for the GPU. Returns False if waiting is
        not possible."""
        if torch.compiler.is_compiling() or is_capturing(length):
            return False
        if isinstance(mask, dict):  # as generate() prepares them
            if len(mask) != 1:
                return False
            mask = next(iter(mask.values()))
        if is_description(mask):
            mask = described(mask, 1, keys)
        right = torch.ones((), dtype=torch.bool, device=length.device)
        if mask is not None:
            if not isinstance(mask, Tensor) or mask.dim() not in (2, 4):
                return False
            places = torch.arange(mask.shape[-1], device=length.device)
            right = length < mask.shape[-1]
            if mask.dim() == 2 or mask.dtype is torch.bool:
                seen = unseen = mask.to(torch.bool)
                unseen = ~seen
            else:
                seen, unseen = mask == 0, mask <= torch.finfo(mask.dtype).min / 2
            # A mask of two dimensions says nothing about keys behind the new token.
            right = right & torch.where(places <= length, seen, unseen | (mask.dim() == 2)).all()
        if position_ids is not None:
            right = right & (position_ids == length).all()
        return bool(right)


def begins(cache: Any) -> bool:
    """Returns true if there is no cache, or a growing one with nothing in it."""
    return cache is None or (type(cache).__name__ == "DynamicCache" and not any(
        type(layer).__name__ != "DynamicLayer" or layer.is_initialized for layer in cache.layers))


def model_parts(model: nn.Module) -> Dict[str, nn.Module]:
    parts = {"layers": model.layers, "rotary_emb": model.rotary_emb}
    for i, layer in enumerate(model.layers):
        parts[f"layers.{i}"] = layer
        parts.update({f"layers.{i}.{name}": part for name, part in layer_parts(layer).items()})
    return parts
