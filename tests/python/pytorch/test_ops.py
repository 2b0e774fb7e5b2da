"""Operators: shapes on meta and fake tensors, gradients, refusals, and torch.compile."""

import json
import math

import pytest
import torch
import torch._dynamo.testing
from torch._subclasses.fake_tensor import FakeTensorMode

import kernwright
from kernwright import _kernwright
from kernwright import torch as kw
from kernwright.torch import _gradients
from kernwright.torch.ops import define

import reference


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def random(*shape, dtype=torch.float64, **named):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype, **named)


CASES = [
    (lambda new: kw.linear(new(2, 5, 8), new(6, 8)), [(2, 5, 6)]),
    (lambda new: kw.linear(new(5, 8), new(6, 8), new(6), activation="silu", residual=new(5, 6)),
     [(5, 6)]),
    (lambda new: kw.matmul(new(5, 8), new(8, 6)), [(5, 6)]),
    (lambda new: kw.matmul(new(2, 3, 5, 8), new(2, 3, 8, 6), residual=new(2, 3, 5, 6)),
     [(2, 3, 5, 6)]),
    (lambda new: kw.gated_linear(new(5, 8), new(6, 8)), [(5, 3)]),
    (lambda new: kw.gated_linear(new(5, 8), new(6, 8), new(8)), [(5, 3)]),
    (lambda new: kw.qkv_linear(new(2, 3, 8), new(16, 8), kv_heads=1, head_dim=4),
     [(2, 3, 2, 4), (2, 3, 1, 4), (2, 3, 1, 4)]),
    (lambda new: kw.rms_norm(new(5, 8), new(8)), [(5, 8)]),
    (lambda new: kw.rms_norm(new(5, 8), new(8), residual=new(5, 8)), [(5, 8), (5, 8)]),
    (lambda new: kw.layer_norm(new(5, 8), new(8), new(8)), [(5, 8)]),
    (lambda new: kw.layer_norm(new(5, 8), residual=new(5, 8)), [(5, 8), (5, 8)]),
    (lambda new: kw.silu_and_mul(new(5, 8)), [(5, 4)]),
    (lambda new: kw.gelu_and_mul(new(5, 8), approximate="tanh"), [(5, 4)]),
    (lambda new: kw.silu_mul(new(5, 8), new(5, 8)), [(5, 8)]),
    (lambda new: kw.softmax(new(5, 8)), [(5, 8)]),
    (lambda new: kw.attention(new(2, 4, 3, 8), new(2, 2, 5, 8), new(2, 2, 5, 8), causal=True),
     [(2, 4, 3, 8)]),
    (lambda new: kw.attention(new(2, 4, 3, 8), new(2, 2, 5, 8), new(2, 2, 5, 16), return_lse=True),
     [(2, 4, 3, 16), (2, 4, 3)]),
    (lambda new: kw.attention(new(2, 4, 3, 8), new(2, 2, 5, 8), new(2, 2, 5, 8), bias=new(2, 1, 3, 5),
                              causal_first=True), [(2, 4, 3, 8)]),
    (lambda new: kw.scaled_dot_product_attention(new(4, 3, 8), new(2, 4, 5, 8), new(2, 4, 5, 16),
                                                 new(3, 5)), [(2, 4, 3, 16)]),
    (lambda new: kw.append_attention(
        new(2, 1, 4, 8), new(2, 2, 9, 8), new(2, 2, 9, 8), new(2, 1, 2, 8), new(2, 1, 2, 8),
        new(2), new(9, 4), new(9, 4)), [(2, 1, 4, 8)]),
    (lambda new: kw.norm_rope(new(2, 3, 4, 8), new(2, 3, 2, 8), new(2, 3, 2, 16), new(8), new(8),
                              new(3, 4), new(3, 4)), [(2, 3, 4, 8), (2, 3, 2, 8), (2, 3, 2, 16)]),
    (lambda new: kw.rope(new(6, 4, 8), new(6, 2, 8), new(6, 4), new(6, 4)), [(6, 4, 8), (6, 2, 8)]),
]


