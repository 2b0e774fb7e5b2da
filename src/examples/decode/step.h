#pragma once
// One decode step as a list of kernels, with the problem, the inputs and the outputs of each.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "numbers.h"
#include <kernwright/chain.h>
#include <kernwright/problem.h>

namespace decode {

/// The number of sequences that are decoded, and the layout of their keys and values.
struct DecodeShape {
  static constexpr std::int64_t kPage = 16;  ///< tokens of a page

  std::int64_t batch = 1;
  std::int64_t capacity = 0;    ///< the most tokens of a sequence that the cache holds
  std::int64_t all_tokens = 0;  ///< of all sequences at the end, at least `capacity`
  bool paged = false;           ///< the cache consists of pages, which a table names

  std::int64_t table_columns() const { return (capacity + kPage - 1) / kPage; }
  /// Returns the number of tokens that a cache has room for. Each is [kv_heads, head_dim] elements.
  std::int64_t cache_rows() const {
    return paged ? batch * table_columns() * kPage : batch * capacity;
  }
  /// Returns the row of a cache that has a token; `table` is [batch, table_columns], with pages.
  std::int64_t cache_row(const Ints& table, std::int64_t sequence, std::int64_t position) const {
    if (!paged) return sequence * capacity + position;
    const std::int64_t entry = sequence * table_columns() + position / kPage;
    return table[at(entry)] * kPage + position % kPage;
  }
};

/// One kernel of a step. Its arguments have the operation's own names (`kernwright operations
/// NAME`), in any order.
struct StepKernel {
  kw::Problem problem;
  std::vector<std::pair<std::string, kw::ChainArg>> arguments;
};

/// The memory of the tensors of a step. All are bf16, unless a comment says otherwise.
struct LayerMemory {
  kw::ChainArg input_norm = nullptr, qkv = nullptr, query_norm = nullptr, key_norm = nullptr,
               output = nullptr, inner_norm = nullptr, gate_up = nullptr, down = nullptr;
  kw::ChainArg k_cache = nullptr, v_cache = nullptr;  ///< [cache_rows, kv_heads, head_dim]
};
struct StepMemory {
  kw::ChainArg tokens = nullptr;       ///< int32 [batch]: of this step, then of the next one
  kw::ChainArg old_lengths = nullptr;  ///< int32 [batch]: tokens of a sequence before the step
  kw::ChainArg lengths = nullptr;      ///< int32 [batch]: after it; may be the same memory
  kw::ChainArg cosine = nullptr, sine = nullptr;  ///< fp32 [capacity, head_dim / 2]
  kw::ChainArg page_table = nullptr;              ///< int32 [batch, table_columns], with pages
  kw::ChainArg embedding = nullptr, final_norm = nullptr, head = nullptr;
  std::vector<LayerMemory> layers;
  // The values that pass between the kernels, [batch, ..].
  kw::ChainArg x = nullptr, between = nullptr;    ///< hidden: what layers add to, in turn
  kw::ChainArg q = nullptr, attended = nullptr;   ///< heads * head_dim
  kw::ChainArg k_new = nullptr, v_new = nullptr;  ///< kv_heads * head_dim, not yet in the cache
  kw::ChainArg inner = nullptr;                   ///< intermediate
  kw::ChainArg logits = nullptr;                  ///< fp32, vocabulary
};

/// Returns the kernels of a step in order: five for each layer, and three around the layers.
std::vector<StepKernel> decode_step(const ModelConfig& config, const DecodeShape& shape,
                                    const StepMemory& memory);

/// Returns the arguments of a step's kernel in the order in which `kernel` takes them. Errors:
/// `invalid_argument` if it takes others; scalars at the end may be left out.
kw::Result<std::vector<kw::ChainArg>> arguments_in_order(const StepKernel& step,
                                                         const kw::Kernel& kernel);

}  // namespace decode
