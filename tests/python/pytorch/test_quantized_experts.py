"""Quantized weights of experts from the tensors of checkpoints, and products with them."""

import fakes
import pytest
import torch
from checkpoints import Layer, mxfp4, stacked

import kernwright
import kernwright.torch as kt
from kernwright.torch.ops import quantized_products

@pytest.mark.parametrize("rows, k", [(66, 96), (128, 64), (200, 320)])
@pytest.mark.parametrize("gate", ["none", "stacked", "interleaved"])
def test_experts_in_mxfp4(rows, k, gate):
    blocks, scales, weight = mxfp4(3, rows, k)
    bias = torch.randn(3, rows).bfloat16()
    made = kt.QuantizedExperts.from_mxfp4(blocks, scales, bias, gate=gate)
    assert (made.experts, made.n, made.k, made.group) == (3, rows if gate == "none" else rows // 2, k, 32)
    expected = (stacked(weight), stacked(bias)) if gate == "interleaved" else (weight, bias)
    assert torch.equal(made.dequantize(torch.float32).double(), expected[0])
    assert torch.equal(made.bias, expected[1])
    assert set(made.state_dict()) == {"codes", "scales", "bias"}
    assert made.bfloat16().scales.dtype is torch.uint8


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("gate", ["none", "stacked", "interleaved"])
def test_experts_of_compressed_tensors(bits, gate):
    layers = [Layer(80, 160, 32, bits, symmetric=True, seed=seed) for seed in range(3)]
    given = [layer.compressed_tensors(symmetric=True) for layer in layers]
    made = kt.QuantizedExperts.from_compressed_tensors(
        *(torch.stack([one[name] for one in given]) for name in ("weight_packed", "weight_scale")), gate=gate, bits=bits)
    weight = torch.stack([layer.weight() for layer in layers])
    expected = stacked(weight) if gate == "interleaved" else weight
    assert torch.equal(made.dequantize(torch.float32).double(), expected)


def parts_of(layers, format):
    """A gate and what it opens for each expert, packed one by one."""
    named = {"bits": layers[0].bits, "group": layers[0].group}
    make = {"gptq": lambda layer: kt.QuantizedWeight.from_gptq(**layer.gptq(), **named),
            "awq": lambda layer: kt.QuantizedWeight.from_awq(**layer.awq(), group=layer.group),
            "compressed_tensors": lambda layer: kt.QuantizedWeight.from_compressed_tensors(
                **layer.compressed_tensors(), **named)}[format]
    made = [make(layer) for layer in layers]
    return list(zip(made[::2], made[1::2]))


@pytest.mark.parametrize("format, bits, symmetric", [
    ("gptq", 4, (False,) * 6), ("gptq", 8, (True,) * 6), ("awq", 4, (False,) * 6), ("compressed_tensors", 8, (False,) * 6),
    ("compressed_tensors", 4, (True, True, True, False, True, True))])
def test_experts_are_joined_from_weights(format, bits, symmetric):
    layers = [Layer(40, 160, 32, bits, symmetric=each, seed=seed) for seed, each in enumerate(symmetric)]
    bias = torch.randn(3, 80)
    made = kt.QuantizedExperts.join(parts_of(layers, format), bias, gate="stacked")
    weight = torch.stack([torch.cat((gate.weight(), up.weight())) for gate, up in zip(layers[::2], layers[1::2])])
    assert torch.equal(made.dequantize(torch.float32).double(), weight) and torch.equal(made.bias, bias)
    assert (made.zeros is None) == all(symmetric) and made.gated and made.n == 40
    alone = kt.QuantizedExperts.join([(own[0],) for own in parts_of(layers, format)])
    assert torch.equal(alone.dequantize(torch.float32).double(), torch.stack([layer.weight() for layer in layers[::2]]))


@pytest.mark.parametrize("other, text", [
    (Layer(40, 160, 64), "group of expert 1 is 64, and 32 of the first one"),
    (Layer(40, 128, 32), "k of expert 1 is 128, and 160"),
    (Layer(40, 160, 32, scale=torch.bfloat16), "scales of expert 1 is torch.bfloat16, and torch.float16"),
    (Layer(48, 160, 32), r"experts have \[40, 48\] rows"),
    (Layer(40, 160, 32, ordered=True), "the columns of expert 1 are sorted by activation")])
def test_experts_that_differ_are_refused_by_name(other, text):
    weights = [(kt.QuantizedWeight.from_gptq(**layer.gptq(), group=layer.group),) for layer in (Layer(40, 160, 32), other)]
    with pytest.raises(ValueError, match=text):
        kt.QuantizedExperts.join(weights)


def expected_product(x, weight, bias, ends, row_of, row_scale, activation):
    result, begin = torch.zeros(len(row_of), weight.shape[1] // 2, dtype=torch.float64), 0
    for expert, end in enumerate(ends):
        sums = x[row_of[begin:end]].double() @ weight[expert].t() + bias[expert].double()
        gate, up = sums.chunk(2, 1)
        if activation == "swiglu_oai":
            gate = gate.clamp(max=7)
            done = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7, 7) + 1)
        else:
            done = torch.nn.functional.silu(gate) * up
        result[begin:end] = done * row_scale[begin:end, None]
        begin = end
    return result