@pytest.mark.parametrize("call, shapes", CASES)
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_shapes_without_data(call, shapes, kind):
    if kind == "meta":
        results = call(meta)
    else:
        with FakeTensorMode():
            results = call(lambda *shape: torch.empty(shape, dtype=torch.bfloat16, device="cuda"))
    results = results if isinstance(results, tuple) else (results,)
    assert [tuple(result.shape) for result in results] == shapes
    assert {result.device.type for result in results} == {"meta" if kind == "meta" else "cuda"}


@pytest.mark.parametrize("call, shapes", CASES)
def test_contracts_make_results_of_these_sizes(call, shapes, monkeypatch):
    bind, made = _kernwright.bind, []
    monkeypatch.setattr(_kernwright, "bind", lambda *given: made.append(json.loads(bind(*given))))
    call(meta)
    wanted = [math.prod(shape) for shape in shapes]
    assert made and all(math.prod(one["extent"]) in wanted for one in made[-1]["made"])


def test_attention_lies_as_its_queries_do():
    q, k = meta(2, 3, 4, 8).transpose(1, 2), meta(2, 3, 2, 8).transpose(1, 2)
    assert kw.attention(q, k, k).stride() == q.stride()
    assert kw.attention(q.contiguous(), k, k).is_contiguous()


def test_out_dtype():
    assert kw.linear(meta(2, 8), meta(4, 8), out_dtype=torch.float32).dtype is torch.float32


@pytest.mark.parametrize("call, text", [
    (lambda: kw.linear(meta(5, 8), meta(6, 4)), r"weight has the shape \[6, 4\], and \[6, 8\]"),
    (lambda: kw.matmul(meta(5, 8), meta(4, 6)), r"b has the shape \[4, 6\], and \[8, 6\] expected"),
    (lambda: kw.matmul(meta(5, 8), meta(8, 6), out=meta(5, 5)), "out has the shape"),
    (lambda: kw.linear(meta(5, 8), meta(6, 8), meta(5)), "bias has the shape"),
    (lambda: kw.linear(meta(5, 8), meta(6, 8), residual=meta(6, 6)), "residual has the shape"),
    (lambda: kw.linear(meta(5, 8), meta(6, 8), out=meta(5, 5)), "out has the shape"),
    (lambda: kw.gated_linear(meta(5, 8), meta(5, 8)), "even number"),
    (lambda: kw.rms_norm(meta(5, 8), meta(5)), "weight has the shape"),
    (lambda: kw.rms_norm(meta(5, 8), residual=meta(4, 8)), "residual has the shape"),
    (lambda: kw.silu_and_mul(meta(5, 7)), "even number"),
    (lambda: kw.attention(meta(2, 4, 3, 8), meta(4, 5, 8), meta(2, 2, 5, 8)),
     "k has 3 dimensions, and 4 expected"),
    (lambda: kw.attention(meta(2, 4, 3, 8), meta(2, 2, 5, 16), meta(2, 2, 5, 8)),
     r"k has the shape \[2, 2, 5, 16\], and \[2, 2, 5, 8\] expected"),
    (lambda: kw.attention(meta(2, 4, 3, 8), meta(2, 2, 5, 8), meta(2, 2, 6, 8)),
     "v has the shape"),
    (lambda: kw.norm_rope(meta(6, 4, 8), *[meta(2, 3, 2, 8)] * 2, *[meta(8)] * 2, *[meta(3, 4)] * 2),
     "q has 3 dimensions, and 4 expected"),
    (lambda: kw.norm_rope(meta(2, 3, 4, 8), *[meta(2, 3, 2, 8)] * 2, *[meta(8)] * 2, *[meta(6, 4)] * 2),
     r"cos has the shape \[6, 4\], and \[3, 4\] expected"),
    (lambda: kw.rope(meta(6, 4, 8), meta(6, 2, 8), meta(5, 4), meta(6, 4)), "cos has the shape"),
    (lambda: kw.rope(meta(8), meta(2, 8), meta(1, 4), meta(1, 4)), "q has 1 dimensions"),
    (lambda: kw.qkv_linear(meta(5, 8), meta(8, 8), kv_heads=1, head_dim=4), "2 . 1 heads of 4"),
])
def test_wrong_shapes_are_refused(call, text):
    with pytest.raises(kernwright.Error, match=text) as caught:
        call()
    assert caught.value.reason == str(caught.value) and caught.value.problem == ""


