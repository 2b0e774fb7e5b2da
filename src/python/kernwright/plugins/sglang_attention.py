"""kernwright's attention in SGLang, as the backend `kernwright`: append to its pool of keys and values, and
attention over it.

    KERNWRIGHT_PLUGINS=sglang python -m sglang.launch_server --model-path MODEL --attention-backend kernwright

A row of SGLang's `req_to_token` has the place of each token of a request. With pages of one token this is the table
that attention reads; the pages of longer ones, and of windows in a pool of their own, are copied from it on the
GPU. New tokens go to the places of `out_cache_loc`. Prompts or parts of them, and requests that have equally many
new tokens since they decode or verify drafts, are attended to apart."""

import dataclasses
from typing import Any, Dict, List, Optional, Tuple

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, MHATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec
from torch import Tensor

from .._arrays import make_error
from ._paged import PagedAttention, Step, make_step
from .sglang import BACKEND, is_deterministic


def make_backend(runner: Any) -> AttentionBackend:
    """Returns the backend of a model runner. Errors: NotImplementedError with all that it does not know."""
    reasons = list(dict.fromkeys([*_reasons_against(runner), *(
        reason for layer in runner.model.modules() if isinstance(layer, RadixAttention)
        for reason in _reasons_against_layer(layer))]))
    if reasons:
        raise NotImplementedError(f"--attention-backend {BACKEND} does not know {', '.join(reasons)}; take another "
                                  "attention backend")
    return KernwrightAttentionBackend(runner)


def _reasons_against(runner: Any) -> List[str]:
    speculation, parallel, settings = runner.spec_algorithm, get_parallel(), get_spec()
    tops = settings.speculative_eagle_topk or 1
    chains = speculation.is_none() or speculation.is_eagle() or speculation.is_standalone()
    found = [reason for known, reason in (
        (not runner.use_mla_backend, "latent attention (MLA)"),
        (not runner.model_config.is_encoder_decoder, "attention to an encoder"),
        (not runner.model_config.is_local_attention_model, "attention within chunks"),
        (not runner.prefill_aware_swa, "sliding windows that leave prompts out"),
        (not runner.is_draft_worker, "a draft model, for which --speculative-draft-attention-backend names another"),
        (chains, f"speculation by {settings.speculative_algorithm}"),
        (speculation.is_none() or tops == 1, f"trees of drafts (--speculative-eagle-topk {tops})"),
        (get_exec().dllm.dllm_algorithm is None, "diffusion"),
        (not is_deterministic(), "results that do not depend on the batch"),
        (parallel.attn_cp_size == parallel.attn_dcp_size == 1, "context parallelism"),
        (not runner.kv_index_translator.is_translating, "a unified memory pool"),
        (0 not in runner.req_to_token_pool.free_slots, "a pool of requests whose row 0 is not for padding"),
        (runner.dtype in (torch.float16, torch.bfloat16), f"{runner.dtype}")) if not known]
    pool = runner.token_to_kv_pool
    if type(pool) is SWAKVPool:
        inner = [pool.full_kv_pool, pool.swa_kv_pool]
    else:
        inner = [pool.full_kv_pool if type(pool) is HybridLinearKVPool else pool]
    for one in inner:
        if type(one) is not MHATokenToKVPool:
            found.append(f"a cache of the type {type(one).__name__}")
        elif one.kv_cache_layout != "nhd" or one.is_quantized_kv_cache:
            found.append(f"a cache in the layout {one.kv_cache_layout} with the method "
                         f"{type(one.quant_method).__name__}")
        elif one.dtype not in (runner.dtype, torch.float8_e4m3fn):
            found.append(f"a cache of {one.dtype} beside {runner.dtype}")
        elif one.dtype != runner.dtype and one.head_dim % 16 != 0:
            found.append(f"an fp8 cache with heads of {one.head_dim}, no multiple of 16")
    return found


