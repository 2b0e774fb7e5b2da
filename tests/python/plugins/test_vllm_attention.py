"""The attention backend for vLLM without a GPU: its metadata against a plain walk over sequences, its calls
against the contracts of the operations and PyTorch, and the names that vLLM calls. In vLLM itself if that is
installed, and in a stub."""

import ast
import importlib
import inspect
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from paged_calls import check_ready  # noqa: E402
from paged_reference import attended  # noqa: E402

PAGE, COLUMNS = 16, 40


@pytest.fixture(params=engines.forms("vllm"))
def backend(request, monkeypatch, tmp_path):
    """Our module, imported beside the engine."""
    name = "kernwright.plugins.vllm_attention"
    form = engines.vllm_itself if request.param == "itself" else engines.vllm_stub
    monkeypatch.delitem(sys.modules, name, raising=False)
    with form(monkeypatch, tmp_path), torch.no_grad():
        yield importlib.import_module(name)
    sys.modules.pop(name, None)


def builder_of(backend, drafts=0):
    speculative = types.SimpleNamespace(num_speculative_tokens=drafts, parallel_drafting=False)
    config = types.SimpleNamespace(
        speculative_config=speculative if drafts else None,
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1))
    return backend.KernwrightMetadataBuilder(None, [], config, torch.device("cpu"))


def ints(values, device="cpu"):
    return torch.tensor(values, dtype=torch.int32, device=device)


def common_of(news, keys, tokens=None, device="cpu"):
    """What vLLM knows of a step. A sequence's number is the first entry of its row of the table."""
    starts = [sum(news[:i]) for i in range(len(news) + 1)]
    table = torch.zeros(len(news), COLUMNS, dtype=torch.int32)
    table[:, 0] = torch.arange(len(news))
    tokens = tokens or starts[-1]
    return types.SimpleNamespace(
        query_start_loc=ints(starts, device), query_start_loc_cpu=ints(starts), seq_lens=ints(keys, device),
        num_reqs=len(news), num_actual_tokens=tokens, max_query_len=max(news), max_seq_len=max(keys),
        block_table_tensor=table.to(device), slot_mapping=torch.zeros(tokens, dtype=torch.int64), causal=True)


def tokens_of(first, of):
    """Each token of a part with its sequence and its position in that, without padding."""
    starts = [i * of.q_len for i in range(len(of.lengths) + 1)] if of.offsets is None else of.offsets.tolist()
    assert starts[-1] == of.tokens
    return [(first + token, int(of.table[i, 0]), int(of.lengths[i]) - (end - token))
            for i, (begin, end) in enumerate(zip(starts, starts[1:])) for token in range(begin, end)
            if int(of.lengths[i]) >= end - token]


def draw_step(draw, drafts):
    """Sequences in vLLM's order: those that decode, which may have drafts, and then prompts."""
    news = [draw.choice((1, drafts + 1)) if draw.random() < 0.2 else drafts + 1
            for _ in range(draw.randint(0, 6))]
    news += [draw.randint(1, 90) for _ in range(draw.randint(0 if news else 1, 3))]
    return news, [new + draw.choice((0, 1, 15, 16, draw.randint(0, 500))) for new in news]


@pytest.mark.parametrize("drafts", [0, 2])
def test_metadata_has_every_token_once(backend, drafts):
    builder, draw = builder_of(backend, drafts), random.Random(1)
    forms = set()
    for _ in range(200):
        news, keys = draw_step(draw, drafts)
        metadata = builder.build(0, common_of(news, keys))
        wanted = [(sum(news[:i]) + j, i, keys[i] - news[i] + j)
                  for i, new in enumerate(news) for j in range(new)]
        assert metadata.step.tokens == len(wanted)
        assert [token for part in metadata.step.parts for token in tokens_of(*part)] == wanted
        for _, of in metadata.step.parts:
            longest = max(new for new, number in zip(news, range(len(news))) if number in of.table[:, 0])
            assert longest <= of.q_len <= of.tokens
            assert of.offsets is None or len(of.lengths) == 1 or of.q_len * len(of.lengths) > of.tokens
            forms.add((len(metadata.step.parts), of.offsets is None))
    assert forms == {(1, True), (1, False), (2, True), (2, False)}


