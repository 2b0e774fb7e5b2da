"""What is done to a model while it is in use: a table of cases, by kind."""

import collections
import copy
import glob
import os
import pickle
import sys
import tempfile
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional
from unittest import mock

import accelerate
import peft
import safetensors.torch
import torch
import transformers
from kernwright import torch as kw
from models import BATCH, CACHE, MIXTURES, PARTS, PLACES, SLIDING, Play, Skip
from torch import nn
from torch.nn.utils import parametrize, prune

functional = nn.functional


class Case(NamedTuple):
    """`change` is done between two looks; if it returns a function, that is done between two more.
    A quiet one changes no logits. An `alone` one looks by itself. `before` is done before patch().
    Those that mix are steps of random programs."""
    kind: str
    name: str
    change: Callable[[Play], Any]
    quiet: bool = False
    alone: bool = False
    compiles: bool = True
    mixes: bool = True
    asserts: bool = False
    config: Optional[Dict[str, Any]] = None
    before: Optional[Callable[[Play], Any]] = None

    def asserts_on(self, device):
        """Whether a kernel of PyTorch's asserts, which ends what a process can compute."""
        return self.asserts and device == "cuda"

    def play(self, *given, **named):
        p = Play(*given, config=self.config, before=self.before, **named)
        with p.stack:
            if p.compiled:
                p.stack.callback(torch.compiler.reset)
            if self.alone:
                self.change(p)
            else:
                p.look("before")
                self.do(p)
                p.look("after")
                if p.undos:
                    with torch.no_grad():
                        p.undos.pop()()
                    p.look("undone")
        return p

    @torch.no_grad()
    def do(self, p):
        def change():
            torch.manual_seed(p.step_seed)  # whatever was drawn since
            undo = self.change(p)
            if callable(undo) and not isinstance(undo, nn.Module):
                p.undos.append(undo)

        p.note("change", change)


CASES: List[Case] = []


def table(kind, changes, **options):
    CASES.extend(Case(kind, name, change, **options) for name, change in changes.items())


def case(kind, **options):
    def keep(function):
        table(kind, {function.__name__.replace("_", " "): function}, **options)
        return function

    return keep


def uneven(result):
    """Something else than what a module gave, by an amount that no norm takes away."""
    if isinstance(result, torch.Tensor):
        by = torch.linspace(0.2, 2.0, result.shape[-1], device=result.device)
        return result * by.to(result.dtype)
    if isinstance(result, tuple):
        return (uneven(result[0]), *result[1:])
    result.last_hidden_state = uneven(result.last_hidden_state)
    return result


def bent(function):
    return lambda *given, **named: uneven(function(*given, **named))


def swapped(thing, name, value):
    """Sets an attribute, and gives what sets it back."""
    if not hasattr(thing, name):
        raise Skip(f"has no {name}")
    own = getattr(thing, name)
    setattr(thing, name, value)
    return lambda: setattr(thing, name, own)


def replaced(p, thing, name, change):
    """Replaces what a whole process shares, for this play."""
    if not hasattr(thing, name):
        raise Skip(f"has no {name}")
    p.stack.enter_context(mock.patch.object(thing, name, change(getattr(thing, name))))


# Weights.

WAYS = {
    "in place": lambda p, m, leaf, new: getattr(m, leaf).copy_(new),
    "by data": lambda p, m, leaf, new: setattr(getattr(m, leaf), "data", new),
    "new": lambda p, m, leaf, new: setattr(m, leaf, nn.Parameter(new, requires_grad=False)),
    "loaded": lambda p, m, leaf, new: m.load_state_dict({leaf: new}, strict=False),
    "assigned": lambda p, m, leaf, new: m.load_state_dict({leaf: new}, strict=False, assign=True),
    "as an attribute": lambda p, m, leaf, new: (delattr(m, leaf), setattr(m, leaf, new))}
for part in ("k", "v", "up", "q", "o", "gate", "down", "norm", "head", "k_norm"):
    for way, change in WAYS.items():
        table("weights", {f"{part} {way}": lambda p, part=part, change=change: [
            change(p, m, leaf, p.fresh(getattr(m, leaf))) for m, leaf in [p.leaf(part)]]})


def at_odd_address(value):
    return value.new_empty(value.numel() + 1)[1:].view(value.shape).copy_(value)


def puts_at_odd_address(part):
    def put(p):
        if p.device == "cuda" and part in ("gate", "up", "down") and p.name in MIXTURES:
            raise Skip("PyTorch's own product of groups wants 16 bytes")
        p.put(part, at_odd_address)

    return put


def biased(p):
    linear = p.part(p.random.choice("qkv"))
    if linear.bias is None:
        raise Skip("has no bias")
    return linear


def tie(p):
    one, other = (layer.self_attn for layer in p.base.layers)
    if not hasattr(one, "k_proj"):
        raise Skip("has no k_proj")
    other.k_proj.weight = one.k_proj.weight


def shares(p):
    p.base.layers[0].self_attn.k_proj.weight.neg_()
    p.note("tied", lambda: p.base.layers[1].self_attn.k_proj.weight
           is p.base.layers[0].self_attn.k_proj.weight)


def swap_layers(p):
    p.base.layers[0], p.base.layers[1] = p.base.layers[1], p.base.layers[0]
    for i, layer in enumerate(p.base.layers):
        layer.self_attn.layer_idx = i