def _reasons_against_layer(layer: Any) -> List[str]:
    dim = layer.qk_head_dim
    return [reason for known, reason in (
        (layer.attn_type == AttentionType.DECODER, f"attention of the type {layer.attn_type.value}"),
        (not layer.is_cross_attention, "cross attention"),
        (not layer.use_irope, "attention within chunks"),
        (layer.v_head_dim == dim, f"heads of {dim} with values of {layer.v_head_dim}"),
        (dim % 8 == 0 and dim <= 256, f"heads of {dim}"),
        (not layer.logit_cap > 0 or layer.logit_capping_method == "tanh", f"caps by {layer.logit_capping_method}"),
        (layer.pos_encoding_mode == "NONE", f"positions by {layer.pos_encoding_mode}"),
        (not layer.xai_temperature_len > 0, "temperatures of positions")) if not known]


@dataclasses.dataclass
class Metadata:
    """A step with the table of a pool; if windows have a pool of their own, also with its table, and the places of
    new tokens in it with the layer that looked them up."""
    lengths: Tensor
    tables: Tuple[Tensor, ...]  # the rows of requests if pages have one token, or their pages; the pages of windows
    full: Step
    windows: Optional[Step]
    places: Tuple[Optional[PagedAttention], Optional[Tensor]] = (None, None)


