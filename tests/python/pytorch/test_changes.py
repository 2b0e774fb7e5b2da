"""What others change of a patched model: it computes what the unpatched one does with the same
change, called as it is and compiled before the change."""

import collections
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernwright import torch as kw

transformers = pytest.importorskip("transformers")

from test_patch import decode, language_model, relative, static_cache, tokens  # noqa: E402


def attention_of(model):
    return model.model.layers[1].self_attn


def mlp_of(model):
    return model.model.layers[1].mlp


def other(tensor, seed=9):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(tensor.shape, generator=generator) * tensor.shape[-1] ** -0.5).to(
        tensor.dtype)


def replace_weight(module):
    module.weight = nn.Parameter(other(module.weight), requires_grad=False)


def replace_data(module):
    module.weight.data = other(module.weight)


def others_of(model):
    return {name: other(value, len(name)) if value.dim() > 1 else value * 1.5
            for name, value in model.state_dict().items()}


def adapt(name, merge=False):
    def change(model):
        peft = pytest.importorskip("peft")
        torch.manual_seed(5)
        adapted = peft.get_peft_model(model, peft.LoraConfig(
            target_modules=[name], init_lora_weights=False, r=4, lora_alpha=32))
        for parameter in adapted.parameters():
            parameter.requires_grad_(False)
        if merge:
            adapted.merge_and_unload(safe_merge=merge == "safe")
    return change


def wrap_forward(module, factor=2):
    forward = module.forward

    def wrapped(*given, **named):
        result = forward(*given, **named)
        return (result[0] * factor, *result[1:]) if isinstance(result, tuple) else result * factor

    module.forward = wrapped


def hooked(module, pre=False):
    if pre:
        module.register_forward_pre_hook(lambda _, given: (given[0] * 2, *given[1:]))
    else:
        module.register_forward_hook(lambda _, given, result: (
            (result[0] * 2, *result[1:]) if isinstance(result, tuple) else result * 2))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def swap_class(model):
    attention_of(model).v_proj.__class__ = Doubled


def parametrize(model):
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    torch.nn.utils.parametrize.register_parametrization(
        attention_of(model).k_proj, "weight", Twice())


def set_layer_types(model):
    model.config.layer_types = ["full_attention", "sliding_attention"]


