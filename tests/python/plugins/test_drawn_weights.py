"""Weights that bench/engines draws: their meaning is what kernwright multiplies by, and a model is filled with them."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench/engines"))
weights = pytest.importorskip("weights", reason="the benches are not here")

from kernwright.torch._quantized import QuantizedRows, QuantizedWeight  # noqa: E402
from kernwright.torch._quantized_experts import QuantizedExperts  # noqa: E402

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
    found = {"weight": drawn("weight", (N, K), torch.int8 if format == "int8" else torch.float8_e4m3fn)}
    if format in ("int8", "fp8_rows"):
        return {**found, "weight_scale": drawn("weight_scale", (N, 1), torch.float32)}
    if format == "fp8":
        return {**found, "weight_scale": drawn("weight_scale", (2,), torch.float32),
                "input_scale": drawn("input_scale", (2,), torch.float32)}
    return {**found, "weight_scale_inv": drawn("weight_scale_inv", (2, 3), torch.float32)}


def product(format, x, given):
    """The product with kernwright's packed weights, or with codes and scales as fp8 checkpoints have them."""
    if format.startswith("int4"):
        weight = QuantizedWeight.from_compressed_tensors(**given, weight_shape=(N, K), group=weights.GROUP)
        return torch.nn.functional.linear(x, weight.dequantize().to(x.dtype))
    if format in ("int8", "fp8_rows"):
        weight = QuantizedRows.from_compressed_tensors(given["weight"], given["weight_scale"])
        return x @ weight.dequantize(torch.float32).double().t()
    scale = given["weight_scale"][0] if format == "fp8" else given["weight_scale_inv"].repeat_interleave(
        128, 0)[:N].repeat_interleave(128, 1)
    return x @ (given["weight"].double() * scale).t()


@pytest.mark.parametrize("format", [format for format in weights.FORMATS if format not in ("bf16", "mxfp4")])
def test_the_meaning_is_what_is_multiplied_by(format):
    meaning = weights.meaning(f"{NAME}.weight", (N, K), format)
    assert meaning.dtype is torch.float32 and 0.015 < meaning.std() < 0.025 and meaning.mean().abs() < 0.0005
    found = product(format, torch.eye(K, dtype=torch.float64), tensors(format)).t()
    assert (found - meaning).abs().max() <= 2.0**-8 * meaning.abs().max()
    assert not meaning.equal(weights.meaning(f"{NAME[:-1]}.weight", (N, K), format))


@pytest.mark.parametrize("product, rows, columns", [("w13", 192, 64), ("w2", 64, 96)])
def test_experts_in_mxfp4_mean_what_kernels_multiply_by(product, rows, columns):
    name, sizes = f"model.layers.0.mlp.experts.{product}", {"hidden": 64, "inner": 96}
    model = torch.nn.Module()
    for last, shape, dtype in (("weight", (3, 256, 64), torch.uint8), ("weight_scale", (3, 256, 4), torch.uint8),
                               ("bias", (3, 256), torch.bfloat16)):  # larger than the checkpoint's, as vLLM has them
        model.register_parameter(f"{product}_{last}", torch.nn.Parameter(torch.ones(shape, dtype=dtype), requires_grad=False))
    model.named_parameters = lambda: [(f"{name}_{last}", getattr(model, f"{product}_{last}"))
                                      for last in ("weight", "weight_scale", "bias")]
    weights.fill(model, **sizes)
    codes, scales, bias = (parameter for _, parameter in model.named_parameters())
    own = codes[:, :rows, :columns // 2], scales[:, :rows, :columns // 32], bias[:, :rows]
    for whole, part in zip((codes, scales, bias), own):
        assert whole.count_nonzero() == part.count_nonzero() > 0.9 * part.numel()  # all else is 0
    experts = QuantizedExperts.from_mxfp4(own[0].contiguous(), own[1].contiguous())
    meaning = weights.meaning(f"{name}_weight", (3, rows, columns), "mxfp4")
    assert torch.stack([experts.matrix_of(expert) for expert in range(3)]).equal(meaning)
    assert 0.015 < meaning.std() < 0.025 and bias.float().std() < 0.03
    plain = torch.nn.Module()
    plain.named_parameters = lambda: [(f"{name}_weight", torch.nn.Parameter(torch.ones(3, rows, columns)))]
    filled = plain.named_parameters()
    plain.named_parameters = lambda: filled
    weights.fill(plain, meaning_of="mxfp4", **sizes)
    assert filled[0][1].equal(meaning)


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
