"""The replacements of a model's modules: their forwards, the weights that are together in memory,
and how a module gets and loses them.

A forward of ours reads at each call the parameters of the modules around whose forwards it reads.
It runs if the module's guard holds and the call asks for nothing that it does not provide. Else the
module's own forward gets exactly the same arguments."""

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.utils._device import DeviceContext

from .._arrays import make_error
from .._kernwright import Error
from . import ops as kw
from ._guards import original
from ._packing import pack_parameters

DTYPES = (torch.bfloat16, torch.float16)
IMPLEMENTATIONS = ("sdpa", "kernwright")  # of attention that is causal without a mask
MOST_NORMALISED_ROWS = 16  # in a product that normalises its rows itself
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # angles are place * inv_freq * scaling
_PLAIN = (Tensor, nn.Parameter)
CACHES = ("cache", "past_key_values")  # Transformers before 5.24 has the second name
# Arguments without meaning if they are False, and that a fused forward heeds.
_FLAGS = ("output_attentions", "output_hidden_states", "return_dict")
OF_LAYERS = (*CACHES, "attention_mask", "hidden_states", "output_router_logits",
              "position_embeddings", "position_ids", "use_cache")
OF_MODELS = (*CACHES, "attention_mask", "input_ids", "inputs_embeds", "output_router_logits",
              "position_ids", "use_cache")


class DecodeStep(NamedTuple):
    """The data that all layers of one step share: keys of each sequence with the new one, and
    tables of angles in which only the row of the new token is written."""
    kv_lengths: Tensor
    cos: Tensor
    sin: Tensor


class Prefill(NamedTuple):
    """The data that all layers of one call share, whose sequences begin with its tokens: their
    angles as kernels take them, once a layer has converted them, and whether nothing is masked.
    Else the mask says that."""
    angles: List[Tensor]
    unmasked: bool


def on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def is_capturing(tensor: Tensor) -> bool:
    return on_gpu(tensor) and torch.cuda.is_current_stream_capturing()


def nobody_watches(x: Tensor) -> bool:
    """Returns true if no autocast, mode or transform of PyTorch would see the calls of the module's
    own forward."""
    if x.device.type == "meta" or torch.is_autocast_enabled(x.device.type):
        return False
    if torch.compiler.is_compiling():
        return True
    if (torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None
            or torch._C._functorch.peek_interpreter_stack() is not None
            or torch.autograd.forward_ad._current_level >= 0):
        return False
    return not torch._C._len_torch_function_stack() or all(
        isinstance(mode, DeviceContext)
        for mode in torch.overrides._get_current_function_mode_stack())


def fits(*tensors: Any, dtypes: Sequence[torch.dtype] = DTYPES) -> bool:
    """Returns true if a kernel can compute with these tensors, without a gradient."""
    first = tensors[0]
    return (all(type(each) in _PLAIN and each.dtype is first.dtype and each.device == first.device
                and each.numel() > 0 and not (torch.is_grad_enabled() and each.requires_grad)
                for each in tensors)
            and first.dtype in dtypes and on_gpu(first) and nobody_watches(first))


def takes(x: Any, weight: Any, dtypes: Sequence[torch.dtype] = DTYPES) -> bool:
    """Returns true if a kernel can compute with x and this weight, without a gradient."""
    return fits(x, weight, dtypes=dtypes) and x.is_contiguous() and weight.is_contiguous()


def is_description(mask: Any) -> bool:
    """Returns true for what `mask` makes in place of masks."""
    return isinstance(mask, Tensor) and mask.dtype is torch.int32 and mask.dim() == 4 and mask.shape[3] == 1


def described(description: Tensor, queries: int, keys: int) -> Tensor:
    """Returns the mask [batch, 1, queries, keys] that is described: true for what a query sees."""
    window = description.shape[2] - 1
    own = description[:, :, :1] - queries + torch.arange(queries, device=description.device)[:, None]
    at = torch.arange(keys, device=description.device)
    return (at <= own) & (at > own - window) if window else at <= own


