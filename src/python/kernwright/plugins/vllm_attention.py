"""kernwright's attention in vLLM, as the backend CUSTOM: append to the paged cache and attention over it.

    KERNWRIGHT_PLUGINS=vllm vllm serve MODEL --attention-backend CUSTOM

A batch is divided into sequences that have equally many new tokens (decode, and verification of drafts), which
vLLM puts first, and all others (prompts and parts of them). Shared prefixes are attended to by each sequence:
cascade attention is a matter of vLLM's own backends."""

import dataclasses
import functools
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config_or_none
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl,
                                       AttentionMetadata, AttentionMetadataBuilder, AttentionType)
from vllm.v1.attention.backends.utils import split_decodes_and_prefills

from .._arrays import dtype_text, make_error
from .._service import default_service
from ._paged import PagedAttention, Sequences, bound_of

_FP8 = ("fp8", "fp8_e4m3")
#: Sequences that may be longer than this are shared out among blocks by a work list, since a kernel without one
#: has parts of a length that suits the longest.
LONGEST_WITHOUT_LIST = 4096
#: Sequences of a step up to which kernels are made ready, unless vLLM says how many there are at most.
MOST_SEQUENCES = 256
_prewarmed: Set[str] = set()  # problems with ranges


class KernwrightAttentionBackend(AttentionBackend):
    """What vLLM asks before it takes the backend. It refuses the rest by the name of the reason."""

    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", *_FP8]
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type:
        return KernwrightAttention

    @staticmethod
    def get_builder_cls() -> type:
        return KernwrightMetadataBuilder

    @classmethod
    def get_supported_kernel_block_sizes(cls, kv_cache_spec: Any = None) -> List[int]:
        return [16, 32, 64, 128]

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int,
                           cache_dtype_str: str = "auto") -> Tuple[int, ...]:
        return 2, num_blocks, block_size, num_kv_heads, head_size

    @classmethod
    def get_required_kv_cache_layout(cls) -> str:
        return "NHD"

    # Later vLLMs make the cache themselves, [pages, slots, page, content]. With keys and values as two slots a
    # token of either has all its heads side by side.

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        return dataclasses.replace(
            spec, num_head_slots=2,
            state_content_bytes=spec.num_kv_heads * spec.head_size * spec.dtype.itemsize)

    @classmethod
    def supported_kv_cache_layouts(cls) -> Tuple[Any, ...]:
        from vllm.v1.kv_cache_interface import KVCacheLayout
        return KVCacheLayout.LBNHC, KVCacheLayout.LHBNC

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size % 8 == 0 and head_size <= 256

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return capability.major >= 8

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Optional[str],
                             *_: Any, **__: Any) -> Optional[str]:
        if kv_cache_dtype in _FP8 and head_size % 16 != 0:
            return f"an fp8 cache with heads of {head_size}, no multiple of 16, not supported"
        if kv_cache_dtype in ("float16", "bfloat16") and str(dtype) != f"torch.{kv_cache_dtype}":
            return f"a cache of {kv_cache_dtype} beside {dtype} not supported"
        return None


@dataclasses.dataclass
class KernwrightMetadata(AttentionMetadata):
    """One step of one group of layers. The fields that are not ours have vLLM's names."""
    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_seq_len: int
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    new: Sequences  # all of them
    parts: Tuple[Tuple[int, Sequences], ...]  # with the first token of each part
    lists: Dict[Optional[int], Tensor]  # of the first part, by window


