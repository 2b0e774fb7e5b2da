"""Mixtures of experts in the graphs that torch.compile makes of models: which of their parts are our operators, and that
results stay what they were."""

import conftest
import pytest
import torch

pytest.importorskip("torch._inductor.custom_graph_pass")
transformers = pytest.importorskip("transformers")

import graphs  # noqa: E402
from graphs import expect_near  # noqa: E402
from kernwright.torch import _compiled, _mixtures  # noqa: E402
from test_experts import MIXTURES, choices  # noqa: E402
from test_patch import language_model, tokens  # noqa: E402

FAMILIES = {**MIXTURES, "Olmoe": dict(num_experts=8, num_experts_per_tok=2),
            "Glm4Moe": dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=0)}
CHOICE, ORDER, SUM, PRODUCTS = "choose_experts", "order_experts", "combine_experts", ["grouped_matmul"] * 2
ALL = [CHOICE, ORDER, *PRODUCTS, SUM]
# The calls of a layer that are ours, and the ones that PyTorch keeps: GLM's router chooses by a sigmoid.
PARTS = {"Qwen3Moe": (ALL, []), "Qwen2Moe": (ALL, []), "Mixtral": (ALL, []), "Olmoe": (ALL, []),
         "GptOss": (ALL, []), "Glm4Moe": (ALL[1:], ["topk"] * 3)}


@pytest.fixture(autouse=True)
def on_cpu():
    with conftest.standing_in(), graphs.on_cpu(), torch.no_grad():
        yield


def model(family, **changes):
    return language_model(family, **{**FAMILIES[family], **changes})


