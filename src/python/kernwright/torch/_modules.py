"""How a module of a model is replaced, gets weights that are together in memory, and loses both; and the
replacements of linear layers and norms.

A forward of ours reads at each call the parameters of the modules around whose forwards it reads.
It runs if the module's guard holds and the call asks for nothing that it does not provide. Else the
module's own forward gets exactly the same arguments."""

import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.utils._device import DeviceContext

from .._kernwright import Error
from . import ops as kw
from ._guards import original
from ._packing import pack_parameters

DTYPES = (torch.bfloat16, torch.float16)
IMPLEMENTATIONS = ("sdpa", "kernwright")  # of attention that is causal without a mask
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # angles are place * inv_freq * scaling
_PLAIN = (Tensor, nn.Parameter)
CACHES = ("cache", "past_key_values")  # Transformers before 5.24 has the second name
# Arguments without meaning if they are False, and that a fused forward heeds.
_FLAGS = ("output_attentions", "output_hidden_states", "return_dict")
OF_LAYERS = (*CACHES, "attention_mask", "hidden_states", "output_router_logits",
              "position_embeddings", "position_ids", "use_cache")
OF_MODELS = (*CACHES, "attention_mask", "input_ids", "inputs_embeds", "output_router_logits",
              "position_ids", "use_cache")


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


def holds(module: nn.Module) -> bool:
    guard = module._kernwright
    return guard.traces(module) if torch.compiler.is_compiling() else guard.holds(module)


def epsilon(norm: nn.Module) -> float:
    epsilon = getattr(norm, "variance_epsilon", None)
    if epsilon is None:
        epsilon = norm.eps
    return torch.finfo(norm.weight.dtype).eps if epsilon is None else epsilon


def no_parts(module: nn.Module) -> Dict[str, nn.Module]:
    """Returns the modules around whose forwards a linear layer or a norm reads."""
    return {}


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
