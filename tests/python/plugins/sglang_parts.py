"""Stand-ins of the parts of SGLang that our attention touches: its modules, a model runner with pools, and the
batches of its scheduler."""

import enum
import random
import types

import torch

from paged_reference import attended

FILL = 1  # the length of padding in a graph's buffers


class ForwardMode(enum.Enum):
    EXTEND, DECODE, MIXED, IDLE, TARGET_VERIFY, DRAFT_EXTEND_V2, DLLM_EXTEND = range(7)

    def is_idle(self):
        return self is ForwardMode.IDLE

    def is_decode(self):
        return self is ForwardMode.DECODE

    def is_decode_or_idle(self):
        return self.is_decode() or self.is_idle()

    def is_mixed(self):
        return self is ForwardMode.MIXED

    def is_target_verify(self):
        return self is ForwardMode.TARGET_VERIFY

    def is_draft_extend_v2(self):
        return self is ForwardMode.DRAFT_EXTEND_V2

    def is_dllm_extend(self):
        return self is ForwardMode.DLLM_EXTEND


class AttentionBackend:
    forward_metadata = None
    needs_cpu_seq_lens = True

    def init_forward_metadata_in_graph(self, forward_batch):
        pass

    def forward(self, q, k, v, layer, forward_batch, save_kv_cache=True, **named):
        if forward_batch.forward_mode.is_idle():
            return q.new_empty(q.shape[0], layer.tp_q_head_num * layer.v_head_dim)
        step = self.forward_decode if forward_batch.forward_mode.is_decode() else self.forward_extend
        return step(q, k, v, layer, forward_batch, save_kv_cache=save_kv_cache, **named)


class AttentionType(enum.Enum):
    DECODER, DECODER_BIDIRECTIONAL, ENCODER_ONLY = "decoder", "decoder_bidirectional", "encoder_only"


class RadixAttention(torch.nn.Module):
    def __init__(self, num_heads, head_dim, scaling, num_kv_heads, layer_id, logit_cap=0.0, v_head_dim=-1,
                 sliding_window_size=-1, is_cross_attention=False, attn_type=AttentionType.DECODER,
                 use_irope=False, pos_encoding_mode="NONE", logit_capping_method="tanh"):
        super().__init__()
        self.tp_q_head_num, self.tp_k_head_num, self.scaling, self.layer_id = num_heads, num_kv_heads, scaling, layer_id
        self.qk_head_dim, self.v_head_dim = head_dim, head_dim if v_head_dim == -1 else v_head_dim
        self.logit_cap, self.logit_capping_method = logit_cap, logit_capping_method
        self.sliding_window_size = sliding_window_size or -1
        self.is_cross_attention, self.attn_type, self.use_irope = is_cross_attention, attn_type, use_irope
        self.pos_encoding_mode, self.xai_temperature_len = pos_encoding_mode, -1
        self.k_scale = self.v_scale = self.k_scale_float = self.v_scale_float = None


class UnquantizedKVCacheMethod:
    pass


class MHATokenToKVPool:
    is_quantized_kv_cache, kv_cache_layout = False, "nhd"

    def __init__(self, size, page_size, dtype, head_num, head_dim, layer_num, device):
        self.dtype, self.head_dim, self.quant_method = dtype, head_dim, UnquantizedKVCacheMethod()
        shape = size + page_size, head_num, head_dim
        self.k_buffer, self.v_buffer = (
            [torch.full(shape, torch.nan, device=device).to(dtype) for _ in range(layer_num)] for _ in "kv")

    def get_kv_buffer(self, layer_id):
        return self.k_buffer[layer_id], self.v_buffer[layer_id]


class SWAKVPool:
    def __init__(self, full, windows, layers, mapping):
        self.full_kv_pool, self.swa_kv_pool = full, windows
        self.layers_mapping, self.full_to_swa_index_mapping = layers, mapping

    def get_kv_buffer(self, layer_id):
        place, of_windows = self.layers_mapping[layer_id]
        return (self.swa_kv_pool if of_windows else self.full_kv_pool).get_kv_buffer(place)


