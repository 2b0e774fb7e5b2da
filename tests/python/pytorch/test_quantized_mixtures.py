"""kernwright.torch.patch on gpt-oss, whose experts were dequantized from MXFP4: they are packed again, exactly."""

import copy
import types

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers")

import triton_stub  # noqa: E402
from gpt_oss import double, gpt_oss, named_experts, routed  # noqa: E402
from test_experts import decode, tokens  # noqa: E402
from test_patch import near, relative, row  # noqa: E402

from kernwright import torch as kw  # noqa: E402
from kernwright.torch import _checkpoints as layouts  # noqa: E402

EXPERTS = "model.layers.0.mlp.experts"
PARTS = ["order_experts", "quantized_grouped_matmul", "quantized_grouped_matmul", "combine_experts"]


def patched(**changes):
    model, tensors = gpt_oss(**changes)
    return model, tensors, kw.patch(model, ops=("experts",))


def state_of(model):
    return {name: (id(value), value.clone()) for name, value in model.named_parameters()}


def expect_state(model, state):
    now = dict(model.named_parameters())
    assert list(now) == list(state)
    for name, (identity, value) in state.items():
        assert id(now[name]) == identity and now[name].dtype is value.dtype and now[name].is_contiguous()
        assert torch.equal(now[name].view(torch.int16), value.view(torch.int16)), name


@torch.no_grad()
def test_a_model_computes_what_it_did_and_comes_back(on_cpu):
    model, _ = gpt_oss()
    state, ids = state_of(model), tokens(2, 7)
    expected, right = model(ids).logits, double(model)(ids).logits
    report = kw.patch(model)
    assert row(report, EXPERTS).replaced and row(report, EXPERTS).reason == (
        "packed as mxfp4, which holds them exactly, and its own tensors freed; undo() unpacks them")
    assert not any("experts.gate_up_proj" in name or "experts.down_proj" in name for name in model.state_dict())
    held = sum(part.nbytes for _, experts in named_experts(model) for part in experts.buffers())
    assert held < 0.4 * sum(value.nbytes for name, (_, value) in state.items() if "experts" in name)
    on_cpu.clear()
    result = model(ids).logits
    assert [name for name in on_cpu if name in PARTS] == PARTS * 2
    assert relative(result, right) < 1.2 * relative(expected, right)
    report.undo()
    expect_state(model, state)
    torch.testing.assert_close(model(ids).logits, expected)


@pytest.mark.parametrize("count, most", [(1, 1), (5, 2), (40, 4)])
@torch.no_grad()
def test_experts_against_double_precision(on_cpu, count, most):
    """Half of the rows are so large that gates and what they open are limited."""
    model, _ = gpt_oss()
    experts, reference = named_experts(model)[0][1], named_experts(double(model))[0][1]
    x, index, shares = routed(count, most, 64)
    x[::2] *= 20
    right, before = reference(x.double(), index, shares.double()), experts(x, index, shares)
    kw.patch(model)
    for given in (shares, shares.float()):
        result = experts(x, index, given)
        assert result.dtype is torch.bfloat16
        assert relative(result, right) < 1.2 * relative(before, right) < 0.03


@torch.no_grad()
def test_packed_values_are_those_of_transformers(on_cpu):
    model, tensors = gpt_oss()
    own = {name: value.clone() for name, value in model.named_parameters()}
    kw.patch(model)
    for name, experts in named_experts(model):
        mixture = experts.kernwright_experts
        for part, product in ((mixture.gate_up, "gate_up_proj"), (mixture.down, "down_proj")):
            assert part.weights == "mxfp4" and part.group == 32
            given = kw.QuantizedExperts.from_mxfp4(
                *(tensors[f"{name}.{product}_{each}"] for each in ("blocks", "scales")), gate=part.gate)
            for ours, theirs in ((part, given), (given, part)):
                dense = ours.as_it_was(ours.dequantize()).mT
                assert torch.equal(dense.view(torch.int16), own[f"{name}.{product}"].view(torch.int16))
            for mine, theirs in zip(given.to_mxfp4(), (tensors[f"{name}.{product}_{each}"] for each in (
                    "blocks", "scales"))):
                assert torch.equal(mine, theirs)


