"""Models of Hugging Face from quantized checkpoints that are written here, bit by bit."""

import copy
import functools
import json

import pytest
import torch
from checkpoints import Layer

import kernwright
import kernwright.torch as kt
from kernwright.torch._checkpoints import quantized_rows

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
load_file, save_file = safetensors.load_file, safetensors.save_file

from gpt_oss import gpt_oss, named_experts, routed  # noqa: E402
from test_patch import relative, tokens  # noqa: E402

SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             intermediate_size=96, vocab_size=128, max_position_embeddings=128, tie_word_embeddings=False)
COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {
    "group_0": {"targets": ["Linear"], "input_activations": None,
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}}}}
METHODS = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}, {}),
    "gptq_v2": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"}, {}),
    "gptq of 8 bits": ({"quant_method": "gptq", "bits": 8, "group_size": 32}, {"bits": 8}),
    "desc_act": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, {"ordered": True}),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}, {}),
    "compressed-tensors": (COMPRESSED, {}),
}


def by_rows(kind):
    """The config of compressed-tensors for 8 bits by rows, int or float."""
    def side(strategy, dynamic):
        return {"num_bits": 8, "type": kind, "strategy": strategy, "dynamic": dynamic, "symmetric": True}

    return {"quant_method": "compressed-tensors", "format": f"{kind}-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": side("channel", False), "input_activations": side("token", True)}}}


def rounded(_, given, dtype):
    codes, scales = quantized_rows(given[0].flatten(0, -2), dtype)
    return ((codes.float() * scales).view(given[0].shape).to(given[0].dtype),)


def written_by_rows(folder, family, kind, scale=torch.bfloat16, changes=(), **more):
    """Writes a checkpoint in 8 bits by rows, and returns a model that rounds weights and activations alike."""
    torch.manual_seed(1)
    own = getattr(transformers, f"{family}Config")(**SIZES)
    model = getattr(transformers, f"{family}ForCausalLM")(own).to(torch.bfloat16).eval().requires_grad_(False)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            dtype = torch.int8 if kind == "int" else torch.float8_e4m3fn
            rows = kt.QuantizedRows.from_float(module.weight, dtype)
            module.register_forward_pre_hook(functools.partial(rounded, dtype=dtype))
            scales = rows.scales.to(scale)
            module.weight.copy_(rows.codes.float() * scales.float().t())
            tensors.update({f"{name}.weight": rows.codes, f"{name}.weight_scale": scales.t().contiguous()})
    save_file({**tensors, **more}, folder / "model.safetensors", {"format": "pt"})
    config = {**by_rows(kind), **dict(changes)}
    (folder / "config.json").write_text(json.dumps({
        **own.to_dict(), "architectures": [f"{family}ForCausalLM"], "dtype": "bfloat16", "quantization_config": config}))
    return model


def tensors_of(layer, config, method):
    if config["quant_method"] == "awq":
        return layer.awq()
    return layer.compressed_tensors() if method.startswith("compressed") else layer.gptq(
        config.get("checkpoint_format", "gptq"))


def written(folder, family, method, scale=torch.float16, **changes):
    """Writes a checkpoint, and returns its model."""
    config, named = METHODS[method]
    torch.manual_seed(1)
    own = getattr(transformers, f"{family}Config")(**SIZES, **({"attention_bias": True} if family == "Llama" else {}))
    model = getattr(transformers, f"{family}ForCausalLM")(own).to(torch.bfloat16).eval().requires_grad_(False)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for number, (name, module) in enumerate(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            layer = Layer(*module.weight.shape, 32, seed=number, scale=scale, **named)
            layer.scales /= 4
            module.weight.copy_(layer.weight())
            del tensors[f"{name}.weight"]
            tensors.update({f"{name}.{part}": tensor for part, tensor in tensors_of(layer, config, method).items()})
            if name.endswith("o_proj"):  # as AutoGPTQ writes it for layers without
                module.bias = torch.nn.Parameter(torch.randn(len(module.weight)).bfloat16(), requires_grad=False)
                tensors[f"{name}.bias"] = module.bias.data
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(
        {**own.to_dict(), "architectures": [f"{family}ForCausalLM"], "dtype": "bfloat16",
         "quantization_config": {**config, **changes}}))
    return model


@pytest.mark.parametrize("family, method", [*(("Llama", method) for method in METHODS), ("Qwen3", "gptq"),
                                            ("Qwen3", "compressed-tensors")])
