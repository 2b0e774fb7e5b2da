"""kernwright's attention in vLLM, as the backend CUSTOM: append to the paged cache and attention over it.

    KERNWRIGHT_PLUGINS=vllm vllm serve MODEL --attention-backend CUSTOM

A batch is divided into sequences that have equally many new tokens (decode, and verification of drafts), which
vLLM puts first, and all others (prompts and parts of them). Shared prefixes are attended to by each sequence:
cascade attention is a matter of vLLM's own backends."""

import dataclasses
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config_or_none
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl,
                                       AttentionMetadata, AttentionMetadataBuilder, AttentionType)
from vllm.v1.attention.backends.utils import split_decodes_and_prefills

from .._arrays import make_error
from ._paged import MOST_SEQUENCES, PagedAttention, Step, make_step

_FP8 = ("fp8", "fp8_e4m3")


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
    step: Step


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
        runs = [(even, of_even, of_even // even if even else None),
                (others, int(common.query_start_loc_cpu[-1]) - of_even, None)]
        return KernwrightMetadata(common.num_actual_tokens, common.max_query_len, starts, common.max_seq_len,
                                  lengths, table, common.slot_mapping,
                                  make_step(lengths, table, starts, common.max_query_len, runs))


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
        config = get_current_vllm_config_or_none()
        self._config = config
        self._most_sequences = config.scheduler_config.max_num_seqs if config is not None else MOST_SEQUENCES

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
        paged = self._paged
        if attn_metadata is None:  # vLLM looks how much memory a step takes
            if self._config is not None and self.kv_cache_dtype not in _FP8:
                page = self._config.cache_config.block_size
                columns = -(-self._config.model_config.max_model_len // page)
                # The pool is taken to have all that sequences may have.
                paged.make_ready(query, key, value, output, page, columns, 2 * columns * self._most_sequences,
                                 self._most_sequences, 1)
            return output.fill_(0)
        caches, step = self._caches(layer, kv_cache), attn_metadata.step
        first_of_all = step.parts[0][1]
        paged.make_ready(query, key, value, output, caches[0].shape[1], first_of_all.table.shape[1],
                         len(caches[0]), self._most_sequences,
                         1 if first_of_all.offsets is not None else first_of_all.q_len)
        if self.kv_sharing_target_layer_name is not None:
            key = value = None
        places = attn_metadata.slot_mapping
        if len(places) < step.tokens:
            raise make_error(f"slot_mapping has {len(places)} tokens, and {step.tokens} of the batch expected")
        paged.run(query, key, value, places, caches, output, step)
        return output

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