def compiled(step, *calls, **named):
    """Returns the results, our operators of mixtures in the graphs, and PyTorch's that they replace."""
    left, fuse = [], _compiled.fuse_model

    def watched(graph):
        fuse(graph)
        left.extend(name for name in (str(node.target).partition(".")[2].partition(".")[0] for node in graph.nodes)
                    if name in ("topk", "sort", "histc", "cumsum", "index_put", "index", "_grouped_mm"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compiled, "fuse_model", watched)
        results, _, names = graphs.compiled(step, *calls, all_names=True, **named)
    return results, [name.partition(".")[0] for name in names if "expert" in name or "grouped" in name], left


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("family", PARTS)
def test_a_mixture_is_our_operators(family, generated):
    mlp = model(family).model.layers[0].mlp
    x = torch.randn(2, 7, 64, generator=torch.Generator().manual_seed(8)).bfloat16()
    (found,), *parts = compiled(mlp, (x,), generated=generated)
    assert tuple(parts) == PARTS[family]
    for one, other in zip(*(result if isinstance(result, tuple) else (result,) for result in (found, mlp(x)))):
        expect_near(one, other)


@pytest.mark.parametrize("family", ["Qwen3Moe", "GptOss"])
def test_one_graph_is_for_all_numbers_of_tokens(family):
    mlp = model(family).model.layers[0].mlp
    inputs = [torch.randn(1, count, 64).bfloat16() for count in (5, 9, 30)]
    results, names, left = compiled(mlp, *[(x,) for x in inputs], dynamic=True)
    assert (names, left) == PARTS[family]
    for x, result in zip(inputs, results):
        pairs = (result, mlp(x)) if torch.is_tensor(result) else (result[0], mlp(x)[0])
        expect_near(*pairs)


@pytest.mark.parametrize("family", ["Qwen3Moe", "GptOss"])
def test_all_layers_of_a_model(family):
    # Every expert is chosen, since a choice among them may hang on roundoff.
    whole = model(family, num_experts_per_tok=8)
    whole.set_attn_implementation("eager")

    def step(ids):
        return whole(ids, use_cache=False).logits

    ids = tokens(2, 7)
    (result,), names, left = compiled(step, (ids,))
    ours, others = PARTS[family]
    elsewhere = "cumsum", "index"  # in masks and embeddings too
    assert names == ours * 2
    assert [name for name in left if name not in elsewhere] == [name for name in others if name not in elsewhere] * 2
    expect_near(result, step(ids), 0.04)


def test_an_expert_that_is_elsewhere_gives_nothing():
    """As expert parallelism says it: the number of experts, with a share of 0."""
    experts, (index, shares) = model("Qwen3Moe").model.layers[0].mlp.experts, choices(5, 2)
    experts._is_expert_parallel = True
    index[1], index[3, 0] = 8, 8
    shares = shares.masked_fill(index == 8, 0)
    x = torch.randn(5, 64).bfloat16()
    (found,), names, _ = compiled(experts, (x, index, shares))
    assert SUM in names and ORDER in names and (found[1] == 0).all()
    expect_near(found, experts(x, index, shares))


def by_hand(x, ids, shares, weights, experts=4, bins=None, token=lambda pairs: pairs // 2):
    ordered, pairs = torch.sort(ids.reshape(-1))
    bins = bins or experts
    ends = torch.histc(ordered.float(), bins=bins, min=0, max=bins - 1)[:experts].cumsum(0, dtype=torch.int32)
    rows = torch.nn.functional.grouped_mm(x[token(pairs)], weights.transpose(1, 2), offs=ends)
    rows = rows * shares.reshape(-1)[pairs].unsqueeze(-1)
    place = torch.empty_like(pairs)
    place[pairs] = torch.arange(pairs.numel())
    return rows[place].view(-1, 2, rows.shape[1]).sum(1), pairs


@pytest.mark.parametrize("change, ours", [
    (lambda *given: by_hand(*given)[0], [ORDER, "grouped_matmul", SUM]),
    (lambda *given: by_hand(*given), ["grouped_matmul"]),  # something else reads the order
    (lambda *given: by_hand(*given, bins=5)[0], ["grouped_matmul"]),
    (lambda *given: by_hand(*given, token=lambda pairs: pairs // 3)[0], ["grouped_matmul"]),
    (lambda x, *rest: by_hand(x.float(), rest[0], rest[1].float(), rest[2].float())[0].bfloat16(), []),
    (lambda *given: by_hand(*given[:3], given[3][:, :-8])[0], [ORDER, SUM]),  # groups with gaps between them
    (lambda *given: by_hand(*given[:3], given[3][:, :-4])[0], []),  # rows with gaps between them
])
def test_what_is_known_is_replaced_alone(change, ours):
    generator = torch.Generator().manual_seed(2)
    x, weights = torch.randn(6, 32, generator=generator).bfloat16(), torch.randn(4, 64, 32, generator=generator).bfloat16()
    ids = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(6)])
    given = x, ids, torch.rand(6, 2, generator=generator).bfloat16(), weights
    (found,), names, _ = compiled(change, given)
    assert names == ours
    results, wanted = (each if isinstance(each, tuple) else (each,) for each in (found, change(*given)))
    expect_near(results[0], wanted[0])


def opened(rows, alpha=1.702, least=-7.0, most=7.0, one=1, first=0, halves=False):
    gate, up = rows.chunk(2, -1) if halves else (rows[:, first::2], rows[:, 1 - first::2])
    gate, up = gate.clamp(max=most), up.clamp(min=least, max=7.0)
    return (up + one) * (gate * torch.sigmoid(gate * alpha))


@pytest.mark.parametrize("change, is_ours", [
    (dict(), True), (dict(halves=True), True), (dict(alpha=1.5), True),
    (dict(first=1), False), (dict(least=-5.0), False), (dict(most=5.0), False), (dict(one=2), False)])
def test_gates_that_are_limited(change, is_ours):
    generator = torch.Generator().manual_seed(3)
    x, weights = torch.randn(9, 32, generator=generator).bfloat16(), torch.randn(2, 32, 48, generator=generator).bfloat16()
    ends = torch.tensor([4, 9], dtype=torch.int32)

    def step(x, weights, ends):
        return opened(torch.nn.functional.grouped_mm(x, weights, offs=ends), **change)

    with pytest.MonkeyPatch.context() as patch:
        calls = []
        insert = _mixtures._insert

        def watched(*given, **named):
            calls.append(named)
            return insert(*given, **named)

        patch.setattr(_mixtures, "_insert", watched)
        (found,), names, _ = compiled(step, (x, weights, ends))
    expect_near(found, step(x, weights, ends))
    assert names == ["grouped_matmul"]
    assert calls == [dict(activation="swiglu_oai", gated=True, interleaved="halves" not in change, limit=7.0,
                          gate_alpha=change.get("alpha", 1.702))] if is_ours else calls == [{}]


@pytest.mark.parametrize("of_rows, is_ours", [
    (lambda bias, experts, pairs: bias[experts], True),
    (lambda bias, experts, pairs: bias[experts] * 2, False),
    (lambda bias, experts, pairs: bias[experts.flip(0)], False),
    (lambda bias, experts, pairs: bias[pairs % 4], False),
    (lambda bias, experts, pairs: bias.float()[experts].bfloat16(), False)])
def test_biases_of_experts(of_rows, is_ours):
    generator = torch.Generator().manual_seed(4)
    x, weights = torch.randn(6, 32, generator=generator).bfloat16(), torch.randn(4, 32, 64, generator=generator).bfloat16()
    ids = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(6)])
    shares, bias = torch.rand(6, 2, generator=generator).bfloat16(), torch.randn(4, 64, generator=generator).bfloat16()

    def step(x, ids, shares, weights, bias):
        experts, pairs = torch.sort(ids.reshape(-1))
        ends = torch.histc(experts.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        rows = torch.nn.functional.grouped_mm(x[pairs // 2], weights, offs=ends) + of_rows(bias, experts, pairs)
        rows = rows * shares.reshape(-1)[pairs].unsqueeze(-1)
        place = torch.empty_like(pairs)
        place[pairs] = torch.arange(pairs.numel())
        return rows[place].view(-1, 2, rows.shape[1]).sum(1)

    (found,), names, left = compiled(step, (x, ids, shares, weights, bias))
    expect_near(found, step(x, ids, shares, weights, bias))
    assert "grouped_matmul" in names and ("index" not in left) == is_ours


def softmax_behind(logits, **named):
    values, ids = logits.topk(2, **named)
    return values.softmax(-1), ids


def shares(logits):
    values, ids = logits.float().softmax(-1).topk(2)
    return values / values.sum(-1, keepdim=True), ids


@pytest.mark.parametrize("router, ours", [
    (softmax_behind, [CHOICE]), (shares, [CHOICE]),
    (lambda logits: logits.float().softmax(-1).topk(2), [CHOICE]),
    (lambda logits: softmax_behind(logits.float()), [CHOICE]),
    (lambda logits: softmax_behind(logits, largest=False), []),
    (lambda logits: softmax_behind(logits, dim=0), []),
    (lambda logits: logits.float().softmax(0).topk(2), []),
    (lambda logits: (logits.topk(2).values.softmax(0), logits.topk(2).indices), []),
    (lambda logits: logits.topk(2), []),
    (lambda logits: logits.sigmoid().topk(2), [])])
@pytest.mark.parametrize("columns", [8, 1032])
def test_routers(router, ours, columns):
    logits = torch.stack([torch.randperm(columns, generator=torch.Generator().manual_seed(row)) for row in range(5)])
    logits = (logits / 4).bfloat16() if columns == 8 else logits.float()
    (found,), names, _ = compiled(router, (logits,))
    assert names == (ours if columns == 8 else [])  # no kernel takes so many experts
    weights, ids = router(logits)
    assert found[1].dtype is torch.int64 and torch.equal(found[1], ids)
    torch.testing.assert_close(found[0], weights, rtol=0.01, atol=1e-5)


def test_a_layer_that_is_trained_is_left():
    with torch.enable_grad():
        mlp = model("Qwen3Moe").model.layers[0].mlp.requires_grad_(True)
        _, names, _ = compiled(mlp, (torch.randn(1, 7, 64).bfloat16(),))
    assert names == []