def test_a_model_computes_what_its_checkpoint_says(tmp_path, family, method):
    expected = written(tmp_path, family, method)
    model = kt.load_quantized(tmp_path, dtype=torch.bfloat16)
    kinds = [type(module) for name, module in model.named_modules() if name.endswith("_proj")]
    assert kinds == [kt.QuantizedLinear] * 14 and type(model.lm_head) is torch.nn.Linear
    assert all(module.scales.dtype is torch.float16 for module in model.modules() if isinstance(module, kt.QuantizedWeight))
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    tokens = torch.arange(12).view(1, 12)
    with torch.no_grad():
        result, right = model(tokens).logits.float(), expected(tokens).logits.float()
        assert (result - right).norm() < 0.02 * right.norm()
        assert model.generate(tokens, max_new_tokens=3, do_sample=False).shape == (1, 15)


def test_rules_for_some_modules_are_those_of_their_tensors(tmp_path):
    written(tmp_path, "Llama", "gptq of 8 bits", bits=4, group_size=128, dynamic={"+:.*": {"bits": 8, "group_size": 32}})
    weights = [module for module in kt.load_quantized(tmp_path).modules() if isinstance(module, kt.QuantizedWeight)]
    assert {(weight.weights, weight.group) for weight in weights} == {("int8", 32)} and len(weights) == 14


def test_other_classes_and_patch(tmp_path, on_cpu):
    expected = written(tmp_path, "Qwen3", "awq").model
    model = kt.load_quantized(str(tmp_path), transformers.AutoModel, dtype=torch.bfloat16)
    report = kt.patch(model)
    assert {row.op for row in report.replaced} == {"rms_norm", "swiglu"}
    on_cpu.clear()
    tokens = torch.arange(12).view(1, 12)
    with torch.no_grad():
        result, right = model(tokens)[0].float(), expected(tokens)[0].float()
    assert (result - right).norm() < 0.02 * right.norm()
    assert on_cpu.count("quantized_linear") == 10 and on_cpu.count("quantized_gated_linear") == 2


@pytest.mark.parametrize("method, changes, text", [
    ("gptq", {"quant_method": "hqq"}, "quant_method is 'hqq'"),
    ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'"),
    ("awq", {"version": "gemv"}, "version is 'gemv'"),
    ("compressed-tensors", {"format": "marlin-24"}, "format is 'marlin-24'"),
    ("compressed-tensors", {"format": "int-quantized"}, "weights with num_bits of 4, strategy of 'group', symmetric of"),
    ("compressed-tensors", {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"},
                                                          "input_activations": {"num_bits": 8}}}}, "quantizes activations"),
    ("compressed-tensors", {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}}}, "weights of float"),
])
def test_what_is_not_known_is_refused_by_name(tmp_path, method, changes, text):
    written(tmp_path, "Llama", method, **changes)
    with pytest.raises(ValueError, match=text):
        kt.load_quantized(tmp_path)


def test_folders_that_are_no_such_checkpoints(tmp_path):
    written(tmp_path, "Llama", "gptq")
    whole = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**whole, "num_hidden_layers": 1}))
    with pytest.raises(ValueError, match="7 quantized layers of the checkpoint are no linear layers of LlamaForCausalLM, "
                                         "and no experts that are known, such as model.layers.1."):
        kt.load_quantized(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(
        {**whole, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}))
    with pytest.raises(ValueError, match=r"model.layers.0.self_attn.q_proj: group is 64, and 64 columns have 2 scales"):
        kt.load_quantized(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if not name.endswith("qweight")},
              tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="has no quantized layers that are known"):
        kt.load_quantized(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has no .*safetensors"):
        kt.load_quantized(tmp_path)
    del whole["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="has no quantization_config"):
        kt.load_quantized(tmp_path)


def written_gpt_oss(folder, change=lambda tensors: None, **quantization):
    """Writes a checkpoint of gpt-oss as it is published, and returns its model."""
    model, blocks = gpt_oss()
    tensors = {name: tensor for name, tensor in model.state_dict().items()
               if not name.endswith(("experts.gate_up_proj", "experts.down_proj"))}
    tensors.update(blocks)
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(
        {**model.config.to_dict(), "architectures": ["GptOssForCausalLM"], "dtype": "bfloat16",
         "quantization_config": {"quant_method": "mxfp4", **quantization}}))
    return model


@torch.no_grad()
def test_gpt_oss_keeps_its_experts_in_mxfp4(tmp_path, on_cpu):
    expected = written_gpt_oss(tmp_path, modules_to_not_convert=["lm_head"])
    model = kt.load_quantized(tmp_path, dtype=torch.bfloat16)
    dense = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True))
    for (name, ours), (_, theirs), (_, right) in zip(*map(named_experts, (model, dense, expected)), strict=True):
        for part, product in ((ours.gate_up, "gate_up_proj"), (ours.down, "down_proj")):
            matrices = part.as_it_was(part.dequantize()).mT
            for other in (theirs, right):
                assert torch.equal(matrices.view(torch.int16), getattr(other, product).view(torch.int16)), name
                assert torch.equal(part.as_it_was(part.bias), getattr(other, f"{product}_bias"))
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    assert not any("experts" in name for name, _ in model.named_parameters())
    ids = tokens(2, 7)
    on_cpu.clear()
    assert relative(model(ids).logits, expected(ids).logits) < 0.03
    assert on_cpu == ["order_experts", "quantized_grouped_matmul", "quantized_grouped_matmul", "combine_experts"] * 2
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (2, 10)
    x, index, shares = routed(5, 2, 64)
    mixture, right = named_experts(model)[0][1], named_experts(expected)[0][1]
    assert relative(mixture(x, index, shares), right(x, index, shares)) < 0.01
    report = kt.patch(model)
    assert not any("experts" in row.name for row in report.rows)
    assert relative(model(ids).logits, expected(ids).logits) < 0.03


