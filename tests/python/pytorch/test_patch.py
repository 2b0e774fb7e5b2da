"""kernwright.torch.patch on small models: what it replaces, what it leaves and why, and that results
stay what they were. What is done to a model while it is in use is compared by tests/python/patch; the
core of that is here."""

import collections
import copy

import pytest
import torch
from torch import nn

import kernwright
from kernwright import torch as kw


class TinyRMSNorm(nn.Module):
    def __init__(self, columns, eps=1e-5, offset=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, columns))
        self.variance_epsilon, self.offset = eps, offset

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return ((self.weight.float() + self.offset) * wide).to(x.dtype)


class TinyMLP(nn.Module):
    def __init__(self, act=nn.SiLU(), bias=False, swapped=False):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(16, 24, bias=bias), nn.Linear(16, 24, bias=bias)
        self.down_proj = nn.Linear(24, 16, bias=False)
        self.act_fn, self.swapped = act, swapped

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.swapped:
            gate, up = up, gate
        return self.down_proj(self.act_fn(gate) * up)


class Tiny(nn.Module):
    def __init__(self, **mlp):
        super().__init__()
        self.norm, self.mlp, self.head = TinyRMSNorm(16), TinyMLP(**mlp), nn.Linear(16, 8)

    def forward(self, x):
        return self.head(x + self.mlp(self.norm(x)))


def tiny(**mlp):
    torch.manual_seed(1)
    return Tiny(**mlp).to(torch.bfloat16).requires_grad_(False)


def rows(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)


def relative(result, expected):
    return float((result.float() - expected.float()).norm() / expected.float().norm())


def near(result, expected):
    assert result.shape == expected.shape and relative(result, expected) < 0.03


def row(report, name, op=None):
    return next(found for found in report.rows
                if found.name == name and (op is None or found.op == op))


def test_replaced_and_taken_back(on_cpu):
    model, x = tiny(), rows(3, 16)
    expected, before = model(x), {name: id(value) for name, value in model.named_parameters()}
    kinds = [type(module) for module in model.modules()]
    report = kw.patch(model)
    assert on_cpu == []  # to look at modules launches no kernel
    near(model(x), expected)
    assert sorted(set(on_cpu)) == ["gated_linear", "linear", "rms_norm"]
    assert {found.name for found in report.replaced} == {
        "norm", "mlp", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "head"}
    assert {name: id(value) for name, value in model.named_parameters()} == before
    assert isinstance(model.head, nn.Linear) and type(model.head).__name__ == "Linear"
    assert set(model.state_dict()) == set(tiny().state_dict())
    report.undo()
    assert [type(module) for module in model.modules()] == kinds
    assert not list(model.buffers())
    assert not any("kernwright" in name for module in model.modules() for name in vars(module))
    on_cpu.clear()
    torch.testing.assert_close(model(x), expected)
    assert on_cpu == []
    kw.patch(model)
    kw.unpatch(model)
    assert [type(module) for module in model.modules()] == kinds


def follow_each_other(first, second):
    return first.data_ptr() + first.numel() * first.element_size() == second.data_ptr()


def test_gate_and_up_lie_together_in_storages_of_their_own(on_cpu):
    model, x = tiny(), rows(3, 16)
    report = kw.patch(model)
    mlp = model.mlp
    gate, up = mlp.gate_proj.weight, mlp.up_proj.weight
    assert "moved into one allocation" in row(report, "mlp").reason
    assert follow_each_other(gate, up)
    assert gate.untyped_storage().nbytes() == up.untyped_storage().nbytes() == 24 * 16 * 2
    assert gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr()
    # What is loaded or trained is what the kernel reads.
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})
    reference = tiny()
    reference.load_state_dict(model.state_dict())
    near(model(x), reference(x))
    report.undo()
    assert not follow_each_other(gate, up)


@pytest.mark.parametrize("hold", [
    lambda weight: weight.data,
    lambda weight: setattr(weight, "data", torch.cat((weight, weight))[:24])])
def test_memory_that_others_hold_is_not_moved(on_cpu, hold):
    model, x = tiny(), rows(3, 16)
    held = hold(model.mlp.up_proj.weight)
    place = model.mlp.up_proj.weight.data_ptr()
    report = kw.patch(model)
    assert row(report, "mlp").replaced and "moved" not in row(report, "mlp").reason
    assert model.mlp.up_proj.weight.data_ptr() == place
    near(model(x), tiny()(x))


