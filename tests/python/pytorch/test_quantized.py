"""Quantized weights from the tensors of checkpoints, and products with them."""

import copy
import io
import itertools

import fakes
import pytest
import torch
from checkpoints import Layer, words

import kernwright
import kernwright.torch as kt
from kernwright.torch import _quantized
from kernwright.torch.ops import quantized_products

SIZES = [(64, 128), (72, 232), (200, 64), (8, 1000)]
SHORT = [(72, 232), (8, 1000)]


def expect_exact(weight, layer):
    assert (weight.n, weight.k, weight.group) == (layer.n, layer.k, min(layer.group, layer.k))
    assert torch.equal(weight.dequantize(torch.float32).double(), layer.weight())


@pytest.mark.parametrize("n, k", SIZES)
@pytest.mark.parametrize("group", [32, 64, 128, 10**6])
@pytest.mark.parametrize("bits", [4, 8])
def test_every_format_gives_exactly_its_weights(n, k, group, bits):
    group = min(group, k)
    layer = Layer(n, k, group, bits)
    for format in ("gptq", "gptq_v2"):
        expect_exact(kt.QuantizedWeight.from_gptq(**layer.gptq(format), format=format, bits=bits), layer)
    given = layer.gptq()
    del given["g_idx"]
    expect_exact(kt.QuantizedWeight.from_gptq(**given, bits=bits, group=group), layer)
    if bits == 4:
        expect_exact(kt.QuantizedWeight.from_awq(**layer.awq(), group=group), layer)
    for g_idx in None, torch.full((k,), -1):
        expect_exact(kt.QuantizedWeight.from_compressed_tensors(**layer.compressed_tensors(), bits=bits, group=group,
                                                                weight_g_idx=g_idx), layer)
    odd = Layer(n - 3, k, group, bits, scale=torch.bfloat16)
    expect_exact(kt.QuantizedWeight.from_compressed_tensors(**odd.compressed_tensors(), bits=bits, group=group), odd)


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_in_the_middle_are_dropped_after_a_look(bits):
    layer = Layer(72, 128, 32, bits, symmetric=True)
    made = [kt.QuantizedWeight.from_gptq(**layer.gptq(), bits=bits),
            kt.QuantizedWeight.from_gptq(**layer.gptq("gptq_v2"), format="gptq_v2", bits=bits),
            kt.QuantizedWeight.from_compressed_tensors(**layer.compressed_tensors(), bits=bits),
            kt.QuantizedWeight.from_compressed_tensors(**layer.compressed_tensors(symmetric=True), bits=bits)]
    if bits == 4:
        made.append(kt.QuantizedWeight.from_awq(**layer.awq()))
    for weight in made:
        assert weight.zeros is None
        expect_exact(weight, layer)
    layer.zeros[71, 3] += 1
    weight = kt.QuantizedWeight.from_gptq(**layer.gptq(), bits=bits)
    assert weight.zeros is not None
    expect_exact(weight, layer)


def test_a_zero_point_of_15_that_is_stored_less_one_is_16():
    layer = Layer(8, 32, 32)
    given = layer.gptq("gptq_v2")
    layer.zeros += 1
    assert (layer.zeros == 16).any()
    expect_exact(kt.QuantizedWeight.from_gptq(**given), layer)


@pytest.mark.parametrize("n, k, group", [(64, 128, 32), (72, 232, 64), (8, 1000, 128)])
@pytest.mark.parametrize("bits", [4, 8])
def test_columns_of_other_orders_are_packed_by_group(n, k, group, bits):
    layer = Layer(n, k, group, bits, ordered=True)
    given = layer.compressed_tensors()
    x = torch.randn(3, k, dtype=torch.float64).float()
    for weight in (kt.QuantizedWeight.from_gptq(**layer.gptq(), bits=bits, group=group),
                   kt.QuantizedWeight.from_compressed_tensors(**given, bits=bits, group=group,
                                                              weight_g_idx=layer.groups.int())):
        expect_exact(weight, layer)
        assert weight.order.dtype is torch.int32
        # 1,000 products are added in fp32.
        torch.testing.assert_close(kt.quantized_linear(x, weight), (x.double() @ layer.weight().t()).float(),
                                   rtol=1e-4, atol=1e-4)