class KernwrightAttentionBackend(AttentionBackend):
    """Makes metadata from what the host knows, and from tensors that stay on the GPU. A CUDA graph reads it from
    the buffers that the graph was captured with, which are filled before each replay."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.device, self.max_context_len = runner.device, runner.model_config.context_len
        self.req_to_token_pool, self.token_to_kv_pool = runner.req_to_token_pool, runner.token_to_kv_pool
        self.kv_index_translator = runner.kv_index_translator
        # The host knows lengths by itself unless drafts are accepted on the GPU, for which it would have to wait.
        self.needs_cpu_seq_lens = runner.spec_algorithm.is_none()
        self.forward_metadata: Optional[Metadata] = None
        self._page = runner.page_size
        self._requests = self.req_to_token_pool.req_to_token
        self._columns = -(-self._requests.shape[1] // self._page)
        self._most_queries = get_spec().speculative_num_draft_tokens or 1
        self._layers: Dict[Any, PagedAttention] = {}
        self._buffers: Tuple[Tensor, ...] = ()  # of graphs: lengths and tables
        self._captured: Dict[Tuple[int, int], Metadata] = {}  # by sequences, and tokens of each

    def init_forward_metadata(self, forward_batch: Any) -> None:
        count = forward_batch.batch_size
        self.forward_metadata = None
        if not forward_batch.forward_mode.is_idle() and count:
            new = _tokens_of_each(forward_batch)
            self.forward_metadata = self._make(self._make_buffers(count), forward_batch, new)
            self._fill(self.forward_metadata, forward_batch, new)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        if not self._buffers or len(self._buffers[0]) < max_bs:
            self._buffers = self._make_buffers(max_bs)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        new, count = _tokens_of_each(forward_batch), forward_batch.batch_size
        if new is None:
            raise NotImplementedError(f"a CUDA graph of {forward_batch.forward_mode.name}")
        if in_capture and (count, new) not in self._captured:
            if not self._buffers or len(self._buffers[0]) < count:
                raise make_error(f"a graph of {count} sequences is captured, and at most "
                                 f"{len(self._buffers[0]) if self._buffers else 0} expected")
            self._captured[count, new] = self._make(self._buffers, forward_batch, new)
        self.forward_metadata = self._captured[count, new]
        self._fill(self.forward_metadata, forward_batch, new)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def update_verify_buffers_to_fill_after_draft(self, spec_info: Any, cuda_graph_bs: Optional[int]) -> None:
        """Does nothing: drafts in a chain need neither a mask nor positions."""

    def forward_decode(self, q: Tensor, k: Optional[Tensor], v: Optional[Tensor], layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **named: Any) -> Tensor:
        return self._attend(q, k, v, layer, forward_batch, None, save_kv_cache, **named)

    def forward_extend(self, q: Tensor, k: Optional[Tensor], v: Optional[Tensor], layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **named: Any) -> Tensor:
        return self._attend(q, k, v, layer, forward_batch, getattr(forward_batch, "_attn_output", None), save_kv_cache,
                            **named)

    def _make_buffers(self, count: int) -> Tuple[Tensor, ...]:
        """Returns lengths of so many sequences, and their rows or tables. A table has columns for the longest
        sequence, which are read as far as the lengths say."""
        shapes = [(count, self._columns)] * (2 if type(self.token_to_kv_pool) is SWAKVPool else 1)
        if self._page == 1:
            shapes[0] = (count,)
        return (torch.zeros(count, dtype=torch.int32, device=self.device),
                *(torch.empty(shape, dtype=torch.int32, device=self.device) for shape in shapes))

    def _make(self, buffers: Tuple[Tensor, ...], batch: Any, new: Optional[int]) -> Metadata:
        """Returns metadata of a batch that reads the buffers."""
        count, starts, longest = batch.batch_size, None, new or 0
        if new is not None:
            runs = [(count, count * new, new)]
        else:
            news = batch.extend_seq_lens_cpu
            decoding = next((i for i, one in enumerate(reversed(news)) if one != 1), count)
            tokens, longest = sum(news) - decoding, max(news)
            runs = [(count - decoding, tokens, None), (decoding, decoding, 1)]
            starts = torch.zeros(count + 1, dtype=torch.int32, device=self.device)
            torch.cumsum(batch.extend_seq_lens[:count], 0, dtype=torch.int32, out=starts[1:])
        lengths, *tables = (each[:count] for each in buffers)
        full, *windows = (make_step(lengths, self._requests, starts, longest, runs, table) if table.dim() == 1 else
                          make_step(lengths, table, starts, longest, runs) for table in tables)
        return Metadata(lengths, tuple(tables), full, windows[0] if windows else None)

    def _fill(self, metadata: Metadata, batch: Any, new: Optional[int]) -> None:
        """Writes the lengths, and the rows or tables, of a batch. Row 0 belongs to padding, which gets the length
        0."""
        lengths, (table, *of_windows) = metadata.lengths, metadata.tables
        rows, known = batch.req_pool_indices[:len(lengths)], batch.seq_lens[:len(lengths)]
        drafts = (new or 0) if batch.forward_mode.is_target_verify() else 0
        if new is None:
            lengths.copy_(known)
        else:
            torch.mul(known + drafts, rows > 0, out=lengths)
        used = self._columns
        if self.needs_cpu_seq_lens and batch.seq_lens_cpu is not None:
            longest = int(batch.seq_lens_cpu.max())
            used = -(-longest // self._page)
            if used > self._columns:
                raise make_error(f"a sequence has {longest} tokens, and at most {self._columns * self._page} expected")
        if self._page == 1:
            table.copy_(rows)
            if not of_windows:
                return
        firsts = self._requests[:, :used * self._page:self._page].index_select(0, rows)
        if self._page > 1:
            table[:, :used] = firsts.div(self._page, rounding_mode="floor")
        if of_windows:
            places = self.token_to_kv_pool.full_to_swa_index_mapping[firsts.long()]
            of_windows[0][:, :used] = places.div_(self._page, rounding_mode="floor")

    def _attend(self, q: Tensor, k: Optional[Tensor], v: Optional[Tensor], layer: Any, batch: Any,
                out: Optional[Tensor], save: bool, sinks: Optional[Tensor] = None, **named: Any) -> Tensor:
        """q: [tokens, heads * head_dim], k and v with kv_heads, or None if the cache has them. Returns the
        attention, in `out` if there is one. Tokens behind the batch are padding."""
        others = [name for name, value in named.items() if value is not None and value is not False]
        if others:
            raise NotImplementedError(f"attention with {', '.join(others)}")
        if self.forward_metadata is None:
            raise make_error("the metadata of the batch is missing")
        paged, pool = self._paged(layer), self.token_to_kv_pool
        step, places = self.forward_metadata.full, batch.out_cache_loc
        if self.forward_metadata.windows is not None and pool.layers_mapping[layer.layer_id][1]:
            step, places = self.forward_metadata.windows, self._places_of_windows(paged, places, self.forward_metadata)
        caches = tuple(half[:len(half) // self._page * self._page].unflatten(0, (-1, self._page))
                       for half in pool.get_kv_buffer(layer.layer_id))
        q = q.reshape(-1, paged.heads, paged.head_dim)
        if k is not None and v is not None:
            k, v = (x.reshape(-1, paged.kv_heads, paged.head_dim) for x in (k, v))
        for name, x in (("q", q), ("k", k), ("v", v), ("out_cache_loc", places)):
            if x is not None and len(x) < step.tokens:
                raise make_error(f"{name} has {len(x)} tokens, and {step.tokens} of the batch expected")
        result = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out.view(q.shape)
        paged.sinks = None if sinks is None else sinks.float()  # each time, since weights may be changed in place
        paged.scales = (_scale(layer, "k"), _scale(layer, "v")) if caches[0].dtype == torch.float8_e4m3fn else None
        paged.make_ready(q, k, v, result, self._page, self._columns, len(caches[0]), self.req_to_token_pool.size,
                         self._most_queries, None if step.parts[0][1].table_rows is None else len(self._requests))
        paged.run(q, k if save else None, v, places, caches, result, step)
        return result.flatten(1)

    def _places_of_windows(self, paged: PagedAttention, places: Tensor, metadata: Metadata) -> Tensor:
        """Returns the places of new tokens in the pool of windows, which the first layer of each run looks up, in a
        captured graph too."""
        maker, found = metadata.places
        if found is None or maker is paged:
            found = self.token_to_kv_pool.full_to_swa_index_mapping[places]
            metadata.places = paged, found
        return found

    def _paged(self, layer: Any) -> PagedAttention:
        found = self._layers.get(layer)
        if found is None:
            reasons = _reasons_against_layer(layer)  # models change layers that they have made
            if reasons:
                raise NotImplementedError(", ".join(reasons))
            # SGLang's windows do not count the token itself.
            window = layer.sliding_window_size
            found = self._layers[layer] = PagedAttention(
                layer.tp_q_head_num, layer.tp_k_head_num, layer.qk_head_dim, float(layer.scaling),
                window + 1 if window is not None and window > -1 else None, max(layer.logit_cap, 0.0) or None)
        return found


def _tokens_of_each(batch: Any) -> Optional[int]:
    """Returns how many new tokens each sequence of a batch has, None if they differ. Errors: NotImplementedError
    if the batch is of a kind that is not known."""
    mode, given = batch.forward_mode, batch.spec_info
    if mode.is_draft_extend_v2() or mode.is_dllm_extend():
        raise NotImplementedError(f"a batch of {mode.name}")
    for name in ("encoder_lens", "multi_item_delimiter_indices"):
        if getattr(batch, name, None) is not None:
            raise NotImplementedError(f"a batch with {name}")
    if mode.is_decode_or_idle():
        return 1
    if not mode.is_target_verify():
        return None
    if getattr(given, "tree_topk", None) != 1 or getattr(given, "ragged_verify_layout", None) is not None:
        raise NotImplementedError(f"drafts of {type(given).__name__} that are no chains of one length")
    return int(given.draft_token_num)


def _scale(layer: Any, name: str) -> float:
    """Returns what a layer's fp8 keys or values are multiplied by, 1 if it has no scale."""
    scale, number = getattr(layer, f"{name}_scale"), getattr(layer, f"{name}_scale_float")
    if number is None:
        number = 1.0 if scale is None else scale
    if not isinstance(number, float):
        raise make_error(f"{name}_scale of layer {layer.layer_id} is a {type(number).__name__}, and a number expected")
    return number