def test_views_of_one_tensor_are_taken_as_they_are(on_cpu):
    model = tiny()
    both = torch.cat((model.mlp.gate_proj.weight, model.mlp.up_proj.weight))
    model.mlp.gate_proj.weight = nn.Parameter(both[:24], requires_grad=False)
    model.mlp.up_proj.weight = nn.Parameter(both[24:], requires_grad=False)
    report = kw.patch(model)
    assert row(report, "mlp").reason == ""
    assert model.mlp.gate_proj.weight.data_ptr() == both.data_ptr()


def test_weights_that_moved_are_packed_again(on_cpu):
    model, x = tiny(), rows(3, 16)
    expected = model(x)
    kw.patch(model)
    converted = model.to(torch.float16)
    assert follow_each_other(converted.mlp.gate_proj.weight, converted.mlp.up_proj.weight)
    near(converted(x.half()), expected)
    copied = copy.deepcopy(converted.to(torch.bfloat16))
    copied.mlp.up_proj.weight.mul_(0)
    on_cpu.clear()
    assert not (copied(x) - copied.head(x)).any()
    assert "gated_linear" in on_cpu
    kw.unpatch(copied)
    on_cpu.clear()
    copied(x)
    assert on_cpu == []
    near(model(x), expected)
    assert "gated_linear" in on_cpu  # the one that was copied is still patched


@pytest.mark.parametrize("change, name, op, reason", [
    (lambda m: setattr(m, "norm", TinyRMSNorm(16, offset=1.0).bfloat16()), "norm", "rms_norm",
     "does not compute weight"),
    (lambda m: setattr(m, "mlp", TinyMLP(swapped=True).bfloat16()), "mlp", "swiglu",
     "does not compute down"),
    (lambda m: setattr(m, "mlp", TinyMLP(bias=True).bfloat16()), "mlp", "swiglu", "has a bias"),
    (lambda m: setattr(m, "mlp", TinyMLP(act=nn.Tanh()).bfloat16()), "mlp", "swiglu",
     "neither SiLU nor GELU"),
    (lambda m: setattr(m.head, "forward", lambda x: x), "head", "linear", "another library"),
    (lambda m: m.head.float(), "head", "linear", "float32, which no kernel takes"),
    (lambda m: m.head.to("meta"), "head", "linear", "meta device"),
    (lambda m: setattr(m, "head", type("Quantised", (nn.Linear,), {
        "forward": lambda self, x: x})(16, 8).bfloat16()), "head", "linear",
     "Quantised has a forward of its own"),
])
def test_what_is_left_has_a_reason(on_cpu, change, name, op, reason):
    model = tiny()
    change(model)
    report = kw.patch(model)
    found = row(report, name, op)
    assert not found.replaced and reason in found.reason
    assert found in report.left and reason in str(report)


def test_weights_on_the_cpu_are_left():
    report = kw.patch(tiny())
    assert not report.replaced
    assert "kernels are for GPUs" in str(report)


@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU(approximate="tanh")])
def test_geglu(on_cpu, activation):
    model, x = tiny(act=activation), rows(3, 16)
    expected = model(x)
    assert row(kw.patch(model), "mlp").replaced
    near(model(x), expected)


def test_torchs_own_norm(on_cpu):
    model = nn.Sequential(nn.RMSNorm(16)).bfloat16().requires_grad_(False)
    expected = model(rows(3, 16))
    assert kw.patch(model).replaced
    near(model(rows(3, 16)), expected)
    assert on_cpu == ["rms_norm"]


def test_ops_and_where(on_cpu):
    model = tiny()
    report = kw.patch(model, ops=("linear",), where=lambda name, module: name != "head")
    assert row(report, "head").reason == "where() said no"
    assert {found.name for found in report.replaced} == {"mlp.gate_proj", "mlp.up_proj",
                                                         "mlp.down_proj"}
    with pytest.raises(ValueError, match="patched already"):
        kw.patch(model)
    assert {row.op for row in kw.patch(tiny(), "linear").rows} == {"linear"}
    with pytest.raises(ValueError, match="ops has conv"):
        kw.patch(tiny(), ops=("conv",))
    with pytest.raises(ValueError, match="not patched"):
        kw.unpatch(tiny())


def test_a_report_prints_a_line_for_each_kind_of_module(on_cpu):
    text = str(kw.patch(tiny()))
    assert "TinyMLP" in text and "Linear" in text and "TinyRMSNorm" in text
    assert len(text.splitlines()) == 1 + 3


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match="model is a int, and a torch.nn.Module expected"):
        kw.patch(3)


# Models of Hugging Face.

transformers = pytest.importorskip("transformers")


