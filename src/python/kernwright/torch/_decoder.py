"""The replacements of decoder layers, of their feed-forward layers, and of experts."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from .._arrays import make_error
from .._kernwright import Error
from . import ops as kw
from ._modules import (IMPLEMENTATIONS, OF_LAYERS, Front, Packed, asks_no_more, bind, cache_of, epsilon, holds,
                       is_description, note_refusal, only_argument, takes, weight_of)

MOST_NORMALISED_ROWS = 16  # in a product that normalises its rows itself


class Place(NamedTuple):
    """The place of a new token in caches of one size: keys of each sequence with the new one, and
    tables of angles in which only the row of the new token is written."""
    kv_lengths: Tensor
    cos: Tensor
    sin: Tensor


class DecodeStep(NamedTuple):
    """The data that all layers of one step share."""
    place: Place
    in_window: Optional[Place]  # of layers whose caches hold a window
    sinks: Optional[Tensor]     # [layers, heads] in fp32


class Prefill(NamedTuple):
    """The data that all layers of one call share, whose sequences begin with its tokens: their
    angles as kernels take them, once a layer has converted them, and whether nothing is masked.
    Else the mask says that."""
    angles: List[Tensor]
    unmasked: bool


def expect_dtype(x: Tensor, *weights: Tensor) -> None:
    """Refuses weights of other dtypes. The module's own forward then refuses them in its way."""
    for weight in weights:
        if weight.dtype is not x.dtype:
            raise make_error(f"a weight is {weight.dtype}, and {x.dtype} expected as its input")


def normalises(x: Tensor) -> bool:
    """Returns true if a product normalises the rows of x itself."""
    return x.dtype is torch.bfloat16 and x.shape[0] * x.shape[1] <= MOST_NORMALISED_ROWS


def sinks_of(attention: nn.Module) -> Optional[Tensor]:
    return getattr(attention, "sinks", None)


def window_of(attention: nn.Module) -> Optional[int]:
    """Returns how many keys a query sees, its own and those before it; None for all."""
    return getattr(attention, "sliding_window", None)


def is_causal_alone(attention: nn.Module) -> bool:
    """Returns true if its own forward is causal where Transformers makes no mask."""
    name: str = attention.config._attn_implementation
    return name in IMPLEMENTATIONS if sinks_of(attention) is None else name == "kernwright"


def head_norms(attention: nn.Module) -> Tuple[nn.Module, ...]:
    if getattr(attention, "q_norm", None) is None:
        return ()
    return attention.q_norm, attention.k_norm


class SwiGLU(Packed):
    def _kernwright_members(self) -> List[List[nn.Parameter]]:
        return [[self.gate_proj.weight, self.up_proj.weight]]

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        x = only_argument(given, named)
        if takes(x, weight_of(self.gate_proj)) and holds(self):
            return self.down_proj(self._kernwright_inner(x))
        return NotImplemented

    def _kernwright_inner(self, x: Tensor, norm_weight: Optional[Tensor] = None,
                          eps: float = 1e-6) -> Tensor:
        weights = self.gate_proj.weight, self.up_proj.weight
        expect_dtype(x, *weights)
        return kw.gated_linear(x, weights, norm_weight, activation=self._kernwright_activation,
                               eps=eps)