CHANGES = {
    **{f"weight of {name}": lambda m, name=name: replace_weight(getattr(attention_of(m), name))
       for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    **{f"weight of {name}": lambda m, name=name: replace_weight(getattr(mlp_of(m), name))
       for name in ("gate_proj", "up_proj", "down_proj")},
    "data of k_proj": lambda m: replace_data(attention_of(m).k_proj),
    "data of up_proj": lambda m: replace_data(mlp_of(m).up_proj),
    "weights in place": lambda m: [attention_of(m).v_proj.weight.mul_(2),
                                   mlp_of(m).up_proj.weight.data.mul_(2)],
    "norm in place": lambda m: m.model.layers[0].input_layernorm.weight.mul_(1.5),
    "load": lambda m: m.load_state_dict(others_of(m)),
    "load by assigning": lambda m: m.load_state_dict(others_of(m), assign=True),
    **{f"adapter of {name}": adapt(name) for name in (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
    "adapter that is merged": adapt("v_proj", merge=True),
    "adapter that is merged safely": adapt("k_proj", merge="safe"),
    "forward of mlp": lambda m: wrap_forward(mlp_of(m)),
    "forward of self_attn": lambda m: wrap_forward(attention_of(m)),
    "forward of q_proj": lambda m: wrap_forward(attention_of(m).q_proj),
    "forward of down_proj": lambda m: wrap_forward(mlp_of(m).down_proj),
    "forward of a norm": lambda m: wrap_forward(m.model.layers[1].input_layernorm),
    "forward of rotary_emb": lambda m: wrap_forward(m.model.rotary_emb, 0.5),
    "forward of the layer": lambda m: wrap_forward(m.model.layers[1]),
    "forward of act_fn": lambda m: wrap_forward(mlp_of(m).act_fn),
    "hook on q_proj": lambda m: hooked(attention_of(m).q_proj),
    "hook on self_attn": lambda m: hooked(attention_of(m)),
    "hook before mlp": lambda m: hooked(mlp_of(m), pre=True),
    "hook before up_proj": lambda m: hooked(mlp_of(m).up_proj, pre=True),
    "hook before the layer": lambda m: hooked(m.model.layers[1], pre=True),
    "hook behind the layer": lambda m: hooked(m.model.layers[1]),
    "hook on a norm": lambda m: hooked(m.model.layers[1].post_attention_layernorm),
    "is_causal of attention": lambda m: setattr(attention_of(m), "is_causal", False),
    "is_causal of the config": lambda m: setattr(m.config, "is_causal", False),
    "attention implementation": lambda m: m.set_attn_implementation("eager"),
    "scaling": lambda m: setattr(attention_of(m), "scaling", 1.0),
    "layer_idx": lambda m: setattr(attention_of(m), "layer_idx", 0),
    "epsilon": lambda m: setattr(m.model.layers[0].input_layernorm, "variance_epsilon", 0.5),
    "act_fn": lambda m: setattr(mlp_of(m), "act_fn", nn.Tanh()),
    "bias of v_proj": lambda m: setattr(attention_of(m).v_proj, "bias",
                                        nn.Parameter(torch.ones(32).bfloat16(), False)),
    "biases of q, k and v": lambda m: [setattr(part, "bias", nn.Parameter(
        torch.ones(part.weight.shape[0]).bfloat16(), False)) for part in (
            attention_of(m).q_proj, attention_of(m).k_proj, attention_of(m).v_proj)],
    "bias of down_proj": lambda m: setattr(mlp_of(m).down_proj, "bias",
                                           nn.Parameter(torch.ones(64).bfloat16(), False)),
    "bias of gate_proj": lambda m: setattr(mlp_of(m).gate_proj, "bias",
                                           nn.Parameter(torch.ones(96).bfloat16(), False)),
    "inv_freq in place": lambda m: m.model.rotary_emb.inv_freq.mul_(0.5),
    "inv_freq behind its version": lambda m: m.model.rotary_emb.inv_freq.data.mul_(0.5),
    "inv_freq": lambda m: setattr(m.model.rotary_emb, "inv_freq",
                                  m.model.rotary_emb.inv_freq * 0.5),
    "attention_scaling": lambda m: setattr(m.model.rotary_emb, "attention_scaling", 0.5),
    "halves of angles": lambda m: m.model.rotary_emb.register_forward_hook(
        lambda _, given, angles: None if angles[0] is None else tuple(
            torch.cat((table[..., :8], 0.5 * table[..., 8:]), -1) for table in angles)),
    "class of v_proj": swap_class,
    "parametrization": parametrize,
    "module in the place of o_proj": lambda m: setattr(
        attention_of(m), "o_proj", nn.Sequential(attention_of(m).o_proj, nn.Tanh())),
    "one layer fewer": lambda m: setattr(m.config, "num_hidden_layers", 1),
    "layers that change places": lambda m: m.model.layers.__init__(list(m.model.layers)[::-1]),
    "conversion": lambda m: m.to(torch.float16),
    "full precision": lambda m: m.float(),
    "a dict of a module written to": lambda m: vars(mlp_of(m)).update(forward=lambda x: x),
    "another dict of hooks": lambda m: [
        setattr(attention_of(m), "_forward_hooks", collections.OrderedDict()),
        hooked(attention_of(m))],
    "there and back": lambda m: [m.train(), m.eval()],
}


def everything(model, ids, call=None):
    """Logits of a prefill, of one into a cache with decode steps, and of a chunk."""
    call = model if call is None else call
    whole = call(ids, use_cache=False).logits
    cache = static_cache(model, ids.shape[0])
    if model.dtype is not torch.bfloat16:
        cache = transformers.StaticCache(config=model.config, max_cache_len=24)
    steps = [call(ids[:, :5], past_key_values=cache).logits]
    for i in range(5, 8):
        steps.append(call(ids[:, i:i + 1], past_key_values=cache).logits)
    steps.append(call(ids[:, 8:], past_key_values=cache).logits)
    return torch.cat((whole, *steps), 1)


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_change(on_cpu, family, name):
    ids = tokens(2, 10)
    patched, unpatched = language_model(family), language_model(family)
    report = kw.patch(patched)
    before = everything(patched, ids)
    assert relative(before, everything(unpatched, ids)) < 0.03
    CHANGES[name](patched)
    CHANGES[name](unpatched)
    expected = everything(unpatched, ids)
    assert relative(everything(patched, ids), expected) < 0.03, report
    assert name in ("there and back", "layer_idx") or relative(expected, before) > 0.001
    copied = copy.deepcopy(patched)
    assert relative(everything(copied, ids), expected) < 0.03


@pytest.mark.parametrize("name", [
    "load by assigning", "adapter of v_proj", "forward of mlp", "hook before up_proj",
    "is_causal of the config", "inv_freq behind its version"])
@torch.no_grad()
def test_change_after_compiling(on_cpu, name):
    ids = tokens(2, 6)
    patched, unpatched = language_model("Llama"), language_model("Llama")
    kw.patch(patched)
    compiled = torch.compile(patched, backend="eager", dynamic=False)

    def logits(model, call):
        cache = static_cache(model, 2)
        model(ids[:, :5], past_key_values=cache)
        return torch.cat((call(ids, use_cache=False).logits,
                          call(ids[:, 5:], past_key_values=cache).logits), 1)

    assert relative(logits(patched, compiled), logits(unpatched, unpatched)) < 0.03
    assert "append_attention" in on_cpu
    CHANGES[name](patched)
    CHANGES[name](unpatched)
    assert relative(logits(patched, compiled), logits(unpatched, unpatched)) < 0.03


@torch.no_grad()
def test_one_part_in_another_dtype_is_refused_as_before(on_cpu):
    for part in (lambda m: attention_of(m).k_proj, lambda m: mlp_of(m).up_proj,
                 lambda m: mlp_of(m).down_proj, lambda m: m.model.embed_tokens):
        patched, ids = language_model("Llama"), tokens(2, 10)
        kw.patch(patched)
        part(patched).half()
        with pytest.raises(RuntimeError, match="same dtype|expected m"):
            everything(patched, ids)


def test_inference_mode(on_cpu):
    patched, ids = language_model("Llama"), tokens(2, 8)
    with torch.inference_mode():
        expected, _ = decode(patched, ids)
        kw.patch(patched)
        on_cpu.clear()
        assert relative(decode(patched, ids)[0], expected) < 0.03
    assert "append_attention" in on_cpu


@torch.no_grad()
def test_a_registry_that_is_replaced(on_cpu, monkeypatch):
    patched, ids = language_model("Llama"), tokens(2, 8)
    expected = patched(ids).logits
    kw.patch(patched)

    class Registry:
        _global_mapping = None

        def get_interface(self, name, default):
            return lambda *given, **named: (2 * default(*given, **named)[0], None)

    modeling = transformers.models.llama.modeling_llama
    monkeypatch.setattr(modeling, "ALL_ATTENTION_FUNCTIONS", Registry())
    assert relative(patched(ids).logits, expected) > 0.03