def seen(caplog):
    """The lines about what is left to PyTorch, from now on."""
    define._left.clear()
    caplog.clear()
    return lambda: [record.getMessage() for record in caplog.records]


def same(result, wanted):
    torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)


def test_what_no_kernel_takes_is_left_to_pytorch_with_one_line(caplog):
    lines = seen(caplog)
    x, weight = random(2, 8), random(4, 8)
    for call in (kw.linear, torch.ops.kernwright.linear, kw.linear):
        same(call(x, weight), x @ weight.t())
    assert lines() == ["linear is left to PyTorch: x lies on the CPU, and a GPU (CUDA) expected"]
    assert kw.linear(x, weight, out=(out := torch.empty(2, 4, dtype=x.dtype))) is out
    same(out, x @ weight.t())


def test_what_fails_is_not_left_to_pytorch(monkeypatch):
    failure = kernwright.Error("the service is sealed")
    compute = define._or_plain("linear", lambda: (_ for _ in ()).throw(failure), lambda: 1, lambda: None)
    with pytest.raises(kernwright.Error, match="sealed"):
        compute()
    failure.is_refusal = True
    failure.reason = "no kernel takes it"
    assert compute() == 1


def test_wrong_shapes_on_the_cpu_are_errors_of_the_call():
    with pytest.raises(kernwright.Error, match=r"weight has the shape \[6, 4\], and \[6, 8\]"):
        kw.linear(random(5, 8), random(6, 4))


