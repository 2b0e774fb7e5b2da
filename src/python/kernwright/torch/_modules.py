"""What takes the place of a model's modules: the forwards, the weights that lie together, and how a
module gets them and loses them again."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from . import ops as kw

MOST_NORMALISED_ROWS = 16  # of a product that normalises its rows itself
NAMES = {"qkv": "_kernwright_qkv", "bias": "_kernwright_qkv_bias",
         "gate_up": "_kernwright_gate_up"}


class DecodeStep(NamedTuple):
    """What all layers of one step share: keys of each sequence with the new one, and angles."""
    kv_lengths: Tensor
    cos: Tensor
    sin: Tensor


class PrefillStep(NamedTuple):
    """What all layers of one prefill share: angles of each token of each sequence, or of each token
    where heads are normalised and sequences do not differ."""
    cos: Tensor
    sin: Tensor


def on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def takes(x: Tensor, weight: Tensor) -> bool:
    """Whether a kernel computes on x and this weight, without a gradient."""
    return (x.dtype is weight.dtype and x.device == weight.device and on_gpu(x)
            and x.is_contiguous()
            and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)))


# What replaces modules. Each class is put in front of the class of the module that it replaces.

class Linear(nn.Module):
    weight: Tensor
    bias: Optional[Tensor]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, PyTorch's name
        if takes(input, self.weight):
            return kw.linear(input, self.weight, self.bias)
        return super().forward(input)


class RMSNorm(nn.Module):
    weight: Tensor

    def forward(self, hidden_states: Tensor) -> Tensor:
        if takes(hidden_states, self.weight):
            return kw.rms_norm(hidden_states, self.weight, epsilon(self))
        return super().forward(hidden_states)


class Packed(nn.Module):
    """A module that reads several parameters as one tensor, a buffer in whose memory they lie."""

    def _kernwright_packs(self) -> Dict[str, List[nn.Parameter]]:
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves or converts the module, and then packs again."""
        super()._apply(fn, recurse)
        packs_moved(self)
        return self

    def _kernwright_is_packed(self, name: str, first: Tensor) -> bool:
        """Whether the parameters still lie in the buffer. A compiler does not ask."""
        return torch.compiler.is_compiling() or (
            getattr(self, name).data_ptr() == first.data_ptr())


class SwiGLU(Packed):
    def _kernwright_packs(self) -> Dict[str, List[nn.Parameter]]:
        return {NAMES["gate_up"]: [self.gate_proj.weight, self.up_proj.weight]}

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj.weight
        if takes(x, gate) and self._kernwright_is_packed(NAMES["gate_up"], gate):
            return self.down_proj(kw.gated_linear(x, self._kernwright_gate_up,
                                                  activation=self._kernwright_activation))
        return super().forward(x)