def parametrized(p):
    linear = p.part(p.random.choice(("k", "o", "q")))
    parametrize.register_parametrization(linear, "weight", type("Negated", (nn.Module,), {
        "forward": lambda self, value: -value})())
    return lambda: parametrize.remove_parametrizations(linear, "weight", leave_parametrized=False)


table("weights", {
    "all loaded": lambda p: p.model.load_state_dict(p.fresh_state()),
    "all assigned": lambda p: p.model.load_state_dict(p.fresh_state(), assign=True),
    "norms assigned": lambda p: p.model.load_state_dict(p.fresh_state("norm"), False, assign=True),
    "k and v tied": lambda p: (p.get("k_proj").neg_(), [setattr(
        attention.v_proj, "weight", attention.k_proj.weight)
        for attention in [layer.self_attn for layer in p.base.layers]]),
    "a bias appears": lambda p: [setattr(linear, "bias", nn.Parameter(p.fresh(
        linear.weight[:, 0], 3), False)) for linear in [p.part(p.random.choice("qkv"))]],
    "a bias changes": lambda p: [setattr(linear.bias, "data", p.fresh(linear.bias, 3))
                                 for linear in [biased(p)]],
    "biases of q, k and v": lambda p: [setattr(part, "bias", nn.Parameter(p.fresh(
        part.weight[:, 0], 3), False)) for attention in [p.layer().self_attn] for part in (
            Play.first(attention.named_modules(), name) for name in "qkv")],
    "a bias vanishes": lambda p: setattr(biased(p), "bias", None),
    "parametrized": parametrized,
    "pruned": lambda p: prune.l1_unstructured(p.part(p.random.choice("koq")), "weight", 0.5).bias,
    "layers swapped": swap_layers})
table("weights", {
    **{f"{part} at an odd address": puts_at_odd_address(part)
       for part in ("q", "k", "v", "gate", "up", "down", "norm", "k_norm", "o", "head")},
    "k transposed in memory": lambda p: p.put("k", lambda w: w.t().contiguous().t())}, quiet=True)
table("weights", {
    "v of another dtype": lambda p: p.wide or p.put("v", lambda w: w.half()),
    "norm of another dtype": lambda p: p.put("norm", lambda w: w.float()),
    "up of a subclass": lambda p: p.put("up", lambda w: w.as_subclass(
        type("Other", (torch.Tensor,), {})))}, quiet=True, mixes=False)
table("weights", {"two layers share one": shares}, before=tie)
table("weights", {"tied embedding": lambda p: p.model.get_input_embeddings().weight.neg_()},
      config=dict(tie_word_embeddings=True))
table("weights", {"a layer removed": lambda p: (delattr(p.base.layers, "1"), setattr(
    p.config, "num_hidden_layers", 1))}, mixes=False)


@case("weights", alone=True, compiles=False)
def train_step(p):
    """A step of SGD between two looks."""
    p.look("before")
    p.model.requires_grad_(True)
    p.note("loss", lambda: p.model(input_ids=p.ids(8), labels=p.ids(8), use_cache=False).loss)
    p.model(input_ids=p.ids(8), labels=p.ids(8), use_cache=False).loss.backward()
    with torch.no_grad():
        for name, value in p.model.named_parameters():
            if value.grad is not None:
                p.note(f"gradient of {name}", lambda: value.grad)
                step = value.grad.float() / value.grad.float().norm().clamp_min(1e-9)
                value.sub_((step * value.float().norm() * 0.3).to(value.dtype))
                value.grad = None
    p.run("with a gradient", input_ids=p.ids(8), use_cache=False)
    p.model.requires_grad_(False)
    p.look("after")


@case("weights", alone=True, compiles=False)
def inputs_that_require_a_gradient(p):
    def gradient():
        x = p.model.get_input_embeddings()(p.ids(6)).detach().requires_grad_()
        p.model(inputs_embeds=x, use_cache=False).logits.float().square().sum().backward()
        return x.grad

    p.note("gradient", gradient)


# Adapters and merges.

def lora(parts, name="default", **options):
    """Puts LoRA on these parts; an adapter of another name beside that one."""
    def change(p):
        config = peft.LoraConfig(target_modules=r".*\.(%s)" % "|".join(
            PARTS[part] for part in parts), init_lora_weights=False, r=4, lora_alpha=8, **options)
        try:
            if name == "default":
                model = peft.get_peft_model(p.model, config)
            else:
                model = p.model
                model.add_adapter(name, config)
                model.set_adapter(name)
        except ValueError as error:
            raise Skip(str(error)) from error
        for path, value in model.named_parameters():
            if "lora_" in path:
                value.copy_(value.bfloat16())
        model.eval().requires_grad_(False)
        if model is not p.model:
            p.model = model

    return change


def experts_adapted(p):
    if not any("experts.down_proj" in name for name, _ in p.model.named_parameters()):
        raise Skip("has no experts")
    p.model = peft.get_peft_model(p.model, peft.LoraConfig(
        target_modules=[], target_parameters=["experts.down_proj"], init_lora_weights=False,
        r=4)).eval()


def set_again(p):
    lora("kv", "second")(p)
    return lambda: p.model.set_adapter("default")


def beneath(p):
    under = p.model
    lora("qv")(p)
    p.look("beneath", call=under)


class Adapted(nn.Module):
    def __init__(self, base, value):
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.more = nn.Parameter(value, requires_grad=False)

    def forward(self, x):
        return self.base(x) + functional.linear(x, self.more)


