"""kernwright's attention as an implementation of Transformers."""

import logging

import pytest
import torch

transformers = pytest.importorskip("transformers")

from kernwright import torch as kw  # noqa: E402
from kernwright.torch import _modules as modules  # noqa: E402
from kernwright.torch import transformers as ours  # noqa: E402

WINDOW = 4
SIZES = dict(vocab_size=40, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64, pad_token_id=0, attention_dropout=0.0)
OWN = {
    "Llama": {}, "Mistral": {"sliding_window": WINDOW}, "Qwen3": {}, "Phi3": {"head_dim": None}, "Glm4": {},
    "Olmo2": {"head_dim": None}, "Gemma2": {"sliding_window": WINDOW, "query_pre_attn_scalar": 16},
    "Gemma3Text": {"sliding_window": WINDOW}, "GptOss": {"sliding_window": WINDOW, "num_local_experts": 2,
                                                         "num_experts_per_tok": 1}}


def make(name, **more):
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**{key: value for key, value in {**SIZES, **OWN[name],
                                                                                     **more}.items()
                                                       if value is not None})
    model = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)
    return model.to(torch.bfloat16).eval()


def both(model, call, tolerance=0.03):
    """The results of a call with kernwright's attention and with eager attention."""
    kw.use_in_transformers()
    model.set_attn_implementation("kernwright")
    with torch.no_grad():
        result = call(model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = call(model)
    error = (result - expected).double().norm() / expected.double().norm()
    assert error < tolerance, f"a relative error of {error}"


def tokens(*shape):
    return torch.randint(1, 40, shape, generator=torch.Generator().manual_seed(2))


def steps(cache_of, **first):
    """Logits of a prefill, of a second part of it, and of two decode steps."""
    def call(model):
        cache = cache_of(model)
        logits, ids, mask = [], tokens(2, 12), first.get("attention_mask")
        for begin, end in ((0, 7), (7, 10), (10, 11), (11, 12)):
            named = {} if mask is None else {"attention_mask": mask[:, :end]}
            logits.append(model(ids[:, begin:end], past_key_values=cache, use_cache=True, **named).logits)
        return torch.cat(logits, 1)
    return call


def growing(model):
    return transformers.DynamicCache(config=model.config)


def static(model):
    return transformers.StaticCache(config=model.config, max_cache_len=16)


@pytest.mark.parametrize("cache_of", [growing, static])
@pytest.mark.parametrize("name", OWN)
def test_models_run_on_our_operator(on_cpu, name, cache_of):
    both(make(name), steps(cache_of))
    assert on_cpu == ["attention"] * 8  # in four calls of two layers


@pytest.mark.parametrize("name", ["Llama", "Gemma2", "GptOss"])
def test_no_cache_and_a_mask_of_ones(on_cpu, name):
    model = make(name)
    both(model, lambda model: model(tokens(2, 9), use_cache=False).logits)
    both(model, lambda model: model(tokens(2, 9), attention_mask=torch.ones(2, 9, dtype=torch.int64)).logits)
    assert on_cpu == ["attention"] * 4


@pytest.mark.parametrize("name", ["Llama", "Gemma2", "GptOss"])
@pytest.mark.parametrize("cache_of", [growing, static])
def test_padding_is_left_with_a_line_in_the_log(on_cpu, caplog, name, cache_of):
    ours._said.clear()
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[0, :3] = 0
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        # Rows of padding see nothing, and eager attention gives them the mean of all.
        both(make(name), lambda model: steps(cache_of, attention_mask=mask)(model)[:, 3:])
    assert on_cpu == []
    assert [line for line in caplog.messages if "mask is not known to be causal" in line] == [
        f"attention of {name}Attention is left to PyTorch: its mask is not known to be causal or a window"]


def own_mask():
    mask = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(3)) < 0.7
    return mask | torch.eye(9, dtype=torch.bool)


@pytest.mark.parametrize("name", ["Llama", "GptOss"])
def test_masks_of_the_caller_are_left(on_cpu, name):
    mask = torch.zeros(2, 1, 9, 9, dtype=torch.bfloat16).masked_fill(~own_mask(), torch.finfo(torch.bfloat16).min)
    given = {"full_attention": mask, "sliding_attention": mask} if name == "GptOss" else mask
    both(make(name), lambda model: model(tokens(2, 9), attention_mask=given).logits)
    assert on_cpu == []


def test_packed_sequences_are_left(on_cpu):
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    both(make("Llama"), lambda model: model(tokens(1, 9), position_ids=places, use_cache=False).logits)
    assert on_cpu == []


@pytest.mark.parametrize("change", [
    lambda model: model.train(), lambda model: model.float(),
    lambda model: setattr(model.model.layers[0].self_attn, "is_causal", False)])
