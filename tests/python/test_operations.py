"""Which problem each operation makes of its arrays, and what it refuses."""

import pytest
from fakes import NO_GPU, ExchangeTensor, TorchTensor

import kernwright as kw
from kernwright import _operations


def tensor(*shape, **named):
    return TorchTensor(*shape, **named)


def test_linear(planned):
    x, weight, out = tensor(16, 128), tensor(64, 128), tensor(16, 64)
    assert planned(kw.linear, x, weight, out=out) == "matmul m=16 n=64 k=128 dtype=bf16"
    assert planned(kw.linear, tensor(2, 8, 128), weight, out=tensor(2, 8, 64)) == (
        "matmul m=16 n=64 k=128 dtype=bf16")
    fused = planned(kw.linear, x, weight, tensor(64), activation="silu", residual=tensor(16, 64),
                    out=out)
    assert fused == "matmul m=16 n=64 k=128 dtype=bf16 bias=column activation=silu residual=add"


def test_strides_of_products_become_pitches(planned):
    part = tensor(16, 128, strides=(256, 1))
    weight = tensor(64, 128, strides=(160, 1))
    wide = tensor(16, 64, strides=(96, 1))
    assert planned(kw.linear, part, weight, out=wide) == (
        "matmul m=16 n=64 k=128 lda=256 ldb=160 ldd=96 dtype=bf16")


def test_transposed_weights_are_taken_as_they_lie(planned):
    x, out = tensor(16, 128), tensor(16, 64)
    stored_kn = tensor(128, 64)
    assert "b_layout=kn" in planned(kw.linear, x, stored_kn.t(), out=out)
    assert "b_layout=kn" in planned(kw.matmul, x, stored_kn, out=out)
    assert "b_layout" not in planned(kw.matmul, x, tensor(64, 128).t(), out=out)


def test_the_dtype_of_the_result(planned):
    x, weight = tensor(16, 128), tensor(64, 128)
    assert "out=fp32" in planned(kw.linear, x, weight, out=tensor(16, 64, dtype="fp32"))
    assert _operations.dtype_text("torch.bfloat16") == "bf16"
    assert _operations.dtype_text("float32") == "fp32"
    assert _operations.dtype_text(None) is None
    # NumPy's and JAX's are classes.
    assert _operations.dtype_text(type("float32", (), {})) == "fp32"


def test_gated_linear(planned, refused):
    x, out = tensor(16, 128), tensor(16, 64)
    assert "gate=stacked" in planned(kw.gated_linear, x, tensor(128, 128), out=out)
    assert "even number" in refused(kw.gated_linear, x, tensor(127, 128), out=out)


@pytest.mark.parametrize("x, weight, out, reason", [
    ((16, 128), (64, 64), (16, 64), "weight has the shape [64, 64], and [64, 128] expected"),
    ((16, 128), (64, 128, 1), (16, 64), "weight has 3 dimensions, and 2 expected"),
    ((16, 128), (64, 128), (16, 32), "out has the shape"),
    ((16, 128), (64, 128), (2, 8, 64), "out has the shape"),
])
def test_products_that_do_not_fit_are_refused(refused, x, weight, out, reason):
    assert reason in refused(kw.linear, tensor(*x), tensor(*weight), out=tensor(*out))


def test_what_no_kernel_takes_is_refused_by_name(refused):
    x, weight, out = tensor(16, 128), tensor(64, 128), tensor(16, 64)
    assert "x has a last stride of 16" in refused(kw.linear, tensor(128, 16).t(), weight, out=out)
    assert "one dtype expected" in refused(kw.linear, x, tensor(64, 128, dtype="fp16"), out=out)
    assert "weight has a last stride of 2, and 1" in refused(
        kw.linear, x, tensor(64, 128, strides=(256, 2)), out=out)
    assert "no array" in refused(kw.linear, 3, weight)
    assert "no dtype" in refused(kw.linear, tensor(16, 128, dtype="bf16").like((16, 128), (128, 1)),
                                 odd_dtype(64, 128), out=out)


def odd_dtype(*shape):
    class Odd(TorchTensor):
        dtype = "torch.complex64"
    return Odd(*shape)