def injected(p):
    name, attention = p.random.choice(("q_proj", "v_proj", "o_proj")), p.layer().self_attn
    base = Play.first(attention.named_modules(), name)
    setattr(attention, name, Adapted(base, p.fresh(base.weight)))


def merge(safe):
    return lambda p: setattr(p, "model", p.model.merge_and_unload(safe_merge=safe))


def adapt_and_merge(safe):
    def change(p):
        lora("kvq" if safe else ("v", "up", "down", "o"))(p)
        p.look("adapted")
        merge(safe)(p)

    return change


def merge_two(p):
    lora("vo", "second")(p)
    p.model.add_weighted_adapter(["default", "second"], [0.7, 0.9], "both",
                                 combination_type="linear")
    p.model.set_adapter("both")
    p.look("both")
    merge(False)(p)


table("adapters", {f"LoRA of {part}": lora([part]) for part in (
    "q", "k", "v", "o", "gate", "up", "down")})
table("adapters", {"LoRA of q and v": lora("qv"), "DoRA of v": lora("v", use_dora=True),
                   "LoRA of all": lora(("q", "k", "v", "o", "up", "down"))})
table("adapters", {"LoRA of experts": experts_adapted, "looked at beneath": beneath,
                   "injected by hand": injected}, mixes=False)
table("adapters", {
    "disabled": lambda p: p.model.disable_adapter_layers() or p.model.enable_adapter_layers,
    "another set": set_again,
    "weights of one replaced": lambda p: [setattr(value, "data", p.fresh(value)) for name, value
                                          in p.model.named_parameters() if "lora_" in name],
    "base weights changed": lambda p: p.get("v").neg_()}, before=lora("qvo"))
table("merges", {f"adapted, merged and unloaded, safe={safe}": adapt_and_merge(safe)
                 for safe in (False, True)})
table("merges", {f"merged and unloaded, safe={safe}": merge(safe) for safe in (False, True)},
      quiet=True, before=lora(("k", "v", "up", "down")))
table("merges", {"merged in place": lambda p: p.model.merge_adapter() or p.model.unmerge_adapter},
      quiet=True, before=lora(("k", "q", "up")))
table("merges", {"unloaded": lambda p: setattr(p, "model", p.model.unload()),
                 "two merged": merge_two}, before=lora("vo"))
table("merges", {"added by hand": lambda p: [p.get(name).add_(p.fresh(p.get(name)))
                                             for name in ("k", "v", "up")]})


# Hooks.

def hook(part):
    return lambda p: p.part(part).register_forward_hook(
        lambda module, given, result: uneven(result)).remove


def pre_hook(part):
    def change(module, given, named):
        if given:
            return (uneven(given[0]), *given[1:]), named
        first = next(iter(named))
        return given, {**named, first: uneven(named[first])}

    return lambda p: p.part(part).register_forward_pre_hook(change, with_kwargs=True).remove


def counting(p):
    seen = []
    handles = [module.register_forward_hook(lambda *_, name=name: seen.append(name))
               for name, module in p.model.named_modules()]
    p.look("counted")
    p.note("seen", lambda: seen)
    return lambda: [handle.remove() for handle in handles]


def hook_of_all(p):
    return nn.modules.module.register_module_forward_hook(lambda module, given, result: (
        uneven(result) if isinstance(module, nn.Linear) else None)).remove


def pre_hook_of_all(p):
    return nn.modules.module.register_module_forward_pre_hook(lambda module, given: (
        (uneven(given[0]), *given[1:]) if "RMSNorm" in type(module).__name__ else None)).remove


@case("hooks", alone=True, compiles=False)
def of_gradients(p):
    seen = []
    p.model.requires_grad_(True)
    p.part(p.random.choice(("q", "mlp", "o"))).register_full_backward_hook(
        lambda module, given, result: seen.append(1))
    p.model(input_ids=p.ids(5), use_cache=False).logits.float().sum().backward()
    p.note("seen", lambda: seen)


table("hooks", {f"of {part}": hook(part) for part in (
    "q", "k", "o", "act", "mlp", "attention", "norm", "layer", "rotary", "model", "down", "head")})
table("hooks", {f"before {part}": pre_hook(part) for part in (
    "q", "o", "act", "mlp", "norm", "layer", "down", "head")})
table("hooks", {"in a dict of its own": lambda p: [
    (setattr(module, "_forward_hooks", collections.OrderedDict()),
     module.register_forward_hook(lambda module, given, result: uneven(result)))
    for module in [p.part(p.random.choice(("attention", "up", "q")))]]}, mixes=False)
table("hooks", {"of all": hook_of_all, "before all": pre_hook_of_all}, compiles=False)
table("hooks", {"that count": counting}, quiet=True, compiles=False)
table("hooks", {"that were there": lambda p: p.handle()},
      before=lambda p: setattr(p, "handle", hook("attention")(p)))


# Forwards.

def replace_forward(part):
    def change(p):
        module = p.part(part)
        own = module.forward
        module.forward = types.MethodType(
            lambda self, *given, **named: uneven(own(*given, **named)), module)
        return lambda: delattr(module, "forward")

    return change


def replace_class_forward(part):
    def change(p):
        kind = type(p.part(part))
        kind = getattr(sys.modules[kind.__module__], kind.__name__)  # as the library knows it
        replaced(p, kind, "forward", bent)

    return change


def replace_class(part):
    def change(p):
        module = p.part(part)
        return swapped(module, "__class__", type("Other", (type(module),), {
            "forward": bent(type(module).forward)}))

    return change


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *given, **named):
        return uneven(self.inner(*given, **named))

    def __getattr__(self, name):
        own = super().__getattr__
        return own(name) if name in ("inner", "_modules") else getattr(own("inner"), name)