def shorter(tensors):
    name = "model.layers.0.mlp.experts.down_proj_scales"
    tensors[name] = tensors[name][:, :, :2].contiguous()


@pytest.mark.parametrize("change, text", [
    (shorter, r"model.layers.0.mlp.experts: down_proj_scales of the checkpoint is \[8, 64, 2\], and \[8, 64, 3\] expected"),
    (lambda tensors: tensors.pop("model.layers.1.mlp.experts.down_proj_bias"),
     r"model.layers.1.mlp.experts: down_proj_bias of the checkpoint is \[\], and \[8, 64\] expected"),
    (lambda tensors: tensors.update({"model.other.gate_up_proj_blocks": torch.zeros(2, 2, 1, 16, dtype=torch.uint8)}),
     "1 quantized layers of the checkpoint are no linear layers of GptOssForCausalLM, and no experts that are known")])
def test_experts_that_do_not_fit_are_refused_by_name(tmp_path, change, text):
    written_gpt_oss(tmp_path, change)
    with pytest.raises(ValueError, match=text):
        kt.load_quantized(tmp_path)


def wider(tensors):
    name = "model.layers.0.mlp.experts.gate_up_proj_scales"
    tensors[name] = tensors[name].int()


def test_scales_of_another_dtype_are_refused(tmp_path):
    written_gpt_oss(tmp_path, wider)
    with pytest.raises(ValueError, match="mlp.experts: gate_up_proj_scales of the checkpoint is I32, and U8 expected"):
        kt.load_quantized(tmp_path)


def test_a_norm_behind_experts_is_refused(tmp_path, monkeypatch):
    written_gpt_oss(tmp_path)
    monkeypatch.setattr(transformers.models.gpt_oss.modeling_gpt_oss.GptOssExperts, "__setattr__", lambda self, name, value:
                        torch.nn.Module.__setattr__(self, name, name == "has_post_expert_norm" or value))
    with pytest.raises(ValueError, match="model.layers.0.mlp.experts: its experts have a norm behind them"):
        kt.load_quantized(tmp_path)


def test_another_gate_is_refused(tmp_path, monkeypatch):
    written_gpt_oss(tmp_path)
    file = transformers.models.gpt_oss.modeling_gpt_oss
    monkeypatch.setattr(file.GptOssExperts, "_apply_gate", lambda self, both: both[..., ::2] * both[..., 1::2])
    with pytest.raises(ValueError, match="model.layers.0.mlp.experts: its gate is neither SiLU nor GELU"):
        kt.load_quantized(tmp_path)


# Experts each of whose products is a quantized layer.

OF_EXPERTS = {"Qwen3Moe": ("model.layers.{}.mlp.experts", ("gate_proj", "up_proj", "down_proj"),
                           dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=96)),
              "Mixtral": ("model.layers.{}.block_sparse_moe.experts", ("w1", "w3", "w2"),
                          dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=None))}


