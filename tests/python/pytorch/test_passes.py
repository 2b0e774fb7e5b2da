"""Fusions in the graphs that torch.compile makes of models."""

import kernwright
import pytest
import torch

pytest.importorskip("torch._inductor.custom_graph_pass")

import graphs  # noqa: E402
from graphs import CALLED, compiled, expect_near  # noqa: E402
from kernwright import torch as kw  # noqa: E402
from kernwright.torch import _compiled, _packing, inductor  # noqa: E402
from torch import nn  # noqa: E402

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def on_cpu():
    with graphs.on_cpu():
        yield


def bf16(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(BF16)


class Norm(nn.Module):
    """As Llama has it; `rounded` is where a norm rounds first, `inside` where eps is."""

    def __init__(self, size, rounded=True, inside=True, dtype=BF16, dim=-1):
        super().__init__()
        self.weight = nn.Parameter(bf16(size).abs().to(dtype) + 0.5)
        self.rounded, self.inside, self.dim = rounded, inside, dim

    def forward(self, x):
        wide = x.to(torch.float32)
        mean = wide.pow(2).mean(self.dim, keepdim=True)
        wide = wide * (torch.rsqrt(mean + 1e-3) if self.inside else 1 / (torch.sqrt(mean) + 1e-3))
        return self.weight * wide.to(x.dtype) if self.rounded else (self.weight * wide).to(x.dtype)


class Layer(nn.Module):
    """A norm, a product, a residual, a norm, SwiGLU and a residual."""

    def __init__(self, size=32, inner=48, **norms):
        super().__init__()
        self.before, self.between = Norm(size, **norms), Norm(size, **norms)
        self.product = nn.Linear(size, size, bias=False, dtype=BF16)
        self.mixed = nn.Linear(size, size, bias=False, dtype=BF16)
        self.gate_up = nn.Linear(size, 2 * inner, bias=False, dtype=BF16)
        self.down = nn.Linear(inner, size, bias=False, dtype=BF16)

    def forward(self, x):
        x = x + self.mixed(torch.tanh(self.product(self.before(x))))
        gate, up = self.gate_up(self.between(x)).chunk(2, -1)
        return self.down(up * nn.functional.silu(gate)) + x


ALL = ["norm_linear", "linear_add", "norm_gated_linear", "linear_add"]


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_of_any_model(rounded, dynamic):
    layer, calls = Layer(rounded=rounded), [(bf16(2, rows, 32),) for rows in ((3,) if not dynamic else (3, 40))]
    with torch.no_grad():
        results, names = compiled(layer, *calls, dynamic=dynamic, generated=True)
        assert names == ALL  # one graph for all sizes
        for result, call in zip(results, calls):
            expect_near(result, layer(*call))


def test_a_norm_of_torch_and_a_matrix():
    norm, product = nn.RMSNorm(32, 1e-3, dtype=BF16), nn.Linear(32, 16, bias=False, dtype=BF16)
    with torch.no_grad():
        (result,), names = compiled(lambda x: product(norm(x)), (bf16(3, 32),))
        assert names == ["norm_linear"]
        expect_near(result, product(norm(bf16(3, 32))))


def quantizing(norm, weight):
    """The steps of a norm ahead of two layers whose weights have 8 bits."""
    def step(x):
        y = norm(x)
        return kw.quantized_linear(y, weight) if not isinstance(y, tuple) else kw.quantized_linear(y[0], weight) + y[1][:, :16]
    return step


WEIGHT = bf16(32)


@pytest.mark.parametrize("norm", [
    nn.RMSNorm(32, 1e-3, dtype=BF16), lambda x: kw.rms_norm(x, WEIGHT), lambda x: kw.rms_norm(x),
    lambda x: kw.rms_norm(x, WEIGHT, 1e-3, residual=x)])
def test_a_norm_hands_codes_to_a_product_of_8_bits(norm):
    step = quantizing(norm, kw.QuantizedRows.from_float(bf16(16, 32)))
    with torch.no_grad():
        (result,), _, ours = compiled(step, (bf16(3, 32),), all_names=True)
        assert ours == ["quantized_norm", "scaled_matmul"]
        expect_near(result, step(bf16(3, 32)))


def test_several_products_of_8_bits_read_one_norms_codes():
    weights = [kw.QuantizedRows.from_float(bf16(rows, 32)) for rows in (16, 16, 8)]

    def step(x):
        y = kw.rms_norm(x, WEIGHT)
        return tuple(kw.quantized_linear(y, weight) for weight in weights)

    with torch.no_grad():
        (results,), _, ours = compiled(step, (bf16(3, 32),), all_names=True)
        assert ours == ["quantized_norm"] + ["scaled_matmul"] * 3
        for result, wanted in zip(results, step(bf16(3, 32))):
            expect_near(result, wanted)


@pytest.mark.parametrize("opened", [kw.silu_and_mul, lambda x: kw.gelu_and_mul(x, approximate="tanh"),
                                    lambda x: nn.functional.silu(x[..., :32]) * x[..., 32:]])
def test_a_gate_hands_codes_to_a_product_of_8_bits(opened):
    weights = [kw.QuantizedRows.from_float(bf16(rows, 32)) for rows in (64, 16)]

    def step(x):
        return kw.quantized_linear(opened(kw.quantized_linear(x, weights[0])), weights[1])

    with torch.no_grad():
        (result,), _, ours = compiled(step, (bf16(3, 32),), all_names=True)
        assert ours == ["quantize_rows", "scaled_matmul", "quantized_gate", "scaled_matmul"]
        expect_near(result, step(bf16(3, 32)))


@pytest.mark.parametrize("norm", [nn.RMSNorm(32, 1e-3, dtype=BF16), lambda x: kw.rms_norm(x, WEIGHT)])
def test_a_norm_with_other_readers_is_not_quantized(norm):
    weight = kw.QuantizedRows.from_float(bf16(16, 32))

    def step(x):
        y = norm(x)
        return kw.quantized_linear(y, weight), y + 1

    with torch.no_grad():
        _, _, ours = compiled(step, (bf16(3, 32),), all_names=True)
        assert "quantize_rows" in ours and "quantized_norm" not in ours


def test_without_a_call_of_ours_nothing_is_fused():
    before = torch._inductor.config.post_grad_custom_pre_pass
    kw.fuse_in_inductor()
    kw.fuse_in_inductor()
    assert torch._inductor.config.post_grad_custom_pre_pass is inductor._fusions
    kw.fuse_in_inductor(False)
    assert torch._inductor.config.post_grad_custom_pre_pass is before is None
    with torch._inductor.config.patch(post_grad_custom_pre_pass=print):
        with pytest.raises(kernwright.Error, match="post_grad_custom_pre_pass is <built-in function print>"):
            kw.fuse_in_inductor()


def shared_norm(layer, x):
    y = layer.before(x)
    return layer.product(y), y


def shared_product(layer, x):
    y = layer.mixed(x)
    return x + y, y


def shared_gate(layer, x):
    y = layer.gate_up(x)
    gate, up = y.chunk(2, -1)
    return up * nn.functional.silu(gate), y


def swapped_gate(layer, x):
    up, gate = layer.gate_up(x).chunk(2, -1)
    return (up * nn.functional.silu(gate),)


def uneven_gate(layer, x):
    y = layer.gate_up(x)
    return (nn.functional.silu(y[..., :40]) * y[..., 8:48],)


def broadcast(layer, x):
    return (layer.mixed(x) + x[:, :1],)


def scaled_sum(layer, x):
    return (torch.add(layer.mixed(x), x, alpha=2),)


def weight_of_a_step(layer, x):
    return (nn.functional.linear(layer.before(x), layer.product.weight * 2),)


def written_between(layer, x):
    x = x.clone()
    y = layer.mixed(x)
    x.mul_(2)
    return (x + y, )


def scaled_norm(layer, x):
    return (layer.product(layer.before(x * 2)),)  # Inductor scales and normalises in one kernel


@pytest.mark.parametrize("step, names", [
    (shared_norm, []), (shared_product, []), (shared_gate, []), (swapped_gate, []), (uneven_gate, []), (broadcast, []),
    (scaled_sum, []), (weight_of_a_step, []), (scaled_norm, []), (written_between, ["linear_add"])])
def test_what_is_not_known_is_left(step, names):
    layer, x = Layer(), bf16(2, 3, 32)
    with torch.no_grad():
        (results,), found = compiled(lambda x: step(layer, x), (x,))
        assert found == names
        for result, wanted in zip(results, step(layer, x)):
            expect_near(result, wanted)


@pytest.mark.parametrize("norms", [{"inside": False}, {"dtype": torch.float32, "rounded": False}, {"dim": 1}])
def test_other_norms_are_left(norms):
    layer, x = Layer(**norms), bf16(2, 3, 32)
    with torch.no_grad():
        (result,), names = compiled(layer, (x,))
        assert names == ["linear_add", "gated_linear", "linear_add"]
        expect_near(result, layer(x))


def test_weights_in_fp32_are_left():
    layer, x = Layer().float(), bf16(2, 3, 32).float()
    with torch.no_grad():
        (result,), names = compiled(layer, (x,))
        assert names == []
        expect_near(result, layer(x), 1e-5)
        with torch.autocast("cpu", BF16):
            assert compiled(layer, (x,))[1] == []


def test_training_is_left():
    layer, x = Layer(), bf16(2, 3, 32)
    (result,), names = compiled(layer, (x,))
    result.float().sum().backward()
    assert names == [] and layer.gate_up.weight.grad is not None


def test_what_is_written_afterwards_is_read_before():
    layer, x, cache = Layer(), bf16(2, 3, 32), bf16(2, 3, 32)

    def step(x, cache):
        y = layer.mixed(x) + cache
        cache.add_(y)
        return y

    ours, theirs = cache.clone(), cache.clone()
    with torch.no_grad():
        (result,), names = compiled(step, (x, ours))
        assert names == ["linear_add"]
        expect_near(result, step(x, theirs))
    expect_near(ours, theirs)


class Apart(nn.Module):
    """q, k and v, and a gate, of weights of their own, with an activation."""

    def __init__(self, rows=(32, 16, 16), biased=(False,) * 3, activation="silu"):
        super().__init__()
        self.before, self.between = Norm(32), Norm(32)
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(32, count, bias=bias, dtype=BF16) for count, bias in zip(rows, biased))
        self.mixed = nn.Linear(sum(rows), 32, bias=biased[0], dtype=BF16)
        self.gate_proj, self.up_proj = (nn.Linear(32, 48, bias=False, dtype=BF16) for _ in range(2))
        self.down = nn.Linear(48, 32, bias=False, dtype=BF16)
        self.activation = {"silu": nn.functional.silu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
                           "gelu": nn.functional.gelu, "relu": nn.functional.relu}[activation]

    def forward(self, x):
        y = self.before(x)
        x = x + self.mixed(torch.cat((self.q_proj(y).sin(), self.k_proj(y).cos(), self.v_proj(y)), -1))
        y = self.between(x)
        return self.down(self.activation(self.gate_proj(y)) * self.up_proj(y)) + x