def exchange(part, make):
    """Replaces a module where its parent holds it."""
    def change(p):
        module = p.part(part)
        parent, name = next((parent, name) for parent in p.model.modules()
                            for name, child in parent.named_children() if child is module)
        other = make(p, module)
        setattr(parent, name, other)
        return lambda: setattr(parent, name, module)

    return change


def negated_copy(p, module):
    other = copy.deepcopy(module)
    for value in [*other.parameters(), *other.buffers()]:
        value.copy_(p.fresh(value) if value.dim() > 1 else value * 0.5)
    return other


ANY = ("q", "k", "o", "down", "up", "norm", "act", "mlp", "attention", "layer", "rotary", "head")
table("forwards", {f"of {part} replaced": replace_forward(part) for part in (*ANY, "model")})
table("forwards", {f"{part} of another class": replace_class(part) for part in ANY})
table("forwards", {f"{part} wrapped": exchange(part, lambda p, m: Wrapped(m)) for part in ANY})
def another_activation(play):
    for module in play.layer().modules():
        for name in ("act_fn", "activation_fn"):
            if hasattr(module, name):
                return swapped(module, name, play.random.choice((nn.ReLU(), nn.Sigmoid())))
    raise Skip("its activation is a formula")


table("forwards", {f"{part} exchanged": exchange(part, negated_copy) for part in (
    "k", "norm", "mlp", "attention", "layer", "rotary")})
table("forwards", {
    "another activation": another_activation})
table("forwards", {f"of the class of {part} replaced": replace_class_forward(part) for part in (
    "q", "norm", "act", "mlp", "attention", "layer", "rotary", "model")}, mixes=False)
table("forwards", {
    "another epsilon": lambda p: [swapped(norm, name, 2.0) for norm in [p.part("norm")]
                                  for name in ("variance_epsilon", "eps") if hasattr(norm, name)],
    "apply_rotary_pos_emb replaced": lambda p: replaced(
        p, p.modeling, "apply_rotary_pos_emb", lambda own: lambda q, *more: own(uneven(q), *more)),
    "rotate_half replaced": lambda p: replaced(
        p, p.modeling, "rotate_half", lambda own: lambda x: -own(x)),
    "PyTorch's attention replaced": lambda p: replaced(
        p, functional if p.config._attn_implementation == "sdpa" else None,
        "scaled_dot_product_attention", bent)},
    mixes=False)


# Config and attributes.

def without_masks(p):
    if p.config._attn_implementation == "eager":
        raise Skip("its attention is causal by masks alone")
    return p.layer()


table("config", {
    "is_causal of an attention": lambda p: swapped(without_masks(p).self_attn, "is_causal", False),
    "is_causal of the config": lambda p: setattr(p.config, "is_causal", False),
    "scaling of an attention": lambda p: swapped(p.layer().self_attn, "scaling", 1.0)})
table("config", {
    "window of an attention": lambda p: setattr(p.layer().self_attn, "sliding_window", 3),
    "window of the config": lambda p: swapped(p.config, "sliding_window", 4),
    "use_cache of the config": lambda p: swapped(p.config, "use_cache", False),
    "output_attentions of the config": lambda p: setattr(p.config, "output_attentions", True),
    "training": lambda p: p.model.train() and (lambda: p.model.eval() and None),
    "an attention in training": lambda p: p.layer().self_attn.train()}, quiet=True)
table("config", {
    "groups of an attention": lambda p: swapped(p.layer().self_attn, "num_key_value_groups", 1),
    "head_dim of an attention": lambda p: swapped(p.layer().self_attn, "head_dim", 8),
    "dropout of an attention": lambda p: (
        setattr(p.config, "_attn_implementation", "eager"),
        swapped(attention, "attention_dropout", 0.999), attention.train())
    if [attention := p.layer().self_attn] else None}, quiet=True, mixes=False)
table("config", {"layer_idx of an attention": lambda p: swapped(
    p.base.layers[1].self_attn, "layer_idx", 0)}, quiet=True, mixes=False)
table("config", {"is_causal of the config, before": lambda p: p.get("k").neg_()},
      before=lambda p: setattr(p.config, "is_causal", False))


def arguments(**given):
    def look(p):
        p.look("without")
        p.look("with", **given)
        p.look("again")

    return look


table("config", {f"{name}={value} given": arguments(**{name: value}) for name, value in (
    ("is_causal", False), ("is_causal", True), ("sliding_window", 2), ("scaling", 2.0),
    ("logits_to_keep", 1), ("use_cache", True), ("kernwright_unknown", 1),
    ("cu_seq_lens_q", torch.tensor([0, 5], dtype=torch.int32)))}, alone=True, mixes=False)


