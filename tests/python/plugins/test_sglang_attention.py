"""The attention backend for SGLang without a GPU: its metadata, its calls against the contracts of the operations
and PyTorch, what it refuses, and the names that SGLang calls and that it reads. With the classes of SGLang itself
if that is installed, beside stand-ins of its pools and batches, in stand-ins of all, and against the names in its
wheel."""

import ast
import functools
import importlib
import inspect
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from paged_calls import check_ready  # noqa: E402
import sglang_parts  # noqa: E402
from sglang_parts import (Batch, ForwardMode, HybridLinearKVPool, Registries, Runner, Speculation,  # noqa: E402
                          settings)

PAGES = [1, 16]


def layer_of(kind, number=0, heads=4, kv_heads=2, dim=64, **named):
    return kind(heads, dim, dim ** -0.5, kv_heads, number, **named)


@pytest.fixture(params=engines.forms("sglang"))
def sglang(request, monkeypatch):
    """Our module beside the engine, with the engine's layers and the configuration that it sees."""
    registries, name = Registries(), "kernwright.plugins.sglang_attention"
    monkeypatch.delitem(sys.modules, name, raising=False)
    if request.param == "itself":
        engines.seam("sglang.srt.layers.attention.base_attn_backend")
        module = importlib.import_module(name)
        for member in ("HybridLinearKVPool", "MHATokenToKVPool", "SWAKVPool"):
            monkeypatch.setattr(module, member, getattr(sglang_parts, member))
        for member in ("exec", "parallel", "spec"):
            monkeypatch.setattr(module, f"get_{member}", lambda member=member: getattr(registries.settings, member))
        monkeypatch.setattr(module, "is_deterministic", lambda: (
            registries.settings.exec.deterministic.enable_deterministic_inference))
    else:
        engines.put_modules(monkeypatch, registries.modules())
        module = importlib.import_module(name)
    with torch.no_grad():
        yield types.SimpleNamespace(module=module, registries=registries,
                                    layer=functools.partial(layer_of, module.RadixAttention))
    sys.modules.pop(name, None)


def draw_sequences(draw, mode):
    """Pairs of new tokens and of keys with these. A pool has all keys of eight sequences at most, and here of some
    more, which have fewer."""
    def keys(new):
        return new + draw.choice((0, 1, 15, 16, draw.randint(0, 500)))

    count = draw.randint(1, 10)
    if mode is ForwardMode.DECODE:
        return [(1, keys(1)) for _ in range(count)]
    if mode is ForwardMode.TARGET_VERIFY:
        return [(3, keys(3) + 1) for _ in range(count)]
    news = [draw.randint(1, 90) for _ in range(draw.randint(1, 3))]
    if mode is ForwardMode.MIXED:
        news += [1] * min(count, 6)
    return [(new, keys(new)) for new in news]


MODES = [ForwardMode.DECODE, ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.TARGET_VERIFY]
NAMED = [{}, {"sliding_window_size": 29}, {"logit_cap": 20.0}, {"kv": torch.float8_e4m3fn},
         {"sinks": torch.linspace(-1, 1, 4).bfloat16()}]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("named", NAMED, ids=str)
def test_a_layer_is_attention_over_the_pool(sglang, computed, named, page):
    named, draw = dict(named), random.Random(page)
    kv, sinks = named.pop("kv", None), named.pop("sinks", None)
    layer = sglang.layer(**named)
    if kv is not None:
        layer.k_scale_float, layer.v_scale_float = 0.5, 2.0
    sglang.registries.settings = settings(algorithm="EAGLE", topk=1, drafts=3)
    runner = Runner([layer], page, kv=kv, algorithm="EAGLE")
    backend = sglang.module.make_backend(runner)
    for seed, mode in enumerate(MODES * 2):
        batch = Batch(runner, draw_sequences(draw, mode), mode, seed)
        backend.init_forward_metadata(batch.batch)
        batch.run(backend, layer, **({} if sinks is None else {"sinks": sinks}))
    assert {problem.split()[0] for problem in computed.problems} == {"attention", "kv_append"}
    check_ready(computed)


@pytest.mark.parametrize("page", PAGES)
def test_windows_have_a_pool_of_their_own(sglang, computed, page):
    layers = [sglang.layer(i, sliding_window_size=40 if i % 2 else -1) for i in range(4)]
    runner = Runner(layers, page, apart=True)
    backend = sglang.module.make_backend(runner)
    draw = random.Random(page)
    for seed, mode in enumerate(MODES[:3] * 2):
        batch = Batch(runner, draw_sequences(draw, mode), mode, seed)
        backend.init_forward_metadata(batch.batch)
        for layer in layers:
            batch.run(backend, layer)