QKV, GATE, SUM = "norm_qkv_linear", "norm_gated_linear", "linear_add"


@pytest.mark.parametrize("made, names", [
    ({}, [QKV, SUM, GATE, SUM]), ({"biased": (True,) * 3}, [QKV, SUM, GATE, SUM]),
    ({"activation": "gelu_tanh"}, [QKV, SUM, GATE, SUM]), ({"activation": "gelu"}, [QKV, SUM, SUM]),
    ({"activation": "relu"}, [QKV, SUM, SUM]), ({"biased": (False, True, True)}, [SUM, GATE, SUM]),
    ({"rows": (32, 16, 8)}, [SUM, GATE, SUM]), ({"rows": (24, 16, 16)}, [SUM, GATE, SUM])])
def test_packed_weights_of_one_input_are_one_product(made, names):
    layer, x = Apart(**made), bf16(2, 3, 32)
    with torch.no_grad():
        wanted = layer(x)
        assert kw.pack(layer) == ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"] and kw.pack(layer) == []
        assert torch.equal(layer(x), wanted)
        (result,), found = compiled(layer, (x,))
        assert found == names
        expect_near(result, wanted)


class Split(nn.Module):
    """q, k and v as parts of one product, of so many columns each."""

    def __init__(self, sizes, bias=False):
        super().__init__()
        self.sizes, self.before = sizes, Norm(32)
        self.qkv = nn.Linear(32, sum(sizes), bias=bias, dtype=BF16)

    def forward(self, x):
        y, begin, parts = self.qkv(self.before(x)), 0, []
        for size in self.sizes:
            parts.append(y[..., begin:begin + size].sin())
            begin += size
        return parts