def test_every_code_and_scale_is_found_again():
    """All codes beside each other's, and groups of one size, whose scale is not the one that they had."""
    codes = torch.stack([torch.arange(32).remainder(16), *(torch.full((32,), code) for code in range(16))])
    for scale in (0, 1, 2, 3, 100, 127, 200, 251):
        rows = layouts.Rows(layouts.packed(codes.to(torch.uint8), 4), torch.full((17, 1), scale, dtype=torch.uint8), None)
        matrix = layouts.dequantized(rows, "mxfp4", 32)
        found = layouts.mxfp4_of(matrix)
        again = layouts.dequantized(found, "mxfp4", 32)
        assert torch.equal(again.view(torch.int32), matrix.view(torch.int32)), scale
    for wrong in (2.5, 7.0, float("inf"), float("nan"), 0.25):
        matrix = torch.full((1, 64), 6.0)
        matrix[0, 40] = wrong
        assert layouts.mxfp4_of(matrix) is None, wrong


@torch.no_grad()
def test_an_expert_that_is_elsewhere_gives_nothing(on_cpu):
    model, _, _ = patched()
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    expected = experts(x, index, shares.masked_fill(index >= 4, 0))
    index = index.masked_fill(index >= 4, 8)
    on_cpu.clear()
    near(experts(x, index, shares), expected)
    assert on_cpu == PARTS


@torch.no_grad()
def test_decode_steps_and_compiled_ones(on_cpu):
    # Every expert is chosen, since a choice among them may hang on roundoff.
    model, _ = gpt_oss(num_experts_per_tok=8)
    ids = tokens(2, 9)
    expected, _ = decode(model, ids)
    kw.patch(model)
    on_cpu.clear()
    assert relative(decode(model, ids)[0], expected) < 0.03
    assert [on_cpu.count(name) for name in PARTS] == [2 * 5, 4 * 5, 4 * 5, 2 * 5]
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    on_cpu.clear()
    assert relative(decode(model, ids, step=compiled)[0], expected) < 0.03
    assert [on_cpu.count(name) for name in PARTS] == [2 * 5, 4 * 5, 4 * 5, 2 * 5]


def test_a_call_that_needs_gradients_gets_the_parameters_back(on_cpu):
    model, _ = gpt_oss()
    model.requires_grad_(True)
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    state = state_of(experts)
    expected = torch.autograd.grad(experts(x, index, shares).float().sum(), list(experts.parameters()))
    report = kw.patch(model)
    with torch.no_grad():
        experts(x, index, shares)
    assert not list(experts.parameters())
    on_cpu.clear()
    result = experts(x, index, shares)
    expect_state(experts, state)
    assert on_cpu == [] and report.fallbacks == {
        ("model.layers.0.mlp.experts", "a call needs gradients of its weights, so they are unpacked"): 1}
    torch.testing.assert_close(torch.autograd.grad(result.float().sum(), list(experts.parameters())), expected)
    report.undo()
    expect_state(experts, state)


def test_gradients_of_rows_alone_leave_the_weights_packed(on_cpu):
    model, _ = gpt_oss()
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    x.requires_grad_()
    expected = torch.autograd.grad(experts(x, index, shares).float().sum(), x)
    kw.patch(model)
    on_cpu.clear()
    torch.testing.assert_close(torch.autograd.grad(experts(x, index, shares).float().sum(), x), expected)
    assert on_cpu == [] and not list(experts.parameters())


@pytest.mark.parametrize("call", ["fp32", "autocast", "none"])
@torch.no_grad()
def test_calls_that_no_kernel_takes_are_the_modules_own(on_cpu, call):
    model, _ = gpt_oss()
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    before = copy.deepcopy(experts)
    kw.patch(model)
    on_cpu.clear()
    if call == "fp32":
        experts.float(), before.float()
        x, shares = x.float(), shares.float()
    elif call == "none":
        x, index, shares = x[:0], index[:0], shares[:0]
    with torch.autocast("cpu", torch.bfloat16, enabled=call == "autocast"):
        torch.testing.assert_close(experts(x, index, shares), before(x, index, shares))
    assert on_cpu == [] and not list(experts.parameters())


@pytest.mark.parametrize("change", [
    lambda e, kind, patching: setattr(e, "limit", 5.0), lambda e, kind, patching: setattr(e, "alpha", 1.0),
    lambda e, kind, patching: patching.setattr(kind, "_apply_gate", lambda self, both: both.chunk(2, -1)[0].contiguous()),
    lambda e, kind, patching: patching.setattr(kind, "forward", lambda self, *given: given[0])])
