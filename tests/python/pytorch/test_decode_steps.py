"""Attention in the graphs that torch.compile makes of models: in decode steps rotation, append and attention are one
operator, and in prompts the rotation of q and k is one."""

import conftest
import pytest
import torch

pytest.importorskip("torch._inductor.custom_graph_pass")
transformers = pytest.importorskip("transformers")

import graphs  # noqa: E402
from graphs import expect_near  # noqa: E402
from kernwright import torch as kw  # noqa: E402
from kernwright.torch import _compiled  # noqa: E402
from kernwright.torch import transformers as ours  # noqa: E402
from test_transformers import growing, make, tokens  # noqa: E402

TOKENS, STEPS, LONGEST = 7, 3, 16


@pytest.fixture(autouse=True)
def on_cpu():
    with conftest.standing_in(), graphs.on_cpu(), torch.no_grad():
        kw.use_in_transformers()
        yield


def static(model, longest=LONGEST):
    return transformers.StaticCache(config=model.config, max_cache_len=longest)


def decode(model, cache_of=static, generated=None, steps=STEPS, **named):
    """Returns the logits of decode steps behind a prompt, their cache, and the operators in their graphs, if they are
    compiled: with kernels of Inductor or, if not `generated`, of PyTorch."""
    cache = cache_of(model)
    model(tokens(2, TOKENS), past_key_values=cache, use_cache=True)

    def step(ids, **named):
        return model(ids, past_key_values=cache, use_cache=True, **named).logits

    def logits(step):
        return torch.cat([step(tokens(2, TOKENS + 1 + i)[:, -1:], **named) for i in range(steps)], 1)

    if generated is None:
        return logits(step), cache, []
    with graphs.passes(generated) as (_, names):
        return logits(torch.compile(step, fullgraph=True)), cache, names


def expect_appended(model, names, generated=False, **named):
    """Expects of the operators of a layer that these read the cache, and the results of the model as it is."""
    model.set_attn_implementation("kernwright")
    wanted, own, _ = decode(model, **named)
    found, cache, operators = decode(model, generated=generated, **named)
    expect_near(found, wanted, 0.04)
    for one, other in zip(cache.layers, own.layers):
        expect_near(one.keys, other.keys)
        expect_near(one.values, other.values)
        assert torch.equal(torch.as_tensor(one.get_seq_length()), torch.as_tensor(other.get_seq_length()))
    readers = [name for name in operators if "attention" in name or "rope" in name]
    assert readers and readers == names * (len(readers) // len(names))


# Windows are longer than the sequences, and some end within the cache.
MODELS = {"Llama": {}, "Qwen3": {}, "Phi3": {}, "Olmo2": {}, "Glm4": {}, "GptOss": {"sliding_window": 14},
          "Gemma3Text": {"sliding_window": 14}, "Gemma2": {"sliding_window": 14}, "Mistral": {"sliding_window": 64}}


def test_parts_of_one_product_are_read_as_they_are_written(monkeypatch):
    model, clones = make("Phi3"), []
    append = _compiled._append_in_attention

    def watched(graph):
        before = set(graph.nodes)
        append(graph)
        clones.extend(node for node in graph.nodes if node not in before and "clone" in str(node.target))

    monkeypatch.setattr(_compiled, "_append_in_attention", watched)
    expect_appended(model, ["append_attention"] * 2, steps=1)
    assert not clones


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_one_operator_rotates_appends_and_attends(name, packed):
    model = make(name, num_hidden_layers=2, **MODELS[name])
    if packed:
        kw.pack(model)
    expect_appended(model, ["append_attention"] * 2, generated=packed and name in ("Glm4", "Qwen3"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cache_of", [growing, static])
def test_one_operator_rotates_a_prompt(name, cache_of):
    model = make(name, num_hidden_layers=2, **MODELS[name])
    model.set_attn_implementation("kernwright")
    kw.pack(model)

    def prompt(ids):
        cache = cache_of(model)
        if cache_of is static:
            cache.early_initialization(2, 2, 16, torch.bfloat16, "cpu")
        return model(ids, past_key_values=cache, use_cache=True).logits, *(
            part for layer in cache.layers for part in (layer.keys, layer.values))

    wanted = prompt(tokens(2, 7))
    (found,), _, names = graphs.compiled(prompt, (tokens(2, 7),), all_names=True, generated=name in ("Glm4", "Qwen3"))
    turning = "norm_rope" if name == "Qwen3" else "rope"
    assert [each for each in names if "rope" in each or "attention" in each] == [turning, "attention"] * 2
    for one, other in zip(found, wanted):
        expect_near(one, other, 0.04)


def test_what_reads_rotated_keys_too_is_behind_them():
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 5, heads, 32, generator=draw).bfloat16() for heads in (4, 2, 2))
    angles = torch.rand(1, 5, 16, generator=draw)

    def step(q, k, v, angles):
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos()[:, None].bfloat16(), angles.sin()[:, None].bfloat16()
        k = halves(k.transpose(1, 2), cos, sin)
        largest = k.float().amax()
        q = halves(q.transpose(1, 2), cos, sin)
        return kw.attention(q, k, v.transpose(1, 2), causal=True).transpose(1, 2).contiguous() * largest, q + 1

    (found,), _, names = graphs.compiled(step, (q, k, v, angles), all_names=True)
    assert names == ["rope", "attention"]
    for one, other in zip(found, step(q, k, v, angles)):
        expect_near(one, other)


def test_steps_with_another_cache_are_rotated():
    expect_appended(make("Llama"), ["rope", "attention"] * 2, cache_of=growing)


def test_rotations_that_no_kernel_has_are_left():
    model = make("Phi3", partial_rotary_factor=0.5)  # halves of a part
    expect_appended(model, ["attention"] * 2)
    model = make("Llama")
    expect_appended(model, ["attention"] * 2, position_ids=torch.tensor([[3], [7]]))  # each sequence has its own


def test_a_cache_that_something_else_reads_is_left():
    model = make("Llama")
    model.set_attn_implementation("kernwright")
    cache = static(model)
    model(tokens(2, TOKENS), past_key_values=cache, use_cache=True)

    def step(ids):
        logits = model(ids, past_key_values=cache, use_cache=True).logits
        return logits, cache.layers[1].values.sum((0, 1, 3))

    with graphs.passes() as (_, names):
        _, sums = torch.compile(step, fullgraph=True)(tokens(2, 1))
    assert [name for name in names if "attention" in name or "rope" in name] == ["append_attention", "rope", "attention"]
    expect_near(sums, cache.layers[1].values.sum((0, 1, 3)))


@pytest.mark.parametrize("generated", [False, True])
def test_counters_that_disagree_are_an_error_of_the_call(generated):
    model = make("Llama")
    model.set_attn_implementation("kernwright")
    cache = static(model)
    model(tokens(2, TOKENS), past_key_values=cache, use_cache=True)
    with graphs.passes(generated):
        step = torch.compile(lambda ids: model(ids, past_key_values=cache, use_cache=True).logits, fullgraph=True)
        step(tokens(2, 1))
        cache.layers[1].cumulative_length.add_(1)
        before = [layer.keys.clone() for layer in cache.layers]
        with pytest.raises(RuntimeError, match="count different numbers of tokens in their caches, or more than 16"):
            step(tokens(2, 1))
        cache.layers[1].cumulative_length.sub_(1)
        assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before))