@pytest.mark.parametrize("made, name", [
    (((32, 16, 16),), QKV), (((32, 16, 16), True), QKV), (((16, 16, 16),), QKV), (((24, 16, 16),), "norm_linear"),
    (((32, 16, 24),), "norm_linear"), (((32, 16),), "norm_linear")])
@pytest.mark.parametrize("generated", [False, True])
def test_parts_of_one_product_are_written_apart(made, name, generated):
    layer, x = Split(*made), bf16(2, 3, 32)
    with torch.no_grad():
        (results,), names = compiled(layer, (x,), generated=generated)
        assert names == [name]
        for result, wanted in zip(results, layer(x)):
            expect_near(result, wanted)


@pytest.mark.parametrize("step", [
    lambda y: (y[..., :32].sin(), y[..., 32:48].sin(), y[..., 40:].sin()), lambda y: (y[..., :32], y[..., 32:48], y.sin()),
    lambda y: (y[:1], y[1:, :2], y[1:, 2:]), lambda y: (y[..., :32].sin(), y[..., 32:48].sin(), y[..., 48:63].sin())])
def test_other_parts_are_left(step):
    product, x = nn.Linear(32, 64, bias=False, dtype=BF16), bf16(2, 3, 32)
    with torch.no_grad():
        (results,), names = compiled(lambda x: step(product(x)), (x,))
        assert names == []
        for result, wanted in zip(results, step(product(x))):
            expect_near(result, wanted)