def test_norms(planned, refused):
    x, scale, out = tensor(8, 256), tensor(256), tensor(8, 256)
    assert planned(kw.rms_norm, x, scale, out=out).startswith(
        "rmsnorm rows=8 columns=256 dtype=bf16")
    assert "weight=none" in planned(kw.rms_norm, x, out=out)
    both = (out, tensor(8, 256))
    assert "residual=add" in planned(kw.rms_norm, x, scale, residual=tensor(8, 256), out=both)
    planned(kw.layer_norm, x, scale, tensor(256), out=out)
    assert "bias=none" in planned(kw.layer_norm, x, scale, out=out)
    assert "a pair of arrays expected" in refused(kw.rms_norm, x, scale, residual=x, out=out)
    assert "without gaps" in refused(kw.rms_norm, tensor(8, 256, strides=(512, 1)), scale, out=out)
    assert "weight has the shape" in refused(kw.rms_norm, x, tensor(255), out=out)


def test_norms_and_gates_that_quantize(planned, refused):
    x, w, codes = tensor(8, 256), tensor(256), tensor(8, 256, dtype="int8")
    fp8, sums = tensor(8, 256, dtype="fp8_e4m3"), tensor(8, 256)
    of_rows, of_blocks, given = (tensor(*shape, dtype="fp32") for shape in ((1, 8), (2, 8), (1,)))
    assert planned(kw.rms_norm, x, w, quantize="row", out=(codes, of_rows)) == (
        "rmsnorm rows=8 columns=256 dtype=bf16 out=int8 quantize=row")
    assert planned(kw.rms_norm, x, w, residual=x, quantize="block", out=(fp8, of_blocks, sums)) == (
        "rmsnorm rows=8 columns=256 dtype=bf16 out=fp8_e4m3 residual=add quantize=block")
    assert planned(kw.layer_norm, x, w, residual=x, quantize="tensor", scale=given, out=(fp8, sums)).endswith(
        "bias=none residual=add quantize=tensor")
    gated = tensor(8, 512)
    assert planned(kw.silu_and_mul, gated, quantize="row", out=(codes, of_rows)) == (
        "gated_activation rows=8 columns=256 dtype=bf16 out=int8 layout=packed quantize=row")
    assert "gelu_erf" in planned(kw.gelu_and_mul, gated, quantize="block", out=(fp8, of_blocks))
    assert "a pair of arrays" in refused(kw.silu_and_mul, gated, quantize="row", out=codes)
    assert "three arrays" in refused(kw.rms_norm, x, residual=x, quantize="row", out=(codes, of_rows))
    assert "8 bits" in refused(kw.rms_norm, x, quantize="row", out_dtype="bf16")
    assert "scale is missing" in refused(kw.rms_norm, x, quantize="tensor", out=codes)
    assert "has the shape" in refused(kw.rms_norm, x, quantize="block", out=(fp8, of_rows))


def test_gated_activations(planned, refused):
    x, out = tensor(8, 512), tensor(8, 256)
    assert "layout=packed" in planned(kw.silu_and_mul, x, out=out)
    assert "gelu_tanh" in planned(kw.gelu_and_mul, x, approximate="tanh", out=out)
    assert "gelu_erf" in planned(kw.gelu_and_mul, x, out=out)
    assert "even number" in refused(kw.silu_and_mul, tensor(8, 511), out=out)
    assert "'none' or 'tanh' expected" in refused(kw.gelu_and_mul, x, approximate="cubic", out=out)


def test_softmax(planned, refused):
    x, out = tensor(2, 4, 256), tensor(2, 4, 256)
    assert planned(kw.softmax, x, out=out).startswith("softmax rows=8 columns=256")
    assert "causal" in planned(kw.softmax, x, causal=True, out=out)
    assert "additive" in planned(kw.softmax, x, mask=tensor(2, 4, 256), out=out)
    assert "one of them expected" in refused(kw.softmax, x, causal=True, mask=x, out=out)
    turned = [tensor(2, 256, 4, strides=(1024, 1, 256)) for _ in "xmo"]
    assert planned(kw.softmax, turned[0], -2, mask=turned[1], out=turned[2]) == (
        "softmax rows=8 columns=256 dtype=bf16 mask=additive")
    assert "x has the strides [1024, 256, 1], and [1024, 1, 4] expected" in refused(
        kw.softmax, x, 1, out=out)
    assert "3 expected" in refused(kw.softmax, tensor(4, 8), 2, out=tensor(4, 8))
    assert "at least 2 expected" in refused(kw.softmax, tensor(256), causal=True, out=tensor(256))