class Experts(Front):
    """The experts of a mixture, SwiGLUs with weights [experts, out, in], as Transformers'
    ExpertsInterface has them."""
    gate_up_proj: Tensor
    down_proj: Tensor

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        call = bind(self._kernwright.names, given, named)
        if call is None or len(call) != 3 or set(call) != set(self._kernwright.names):
            return NotImplemented
        x, index, shares = (call[name] for name in self._kernwright.names)
        if (takes(x, self.gate_up_proj) and takes(x, self.down_proj) and x.dim() == 2
                and holds(self) and not (torch.is_grad_enabled() and shares.requires_grad)):
            return self._kernwright_mix(x, index, shares)
        return NotImplemented

    def _kernwright_mix(self, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Orders rows by expert for two grouped products, and adds them up. Nothing waits for the
        GPU. An expert that is not here, as expert parallelism names them, gives nothing."""
        ends, row_of, place = kw.order_experts(top_k_index.to(torch.int32).contiguous(),
                                               self.down_proj.shape[0])
        inner = kw.grouped_matmul(x.contiguous(), self.gate_up_proj.transpose(1, 2), ends,
                                  row_of=row_of, gated=True, activation=self._kernwright_activation)
        rows = kw.grouped_matmul(inner, self.down_proj.transpose(1, 2), ends)
        return kw.combine_experts(rows, place, top_k_weights.float().contiguous())


class OpenedExperts(Experts):
    """Experts with biases, weights [experts, in, out], or gates that take turns with what they open, as gpt-oss's."""

    def _kernwright_mix(self, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        gate_up, down = (weight if self.is_transposed else weight.transpose(1, 2)
                         for weight in (self.gate_up_proj, self.down_proj))
        biases = (self.gate_up_proj_bias, self.down_proj_bias) if self.has_bias else (None, None)
        named = dict(limit=float(self.limit), gate_alpha=float(self.alpha)) if (
            self._kernwright_activation == "swiglu_oai") else {}
        ends, row_of, place = kw.order_experts(top_k_index.to(torch.int32).contiguous(), down.shape[0])
        inner = kw.grouped_matmul(x.contiguous(), gate_up, ends, bias=biases[0], row_of=row_of, gated=True,
                                  interleaved=not self.is_concatenated, activation=self._kernwright_activation, **named)
        rows = kw.grouped_matmul(inner, down, ends, bias=biases[1])
        return kw.combine_experts(rows, place, top_k_weights.float().contiguous())


class DecoderLayer(Packed):
    def _kernwright_members(self) -> List[List[nn.Parameter]]:
        attention = self.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        members = [[part.weight for part in parts]]
        if all(part.bias is not None for part in parts):
            members.append([part.bias for part in parts])
        return members

    def _kernwright_may_retry(self, named: Dict[str, Any]) -> bool:
        return not isinstance(named.get("kernwright_step"), DecodeStep)  # the whole model must

    def _kernwright_own(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        step = named.pop("kernwright_step", None)
        if step is not None and step.unmasked:  # the mask that it got means none
            named["attention_mask"] = None
        return super()._kernwright_own(given, named)

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        call = bind(self._kernwright.names, given, named)
        if call is None:
            return NotImplemented
        step = call.pop("kernwright_step", None)
        if isinstance(step, DecodeStep):
            return self._kernwright_decode(call, step)
        if step is None or not step.unmasked:
            if not self._kernwright_prefills(call, step):
                return NotImplemented
        elif not isinstance(call.get("hidden_states"), Tensor):
            return NotImplemented
        return self._kernwright_prefill(call, [] if step is None else step.angles)

    def _kernwright_prefills(self, call: Dict[str, Any], step: Optional[Prefill]) -> bool:
        """Returns true if each sequence begins with these tokens, and the call asks for nothing
        that a fused layer does not provide. Without a mask PyTorch's attention is then causal."""
        x, angles, attention = call.get("hidden_states"), call.get("position_embeddings"), (
            self.self_attn)
        return (takes(x, weight_of(attention.o_proj)) and x.dim() == 3 and x.shape[1] > 1
                and _hides_no_more(call.get("attention_mask"), window_of(attention), x.shape[1])
                and not torch.is_grad_enabled()
                and isinstance(angles, tuple) and len(angles) == 2
                and not self.training and asks_no_more(call, OF_LAYERS)
                and is_causal_alone(attention)
                and not getattr(attention.config, "output_attentions", False)
                and step is not None and holds(self))  # the model knows whose angles they are

    def _kernwright_qkv_of(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        norm, attention = self.input_layernorm, self.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        weights = parts[0].weight, parts[1].weight, parts[2].weight
        biases = None
        if parts[0].bias is not None:
            biases = parts[0].bias, parts[1].bias, parts[2].bias
        expect_dtype(x, norm.weight, *weights, *(biases or ()))
        head_dim = attention.head_dim
        kv_heads = weights[1].shape[0] // head_dim
        if normalises(x):
            return kw.qkv_linear(x, weights, biases, norm.weight, kv_heads=kv_heads,
                                 head_dim=head_dim, eps=epsilon(norm))
        return kw.qkv_linear(kw.rms_norm(x, norm.weight, epsilon(norm)), weights, biases,
                             kv_heads=kv_heads, head_dim=head_dim)

    def _kernwright_rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Computes the part behind attention."""
        mlp, norm, o = self.mlp, self.post_attention_layernorm, self.self_attn.o_proj
        expect_dtype(x, o.weight, norm.weight)
        x = kw.linear(attended, o.weight, o.bias, residual=x)
        if not isinstance(mlp, SwiGLU):  # it is a router with experts
            return x + rows_of(mlp(kw.rms_norm(x, norm.weight, epsilon(norm))))
        if normalises(x):
            inner = mlp._kernwright_inner(x, norm.weight, epsilon(norm))
        else:
            inner = mlp._kernwright_inner(kw.rms_norm(x, norm.weight, epsilon(norm)))
        expect_dtype(inner, mlp.down_proj.weight)
        return kw.linear(inner, mlp.down_proj.weight, mlp.down_proj.bias, residual=x)

    def _kernwright_decode(self, call: Dict[str, Any], step: DecodeStep) -> Tensor:
        """Computes one token of each sequence: five kernels, seven if a kernel of its own
        normalises rows. Before a router with experts, four or five."""
        x, attention = call["hidden_states"], self.self_attn
        q, k, v = self._kernwright_qkv_of(x)
        own = cache_of(call).layers[attention.layer_idx]
        norms, place = head_norms(attention), step.in_window if window_of(attention) else step.place
        assert place is not None
        attended = kw.append_attention(
            q, own.keys, own.values, k, v, *place, *[norm.weight for norm in norms],
            sinks=None if step.sinks is None else step.sinks[attention.layer_idx],
            scale=attention.scaling, eps=epsilon(norms[0]) if norms else 1e-6)
        return self._kernwright_rest(x, attended.flatten(-2))

    def _kernwright_angles(self, x: Tensor, angles: Any) -> List[Tensor]:
        """Returns Hugging Face's angles [batch or 1, tokens, head_dim] as the kernel takes them."""
        batch, tokens, _ = x.shape
        half = self.self_attn.head_dim // 2
        different = angles[0].shape[0] if head_norms(self.self_attn) else batch
        return [table[..., :half].float().expand(different, tokens, half).reshape(-1, half)
                for table in angles]

    def _kernwright_prefill(self, call: Dict[str, Any], angles: List[Tensor]) -> Tensor:
        x, attention, cache = call["hidden_states"], self.self_attn, cache_of(call)
        batch, tokens, _ = x.shape
        if not angles:  # no earlier layer has converted them
            angles += self._kernwright_angles(x, call["position_embeddings"])
        cos, sin = angles
        q, k, v = self._kernwright_qkv_of(x)
        norms = head_norms(attention)
        if norms and cos.shape[0] == tokens:
            q, k, v = kw.norm_rope(q, k, v, *[norm.weight for norm in norms], cos, sin,
                                   eps=epsilon(norms[0]))
        else:
            if norms:
                q, k = (kw.rms_norm(part, norm.weight, epsilon(norm))
                        for part, norm in zip((q, k), norms))
            q, k = kw.rope(q, k, cos, sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        window, sinks = window_of(attention), sinks_of(attention)
        attended = kw.attention(q, k, v, causal=True, scale=attention.scaling,
                                window=window if window and window < tokens else None,
                                sinks=None if sinks is None else sinks.float())
        attended = attended.transpose(1, 2).reshape(batch, tokens, -1)
        if cache is None:
            return self._kernwright_rest(x, attended)
        cache.update(k, v, attention.layer_idx)
        try:
            return self._kernwright_rest(x, attended)
        except Error as error:  # the cache is written, so that the layer cannot begin again
            if not error.is_refusal:
                raise
            note_refusal(self, error)
            x = x + attention.o_proj(attended)
            return x + rows_of(self.mlp(self.post_attention_layernorm(x)))


def rows_of(mixed: Any) -> Tensor:
    """Returns the rows that a feed-forward layer computes. That of gpt-oss returns the shares of experts beside."""
    rows: Tensor = mixed[0] if isinstance(mixed, tuple) else mixed
    return rows


def _hides_no_more(mask: Any, window: Optional[int], tokens: int) -> bool:
    """Returns true if what Transformers made for sequences that begin with these tokens hides nothing but what is
    behind a query, and what is in front of the window."""
    if mask is None:
        return not window or tokens <= window
    return is_description(mask) and mask.shape[2] - 1 == (window or 0)


# The modules around whose forwards each one reads.

def swiglu_parts(mlp: nn.Module) -> Dict[str, nn.Module]:
    parts = {"gate_proj": mlp.gate_proj, "up_proj": mlp.up_proj}
    if isinstance(mlp.act_fn, nn.Module):
        parts["act_fn"] = mlp.act_fn
    return parts


def experts_parts(experts: nn.Module) -> Dict[str, nn.Module]:
    return {"act_fn": experts.act_fn} if isinstance(getattr(experts, "act_fn", None), nn.Module) else {}


def layer_parts(layer: nn.Module) -> Dict[str, nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    parts = {"self_attn": attention, "input_layernorm": layer.input_layernorm,
             "post_attention_layernorm": layer.post_attention_layernorm}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        parts[f"self_attn.{name}"] = getattr(attention, name)
    for name, norm in zip(("q_norm", "k_norm"), head_norms(attention)):
        parts[f"self_attn.{name}"] = norm
    if isinstance(mlp, SwiGLU):
        parts.update({"mlp": mlp, "mlp.down_proj": mlp.down_proj})
        parts.update({f"mlp.{name}": part for name, part in swiglu_parts(mlp).items()})
    return parts