def written_mixture(folder, family, method, change=lambda tensors: None):
    """Writes a checkpoint whose experts are quantized, and returns its model."""
    (config, named), (at, names, sizes) = METHODS[method], OF_EXPERTS[family]
    torch.manual_seed(1)
    own = getattr(transformers, f"{family}Config")(**{**SIZES, **sizes})
    model = getattr(transformers, f"{family}ForCausalLM")(own).to(torch.bfloat16).eval().requires_grad_(False)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if ".experts." not in name}
    tensors = {name.replace(".mlp.gate.", ".block_sparse_moe.gate.") if family == "Mixtral" else name: tensor
               for name, tensor in tensors.items()}
    for place, (_, experts) in enumerate(named_experts(model)):
        for expert in range(6):
            layers = [Layer(n, k, 32, seed=100 * place + 10 * expert + part, **named)
                      for part, (n, k) in enumerate(((96, 64), (96, 64), (64, 96)))]
            for name, layer in zip(names, layers):
                layer.scales /= 4
                for part, tensor in tensors_of(layer, config, method).items():
                    tensors[f"{at.format(place)}.{expert}.{name}.{part}"] = tensor
            experts.gate_up_proj[expert] = torch.cat([layer.weight() for layer in layers[:2]])
            experts.down_proj[expert] = layers[2].weight()
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(
        {**own.to_dict(), "architectures": [f"{family}ForCausalLM"], "dtype": "bfloat16", "quantization_config": config}))
    return model


@pytest.mark.parametrize("family, method", [("Qwen3Moe", "gptq"), ("Qwen3Moe", "gptq of 8 bits"), ("Qwen3Moe", "awq"),
                                            ("Qwen3Moe", "compressed-tensors"), ("Mixtral", "awq")])
@torch.no_grad()
def test_experts_of_quantized_layers(tmp_path, on_cpu, family, method):
    expected = written_mixture(tmp_path, family, method)
    model = kt.load_quantized(tmp_path, dtype=torch.bfloat16)
    for (_, ours), (_, theirs) in zip(named_experts(model), named_experts(expected), strict=True):
        assert type(ours) is kt.QuantizedMixture and ours.gate.activation == "silu" and ours.gate_up.bias is None
        assert torch.equal(ours.gate_up.dequantize(), theirs.gate_up_proj)
        assert torch.equal(ours.down.dequantize(), theirs.down_proj)
        x, index, shares = routed(9, 2, 64, experts=6)
        on_cpu.clear()
        assert relative(ours(x, index, shares), theirs(x, index, shares)) < 0.01
        assert on_cpu == ["order_experts", "quantized_grouped_matmul", "quantized_grouped_matmul", "combine_experts"]
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    kt.patch(model)
    assert model.generate(tokens(2, 7), max_new_tokens=3, do_sample=False).shape == (2, 10)


@torch.no_grad()
def test_biases_of_experts_are_those_of_the_checkpoint(tmp_path, on_cpu):
    name, bias = "model.layers.1.mlp.experts.2.up_proj.bias", torch.randn(96).bfloat16()
    written_mixture(tmp_path, "Qwen3Moe", "gptq", lambda tensors: tensors.update({name: bias}))
    mixtures = [mixture for _, mixture in named_experts(kt.load_quantized(tmp_path, dtype=torch.bfloat16))]
    assert mixtures[0].gate_up.bias is None and mixtures[1].down.bias is None
    wanted = torch.zeros(6, 192).bfloat16()
    wanted[2, 96:] = bias
    assert torch.equal(mixtures[1].gate_up.bias, wanted)


def gone(tensors):
    for name in [name for name in tensors if ".layers.1.mlp.experts.3.up_proj." in name]:
        tensors[name.replace("up_proj.", "up_proj.no_")] = tensors.pop(name)


@pytest.mark.parametrize("method, change, text", [
    ("gptq", gone, "model.layers.1.mlp.experts: 6 of 6 experts are quantized, or some of their layers alone"),
    ("desc_act", lambda tensors: None, "model.layers.0.mlp.experts: the columns of expert 0 are sorted by activation")])
def test_experts_that_are_not_known_are_refused_by_name(tmp_path, method, change, text):
    written_mixture(tmp_path, "Qwen3Moe", method, change)
    with pytest.raises(ValueError, match=text):
        kt.load_quantized(tmp_path)


@pytest.fixture
def by_eight_bits(tmp_path, on_cpu, request):
    """A model in 8 bits by rows with what it must compute, and the operators that are called."""
    family, kind = getattr(request, "param", ("Llama", "int"))
    expected = written_by_rows(tmp_path, family, kind)
    with torch.no_grad():
        yield kt.load_quantized(tmp_path, dtype=torch.bfloat16), expected, on_cpu


def logits(model):
    return model(torch.arange(12).view(1, 12)).logits.float()


def error_of(result, right):
    return float((result - right).norm() / right.norm())


