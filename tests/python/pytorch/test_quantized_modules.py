"""Quantized layers of other libraries under `patch`."""

import copy
import re

import pytest
import torch
from checkpoints import Layer, Linear

import kernwright.torch as kt

FORMATS = ["gptq", "gptq_v2", "awq", "compressed_tensors"]


class Pair(torch.nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.first, self.second = layers

    def forward(self, x):
        return self.second(torch.nn.functional.silu(self.first(x)))


def pair(format, ordered=False, bits=4, **named):
    bias = torch.randn(96).bfloat16()
    return Pair(*(Linear(Layer(n, k, 32, bits, scale=torch.bfloat16, ordered=ordered, **named), format, own)
                  for n, k, own in ((96, 232, bias), (40, 96, None)))).requires_grad_(False)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def expect_same_state(model, state):
    now = model.state_dict()
    assert list(now) == list(state)
    for name, tensor in state.items():
        assert now[name].dtype is tensor.dtype and torch.equal(now[name], tensor), name


def near(result, expected):
    return float((result.double() - expected.double()).norm() / expected.double().norm()) < 0.01


@pytest.mark.parametrize("format, bits, ordered", [
    *((format, 4, False) for format in FORMATS), ("gptq", 4, True), ("gptq", 8, False), ("gptq_v2", 8, True),
    ("compressed_tensors", 8, False)])
def test_layers_are_packed_and_come_back(on_cpu, format, bits, ordered):
    model, x = pair(format, ordered, bits), random(2, 3, 232)
    expected, state = model(x), state_of(model)
    report = kt.patch(model)
    assert [row.op for row in report.replaced] == ["quantized_linear"] * 2 and not report.left
    assert f"packed from {format}, {bits} bits in groups of 32, and its own tensors freed" in str(report)
    assert not any(tensor.dtype is torch.int32 and tensor.dim() > 1 for tensor in model.state_dict().values())
    assert near(model(x), expected)
    assert on_cpu == ["quantized_linear"] * 2
    report.undo()
    expect_same_state(model, state)
    assert type(model.first) is Linear and torch.equal(model(x), expected)


def test_symmetric_layers_get_their_zero_points_back(on_cpu):
    for format in FORMATS:
        model = pair(format, symmetric=True)
        state = state_of(model)
        report = kt.patch(model)
        assert model.first.kernwright_weight.zeros is None
        report.undo()
        expect_same_state(model, state)


def test_parameters_come_back_as_parameters(on_cpu):
    model = torch.nn.Sequential(Linear(Layer(64, 64, scale=torch.bfloat16), "gptq", parameters=True))
    names = [name for name, _ in model.named_parameters()]
    kt.patch(model).undo()
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())


def test_calls_that_no_kernel_takes_are_computed_with_the_plain_matrix(on_cpu):
    model = pair("gptq")
    before = copy.deepcopy(model)
    kt.patch(model)
    on_cpu.clear()
    mine, theirs = random(3, 232).requires_grad_(), random(3, 232).requires_grad_()
    model(mine).sum().backward()
    before(theirs).sum().backward()
    assert near(mine.grad, theirs.grad)
    strided = random(232, 3).t()
    assert near(model(strided), before(strided)) and on_cpu == ["quantized_linear"] * 2
    on_cpu.clear()
    with torch.autocast("cpu", torch.bfloat16):
        assert near(model(strided), before(strided))
    assert not on_cpu


@pytest.mark.parametrize("change", ["member", "forward", "argument"])
def test_a_layer_that_changed_computes_as_before(on_cpu, change, monkeypatch):
    model, x = pair("gptq"), random(3, 232)
    state = state_of(model)
    kt.patch(model)
    if change == "member":
        model.first.bits = 8
        with pytest.raises(Exception):  # as it would have before
            model(x)
    elif change == "forward":
        monkeypatch.setattr(Linear, "forward", lambda self, x: torch.full((len(x), len(self.scales[0])), 7.0).bfloat16())
        assert (model(x) == 7).all()
    else:
        assert near(model.second(model.first(x=x)), model.second(model.first(x)))
    expect_same_state(torch.nn.ModuleDict({"first": model.first}),
                      {name: tensor for name, tensor in state.items() if name.startswith("first")})


