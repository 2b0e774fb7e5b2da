"""kernwright.torch.patch on mixtures of experts: which are replaced, which are left and why, and that
results stay what they were."""

import pytest
import torch
from torch import nn

from kernwright import torch as kw

transformers = pytest.importorskip("transformers")

from test_patch import decode, language_model, near, relative, row, tokens  # noqa: E402

MIXTURES = {
    "Qwen3Moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32),
    "Qwen2Moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
                     shared_expert_intermediate_size=40),
    "Mixtral": dict(num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
    "GptOss": dict(num_local_experts=8, num_experts_per_tok=2),
}


def mixture(family, **changes):
    return language_model(family, **{**MIXTURES[family], **changes})


def experts_of(model):
    return model.model.layers[0].mlp.experts


def choices(count, most, experts=8):
    """`count` tokens with `most` experts each, and their shares."""
    generator = torch.Generator().manual_seed(5)
    shares, index = torch.rand(count, experts, generator=generator).topk(most)
    return index, shares


PARTS = ["order_experts", "grouped_matmul", "grouped_matmul", "combine_experts"]
FAMILIES = ["Qwen3Moe", "Qwen2Moe", "Mixtral"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [1, 5, 40])
@torch.no_grad()
def test_experts_are_two_grouped_products(on_cpu, family, count):
    model = mixture(family)
    experts, (index, shares) = experts_of(model), choices(count, 2)
    x = torch.randn(count, 64, generator=torch.Generator().manual_seed(6)).bfloat16()
    before = {name: (id(value), value.data_ptr()) for name, value in model.named_parameters()
              if "experts" in name}
    expected = [experts(x, index, given) for given in (shares, shares.bfloat16())]
    report = kw.patch(model, ops=("experts",))
    assert row(report, "model.layers.0.mlp.experts").replaced
    assert [found.op for found in report.rows] == ["experts"] * 2 and on_cpu == []
    for right, given in zip(expected, (shares, shares.bfloat16())):
        on_cpu.clear()
        near(experts(x, index, given), right)
        assert on_cpu == PARTS
    assert {name: (id(value), value.data_ptr()) for name, value in model.named_parameters()
            if "experts" in name} == before
    report.undo()
    on_cpu.clear()
    torch.testing.assert_close(experts(x, index, shares), expected[0])
    assert on_cpu == []


@torch.no_grad()
def test_an_expert_that_is_elsewhere_gives_nothing(on_cpu):
    """As expert parallelism says it: the number of experts, with a share of 0."""
    experts, (index, shares) = experts_of(model := mixture("Qwen3Moe")), choices(5, 2)
    experts._is_expert_parallel = True
    index[1], index[3, 0] = 8, 8
    shares = shares.masked_fill(index == 8, 0)
    x = torch.randn(5, 64).bfloat16()
    expected = experts(x, index, shares)
    kw.patch(model)
    on_cpu.clear()
    result = experts(x, index, shares)
    near(result, expected)
    assert (result[1] == 0).all() and on_cpu == PARTS


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_decode_steps_of_mixtures_are_fused_up_to_the_router(on_cpu, family, batch):
    # Every expert is chosen, since a choice among them may hang on roundoff.
    model, ids = mixture(family, num_experts_per_tok=8), tokens(batch, 9)
    expected, right = decode(model, ids)
    report = kw.patch(model)
    assert all(found.replaced for found in report.rows), str(report)
    on_cpu.clear()
    result, cache = decode(model, ids)
    assert relative(result, expected) < 0.03
    for mine, other in zip(cache.layers, right.layers):
        assert relative(mine.keys, other.keys) < 0.03 and relative(mine.values, other.values) < 0.03
    assert on_cpu.count("append_attention") == 2 * 4 and on_cpu.count("attention") == 2
    assert on_cpu.count("grouped_matmul") == 2 * 2 * 5
    if family != "Qwen2Moe":  # which has a SwiGLU beside its experts
        assert on_cpu[-18:] == ["qkv_linear", "append_attention", "linear", "rms_norm", *PARTS] * 2 + [
            "rms_norm", "linear"]
    report.undo()
    again, _ = decode(model, ids)
    torch.testing.assert_close(again, expected)


