"""The facts that a fused forward was decided from, and the check that they still hold.

A unit is a module with a forward of ours, together with the modules around whose forwards that one
reads. `Look` finds everything that determines the unit's result: classes and their forwards,
members, hooks, the config, and the functions that the forwards call by name. At each call the
extension compares that with the objects from before, by identity. If one is another object, the
unit is examined once more, by value, and the answer holds until something changes again."""

import collections
import copy
import inspect
import logging
import sys
import types
from typing import Any, Callable, Counter, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from .. import _fallbacks, _kernwright

_log = logging.getLogger("kernwright")

# Members of every module. Parameters, children and hooks are looked at one by one.
_EVERY = frozenset(vars(nn.Module()))
# Members that do not affect the result of a module.
_SILENT = frozenset(("_compiled_call_impl", "_is_hf_initialized", "_kernwright",
                     "_kernwright_activation", "_kernwright_path", "_kernwright_readers", "_kernwright_source",
                     "_output_capturing_hooks_installed"))
# Members that others add to a module whose forward they wrap. Ours may run if they call it.
_WRAPPED = frozenset(("forward", "_hf_hook", "_old_forward"))
# Fields of a config that generate(), loaders and savers set, that are read at each call, or that choose
# among ways to compute the same.
_SILENT_FIELDS = frozenset((
    "_commit_hash", "_experts_implementation_internal", "_name_or_path", "_output_attentions",
    "architectures", "bos_token_id", "dtype", "eos_token_id", "id2label", "label2id",
    "name_or_path", "output_attentions", "output_hidden_states", "output_router_logits",
    "pad_token_id", "problem_type", "quantization_config", "return_dict", "torch_dtype", "transformers_version",
    "use_cache"))
_IMPLEMENTATIONS = ("eager", "kernwright", "sdpa")
_TORCH = ((nn.functional, ("gelu", "linear", "rms_norm", "scaled_dot_product_attention", "silu",
                           "softmax")),
          (torch, ("matmul", "rsqrt", "sigmoid")))
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_DEPTH = 3  # levels of functions that functions call by name


class _Same:
    """An object that equals itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __repr__(self) -> str:
        return getattr(self.value, "__qualname__", f"a {type(self.value).__name__}")


def _plain(value: Any) -> Any:
    """Returns a value in the form in which it is compared: numbers, texts, and lists of them by
    value."""
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return type(value) if isinstance(value, Tensor) else _Same(value)


def original(module: nn.Module) -> type:
    """Returns the class of a module, without the class that was put in front of it."""
    return getattr(type(module), "_kernwright_original", type(module))


def hooks_of(module: nn.Module) -> int:
    """Returns the number of its forward hooks, except those of Transformers that do nothing if a
    call does not ask for outputs of the module."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return sum(getattr(hook, "__module__", "") != "transformers.utils.output_capturing"
               for hook in hooks)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