def test_a_full_cache_is_an_error_of_the_call():
    model = make("Llama")
    model.set_attn_implementation("kernwright")
    with pytest.raises(RuntimeError, match="or more than 9"):
        decode(model, lambda model: static(model, 9), generated=False)


def attend(rotate, repeat=True):
    """A step of one layer by itself, whose rotation is given."""
    def step(q, k, v, keys, values, counter, angles):
        angles = torch.cat((angles, angles), -1) if repeat else angles
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        place = torch.arange(1) + counter
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)
        lengths = ours._lengths(counter + 1, 2)
        return kw.attention(q, keys, values, causal=True, kv_lengths=lengths)

    return step


def halves(x, cos, sin):
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((-other, one), -1) * sin


def backwards(x, cos, sin):
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((other, -one), -1) * sin


def twice(x, cos, sin):
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((-other, one), -1) * cos


@pytest.mark.parametrize("rotate, repeat, name", [
    (halves, True, "append_attention"), (halves, False, "attention"), (backwards, True, "attention"),
    (lambda x, cos, sin: halves(x, sin, cos), True, "append_attention"), (twice, True, "append_attention"),
    (lambda x, cos, sin: halves(x * 2, cos, sin), True, "append_attention"),
    (lambda x, cos, sin: halves(x, cos * cos.flip(-1), sin), True, "attention"),
    (lambda x, cos, sin: x * cos, True, "attention")])
def test_rotations_are_known_by_what_they_compute(rotate, repeat, name):
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 1, heads, 32, generator=draw).bfloat16().transpose(1, 2) for heads in (4, 2, 2))
    caches = [torch.randn(2, 2, 9, 32, generator=draw).bfloat16() for _ in range(4)]
    caches[2:] = [cache.clone() for cache in caches[:2]]
    angles = torch.rand(1, 1, 16 if repeat else 32, generator=draw).bfloat16()
    step = attend(rotate, repeat)
    wanted = step(q, k, v, *caches[:2], torch.tensor(4), angles)
    (found,), _, names = graphs.compiled(step, (q, k, v, *caches[2:], torch.tensor(4), angles), all_names=True)
    assert [each for each in names if "attention" in each] == [name] and "rope" not in names
    expect_near(found, wanted)
    for one, other in zip(caches[2:], caches[:2]):
        expect_near(one, other)