def test_rows_in_mxfp4():
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    draw = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 16, (100, 96), generator=draw)
    scales = torch.randint(0, 255, (100, 3), generator=draw).to(torch.uint8)
    scales[3, 1], scales[4, 2] = 0, 255
    expected = torch.where(codes < 8, 1, -1) * numbers[codes % 8]
    expected *= (2.0 ** (scales.double() - 127)).repeat_interleave(32, 1)
    expected[4, 64:] = torch.nan
    blocks = (codes[:, ::2] + codes[:, 1::2] * 16).to(torch.uint8)
    for given in (blocks, blocks.view(100, 3, 16)):
        weight = kt.QuantizedWeight.from_mxfp4(given, scales)
        assert (weight.n, weight.k, weight.group, weight.weights) == (100, 96, 32, "mxfp4")
        torch.testing.assert_close(weight.dequantize(torch.float32).double(), expected, rtol=0, atol=0,
                                   equal_nan=True)


@pytest.mark.parametrize("weights, most", [("int4", 7), ("int8", 127)])
@pytest.mark.parametrize("group", [32, 128, None])
def test_a_matrix_is_rounded_to_the_nearest_codes(weights, most, group):
    matrix = torch.randn(70, 200)
    matrix[5] = 0
    near = kt.QuantizedWeight.from_float(matrix, weights, group).dequantize(torch.float32)
    steps = torch.cat([part.abs().amax(1, keepdim=True).expand_as(part) for part in matrix.split(group or 200, 1)], 1)
    assert ((near - matrix).abs() <= steps / most * 0.500001).all()