class Look:
    """The facts that a unit is decided from, as they are now. `facts` compare by value."""

    def __init__(self, root: nn.Module, parts: Dict[str, nn.Module],
                 functions: Sequence[Any] = ()) -> None:
        self.facts: Dict[str, Any] = {}
        self._root = vars(root)
        self._dicts: List[Tuple[Dict[Any, Any], Set[Any], Set[Any], bool]] = []
        self._lists: List[List[Any]] = []
        self._types: List[Tuple[nn.Module, type]] = []
        self._attributes: List[Tuple[Any, str, Any]] = []
        self._parameters: List[Dict[str, Any]] = []
        self._names: Dict[int, Tuple[Dict[str, Any], Set[str]]] = {}
        self._seen: Set[Any] = set()
        self._add_module("", root)
        for path, part in parts.items():
            self._add_module(path, part)
        for function in functions:
            self._add_function(function, _DEPTH)
        for library, names in _TORCH:
            self._add_names(vars(library), names, library.__name__)
        if not parts:  # it reads around no forward
            return
        hooks_everywhere = vars(nn.modules.module)
        self._add_names(hooks_everywhere, _GLOBAL_HOOKS, "torch")
        for name in _GLOBAL_HOOKS:
            self.facts[f"hooks in torch.{name}"] = len(hooks_everywhere[name])
            self._watch(hooks_everywhere[name])
        for name in ("__call__", "_call_impl"):
            self._add_attribute(nn.Module, name)

    def guard(self) -> Any:
        """Returns a guard that compares these facts, as long as the unit lives."""
        named = [(names, keys, set(), False) for names, keys in self._names.values()]
        return _kernwright.make_guard(self._root, self._dicts + named, self._lists, self._types,
                                      self._attributes)

    def reads(self) -> "Reads":
        return Reads(self._root, self._dicts, self._types, self._attributes,
                     list(self._names.values()), self._parameters)

    def _first(self, thing: Any) -> bool:
        """Returns true if it was not looked at before."""
        known = id(thing) in self._seen
        self._seen.add(id(thing))
        return not known

    def _watch(self, entries: Dict[Any, Any], kinds: Sequence[Any] = ()) -> None:
        self._dicts.append((entries, set(entries) - set(kinds), set(kinds), True))

    def _add_module(self, path: str, module: nn.Module) -> None:
        at, kind = f"{path}." if path else "", original(module)
        self.facts[path or "class"] = _Same(type(module))
        self._types.append((module, type(module)))
        watched = {"_parameters"}
        for name, value in vars(module).items():
            if name not in _EVERY and name not in _SILENT and (path or name not in _WRAPPED):
                watched.add(name)
                self._add_value(at + name, value)
        if kind is nn.Linear:  # it reads only its parameters
            watched -= {"in_features", "out_features"}
        else:
            if module._modules:
                watched.add("_modules")
                self._watch(module._modules)
            self.facts[f"children of {path or 'it'}"] = list(module._modules)
            if module._buffers:
                self._add_tensors(at, module._buffers)
        self._add_tensors(at, module._parameters)
        self._parameters.append(module._parameters)
        if path:
            watched |= {"_forward_hooks", "_forward_pre_hooks"}
            self.facts[f"hooks on {path}"] = hooks_of(module)
            self._watch(module._forward_hooks)
            self._watch(module._forward_pre_hooks)
        if hasattr(module, "attention_dropout"):
            watched.add("training")
            self.facts[f"{at}training"] = module.training
        self._dicts.append((vars(module), watched, set(), True))
        if self._first(kind):
            if path:
                self._add_attribute(kind, "__call__")
            for name in ("forward", "_apply_gate"):  # the second one of Transformers' experts
                if hasattr(kind, name):
                    self._add_attribute(kind, name)
            self._add_function(kind.forward, _DEPTH)

    def _add_tensors(self, at: str, tensors: Dict[str, Optional[Tensor]]) -> None:
        """Adds which tensors there are, and of what kind. Their values are read at each call."""
        self._watch(tensors, [name for name, value in tensors.items() if value is not None])
        for name, value in tensors.items():
            self.facts[at + name] = None if value is None else _Same(type(value))

    def _add_value(self, path: str, value: Any) -> None:
        if hasattr(value, "_attn_implementation"):
            self.facts[path] = "a config"
            if self._first(value):
                fields = {name: item for name, item in vars(value).items()
                          if name not in _SILENT_FIELDS}
                self._dicts.append((vars(value), set(fields), set(), True))
                for name, item in fields.items():
                    self.facts[f"{path}.{name}"] = _plain(item)
                    self._watch_content(item)
            return
        self.facts[path] = _plain(value)
        self._watch_content(value)

    def _watch_content(self, value: Any) -> None:
        if isinstance(value, (dict, list)) and self._first(value):
            if isinstance(value, dict):
                self._watch(value)
            else:
                self._lists.append(value)
            for item in value.values() if isinstance(value, dict) else value:
                self._watch_content(item)

    def _add_attribute(self, owner: Any, name: str) -> None:
        value = getattr(owner, name)
        self.facts[f"{owner.__name__}.{name}"] = _Same(value)
        self._attributes.append((owner, name, value))

    def _add_names(self, names: Dict[str, Any], wanted: Sequence[str], where: str) -> None:
        _, keys = self._names.setdefault(id(names), (names, set()))
        for name in wanted:
            keys.add(name)
            self.facts[f"{where}.{name}"] = _Same(names[name])

    def _add_function(self, function: Any, depth: int) -> None:
        """Adds the global names that a function reads, and the names that the functions among them
        read."""
        function = inspect.unwrap(function)
        if not isinstance(function, types.FunctionType) or not self._first(function):
            return
        names, where = function.__globals__, function.__module__
        wanted = [name for name in sorted(set(_names_in(function.__code__)))
                  if name in names and not isinstance(names[name], logging.Logger)]
        self._add_names(names, wanted, where)
        package = where.partition(".")[0]
        for name in wanted:
            value = names[name]
            if hasattr(value, "_global_mapping"):
                self._add_registry(f"{where}.{name}", value)
            elif depth > 0 and getattr(value, "__module__", "").partition(".")[0] == package:
                self._add_function(value, depth - 1)

    def _add_registry(self, path: str, registry: Any) -> None:
        """Adds functions that Transformers keeps under names, everywhere and in one registry."""
        mappings = registry._global_mapping, getattr(registry, "_local_mapping", None)
        if not self._first(registry) or not all(isinstance(mapping, dict) for mapping in mappings):
            return
        for mapping in mappings:
            known = [name for name in _IMPLEMENTATIONS if name in mapping]
            self._dicts.append((mapping, set(known), set(), mapping is mappings[1]))
            for name in known:
                self.facts[f"{path}[{name}]"] = _Same(mapping[name])
                if name != "kernwright":  # ours reads nothing that others change
                    self._add_function(mapping[name], 1)