def turned(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


F = torch.nn.functional


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("call, peer", [
    (lambda x, w: kw.linear(x, w, w[:, 0], activation="silu", residual=x @ w.t()),
     lambda x, w: F.silu(F.linear(x, w, w[:, 0])) + x @ w.t()),
    (lambda x, w: kw.matmul(x, w.t(), activation="gelu_tanh"),
     lambda x, w: F.gelu(x @ w.t(), approximate="tanh")),
    (lambda x, w: kw.matmul(x, x.mT), lambda x, w: x @ x.mT),
    (lambda x, w: kw.gated_linear(x, w), lambda x, w: F.silu(x @ w[:3].t()) * (x @ w[3:].t())),
    (lambda x, w: kw.gated_linear(x, w, w[0]),
     lambda x, w: F.silu(F.rms_norm(x, (8,), w[0], 1e-6) @ w[:3].t())
     * (F.rms_norm(x, (8,), w[0], 1e-6) @ w[3:].t())),
    (lambda x, w: torch.cat([part.flatten(-2) for part in
                             kw.qkv_linear(x, w, kv_heads=1, head_dim=2)], -1),
     lambda x, w: x @ w.t()),
    (lambda x, w: kw.rms_norm(x, w[0]), lambda x, w: F.rms_norm(x, (8,), w[0], 1e-6)),
    (lambda x, w: kw.rms_norm(x, w[0], residual=2 * x)[0],
     lambda x, w: F.rms_norm(3 * x, (8,), w[0], 1e-6)),
    (lambda x, w: kw.rms_norm(x, residual=2 * x)[1], lambda x, w: 3 * x),
    (lambda x, w: kw.layer_norm(x, w[0], w[1]), lambda x, w: F.layer_norm(x, (8,), w[0], w[1])),
    (lambda x, w: kw.layer_norm(x, residual=x)[0], lambda x, w: F.layer_norm(2 * x, (8,))),
    (lambda x, w: kw.silu_and_mul(x), lambda x, w: F.silu(x[..., :4]) * x[..., 4:]),
    (lambda x, w: kw.gelu_and_mul(x, approximate="tanh"),
     lambda x, w: F.gelu(x[..., :4], approximate="tanh") * x[..., 4:]),
    (lambda x, w: kw.silu_mul(x, 2 * x), lambda x, w: F.silu(x) * 2 * x),
    (lambda x, w: kw.softmax(x, scale=0.5, mask=x), lambda x, w: (1.5 * x).softmax(-1)),
    (lambda x, w: kw.softmax(x, causal=True),
     lambda x, w: x.masked_fill(~torch.ones(5, 8, dtype=torch.bool).tril(3), -torch.inf).softmax(-1)),
])
def test_pytorch_computes_the_same(call, peer, dtype):
    x, weight = random(3, 5, 8).to(dtype), random(6, 8).to(dtype)
    result = call(x, weight)
    assert result.dtype is dtype
    torch.testing.assert_close(result.double(), peer(x.double(), weight.double()), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_pytorch_computes_the_same_attention(causal):
    q, k, v = random(2, 4, 5, 8), random(2, 2, 5, 8), random(2, 2, 5, 16)
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    result, lse = kw.attention(q, k, v, causal=causal, return_lse=True)
    same(result, wanted)
    assert lse.dtype is torch.float32 and lse.shape == (2, 4, 5)
    padded = torch.cat((k, k), 2), torch.cat((v, v), 2)
    lengths = torch.full((2,), 5, dtype=torch.int32)
    same(kw.attention(q, *padded, kv_lengths=lengths, causal=causal), wanted)
    same(kw.attention(q, k, v, window=99), F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True))
    zeros = torch.zeros(4)
    same(kw.attention(q, k, v, causal=causal, sinks=zeros - 1e9, alibi_slopes=zeros), wanted)


def test_pytorch_computes_the_same_step():
    k, v = random(2, 2, 9, 8), random(2, 2, 9, 8)
    q, k_new, v_new = random(2, 1, 4, 8), random(2, 1, 2, 8), random(2, 1, 2, 8)
    cos, sin = random(9, 4).float(), random(9, 4).float()
    lengths = torch.tensor([3, 7], dtype=torch.int32)
    result = kw.append_attention(q, k, v, k_new, v_new, lengths, cos, sin)
    for row, length in enumerate(lengths):
        angles = cos[length - 1], sin[length - 1]
        same(k[row, :, length - 1], turned(k_new[row, 0], *angles))
        same(v[row, :, length - 1], v_new[row, 0])
        part = F.scaled_dot_product_attention(
            turned(q[row, 0], *angles)[None, :, None], k[row:row + 1, :, :length],
            v[row:row + 1, :, :length], enable_gqa=True)
        same(result[row, 0], part[0, :, 0])
    q, k = random(6, 4, 8), random(6, 2, 8)
    cos, sin = random(6, 4).float(), random(6, 4).float()
    for interleaved in (False, True):
        order = torch.arange(8).view(4, 2).t().flatten() if interleaved else torch.arange(8)
        wanted = torch.empty_like(q)
        wanted[..., order] = turned(q[..., order], cos[:, None], sin[:, None]).to(q.dtype)
        same(kw.rope(q, k, cos, sin, interleaved=interleaved)[0], wanted)


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (0, 3, 8)])
def test_without_rows_the_result_is_empty(shape):
    x, weight = torch.empty(shape), random(6, 8, dtype=torch.float32)
    assert kw.linear(x, weight).shape == (*shape[:-1], 6)
    assert kw.rms_norm(x).shape == shape and kw.silu_and_mul(x).shape == (*shape[:-1], 4)


def strange():
    x = random(4, 8, dtype=torch.float32)
    yield torch._neg_view(x), torch.float32
    yield torch.complex(x, x).conj().imag, torch.float32
    yield torch.complex(x, x).conj(), torch.complex64
    yield x[:1].expand(4, 8), torch.float32
    yield random(8, 4, dtype=torch.float32).t(), torch.float32
    yield random(4, 16, dtype=torch.float32)[:, ::2], torch.float32
    yield torch._efficientzerotensor((4, 8)), torch.float32
    yield x.as_subclass(type("Own", (torch.Tensor,), {})), torch.float32


