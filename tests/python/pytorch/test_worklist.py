"""What a patched model asks for is what `kernwright worklist` lists for its config.json: records of a
sweep that were made for other problems would never be found."""

import json
import os
import subprocess

import pytest
import torch

import kernwright as kw
import kernwright.torch
from kernwright import _operations as arrays
from kernwright.torch import _fused, _modules
from kernwright.torch.ops import products, quantized_products, scaled_products

import fakes
import reference
import test_load

transformers = pytest.importorskip("transformers")

TOOL = os.path.join(os.path.dirname(kw.__file__), "bin", "kernwright")
LENGTH = 64  # of a static cache
DTYPES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "int32", torch.uint8: "uint8"}
# What each operator asks kernwright for.
ASKS = {
    "linear": lambda x, weight, bias=None, residual=None, **named:
        arrays.linear(x, weight, bias, residual=residual),
    "gated_linear": products._gated_linear,
    "gated_linear.members": products._gated_linear,
    "qkv_linear": products._qkv_linear,
    "qkv_linear.members": products._qkv_linear,
    "grouped_matmul": scaled_products._grouped_matmul,
    "grouped_matmul.out": scaled_products._grouped_matmul,
    "quantized_linear": quantized_products._our_quantized_linear,
    "quantized_gated_linear": quantized_products._our_quantized_gated_linear,
    "rms_norm": arrays.rms_norm,
    "rope": arrays.rope,
    "norm_rope": _fused.norm_rope,
    "attention": lambda q, k, v, *rest, causal, **named: arrays.attention(q, k, v, causal=causal),
    "append_attention": _fused.append_attention,
}
MIXTURES = {
    "Qwen3Moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32),
    "Mixtral": dict(num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
}
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, intermediate_size=96, vocab_size=128, max_position_embeddings=128)


def on_a_gpu(value):
    """Returns an array with the layout of the tensor that claims to be on a GPU. Those of a list are
    as far apart as the tensors are."""
    if isinstance(value, list):
        first = on_a_gpu(value[0])
        return [first.like(member.shape, member.stride(), (member.data_ptr() - value[0].data_ptr())
                           // member.element_size()) for member in value]
    if not isinstance(value, torch.Tensor):
        return value
    return fakes.TorchTensor(*value.shape, dtype=DTYPES[value.dtype], strides=tuple(value.stride()))


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Runs a model and gives the problems that it asks for."""
    monkeypatch.setattr(_modules, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    service = kw.Service(tmp_path / "cache", sku="h100_sxm", on_miss="fail")

    def asking(name):
        def call(*arguments, **named):
            with service, pytest.raises(kw.Error) as caught:
                ASKS[name](*map(on_a_gpu, arguments),
                           **{key: on_a_gpu(value) for key, value in named.items()})
            assert "no record" in caught.value.reason, caught.value
            return reference.IMPLEMENTATIONS[name](*arguments, **named)

        return call

    def run(call):
        file = tmp_path / "asked.jsonl"
        file.unlink(missing_ok=True)
        with torch.library._scoped_library("kernwright", "IMPL") as library:
            for name in ASKS:
                library.impl(name, asking(name), "CPU")
            with service.record_shapes(file), torch.no_grad():
                call()
        return {json.loads(line)["problem"] for line in file.read_text().splitlines()}

    return run


def model_of(family):
    own = {"sliding_window": None} if family == "Mistral" else MIXTURES.get(family, {})
    sizes = {**SIZES, **own}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16).eval()
    return model.requires_grad_(False)


def listed(model, tokens, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(model.config.to_json_string(use_diff=False))
    return list_of(config, tokens)


def list_of(config, tokens):
    text = subprocess.run([TOOL, "worklist", config, "--tokens", str(tokens), "--contexts", str(LENGTH)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    return set(json.loads(text)["problems"])


def decode(model, batch):
    cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH)
    cache.early_initialization(batch_size=batch, num_heads=2, head_dim=16, dtype=torch.bfloat16,
                               device="cpu")
    model(torch.zeros(batch, 1, dtype=torch.int64), past_key_values=cache)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Mistral", "Qwen2", *MIXTURES])
@pytest.mark.parametrize("tokens", [1, 16, 17, 1024])
def test_a_worklist_has_what_a_patched_model_asks_for(asked, tmp_path, family, tokens):
    model = model_of(family)
    assert not kw.torch.patch(model).left
    problems = set()
    if tokens < 1024:
        problems |= asked(lambda: decode(model, tokens))
        if family not in MIXTURES:
            assert len(problems) == 7
    if tokens > 16:
        prompt = torch.zeros(1, tokens, dtype=torch.int64)
        problems |= asked(lambda: model(prompt))
    assert problems - listed(model, tokens, tmp_path) == set()


def test_a_worklist_has_what_modules_of_other_models_ask_for(asked, tmp_path):
    config = transformers.GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    model = transformers.GptOssForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
    kw.torch.patch(model)
    problems = asked(lambda: model(torch.zeros(1, 24, dtype=torch.int64)))
    assert "matmul m=24 n=32 k=64 dtype=bf16 bias=column" in problems
    assert any("gate=interleaved" in problem for problem in problems)
    assert problems - listed(model, 24, tmp_path) == set()


@pytest.mark.parametrize("method", ["gptq", "gptq of 8 bits", "awq", "compressed-tensors"])
def test_a_worklist_has_what_a_model_of_a_quantized_checkpoint_asks_for(asked, tmp_path, method):
    test_load.written(tmp_path, "Llama", method, torch.bfloat16, sym=False)
    model = kw.torch.load_quantized(tmp_path, dtype=torch.bfloat16)
    kw.torch.patch(model)
    problems = asked(lambda: model(torch.zeros(1, 24, dtype=torch.int64)))
    products = {problem for problem in problems if problem.startswith("quantized_matmul ")}
    assert len(products) == 4  # q and o, k and v are alike, and gate and up are one
    assert problems - list_of(tmp_path / "config.json", 24) == set()