BY_ROWS = [("Llama", "int"), ("Llama", "float"), ("Qwen3", "int"), ("Qwen3", "float")]


@pytest.mark.parametrize("by_eight_bits", BY_ROWS, indirect=True)
def test_norms_and_gates_quantize_for_products_of_8_bits(by_eight_bits):
    model, expected, calls = by_eight_bits
    rows = [module for module in model.modules() if isinstance(module, kt.QuantizedRows)]
    assert len(rows) == 14 and all(each.codes.element_size() == 1 and each.scales.dtype is torch.float32 for each in rows)
    calls.clear()
    plain, right = logits(model), logits(expected)
    assert calls.count("quantize_rows") == calls.count("scaled_matmul") == 14 and "quantized_norm" not in calls
    assert error_of(plain, right) < 0.03
    report = kt.patch(model)
    assert "its norms quantize rows for the products that read them" in str(report)
    calls.clear()
    result = logits(model)
    assert [calls.count(name) for name in ("quantized_norm", "quantized_gate", "quantize_rows", "scaled_matmul")] == [
        4, 2, 2, 12], "q, k, v and o, gate and up in one, and down, in two layers"
    assert error_of(result, right) < 0.05 and error_of(result, plain) < 0.05
    assert model.generate(torch.arange(12).view(1, 12), max_new_tokens=3, do_sample=False).shape == (1, 15)
    report.undo()
    assert torch.equal(logits(model), plain)


def hook(module):
    return module.register_forward_hook(lambda *_: None)


def norm_of(model):
    return model.model.layers[0].input_layernorm


@pytest.mark.parametrize("change, norms, gates", [
    (lambda model: hook(model.model.layers[0].self_attn.k_proj), 3, 2), (lambda model: hook(norm_of(model)), 3, 2),
    (lambda model: hook(model.model.layers[0].self_attn), 3, 2),
    (lambda model: hook(model.model.layers[0].mlp.down_proj), 4, 1),
    (lambda model: setattr(model.model.layers[0].self_attn, "v_proj", torch.nn.Linear(64, 32, False).bfloat16()), 3, 2)])
def test_rows_are_there_for_whoever_reads_them(by_eight_bits, change, norms, gates):
    model, _, calls = by_eight_bits
    unpatched = copy.deepcopy(model)
    kt.patch(model)
    torch.manual_seed(5)
    change(model)
    torch.manual_seed(5)
    change(unpatched)
    calls.clear()
    assert error_of(logits(model), logits(unpatched)) < 0.05
    assert calls.count("quantized_norm") == norms and calls.count("quantized_gate") == gates


def test_codes_are_no_rows_for_others(by_eight_bits):
    """A reader that the guards cannot see fails, and computes nothing wrong."""
    model, _, _ = by_eight_bits
    kt.patch(model)
    codes = norm_of(model)(torch.randn(1, 3, 64).bfloat16())
    assert codes.dtype is torch.int8
    for read in (lambda: codes @ torch.randn(64, 8).bfloat16(), lambda: model.model.layers[0].mlp(codes.clone())):
        with pytest.raises((RuntimeError, kernwright.Error)):
            read()


def test_copies_and_compiled_models_of_8_bits(by_eight_bits):
    model, expected, calls = by_eight_bits
    kt.patch(model)
    right = logits(expected)
    copied = copy.deepcopy(model)
    del model.model.layers[1]
    calls.clear()
    assert error_of(logits(copied), right) < 0.05 and calls.count("quantized_norm") == 4
    compiled = torch.compile(copied, backend="aot_eager")
    assert error_of(logits(compiled), right) < 0.05


def test_layers_in_8_bits_that_are_not_known_are_refused(tmp_path):
    for changes, more, text in (
            ({"config_groups": {"group_0": {**by_rows("int")["config_groups"]["group_0"], "input_activations": None}}}, {},
             "group_0 of config_groups has input_activations with num_bits of None"),
            ({"config_groups": {"group_0": {**by_rows("int")["config_groups"]["group_0"], "input_activations": {
                "num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": False}}}}, {},
             "symmetric of False"),
            ({}, {"model.layers.0.mlp.up_proj.input_scale": torch.ones(1)}, "up_proj: its tensors are .*input_scale"),
            ({}, {"model.layers.0.mlp.up_proj.weight_scale": torch.ones(3, 1)}, r"weight_scale has the shape \[3, 1\]")):
        written_by_rows(tmp_path, "Llama", "int", changes=changes, **more)
        with pytest.raises(ValueError, match=text):
            kt.load_quantized(tmp_path)
