"""Norms and gates whose results are quantized."""

import pytest
import torch
from torch.nn import functional

import kernwright
import kernwright.torch as kt

LARGEST = {torch.int8: 127, torch.float8_e4m3fn: 448}


def draw(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def quotients(y, scales, group):
    """y divided by its scales, of `group` columns each."""
    return y.double() / scales.double().repeat_interleave(group, 1)[:, :y.shape[-1]].view(y.shape)


def expect_codes(codes, y, scales, group):
    """Codes are the quotients, rounded: within half of a code and what fp32 leaves of the quotient."""
    exact = quotients(y, scales, group)
    step = 0.5 if codes.dtype is torch.int8 else exact.abs().clamp(min=2**-6).log2().floor().exp2() / 16
    assert ((codes.double() - exact).abs() <= step + 1e-4 * exact.abs()).all()


def normal_of(x, w, b, layer):
    if layer:
        return functional.layer_norm(x.double(), x.shape[-1:], w.double(), b.double(), 1e-5)
    return functional.rms_norm(x.double(), x.shape[-1:], w.double(), 1e-6)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("columns", [40, 128, 200, 392])
@pytest.mark.parametrize("quantize", ["row", "block"])
@pytest.mark.parametrize("layer", [False, True])
def test_codes_and_scales_are_of_the_norm_before_it_is_rounded(columns, quantize, dtype, layer):
    x, r, w, b = draw(2, 3, columns), draw(2, 3, columns) / 2, draw(columns), draw(columns) / 4
    group = columns if quantize == "row" else 128
    named = {"quantize": quantize, "out_dtype": dtype}
    for residual in None, r:
        total = x if residual is None else x + r
        results = (kt.layer_norm(x, w, b, residual=residual, **named) if layer else
                   kt.rms_norm(x, w, residual=residual, **named))
        codes, scales = results[:2]
        assert (codes.shape, codes.dtype, scales.shape) == (x.shape, dtype, (6, -(-columns // 128) if group == 128 else 1))
        y = normal_of(total, w, b, layer)
        padded = functional.pad(y.flatten(0, 1), (0, -columns % group)).unflatten(1, (-1, group))
        assert torch.allclose(scales.double(), padded.abs().amax(-1) / LARGEST[dtype], rtol=1e-5)
        expect_codes(codes, y, scales, group)
        if residual is not None:
            assert torch.equal(results[2], total)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("quantize", ["row", "block"])
def test_codes_and_scales_are_of_the_gated_activation(quantize, dtype):
    x = draw(5, 2 * 200)
    gate, up = x.double().chunk(2, -1)
    group = 200 if quantize == "row" else 128
    for result, y in ((kt.silu_and_mul(x, quantize=quantize, out_dtype=dtype), functional.silu(gate) * up),
                      (kt.gelu_and_mul(x, quantize=quantize, out_dtype=dtype), functional.gelu(gate) * up)):
        codes, scales = result
        assert (codes.shape, codes.dtype, scales.shape) == ((5, 200), dtype, (5, 1 if group == 200 else 2))
        expect_codes(codes, y, scales, group)


def test_a_given_scale_is_for_all_rows_and_saturates():
    x, w, scale = draw(4, 64), draw(64), torch.tensor([0.015625])
    y = normal_of(x, w, None, False) / 0.015625
    codes = kt.rms_norm(x, w, quantize="tensor", scale=scale)
    assert codes.dtype is torch.int8 and (y.abs() > 128).any()
    assert ((codes.double() - y.clamp(-128, 127)).abs() <= 0.501).all()
    codes, total = kt.layer_norm(x, w, residual=x, quantize="tensor", scale=scale, out_dtype=torch.float8_e4m3fn)
    assert codes.dtype is torch.float8_e4m3fn and torch.equal(total, x + x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_product_takes_the_codes_of_a_norm(dtype):
    x, w = draw(2, 3, 72), draw(72)
    weight = kt.QuantizedRows.from_float(draw(40, 72), dtype)
    rows = kt.rms_norm(x, w, quantize="row", out_dtype=dtype)
    result = kt.quantized_linear(rows, weight, activation="silu")
    apart = kt.quantized_linear(kt.rms_norm(x, w), weight, activation="silu")
    assert result.dtype is torch.bfloat16 and result.shape == apart.shape
    assert (result.float() - apart.float()).abs().max() <= 0.05 * apart.float().abs().max()
    assert kt.quantized_linear(rows, weight, out_dtype=torch.float16).dtype is torch.float16
    with pytest.raises(kernwright.Error, match="QuantizedRows alone"):
        kt.quantized_linear(rows, kt.QuantizedWeight(40, 72))


def test_zeros_have_the_least_scale():
    for quantize in "row", "block":
        codes, scales = kt.rms_norm(torch.zeros(3, 256, dtype=torch.bfloat16), quantize=quantize)
        assert not codes.any() and torch.equal(scales, torch.full(scales.shape, 1e-10))


def test_what_does_not_fit_is_refused():
    x = draw(4, 64)
    for named, reason in (({"quantize": "row", "out_dtype": torch.bfloat16}, "out_dtype is torch.bfloat16"),
                          ({"quantize": "tensor"}, "scale is missing"), ({"quantize": "columns"}, "'columns'"),
                          ({"quantize": "row", "scale": torch.ones(1)}, "scale is given"),
                          ({"quantize": "row", "residual": draw(4, 65)}, "residual has the shape")):
        with pytest.raises(kernwright.Error, match=reason):
            kt.rms_norm(x, **named)


def test_they_trace():
    compiled = torch.compile(lambda x, w: kt.rms_norm(x, w, quantize="block", out_dtype=torch.float8_e4m3fn),
                             backend="eager", fullgraph=True)
    x, w = draw(4, 256), draw(256)
    for ours, traced in zip(kt.rms_norm(x, w, quantize="block", out_dtype=torch.float8_e4m3fn), compiled(x, w)):
        assert torch.equal(ours.float(), traced.float())