def language_model(family, **changes):
    torch.manual_seed(3)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=16, intermediate_size=96, vocab_size=50, max_position_embeddings=128)
    if family == "Mistral":
        sizes["sliding_window"] = None
    config = getattr(transformers, f"{family}Config")(**{**sizes, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16).eval()
    for name, value in model.named_parameters():
        value.requires_grad_(False)
        if "norm" in name:
            value.uniform_(0.5, 1.5)
        else:
            value.normal_(0, value.shape[-1] ** -0.5)
    return model


def tokens(batch, count):
    return torch.randint(50, (batch, count), generator=torch.Generator().manual_seed(4))


def static_cache(model, batch):
    cache = transformers.StaticCache(config=model.config, max_cache_len=24)
    cache.early_initialization(batch_size=batch, num_heads=2, head_dim=16, dtype=torch.bfloat16,
                               device="cpu")
    return cache


def decode(model, ids, step=None, prefix=5, **named):
    """Logits of a prefill and of what follows token by token."""
    cache = static_cache(model, ids.shape[0])
    logits = [model(ids[:, :prefix], past_key_values=cache).logits[:, -1]]
    for i in range(prefix, ids.shape[1]):
        logits.append((model if step is None else step)(ids[:, i:i + 1], past_key_values=cache, **named).logits[:, -1])
    return torch.stack(logits), cache


FAMILIES = ["Llama", "Qwen3", "Mistral", "Qwen2"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_decode_steps_of_language_models_are_fused(on_cpu, family, batch):
    model, ids = language_model(family), tokens(batch, 9)
    expected, right = decode(model, ids)
    report = kw.patch(model)
    assert all(found.replaced for found in report.rows), str(report)
    on_cpu.clear()
    result, cache = decode(model, ids)
    assert relative(result, expected) < 0.03
    for mine, other in zip(cache.layers, right.layers):
        assert int(mine.cumulative_length) == int(other.cumulative_length) == 9
        assert relative(mine.keys, other.keys) < 0.03 and relative(mine.values, other.values) < 0.03
    assert on_cpu.count("append_attention") == 2 * 4 and on_cpu.count("attention") == 2
    last = on_cpu[-12:]
    assert last == ["qkv_linear", "append_attention", "linear", "gated_linear", "linear"] * 2 + [
        "rms_norm", "linear"]
    report.undo()
    again, _ = decode(model, ids)
    torch.testing.assert_close(again, expected)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_prefill_without_a_cache(on_cpu, family):
    model, ids = language_model(family), tokens(2, 12)
    expected = model(ids, use_cache=False).logits
    kw.patch(model)
    on_cpu.clear()
    assert relative(model(ids, use_cache=False).logits, expected) < 0.03
    turn = ["norm_rope"] if family == "Qwen3" else ["rope"]
    assert on_cpu == ["rms_norm", "qkv_linear", *turn, "attention", "linear", "rms_norm", "gated_linear",
                      "linear"] * 2 + ["rms_norm", "linear"]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_a_prefill_is_fused_where_masks_are_always_made(on_cpu, monkeypatch, batch, cached):
    """As Hugging Face makes them in a capture and for a compiler."""
    model, ids = language_model("Qwen3"), tokens(batch, 12)
    expected = model(ids, use_cache=cached)
    monkeypatch.setattr(transformers.masking_utils, "is_tracing", lambda *_: True)
    kw.patch(model)
    on_cpu.clear()
    result = model(ids, use_cache=cached)
    assert relative(result.logits, expected.logits) < 0.03
    assert on_cpu.count("attention") == 2 and on_cpu.count("gated_linear") == 2
    if cached:
        for mine, other in zip(result.past_key_values.layers, expected.past_key_values.layers):
            assert relative(mine.keys, other.keys) < 0.03 and relative(mine.values, other.values) < 0.03
        second = model(ids[:, :5], past_key_values=result.past_key_values)  # no prefill any more
        assert second.logits.shape[1] == 5 and on_cpu.count("attention") == 2


@torch.no_grad()
def test_a_compiled_prefill_is_fused(on_cpu):
    model, ids = language_model("Llama"), tokens(1, 12)
    expected = model(ids, use_cache=False).logits
    kw.patch(model)
    compiled = torch.compile(lambda ids: model(ids, use_cache=False).logits, fullgraph=True, backend="aot_eager")
    on_cpu.clear()
    assert relative(compiled(ids), expected) < 0.03
    assert on_cpu.count("attention") == 2 and on_cpu.count("qkv_linear") == 2


@torch.no_grad()
def test_a_prefill_converts_its_angles_once(on_cpu):
    """What all layers share is one pair of small kernels a prefill, not one a layer."""
    counts = []
    for layers in (2, 4):
        model = language_model("Qwen3", num_hidden_layers=layers)
        kw.patch(model)
        with torch.profiler.profile(record_shapes=True) as profile:
            model(tokens(1, 12), position_ids=torch.arange(12)[None], use_cache=False)
        counts.append(sum(event.name == "aten::_to_copy" and event.input_shapes[0][-1:] == [8]
                          for event in profile.events()))
    assert counts[0] == counts[1] > 0  # how many are Hugging Face's own differs by release


@torch.no_grad()
def test_padding_is_seen(on_cpu):
    model, ids = language_model("Llama"), tokens(2, 9)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, :3] = 0

    def run(mask):
        cache = static_cache(model, 2)
        model(ids[:, :8], attention_mask=mask[:, :8], past_key_values=cache)
        return model(ids[:, 8:], attention_mask=mask, past_key_values=cache).logits

    expected = run(mask)
    kw.patch(model)
    on_cpu.clear()
    assert relative(run(mask), expected) < 0.03
    assert "append_attention" not in on_cpu
    run(torch.ones_like(mask))
    assert "append_attention" in on_cpu


@torch.no_grad()
def test_positions_of_ones_own_are_seen(on_cpu):
    model, ids = language_model("Llama"), tokens(1, 6)
    kw.patch(model)
    on_cpu.clear()
    decode(model, ids, position_ids=torch.tensor([[9]]))
    assert "append_attention" not in on_cpu
    decode(model, ids, position_ids=torch.tensor([[5]]))
    assert "append_attention" in on_cpu


@torch.no_grad()
def test_generate(on_cpu):
    model, ids = language_model("Qwen3"), tokens(2, 5)
    settings = dict(max_new_tokens=6, do_sample=False, cache_implementation="static",
                    disable_compile=True, pad_token_id=0)
    expected = model.generate(ids, **settings)
    kw.patch(model)
    on_cpu.clear()
    assert torch.equal(model.generate(ids, **settings)[:, :8], expected[:, :8])
    assert on_cpu.count("append_attention") == 2 * 5
    padded = torch.ones_like(ids)
    padded[0, :2] = 0
    on_cpu.clear()
    model.generate(ids, attention_mask=padded, **settings)
    assert "append_attention" not in on_cpu


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@torch.no_grad()
def test_a_patched_model_compiles_whole(on_cpu, backend):
    model, ids = language_model("Qwen3"), tokens(2, 8)
    expected, _ = decode(model, ids)
    kw.patch(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    on_cpu.clear()
    result, cache = decode(model, ids, step=compiled)
    assert relative(result, expected) < 0.03
    assert on_cpu.count("append_attention") == 2 * 3
    assert int(cache.layers[1].cumulative_length) == 8


@torch.no_grad()
def test_with_the_promise_that_nothing_is_padded_masks_compile_too(on_cpu):
    model, ids = language_model("Llama"), tokens(2, 8)
    kw.patch(model, unpadded=True)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    on_cpu.clear()
    decode(model, ids, step=compiled, attention_mask=torch.ones(2, 24, dtype=torch.long))
    assert on_cpu.count("append_attention") == 2 * 3


@torch.no_grad()
def test_a_mask_that_a_compiler_cannot_look_at(on_cpu):
    model, ids = language_model("Llama"), tokens(2, 8)
    mask = torch.ones(2, 24, dtype=torch.long)
    expected, _ = decode(model, ids, attention_mask=mask)
    kw.patch(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    on_cpu.clear()
    result, _ = decode(model, ids, step=compiled, attention_mask=mask)
    assert relative(result, expected) < 0.03
    assert "append_attention" not in on_cpu and "gated_linear" in on_cpu


@pytest.mark.parametrize("changes, name, reason", [
    (dict(family="Gemma"), "model.layers.0", "none of LlamaDecoderLayer"),
    (dict(family="Mistral", sliding_window=8), "model.layers.0", "sliding window"),
    (dict(family="Llama", hidden_act="relu"), "model.layers.0", "feed-forward layer was left"),
    (dict(family="Llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
     "model", "change with the length"),
])
@torch.no_grad()
def test_layers_that_are_left(on_cpu, changes, name, reason):
    model, ids = language_model(**changes), tokens(1, 9)
    expected, _ = decode(model, ids)
    report = kw.patch(model)
    found = row(report, name, "decoder_layer")
    assert not found.replaced and reason in found.reason
    result, _ = decode(model, ids)
    assert relative(result, expected) < 0.03


def test_a_changed_layer_is_found_out(on_cpu):
    model = language_model("Llama")
    attention = model.model.layers[0].self_attn
    kind = type(attention)
    attention.__class__ = type("Other", (kind,), {"forward": lambda self, *given, **named: (
        kind.forward(self, *given, **named)[0] * 2, None)})
    report = kw.patch(model)
    assert "as it was known" in row(report, "model.layers.0", "decoder_layer").reason
    assert row(report, "model.layers.1", "decoder_layer").replaced
    assert "one of its layers was left" in row(report, "model", "decoder_layer").reason


def test_norms_of_heads_with_other_epsilons(on_cpu):
    model = language_model("Qwen3")
    model.model.layers[1].self_attn.k_norm.variance_epsilon = 1e-3
    report = kw.patch(model)
    assert "other epsilons" in row(report, "model.layers.1", "decoder_layer").reason
    assert row(report, "model.layers.0", "decoder_layer").replaced


def test_hooks_keep_a_layer_from_being_fused(on_cpu):
    model = language_model("Llama")
    model.model.layers[0].mlp.register_forward_hook(lambda *_: None)
    assert "hooks" in row(kw.patch(model), "model.layers.0", "decoder_layer").reason


def test_products_of_other_classes_are_named(on_cpu):
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50)
    report = kw.patch(transformers.GPT2LMHeadModel(config).bfloat16())
    found = row(report, "transformer.h.0.attn.c_attn")
    assert not found.replaced and found.kind == "Conv1D" and "holds a matrix" in found.reason


@torch.no_grad()
def test_what_was_left_is_counted(on_cpu, caplog):
    model, ids = language_model("Llama"), tokens(1, 6)
    report = kw.patch(model)
    model(ids)
    assert not report.fallbacks
    model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: None)
    model(ids), model(ids)
    assert report.fallbacks["model", "hooks on layers.1.self_attn.q_proj was 0 and is 1"] == 2
    assert "runs as before: hooks on layers.1" in caplog.text and "ran as before" in str(report)
    assert 'kernwright_fallbacks_total{cause="module"}' in kernwright._fallbacks.text()


def replace_dict(module):
    module.__dict__ = {**vars(module), "_forward_hooks": collections.OrderedDict()}
    module.register_forward_hook(lambda _, given, result: 2 * result)


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias

    def forward(self, x):
        return 2 * self.inner(x)


@pytest.mark.parametrize("change", [
    lambda m, layer: setattr(layer.self_attn.k_proj, "weight", nn.Parameter(
        layer.self_attn.k_proj.weight.flip(0), requires_grad=False)),
    lambda m, layer: setattr(layer.mlp.up_proj.weight, "data", layer.mlp.up_proj.weight * 2),
    lambda m, layer: setattr(layer.self_attn, "v_proj", Doubled(layer.self_attn.v_proj)),
    lambda m, layer: layer.mlp.gate_proj.register_forward_hook(lambda _, given, result: 2 * result),
    lambda m, layer: replace_dict(layer.self_attn.v_proj),
    lambda m, layer: setattr(layer.mlp, "forward", lambda x: x),
    lambda m, layer: setattr(layer.self_attn, "scaling", 1.0),
    lambda m, layer: setattr(m.config, "is_causal", False),
    lambda m, layer: m.model.rotary_emb.inv_freq.data.mul_(0.5)])
@torch.no_grad()
def test_a_change_is_seen_by_steps_and_prefills(on_cpu, change):
    (patched, unpatched), ids = (language_model("Qwen3") for _ in range(2)), tokens(2, 7)
    kw.patch(patched)
    before, _ = decode(patched, ids)
    for model in (patched, unpatched):
        change(model, model.model.layers[1])
    expected, _ = decode(unpatched, ids)
    assert relative(decode(patched, ids)[0], expected) < 0.03 < relative(before, expected)
    assert relative(patched(ids).logits, unpatched(ids).logits) < 0.03


def test_a_compiler_fuses_nothing_of_two_dtypes(on_cpu):
    """It could not leave a module that has begun, as eager code does."""
    model = language_model("Llama")
    kw.patch(model)
    layer = model.model.layers[0]
    units = (model.model, layer, layer.mlp)
    assert all(unit._kernwright.traces(unit) for unit in units)
    layer.mlp.up_proj.half()
    assert not any(unit._kernwright.traces(unit) for unit in units)
    layer.half()
    assert layer._kernwright.traces(layer) and not model.model._kernwright.traces(model.model)
    assert model.half().model._kernwright.traces(model.model)