@pytest.mark.parametrize("bits, n, k", [(4, 72, 232), (8, 130, 72)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_bytes_are_in_the_packed_layout(bits, n, k, symmetric):
    """As the document of dequantize_weights says it."""
    layer = Layer(n, k, 32, bits, symmetric=symmetric)
    weight = kt.QuantizedWeight.from_compressed_tensors(**layer.compressed_tensors(), bits=bits, group=32)
    rows, columns, groups = -(-n // 64) * 64, -(-k // 64), -(-k // 32)
    none = 8 if bits == 4 else 128
    for warp, block, lane, place in itertools.product(range(rows // 16), range(columns), range(32), range(32)):
        step, value = divmod(place, 8)
        row = warp * 16 + lane // 4 + value // 2 % 2 * 8
        column = block * 64 + step * 16 + lane % 4 * 2 + value % 2 + value // 4 * 8
        of_blocks = weight.codes[warp // 4].view(columns, -1)[block].view(4, -1)[warp % 4]
        if bits == 4:
            nibble = (0, 4, 1, 5, 2, 6, 3, 7)[value]
            stored = int(of_blocks.view(32, 4, 4)[lane, step, nibble // 2]) >> nibble % 2 * 4 & 15
        else:
            stored = int(of_blocks.view(2, 32, 2, 8)[step // 2, lane, step % 2, value])
        if row < n:
            expected = layer.codes[row, column] if column < k else none if symmetric else layer.zeros[row, -1]
        else:
            expected = none if symmetric else 0
        assert stored == expected, (row, column)
    for row, group in itertools.product(range(rows), range(groups)):
        place = row % 64 // 16 * 16 + row % 8 * 2 + row // 8 % 2
        assert weight.scales[row // 64].view(groups, 64)[group, place] == (layer.scales[row, group] if row < n else 0)
        if not symmetric:
            assert weight.zeros[row // 64].view(groups, 64)[group, place] == (layer.zeros[row, group] if row < n else 0)


def gptq(**changes):
    return {**Layer(64, 128, 32).gptq(), **changes}


@pytest.mark.parametrize("make, given, text", [
    ("from_gptq", gptq(bits=3), "bits is 3"),
    ("from_gptq", gptq(format="gptq_v3"), "format is 'gptq_v3'"),
    ("from_gptq", gptq(qweight=torch.zeros(16, 63, dtype=torch.int32)), r"qweight has the shape \[16, 63\], and \[16, 64\]"),
    ("from_gptq", gptq(qweight=torch.zeros(16, 64, dtype=torch.int64)), "qweight is torch.int64, and torch.int32"),
    ("from_gptq", gptq(qzeros=torch.zeros(3, 8, dtype=torch.int32)), r"qzeros has the shape \[3, 8\], and \[4, 8\]"),
    ("from_gptq", gptq(scales=torch.zeros(4, 64, dtype=torch.float64)), "scales is torch.float64"),
    ("from_gptq", gptq(scales=torch.zeros(64)), "scales is .*a matrix"),
    ("from_gptq", gptq(g_idx=torch.zeros(128)), "g_idx is torch.float32"),
    ("from_gptq", gptq(g_idx=torch.arange(128) // 32 + 1), "numbers of 4 groups"),
    ("from_gptq", gptq(g_idx=(torch.arange(128) // 33)), "group is 33, and a multiple of 16"),
    ("from_gptq", gptq(g_idx=torch.tensor([0] * 32 + [1] * 40 + [2] * 24 + [3] * 32)), "whole groups of 32 columns"),
    ("from_gptq", {**Layer(64, 192, 128).gptq(), "g_idx": None}, "do not follow from 192 columns in 2 groups; give group"),
    ("from_gptq", gptq(group=64), "group is 64, and 128 columns have 4"),
    ("from_gptq", {**Layer(8, 16, 16, 8).gptq(), "qzeros": words(torch.full((1, 8), 255), 1, 8), "bits": 8},
     "zero point of 256"),
    ("from_awq", {**Layer(64, 128).awq(), "qweight": torch.zeros(128, 9, dtype=torch.int32)}, "qweight has the shape"),
    ("from_compressed_tensors", {**Layer(64, 128).compressed_tensors(), "weight_shape": (63, 128)}, "has 64 rows"),
    ("from_compressed_tensors", {**Layer(64, 128).compressed_tensors(), "weight_shape": (64, 124), "group": 32}, "multiple of 8"),
    ("from_compressed_tensors", {**Layer(64, 128).compressed_tensors(), "weight_zero_point": torch.zeros(64, 4)},
     "weight_zero_point has the shape"),
    ("from_compressed_tensors", {**Layer(64, 120, 8).compressed_tensors(), "group": 8}, "multiple of 16"),
    ("from_mxfp4", {"blocks": torch.zeros(4, 2, 16), "scales": torch.zeros(4, 2, dtype=torch.uint8)}, "blocks is"),
    ("from_float", {"weight": torch.zeros(4, 32), "weights": "mxfp4"}, "weights is 'mxfp4'"),
])
def test_what_does_not_fit_is_refused_by_name(make, given, text):
    with pytest.raises(ValueError, match=text):
        getattr(kt.QuantizedWeight, make)(**given)


def test_a_weight_is_a_set_of_tensors():
    layer = Layer(72, 232, 64, ordered=True, scale=torch.float16)
    weight = kt.QuantizedWeight.from_gptq(**layer.gptq(), group=64)
    assert set(weight.state_dict()) == {"codes", "scales", "zeros", "order"}
    assert weight.bytes == sum(part.nbytes for part in weight.state_dict().values())
    file = io.BytesIO()
    torch.save(weight, file)
    file.seek(0)
    for other in (copy.deepcopy(weight), torch.load(file, weights_only=False), copy.deepcopy(weight).to(torch.bfloat16),
                  copy.deepcopy(weight).half().share_memory()):
        assert other.scales.dtype is torch.float16
        expect_exact(other, layer)
    empty = kt.QuantizedWeight(72, 232, 64, scale=torch.float16, zeros=True, order=True, device="meta")
    empty.load_state_dict(weight.state_dict(), assign=True)
    expect_exact(empty, layer)
    other = kt.QuantizedWeight(72, 232, 64, zeros=True, order=True)
    with pytest.raises(RuntimeError, match="scales is torch.float16, and torch.bfloat16 expected"):
        other.load_state_dict(weight.state_dict())


def quantized(n=72, k=232, dtype=torch.bfloat16, **named):
    return kt.QuantizedWeight.from_gptq(**Layer(n, k, 64, scale=dtype, **named).gptq(), group=64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("activation", [None, "silu", "gelu_tanh"])
def test_products_are_those_of_the_plain_matrix(dtype, activation):
    weight = quantized(ordered=True)
    x, bias, residual = (torch.randn(size, dtype=torch.float32).to(dtype) for size in ((2, 3, 232), 72, (2, 3, 72)))
    matrix = weight.dequantize(torch.float32)
    expected = kt.ops.plain.linear(x.float(), matrix, bias.float(), residual.float(), activation=activation)
    result = kt.quantized_linear(x, weight, bias, activation=activation, residual=residual)
    torch.testing.assert_close(result, expected.to(dtype))
    assert kt.quantized_linear(x[:0], weight).shape == (0, 3, 72)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_graph_breaks(dynamic):
    weight = quantized()

    def call(x, bias):
        return kt.quantized_linear(x * 2, weight, bias, activation="silu", residual=x[..., :72]) + 1

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 4):
        x, bias = torch.randn(rows, 232).bfloat16(), torch.randn(72).bfloat16()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, bias), call(x, bias))


def test_the_operator_is_sound():
    weight = quantized(ordered=True)
    torch.library.opcheck(
        torch.ops.kernwright.quantized_linear.default,
        (torch.randn(5, 232).bfloat16(), weight.codes, weight.scales, weight.zeros, weight.order),
        {"n": 72, "group": 64, "weights": "int4"}, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


def test_shapes_and_gradients_are_refused():
    weight, x = quantized(), torch.randn(4, 232).bfloat16()
    with pytest.raises(kernwright.Error, match="x has 240 columns, and 232 expected"):
        kt.quantized_linear(torch.zeros(4, 240).bfloat16(), weight)
    with pytest.raises(kernwright.Error, match="bias has the shape"):
        kt.quantized_linear(x, weight, torch.zeros(71).bfloat16())
    with pytest.raises(kernwright.Error, match="no backward"):
        kt.quantized_linear(x.requires_grad_(), weight)


Array = fakes.TorchTensor


@pytest.mark.parametrize("given, problem", [
    ((Array(16, 256, dtype="uint8"), Array(4, 64, dtype="fp16"), Array(4, 32, dtype="uint8"), "gptq", "less_one", "int4", 32),
     "pack_weights n=64 k=128 group=32 scale=fp16 source=gptq zero=less_one"),
    ((Array(32, 256, dtype="uint8"), Array(1, 64, dtype="fp16"), None, "gptq", "none", "int8", 128),
     "pack_weights n=64 k=128 scale=fp16 source=gptq weights=int8"),
    ((Array(128, 32, dtype="uint8"), Array(4, 64), Array(4, 32, dtype="uint8"), "awq", "code", "int4", 32),
     "pack_weights n=64 k=128 group=32 scale=bf16 source=awq zero=code"),
    ((Array(63, 64, dtype="uint8"), Array(63, 4, dtype="uint8"), None, "rows", "none", "mxfp4", 32),
     "pack_weights n=63 k=128 group=32 scale=uint8 weights=mxfp4"),
])
def test_the_problems_of_packing(planned, given, problem):
    assert planned(_quantized._pack_by_kernel, *given) == problem


def test_the_problems_of_products(planned):
    codes, scales, zeros = Array(2, 4 * 2048, dtype="uint8"), Array(2, 256, dtype="fp16"), Array(2, 256, dtype="uint8")
    of = {"n": 100, "group": 64, "weights": "int4"}
    assert planned(quantized_products._our_quantized_linear, Array(2, 3, 232), codes, scales, zeros, **of) == (
        "quantized_matmul m=6 n=100 k=232 group=64 dtype=bf16 scale=fp16 zero=code")
    assert planned(quantized_products._our_quantized_linear, Array(3, 232), codes, scales, None, None, Array(100),
                   Array(3, 100), activation="silu", **of) == (
        "quantized_matmul m=3 n=100 k=232 group=64 dtype=bf16 scale=fp16 bias=column activation=silu residual=add")
    gated = Array(8, 4 * 512 * 4, dtype="uint8"), Array(8, 4 * 64, dtype="fp16")
    assert planned(quantized_products._our_quantized_gated_linear, Array(3, 232), *gated, n=232, group=64,
                   weights="int4", activation="silu") == (
        "quantized_matmul m=3 n=232 k=232 group=64 dtype=bf16 scale=fp16 activation=silu gate=stacked")
    rows = _quantized.Rows(codes, scales, None)
    assert planned(_quantized._dequantize_by_kernel, rows, 100, 232, 64, "int4", torch.bfloat16) == (
        "dequantize_weights n=100 k=232 group=64 dtype=bf16 scale=fp16")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("n, k", SIZES)
def test_rows_of_8_bits_multiply_rows_that_are_quantized_alike(n, k, dtype):
    draw = torch.Generator().manual_seed(n)
    matrix = torch.randn(n, k, generator=draw)
    weight = kt.QuantizedRows.from_float(matrix, dtype)
    x = torch.randn(2, 3, k, generator=draw).to(torch.bfloat16)
    bias = torch.randn(n, generator=draw).to(torch.bfloat16)
    codes, scales = kt.quantize_rows(x, dtype)
    assert (codes.shape, codes.dtype, scales.shape) == (x.shape, dtype, (6, 1))
    rows = codes.double() * scales.double().view(2, 3, 1)
    exact = torch.nn.functional.silu(rows @ weight.dequantize(torch.float64).t() + bias)
    result = kt.quantized_linear(x, weight, bias, activation="silu")
    assert result.dtype is torch.bfloat16
    assert torch.allclose(result.double(), exact, rtol=2**-8, atol=1e-3)
    # Both operands are rounded: to 1 of 254 codes, or to 3 bits of the fraction.
    error = (rows - x.double()).abs().amax(-1) / x.double().abs().amax(-1)
    assert error.max() <= (1 / 253 if dtype is torch.int8 else 1 / 28)


def test_rows_of_8_bits_come_from_checkpoints_as_they_are():
    codes = torch.randint(-128, 128, (72, 40), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    scales = (torch.rand(72, 1, generator=torch.Generator().manual_seed(2)) + 0.5).to(torch.bfloat16)
    weight = kt.QuantizedRows.from_compressed_tensors(codes, scales)
    assert torch.equal(weight.codes, codes) and torch.equal(weight.scales, scales.float().t())
    assert torch.equal(weight.dequantize(torch.float64), codes.double() * scales.double())
    one = kt.QuantizedRows.from_compressed_tensors(codes, torch.tensor(0.25))
    assert torch.equal(one.scales, torch.full((1, 72), 0.25))
    empty = kt.QuantizedRows(72, 40)
    empty.load_state_dict(weight.state_dict())
    assert torch.equal(empty.dequantize(), weight.dequantize())
    assert torch.equal(copy.deepcopy(weight).half().scales, weight.scales)
    for wrong, why in (((codes.to(torch.int32), scales), "torch.int32"), ((codes, scales[:5]), "weight_scale"),
                       ((codes[0], scales), "a matrix")):
        with pytest.raises(ValueError, match=why):
            kt.QuantizedRows.from_compressed_tensors(*wrong)
    with pytest.raises(kernwright.Error, match="x has 48 columns, and 40 expected"):
        kt.quantized_linear(torch.zeros(3, 48, dtype=torch.bfloat16), weight)


def test_a_row_of_zeros_has_the_least_scale():
    codes, scales = kt.quantize_rows(torch.zeros(3, 16, dtype=torch.bfloat16))
    assert not codes.any() and torch.equal(scales, torch.full((3, 1), 1e-10))