def weight_of(part: nn.Module) -> Any:
    """Returns the weight of a module that may have become another module."""
    return getattr(part, "weight", None)


def only_argument(given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
    """Returns the one argument that a module was called with, or None if there was not exactly
    one."""
    return given[0] if len(given) == 1 and not named else None


def bind(names: Sequence[str], given: Tuple[Any, ...],
         named: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Returns the arguments of a call by name, or None if the forward would refuse them."""
    if len(given) > len(names) or any(name in named for name in names[:len(given)]):
        return None
    return {**dict(zip(names, given)), **named}


def asks_no_more(call: Dict[str, Any], understood: Sequence[str]) -> bool:
    """Returns true if every argument is understood, or says what holds without it."""
    for name, value in call.items():
        if value is None or name in understood:
            continue
        if not (value is False and name in _FLAGS) and not (value is True and name == "is_causal"):
            return False
    return sum(call.get(name) is not None for name in CACHES) < 2


def cache_of(call: Dict[str, Any]) -> Any:
    return next((call[name] for name in CACHES if call.get(name) is not None), None)


def expect_dtype(x: Tensor, *weights: Tensor) -> None:
    """Refuses weights of other dtypes. The module's own forward then refuses them in its way."""
    for weight in weights:
        if weight.dtype is not x.dtype:
            raise make_error(f"a weight is {weight.dtype}, and {x.dtype} expected as its input")


def note_refusal(module: nn.Module, error: Error) -> None:
    module._kernwright.tally.add("refusal", module._kernwright.name, str(error))


# The replacements of modules. Each class is put in front of the class of the module that it
# replaces.

class Front(nn.Module):
    """A module that computes the calls that `_kernwright_fused` takes by that, and others as
    before."""

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        """Returns NotImplemented if it does not take the call."""
        raise NotImplementedError

    def _kernwright_own(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        return super().forward(*given, **named)

    def __setstate__(self, state: Any) -> None:
        """Restores a copy of the module, and looks at it."""
        super().__setstate__(state)
        guard = vars(self).get("_kernwright")
        if guard is not None:
            guard.renew(self)

    def _kernwright_may_retry(self, named: Dict[str, Any]) -> bool:
        """Returns true if the module's own forward may follow a fused one that was refused."""
        return True

    def _kernwright_release(self) -> None:
        """Gives the module tensors as it had them."""

    def forward(self, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            result = self._kernwright_fused(given, named)
        else:
            try:
                result = self._kernwright_fused(given, named)
            except Error as error:
                if not error.is_refusal or not self._kernwright_may_retry(named):
                    raise
                note_refusal(self, error)
                result = NotImplemented
        if result is NotImplemented:
            return self._kernwright_own(given, named)
        return result


class Linear(Front):
    weight: Tensor
    bias: Optional[Tensor]

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        x = only_argument(given, named)
        if takes(x, self.weight) and holds(self):
            return kw.linear(x, self.weight, self.bias)
        return NotImplemented


class RMSNorm(Front):
    weight: Tensor

    def _kernwright_fused(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        x = only_argument(given, named)
        if takes(x, self.weight, (*DTYPES, torch.float32)) and holds(self):
            return kw.rms_norm(x, self.weight, epsilon(self))
        return NotImplemented


class Packed(Front):
    """A module that reads several parameters as one tensor, if they are together in memory."""

    def _kernwright_members(self) -> List[List[nn.Parameter]]:
        raise NotImplementedError

    def _kernwright_release(self) -> None:
        if self._kernwright.moved:
            for parameters in self._kernwright_members():
                for parameter in parameters:
                    parameter.data = parameter.data.clone()

    def _apply(self, *given: Any, **named: Any) -> Any:
        """Moves or converts the module, and then packs again."""
        super()._apply(*given, **named)
        pack_members(self)
        return self


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
                and holds(self)):
            return self._kernwright_mix(x, index, shares)
        return NotImplemented

    def _kernwright_mix(self, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Sorts rows by expert for two grouped products, and puts them back. Nothing waits for the
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
                and call.get("attention_mask") is None and not torch.is_grad_enabled()
                and isinstance(angles, tuple) and len(angles) == 2
                and not self.training and asks_no_more(call, OF_LAYERS)
                and attention.config._attn_implementation in IMPLEMENTATIONS
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
            return x + mlp(kw.rms_norm(x, norm.weight, epsilon(norm)))
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
        norms = head_norms(attention)
        attended = kw.append_attention(
            q, own.keys, own.values, k, v, step.kv_lengths, step.cos, step.sin,
            *[norm.weight for norm in norms], scale=attention.scaling,
            eps=epsilon(norms[0]) if norms else 1e-6)
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
        attended = kw.attention(q, k, v, causal=True, scale=attention.scaling)
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
            return x + self.mlp(self.post_attention_layernorm(x))


def holds(module: nn.Module) -> bool:
    guard = module._kernwright
    return guard.traces(module) if torch.compiler.is_compiling() else guard.holds(module)


def epsilon(norm: nn.Module) -> float:
    epsilon = getattr(norm, "variance_epsilon", None)
    if epsilon is None:
        epsilon = norm.eps
    return torch.finfo(norm.weight.dtype).eps if epsilon is None else epsilon


def normalises(x: Tensor) -> bool:
    """Returns true if a product normalises the rows of x itself."""
    return x.dtype is torch.bfloat16 and x.shape[0] * x.shape[1] <= MOST_NORMALISED_ROWS


def head_norms(attention: nn.Module) -> Tuple[nn.Module, ...]:
    if getattr(attention, "q_norm", None) is None:
        return ()
    return attention.q_norm, attention.k_norm


# The modules around whose forwards each one reads.

def no_parts(module: nn.Module) -> Dict[str, nn.Module]:
    return {}


def swiglu_parts(mlp: nn.Module) -> Dict[str, nn.Module]:
    parts = {"gate_proj": mlp.gate_proj, "up_proj": mlp.up_proj}
    if isinstance(mlp.act_fn, nn.Module):
        parts["act_fn"] = mlp.act_fn
    return parts


def experts_parts(experts: nn.Module) -> Dict[str, nn.Module]:
    return {"act_fn": experts.act_fn} if isinstance(experts.act_fn, nn.Module) else {}


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


# Weights in one allocation.

def pack_members(module: Packed) -> bool:
    """Packs the parameters that the module reads as one, if its parts are unchanged, and says
    whether something was moved."""
    try:
        members = module._kernwright_members()
    except AttributeError:
        return False
    moved = any([pack_parameters(parameters, one_storage=False) for parameters in members
                 if all(isinstance(parameter, nn.Parameter) and on_gpu(parameter) for parameter in parameters)])
    module._kernwright.moved = moved or module._kernwright.moved
    return moved


# How a module is replaced.

_subclasses: Dict[Tuple[type, type], type] = {}


def _subclass(front: type, kind: type) -> type:
    """`front` before `kind`, under the name of `kind`, which libraries look at."""
    made = _subclasses.get((front, kind))
    if made is None:
        made = type(kind.__name__, (front, kind), {"__module__": kind.__module__,
                                                   "__doc__": kind.__doc__,
                                                   "_kernwright_original": kind})
        _subclasses[front, kind] = made
    return made


def swap(module: nn.Module, front: type) -> None:
    module.__class__ = _subclass(front, type(module))


def parameter_names(function: Callable[..., Any]) -> Tuple[str, ...]:
    """Names of the arguments that a forward takes by place."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, parameter in inspect.signature(function).parameters.items()
                 if parameter.kind in by_place and name != "self")


def restore(module: nn.Module) -> bool:
    """Makes a module what it was, and says whether it was replaced."""
    kind = original(module)
    if kind is type(module):
        return False
    if isinstance(module, Front):
        module._kernwright_release()
    for name in list(vars(module)):
        if name.startswith("_kernwright"):
            delattr(module, name)
    module.__class__ = kind
    return True