class HybridLinearKVPool:
    def __init__(self, full, layers):
        self.full_kv_pool, self.layers = full, layers

    def get_kv_buffer(self, layer_id):
        return self.full_kv_pool.get_kv_buffer(self.layers.index(layer_id))


class Speculation:
    """An algorithm of speculative decoding."""

    def __init__(self, name=None):
        self.name = name

    def is_none(self):
        return self.name is None

    def is_eagle(self):
        return self.name in ("EAGLE", "EAGLE3")

    def is_standalone(self):
        return self.name == "STANDALONE"


def settings(**changes):
    """SGLang's configuration."""
    given = {"algorithm": None, "topk": None, "drafts": None, "deterministic": False, "dllm": None, "cp": 1, "dcp": 1,
             **changes}
    return types.SimpleNamespace(
        spec=types.SimpleNamespace(speculative_algorithm=given["algorithm"], speculative_eagle_topk=given["topk"],
                                   speculative_num_draft_tokens=given["drafts"]),
        exec=types.SimpleNamespace(
            deterministic=types.SimpleNamespace(enable_deterministic_inference=given["deterministic"]),
            dllm=types.SimpleNamespace(dllm_algorithm=given["dllm"])),
        parallel=types.SimpleNamespace(attn_cp_size=given["cp"], attn_dcp_size=given["dcp"]))


class Registries:
    """Backends by name, those that the command line takes, and the configuration that they see."""

    def __init__(self):
        self.backends, self.choices, self.settings = {}, ["triton"], settings()

    def register(self, name):
        def decorate(make):
            self.backends[name] = make
            return make

        return decorate

    def modules(self):
        """The members of SGLang's modules, by their names."""
        attention = "sglang.srt.layers.attention"
        return {
            "sglang": {}, "sglang.srt": {}, "sglang.srt.layers": {}, attention: {}, "sglang.srt.mem_cache": {},
            "sglang.srt.arg_groups": {},
            "sglang.srt.arg_groups.choices": {"add_attention_backend_choices": self.choices.extend},
            f"{attention}.attention_registry": {"register_attention_backend": self.register},
            f"{attention}.base_attn_backend": {"AttentionBackend": AttentionBackend},
            "sglang.srt.layers.radix_attention": {"AttentionType": AttentionType, "RadixAttention": RadixAttention},
            "sglang.srt.mem_cache.memory_pool": {"HybridLinearKVPool": HybridLinearKVPool,
                                                 "MHATokenToKVPool": MHATokenToKVPool},
            "sglang.srt.mem_cache.swa_memory_pool": {"SWAKVPool": SWAKVPool},
            "sglang.srt.runtime_context": {"get_exec": lambda: self.settings.exec,
                                           "get_parallel": lambda: self.settings.parallel,
                                           "get_spec": lambda: self.settings.spec}}


class Runner:
    """A model runner with the pools of its `layers`. If `apart`, layers with windows have a pool of their own. All
    but a few pages of the pools are for the places that requests get."""

    def __init__(self, layers, page=1, dtype=torch.bfloat16, kv=None, device="cpu", longest=700, slots=6000,
                 requests=40, apart=False, algorithm=None):
        self.device, self.page_size, self.dtype, self.kv_cache_dtype = device, page, dtype, kv or dtype
        self.model = torch.nn.ModuleList(layers)
        self.use_mla_backend = self.is_draft_worker = self.prefill_aware_swa = False
        self.model_config = types.SimpleNamespace(context_len=longest, is_encoder_decoder=False,
                                                  is_local_attention_model=False)
        self.spec_algorithm = Speculation(algorithm)
        self.kv_index_translator = types.SimpleNamespace(is_translating=False)
        self.req_to_token_pool = types.SimpleNamespace(
            size=requests, free_slots=list(range(1, requests + 1)),
            req_to_token=torch.zeros(requests + 1, longest + 3, dtype=torch.int32, device=device))
        size = slots // page * page

        def pool(of):
            return MHATokenToKVPool(size, page, self.kv_cache_dtype, of[0].tp_k_head_num, of[0].qk_head_dim, len(of),
                                    device)

        if not apart:
            self.token_to_kv_pool = pool(layers)
            return
        kinds = [[layer for layer in layers if (layer.sliding_window_size > -1) is windows]
                 for windows in (False, True)]
        places = {layer.layer_id: (place, windows)
                  for windows, of in enumerate(kinds) for place, layer in enumerate(of)}
        mapping = torch.zeros(size + page + 1, dtype=torch.int64, device=device)
        mapping[-1] = -1
        self.token_to_kv_pool = SWAKVPool(*(pool(of) for of in kinds), places, mapping)