@case("config", alone=True, compiles=False)
def other_outputs(p):
    def attentions():
        found = p.model(input_ids=p.ids(6), output_attentions=True).attentions or ()
        return [one if one is None else tuple(one.shape) for one in found]

    def given(count=6, **named):
        return p.model.get_input_embeddings()(p.ids(count))

    with torch.no_grad():
        p.note("attentions", attentions)
        p.note("hidden states", lambda: torch.stack(p.model(
            input_ids=p.ids(6), output_hidden_states=True).hidden_states))
        p.note("tuple", lambda: p.model(input_ids=p.ids(6), return_dict=False)[0])
        p.note("embeddings", lambda: p.model(inputs_embeds=given()).logits)
        p.note("both", lambda: p.model(input_ids=p.ids(3), inputs_embeds=given()).logits)
        p.note("empty", lambda: p.model(input_ids=p.ids(6)[:0], use_cache=False).logits)
        p.note("loss", lambda: p.model(input_ids=p.ids(6), labels=p.ids(6)).loss)
        with torch.autocast(p.device, dtype=torch.float16, enabled=not p.wide):
            p.note("autocast", lambda: p.model(input_ids=p.ids(6), use_cache=False).logits)
    with torch.inference_mode():
        p.look("inference")


def given(make):
    def look(p):
        p.stage = p.stage and "whole"
        with torch.no_grad():
            p.run("given whole", use_cache=False, **make(p))

    return look


def embedded(change):
    return given(lambda p: dict(inputs_embeds=change(p.model.get_input_embeddings()(p.ids(6)))))


table("inputs", {f"embeddings {name}": embedded(change) for name, change in {
    "at an odd address": at_odd_address,
    "transposed in memory": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "with gaps": lambda x: x.repeat(1, 1, 2)[..., :x.shape[-1]],
    "of another dtype": lambda x: x.half() if x.dtype is torch.bfloat16 else x,
    "of no sequences": lambda x: x[:0], "of no tokens": lambda x: x[:, :0]}.items()}, alone=True)
table("inputs", {"of no sequences": given(lambda p: dict(input_ids=p.ids(6)[:0]))}, alone=True)


# Implementations of attention.

def custom_attention(module, q, k, v, mask, scaling=None, **named):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    logits = (q @ k.transpose(2, 3)).float() * (scaling or q.shape[-1] ** -0.5) * 2.0
    seen = torch.ones_like(logits, dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    logits = logits.masked_fill(~seen, -torch.inf) if mask is None else logits
    return (logits.softmax(-1).to(q.dtype) @ v).transpose(1, 2).contiguous(), None


def implementation(name):
    def change(p):
        own = p.config._attn_implementation
        p.model.set_attn_implementation(name)
        return lambda: p.model.set_attn_implementation("eager" if own == name else own)

    return change


def registered(name):
    def change(p):
        functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
        own = functions[name] if name == "sdpa" else None
        if own and p.config._attn_implementation != name:
            raise Skip("is not computed by it")
        functions.register(name, custom_attention)
        if own:
            p.stack.callback(functions.register, name, own)
        else:
            p.model.set_attn_implementation(name)

    return change


def mapping_replaced(p):
    functions = mock.MagicMock(get_interface=lambda *_: custom_attention)
    functions.__getitem__.return_value = custom_attention
    if p.config._attn_implementation != "sdpa":
        raise Skip("is not computed by it")
    replaced(p, p.modeling, "ALL_ATTENTION_FUNCTIONS", lambda own: functions)


def own_config(p):
    attention = p.layer().self_attn
    attention.config = copy.deepcopy(attention.config)
    attention.config._attn_implementation = "eager"


def all_seen(own):
    """Makes masks through which everything is seen."""
    def make(*given, **named):
        values = [*given, *named.values()]
        x = next(v for v in values if isinstance(v, torch.Tensor) and v.dim() == 3)
        cache = next((v for v in values if isinstance(v, transformers.Cache)), None)
        seen = x.shape[1] if cache is None else cache.get_mask_sizes(x.shape[1], 0)[0]
        return torch.zeros((x.shape[0], 1, x.shape[1], seen), dtype=x.dtype, device=x.device)

    return make


def eager_replaced(p):
    p.model.set_attn_implementation("eager")
    replaced(p, p.modeling, "eager_attention_forward", lambda own: custom_attention)


table("attention", {
    "eager": implementation("eager"), "sdpa": implementation("sdpa"),
    "of the config alone": lambda p: swapped(p.config, "_attn_implementation", "eager"),
    "of one layer's config": own_config}, quiet=True)
table("attention", {name: implementation(name) for name in (
    "flash_attention_2", "nobody's", "flex_attention")}, quiet=True, mixes=False, compiles=False)
table("attention", {
    "registered": registered("kernwright_test"), "registered in place of sdpa": registered("sdpa"),
    "mapping replaced": mapping_replaced, "eager_attention_forward replaced": eager_replaced,
    "masks of a program's own": lambda p: replaced(p, p.modeling, "create_causal_mask", all_seen)},
    mixes=False)


# Rotary embeddings.

def frequencies(p):
    module = p.part("rotary")
    return module, p.random.choice(sorted(name for name, _ in module.named_buffers()
                                          if name.endswith("inv_freq") and "original" not in name))


def scaled_in_place(p):
    value = getattr(*frequencies(p)).mul_(0.25)
    return lambda: value.mul_(4)


table("rope", {
    "scaled in place": scaled_in_place,
    "scaled behind its version": lambda p: [value.data.mul_(0.25)
                                            for value in [getattr(*frequencies(p))]],
    "scaled by data": lambda p: [setattr(value, "data", value * 0.25)
                                 for value in [getattr(*frequencies(p))]],
    "replaced": lambda p: [swapped(module, name, getattr(module, name) * 3)
                           for module, name in [frequencies(p)]][0],
    "attention_scaling": lambda p: [
        swapped(module, name, 1.5) for module in [p.part("rotary")]
        for name in dir(module) if name.endswith("attention_scaling")][0]})


def look_far(p):
    p.look("short")
    with torch.no_grad():
        p.run("long whole", input_ids=p.ids(70), use_cache=False)
        p.walk("long", "dynamic", ((0, 62), (62, 66), (66, 70), (70, 71)))
        p.walk("long", "static", ((0, 60), (60, 70), (70, 71)), cache=p.cache("static", 96))
    p.look("again")


for rope in (dict(rope_type="default"), dict(rope_type="linear", factor=4.0),
             dict(rope_type="dynamic", factor=4.0),
             dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
             dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=16)):
    table("rope", {f"of the kind {rope['rope_type']}": look_far}, alone=True, mixes=False,
          config=dict(rope_parameters=dict(rope, rope_theta=1e4)))