@pytest.mark.parametrize("drafts", [0, 2])
def test_padding_of_a_graph_is_no_token(backend, drafts):
    new = drafts + 1
    news, keys = [new] * 5 + [0] * 3, [new, 9, 30, 600, 17, 0, 0, 0]
    metadata = builder_of(backend, drafts).build(0, common_of(news, keys, tokens=8 * new))
    ((first, of),) = metadata.step.parts
    assert (first, of.tokens, of.q_len, of.offsets) == (0, 8 * new, new, None)
    assert tokens_of(0, of) == [(new * i + j, i, keys[i] - new + j) for i in range(5) for j in range(new)]


def test_metadata_reads_nothing_from_the_gpu(backend):
    """Tensors of the device meta have no contents."""
    builder = builder_of(backend)
    for news in ([1, 1, 1], [1, 1, 40], [7, 40]):
        metadata = builder.build(0, common_of(news, [600] * len(news), device="meta"))
        assert all(of.lengths.is_meta and of.table.is_meta for _, of in metadata.step.parts)


def test_bounds_of_queries_take_few_values(backend):
    builder = builder_of(backend)
    for new in range(2, 400):
        ((_, of),) = builder.build(0, common_of([2, new, 200], [600] * 3)).step.parts
        assert of.q_len in (256, 512) or of.q_len == of.tokens < 512


def test_attention_that_is_not_causal_is_refused(backend):
    common = common_of([1], [5])
    common.causal = False
    with pytest.raises(Exception, match="causal"):
        builder_of(backend).build(0, common)


def test_the_cache_is_taken_without_a_copy(backend):
    kind = backend.KernwrightAttentionBackend
    assert kind.get_kv_cache_shape(7, 16, 2, 64) == (2, 7, 16, 2, 64)
    layer = backend.KernwrightAttention(4, 64, 0.125, 2)
    plain = torch.zeros(2, 7, 16, 2, 64)
    slots = torch.zeros(7, 16, 2, 2 * 64).transpose(1, 2)  # [pages, slots, page, heads * head_dim], in LBNHC
    planes = torch.zeros(2, 7, 16, 2 * 64).transpose(0, 1)  # the same in LHBNC
    for cache in (plain, slots, planes):
        for i, half in enumerate(layer._caches(None, cache)):
            half.fill_(i + 1)
            assert half.shape == (7, 16, 2, 64) and half.stride()[2:] == (64, 1)
            assert half.stride(0) == 16 * half.stride(1)
        assert cache.min() == 1 and cache.max() == 2


REFUSED = {"head_size": (260, 300, 12), "dtype": (torch.float32,), "kv_cache_dtype": ("fp8_e5m2", "float16"),
           "use_mla": (True,), "use_sparse": (True,), "use_mm_prefix": (True,), "block_size": (24,),
           "use_per_head_quant_scales": (True,), "attn_type": ("encoder", "encoder_only", "encoder_decoder"),
           "use_non_causal": (True,), "use_batch_invariant": (True,),
           "device_capability": (types.SimpleNamespace(major=7, minor=5),)}


def test_vllm_is_told_what_is_not_known(backend):
    kind = backend.KernwrightAttentionBackend
    if not hasattr(kind, "validate_configuration"):
        pytest.skip("the stub validates nothing")
    known = dict(head_size=64, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=None, use_mla=False,
                 has_sink=True, use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False,
                 device_capability=types.SimpleNamespace(major=9, minor=0), attn_type="decoder",
                 use_non_causal=False, use_batch_invariant=False)
    for more in ({}, {"kv_cache_dtype": "fp8"}, {"head_size": 256}, {"block_size": 64}, {"has_sink": False}):
        assert kind.validate_configuration(**{**known, **more}) == []
    for name, values in REFUSED.items():
        for value in values:
            assert len(kind.validate_configuration(**{**known, name: value})) == 1, (name, value)
    assert kind.validate_configuration(**{**known, "kv_cache_dtype": "fp8", "head_size": 72})


def test_layers_that_are_not_known_are_refused(backend):
    with pytest.raises(NotImplementedError, match="encoder"):
        backend.KernwrightAttention(4, 64, 0.125, 2, attn_type="encoder")
    layer = backend.KernwrightAttention(4, 64, 0.125, 2)
    with pytest.raises(NotImplementedError, match="quantized"):
        layer.forward(None, None, None, None, None, None, None, output_scale=torch.ones(1))