@torch.no_grad()
def test_a_module_that_changed_computes_as_before(on_cpu, change, monkeypatch):
    model, _ = gpt_oss()
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    state, before = state_of(experts), copy.deepcopy(experts)
    report = kw.patch(model, ops=("experts",))
    experts(x, index, shares)
    with monkeypatch.context() as patching:
        for each in (experts, before):
            change(each, type(before), patching)
        on_cpu.clear()
        torch.testing.assert_close(experts(x, index, shares), before(x, index, shares))
    assert on_cpu == [] and report.fallbacks
    expect_state(experts, state)


@torch.no_grad()
def test_copies_and_moves_keep_the_packed_weights(on_cpu):
    model, _, report = patched()
    experts, (x, index, shares) = named_experts(model)[0][1], routed(5, 2, 64)
    expected = experts(x, index, shares)
    other = copy.deepcopy(model)
    model.to(torch.float64).to(torch.bfloat16)
    for each in (other, model):
        on_cpu.clear()
        assert torch.equal(named_experts(each)[0][1](x, index, shares), expected)
        assert on_cpu == PARTS
    report.undo()
    kw.unpatch(other)
    for (name, mine), (_, theirs) in zip(model.named_parameters(), other.named_parameters()):
        if "experts" in name:
            assert torch.equal(mine, theirs)


def fill(name):
    def change(experts):
        getattr(experts, name).normal_()
    return change


@pytest.mark.parametrize("change, reason", [
    (lambda e: setattr(e, "_apply_gate", lambda both: both[..., ::2]), "its gate is neither SiLU nor GELU"),
    (lambda e: setattr(e, "_apply_gate", lambda both: both.sum("no")), "its gate cannot be looked at"),
    (lambda e: setattr(e, "has_gate", False), "no gate"),
    (lambda e: e.half(), "float16, which no kernel takes"),
    (lambda e: setattr(e, "has_post_expert_norm", True), "a norm behind them"),
    (lambda e: setattr(e, "down_proj", nn.Parameter(e.down_proj[:, :64].clone())), "which are no gates"),
    (lambda e: setattr(e, "kept", e.down_proj.data), "a part of the memory of down_proj"),
    (lambda e: setattr(e, "forward", lambda *given: given[0]), "another library"),
    (lambda e: setattr(e.config, "_experts_implementation", "negated"), "does not compute down(gate(x))")])
@torch.no_grad()
def test_experts_that_are_left(on_cpu, change, reason):
    from transformers.integrations import moe
    model, _ = gpt_oss()
    experts = named_experts(model)[0][1]
    forward = type(experts).forward.__wrapped__
    moe.ALL_EXPERTS_FUNCTIONS["negated"] = lambda *given: -forward(*given)
    try:
        change(experts)
        state = state_of(experts)
        report = kw.patch(model, ops=("experts",))
    finally:
        del moe.ALL_EXPERTS_FUNCTIONS["negated"]
    found = row(report, EXPERTS)
    assert not found.replaced and reason in found.reason, found.reason
    assert {name: id(value) for name, value in experts.named_parameters()} == {
        name: identity for name, (identity, _) in state.items()}


@pytest.mark.parametrize("change, reason", [
    (fill("gate_up_proj"), "weight of expert 0 has elements"),
    (lambda e: e.down_proj[3, 5, 7].fill_(2.0 ** -20), "weight of expert 3 has elements")])
@torch.no_grad()
def test_experts_that_mxfp4_does_not_hold_keep_their_weights(on_cpu, change, reason):
    model, _ = gpt_oss()
    experts = named_experts(model)[0][1]
    change(experts)
    state = state_of(experts)
    found = row(kw.patch(model, ops=("experts",)), EXPERTS)
    assert found.replaced and found.reason.startswith("multiplied as they lie") and reason in found.reason
    assert {name: id(value) for name, value in experts.named_parameters()} == {
        name: identity for name, (identity, _) in state.items()}


def test_experts_on_the_cpu_are_left():
    model, _, report = patched()
    assert "kernels are for GPUs" in row(report, EXPERTS).reason


# Experts in the layouts of Triton's kernels, in a stub of these.

def in_triton(monkeypatch, **changes):
    """A model as Transformers loads it beside the package `kernels`, and one with dense experts."""
    file = transformers.integrations.mxfp4
    monkeypatch.setattr(file, "triton_kernels_hub", triton_stub.HUB, raising=False)
    monkeypatch.setattr(file, "get_current_accelerator", lambda: None)
    model, tensors = gpt_oss(**changes)
    made = copy.deepcopy(model)
    for name, dense in named_experts(made):
        experts = file.Mxfp4GptOssExperts(made.config)
        for product in ("gate_up_proj", "down_proj"):
            blocks, scales = (tensors[f"{name}.{product}_{part}"] for part in ("blocks", "scales"))
            file.swizzle_mxfp4_convertops(blocks, scales, experts, product, blocks.device, triton_stub.HUB)
            getattr(experts, f"{product}_bias").data.copy_(getattr(dense, f"{product}_bias"))
        mlp = name.rpartition(".")[0]
        made.set_submodule(mlp, file.Mxfp4GptOssMLP(made.get_submodule(mlp).router, experts))
    return made, model