def test_what_is_not_known_is_left(on_cpu, change):
    model = make("Llama")
    change(model)
    if model.training:  # with gradients
        model.set_attn_implementation("eager")
        kw.use_in_transformers()
        model.set_attn_implementation("kernwright")
        model(tokens(2, 9)).logits.sum().backward()
        assert model.model.layers[0].self_attn.q_proj.weight.grad is not None
        assert on_cpu == []
        return
    both(model, lambda model: model(tokens(2, 1)).logits)
    assert on_cpu == ([] if model.dtype is torch.float32 else ["attention"] * 2)


def test_attention_that_computes_something_else_is_left(on_cpu, monkeypatch):
    from transformers.models.llama import modeling_llama as file
    before = file.eager_attention_forward

    def doubled(*given, **named):
        result, weights = before(*given, **named)
        return 2 * result, weights

    monkeypatch.setattr(file, "eager_attention_forward", doubled)
    kw.use_in_transformers()
    model = make("Llama")
    model.set_attn_implementation("kernwright")
    with torch.no_grad():
        model(tokens(2, 9))
    assert on_cpu == []



def test_descriptions_are_masks():
    masking = transformers.masking_utils
    for offset, function, window in ((5, masking.causal_mask_function, 0),
                                     (torch.tensor(2), masking.sliding_window_causal_mask_function(2), 2)):
        found = ours.mask(2, 3, 8, q_offset=offset, mask_function=function)
        assert found.shape == (2, 1, 1 + window, 1) and (found == offset + 3).all()
        expected = masking.sdpa_mask(2, 3, 8, q_offset=offset, mask_function=function, allow_is_causal_skip=False)
        assert torch.equal(modules.described(found, 3, 8), expected)


@pytest.mark.parametrize("make_function", [
    lambda masking: masking.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.int64)),
    lambda masking: masking.bidirectional_mask_function,
    lambda masking: masking.or_masks(masking.causal_mask_function, lambda b, h, q, k: q.new_ones((), dtype=torch.bool)),
    lambda masking: masking.and_masks(masking.causal_mask_function, lambda b, h, q, k: k <= q - 2),
    lambda masking: masking.and_masks(masking.causal_mask_function, lambda b, h, q, k: k > q - 0),
    lambda masking: masking.and_masks(masking.causal_mask_function, lambda b, h, q, k: k % 2 == 0),
    lambda masking: masking.sliding_window_overlay(3)])
def test_other_mask_functions_make_masks(make_function):
    masking = transformers.masking_utils
    function = make_function(masking)
    assert ours._window_of(function) is None
    found = ours.mask(2, 3, 8, q_offset=5, mask_function=function)
    assert found.dtype is torch.bool and found.shape == (2, 1, 3, 8)


@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Gemma3Text", "GptOss"])
def test_compiled_steps_without_a_break(on_cpu, name):
    def call(model):
        cache = static(model)
        logits = [model(tokens(2, 7), past_key_values=cache, use_cache=True).logits]
        step = torch.compile(lambda ids: model(ids, past_key_values=cache, use_cache=True).logits,
                             fullgraph=True, backend="aot_eager")
        return torch.cat([*logits, *(step(tokens(2, 1)) for _ in range(4))], 1)

    both(make(name), call)
    assert on_cpu == ["attention"] * 10


def test_a_patched_model_reads_descriptions(on_cpu):
    kw.use_in_transformers()
    model = make("Llama", head_dim=64)
    model.set_attn_implementation("kernwright")
    plain = steps(static)
    with torch.no_grad():
        expected = plain(model)
        report = kw.patch(model)
        assert len(report.replaced) > 4
        on_cpu.clear()
        result = plain(model)
        assert "append_attention" in on_cpu and "attention" in on_cpu
        error = (result - expected).norm() / expected.norm()
        assert error < 0.03
        cache = static(model)
        model(tokens(2, 7), past_key_values=cache, use_cache=True)
        description = ours.mask(2, 1, 16, q_offset=cache.layers[0].cumulative_length)
        on_cpu.clear()
        model(tokens(2, 1), past_key_values=cache, use_cache=True, attention_mask=description)
        assert on_cpu.count("append_attention") == 2


def test_lengths_are_computed_once_for_all_layers(on_cpu):
    """Not in each layer, whose attention takes them without a copy."""
    kw.use_in_transformers()
    model, names = make("Llama"), []
    model.set_attn_implementation("kernwright")
    cache = static(model)

    def backend(module, _):
        names.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    with torch.no_grad():
        model(tokens(3, 7), past_key_values=cache, use_cache=True)
        torch.compile(lambda ids: model(ids, past_key_values=cache, use_cache=True).logits, backend=backend,
                      fullgraph=True)(tokens(3, 1))
    assert names.count("kernwright.lengths.default") == 1
    description = ours.mask(3, 1, 16, torch.tensor(7))
    assert description.shape == (3, 1, 1, 1) and description[:, 0, 0, 0].is_contiguous()
    assert description[:, 0, 0, 0].tolist() == [8, 8, 8]
