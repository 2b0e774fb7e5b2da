"""Weights that bench/engines draws: their meaning is what kernwright multiplies by, and a model is filled with them."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench/engines"))
weights = pytest.importorskip("weights", reason="the benches are not here")

from kernwright.torch._quantized import QuantizedWeight  # noqa: E402

NAME, N, K = "model.layers.3.mlp.down_proj", 160, 384


def drawn(last, shape, dtype):
    return weights.drawn(f"{NAME}.{last}", shape, dtype)


def tensors(format):
    """The tensors of a layer, as vLLM has them before a kernel gets them."""
    groups = K // weights.GROUP
    if format.startswith("int4"):
        found = {"weight_packed": drawn("weight_packed", (N, K // 8), torch.int32),
                 "weight_scale": drawn("weight_scale", (N, groups), torch.bfloat16)}
        if format == "int4_zeros":
            found["weight_zero_point"] = drawn("weight_zero_point", (N // 8, groups), torch.int32)
        return found
    found = {"weight": drawn("weight", (N, K), torch.float8_e4m3fn)}
    if format == "fp8":
        return {**found, "weight_scale": drawn("weight_scale", (2,), torch.float32),
                "input_scale": drawn("input_scale", (2,), torch.float32)}
    return {**found, "weight_scale_inv": drawn("weight_scale_inv", (2, 3), torch.float32)}


def product(format, x, given):
    """The product with kernwright's packed weights, or with codes and scales as fp8 checkpoints have them."""
    if format.startswith("int4"):
        weight = QuantizedWeight.from_compressed_tensors(**given, weight_shape=(N, K), group=weights.GROUP)
        return torch.nn.functional.linear(x, weight.dequantize().to(x.dtype))
    scale = given["weight_scale"][0] if format == "fp8" else given["weight_scale_inv"].repeat_interleave(
        128, 0)[:N].repeat_interleave(128, 1)
    return x @ (given["weight"].double() * scale).t()


@pytest.mark.parametrize("format", [format for format in weights.FORMATS if format != "bf16"])
def test_the_meaning_is_what_is_multiplied_by(format):
    meaning = weights.meaning(f"{NAME}.weight", (N, K), format)
    assert meaning.dtype is torch.float32 and 0.015 < meaning.std() < 0.025 and meaning.mean().abs() < 0.0005
    found = product(format, torch.eye(K, dtype=torch.float64), tensors(format)).t()
    assert (found - meaning).abs().max() <= 2.0**-8 * meaning.abs().max()
    assert not meaning.equal(weights.meaning(f"{NAME[:-1]}.weight", (N, K), format))


def test_what_is_not_quantized_means_itself():
    for name, shape in (("lm_head.weight", (64, 32)), ("model.norm.weight", (64,))):
        assert weights.meaning(name, shape, "int4").equal(weights.drawn(name, shape, torch.bfloat16).float())


def test_a_model_is_filled_but_for_sizes_and_scales_of_a_cache():
    model = torch.nn.Module()
    for name, tensor in {"weight": torch.zeros(8, 16, dtype=torch.bfloat16), "norm": torch.zeros(16),
                         "weight_packed": torch.zeros(8, 2, dtype=torch.int32),
                         "weight_shape": torch.zeros(2, dtype=torch.int64), "k_scale": torch.tensor(-1.0)}.items():
        model.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    weights.fill(model)
    assert model.weight_shape.tolist() == [0, 0] and model.k_scale == -1
    assert model.weight.equal(weights.drawn("weight", (8, 16), torch.bfloat16)) and model.weight.unique().numel() > 50
    assert model.weight_packed.equal(weights.drawn("weight_packed", (8, 2), torch.int32))
    assert 0.5 < model.norm.mean() < 1.5
    weights.fill(model, meaning_of="bf16")
    assert model.weight.float().equal(weights.meaning("weight", (8, 16), "bf16"))
