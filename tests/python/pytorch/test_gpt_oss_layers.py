"""Layers of gpt-oss, whose attention has sinks and in every other layer a window, fused around their mixtures."""

import copy

import pytest
import torch

from kernwright import torch as kw

transformers = pytest.importorskip("transformers")

from gpt_oss import gpt_oss  # noqa: E402
from kernwright._arrays import make_error  # noqa: E402
from kernwright.torch import _decoder as decoder  # noqa: E402
from test_patch import near, row, tokens  # noqa: E402

WINDOW = 8
MIXTURE = ["order_experts", "quantized_grouped_matmul", "quantized_grouped_matmul", "combine_experts"]
LAYER = ["qkv_linear", "append_attention", "linear", "rms_norm", *MIXTURE]


def patched(attention="eager", **named):
    model, _ = gpt_oss(sliding_window=WINDOW)
    expected = copy.deepcopy(model)
    model.set_attn_implementation(attention)
    return model, expected, kw.patch(model, **named)


def cache_of(model, places=24):
    cache = transformers.StaticCache(config=model.config, max_cache_len=places)
    cache.early_initialization(batch_size=2, num_heads=2, head_dim=16, dtype=torch.bfloat16, device="cpu")
    return cache


def walk(model, cache, ids, ends, call=None, **named):
    """Logits of calls that end at these tokens."""
    return [(call or model)(ids[:, begin:end], past_key_values=cache, **named).logits
            for begin, end in zip((0, *ends), ends)]


def expect_alike(cache, other):
    """The same tokens at the same places, so that either model can go on with it."""
    for mine, theirs in zip(cache.layers, other.layers, strict=True):
        near(mine.keys, theirs.keys)
        near(mine.values, theirs.values)
        assert mine.get_seq_length() == theirs.get_seq_length()


# Before the window is full, as it becomes full, and long after; the prompt alone may fill it.
@pytest.mark.parametrize("prompt", [3, WINDOW - 1, WINDOW, WINDOW + 3])
@torch.no_grad()
def test_decode_steps_have_a_kernel_for_each_part(on_cpu, prompt):
    model, expected, report = patched()
    assert all(row(report, f"model.layers.{i}", "decoder_layer").replaced for i in (0, 1)), str(report)
    assert row(report, "model", "decoder_layer").replaced, str(report)
    cache, other, ids = cache_of(model), cache_of(expected), tokens(2, 20)
    ends = (prompt, *range(prompt + 1, 21))
    for mine, right in zip(walk(model, cache, ids, ends), walk(expected, other, ids, ends)):
        near(mine, right)
    expect_alike(cache, other)
    assert not report.fallbacks
    on_cpu.clear()
    more = tokens(2, 1)
    step = model(more, past_key_values=cache).logits
    assert on_cpu == [*LAYER * 2, "rms_norm", "linear"]
    near(step, expected(more, past_key_values=other).logits)
    report.undo()  # whose own forward goes on
    near(model(more, past_key_values=cache).logits, expected(more, past_key_values=other).logits)


@pytest.mark.parametrize("cached", ["static", "growing", "none"])
@pytest.mark.parametrize("prompt", [5, WINDOW, 15])
@torch.no_grad()
def test_prompts_with_our_attention(on_cpu, cached, prompt):
    kw.use_in_transformers()
    model, expected, report = patched("kernwright")
    ids = tokens(2, 18)
    caches = [{"static": cache_of, "none": lambda _: None,
               "growing": lambda made: transformers.DynamicCache(config=made.config)}[cached](made)
              for made in (model, expected)]
    on_cpu.clear()
    mine, right = (made(ids[:, :prompt], past_key_values=cache, use_cache=cache is not None).logits
                   for made, cache in zip((model, expected), caches))
    near(mine, right)
    assert on_cpu.count("qkv_linear") == on_cpu.count("rope") == on_cpu.count("attention") == 2
    assert not report.fallbacks
    if cached != "none":
        for begin in range(prompt, 18):
            mine, right = (made(ids[:, begin:begin + 1], past_key_values=cache).logits
                           for made, cache in zip((model, expected), caches))
            near(mine, right)


