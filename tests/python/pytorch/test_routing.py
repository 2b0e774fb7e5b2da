"""The routing of mixtures of experts as operators: what they compute on a CPU, against loops over experts and the
routers of transformers, and what torch.compile sees of them."""

import kernwright
import pytest
import torch

import kernwright.torch as kt

SCORES = {"softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid, "none": lambda x: x,
          "sqrt_softplus": lambda x: (1 + x.exp()).log().sqrt()}


def chosen_one_by_one(logits, bias, *, top, score="softmax", softmax_at="before", groups=1, kept=1, group_score="two_best",
                      renormalise="none", factor=1.0):
    """The choice for one token, as it is explained."""
    scores = logits.double() if softmax_at == "after" else SCORES[score](logits.double())
    keys = (scores if bias is None else scores + bias.double()).tolist()
    size = len(keys) // groups
    of_groups = [sum(sorted(keys[g * size:(g + 1) * size], reverse=True)[:2 if group_score == "two_best" else 1])
                 for g in range(groups)]
    left = sorted(range(groups), key=lambda g: -of_groups[g])[:kept]
    ids = sorted((e for e in range(len(keys)) if e // size in left), key=lambda e: -keys[e])[:top]
    weights = scores[ids]
    if softmax_at == "after":
        weights = weights.softmax(0)
    if renormalise == "sum":
        weights = weights / weights.sum()
    return ids, factor * weights


CHOICES = [
    dict(top=2), dict(top=8, renormalise="sum"), dict(top=4, softmax_at="after"), dict(top=4, softmax_at="after", biased=True),
    dict(top=6, score="sigmoid", biased=True, renormalise="sum", factor=2.5), dict(top=3, score="sqrt_softplus", biased=True),
    dict(top=5, score="none"), dict(top=8, score="sigmoid", biased=True, renormalise="sum", groups=8, kept=3),
    dict(top=6, groups=6, kept=2, group_score="best", factor=16.0), dict(top=4, groups=4, kept=2, score="sigmoid"),
]


@pytest.mark.parametrize("named", CHOICES, ids=str)
@torch.no_grad()
def test_choices_are_those_of_a_loop(named):
    named = dict(named)
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 7, 48, generator=generator)
    bias = torch.randn(48, generator=generator) / 8 if named.pop("biased", False) else None
    asked = {"groups": "expert_groups", "kept": "kept_groups"}
    ids, weights = kt.choose_experts(logits, bias=bias, **{asked.get(name, name): value for name, value in named.items()})
    assert ids.dtype is torch.int32 and weights.dtype is torch.float32 and ids.shape == weights.shape == (3, 7, named["top"])
    for row, own, shares in zip(logits.flatten(0, 1), ids.flatten(0, 1), weights.flatten(0, 1)):
        right, expected = chosen_one_by_one(row, bias, **named)
        assert own.tolist() == right
        torch.testing.assert_close(shares.double(), expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_ties_nan_padding_and_masked_experts():
    logits = torch.tensor([[1.0, 2, 2, 2, -torch.inf, -torch.inf], [0.0, -0.0, -1, -1, -2, -2],
                           [1.0, torch.nan, 3, torch.nan, 2, 0], [9.0, 9, 9, 9, 9, 9]])
    ids, weights = kt.choose_experts(logits, top=4, real=torch.tensor([3], dtype=torch.int32), score="sigmoid")
    assert ids.tolist() == [[1, 2, 3, 0], [0, 1, 2, 3], [1, 3, 2, 4], [-1] * 4]
    assert weights[2].isnan().tolist() == [True, True, False, False] and weights[3].tolist() == [0] * 4
    ids, _ = kt.choose_experts(logits[:1], top=3, expert_groups=2, kept_groups=1, group_score="best")
    assert ids.tolist() == [[1, 2, 0]], "of equal groups the first"
    ids, _ = kt.choose_experts(-logits[:1], top=3, expert_groups=2, kept_groups=1, group_score="best")
    assert ids.tolist() == [[4, 5, 3]]
    ids, _ = kt.choose_experts(torch.full((1, 6), -torch.inf).index_fill(1, torch.tensor([4]), 0), top=3, expert_groups=2,
                               kept_groups=1, group_score="best")
    assert ids.tolist() == [[4, 3, 5]], "no expert of a group that is left out, also of equal ones"
    assert kt.choose_experts(logits, top=2, factor=0.0)[1].tolist() == [[0, 0]] * 4


def test_routers_of_transformers_choose_the_same():
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt_oss import modeling_gpt_oss
    from transformers.models.qwen3_moe import modeling_qwen3_moe
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(40, 64, generator=generator)
    routers = [
        (modeling_qwen3_moe.Qwen3MoeTopKRouter, transformers.Qwen3MoeConfig(
            hidden_size=64, num_experts=24, num_experts_per_tok=4, norm_topk_prob=True), dict(renormalise="sum")),
        (modeling_gpt_oss.GptOssTopKRouter, transformers.GptOssConfig(
            hidden_size=64, num_local_experts=24, num_experts_per_tok=4), dict(softmax_at="after")),
    ]
    for kind, config, named in routers:
        router = kind(config).requires_grad_(False)
        for parameter in router.parameters():
            parameter.normal_(generator=generator)
        _, shares, index = router(x)
        logits = torch.nn.functional.linear(x, router.weight, getattr(router, "bias", None))
        ids, weights = kt.choose_experts(logits, top=4, **named)
        order = index.argsort(-1), ids.argsort(-1)
        assert torch.equal(index.gather(1, order[0]), ids.long().gather(1, order[1]))
        torch.testing.assert_close(weights.gather(1, order[1]), shares.float().gather(1, order[0]))


@pytest.mark.parametrize("experts, first", [(5, 0), (3, 2), (8, 0)])
@torch.no_grad()
def test_orders_are_stable_and_sums_undo_them(experts, first):
    generator = torch.Generator().manual_seed(experts)
    ids = torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(12)]).int().view(4, 3, 3)
    ids[1, 0, 2] = -1
    ends, row_of, place = kt.order_experts(ids, experts, first=first)
    assert {each.dtype for each in (ends, row_of, place)} == {torch.int32} and place.shape == ids.shape
    expected = []
    for expert in range(first, first + experts):
        expected += [pair for pair in range(36) if ids.flatten()[pair] == expert]
        assert ends[expert - first] == len(expected)
    last = [pair for pair in range(36) if pair not in expected]
    assert row_of.tolist() == [pair // 3 for pair in expected + last]
    assert place.flatten()[expected].tolist() == list(range(len(expected))) and (place.flatten()[last] == -1).all()

    y = torch.full((36, 10), torch.nan)
    y[:len(expected)] = torch.randn(len(expected), 10, generator=generator)
    weights = torch.rand(4, 3, 3, generator=generator).masked_fill(place < 0, torch.nan)
    shared, residual = torch.randn(2, 4, 3, 10, generator=generator)
    for given in (None, weights):
        result = kt.combine_experts(y, place, given, shared=shared, residual=residual)
        sums = shared + residual
        for pair in expected:
            scale = 1 if given is None else given.flatten()[pair]
            sums.view(12, 10)[pair // 3] += scale * y[place.flatten()[pair]]
        torch.testing.assert_close(result, sums)


@torch.no_grad()
def test_compiled_ones_are_the_same(on_cpu):
    def route(logits, y):
        ids, weights = kt.choose_experts(logits, top=3, score="sigmoid", renormalise="sum")
        ends, row_of, place = kt.order_experts(ids, 8)
        return ends, row_of, kt.combine_experts(y, place, weights)

    compiled = torch.compile(route, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in (2, 5):
        logits, y = torch.randn(tokens, 8), torch.randn(3 * tokens, 16).bfloat16()
        expected = route(logits, y)
        on_cpu.clear()
        for mine, right in zip(compiled(logits, y), expected):
            assert torch.equal(mine, right)
        assert on_cpu == ["choose_experts", "order_experts", "combine_experts"]


def test_they_have_no_backward_and_refuse_what_does_not_fit(on_cpu):
    logits = torch.randn(2, 8, requires_grad=True)
    with pytest.raises(kernwright.Error, match="choose_experts has no backward"):
        kt.choose_experts(logits, top=2)
    y, place = torch.randn(6, 16), torch.zeros(2, 3, dtype=torch.int32)
    with pytest.raises(kernwright.Error, match="combine_experts has no backward"):
        kt.combine_experts(y.requires_grad_(), place)
    opcheck = torch.library.opcheck
    of = torch.ops.kernwright
    opcheck(of.choose_experts.default, (logits.detach(), torch.randn(8)), {"top": 2, "score": "sigmoid"})
    opcheck(of.order_experts.default, (place,), {"experts": 4})
    opcheck(of.combine_experts.default, (y.detach(), place, torch.rand(2, 3)))