class KernwrightMetadataBuilder(AttentionMetadataBuilder):
    """Makes metadata from what the host knows, and from tensors that stay on the GPU."""

    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)

    def build(self, common_prefix_len: int, common_attn_metadata: Any,
              fast_build: bool = False) -> KernwrightMetadata:
        common = common_attn_metadata
        if not common.causal:
            raise make_error("attention that is not causal is asked for, and causal expected; take another "
                             "attention backend than CUSTOM")
        even, others, of_even, _ = split_decodes_and_prefills(
            common, self.reorder_batch_threshold, require_uniform=True)
        if even and of_even % even:
            even, others, of_even = 0, common.num_reqs, 0
        starts, lengths, table = common.query_start_loc, common.seq_lens, common.block_table_tensor
        parts: List[Tuple[int, Sequences]] = []
        if even:
            parts.append((0, Sequences(of_even, of_even // even, lengths[:even], table[:even])))
        if others:
            tokens = int(common.query_start_loc_cpu[-1])
            bound = functools.partial(bound_of, common.max_query_len)
            new = Sequences(tokens, bound(tokens, len(lengths)), lengths, table, starts)
            if even:
                own = tokens - of_even
                parts.append((of_even, Sequences(own, bound(own, others), lengths[even:], table[even:],
                                                 starts[even:] - of_even)))
            else:
                parts.append((0, new))
        else:
            new = parts[0][1]
        return KernwrightMetadata(common.num_actual_tokens, common.max_query_len, starts, common.max_seq_len,
                                  lengths, table, common.slot_mapping, new, tuple(parts), {})


class KernwrightAttention(AttentionImpl):
    """The attention of one layer."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: Optional[int] = None,
                 alibi_slopes: Optional[List[float]] = None, sliding_window: Optional[int] = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: Optional[float] = None,
                 attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: Optional[str] = None,
                 sinks: Optional[Tensor] = None) -> None:
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attention of the type {attn_type}")
        if self.total_cp_world_size > 1:
            raise NotImplementedError("context parallelism")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype, self.sinks, self.alibi_slopes = kv_cache_dtype, sinks, alibi_slopes
        self.sliding_window, self.logits_soft_cap = sliding_window, logits_soft_cap
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self._paged = PagedAttention(num_heads, self.num_kv_heads, head_size, self.scale, sliding_window,
                                     logits_soft_cap)
        self._config = get_current_vllm_config_or_none()
        self._ready: Set[Tuple[Any, ...]] = set()

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is not None:
            self._paged.sinks = self.sinks.float().contiguous()
        if self.alibi_slopes is not None:
            self._paged.slopes = torch.tensor(self.alibi_slopes, dtype=torch.float32,
                                              device=torch.cuda.current_device())

    def forward(self, layer: Any, query: Tensor, key: Optional[Tensor], value: Optional[Tensor],
                kv_cache: Tensor, attn_metadata: Optional[KernwrightMetadata], output: Tensor,
                output_scale: Optional[Tensor] = None,
                output_block_scale: Optional[Tensor] = None) -> Tensor:
        """query, output: [tokens, heads, head_dim], key and value with kv_heads, or None if the cache has
        them; kv_cache: [2, pages, page, kv_heads, head_dim], or [pages, 2, page, kv_heads * head_dim]. Tokens
        behind those of the metadata are padding."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("a quantized result of attention")
        if attn_metadata is None:  # vLLM looks how much memory a step takes
            if self._config is not None and self.kv_cache_dtype not in _FP8:
                page = self._config.cache_config.block_size
                self._make_ready(query, key, value, output, page,
                                 -(-self._config.model_config.max_model_len // page), 1)
            return output.fill_(0)
        paged, caches = self._paged, self._caches(layer, kv_cache)
        first_of_all = attn_metadata.parts[0][1]
        self._make_ready(query, key, value, output, caches[0].shape[1], first_of_all.table.shape[1],
                         1 if first_of_all.offsets is not None else first_of_all.q_len, len(caches[0]))
        if key is not None and self.kv_sharing_target_layer_name is None:
            paged.append(key, value, caches, attn_metadata.new)
        for first, of in attn_metadata.parts:
            paged.attend(query[first:], caches, output[first:], of, self._list(of, caches, attn_metadata))
        return output

    def _make_ready(self, query: Tensor, key: Optional[Tensor], value: Optional[Tensor], output: Tensor,
                    page: int, columns: int, queries: int, pages: Optional[int] = None) -> None:
        """Gets the kernels for all sizes into memory, unless they are there. The pool is taken to have all that
        sequences may have, unless its `pages` are known."""
        pitches = (query.stride(0), *(x.stride(0) if x is not None else self.num_kv_heads * self.head_size
                                      for x in (key, value)), output.stride(0))
        known = pitches, page, columns, queries, pages
        if known in self._ready:
            return
        self._ready.add(known)
        most = self._config.scheduler_config.max_num_seqs if self._config is not None else MOST_SEQUENCES
        slots = _slots(self.num_kv_heads) if columns * page > LONGEST_WITHOUT_LIST else None
        problems = self._paged.problems(dtype_text(query.dtype) or "", page, columns,
                                        pages or 2 * columns * most, pitches, most, queries, slots)
        missing = [problem for problem in problems if problem not in _prewarmed]
        _prewarmed.update(missing)
        if missing:
            default_service().prewarm(missing)

    def _caches(self, layer: Any, kv_cache: Tensor) -> Tuple[Tensor, Tensor]:
        if self.kv_cache_dtype in _FP8:
            if getattr(layer, "calculate_kv_scales", False):
                raise NotImplementedError("scales of the cache that are computed while it runs")
            self._paged.scales = layer._k_scale_float, layer._v_scale_float
            kv_cache = kv_cache.view(torch.float8_e4m3fn)
        if kv_cache.dim() == 4:
            kv_cache = kv_cache.unflatten(-1, (self.num_kv_heads, self.head_size)).transpose(0, 1)
        keys, values = kv_cache.unbind(0)
        return keys, values

    def _list(self, of: Sequences, caches: Tuple[Tensor, Tensor],
              metadata: KernwrightMetadata) -> Optional[Tensor]:
        """Returns the work list of sequences with equally many queries, which the first layer makes, in a
        captured graph too; None if all are short."""
        page = caches[0].shape[1]
        if of.offsets is not None or of.table.shape[1] * page <= LONGEST_WITHOUT_LIST:
            return None
        window = self._paged.window
        if window not in metadata.lists:
            metadata.lists[window] = self._paged.schedule(of, _slots(self.num_kv_heads), page)
        return metadata.lists[window]


@functools.lru_cache(maxsize=None)
def _slots(kv_heads: int) -> int:
    """Returns as many slots as blocks run at once, two on a multiprocessor, for each head of k."""
    count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return max(2 * count // kv_heads, 1)