def test_reduce(planned, refused):
    x = tensor(8, 256)
    assert "kind=mean" in planned(kw.reduce, x, "mean", out=tensor(8))
    assert "over=tensor" in planned(kw.reduce, x, dim=None, out=tensor())
    assert planned(kw.reduce, x, keepdim=True, out=tensor(8, 1)) == planned(
        kw.reduce, x, out=tensor(8))
    assert "over=tensor" in planned(kw.reduce, x, dim=None, keepdim=True, out=tensor(1, 1))
    turned = tensor(4, 256, 2, strides=(256, 1, 1024))
    assert planned(kw.reduce, tensor(4, 256, 2, strides=(512, 1, 256)), dim=1, out=tensor(4, 2)) == (
        planned(kw.reduce, tensor(256, 4, 2, strides=(1, 512, 256)), dim=0, out=tensor(4, 2)))
    assert "[256, 1, 1024], and [512, 1, 256] expected" in refused(kw.reduce, turned, dim=1)
    assert "x has the strides [256, 1], and [1, 8] expected" in refused(kw.reduce, x, dim=0)


def test_rope(planned, refused):
    q, k, angles = tensor(16, 8, 64), tensor(16, 2, 64), tensor(16, 32, dtype="fp32")
    out = (tensor(16, 8, 64), tensor(16, 2, 64))
    assert planned(kw.rope, q, k, angles, angles, out=out).startswith(
        "rope tokens=16 heads=8 kv_heads=2 head_dim=64")
    assert "neighbours" in planned(kw.rope, q, k, angles, angles, interleaved=True, out=out)
    assert "sin has the shape" in refused(kw.rope, q, k, angles, tensor(8, 32, dtype="fp32"), out=out)


def test_elementwise(planned, refused):
    x, out = tensor(8, 256), tensor(8, 256)
    assert "formula=a*x+" in planned(kw.elementwise, "a * x + y", x=x, y=tensor(8, 256), out=out)
    assert "no array is given" in refused(kw.elementwise, "a", out=out)
    for formula, kind in ((3, "int"), (None, "NoneType"), (b"x", "bytes")):
        assert f"formula is {kind}, and a text" in refused(kw.elementwise, formula)
        assert f"formula is {kind}, and a text" in refused(kw.elementwise, formula, x=x)
    assert "y has the shape" in refused(kw.elementwise, "x + y", x=x, y=tensor(8, 128), out=out)
    assert planned(kw.elementwise, "x + y", x=x, y=tensor(1, 8, 256), out=tensor(1, 8, 256)) == (
        planned(kw.elementwise, "x + y", x=x, y=x, out=out))
    assert refused(kw.elementwise, "x + y", x=x, y=tensor(256), out=out) == (
        "y has the shape [1, 256], and [8, 256] expected: no kernel repeats the elements of an array")


def heads(batch, count, tokens, head_dim, transposed=False):
    if not transposed:
        return tensor(batch, count, tokens, head_dim)
    return tensor(batch, count, tokens, head_dim,
                  strides=(tokens * count * head_dim, head_dim, count * head_dim, 1))


@pytest.mark.parametrize("transposed, layout", [(False, "bhsd"), (True, None)])
def test_attention(planned, transposed, layout):
    q, k, v, out = (heads(2, count, 64, 64, transposed) for count in (8, 2, 2, 8))
    problem = planned(kw.attention, q, k, v, causal=True, out=out)
    assert problem.startswith("attention batch=2 heads=8 kv_heads=2 q_len=64 kv_len=64 head_dim=64")
    assert "mask=causal" in problem
    assert ("layout=bhsd" in problem) == (layout == "bhsd")


def test_attention_takes_values_that_are_a_part_of_the_keys(planned):
    q, out = heads(1, 8, 16, 128), heads(1, 8, 16, 64)
    k = heads(1, 1, 256, 128)
    v = k.like((1, 1, 256, 64), k.layout[1])
    assert "head_dim_v=64 " in planned(kw.attention, q, k, v, out=out)