table("rope", {"beyond the positions of the config": look_far}, alone=True, mixes=False,
      config=dict(max_position_embeddings=8))


# Moves of dtype.

def moves(*dtypes, part=None):
    def move(p):
        module = p.part(part) if part else p.model  # of the same layer in the wide model
        for dtype in () if p.wide else dtypes:
            module.to(dtype)

    return move


half, wide, own = torch.float16, torch.float32, torch.bfloat16
table("moves", {
    "to half": moves(half), "to float": moves(wide), "to double": moves(torch.float64),
    "to half and back": moves(half, own), "to float and back": moves(wide, own),
    "attention there and back": moves(half, own, part="attention"),
    "embedding in float, and no more": lambda p: moves(wide, part="embed")(p) or (
        lambda: moves(own, part="embed")(p))}, quiet=True)
table("moves", {f"{part} to float": moves(wide, part=part) for part in (
    "attention", "mlp", "k", "norm", "head", "layer")}, quiet=True, mixes=False)
table("moves", {"by _apply": lambda p: p.layer()._apply(lambda value: -value)})
table("moves", {
    "to meta": lambda p: p.model.to("meta"),
    "with swapped tensors": lambda p: (
        p.stack.callback(torch.__future__.set_swap_module_params_on_conversion, False),
        torch.__future__.set_swap_module_params_on_conversion(True), moves(half)(p))},
    quiet=True, mixes=False)


# Copies.

def copy_changed(p):
    other = copy.deepcopy(p.model)
    for path, value in other.named_parameters():
        if "_proj" in path:
            value.copy_(p.fresh(value))
    p.look("the model")
    p.model = other


def changed_under_a_copy(p):
    mine, other = p.model, copy.deepcopy(p.model)
    mine.load_state_dict(p.fresh_state(), assign=p.random.random() < 0.5)
    p.look("copied", call=other)
    p.look("mine")


def copy_loads(p):
    p.model = copy.deepcopy(p.model)
    p.model.load_state_dict(p.fresh_state(), assign=True)


def shallow(p):
    p.model = copy.copy(p.model)
    p.get("v").neg_()


def pickled(p):
    """May be refused, but not be something else."""
    try:
        p.model = pickle.loads(pickle.dumps(p.model))
    except Exception:
        if not p.patched:
            raise
    p.get("k").neg_()


def again(p):
    if p.patched:
        p.report.undo()
    p.look("taken back")
    p.put("k", p.fresh)
    if p.patched:
        kw.patch(p.model)


def called_with(p):
    state = p.fresh_state()
    p.look("before")
    with torch.no_grad():
        p.walk("called", "static", call=lambda **given: torch.func.functional_call(
            p.model, state, (), given))
    p.look("after")


def state_taken(p):
    state = copy.deepcopy(p.model.state_dict())
    p.note("names", lambda: sorted(state))
    p.model.load_state_dict(p.fresh_state())
    p.look("other")
    p.model.load_state_dict(state)


def as_vector(p):
    vector = nn.utils.parameters_to_vector(p.model.parameters())
    nn.utils.vector_to_parameters(vector, p.model.parameters())
    vector.mul_(0.5 + torch.rand(vector.shape, generator=p.generator).bfloat16().to(vector))


table("copies", {"a copy changed": copy_changed, "changed under a copy": changed_under_a_copy,
                 "a copy loads": copy_loads})
table("copies", {"shallow": shallow, "pickled": pickled, "taken back and patched again": again,
                 "as a vector": as_vector}, mixes=False)
table("copies", {"shared memory": lambda p: p.model.share_memory(), "a state taken": state_taken},
      quiet=True)
table("copies", {"functional_call": called_with}, alone=True, mixes=False, compiles=False)


# Savers and loaders.

def read(folder):
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        if path.endswith(".safetensors"):
            found.update(safetensors.torch.load_file(path))
        elif path.endswith(".pt"):
            found.update(torch.load(path))
    return found


def saver(save):
    def change(p):
        p.model.load_state_dict(p.fresh_state(), strict=False)
        p.look("filled")
        with tempfile.TemporaryDirectory() as folder:
            if not p.note("save", lambda: save(p, folder) and None):
                return
            found = read(folder)
        state = {name: value.cpu() for name, value in p.model.state_dict().items()}
        p.note("values", lambda: {name: name in state and torch.equal(value, state[name])
                                  for name, value in sorted(found.items())})
        p.note("missing", lambda: sorted(set(state) - set(found)))

    return change


def save_model(p, folder):
    safetensors.torch.save_model(p.model, f"{folder}/model.safetensors")