class Experts(nn.Module):
    """The experts of a mixture, SwiGLUs with weights [experts, out, in], as Transformers'
    ExpertsInterface has them."""
    gate_up_proj: Tensor
    down_proj: Tensor

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        if (hidden_states.dim() == 2 and takes(hidden_states, self.gate_up_proj)
                and takes(hidden_states, self.down_proj)):
            return self._kernwright_mix(hidden_states, top_k_index, top_k_weights)
        return super().forward(hidden_states, top_k_index, top_k_weights)

    def _kernwright_mix(self, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Rows are sorted by expert for two grouped products, and put back. Nothing waits for the
        GPU. An expert that is not here, as expert parallelism names them, has no rows."""
        tokens, choices = top_k_index.shape
        experts, order = top_k_index.flatten().sort()
        here = torch.arange(self.down_proj.shape[0], dtype=experts.dtype, device=experts.device)
        ends = torch.searchsorted(experts, here, right=True, out_int32=True)
        rows = x[order // choices]
        inner = kw.grouped_matmul(rows, self.gate_up_proj.transpose(1, 2), ends, gated=True,
                                  activation=self._kernwright_activation)
        sorted_rows = kw.grouped_matmul(inner, self.down_proj.transpose(1, 2), ends,
                                        out=torch.zeros_like(rows))
        mixed = torch.empty_like(rows).index_copy_(0, order, sorted_rows)
        mixed = mixed.view(tokens, choices, -1) * top_k_weights.unsqueeze(-1)
        return mixed.sum(1).to(x.dtype)


class DecoderLayer(Packed):
    def _kernwright_packs(self) -> Dict[str, List[nn.Parameter]]:
        return qkv_packs(self.self_attn)

    def forward(self, hidden_states: Tensor, attention_mask: Optional[Tensor] = None,
                position_ids: Optional[Tensor] = None, past_key_values: Any = None,
                use_cache: Optional[bool] = False,
                position_embeddings: Optional[Tuple[Tensor, Tensor]] = None,
                kernwright_step: Union[DecodeStep, PrefillStep, None] = None,
                kernwright_angles: Optional[List[Tensor]] = None, **named: Any) -> Any:
        if isinstance(kernwright_step, DecodeStep):
            return self._kernwright_decode(hidden_states, past_key_values, kernwright_step)
        if isinstance(kernwright_step, PrefillStep):
            return self._kernwright_prefill(hidden_states, past_key_values, kernwright_step)
        attention = self.self_attn
        # Without a mask PyTorch's attention is causal over the new keys alone.
        if (attention_mask is None and hidden_states.shape[1] > 1 and not torch.is_grad_enabled()
                and not self.training and not named.get("output_attentions")
                and attention.config._attn_implementation == "sdpa"
                and takes(hidden_states, attention.o_proj.weight)
                and self._kernwright_is_whole()):
            converted = [] if kernwright_angles is None else kernwright_angles
            if not converted:  # by no layer in front
                converted += self._kernwright_angles(hidden_states, position_embeddings)
            return self._kernwright_prefill(hidden_states, past_key_values, PrefillStep(*converted))
        return super().forward(hidden_states, attention_mask=attention_mask,
                               position_ids=position_ids, past_key_values=past_key_values,
                               use_cache=use_cache, position_embeddings=position_embeddings,
                               **named)

    def _kernwright_is_whole(self) -> bool:
        mlp = self.mlp
        return self._kernwright_is_packed(NAMES["qkv"], self.self_attn.q_proj.weight) and (
            not isinstance(mlp, SwiGLU)
            or mlp._kernwright_is_packed(NAMES["gate_up"], mlp.gate_proj.weight))

    def _kernwright_qkv_of(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        norm, head_dim = self.input_layernorm, self.self_attn.head_dim
        kv_heads = self.self_attn.k_proj.weight.shape[0] // head_dim
        bias = getattr(self, NAMES["bias"], None)
        if normalises(x):
            return kw.qkv_linear(x, self._kernwright_qkv, bias, norm.weight, kv_heads=kv_heads,
                                 head_dim=head_dim, eps=epsilon(norm))
        return kw.qkv_linear(kw.rms_norm(x, norm.weight, epsilon(norm)), self._kernwright_qkv,
                             bias, kv_heads=kv_heads, head_dim=head_dim)

    def _kernwright_rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """What comes behind attention."""
        mlp, norm, o = self.mlp, self.post_attention_layernorm, self.self_attn.o_proj
        x = kw.linear(attended, o.weight, o.bias, residual=x)
        if not isinstance(mlp, SwiGLU):  # but a router with experts
            return x + mlp(kw.rms_norm(x, norm.weight, epsilon(norm)))
        weight, activation = mlp._kernwright_gate_up, mlp._kernwright_activation
        if normalises(x):
            inner = kw.gated_linear(x, weight, norm.weight, activation=activation,
                                    eps=epsilon(norm))
        else:
            inner = kw.gated_linear(kw.rms_norm(x, norm.weight, epsilon(norm)), weight,
                                    activation=activation)
        return kw.linear(inner, mlp.down_proj.weight, mlp.down_proj.bias, residual=x)

    def _kernwright_decode(self, x: Tensor, cache: Any, step: DecodeStep) -> Tensor:
        """One token of each sequence: five kernels, seven where rows are normalised by one. Before a
        router with experts, four or five."""
        attention = self.self_attn
        q, k, v = self._kernwright_qkv_of(x)
        own = cache.layers[attention.layer_idx]
        norms = head_norms(attention)
        attended = kw.append_attention(
            q, own.keys, own.values, k, v, step.kv_lengths, step.cos, step.sin,
            *[norm.weight for norm in norms], scale=attention.scaling,
            eps=epsilon(norms[0]) if norms else 1e-6)
        return self._kernwright_rest(x, attended.flatten(-2))

    def _kernwright_angles(self, x: Tensor, angles: Any) -> List[Tensor]:
        """Angles [batch or 1, tokens, head_dim] of Hugging Face's as the kernel takes them."""
        batch, tokens, _ = x.shape
        half = self.self_attn.head_dim // 2
        different = angles[0].shape[0] if head_norms(self.self_attn) else batch
        return [table[..., :half].float().expand(different, tokens, half).reshape(-1, half)
                for table in angles]

    def _kernwright_prefill(self, x: Tensor, cache: Any, step: PrefillStep) -> Tensor:
        attention = self.self_attn
        batch, tokens, _ = x.shape
        q, k, v = self._kernwright_qkv_of(x)
        norms = head_norms(attention)
        if norms and step.cos.shape[0] == tokens:
            q, k, v = kw.norm_rope(q, k, v, *[norm.weight for norm in norms], step.cos, step.sin,
                                   eps=epsilon(norms[0]))
        else:
            if norms:
                q, k = (kw.rms_norm(part, norm.weight, epsilon(norm))
                        for part, norm in zip((q, k), norms))
            q, k = kw.rope(q, k, step.cos, step.sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if cache is not None:
            cache.update(k, v, attention.layer_idx)
        attended = kw.attention(q, k, v, causal=True, scale=attention.scaling)
        return self._kernwright_rest(x, attended.transpose(1, 2).reshape(batch, tokens, -1))


class RotaryEmbedding(nn.Module):
    """Has no angles to give where no positions are asked for."""

    def forward(self, x: Tensor, position_ids: Tensor, *more: Any, **named: Any) -> Any:
        if position_ids.numel() == 0:
            return None, None
        return super().forward(x, position_ids, *more, **named)


class Model(nn.Module):
    """Whether a call is a decode step or a prefill that the layers know how to fuse is decided here,
    once, before Hugging Face makes a mask: in a capture and for a compiler it always makes one."""

    def forward(self, input_ids: Optional[Tensor] = None, attention_mask: Any = None,
                position_ids: Optional[Tensor] = None, past_key_values: Any = None,
                inputs_embeds: Optional[Tensor] = None, use_cache: Optional[bool] = None,
                **named: Any) -> Any:
        given = input_ids if inputs_embeds is None else inputs_embeds
        step: Union[DecodeStep, PrefillStep, None] = None
        if self._kernwright_fuses(given, use_cache, named):
            if self._kernwright_decodes(given, attention_mask, position_ids, past_key_values):
                step = self._kernwright_decode_step(given, past_key_values.layers)
            elif self._kernwright_prefills(given, attention_mask, position_ids, past_key_values):
                step = self._kernwright_prefill_step(*given.shape[:2])
        if step is None:
            return super().forward(input_ids=input_ids, attention_mask=attention_mask,
                                   position_ids=position_ids, past_key_values=past_key_values,
                                   inputs_embeds=inputs_embeds, use_cache=use_cache,
                                   kernwright_angles=[], **named)
        # A mask of four dimensions is handed on as it is, so none is made, nor are positions.
        no_mask = torch.empty((1, 1, 1, 0), dtype=torch.bool, device=given.device)
        no_positions = torch.empty((1, 0), dtype=torch.int64, device=given.device)
        result = super().forward(input_ids=input_ids, attention_mask=no_mask,
                                 position_ids=no_positions, past_key_values=past_key_values,
                                 inputs_embeds=inputs_embeds, use_cache=use_cache,
                                 kernwright_step=step, **named)
        if isinstance(step, DecodeStep):
            torch._foreach_add_([layer.cumulative_length for layer in past_key_values.layers], 1)
        return result

    def _kernwright_decode_step(self, given: Tensor, layers: Any) -> DecodeStep:
        length = layers[0].keys.shape[2]
        lengths = (layers[0].cumulative_length + 1).to(torch.int32).expand(given.shape[0])
        return DecodeStep(lengths.contiguous(), self._kernwright_cos[:length],
                          self._kernwright_sin[:length])

    def _kernwright_prefill_step(self, batch: int, tokens: int) -> PrefillStep:
        tables = self._kernwright_cos[:tokens], self._kernwright_sin[:tokens]
        if batch > 1 and not head_norms(self.layers[0].self_attn):
            tables = tables[0].repeat(batch, 1), tables[1].repeat(batch, 1)
        return PrefillStep(*tables)

    def _kernwright_fuses(self, given: Optional[Tensor], use_cache: Optional[bool],
                          named: Dict[str, Any]) -> bool:
        """Whether nothing is asked for that a fused step does not give."""
        if (given is None or torch.is_grad_enabled() or self.training
                or named.get("output_attentions") or named.get("output_hidden_states")
                or self.config.output_attentions or self.config.output_hidden_states):
            return False
        weight, cos = self.norm.weight, self._kernwright_cos
        if (not on_gpu(weight) or cos.device != weight.device or cos.dtype is not torch.float32
                or given.device != weight.device
                or (given.is_floating_point()
                    and (given.dtype is not weight.dtype or not given.is_contiguous()))):
            return False
        for layer in self.layers:
            if not layer._kernwright_is_whole():
                return False
        return given.shape[1] > 1 or use_cache is not False

    def _kernwright_prefills(self, given: Tensor, mask: Any, position_ids: Optional[Tensor],
                             cache: Any) -> bool:
        """Whether each sequence begins with these tokens, and none is padded."""
        if (given.shape[1] == 1 or mask is not None or position_ids is not None
                or given.shape[1] > self._kernwright_cos.shape[0]
                or self.config._attn_implementation != "sdpa"):
            return False
        return cache is None or (type(cache).__name__ == "DynamicCache" and not any(
            type(layer).__name__ != "DynamicLayer" or layer.is_initialized
            for layer in cache.layers))

    def _kernwright_decodes(self, given: Tensor, mask: Any, position_ids: Optional[Tensor],
                            cache: Any) -> bool:
        layers, weight = getattr(cache, "layers", ()), self.norm.weight
        if given.shape[1] != 1 or len(layers) != len(self.layers):
            return False
        for layer in layers:
            if (type(layer).__name__ != "StaticLayer" or not layer.is_initialized
                    or layer.keys.dtype is not weight.dtype
                    or layer.keys.shape[0] != given.shape[0]
                    or layer.keys.shape[2] > self._kernwright_cos.shape[0]):
                return False
        if self._kernwright_unpadded or (mask is None and position_ids is None):
            return True
        return self._kernwright_is_unpadded(mask, position_ids, layers[0].cumulative_length)

    def _kernwright_is_unpadded(self, mask: Any, position_ids: Optional[Tensor],
                                length: Tensor) -> bool:
        """Looks at the mask and positions, and so waits for the GPU; not where that is not
        possible."""
        if torch.compiler.is_compiling() or (on_gpu(length)
                                             and torch.cuda.is_current_stream_capturing()):
            return False
        if isinstance(mask, dict):  # as generate() prepares them
            mask = next(iter(mask.values())) if len(mask) == 1 else None
            if mask is None:
                return False
        right = torch.ones((), dtype=torch.bool, device=length.device)
        if mask is not None:
            places = torch.arange(mask.shape[-1], device=length.device)
            seen = mask.to(torch.bool) if mask.dim() == 2 or mask.dtype is torch.bool else mask == 0
            # A mask of two dimensions says nothing of what lies behind the new token.
            right = ((seen | (places > length)) if mask.dim() == 2
                     else seen == (places <= length)).all()
        if position_ids is not None:
            right = right & (position_ids == length).all()
        return bool(right)


def epsilon(norm: nn.Module) -> float:
    epsilon = getattr(norm, "variance_epsilon", None)
    if epsilon is None:
        epsilon = norm.eps
    return torch.finfo(norm.weight.dtype).eps if epsilon is None else epsilon


def normalises(x: Tensor) -> bool:
    """Whether a product normalises the rows of x itself."""
    return x.dtype is torch.bfloat16 and x.shape[0] * x.shape[1] <= MOST_NORMALISED_ROWS


def head_norms(attention: nn.Module) -> Tuple[nn.Module, ...]:
    if getattr(attention, "q_norm", None) is None:
        return ()
    return attention.q_norm, attention.k_norm


def qkv_packs(attention: nn.Module) -> Dict[str, List[nn.Parameter]]:
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    packs = {NAMES["qkv"]: [part.weight for part in parts]}
    if parts[0].bias is not None:
        packs[NAMES["bias"]] = [part.bias for part in parts]
    return packs


# Weights in one tensor.

def pack(parameters: Sequence[nn.Parameter]) -> Tuple[Tensor, bool]:
    """The parameters as one tensor, one behind the other in the first dimension, and whether they had
    to be moved there. They stay what they are, and read and write its memory."""
    first = parameters[0].detach()
    rows = sum(parameter.shape[0] for parameter in parameters)
    shape = (rows, *first.shape[1:])
    place, storage = first.data_ptr(), first.untyped_storage()
    together = True
    for parameter in parameters:
        together = (together and parameter.is_contiguous() and parameter.data_ptr() == place
                    and parameter.untyped_storage().data_ptr() == storage.data_ptr())
        place += parameter.numel() * parameter.element_size()
    if together:
        strides = (first.stride(0), *first.stride()[1:])
        return first.as_strided(shape, strides, first.storage_offset()), False
    packed = torch.empty(shape, dtype=first.dtype, device=first.device)
    begin = 0
    for parameter in parameters:
        own = packed[begin:begin + parameter.shape[0]]
        own.copy_(parameter.detach())
        parameter.data = own
        begin += parameter.shape[0]
    return packed, True


# How a module is replaced.

_subclasses: Dict[Tuple[type, type], type] = {}


def _subclass(front: type, kind: type) -> type:
    """`front` before `kind`, under the name of `kind`, which libraries look at."""
    made = _subclasses.get((front, kind))
    if made is None:
        made = type(kind.__name__, (front, kind), {"__module__": kind.__module__,
                                                   "__doc__": kind.__doc__})
        _subclasses[front, kind] = made
    return made


def original(module: nn.Module) -> type:
    """The class of a module, without what was put in front of it."""
    kind = type(module)
    return next((own for (_, own), made in _subclasses.items() if made is kind), kind)


def swap(module: nn.Module, front: type) -> None:
    module.__class__ = _subclass(front, type(module))


def packs_moved(module: Packed) -> bool:
    """Packs the parameters of a module, and says whether some had to be moved."""
    any_moved = False
    for name, parameters in module._kernwright_packs().items():
        packed, moved = pack(parameters)
        module.register_buffer(name, packed, persistent=False)
        any_moved = any_moved or moved
    module._kernwright_moved = any_moved or getattr(module, "_kernwright_moved", False)
    return any_moved


def restore(module: nn.Module) -> bool:
    """Makes a module what it was, and says whether it was replaced."""
    kind = original(module)
    if kind is type(module):
        return False
    if getattr(module, "_kernwright_moved", False):
        for parameters in module._kernwright_packs().values():
            for parameter in parameters:
                parameter.data = parameter.data.clone()
    for name in [*vars(module), *module._buffers]:
        if name.startswith("_kernwright"):
            delattr(module, name)
    module.__class__ = kind
    return True