def test_copies_and_moves_keep_the_packed_weights(on_cpu):
    model, x = pair("gptq", ordered=True), random(3, 232)
    state = state_of(model)
    report = kt.patch(model)
    expected = model(x)
    for other in (copy.deepcopy(model), model.to(torch.float64).to(torch.bfloat16)):
        on_cpu.clear()
        assert torch.equal(other(x), expected)
        assert on_cpu == ["quantized_linear"] * 2
    report.undo()
    assert torch.equal(model.first.qweight, state["first.qweight"])


def test_compiled(on_cpu):
    model, x = pair("gptq", ordered=True), random(3, 232)
    expected = model(x)
    kt.patch(model)
    with torch.no_grad():
        assert near(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    assert on_cpu.count("quantized_linear") == 2


class Shuffled(Linear):
    """Keeps its words in an order of its own."""

    def matrix(self):
        return super().matrix().flip(0)


@pytest.mark.parametrize("change, text", [
    (lambda layer: layer.to("meta"), "on the meta device"),
    (lambda layer: setattr(layer, "__class__", Shuffled), "does not compute a product with its weights as gptq"),
    (lambda layer: setattr(layer, "qweight", layer.qweight[:-1]), "as gptq|qweight|columns"),
    (lambda layer: setattr(layer, "qweight", layer.qweight.view(-1, 48)), r"qweight \[.*of no format that is known"),
    (lambda layer: setattr(layer, "scales", layer.scales.float()), "scales are torch.float32"),
    (lambda layer: setattr(layer, "g_idx", (layer.g_idx == 3).int() * 5), "whole groups|scales"),
])
def test_what_is_not_known_is_left_and_named(on_cpu, change, text):
    model = pair("gptq")
    change(model.first)
    state, report = state_of(model), kt.patch(model)
    left, = report.left
    assert left.name == "first" and re.search(text, left.reason), left.reason
    report.undo()
    if not model.first.qweight.is_meta:
        expect_same_state(model, state)


def test_layers_on_a_cpu_and_of_other_libraries_are_left():
    class HQQLinear(torch.nn.Module):
        pass

    model = torch.nn.ModuleList([Linear(Layer(64, 64), "gptq"), HQQLinear()])
    report = kt.patch(model)
    assert {row.kind: row.reason for row in report.left} == {
        "Linear": "its weights are on cpu, and kernels are for GPUs",
        "HQQLinear": "holds a matrix, and is none of the classes that are known"}


class SwiGLU(torch.nn.Module):
    def __init__(self, gate, up, down, act_fn=torch.nn.functional.silu):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj, self.act_fn = gate, up, down, act_fn

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def layer(n, k, format="gptq", group=32, bits=4, **named):
    return Linear(Layer(n, k, group, bits, scale=torch.bfloat16, **named), format)


def swiglu(format="gptq", bits=4, act_fn=torch.nn.functional.silu, **named):
    """Rows that fill up neither blocks of 64 nor the 32 of a gate's."""
    return SwiGLU(layer(72, 232, format, bits=bits, **named), layer(72, 232, format, bits=bits, seed=1, **named),
                  layer(40, 72, format, bits=bits), act_fn).requires_grad_(False)


JOINED = "weights of gate_proj and up_proj were joined"


@pytest.mark.parametrize("format, bits, more", [
    ("gptq", 4, {}), ("awq", 4, {}), ("compressed_tensors", 8, {}), ("gptq", 8, {"symmetric": True}),
    ("compressed_tensors", 4, {"act_fn": lambda x: torch.nn.functional.gelu(x, approximate="tanh")})])
def test_a_gate_is_joined_with_what_it_opens_and_parted(on_cpu, format, bits, more):
    model, x = torch.nn.Sequential(swiglu(format, bits, **more)), random(2, 3, 232)
    expected, state = model(x), state_of(model)
    report = kt.patch(model)
    assert [row.op for row in report.replaced] == ["quantized_linear"] * 3 + ["swiglu"] and JOINED in str(report)
    on_cpu.clear()
    assert near(model(x), expected) and on_cpu == ["quantized_gated_linear", "quantized_linear"]
    on_cpu.clear()
    alone = model[0].up_proj(x)  # of another module that shares it, say
    assert near(alone, torch.nn.functional.linear(x, model[0].up_proj.kernwright_weight.alone().dequantize()))
    with torch.no_grad():
        assert near(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    assert on_cpu == ["quantized_linear", "quantized_gated_linear", "quantized_linear"]
    for other in (copy.deepcopy(model), model.to(torch.float64).to(torch.bfloat16)):
        on_cpu.clear()
        assert near(other(x), expected) and on_cpu == ["quantized_gated_linear", "quantized_linear"]
    report.undo()
    expect_same_state(model, state)
    assert type(model[0]) is SwiGLU and torch.equal(model(x), expected)


def test_one_of_both_may_have_zero_points(on_cpu):
    model, x = swiglu(), random(3, 232)
    model.up_proj = layer(72, 232, symmetric=True)
    expected, state = model(x), state_of(model)
    report = kt.patch(model)
    assert JOINED in str(report) and near(model(x), expected)
    report.undo()
    expect_same_state(model, state)


@pytest.mark.parametrize("up, text", [
    ({"group": 64}, "group of the gate is 32, and 64"), ({"bits": 8}, "weights of the gate is int4, and int8"),
    ({"ordered": True}, "another order")])
def test_what_cannot_be_joined_is_left_and_named(on_cpu, up, text):
    model, x = swiglu(), random(3, 232)
    model.up_proj = layer(72, 232, **up)
    expected, report = model(x), kt.patch(model)
    left, = report.left
    assert left.op == "swiglu" and text in left.reason
    on_cpu.clear()
    assert near(model(x), expected) and on_cpu == ["quantized_linear"] * 3
    report.undo()
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("change", ["hook", "activation", "part"])
def test_a_joined_layer_that_changed_computes_as_before(on_cpu, change):
    model, x, seen = swiglu(), random(3, 232), []
    report = kt.patch(model)
    if change == "hook":
        model.up_proj.register_forward_hook(lambda module, given, result: seen.append(result))
    elif change == "activation":
        model.act_fn = torch.relu
    else:
        model.up_proj = torch.nn.Linear(232, 72, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    on_cpu.clear()
    inner = model.act_fn(model.gate_proj(x)) * model.up_proj(x)
    seen.clear()
    assert near(model(x), model.down_proj(inner)) and "quantized_gated_linear" not in on_cpu
    assert len(seen) == (change == "hook")
    report.undo()


def test_calls_with_a_gradient_are_computed_with_plain_matrices(on_cpu):
    model = swiglu()
    before = copy.deepcopy(model)
    kt.patch(model)
    mine, theirs = random(3, 232).requires_grad_(), random(3, 232).requires_grad_()
    model(mine).sum().backward()
    before(theirs).sum().backward()
    assert near(mine.grad, theirs.grad)


def test_our_own_layers_are_joined(on_cpu):
    weights = [kt.QuantizedWeight.from_float(random(n, k).float().mul(0.1).bfloat16(), group=32)
               for n, k in ((72, 232), (72, 232), (40, 72))]
    model, x = SwiGLU(*map(kt.QuantizedLinear, weights)), random(3, 232)
    expected, state = model(x), state_of(model)
    report = kt.patch(model)
    on_cpu.clear()
    assert near(model(x), expected) and on_cpu == ["quantized_gated_linear", "quantized_linear"]
    report.undo()
    expect_same_state(model, state)