def test_weights_that_are_not_packed_are_left():
    layer, x = Apart(), bf16(2, 3, 32)
    with torch.no_grad():
        (result,), names = compiled(layer, (x,))
        assert names == [SUM, SUM]
        expect_near(result, layer(x))


def test_weights_may_change_and_move_after_they_were_compiled():
    layer, x = Apart(biased=(True,) * 3), bf16(2, 3, 32)
    kw.pack(layer)

    def change():
        for parameter in layer.parameters():
            parameter.mul_(-0.5)

    def replace():
        for linear in (layer.k_proj, layer.up_proj):
            linear.weight = nn.Parameter(linear.weight * 2)

    def move():
        for parameter in layer.parameters():
            parameter.data = parameter.data.clone() + 0.01

    with torch.no_grad():
        kw.fuse_in_inductor()
        try:
            torch._dynamo.reset()
            with torch._inductor.config.patch(force_disable_caches=True, **CALLED):
                step = torch.compile(layer, fullgraph=True)
                before = step(x)
                for edit in (change, replace, move):
                    edit()
                    after = step(x)
                    expect_near(after, layer(x))
                    assert not torch.allclose(after, before)
                    before = after
        finally:
            kw.fuse_in_inductor(False)


def test_weights_in_another_order_are_left():
    layer, x = Apart(), bf16(2, 3, 32)
    assert _packing.pack_parameters([layer.up_proj.weight, layer.gate_proj.weight], one_storage=True)
    with torch.no_grad():
        (result,), names = compiled(layer, (x,))
        assert names == [SUM, SUM]
        expect_near(result, layer(x))


def test_weights_that_others_share_are_not_packed():
    layer = Apart()
    layer.up_proj.weight = layer.gate_proj.weight
    places = {name: parameter.data_ptr() for name, parameter in layer.named_parameters()}
    kw.pack(layer)
    assert {name for name, parameter in layer.named_parameters() if parameter.data_ptr() != places[name]} == {
        "q_proj.weight", "k_proj.weight", "v_proj.weight"}
    with pytest.raises(TypeError, match="model is a str"):
        kw.pack("layer")