table("savers", {name: saver(save) for name, save in {
    "save_pretrained": lambda p, folder: p.model.save_pretrained(folder),
    "save_pretrained in shards": lambda p, folder: p.model.save_pretrained(
        folder, max_shard_size="20KB"),
    "save_pretrained after assign": lambda p, folder: p.model.load_state_dict(
        p.fresh_state(), assign=True) and p.model.save_pretrained(folder),
    "save_model after a move": lambda p, folder: save_model(p, p.model.to(p.dtype) and folder),
    "save_model": save_model,
    "save_file": lambda p, folder: safetensors.torch.save_file(
        p.model.state_dict(), f"{folder}/model.safetensors"),
    "accelerate": lambda p, folder: accelerate.Accelerator(cpu=p.device == "cpu").save_model(
        p.model, folder),
    "torch.save": lambda p, folder: torch.save(p.model.state_dict(), f"{folder}/model.pt"),
}.items()}, quiet=True, compiles=False)
table("savers", {"save_model with tied weights": saver(save_model)}, quiet=True, compiles=False,
      config=dict(tie_word_embeddings=True))


def loader(load):
    def change(p):
        with tempfile.TemporaryDirectory() as folder:
            twin = p.twin()
            twin.load_state_dict(p.fresh_state())
            twin.save_pretrained(folder)
            load(p, folder, twin)

    return change


def through_disk(p, folder, twin):
    p.model.load_state_dict(twin.state_dict())
    p.model.save_pretrained(folder)
    p.model = type(twin).from_pretrained(folder, dtype=p.dtype).to(p.device)


table("savers", {
    "load_model": loader(lambda p, folder, twin: safetensors.torch.load_model(
        p.model, f"{folder}/model.safetensors")),
    "load_checkpoint": loader(lambda p, folder, twin: accelerate.load_checkpoint_in_model(
        p.model, folder))})
table("savers", {
    "offloaded": loader(lambda p, folder, twin: p.model.load_state_dict(
        twin.state_dict()) and accelerate.cpu_offload(p.model, torch.device(p.device))),
    "dispatched": loader(lambda p, folder, twin: p.model.load_state_dict(
        twin.state_dict()) and accelerate.dispatch_model(
            p.model, {"": p.device}, p.device, force_hooks=True)),
    "saved and loaded again": loader(through_disk)}, mixes=False)


# Caches.

def plan(kind, *steps, **named):
    @torch.no_grad()
    def look(p):
        p.walk(kind, kind, steps, **{
            key: lambda begin, end, value=value: value(p, begin, end)
            for key, value in named.items()})

    return look


def padded(*at):
    def mask(p, begin, end):
        mask = torch.ones(BATCH, end, dtype=torch.long, device=p.device)
        mask[1, at[0]:at[1]] = 0
        return mask

    return mask


def four(kind, additive, odd):
    """A mask of four dimensions: causal, and with holes if it is odd."""
    def mask(p, begin, end):
        rows = torch.arange(begin, end)[:, None]
        columns = torch.arange(PLACES if kind == "static" else end)[None]
        seen = (columns <= rows) & ((columns % 3 != 1) | (columns == rows) | (not odd))
        seen = seen[None, None].expand(BATCH, 1, -1, -1).to(p.device)
        return torch.zeros((), dtype=p.dtype, device=p.device).masked_fill(
            ~seen, torch.finfo(p.dtype).min) if additive else seen

    return mask


SINGLE = tuple((i, i + 1) for i in range(4, 12))
CHUNKS = ((0, 3), (3, 5), (5, 9), (9, 10), (10, 16))
for kind in ("static", "dynamic", "bare"):
    table("caches", {f"{name}, {kind}": plan(kind, *steps, **named) for name, steps, named in (
        ("step by step", ((0, 4), *SINGLE), {}), ("chunks", CHUNKS, {}),
        ("from the first token", ((0, 1), (1, 2), (2, 3)), {}),
        ("to the last place", ((0, 14), (14, 15), (15, 16)), {}),
        ("shifted positions", CHUNKS, dict(position_ids=lambda p, begin, end: torch.arange(
            begin + 7, end + 7, device=p.device)[None])),
        ("positions of each", CHUNKS, dict(position_ids=lambda p, begin, end: torch.arange(
            begin, end, device=p.device)[None] + torch.tensor([[0], [9], [4]], device=p.device))),
        ("not padded", CHUNKS, dict(attention_mask=padded(0, 0))),
        ("padded left", CHUNKS, dict(attention_mask=padded(0, 2))),
        ("padded right", CHUNKS, dict(attention_mask=padded(2, 3))),
        *((f"mask of four dimensions, additive={a}, odd={o}", CHUNKS, dict(
            attention_mask=four(kind, a, o))) for a in (False, True) for o in (False, True)))},
        alone=True)


def walks(**options):
    return lambda function: case("caches", alone=True, **options)(torch.no_grad()(function))


@walks(compiles=False, asserts=True)
def beyond_the_last_place(p):
    """An error before anything is written; its class is not compared."""
    cache = p.walk("filled", "static", ((0, 7), (7, 8)), cache=p.cache("static", 8))
    if cache.layers[0].keys is None:
        return  # the model failed before it wrote anything
    kept = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]
    for count in (1, 3):
        try:
            p.model(input_ids=p.ids(20)[:, 8:8 + count], past_key_values=cache)
            refused = p.name in SLIDING
        except Exception:
            refused = True
        p.note(f"refused {count}", lambda: refused)
    p.note("kept", lambda: not p.patched or p.name in SLIDING or all(
        torch.equal(layer.keys, keys) and torch.equal(layer.values, values)
        for layer, (keys, values) in zip(cache.layers, kept)))
    p.walk("again", "static", ((0, 5), (5, 6)))


