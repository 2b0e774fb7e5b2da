"""Operators of scaled and grouped products: shapes, the errors of their kernels, torch.compile."""

import fakes
import pytest
import torch

import kernwright
from kernwright import torch as kw


def on_meta(shape, dtype="bf16", strides=None):
    return torch.empty_strided(shape, strides or fakes.contiguous(shape), device="meta",
                               dtype=getattr(torch, fakes.DTYPES[dtype][3]))


def on_a_gpu(shape, dtype="bf16", strides=None):
    return fakes.TorchTensor(*shape, dtype=dtype, strides=strides)


def made(new, arguments):
    """Tensors of their shapes, dtypes and strides; what else there is, as it is."""
    return {name: new(*value) if isinstance(value, tuple) else value
            for name, value in arguments.items()}


GROUPED = {"a": ((64, 256),), "b": ((4, 256, 128), "bf16", (32768, 1, 256)),
           "offs": ((4,), "int32")}
GROUPED_FP8 = {"a": ((64, 256), "fp8_e4m3"), "b": ((4, 256, 128), "fp8_e4m3", (32768, 1, 256)),
               "offs": ((4,), "int32"), "scale_a": ((64, 2), "fp32", (1, 64)),
               "scale_b": ((4, 2, 1), "fp32", (2, 1, 2))}
SCALED = {"a": ((64, 256), "fp8_e4m3"), "b": ((256, 128), "fp8_e4m3", (1, 256)),
          "scale_a": 0.5, "scale_b": 2.0}
BLOCKS = {**SCALED, "scale_a": ((64, 2), "fp32", (1, 64)), "scale_b": ((2, 1), "fp32", (1, 2))}


@pytest.mark.parametrize("operation, arguments, shape, dtype", [
    (kw.grouped_matmul, GROUPED, (64, 128), torch.bfloat16),
    (kw.grouped_matmul, {**GROUPED, "gated": True, "activation": "silu"}, (64, 64), torch.bfloat16),
    (kw.grouped_matmul, {**GROUPED, "row_of": ((90,), "int32")}, (90, 128), torch.bfloat16),
    (kw.grouped_matmul, {**GROUPED, "b": ((4, 256, 128),), "bias": ((4, 128),), "gated": True, "interleaved": True,
                         "activation": "swiglu_oai"}, (64, 64), torch.bfloat16),
    (kw.grouped_matmul, GROUPED_FP8, (64, 128), torch.bfloat16),
    (kw.grouped_matmul, {**GROUPED_FP8, "out_dtype": torch.float16}, (64, 128), torch.float16),
    (kw.scaled_matmul, SCALED, (64, 128), torch.bfloat16),
    (kw.scaled_matmul, {**SCALED, "a": ((2, 32, 256), "fp8_e4m3")}, (2, 32, 128), torch.bfloat16),
    (kw.scaled_matmul, {**BLOCKS, "bias": ((128,),)}, (64, 128), torch.bfloat16),
    (kw.scaled_matmul, {**BLOCKS, "out_dtype": torch.float32}, (64, 128), torch.float32),
])
def test_shapes_without_data(operation, arguments, shape, dtype):
    result = operation(**made(on_meta, arguments))
    assert (tuple(result.shape), result.dtype, result.is_contiguous()) == (shape, dtype, True)
    given = {name: value for name, value in arguments.items() if name != "out_dtype"}
    assert operation(**made(on_meta, given), out=result) is result


@pytest.mark.parametrize("name, arguments, change, text", [
    ("grouped_matmul", GROUPED, {"a": ((256,),)}, "a has 1 dimensions, and 2 expected"),
    ("grouped_matmul", GROUPED, {"a": ((64, 256), "fp16")}, "one dtype expected"),
    ("grouped_matmul", GROUPED, {"b": ((4, 256, 128), "bf16", (65536, 256, 2))}, "b has the strides [65536, 256, 2]"),
    ("grouped_matmul", GROUPED, {"bias": ((4, 64),)}, "bias has the shape [4, 64], and [4, 128] expected"),
    ("grouped_matmul", GROUPED, {"b": ((4, 256, 127), "bf16", (32512, 1, 256)), "gated": True},
     "[4, 256, 127], and an even number expected in place of 127"),
    ("grouped_matmul", GROUPED, {"offs": ((3,), "int32")}, "offs has the shape [3], and [4]"),
    ("grouped_matmul", GROUPED, {"offs": ((4,), "int64")}, "offs is int64, and int32 expected"),
    ("grouped_matmul", GROUPED, {"row_of": ((90,), "int64")}, "row_of is int64, and int32 expected"),
    ("grouped_matmul", GROUPED, {"scale_a": ((64, 2), "fp32", (1, 64))}, "scale_a is given, and only a problem with dtype == dtype_fp8_e4m3"),
    ("grouped_matmul", GROUPED_FP8, {"scale_b": None}, "scale_b is missing"),
    ("grouped_matmul", GROUPED_FP8, {"scale_a": ((64, 2), "fp32")}, "scale_a has the strides"),
    ("scaled_matmul", SCALED, {"a": ((64, 256),), "b": ((256, 128), "bf16", (1, 256))},
     "a is bf16, and fp8_e4m3 expected"),
    ("scaled_matmul", SCALED, {"b": ((256, 128), "fp8_e4m3")}, "b has the strides [128, 1], and [1, 256]"),
    ("scaled_matmul", SCALED, {"scale_a": ((64, 2), "fp32", (1, 64))}, "two numbers or two arrays"),
    ("scaled_matmul", BLOCKS, {"bias": ((64,),)}, "bias has the shape [64], and [128] expected"),
])
def test_errors_are_those_of_the_kernels(refused, name, arguments, change, text):
    wrong = {**arguments, **change}
    with pytest.raises(kernwright.Error) as caught:
        getattr(kw, name)(**made(on_meta, wrong))
    assert text in caught.value.reason
    assert caught.value.reason == refused(getattr(kernwright, name), **made(on_a_gpu, wrong))


