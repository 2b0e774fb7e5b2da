"""What only a GPU shows of a patched model that is changed: captured graphs read its weights, kernels
meet odd addresses, and a step beyond a static cache fails."""

import pathlib
import subprocess
import sys

import pytest
import torch
from torch import nn

from kernwright import torch as kw

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
transformers = pytest.importorskip("transformers")

from test_patch import language_model, relative, tokens  # noqa: E402


def both(family="Llama"):
    patched, unpatched = language_model(family).cuda(), language_model(family).cuda()
    return patched, unpatched, kw.patch(patched)


def filled_cache(model, ids):
    cache = transformers.StaticCache(config=model.config, max_cache_len=24)
    model(ids, past_key_values=cache)
    return cache


def decoded(model, ids):
    """Logits of the last token behind the others, in a cache of its own."""
    return model(ids[:, -1:], past_key_values=filled_cache(model, ids[:, :-1])).logits


@torch.no_grad()
def test_weights_lie_together_and_a_step_is_fused():
    patched, unpatched, report = both()
    assert not report.left
    attention = patched.model.layers[0].self_attn
    parts = [part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    for first, second in zip(parts, parts[1:]):
        assert second.data_ptr() == first.data_ptr() + first.nbytes
    ids = tokens(2, 6).cuda()
    assert relative(decoded(patched, ids), decoded(unpatched, ids)) < 0.03
    assert not report.fallbacks


@pytest.mark.parametrize("change", [
    lambda m: m.model.layers[0].self_attn.v_proj.weight.mul_(2),
    lambda m: m.model.layers[1].mlp.up_proj.weight.data.mul_(2),
    lambda m: m.model.layers[0].input_layernorm.weight.mul_(1.5),
    lambda m: m.model.rotary_emb.inv_freq.data.mul_(0.5),
])
@torch.no_grad()
def test_changes_in_place_after_a_capture(change):
    patched, unpatched, _ = both()
    ids = tokens(1, 6).cuda()
    cache = filled_cache(patched, ids[:, :5])
    new = ids[:, 5:].clone()
    lengths = [layer.cumulative_length.clone() for layer in cache.layers]

    def back():
        for layer, length in zip(cache.layers, lengths):
            layer.cumulative_length.copy_(length)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            patched(new, past_key_values=cache)
            back()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = patched(new, past_key_values=cache).logits
    back()
    change(patched)
    change(unpatched)
    # Keys and values of the prompt as the changed model has them.
    for mine, right in zip(cache.layers, filled_cache(unpatched, ids[:, :5]).layers):
        mine.keys.copy_(right.keys)
        mine.values.copy_(right.values)
    back()
    graph.replay()
    assert relative(logits, decoded(unpatched, ids)) < 0.03


@torch.no_grad()
def test_weights_at_odd_addresses():
    patched, unpatched, _ = both()
    part = patched.model.layers[0].self_attn.k_proj
    room = torch.empty(part.weight.numel() + 1, dtype=torch.bfloat16, device="cuda")
    moved = room[1:].view(part.weight.shape).copy_(part.weight)
    part.weight = nn.Parameter(moved, requires_grad=False)
    ids = tokens(2, 6).cuda()
    assert relative(patched(ids).logits, unpatched(ids).logits) < 0.03
    assert relative(decoded(patched, ids), decoded(unpatched, ids)) < 0.03


@torch.no_grad()
def test_full_precision_runs_as_before():
    patched, unpatched, _ = both()
    ids = tokens(2, 6).cuda()
    assert relative(patched.float()(ids).logits, unpatched.float()(ids).logits) < 1e-3


@torch.no_grad()
def test_reduce_overhead_reads_weights_that_were_replaced():
    patched, unpatched, _ = both()
    compiled = torch.compile(patched, mode="reduce-overhead", dynamic=False)
    ids = tokens(1, 8).cuda()
    for _ in range(3):
        compiled(ids, use_cache=False)
    for model in (patched, unpatched):
        model.model.layers[0].self_attn.v_proj.weight.mul_(2)
        model.model.layers[1].mlp.up_proj.weight = nn.Parameter(
            model.model.layers[1].mlp.gate_proj.weight.clone(), requires_grad=False)
    for _ in range(3):
        logits = compiled(ids, use_cache=False).logits.clone()
    assert relative(logits, unpatched(ids, use_cache=False).logits) < 0.03


BEYOND = """
import torch, transformers
from kernwright import torch as kw
from test_patch import language_model, tokens
model = language_model("Llama").cuda()
kw.patch(model)
cache = transformers.StaticCache(config=model.config, max_cache_len=8)
ids = tokens(1, 12).cuda()
with torch.no_grad():
    model(ids[:, :8], past_key_values=cache)
    model(ids[:, 8:9], past_key_values=cache)
    torch.cuda.synchronize()
print("went on")
"""


def test_a_step_beyond_a_static_cache_fails():
    ended = subprocess.run([sys.executable, "-c", BEYOND], capture_output=True, text=True,
                           timeout=600, cwd=pathlib.Path(__file__).parent)
    assert ended.returncode != 0 and "went on" not in ended.stdout
    assert "index" in ended.stderr.lower() or "assert" in ended.stderr.lower()
