"""Guards of patched models that live long: after each of many random changes they say what a guard
says that compares for the first time."""

import collections
import random

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from kernwright import torch as kw
from kernwright.torch._guards import Look

pytest.importorskip("transformers")

from test_patch import Doubled, language_model, replace_dict  # noqa: E402


class Negated(nn.Module):
    def forward(self, weight):
        return -weight


def negate(module):
    parametrize.register_parametrization(module, "weight", Negated())


def negate_for_a_moment(module):
    negate(module)
    parametrize.remove_parametrizations(module, "weight")


def wrap_for_a_moment(module):
    module.forward = module.forward
    del module.forward


def set_class_forward(module):
    kind = type(module.act_fn)
    forward = kind.forward
    kind.forward = lambda self, x: x
    kind.forward = forward


OF_LAYERS = [
    lambda layer: layer.mlp.register_forward_hook(lambda *_: None),
    lambda layer: layer.mlp.register_forward_pre_hook(lambda *_: None).remove(),
    lambda layer: layer.self_attn.q_proj.register_forward_hook(lambda *_: None).remove(),
    lambda layer: setattr(layer.self_attn, "_forward_hooks", collections.OrderedDict()),
    lambda layer: layer.self_attn._forward_hooks.clear(),
    lambda layer: layer.mlp._forward_hooks.popitem(),
    lambda layer: layer.mlp._forward_hooks.move_to_end(next(iter(layer.mlp._forward_hooks))),
    lambda layer: negate(layer.self_attn.k_proj),
    lambda layer: negate_for_a_moment(layer.self_attn.o_proj),
    lambda layer: replace_dict(layer.self_attn.v_proj),
    lambda layer: setattr(layer.mlp, "__dict__", dict(vars(layer.mlp))),
    lambda layer: setattr(layer.self_attn.q_proj, "__class__", nn.Linear),
    lambda layer: setattr(layer.mlp, "forward", lambda x: x),
    lambda layer: wrap_for_a_moment(layer.mlp),
    lambda layer: set_class_forward(layer.mlp),
    lambda layer: setattr(layer.self_attn, "v_proj", Doubled(layer.self_attn.v_proj)),
    lambda layer: setattr(layer.self_attn.k_proj, "weight", nn.Parameter(
        layer.self_attn.k_proj.weight.flip(0), requires_grad=False)),
    lambda layer: setattr(layer.self_attn.k_proj, "bias", nn.Parameter(
        layer.self_attn.k_proj.weight[:, 0].clone(), requires_grad=False)),
    lambda layer: setattr(layer.mlp.up_proj.weight, "data", layer.mlp.up_proj.weight * 2),
    lambda layer: setattr(layer.self_attn, "scaling", random.choice((0.25, 1.0))),
    lambda layer: setattr(layer.self_attn, "something", 1),
    lambda layer: delattr(layer.self_attn, "something"),
    lambda layer: object.__setattr__(layer.self_attn, "is_causal", True),
    lambda layer: object.__delattr__(layer.self_attn, "is_causal"),
    lambda layer: vars(layer.mlp).update(hidden_size=64),
    lambda layer: vars(layer.mlp.act_fn).clear(),
    lambda layer: layer.train(random.random() < 0.5),
    lambda layer: layer.zero_grad()]
OF_MODELS = [
    lambda model: setattr(model.config, "use_cache", False),
    lambda model: setattr(model.config, "is_causal", False),
    lambda model: vars(model.config).pop("is_causal", None),
    lambda model: vars(model.config).update(problem_type=None),
    lambda model: model.set_attn_implementation(random.choice(("eager", "sdpa"))),
    lambda model: setattr(functional, "silu", functional.silu),
    lambda model: nn.modules.module.register_module_forward_hook(lambda *_: None).remove(),
    lambda model: model.load_state_dict(model.state_dict(), assign=True),
    lambda model: setattr(model.model, "layers", nn.ModuleList(list(model.model.layers)[::-1])),
    lambda model: model.model.layers.append(model.model.layers[0]),
    lambda model: model.to(random.choice((torch.float16, torch.bfloat16)))]


@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_guards_that_live_see_what_those_that_look_first_see(on_cpu, seed):
    held, broken = 0, 0
    random.seed(seed)
    for _ in range(3):
        model = language_model("Qwen3")
        kw.patch(model)
        root, unused = model.model, []
        for _ in range(60):
            if not unused:
                try:
                    look = Look(root, root._kernwright._parts(root), root._kernwright._functions)
                except (AttributeError, TypeError):  # a part is gone
                    break
                kept, unused = look.guard(), [look.guard() for _ in range(30)]
            holds = kept.holds(vars(root))
            assert holds is unused.pop().holds(vars(root))
            held, broken = held + holds, broken + (not holds)
            if not holds and random.random() < 0.3:
                unused = []
            of_layer = random.random() < 0.8
            try:
                random.choice(OF_LAYERS if of_layer else OF_MODELS)(
                    random.choice(model.model.layers) if of_layer else model)
            except (AttributeError, KeyError, RuntimeError, StopIteration, TypeError, ValueError):
                pass  # an earlier change took what this one needs
    assert held and broken