class Batch:
    """A batch of `sequences`, pairs of new tokens and of keys with these, in rows and pages that are drawn, with
    `padding` as a graph has. Elements of the pools that no sequence has are NaN, and so is what a window has left
    in a pool of its own; entries of a row behind a sequence belong to others."""

    def __init__(self, runner, sequences, mode, seed=0, padding=0, gap=0):
        draw, page, device = random.Random(seed), runner.page_size, runner.device
        torch.manual_seed(seed)
        self.runner, self.sequences, self.mode = runner, sequences, mode
        pool, table = runner.token_to_kv_pool, runner.req_to_token_pool.req_to_token
        self.apart = isinstance(pool, SWAKVPool)
        pools = [pool.full_kv_pool, pool.swa_kv_pool] if self.apart else [pool]
        self.rows = draw.sample(range(1, len(table)), len(sequences))
        count = len(pools[0].k_buffer[0]) // page
        free, other = draw.sample(range(1, count), count - 1), draw.sample(range(1, count), count - 1)
        table[1:] = torch.randint(page, count * page, table[1:].shape, dtype=torch.int32).to(device)
        self.places = [[], []]  # in the pool, and in the one of windows
        for row, (new, keys) in zip(self.rows, sequences):
            pages, of_windows = ([each.pop() for _ in range(-(-keys // page))] for each in (free, other))
            at = torch.arange(keys)
            for kind, own in enumerate((pages, of_windows)):
                self.places[kind].append((torch.tensor(own)[at // page] * page + at % page).to(device))
            table[row, :keys] = self.places[0][-1].int()
            if self.apart:
                kept = slice(self.first_kept(keys - new), None)
                pool.full_to_swa_index_mapping[self.places[0][-1][kept]] = self.places[1][-1][kept]
        news = [new for new, _ in sequences]
        self.news, tokens = news + [news[0]] * padding, sum(news) + padding * news[0]
        verified = news[0] if mode is ForwardMode.TARGET_VERIFY else 0
        lengths = [keys - verified for _, keys in sequences] + [FILL] * padding
        self.tokens = tokens - padding * news[0]

        def long(values):
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.batch = types.SimpleNamespace(
            forward_mode=mode, batch_size=len(lengths), req_pool_indices=long(self.rows + [0] * padding),
            seq_lens=long(lengths), seq_lens_cpu=torch.tensor(lengths), encoder_lens=None, _attn_output=None,
            out_cache_loc=torch.cat([own[keys - new:] for own, (new, keys) in zip(self.places[0], sequences)] +
                                    [long([0] * (padding * news[0]))]),
            spec_info=None, multi_item_delimiter_indices=None, extend_seq_lens=None, extend_seq_lens_cpu=None)
        if mode is ForwardMode.TARGET_VERIFY:
            self.batch.spec_info = types.SimpleNamespace(tree_topk=1, draft_token_num=verified)
        elif not mode.is_decode():
            self.batch.extend_seq_lens, self.batch.extend_seq_lens_cpu = long(news).int(), news
        layer = runner.model[0]
        sizes = [heads * layer.qk_head_dim for heads in (layer.tp_q_head_num, *[layer.tp_k_head_num] * 2)]
        self.qkv = torch.randn(tokens, sum(sizes) + gap, device=device).to(runner.dtype)
        self.q, k, v = self.qkv[:, :sum(sizes)].split(sizes, 1)
        self.k, self.v = (x.unflatten(1, (-1, layer.qk_head_dim)) for x in (k, v))

    def first_kept(self, seen):
        """The first key that a pool of windows has yet; whole pages are given away."""
        window = max(layer.sliding_window_size for layer in self.runner.model)
        return max(seen - window, 0) // self.runner.page_size * self.runner.page_size

    def fill(self, layer):
        """Fills the cache of a layer with the keys and values that its sequences had before the batch."""
        for i, (new, keys) in enumerate(self.sequences):
            seen = keys - new
            kept = slice(self.first_kept(seen) if self.apart and layer.sliding_window_size > -1 else 0, seen)
            for half in self.halves(layer):
                old = torch.randn(seen, layer.tp_k_head_num, layer.qk_head_dim, device=half.device)
                half[self.places_of(layer)[i][kept]] = old[kept].to(self.runner.kv_cache_dtype).view(torch.uint8)

    def halves(self, layer):
        """The bytes of keys and of values; few operators of PyTorch take fp8."""
        return [half.view(torch.uint8) for half in self.runner.token_to_kv_pool.get_kv_buffer(layer.layer_id)]

    def places_of(self, layer):
        return self.places[int(self.apart and layer.sliding_window_size > -1)]

    def check(self, layer, before, out, sinks=None):
        """Fails unless the cache, of which `before` is a copy, has the new tokens alone, and `out` is the
        attention of each sequence."""
        scales = None
        if self.runner.kv_cache_dtype == torch.float8_e4m3fn:
            scales = layer.k_scale_float or 1.0, layer.v_scale_float or 1.0
        window = layer.sliding_window_size
        of = types.SimpleNamespace(
            heads=layer.tp_q_head_num, kv_heads=layer.tp_k_head_num, scale=layer.scaling, softcap=layer.logit_cap,
            window=window + 1 if window > -1 else None, sinks=None if sinks is None else sinks.float(), slopes=None,
            scales=scales)
        heads, last = (of.heads, layer.qk_head_dim), 0
        places = self.places_of(layer)
        for half, x, old, scale in zip(self.halves(layer), (self.k, self.v), before, scales or (1.0, 1.0)):
            token = 0
            for i, (new, keys) in enumerate(self.sequences):
                wanted = (x[token:token + new].float() / scale).to(self.runner.kv_cache_dtype)
                old[places[i][keys - new:]] = wanted.view(torch.uint8)
                token += new
            if len(self.qkv) > self.tokens:
                old[0] = half[0]  # padding goes to the place 0, which no request gets
            assert torch.equal(half, old), "the cache has other elements than the new tokens"
        for i, (new, keys) in enumerate(self.sequences):
            tokens, last = slice(last, last + new), last + new
            first = max(keys - new - window, 0) if window > -1 else 0
            there = [half[places[i][first:]].view(self.runner.kv_cache_dtype) for half in self.halves(layer)]
            wanted = attended(of, self.q[tokens].unflatten(1, heads), *there)
            tolerance = 3e-2 if scales else 1e-2
            error = (out[tokens].float().unflatten(1, heads) - wanted).abs().max().item()
            assert error < tolerance * max(wanted.abs().max().item(), 1), f"sequence {i}: {error}"

    def run(self, backend, layer, **named):
        """Fills the cache, runs the layer, checks all, and returns the result."""
        self.fill(layer)
        before = [half.clone() for half in self.halves(layer)]
        out = backend.forward(self.q, self.k, self.v, layer, self.batch, **named)
        self.check(layer, before, out, named.get("sinks"))
        return out