@torch.no_grad()
def test_a_patched_mixture_compiles_whole(on_cpu):
    model, ids = mixture("Qwen3Moe", num_experts_per_tok=8), tokens(2, 8)
    expected, _ = decode(model, ids)
    kw.patch(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    on_cpu.clear()
    result, _ = decode(model, ids, step=compiled)
    assert relative(result, expected) < 0.03
    assert on_cpu.count("append_attention") == 2 * 3
    assert on_cpu.count("grouped_matmul") == 2 * 2 * 4


@torch.no_grad()
def test_router_logits_are_given_still(on_cpu):
    model, ids = mixture("Qwen3Moe", num_experts_per_tok=8), tokens(2, 8)
    expected = model(ids, output_router_logits=True)
    kw.patch(model)
    result = model(ids, output_router_logits=True)
    assert len(result.router_logits) == 2
    for mine, right in zip(result.router_logits, expected.router_logits):
        assert relative(mine, right) < 0.03


def test_training_runs_as_before(on_cpu):
    model = mixture("Qwen3Moe").requires_grad_(True)
    experts, (index, shares) = experts_of(model), choices(5, 2)
    x = torch.randn(5, 64).bfloat16()
    expected = torch.autograd.grad(experts(x, index, shares).float().sum(), experts.down_proj)
    kw.patch(model)
    on_cpu.clear()
    result = torch.autograd.grad(experts(x, index, shares).float().sum(), experts.down_proj)
    torch.testing.assert_close(result, expected)
    assert on_cpu == []


def test_a_router_that_is_trained_alone_gets_its_gradient(on_cpu):
    model = mixture("Qwen3Moe").requires_grad_(False)
    experts, (index, shares) = experts_of(model), choices(5, 2)
    x, shares = torch.randn(5, 64).bfloat16(), shares.requires_grad_(True)
    expected = torch.autograd.grad(experts(x, index, shares).float().sum(), shares)
    kw.patch(model)
    on_cpu.clear()
    torch.testing.assert_close(torch.autograd.grad(experts(x, index, shares).float().sum(), shares), expected)
    assert on_cpu == []
    with torch.no_grad():
        experts(x, index, shares)
    assert on_cpu == PARTS


def test_experts_of_gpt_oss_that_were_trained_further_are_multiplied_as_they_lie(on_cpu):
    model, ids = mixture("GptOss"), tokens(1, 6)
    with torch.no_grad():
        expected = model(ids).logits
    report = kw.patch(model)
    found = row(report, "model.layers.0.mlp.experts")
    assert found.replaced and found.reason == (
        "multiplied as they lie (weights are [experts, in, out]; products have biases; gates and what they open are "
        "interleaved): weight of expert 0 has elements that MXFP4 does not hold")
    on_cpu.clear()
    with torch.no_grad():
        near(model(ids).logits, expected)
        assert [name for name in on_cpu if "expert" in name or "grouped" in name] == PARTS * 2
        experts, (index, shares) = experts_of(model), choices(5, 2)
        x = torch.randn(5, 64).bfloat16()
        before = experts(x, index, shares)
        experts.limit = 0.5  # the module's own forward runs, which has it too
        on_cpu.clear()
        assert not torch.equal(experts(x, index, shares), before) and on_cpu == []
    report.undo()
    assert type(experts).__name__ == "GptOssExperts"


class Own(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.down_proj = experts_of(model).down_proj


@pytest.mark.parametrize("change, reason", [
    (lambda e: setattr(e, "act_fn", nn.Tanh()), "neither SiLU nor GELU"),
    (lambda e: setattr(e, "act_fn", None), "has no act_fn"),
    (lambda e: setattr(e, "_apply_gate", lambda both: both.chunk(2, -1)[1] * 2), "does not compute down"),
    (lambda e: setattr(e, "has_gate", False), "no gate"),
    (lambda e: e.float(), "float32, which no kernel takes"),
    (lambda e: setattr(e, "down_proj", nn.Parameter(e.down_proj[..., :16].clone())),
     "which are no gates"),
    (lambda e: setattr(e.down_proj, "data", e.down_proj.data.mT.contiguous().mT), "not contiguous"),
    (lambda e: setattr(e, "forward", lambda *given: given[0]), "another library"),
])
def test_experts_that_are_left(on_cpu, change, reason):
    model = mixture("Qwen3Moe", experts_implementation="grouped_mm")
    change(experts_of(model))
    report = kw.patch(model)
    found = row(report, "model.layers.0.mlp.experts")
    assert not found.replaced and reason in found.reason
    assert "feed-forward layer was left" in row(report, "model.layers.0", "decoder_layer").reason


def test_experts_of_nobody_and_sizes_that_no_kernel_takes(on_cpu):
    odd = mixture("Qwen3Moe", moe_intermediate_size=36)
    assert "8 experts from 64 to 36 columns" in row(kw.patch(odd), "model.layers.0.mlp.experts").reason
    own = Own(mixture("Qwen3Moe"))
    assert "none of Transformers' ExpertsInterface" in row(kw.patch(own), "").reason


def test_experts_on_the_cpu_are_left():
    report = kw.patch(mixture("Qwen3Moe"), ops=("experts",))
    assert "kernels are for GPUs" in row(report, "model.layers.0.mlp.experts").reason