@walks()
def reset_and_cropped(p):
    cache = p.walk("first", "static")
    cache.reset()
    p.seed += 1
    p.walk("second", "static", cache=cache)
    cache = p.walk("third", "dynamic", ((0, 8), (8, 9)))
    try:
        cache.crop(-4)
    except RuntimeError:  # transformers 5.24: a full sliding window cannot go back
        return
    p.seed += 1
    p.walk("cropped", "dynamic", ((0, 3), (3, 4)), cache=cache)


@walks(compiles=False)
def sequences_changed(p):
    for kind in ("dynamic", "static"):
        cache = p.walk(kind, kind, ((0, 6), (6, 7)))
        cache.reorder_cache(torch.tensor([1, 1, 0], device=p.device))
        p.run("reordered", input_ids=p.ids(8)[:, 7:], **{CACHE: cache})
    cache = p.walk("repeated", "dynamic", ((0, 6),))
    cache.batch_repeat_interleave(2)
    p.run("repeated", input_ids=p.ids(1, batch=2 * BATCH), **{CACHE: cache})


@walks(compiles=False)
def handed_to_another_model(p):
    """Begun by one, gone on by a model that is not patched, and by this again."""
    twin, ids = p.twin(), p.ids(12)
    for kind in ("dynamic", "static"):
        for order in ((p.model, twin, p.model), (twin, p.model, twin)):
            cache = p.cache(kind)
            for model, (begin, end) in zip(order, ((0, 6), (6, 7), (7, 8))):
                p.run(f"{kind} {end}", model, input_ids=ids[:, begin:end], past_key_values=cache)


@walks(compiles=False)
def branched(p):
    for kind in ("dynamic", "static"):
        cache = p.walk(kind, kind, ((0, 6), (6, 7)))
        other, ids = copy.deepcopy(cache), p.ids(4, seed=5)
        for i in range(3):
            p.run("branch one", input_ids=ids[:, i:i + 1], **{CACHE: cache})
            p.run("branch two", input_ids=ids[:, i + 1:i + 2], **{CACHE: other})


@walks(compiles=False)
def changed_by_the_program(p):
    for kind in ("dynamic", "static"):
        cache = p.walk(kind, kind, ((0, 6), (6, 7)))
        p.note("negate", lambda cache=cache: [
            layer.values.neg_() for layer in cache.layers] and None)
        p.run("negated", input_ids=p.ids(8)[:, 7:], **{CACHE: cache})
        p.note("replace", lambda cache=cache: [
            setattr(layer, "keys", layer.keys * 0.5) for layer in cache.layers] and None)
        p.run("replaced", input_ids=p.ids(9)[:, 8:], **{CACHE: cache})
    for layer in cache.layers:
        if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
            layer.cumulative_length.fill_(4)
    for i in (9, 10):
        p.run("set back", input_ids=p.ids(12)[:, i:i + 1], past_key_values=cache)


@walks(compiles=False)
def other_shapes(p):
    cache = p.walk("first", "static", ((0, 6), (6, 7)))
    p.run("another batch", input_ids=p.ids(1, batch=BATCH + 1), past_key_values=cache)
    cache = p.cache("static")
    p.run("one", input_ids=p.ids(6, batch=1), past_key_values=cache)
    p.run("more", input_ids=p.ids(1), past_key_values=cache)
    p.walk("long", "static", ((0, 60), (60, 70), (70, 71)), cache=p.cache("static", 80))
    cache = p.cache("static")
    cache.early_initialization(BATCH, p.config.num_key_value_heads, p.config.head_dim,
                               torch.float32, torch.device(p.device))
    p.walk("wider", "static", cache=cache)
    config = copy.deepcopy(p.config)
    config.num_hidden_layers = 1
    config.layer_types = (getattr(config, "layer_types", None) or ["full_attention"])[:1]
    p.note("short", lambda: p.walk("short", "static", cache=transformers.StaticCache(
        config=config, max_cache_len=PLACES)) and None)


class Forced(transformers.LogitsProcessor):
    """Makes generate() go on with these tokens."""

    def __init__(self, ids):
        self.ids = ids

    def __call__(self, ids, scores):
        place = ids.shape[1]
        return torch.full_like(scores, -1e9).scatter_(1, self.ids[:, place:place + 1], 0)


def generate(p, label, prompt=5, **named):
    ids = p.ids(24)
    with torch.no_grad():
        p.note(f"generate {label}", lambda: torch.stack(p.model.generate(
            ids[:, :prompt], max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None,
            output_logits=True, return_dict_in_generate=True, disable_compile=True,
            logits_processor=[Forced(ids)], **named).logits))


@case("caches", alone=True, compiles=False)
def generated(p):
    mask = padded(0, 2)(p, 0, 5)
    for kind in (None, "static", "dynamic", "quantized", "offloaded"):
        generate(p, kind, cache_implementation=kind)
        generate(p, f"padded {kind}", cache_implementation=kind, attention_mask=mask)
        generate(p, f"one token {kind}", 1, cache_implementation=kind)
    generate(p, "in chunks", prefill_chunk_size=2)
    generate(p, "no cache", use_cache=False)
    generate(p, "prompt lookup", prompt_lookup_num_tokens=2)
    cache = p.cache("static", 24)
    generate(p, "own cache", past_key_values=cache)
    generate(p, "own cache goes on", 14, past_key_values=cache)