def test_strange_tensors_are_right_or_refused():
    for x, dtype in strange():
        weight = random(6, 8, dtype=torch.float32).to(dtype)
        same(kw.linear(x, weight), F.linear(x, weight))
        with pytest.raises(kernwright.Error):
            kernwright.linear(x, weight)
    for x in (random(4, 8).to_sparse(), random(4, 8).to_sparse_csr(), meta(4, 8),
              torch.nested.nested_tensor([random(4, 8)])):
        with pytest.raises(kernwright.Error):
            kernwright.linear(x, x)
    with FakeTensorMode():
        fake = torch.empty(4, 8)
    with pytest.raises(kernwright.Error, match="its address is 0"):
        kernwright.linear(fake, fake)


def test_vmap_is_right_or_refused():
    x, weight = random(3, 5, 8), random(6, 8)
    same(torch.vmap(lambda part: kw.linear(part, weight))(x), x @ weight.t())
    with pytest.raises(kernwright.Error):
        torch.vmap(kernwright.rms_norm)(x)


def test_forward_mode_derivatives_are_refused():
    x, weight = random(5, 8), random(6, 8)
    calls = [lambda x: kw.linear(x, weight), kw.rms_norm, kw.silu_and_mul, kw.softmax,
             lambda x: kernwright.linear(x, weight), kernwright.rms_norm,
             torch.ops.kernwright.rms_norm]
    for call in calls:
        with pytest.raises(kernwright.Error):
            torch.func.jvp(call, (x,), (x,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            with pytest.raises(kernwright.Error, match="tangent"):
                call(dual)
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(kernwright.Error, match="tangent"):
            torch.ops.kernwright.linear(torch.autograd.forward_ad.make_dual(x, x), weight)
        same(kw.linear(x, weight), x @ weight.t())  # others are computed meanwhile


@pytest.mark.parametrize("activation", [None, "silu", "gelu_erf", "gelu_tanh"])
def test_gradients_of_gradients(activation):
    x, weight, bias = (random(*shape).requires_grad_() for shape in ((3, 4), (2, 4), (2,)))
    assert torch.autograd.gradgradcheck(
        lambda *given: kw.linear(*given, activation=activation), (x, weight, bias))
    if activation is not None:
        assert torch.autograd.gradgradcheck(
            lambda *given: kw.gated_linear(*given, activation=activation), (x, weight))


def test_operations_on_arrays_refuse_what_requires_a_gradient():
    x, weight = random(5, 8), random(6, 8)
    needs = weight.clone().requires_grad_()
    for call in (lambda: kernwright.linear(x, needs), lambda: kernwright.rms_norm(x, needs[0]),
                 lambda: kernwright.linear(x, weight, out=random(5, 6).requires_grad_()),
                 lambda: kernwright.silu_and_mul(torch.nn.Parameter(x))):
        with pytest.raises(kernwright.Error, match="requires a gradient.*kernwright.torch"):
            call()
        with torch.no_grad(), pytest.raises(kernwright.Error, match="lies on the CPU"):
            call()


def test_what_is_written_has_another_version():
    x, weight, out = random(5, 8), random(6, 8), random(5, 6).requires_grad_()
    product = out.clone()
    squares = product * product
    kw.linear(x, weight, out=product.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()


@pytest.mark.parametrize("activation", [None, "silu", "gelu_erf", "gelu_tanh"])
@pytest.mark.parametrize("product", ["linear", "matmul"])
def test_gradients_of_products(on_cpu, product, activation):
    x, weight = random(2, 3, 8, requires_grad=True), random(6, 8, requires_grad=True)
    bias, residual = random(6, requires_grad=True), random(2, 3, 6, requires_grad=True)
    matrix = weight if product == "linear" else weight.t()

    def of(call):
        grads = torch.autograd.grad(call().square().sum(), (x, weight, bias, residual))
        return [grad.double() for grad in grads]

    def expected():
        before = torch.nn.functional.linear(x, weight, bias)
        return reference.ACTIVATIONS[activation](before) + residual

    ours = of(lambda: getattr(kw, product)(x, matrix, bias=bias, residual=residual,
                                           activation=activation))
    for mine, right in zip(ours, of(expected)):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_batch_of_products(on_cpu):
    a, b = random(2, 3, 4, requires_grad=True), random(2, 4, 5, requires_grad=True)
    bias = random(5, requires_grad=True)
    ours = torch.autograd.grad(kw.matmul(a, b, bias=bias, activation="silu").square().sum(),
                               (a, b, bias))
    right = torch.autograd.grad(F.silu(a @ b + bias).square().sum(), (a, b, bias))
    for mine, wanted in zip(ours, right):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["silu", "gelu_erf", "gelu_tanh"])
def test_gradients_of_a_gated_product(on_cpu, activation):
    x, weight = random(3, 8, requires_grad=True), random(12, 8, requires_grad=True)
    gate, up = (x @ weight.t()).chunk(2, -1)
    expected = torch.autograd.grad((reference.ACTIVATIONS[activation](gate) * up).square().sum(),
                                   (x, weight))
    ours = torch.autograd.grad(kw.gated_linear(x, weight, activation=activation).square().sum(),
                               (x, weight))
    for mine, right in zip(ours, expected):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("call", [
    lambda x: kw.rms_norm(x), lambda x: kw.rms_norm(x, residual=x), lambda x: kw.silu_and_mul(x),
    lambda x: kw.softmax(x), lambda x: kw.silu_mul(x, x),
    lambda x: kw.qkv_linear(x, torch.ones(16, 8), kv_heads=1, head_dim=4),
    lambda x: kw.linear(x, torch.ones(4, 8), out=torch.empty(2, 4))])
def test_a_gradient_that_is_not_there_is_refused(on_cpu, call):
    x = torch.ones(2, 8, requires_grad=True)
    with pytest.raises(kernwright.Error, match="has no backward"):
        call(x)
    with torch.no_grad():
        call(x)


def test_products_of_fp8_and_normalised_ones_refuse_gradients(on_cpu):
    x = torch.ones(2, 8, requires_grad=True)
    with pytest.raises(kernwright.Error, match="norm_weight has no backward"):
        kw.gated_linear(x, torch.ones(4, 8), torch.ones(8))
    with pytest.raises(kernwright.Error, match="fp8"):
        _gradients._refuse_fp8(torch.empty(1, dtype=torch.float8_e4m3fn))


def block(x, weight, norm, both, out):
    x = kw.rms_norm(x, norm)
    gated = kw.gated_linear(x, both)
    return kw.linear(gated, weight, residual=x), kw.linear(x, weight[:, :8], out=out)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_graph_breaks(on_cpu, backend, dynamic):
    arguments = random(3, 8, dtype=torch.float32), random(8, 16, dtype=torch.float32), torch.ones(8), (
        random(32, 8, dtype=torch.float32))
    compiled = torch.compile(block, backend=backend, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for rows in (3, 4):
            x = random(rows, 8, dtype=torch.float32)
            of_out, of_right = torch.zeros(rows, 8), torch.zeros(rows, 8)
            result = compiled(x, *arguments[1:], of_out)
            right = block(x, *arguments[1:], of_right)
            torch.testing.assert_close(result[0], right[0])
            torch.testing.assert_close(of_out, of_right)


def heads(tokens, count):
    return random(2, tokens, count, 8, dtype=torch.float32).transpose(1, 2)


@pytest.mark.parametrize("call", [
    lambda n: (block, random(n, 8, dtype=torch.float32), torch.ones(8, 16), torch.ones(8),
               torch.ones(32, 8), torch.zeros(n, 8)),
    lambda n: (lambda x: kw.layer_norm(kw.softmax(kw.silu_mul(x, x)), torch.ones(8), residual=x),
               random(n, 8, dtype=torch.float32)),
    lambda n: (lambda x: kw.qkv_linear(x, torch.ones(16, 8), kv_heads=1, head_dim=4),
               random(n, 8, dtype=torch.float32)),
    lambda n: (kw.attention, heads(n, 6), heads(n + 11, 2), heads(n + 11, 2)),
    lambda n: (lambda q, k, mask: kw.scaled_dot_product_attention(q, k, k, mask, enable_gqa=True),
               heads(n, 6), heads(n + 11, 2), torch.ones(2, 1, n, n + 11, dtype=torch.bool)),
    lambda n: (lambda q, k: kw.scaled_dot_product_attention(q, k, k, is_causal=True),
               heads(n, 6), heads(n + 11, 6)),
    lambda n: (kw.rope, random(2, n, 6, 10), random(2, n, 7, 10), torch.ones(2, n, 5), torch.ones(2, n, 5))])
def test_a_new_size_makes_no_new_graph(on_cpu, call):
    torch._dynamo.reset()
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    function, *first = call(3)
    compiled = torch.compile(function, backend=graphs, fullgraph=True, dynamic=True)
    with torch.no_grad():
        compiled(*first)
        made = graphs.frame_count
        for n in (5, 64, 129, 700):
            compiled(*call(n)[1:])
    assert graphs.frame_count == made


def test_gradients_through_torch_compile(on_cpu):
    def loss(x, weight, both):
        return kw.linear(kw.gated_linear(x, both), weight, activation="silu").square().sum()

    arguments = [random(*shape, dtype=torch.float32, requires_grad=True)
                 for shape in ((3, 8), (8, 16), (32, 8))]
    right = torch.autograd.grad(loss(*arguments), arguments)
    mine = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*arguments),
                               arguments)
    for one, other in zip(mine, right):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_cache_is_changed_in_place(on_cpu, backend):
    def step(cache_k, cache_v, q, new):
        lengths = torch.full((2,), 4, dtype=torch.int32)
        angles = torch.zeros(9, 4)
        return kw.append_attention(q, cache_k, cache_v, new, new, lengths, angles + 1, angles)

    def caches():
        return [random(2, 2, 9, 8, dtype=torch.float32).clone() for _ in range(2)]

    q, new = random(2, 1, 4, 8, dtype=torch.float32), random(2, 1, 2, 8, dtype=torch.float32)
    mine, right = caches(), caches()
    with torch.no_grad():
        result = torch.compile(step, backend=backend, fullgraph=True)(*mine, q, new)
        torch.testing.assert_close(result, step(*right, q, new))
    for one, other in zip(mine, right):
        torch.testing.assert_close(one, other)


def test_operators_are_sound(on_cpu):
    x, weight = random(3, 8, dtype=torch.float32), random(6, 8, dtype=torch.float32)
    for name, arguments, named in (
            ("linear", (x, weight), {}), ("gated_linear", (x, weight), {}),
            ("rms_norm", (x, torch.ones(8)), {}), ("qkv_linear", (x, weight), {"kv_heads": 1, "head_dim": 2}),
            ("silu_mul", (x, x), {}), ("softmax", (x,), {})):
        operator = getattr(torch.ops.kernwright, name).default
        torch.library.opcheck(operator, arguments, named,
                              test_utils=("test_schema", "test_faketensor"))


def test_a_kernel_is_launched_at_once_where_nobody_watches(monkeypatch):
    class Gpu(torch.Tensor):
        pass

    x = torch.zeros(2)
    monkeypatch.setattr(define, "_PLAIN", (torch.Tensor,))
    assert not define._direct(x)  # on no GPU
    monkeypatch.setattr(define, "_PLAIN", ())
    assert not define._direct(x)  # a class of its own
    assert define._direct(None)
    with FakeTensorMode():
        assert not define._direct(None)
    with torch.autograd.forward_ad.dual_level():
        assert not define._direct(None)
    assert not torch.compile(lambda: define._direct(None), backend="eager", fullgraph=True)()