@pytest.mark.parametrize("padding", [0, 3])
@torch.no_grad()
def test_masks_as_generate_prepares_them(on_cpu, padding):
    """Steps are fused if nothing is padded, and right if something is."""
    model, expected, report = patched()
    ids, mask = tokens(2, 7), torch.ones(2, 7, dtype=torch.int64)
    mask[0, :padding] = 0
    named = dict(max_new_tokens=9, do_sample=False, attention_mask=mask, cache_implementation="static",
                 disable_compile=True, output_logits=True, return_dict_in_generate=True, pad_token_id=0, eos_token_id=-1)
    on_cpu.clear()
    mine = model.generate(ids, **named)
    assert on_cpu.count("append_attention") == (0 if padding else 16), on_cpu
    theirs = expected.generate(mine.sequences[:, :7], **named)
    assert torch.equal(mine.sequences[:, :8], theirs.sequences[:, :8])
    near(mine.logits[0], theirs.logits[0])


@pytest.mark.parametrize("at", [0, 1])
@torch.no_grad()
def test_a_refused_step_leaves_full_windows_as_they_were(on_cpu, monkeypatch, at):
    model, expected, report = patched()
    cache, other, ids = cache_of(model), cache_of(expected), tokens(2, 14)
    for made, own in ((model, cache), (expected, other)):
        walk(made, own, ids, (10, 11, 12))
    append, calls = decoder.kw.append_attention, []

    def refused(*given, **named):
        calls.append(None)
        if len(calls) == at + 1:
            error = make_error("no kernel for this")
            error.is_refusal = True
            raise error
        return append(*given, **named)

    monkeypatch.setattr(decoder.kw, "append_attention", refused)
    near(model(ids[:, 12:13], past_key_values=cache).logits, expected(ids[:, 12:13], past_key_values=other).logits)
    assert len(calls) == at + 1 and any("no kernel for this" in reason for _, reason in report.fallbacks)
    expect_alike(cache, other)


@torch.no_grad()
def test_steps_wait_for_the_gpu_once_alone(on_cpu, monkeypatch):
    """Later ones know that nobody else changed the lengths."""
    model, _, _ = patched()
    cache, ids, waits = cache_of(model), tokens(2, 20), []
    walk(model, cache, ids, (9,))
    as_int = torch.Tensor.__int__
    monkeypatch.setattr(torch.Tensor, "__int__", lambda tensor: waits.append(None) or as_int(tensor))
    model(ids[:, 9:10], past_key_values=cache)
    assert waits
    waits.clear()
    walk(model, cache, ids[:, 10:], range(1, 5))
    assert not waits


@torch.no_grad()
def test_layers_at_other_places_are_not_fused(on_cpu):
    model, expected, _ = patched()
    caches, ids = (cache_of(model), cache_of(expected)), tokens(2, 14)
    for made, cache in zip((model, expected), caches):
        walk(made, cache, ids, (10, 11))
        cache.layers[1].cumulative_length.sub_(3)
    on_cpu.clear()
    near(*(made(ids[:, 11:12], past_key_values=cache).logits for made, cache in zip((model, expected), caches)))
    assert "append_attention" not in on_cpu


@pytest.mark.parametrize("begin", [4, WINDOW - 1, WINDOW + 2])
@torch.no_grad()
def test_compiled_steps(on_cpu, begin):
    model, expected, _ = patched(unpadded=True)
    caches, ids = (cache_of(model), cache_of(expected)), tokens(2, 14)
    for made, cache in zip((model, expected), caches):
        walk(made, cache, ids, (begin,))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    on_cpu.clear()
    for at in range(begin, begin + 3):
        near(compiled(ids[:, at:at + 1], past_key_values=caches[0]).logits,
             expected(ids[:, at:at + 1], past_key_values=caches[1]).logits)
    assert on_cpu.count("append_attention") == 6
    expect_alike(*caches)


@pytest.mark.parametrize("change, reason", [
    (lambda model: setattr(model.model.layers[0].self_attn, "sliding_window", 5),
     "its attention has a window of 5, and masks are those of sliding_attention"),
    (lambda model: setattr(model.model.layers[0].self_attn, "sinks", torch.nn.Parameter(torch.zeros(3))),
     "its attention has no sink for each of 4 heads"),
    (lambda model: setattr(model.model.layers[0].mlp, "experts", None), "its feed-forward layer was left")])
@torch.no_grad()
def test_layers_that_are_left(on_cpu, change, reason):
    model, _ = gpt_oss(sliding_window=WINDOW)
    change(model)
    report = kw.patch(model)
    assert reason in row(report, "model.layers.0", "decoder_layer").reason
    assert not row(report, "model", "decoder_layer").replaced


@torch.no_grad()
def test_a_model_whose_layers_all_have_a_window_keeps_its_own_steps(on_cpu):
    model, _ = gpt_oss(sliding_window=WINDOW, layer_types=["sliding_attention"] * 2)
    report = kw.patch(model)
    assert "all of its layers have a window" in row(report, "model", "decoder_layer").reason