@pytest.mark.parametrize("activation", ["swiglu_oai", "silu"])
def test_products(activation):
    blocks, scales, weight = mxfp4(4, 132, 96)
    bias = torch.randn(4, 132).bfloat16()
    made = kt.QuantizedExperts.from_mxfp4(blocks, scales, bias, gate="interleaved")
    x, row_scale = torch.randn(5, 96).bfloat16(), torch.rand(10)
    row_of, ends = torch.randint(0, 5, (10,), dtype=torch.int32), torch.tensor([3, 3, 8, 10], dtype=torch.int32)

    def call():
        return kt.quantized_grouped_matmul(x, made, ends, row_of=row_of, row_scale=row_scale, activation=activation)

    expected = expected_product(x, stacked(weight), stacked(bias), ends.tolist(), row_of.long(), row_scale, activation)
    torch.testing.assert_close(call(), expected.bfloat16())
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(), call())


def test_the_operator_is_sound():
    blocks, scales, _ = mxfp4(2, 64, 64)
    made = kt.QuantizedExperts.from_mxfp4(blocks, scales)
    torch.library.opcheck(
        torch.ops.kernwright.quantized_grouped_matmul.default,
        (torch.randn(5, 64).bfloat16(), made.codes, made.scales, torch.tensor([2, 5], dtype=torch.int32)),
        {"n": 64, "group": 32, "weights": "mxfp4"}, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("given, text", [
    (dict(gate="both"), "gate is 'both'"),
    (dict(blocks=torch.zeros(2, 64, 3, 16, dtype=torch.uint8)), r"blocks has the shape \[2, 64, 48\], and \[2, 64, 32\]"),
    (dict(scales=torch.zeros(64, 2, dtype=torch.uint8)), "a matrix for each expert"),
    (dict(bias=torch.zeros(2, 63)), r"bias has the shape \[2, 63\]"),
    (dict(blocks=torch.zeros(2, 63, 32, dtype=torch.uint8), scales=torch.zeros(2, 63, 2, dtype=torch.uint8),
          gate="stacked"), "63 rows of weights"),
])
def test_what_does_not_fit_is_refused_by_name(given, text):
    blocks, scales, _ = mxfp4(2, 64, 64)
    with pytest.raises(ValueError, match=text):
        kt.QuantizedExperts.from_mxfp4(**{"blocks": blocks, "scales": scales, **given})


def test_shapes_are_refused():
    blocks, scales, _ = mxfp4(2, 64, 64)
    made = kt.QuantizedExperts.from_mxfp4(blocks, scales)
    with pytest.raises(ValueError, match="gated=False, and gates of 2 experts from 64 to 64 columns expected"):
        kt.QuantizedMixture(made, made)
    with pytest.raises(ValueError, match="weight of expert 0 has elements that MXFP4 does not hold"):
        kt.QuantizedExperts.from_dequantized(torch.full((2, 64, 64), 7.0))
    with pytest.raises(ValueError, match="weight has 48 columns, and groups of 32 expected"):
        kt.QuantizedExperts.from_dequantized(torch.ones(2, 64, 48))
    with pytest.raises(kernwright.Error, match="x has 32 columns, and 64 expected"):
        kt.quantized_grouped_matmul(torch.zeros(4, 32).bfloat16(), made, torch.tensor([2, 4], dtype=torch.int32))


Array = fakes.TorchTensor


@pytest.mark.parametrize("named, problem", [
    (dict(n=2880, group=32, weights="mxfp4", activation="swiglu_oai", gated=True, bias=Array(32, 5760),
          row_of=Array(64, dtype="int32")),
     "grouped_quantized_matmul experts=32 rows=64 n=2880 k=2880 group=32 tokens=16 dtype=bf16 scale=uint8 "
     "weights=mxfp4 a_rows=indexed bias=expert activation=swiglu_oai gate=stacked"),
    (dict(n=5760, group=32, weights="mxfp4", row_scale=Array(16, dtype="fp32")),
     "grouped_quantized_matmul experts=32 rows=16 n=5760 k=2880 group=32 dtype=bf16 scale=uint8 weights=mxfp4 "
     "scale_rows=given"),
])
def test_what_a_call_asks_for(tmp_path, named, problem):
    service = kernwright.Service(tmp_path / "cache", sku="h200", on_miss="fail")
    with service, pytest.raises(kernwright.Error) as caught:
        quantized_products._our_grouped(Array(16, 2880), Array(32 * 90, 45 * 2048, dtype="uint8"),
                                        Array(32 * 90, 90 * 64, dtype="uint8"), Array(32, dtype="int32"), **named)
    assert caught.value.problem == problem