@pytest.mark.parametrize("generated", [False, True])
def test_counters_of_caches_are_added_to_at_once(monkeypatch, generated):
    counters, other, seen = [torch.tensor(number) for number in (3, 5, 7)], torch.tensor([1]), []
    count = _compiled._count_at_once

    def watched(graph):
        count(graph)
        seen.extend(node.target for node in graph.nodes if ".count" in str(node.target) or "copy_" in str(node.target))

    monkeypatch.setattr(_compiled, "_count_at_once", watched)

    def step(x):
        rows = torch.arange(16) < counters[0]
        x = x * rows + counters[1] - other
        for counter, number in zip((*counters, other), (1, 1, 2, 1)):
            counter.add_(number)
        return x, counters[2] * 2

    with torch.no_grad():
        ((result, twice),), _ = compiled(step, (torch.ones(16),), generated=generated)
    assert sorted(map(str, seen)) == ["aten.copy_.default", "aten.copy_.default", "kernwright_engine.count.default"]
    assert [int(each) for each in (*counters, other)] == [4, 6, 9, 2]
    assert torch.equal(result, torch.tensor([1.0] * 3 + [0.0] * 13) + 4) and int(twice) == 18


def last_token(logits):
    return logits[:, -1].argmax(-1)


@pytest.mark.parametrize("greedy, names", [
    (last_token, ["argmax"]), (lambda logits: logits.argmax(dim=-1), ["argmax"]),
    (lambda logits: logits.float().argmax(2), ["argmax"]), (lambda logits: logits[:, -1, :].float().argmax(-1), ["argmax"]),
    (lambda logits: logits.argmax(1), []), (lambda logits: logits.argmax(-1, keepdim=True), []),
    (lambda logits: logits.argmax(), []), (lambda logits: (logits / 0.7).argmax(-1), []),
    (lambda logits: logits[..., 1:].argmax(-1), []), (lambda logits: logits[..., ::2].argmax(-1), [])])
@pytest.mark.parametrize("tokens", [1, 3])
def test_the_most_probable_token(greedy, names, tokens):
    head, x = nn.Linear(32, 200, bias=False, dtype=BF16), bf16(1 if greedy is last_token else 2, tokens, 32)
    head.weight.data[40] = head.weight.data[7]  # of equal logits the first one is taken
    head.weight.data[7] *= 3
    head.weight.data[40] *= 3
    with torch.no_grad():
        (result,), found = compiled(lambda x: greedy(head(x)), (x,))
        wanted = greedy(head(x))
    assert result.dtype is torch.int64 and torch.equal(result, wanted)
    has_gaps = wanted.shape == (2,) and tokens > 1  # between the rows of last tokens
    assert found == ([] if has_gaps else names)


# Models of Transformers: what is fused in the second of their layers, and then after their weights were packed.
MODELS = {"Phi3": ([QKV, SUM, GATE, SUM],) * 2,
          "Glm4": (["gated_linear"], ["qkv_linear", "gated_linear"]),
          "Llama": ([SUM] * 2, [QKV, SUM, GATE, SUM]), "Qwen3": ([SUM] * 2, [QKV, SUM, GATE, SUM]),
          "Olmo2": ([], ["qkv_linear", "gated_linear"]), "Gemma3Text": ([], ["qkv_linear", "gated_linear"]),
          "GptOss": ([SUM], ["qkv_linear", SUM])}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers(name, packed):
    pytest.importorskip("transformers")
    from test_transformers import make, tokens
    model = make(name, num_hidden_layers=2)
    model.set_attn_implementation("sdpa" if name != "GptOss" else "eager")

    def step(ids):
        return model(ids, use_cache=False).logits

    with torch.no_grad():
        if packed:
            kw.pack(model)
        (result,), names = compiled(step, (tokens(2, 7),), generated=packed)
        layer = MODELS[name][packed]
        # The norm of what Inductor computes is Inductor's: that of the first layer, and of sums of norms.
        first = [name.removeprefix("norm_") if i == 0 else name for i, name in enumerate(layer)]
        first = [name for name in first if name != "linear"]
        head = ["norm_linear"] if SUM in layer[-1:] and name != "GptOss" else []
        assert names == first + layer + head
        expect_near(result, step(tokens(2, 7)), 0.04)