@pytest.mark.parametrize("strides, pitch", [
    ((768, 64, 512, 1), "ldq=768"),      # a token of each sequence, with its k and v behind it
    ((576, 72, 72, 1), "ldq=72"),        # with something behind every head
])
def test_attention_takes_a_token_that_is_a_part_of_a_row(planned, strides, pitch):
    q, out = tensor(2, 8, 1, 64, strides=strides), tensor(2, 8, 1, 64)
    k = heads(2, 2, 256, 64, transposed=pitch == "ldq=768")
    assert pitch in planned(kw.attention, q, k, k, out=out)


def test_attention_refuses_what_lies_otherwise(refused):
    q, k = heads(2, 8, 64, 64), heads(2, 2, 64, 64, True)
    assert "k has the strides" in refused(kw.attention, q, k, k)
    assert "4 expected" in refused(kw.attention, tensor(8, 64, 64), k, k)
    assert "v has the shape" in refused(kw.attention, q, heads(2, 2, 64, 64), heads(2, 2, 32, 64))


def test_nothing_is_computed_of_nothing(service):
    out = ExchangeTensor(0, 64)
    with service:
        assert kw.linear(ExchangeTensor(0, 128), ExchangeTensor(64, 128), out=out) is out
        assert kw.silu_and_mul(ExchangeTensor(0, 128), out=out) is out


def test_a_plan_is_kept_by_signature(compiler, planned):
    own = kw.Service(sku="h200")
    x, weight = tensor(16, 128), tensor(64, 128)
    with own:
        for _ in range(3):
            with pytest.raises(kw.Error):
                kw.linear(x, weight, out=tensor(16, 64))
        assert len(own.plans) == 1
        with pytest.raises(kw.Error):
            kw.linear(x, weight, out=tensor(16, 64), activation="silu")
        assert len(own.plans) == 2


def test_plans_may_be_forgotten_at_any_time(compiler, monkeypatch):
    class Forgetful(dict):
        def __setitem__(self, key, value):
            pass

    monkeypatch.setattr(compiler, "plans", Forgetful())
    with compiler, pytest.raises(kw.Error, match=NO_GPU):
        kw.rms_norm(tensor(4, 8), out=tensor(4, 8))


def test_the_last_kernel_of_an_operation_is_told(compiler, planned):
    with compiler:
        for call, name, operation in ((kw.rms_norm, "rms_norm", "rmsnorm"), (kw.softmax, "softmax", "softmax")):
            for rows in (4, 6, 4):
                problem = planned(call, tensor(rows, 8), out=tensor(rows, 8))
                assert kw.last_kernel(name).problem == compiler.kernel(problem).problem
                assert problem.startswith(f"{operation} rows={rows} ")
        assert kw.last_kernel("nonsense") is None


@pytest.mark.parametrize("call, name", [
    (lambda thing: kw.linear(thing, tensor(4, 8)), "x"), (lambda thing: kw.linear(tensor(2, 8), thing), "weight"),
    (lambda thing: kw.linear(tensor(2, 8), tensor(4, 8), thing), "bias"),
    (lambda thing: kw.rms_norm(tensor(4, 8), out=thing), "out"),
    (lambda thing: kw.rope(tensor(2, 4, 8), tensor(2, 4, 8), tensor(2, 4), thing), "sin"),
])
def test_what_is_no_array_is_refused_by_the_name_of_its_argument(refused, call, name):
    assert refused(call, [1.0]).startswith(f"{name}: <class 'list'> is no array")


def test_a_word_is_no_way_to_say_more(refused):
    reason = refused(kw.linear, tensor(2, 8), tensor(4, 8), activation="silu bias=column")
    assert reason == "activation is 'silu bias=column', and one word expected"


def test_results_need_a_framework_that_makes_them(compiler):
    from fakes import InterfaceArray
    x, weight = InterfaceArray(16, 128, dtype="fp16"), InterfaceArray(64, 128, dtype="fp16")
    with compiler, pytest.raises(kw.Error, match="give out="):
        kw.linear(x, weight)


def test_arrays_on_the_host_are_refused():
    """Also by the services that are opened for the GPUs of the arrays."""
    x, weight = tensor(16, 128, device=None), tensor(64, 128, device=None)
    with pytest.raises(kw.Error, match="x lies on the CPU, and a GPU"):
        kw.linear(x, weight, out=tensor(16, 64, device=None))