class Reads:
    """The comparisons of a guard, as plain reads that a compiler sees. A compiler guards neither a
    module's hooks nor names that the module's own dict lacks, so these are read from the dicts
    themselves."""

    def __init__(self, root: Dict[str, Any], dicts: Sequence[Any], kinds: Sequence[Any],
                 attributes: Sequence[Any], names: Sequence[Any],
                 parameters: Sequence[Dict[str, Any]]) -> None:
        self.dicts: List[Tuple[Any, ...]] = []
        self.of_root: List[Tuple[str, Any]] = []
        modules = {id(vars(module)) for module, _ in kinds}
        for entries, keys, typed, whole in dicts:
            same, equal = [], []
            for key in keys:
                value = entries[key]
                is_plain = not isinstance(value, Tensor) and not isinstance(_plain(value), _Same) and not (
                    key in _EVERY and isinstance(value, dict))
                (equal if is_plain else same).append((key, copy.deepcopy(value) if is_plain
                                                      else value))
            if entries is root:  # the root's dict would keep itself alive
                self.of_root += equal
                continue
            is_module = id(entries) in modules
            self.dicts.append((entries, same, equal, [(key, type(entries[key])) for key in typed],
                               len(entries) if whole and not is_module else -1,
                               is_module and "forward" not in entries))
        self.kinds = [(module, kind) for module, kind in kinds if vars(module) is not root]
        self.parameters = [(entries, [name for name, value in entries.items() if value is not None])
                           for entries in parameters]
        self.attributes = list(attributes)
        for entries, keys in names:
            owner = sys.modules.get(entries.get("__name__", ""))
            if owner is not None and vars(owner) is entries:
                self.attributes += [(owner, key, entries[key]) for key in sorted(keys)]

    def hold(self, root: nn.Module) -> bool:
        for module, kind in self.kinds:
            if type(module) is not kind:
                return False
        for entries, same, equal, typed, size, is_bare in self.dicts:
            if size >= 0 and len(entries) != size or is_bare and "forward" in entries:
                return False
            for name, value in same:
                if entries[name] is not value:
                    return False
            for name, value in equal:
                if entries[name] != value:
                    return False
            for name, kind in typed:
                if type(entries[name]) is not kind:
                    return False
        for name, value in self.of_root:
            if getattr(root, name) != value:
                return False
        for owner, name, value in self.attributes:
            if getattr(owner, name) is not value:
                return False
        dtype = None  # of all, since a compiler cannot leave a module that has begun
        for entries, keys in self.parameters:
            for name in keys:
                if dtype is not None and entries[name].dtype is not dtype:
                    return False
                dtype = entries[name].dtype
        return True


def difference(before: Dict[str, Any], now: Dict[str, Any]) -> Optional[str]:
    """Returns the first thing in which two looks differ, in words."""
    for name in (*before, *now):
        if name not in now:
            return f"{name} is gone"
        if name not in before:
            return f"{name} is new"
        if before[name] != now[name]:
            return f"{name} was {before[name]!r} and is {now[name]!r}"
    return None


class Tally:
    """Counts calls that were left at run time, by module and reason, and logs each once."""

    def __init__(self) -> None:
        self.counts: Counter[Tuple[str, str]] = collections.Counter()

    def __deepcopy__(self, memo: Any) -> "Tally":
        return self

    def add(self, cause: str, name: str, reason: str) -> None:
        _fallbacks.counts[cause] += 1
        self.counts[name, reason] += 1
        if self.counts[name, reason] == 1:
            _log.warning("%s runs as before: %s", name or "the model", reason)


class Guard:
    """Says whether a module is still the one that passed its check."""

    def __init__(self, name: str, tally: Tally, module: nn.Module,
                 parts: Callable[[nn.Module], Dict[str, nn.Module]],
                 functions: Sequence[Any] = (), **decided: Any) -> None:
        self.name, self.tally = name, tally
        self._parts, self._functions = parts, functions
        self.moved = False  # true if weights were moved
        self.__dict__.update(decided)
        look = Look(module, parts(module), functions)
        self._facts = look.facts
        self._now, self._reads = look.guard(), look.reads()
        self.reason: Optional[str] = None  # why it does not hold

    def holds(self, module: nn.Module) -> bool:
        now = self._now
        if now is None or not now.holds(module.__dict__):
            self.renew(module)
        if self.reason is None:
            return True
        self.tally.add("module", self.name, self.reason)
        return False

    def traces(self, module: nn.Module) -> bool:
        """Does the same for a compiler, which guards the reads that it sees."""
        return self.reason is None and self._reads.hold(module)

    def renew(self, module: nn.Module) -> None:
        """Looks at the module by value."""
        try:
            look = Look(module, self._parts(module), self._functions)
        except AttributeError as error:
            self._now, self.reason = None, str(error)
            return
        self.reason = difference(self._facts, look.facts)
        self._now, self._reads = look.guard(), look.reads()

    def __deepcopy__(self, memo: Any) -> "Guard":
        """Returns the guard of a copy of the module, which must renew it."""
        copied = Guard.__new__(Guard)
        copied.__dict__.update(self.__dict__, _now=None, reason="it is a copy")
        return copied