def tensors_of(experts):
    found = [getattr(experts, product) for product in ("gate_up_proj", "down_proj")]
    found += [getattr(experts, f"{product}_precision_config").weight_scale for product in ("gate_up_proj", "down_proj")]
    return [each.storage.data.clone() for each in found] + [value.clone() for value in experts.parameters()]


@torch.no_grad()
def test_experts_of_triton(on_cpu, monkeypatch):
    model, dense = in_triton(monkeypatch)
    ids, mlp = tokens(2, 7), model.model.layers[0].mlp
    expected, own = model(ids).logits, tensors_of(mlp.experts)
    names = list(mlp.experts._parameters)
    assert relative(expected, dense(ids).logits) < 0.03
    report = kw.patch(model, ops=("experts",))
    assert [found.replaced for found in report.rows] == [True, True] and row(report, "model.layers.0.mlp").replaced
    assert mlp.experts.gate_up_proj is None and not list(mlp.experts.parameters())
    on_cpu.clear()
    assert relative(model(ids).logits, expected) < 0.03
    assert on_cpu == PARTS * 2
    x = torch.randn(2, 3, 64)
    on_cpu.clear()
    with torch.autocast("cpu", torch.bfloat16):  # the module's own, which gets its tensors meanwhile
        assert mlp(x.bfloat16())[0].shape == x.shape
    assert on_cpu == [] and mlp.experts.gate_up_proj is None
    report.undo()
    assert list(mlp.experts._parameters) == names
    for mine, right in zip(tensors_of(mlp.experts), own, strict=True):
        assert mine.dtype is right.dtype and torch.equal(mine, right)
    torch.testing.assert_close(model(ids).logits, expected)


@torch.no_grad()
def test_experts_of_triton_whose_router_changed(on_cpu, monkeypatch):
    model, _ = in_triton(monkeypatch)
    mlp, x = model.model.layers[0].mlp, torch.randn(2, 3, 64).bfloat16()
    report = kw.patch(model, ops=("experts",))
    mlp.router.top_k = 3
    on_cpu.clear()
    result, _ = mlp(x)
    report.undo()
    torch.testing.assert_close(result, mlp(x)[0])
    assert on_cpu == [] and report.fallbacks


def inverted(blocks, scales, experts, name, *more):
    """Puts other blocks into the layouts."""
    setattr(experts, name, triton_stub.convert_layout(~blocks.flatten(2).mT, triton_stub.Layout))
    config = types.SimpleNamespace(weight_scale=triton_stub.convert_layout(scales.mT, triton_stub.Strided))
    setattr(experts, f"{name}_precision_config", config)


@pytest.mark.parametrize("change, reason", [
    (lambda m, patching: setattr(m.experts, "gate_up_proj", None), "in no layout that is known"),
    (lambda m, patching: setattr(m.experts, "_is_hooked", True), "shared out among ranks"),
    (lambda m, patching: setattr(m.experts, "alpha", 1.0), "does not compute down(gate(x))"),
    (lambda m, patching: patching.setattr(transformers.integrations.mxfp4, "swizzle_mxfp4_convertops", inverted),
     "gate_up_proj could not be restored"),
    (lambda m, patching: setattr(m.router, "forward", lambda x: (x, *type(m.router).forward(m.router, x)[1:])),
     "does not compute the logits of its router"),
    (lambda m, patching: m.experts.down_proj_bias.add_(1e-6), "down_proj_bias could not be restored")])
@torch.no_grad()
def test_experts_of_triton_that_are_left(on_cpu, monkeypatch, change, reason):
    model, _ = in_triton(monkeypatch)
    mlp = model.model.layers[0].mlp
    monkeypatch.setattr(triton_stub.HUB.matmul_ogs, "FusedActivation",
                        lambda *_: types.SimpleNamespace(numbers=(1.702, 7.0)))
    with monkeypatch.context() as patching:
        change(mlp, patching)
        report = kw.patch(model, ops=("experts",))
    found = row(report, "model.layers.0.mlp")
    assert not found.replaced and reason in found.reason, found.reason