def random(*shape, dtype=torch.bfloat16, **named):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, **named).to(dtype)


def test_gradients_are_refused(on_cpu):
    offs = torch.tensor([1, 3], dtype=torch.int32)
    x, weights = random(3, 8).requires_grad_(), random(2, 4, 8).transpose(1, 2)
    with pytest.raises(kernwright.Error, match="grouped_matmul has no backward"):
        kw.grouped_matmul(x, weights, offs)
    fp8 = random(3, 8, dtype=torch.float8_e4m3fn), random(4, 8, dtype=torch.float8_e4m3fn).t()
    bias = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(kernwright.Error, match="scaled_matmul has no backward"):
        kw.scaled_matmul(*fp8, 1.0, 1.0, bias=bias)
    with torch.no_grad():
        kw.grouped_matmul(x, weights, offs)
        kw.scaled_matmul(*fp8, 1.0, 1.0, bias=bias)


def mixture(x, weights, down, offs, out):
    inner = kw.grouped_matmul(x * 2, weights.transpose(1, 2), offs, activation="silu", gated=True)
    kw.grouped_matmul(inner, down.transpose(1, 2), offs, out=out)
    return inner[:5] * 2, out + 1


def scaled(x, weight, scale_x, scale_weight, out):
    whole = kw.scaled_matmul(x, weight.t(), 0.5, 2.0, activation="silu")
    kw.scaled_matmul(x, weight.t(), scale_x.t(), scale_weight.t(), out=out, residual=whole)
    return whole + out * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_graph_breaks(on_cpu, backend, dynamic):
    offs = torch.tensor([2, 2, 5], dtype=torch.int32)
    weights, down = random(3, 32, 16), random(3, 8, 16)
    fp8 = random(16, 256, dtype=torch.float8_e4m3fn)
    with torch.no_grad():
        for rows in (5, 6):
            for call, arguments, out in (
                    (mixture, (random(rows, 16), weights, down, offs), random(rows, 8)),
                    (scaled, (random(rows, 256, dtype=torch.float8_e4m3fn), fp8,
                              random(2, rows, dtype=torch.float32),
                              random(1, 2, dtype=torch.float32)), random(rows, 16))):
                compiled = torch.compile(call, backend=backend, fullgraph=True, dynamic=dynamic)
                of_right, of_mine = out.clone(), out.clone()
                right, mine = call(*arguments, of_right), compiled(*arguments, of_mine)
                torch.testing.assert_close(of_mine, of_right)
                torch.testing.assert_close(mine, right, rtol=0.02, atol=0.02)
    assert on_cpu.count("grouped_matmul") == 4 == on_cpu.count("scaled_matmul.Scalar")


def test_operators_are_sound(on_cpu):
    weights, offs = random(2, 8, 16).transpose(1, 2), torch.tensor([2, 5], dtype=torch.int32)
    x, fp8 = random(5, 256, dtype=torch.float8_e4m3fn), random(16, 256, dtype=torch.float8_e4m3fn).t()
    scales = random(2, 5, dtype=torch.float32).t(), random(1, 2, dtype=torch.float32).t()
    of = torch.ops.kernwright
    for operator, arguments, named in (
            (of.grouped_matmul.default, (random(5, 16), weights, offs), {"gated": True}),
            (of.grouped_matmul.default, (random(3, 16), weights, offs, None, None,
                                         torch.tensor([2, 0, 1, 1, 2], dtype=torch.int32)), {}),
            (of.grouped_matmul.default, (random(5, 16), random(2, 16, 8), offs, None, None, None, random(2, 8)),
             {"gated": True, "interleaved": True, "activation": "swiglu_oai"}),
            (of.grouped_matmul.out, (random(5, 16), weights, offs), {"out": random(5, 8)}),
            (of.scaled_matmul.default, (x, fp8, *scales), {}),
            (of.scaled_matmul.out, (x, fp8, *scales), {"out": random(5, 16)}),
            (of.scaled_matmul.Scalar, (x, fp8, 0.5, 2.0), {"out_dtype": torch.float32}),
            (of.scaled_matmul.Scalar_out, (x, fp8, 0.5, 2.0), {"out": random(5, 16)})):
        # PyTorch's look at a schema computes on the CPU what it cannot of fp8.
        schema = () if arguments[0].dtype is torch.float8_e4m3fn else ("test_schema",)
        torch.library.opcheck(operator, arguments, named, test_utils=(
            *schema, "test_faketensor", "test_aot_dispatch_dynamic"))