def test_layers_beside_linear_ones_have_numbers_of_their_own(sglang, computed):
    layer = sglang.layer(7)
    runner = Runner([layer])
    runner.token_to_kv_pool = HybridLinearKVPool(runner.token_to_kv_pool, [7])
    backend = sglang.module.make_backend(runner)
    pool = runner.token_to_kv_pool
    runner.token_to_kv_pool = pool.full_kv_pool
    batch = Batch(runner, [(1, 30), (1, 5)], ForwardMode.DECODE)
    runner.token_to_kv_pool = pool
    backend.init_forward_metadata(batch.batch)
    batch.run(backend, layer)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("algorithm", [None, "EAGLE"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_graph_reads_buffers_that_are_filled_before_it(sglang, computed, page, algorithm, apart):
    layers = [sglang.layer(0), sglang.layer(1, sliding_window_size=40)]
    drafts = 3 if algorithm else 1
    sglang.registries.settings = settings(algorithm=algorithm, topk=1, drafts=algorithm and drafts)
    runner = Runner(layers, page, apart=apart, algorithm=algorithm)
    backend = sglang.module.make_backend(runner)
    mode = ForwardMode.TARGET_VERIFY if algorithm else ForwardMode.DECODE
    backend.init_cuda_graph_state(8, 8 * drafts)
    captured = {}

    def tensors():
        steps = [step for step in (backend.forward_metadata.full, backend.forward_metadata.windows) if step]
        return [(x.data_ptr(), x.shape) for step in steps for _, of in step.parts
                for x in (of.lengths, of.table, of.table_rows) if x is not None]

    for count in (8, 4):
        batch = Batch(runner, [(drafts, drafts + 1)] * count, mode).batch
        batch.req_pool_indices.zero_()
        batch.seq_lens.fill_(1)
        batch.seq_lens_cpu.fill_(1)
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
        backend.init_forward_metadata_in_graph(batch)
        captured[count] = tensors()
    assert captured[8][0][0] == captured[4][0][0], "graphs have buffers of their own"
    draw = random.Random(4)
    for seed in range(8):
        count = draw.choice((8, 4))
        real = draw.randint(1, count)
        sequences = [(drafts, drafts + draw.randint(1, 500)) for _ in range(real)]
        batch = Batch(runner, sequences, mode, seed, padding=count - real)
        backend.init_forward_metadata_out_graph(batch.batch)
        assert tensors() == captured[count]
        assert backend.forward_metadata.lengths[real:].tolist() == [0] * (count - real)
        for layer in layers:
            out = batch.run(backend, layer)
            assert not out[batch.tokens:].any(), "padding has a result"


def test_a_graph_that_was_not_captured_or_is_none_is_refused(sglang):
    runner = Runner([sglang.layer()])
    backend = sglang.module.make_backend(runner)
    backend.init_cuda_graph_state(2, 2)
    with pytest.raises(Exception, match="3 sequences is captured, and at most 2"):
        backend.init_forward_metadata_out_graph(Batch(runner, [(1, 5)] * 3, ForwardMode.DECODE).batch, in_capture=True)
    with pytest.raises(NotImplementedError, match="EXTEND"):
        backend.init_forward_metadata_out_graph(Batch(runner, [(4, 5)], ForwardMode.EXTEND).batch, in_capture=True)
    with pytest.raises(KeyError):
        backend.init_forward_metadata_out_graph(Batch(runner, [(1, 5)], ForwardMode.DECODE).batch)


def test_larger_buffers_leave_what_was_captured(sglang):
    runner = Runner([sglang.layer()])
    backend = sglang.module.make_backend(runner)
    batch = Batch(runner, [(1, 5)] * 2, ForwardMode.DECODE).batch
    backend.init_cuda_graph_state(2, 2)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    lengths = backend.forward_metadata.lengths
    for most in (4, 1):
        backend.init_cuda_graph_state(most, most)
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
        assert backend.forward_metadata.lengths is lengths


@pytest.mark.parametrize("page", PAGES)
def test_metadata_reads_nothing_from_the_gpu(sglang, page):
    """Tensors of the device meta have no contents."""
    sglang.registries.settings = settings(algorithm="EAGLE", topk=1, drafts=3)
    for algorithm, known in ((None, True), ("EAGLE", False)):
        layers = [sglang.layer(0), sglang.layer(1, sliding_window_size=40)]
        runner = Runner(layers, page, apart=True, algorithm=algorithm)
        batches = [Batch(runner, draw_sequences(random.Random(1), mode), mode).batch for mode in MODES]
        runner.device = "meta"
        runner.req_to_token_pool.req_to_token = runner.req_to_token_pool.req_to_token.to("meta")
        pool = runner.token_to_kv_pool
        pool.full_to_swa_index_mapping = pool.full_to_swa_index_mapping.to("meta")
        backend = sglang.module.make_backend(runner)
        assert backend.needs_cpu_seq_lens is known
        for batch in batches:
            for name in ("req_pool_indices", "seq_lens", "extend_seq_lens"):
                if getattr(batch, name) is not None:
                    setattr(batch, name, getattr(batch, name).to("meta"))
            if not known:
                batch.seq_lens_cpu = None
            backend.init_forward_metadata(batch)
            assert backend.forward_metadata.lengths.is_meta


def test_one_new_token_each_at_the_end_is_attended_to_apart(sglang):
    runner = Runner([sglang.layer()])
    backend = sglang.module.make_backend(runner)
    for news, wanted in (([5, 1, 7, 1, 1], [(0, 13, None), (13, 2, 1)]), ([1, 1], [(0, 2, 1)]),
                         ([1, 9], [(0, 10, None)]), ([5], [(0, 5, None)])):
        backend.init_forward_metadata(Batch(runner, [(new, new + 4) for new in news], ForwardMode.MIXED).batch)
        parts = backend.forward_metadata.full.parts
        assert [(first, of.tokens, of.q_len if of.offsets is None else None) for first, of in parts] == wanted
        assert backend.forward_metadata.full.tokens == sum(news)


def test_a_work_list_is_made_by_the_first_layer_of_every_run(sglang, computed, monkeypatch):
    from kernwright.plugins import _paged
    layers = [sglang.layer(i, sliding_window_size=40 if i > 1 else -1) for i in range(4)]
    runner, made, used = Runner(layers, 16, longest=5000), [], []
    backend = sglang.module.make_backend(runner)
    monkeypatch.setattr(_paged, "slots_of", lambda kv_heads: 7)
    monkeypatch.setattr(_paged.PagedAttention, "schedule", lambda paged, of, slots, page: made.append(
        (paged.window, slots, page)) or torch.zeros(slots, 8, dtype=torch.int32))
    attend = _paged.PagedAttention.attend
    monkeypatch.setattr(_paged.PagedAttention, "attend", lambda paged, q, caches, out, of, work=None: used.append(
        work is not None) or attend(paged, q, caches, out, of, work))
    batch = Batch(runner, [(1, 40), (1, 300)], ForwardMode.DECODE)
    backend.init_forward_metadata(batch.batch)
    for _ in range(3):  # as warm-ups before a capture run on one metadata
        for layer in layers:
            batch.run(backend, layer)
    assert made == [(None, 7, 16), (41, 7, 16)] * 3 and all(used)
    check_ready(computed)
    batch = Batch(runner, [(9, 40), (30, 300)], ForwardMode.EXTEND)
    backend.init_forward_metadata(batch.batch)
    batch.run(backend, layers[0])
    assert len(made) == 6


def test_what_others_wrote_is_not_appended(sglang, computed):
    layer = sglang.layer()
    runner = Runner([layer])
    backend = sglang.module.make_backend(runner)
    batch = Batch(runner, [(1, 30), (1, 4)], ForwardMode.DECODE)
    backend.init_forward_metadata(batch.batch)
    batch.run(backend, layer)
    for named in ({"save_kv_cache": False}, {"k": None, "v": None}):
        given = {"q": batch.q, "k": batch.k * 2, "v": batch.v * 2, "layer": layer, "forward_batch": batch.batch,
                 **named}
        before = [half.clone() for half in batch.halves(layer)]
        batch.check(layer, before, backend.forward(**given))
    assert sum(problem.startswith("kv_append") for problem in computed.problems) == 1


def test_a_result_goes_where_sglang_wants_it(sglang, computed):
    layer = sglang.layer()
    runner = Runner([layer])
    backend = sglang.module.make_backend(runner)
    batch = Batch(runner, [(7, 30), (5, 5)], ForwardMode.EXTEND)
    batch.batch._attn_output = torch.full_like(batch.q, torch.nan, memory_format=torch.contiguous_format)
    backend.init_forward_metadata(batch.batch)
    assert batch.run(backend, layer).data_ptr() == batch.batch._attn_output.data_ptr()


def test_an_idle_rank_computes_nothing(sglang, computed):
    layer = sglang.layer()
    runner = Runner([layer])
    backend = sglang.module.make_backend(runner)
    batch = Batch(runner, [(1, 30)], ForwardMode.DECODE)
    batch.batch.forward_mode = ForwardMode.IDLE
    backend.init_forward_metadata(batch.batch)
    assert backend.forward_metadata is None
    assert backend.forward(batch.q, batch.k, batch.v, layer, batch.batch).shape == batch.q.shape
    assert not computed.problems


def refusals():
    def change(**changes):
        return lambda runner: vars(runner).update(changes)

    def pool(**changes):
        return lambda runner: vars(runner.token_to_kv_pool).update(changes)

    def configured(**changes):
        return lambda runner: vars(runner.model_config).update(changes)

    def other_pool(runner):
        runner.token_to_kv_pool = types.SimpleNamespace()

    def translates(runner):
        runner.kv_index_translator.is_translating = True

    def gives_row_0(runner):
        runner.req_to_token_pool.free_slots.insert(0, 0)

    def speculates(name):
        return change(spec_algorithm=Speculation(name))

    def layer(attn_type="DECODER", **named):
        def add(runner):
            first = runner.model[0]
            runner.model.append(layer_of(type(first), 1, attn_type=type(first.attn_type)[attn_type], **named))

        return add

    def warm(runner):
        runner.model[0].xai_temperature_len = 100

    return [
        (change(use_mla_backend=True), {}, "latent attention"),
        (change(is_draft_worker=True), {}, "draft-attention-backend"),
        (change(prefill_aware_swa=True), {}, "windows that leave prompts out"),
        (change(dtype=torch.float32), {}, "torch.float32"), (configured(is_encoder_decoder=True), {}, "an encoder"),
        (configured(is_local_attention_model=True), {}, "within chunks"), (translates, {}, "unified"),
        (gives_row_0, {}, "row 0"), (lambda _: None, {"cp": 2}, "context parallelism"),
        (lambda _: None, {"dcp": 2}, "context parallelism"), (lambda _: None, {"dllm": "x"}, "diffusion"),
        (lambda _: None, {"deterministic": True}, "depend on the batch"),
        (speculates("NGRAM"), {"algorithm": "NGRAM"}, "speculation by NGRAM"),
        (speculates("EAGLE"), {"algorithm": "EAGLE", "topk": 4}, "trees of drafts .*topk 4"),
        (other_pool, {}, "a cache of the type SimpleNamespace"), (pool(kv_cache_layout="hnd"), {}, "layout hnd"),
        (pool(is_quantized_kv_cache=True), {}, "UnquantizedKVCacheMethod"),
        (pool(dtype=torch.float8_e5m2), {}, "float8_e5m2"), (pool(dtype=torch.float16), {}, "float16 beside"),
        (pool(dtype=torch.float8_e4m3fn, head_dim=72), {}, "heads of 72"),
        (layer(attn_type="ENCODER_ONLY"), {}, "encoder_only"),
        (layer(attn_type="DECODER_BIDIRECTIONAL"), {}, "decoder_bidirectional"),
        (layer(is_cross_attention=True), {}, "cross attention"), (layer(use_irope=True), {}, "within chunks"),
        (layer(v_head_dim=32), {}, "heads of 64 with values of 32"), (layer(dim=264), {}, "heads of 264"),
        (layer(dim=12), {}, "heads of 12"), (layer(logit_cap=1.0, logit_capping_method="x"), {}, "caps by x"),
        (layer(pos_encoding_mode="ALIBI"), {}, "positions by ALIBI"), (warm, {}, "temperatures")]


@pytest.mark.parametrize("change, given, reason", refusals(), ids=[reason for _, _, reason in refusals()])
def test_what_is_not_known_is_refused_with_its_name(sglang, change, given, reason):
    runner = Runner([sglang.layer()])
    sglang.module.make_backend(runner)
    sglang.registries.settings = settings(**given)
    change(runner)
    with pytest.raises(NotImplementedError, match=f"attention-backend kernwright does not know .*{reason}"):
        sglang.module.make_backend(runner)


def test_speculation_in_chains_is_taken(sglang):
    for algorithm in ("EAGLE", "EAGLE3", "STANDALONE"):
        sglang.registries.settings = settings(algorithm=algorithm, topk=1, drafts=4)
        sglang.module.make_backend(Runner([sglang.layer()], algorithm=algorithm))


def test_batches_and_calls_that_are_not_known_are_refused(sglang, computed):
    layer = sglang.layer()
    runner = Runner([layer])
    backend = sglang.module.make_backend(runner)
    for mode in (ForwardMode.DRAFT_EXTEND_V2, ForwardMode.DLLM_EXTEND):
        with pytest.raises(NotImplementedError, match=mode.name):
            backend.init_forward_metadata(Batch(runner, [(4, 5)], mode).batch)
    for name in ("encoder_lens", "multi_item_delimiter_indices"):
        batch = Batch(runner, [(4, 5)], ForwardMode.EXTEND).batch
        setattr(batch, name, [1])
        with pytest.raises(NotImplementedError, match=name):
            backend.init_forward_metadata(batch)
    for changes in ({"tree_topk": 2}, {"tree_topk": -1}, {"ragged_verify_layout": 1}, None):
        batch = Batch(runner, [(4, 5)], ForwardMode.TARGET_VERIFY).batch
        if changes is None:
            batch.spec_info = None
        else:
            vars(batch.spec_info).update(changes)
        with pytest.raises(NotImplementedError, match="no chains"):
            backend.init_forward_metadata(batch)
    long = Batch(runner, [(4, 5)], ForwardMode.EXTEND).batch
    long.seq_lens_cpu[0] = 704
    with pytest.raises(Exception, match="704 tokens, and at most 703"):
        backend.init_forward_metadata(long)

    batch = Batch(runner, [(4, 5)], ForwardMode.EXTEND)
    backend.forward_metadata = None
    with pytest.raises(Exception, match="metadata"):
        batch.run(backend, layer)
    backend.init_forward_metadata(batch.batch)
    with pytest.raises(NotImplementedError, match="attention with q_rope"):
        backend.forward(batch.q, batch.k, batch.v, layer, batch.batch, q_rope=batch.q, score_mod=None, return_lse=False)
    for i, name in enumerate("qkv"):
        given = [batch.q, batch.k, batch.v]
        given[i] = given[i][:3]
        with pytest.raises(Exception, match=f"{name} has 3 tokens, and 4 of the batch"):
            backend.forward(*given, layer, batch.batch)
    late = sglang.layer()
    late.xai_temperature_len = 5
    with pytest.raises(NotImplementedError, match="temperatures"):
        backend.forward(batch.q, batch.k, batch.v, late, batch.batch)
    assert not computed.problems


@pytest.mark.parametrize("given, wanted", [((None, None), 1.0), ((0.5, None), 0.5), ((torch.ones(1), 0.25), 0.25)])
def test_scales_of_an_fp8_cache(sglang, given, wanted):
    layer = sglang.layer()
    layer.k_scale, layer.k_scale_float = given
    assert sglang.module._scale(layer, "k") == wanted
    layer.k_scale, layer.k_scale_float = torch.ones(1), None
    with pytest.raises(Exception, match="k_scale of layer 0 is a Tensor"):
        sglang.module._scale(layer, "k")


@pytest.fixture
def wheel():
    return engines.Wheel("sglang", "sglang/srt")


BASE = "layers/attention/base_attn_backend"
#: Methods of SGLang's that say that a backend must have them, which only others call.
NOT_OURS = {"forward_mixed", "init_forward_metadata_for_breakable_cuda_graph_capture",
            "prepare_forward_metadata_for_breakable_cuda_graph_replay"}


def test_our_methods_take_what_a_wheels_sglang_passes(sglang, wheel):
    ours, found = sglang.module.KernwrightAttentionBackend, wheel.found(BASE, "AttentionBackend")
    methods = {each.name: each for each in found.body if isinstance(each, ast.FunctionDef)}
    assert {name for name in vars(ours) if not name.startswith("_") and callable(vars(ours)[name])} <= methods.keys()
    for name, method in methods.items():
        if name not in vars(ours):
            last = method.body[-1]
            assert name in NOT_OURS or not isinstance(last, ast.Raise), f"SGLang's backends must have {name}"
            continue
        taken = list(inspect.signature(getattr(ours, name)).parameters)
        assert [one for one in taken if one not in ("self", "named")] == engines.arguments_of(method), name


def test_a_wheels_sglang_has_the_names_that_are_read(wheel):
    """Names that a runner, a batch and the like have in the stand-ins and in our module."""
    for path, kind, wanted in (
            (BASE, "AttentionBackend", {"forward_metadata", "needs_cpu_seq_lens", "kv_index_translator"}),
            ("layers/radix_attention", "RadixAttention",
             set(vars(layer_of(sglang_parts.RadixAttention))) - set(vars(torch.nn.Module()))),
            ("layers/radix_attention", "AttentionType", {"DECODER", "DECODER_BIDIRECTIONAL", "ENCODER_ONLY"}),
            ("model_executor/forward_batch_info", "ForwardBatch", {
                "forward_mode", "batch_size", "req_pool_indices", "seq_lens", "seq_lens_cpu", "encoder_lens",
                "out_cache_loc", "_attn_output", "spec_info", "multi_item_delimiter_indices", "extend_seq_lens", "extend_seq_lens_cpu"}),
            ("model_executor/forward_batch_info", "ForwardMode", {
                *ForwardMode.__members__, *(name for name in vars(ForwardMode) if name.startswith("is_"))}),
            ("model_executor/model_runner", "ModelRunner", {
                "device", "page_size", "dtype", "model", "use_mla_backend", "is_draft_worker", "prefill_aware_swa",
                "model_config", "spec_algorithm"}),
            ("configs/model_config", "ModelConfig", {"context_len", "is_encoder_decoder", "is_local_attention_model"}),
            ("mem_cache/memory_pool", "ReqToTokenPool", {"size", "free_slots", "req_to_token"}),
            ("mem_cache/memory_pool", "MHATokenToKVPool", {
                "head_dim", "kv_cache_layout", "is_quantized_kv_cache", "quant_method", "get_kv_buffer"}),
            ("mem_cache/memory_pool", "KVCache", {"dtype"}),
            ("mem_cache/memory_pool", "HybridLinearKVPool", {"full_kv_pool", "get_kv_buffer"}),
            ("mem_cache/swa_memory_pool", "SWAKVPool", {
                "full_kv_pool", "swa_kv_pool", "layers_mapping", "full_to_swa_index_mapping", "get_kv_buffer"}),
            ("mem_cache/kv_index_translator", "KVIndexTranslator", {"is_translating"}),
            ("speculative/spec_info", "SpeculativeAlgorithm", {"is_none", "is_eagle", "is_standalone"}),
            ("speculative/eagle_info", "EagleVerifyInput", {"tree_topk", "draft_token_num"})):
        assert not wanted - wheel.members(path, kind), (kind, wanted - wheel.members(path, kind))


def test_a_wheels_sglang_has_the_seams(wheel):
    for path, names in (("layers/attention/attention_registry", ["register_attention_backend"]),
                        ("arg_groups/choices", ["add_attention_backend_choices"]),
                        ("runtime_context", ["get_exec", "get_parallel", "get_spec"])):
        known = {node.name for node in wheel.tree(path).body if isinstance(node, ast.FunctionDef)}
        known |= {target.id for node in wheel.tree(path).body if isinstance(node, ast.Assign) for target in node.targets
                  if isinstance(target, ast.Name)}
        assert set(names) <= known
    settings_ = {path: ast.dump(wheel.tree(path)) for path in ("arg_groups/fields/spec", "arg_groups/fields/exec_",
                                                              "runtime_context")}
    for path, names in (("arg_groups/fields/spec", ["speculative_algorithm", "speculative_eagle_topk",
                                                    "speculative_num_draft_tokens"]),
                        ("arg_groups/fields/exec_", ["enable_deterministic_inference", "dllm_algorithm"]),
                        ("runtime_context", ["attn_cp_size", "attn_dcp_size"])):
        for name in names:
            assert f"'{name}'" in settings_[path], (path, name)
    # A graph's batch has the fields that we read of one.
    view = ast.dump(wheel.found("model_executor/runner/decode_cuda_graph_runner", "build_replay_fb_view"))
    for name in ("batch_size", "forward_mode", "req_pool_indices", "seq_lens", "seq_lens_cpu", "encoder_lens",
                 "out_cache_loc", "spec_info"):
        assert f"arg='{name}'" in view, name
    # Requests never get row 0.
    pool = ast.unparse(wheel.found("mem_cache/memory_pool", "ReqToTokenPool"))
    assert "self.free_slots = list(range(1, " in pool