@pytest.mark.parametrize("named", [{}, {"sliding_window": 30}, {"logits_soft_cap": 20.0},
                                   {"sinks": torch.linspace(-1, 1, 4)}], ids=str)
def test_forward_is_attention_over_the_cache(backend, computed, named):
    draw = random.Random(2)
    torch.manual_seed(2)
    layer = backend.KernwrightAttention(4, 64, 0.125, 2, **named)
    layer.process_weights_after_loading(torch.bfloat16)
    of = types.SimpleNamespace(heads=4, kv_heads=2, scale=0.125, softcap=named.get("logits_soft_cap"),
                               window=named.get("sliding_window"), sinks=named.get("sinks"), slopes=None,
                               scales=None)
    for drafts in (0, 2):
        builder = builder_of(backend, drafts)
        for _ in range(10):
            news, keys = draw_step(draw, drafts)
            tokens = sum(news)
            qkv = torch.randn(tokens + 3, 8 * 64, dtype=torch.bfloat16)
            q, k, v = (x.unflatten(1, (-1, 64)) for x in qkv.split([256, 128, 128], 1))
            cache = torch.randn(2, 300, PAGE, 2, 64, dtype=torch.bfloat16)
            common = common_of(news, keys)
            order = draw.sample(range(300), 300)
            for row, count in zip(common.block_table_tensor, keys):
                for column in range(-(-count // PAGE)):
                    row[column] = order.pop()
            output = torch.full((tokens + 3, 4, 64), torch.nan, dtype=torch.bfloat16)
            whole = []
            for i, (new, count) in enumerate(zip(news, keys)):
                at = torch.arange(count)
                places = common.block_table_tensor[i].long()[at // PAGE] * PAGE + at % PAGE
                rows = slice(sum(news[:i]), sum(news[:i + 1]))
                common.slot_mapping[rows] = places[count - new:]
                there = [half.flatten(0, 1)[places] for half in cache]
                for half, x in zip(there, (k, v)):
                    half[count - new:] = x[rows]
                whole.append(attended(of, q[rows], *there))
            layer.forward(None, q, k, v, cache, builder.build(0, common), output)
            torch.testing.assert_close(output[:tokens].float(), torch.cat(whole), atol=2e-2, rtol=2e-2)
            assert output[tokens:].isnan().all(), "padding was written to"
    assert {problem.split()[0] for problem in computed.problems} == {"attention", "kv_append"}
    check_ready(computed)


def test_a_layer_that_shares_anothers_cache_appends_nothing(backend, computed):
    layer = backend.KernwrightAttention(4, 64, 0.125, 2, kv_sharing_target_layer_name="other")
    q, k, v = (torch.randn(1, heads, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))
    cache = torch.randn(2, 9, PAGE, 2, 64, dtype=torch.bfloat16)
    before = cache.clone()
    metadata = builder_of(backend).build(0, common_of([1], [5]))
    for given in ((k, v), (None, None)):
        layer.forward(None, q, *given, cache, metadata, torch.empty_like(q))
    assert torch.equal(cache, before)
    assert {problem.split()[0] for problem in computed.problems} == {"attention"}


def overridden(backend):
    """Our methods, by the names of vLLM's classes that they are of."""
    return {"AttentionBackend": backend.KernwrightAttentionBackend, "AttentionImpl": backend.KernwrightAttention,
            "AttentionMetadataBuilder": backend.KernwrightMetadataBuilder}


def of_wheel(classes):
    """The names of the arguments of vLLM's methods, read from its wheel: those of the class or what it
    derives from."""
    with engines.wheel_of("vllm") as wheel:
        tree = ast.parse(wheel.read("vllm/v1/attention/backend.py"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            found[node.name] = {
                method.name: [argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)
                              if argument.arg not in ("self", "cls")]
                for method in node.body if isinstance(method, ast.FunctionDef)}
    return found


def test_our_methods_take_what_a_wheels_vllm_passes(backend):
    for name, methods in of_wheel(overridden(backend)).items():
        ours = overridden(backend)[name]
        for method, arguments in methods.items():
            if method not in vars(ours):
                continue
            signature = inspect.signature(getattr(ours, method))
            takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
            missing = [one for one in arguments if one not in signature.parameters and not takes_all]
            assert not missing, f"{name}.{method} does not take {missing}"
