"""gpt-oss on a GPU, patched and loaded, beside the model in plain PyTorch and in double precision."""

import json

import pytest
import torch

from kernwright import torch as kw

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
transformers = pytest.importorskip("transformers")
save_file = pytest.importorskip("safetensors.torch").save_file

from gpt_oss import double, gpt_oss, named_experts, routed  # noqa: E402
from test_patch import relative, row, tokens  # noqa: E402

# Sizes that fill up no blocks, and those of a layer of gpt-oss-20b with fewer experts. Models choose all experts, since
# a choice of fewer may hang on roundoff.
SIZES = [dict(hidden_size=160, intermediate_size=96, num_local_experts=8, num_experts_per_tok=8),
         dict(hidden_size=2880, intermediate_size=2880, num_local_experts=12, num_experts_per_tok=12, num_hidden_layers=1)]


def on_gpu(sizes):
    model, tensors = gpt_oss(**sizes)
    return model.cuda(), tensors


@pytest.mark.parametrize("sizes", SIZES)
@torch.no_grad()
def test_a_model_before_and_after(sizes):
    model, _ = on_gpu(sizes)
    reference, before = double(model).cuda(), {name: value.clone() for name, value in model.named_parameters()}
    ids = tokens(2, 9).cuda()
    expected, right = model(ids).logits, reference(ids).logits
    report = kw.patch(model)
    assert all(row(report, name).replaced for name, _ in named_experts(model)), str(report)
    held = sum(part.nbytes for _, experts in named_experts(model) for part in experts.buffers())
    assert held < 0.4 * sum(value.nbytes for name, value in before.items() if "experts" in name)
    assert relative(model(ids).logits, right) < 1.3 * relative(expected, right)
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    steps = [model(ids[:, :5], past_key_values=cache).logits[:, -1:]]
    steps += [model(ids[:, i:i + 1], past_key_values=cache).logits for i in range(5, 9)]
    assert relative(torch.cat(steps, 1), right[:, 4:]) < 1.5 * relative(expected[:, 4:], right[:, 4:])
    assert not report.fallbacks
    report.undo()
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name]), name
    torch.testing.assert_close(model(ids).logits, expected)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("count, most", [(1, 4), (7, 2), (64, 4), (300, 4)])
@torch.no_grad()
def test_experts_against_double_precision(sizes, count, most):
    """Half of the rows are so large that gates and what they open are limited."""
    model, _ = on_gpu(sizes)
    experts, reference = named_experts(model)[0][1], named_experts(double(model))[0][1].cuda()
    x, index, shares = (part.cuda() for part in routed(count, most, sizes["hidden_size"], sizes["num_local_experts"]))
    x[::2] *= 20
    right, before = reference(x.double(), index, shares.double()), experts(x, index, shares)
    kw.patch(model, ops=("experts",))
    error, of_theirs = relative(experts(x, index, shares), right), relative(before, right)
    assert error < 1.2 * of_theirs < 0.03, (error, of_theirs)


@torch.no_grad()
def test_a_captured_mixture_follows_its_router():
    """Nothing waits for the GPU, and a replay reads other choices."""
    model, _ = on_gpu(SIZES[0])
    experts = named_experts(model)[0][1]
    kw.patch(model, ops=("experts",))
    x, index, shares = (part.cuda() for part in routed(6, 2, 160))
    for _ in range(2):
        experts(x, index, shares)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = experts(x, index, shares)
    for seed in (7, 8):
        for mine, other in zip((x, index, shares), routed(6, 2, 160, seed=seed)):
            mine.copy_(other)
        graph.replay()
        assert torch.equal(result, experts(x, index, shares))


@torch.no_grad()
def test_compiled_steps():
    model, _ = on_gpu(SIZES[0])
    right, ids = double(model).cuda(), tokens(1, 8).cuda()
    kw.patch(model)
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    assert relative(compiled(ids, use_cache=False).logits, right(ids).logits) < 0.03


@torch.no_grad()
def test_a_checkpoint_is_packed_as_it_is_loaded(tmp_path):
    model, blocks = gpt_oss(**SIZES[0])
    tensors = {name: tensor for name, tensor in model.state_dict().items()
               if not name.endswith(("experts.gate_up_proj", "experts.down_proj"))}
    save_file({**tensors, **blocks}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(
        {**model.config.to_dict(), "architectures": ["GptOssForCausalLM"], "dtype": "bfloat16",
         "quantization_config": {"quant_method": "mxfp4"}}))
    loaded = kw.load_quantized(tmp_path, dtype=torch.bfloat16, device_map="cuda")
    for (_, ours), (_, theirs) in zip(named_experts(loaded), named_experts(model), strict=True):
        for part, product in ((ours.gate_up, "gate_up_proj"), (ours.down, "down_proj")):
            matrices = part.as_it_was(part.dequantize()).mT.cpu()
            assert torch.equal(matrices.view(torch.int16), getattr(theirs, product).view(torch.int16))
    ids = tokens(2, 9).cuda()
    right, dense = double(model).cuda()(ids).logits, model.cuda()(ids).logits
    assert relative(loaded(ids).logits, right) < 1.3 * relative(dense, right)
    kw.patch(loaded)
    assert relative(loaded(ids).logits, right) < 1.3 * relative(dense, right)
