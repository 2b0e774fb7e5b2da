#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace kernwright {

/// Few rows in which every value of every column meets every value of every other column. A row is
/// built around the first pair that is still missing: each other column takes the value that adds
/// most pairs, of equal ones that which was taken least often. Columns with the most values come
/// first, so that the number of rows stays near the product of the two largest.
inline std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& sizes) {
  const std::size_t columns = sizes.size();
  std::vector<std::vector<std::size_t>> start(columns, std::vector<std::size_t>(columns));
  std::size_t count = 0;
  for (std::size_t b = 0; b < columns; ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      start[a][b] = count;
      count += static_cast<std::size_t>(sizes[a]) * static_cast<std::size_t>(sizes[b]);
    }
  }
  std::vector<bool> met(count);
  const auto pair = [&](std::size_t a, int value, std::size_t b, int other) {
    if (a > b) {
      std::swap(a, b);
      std::swap(value, other);
    }
    return start[a][b] + static_cast<std::size_t>(value * sizes[b] + other);
  };

  std::vector<std::vector<int>> rows;
  std::vector<std::vector<int>> taken(columns);
  for (std::size_t a = 0; a < columns; ++a) taken[a].resize(static_cast<std::size_t>(sizes[a]));
  const auto complete = [&](std::vector<int> row) {
    for (std::size_t column = 0; column < columns; ++column) {
      if (row[column] >= 0) continue;
      int best = 0;
      int best_gain = -1;
      for (int value = 0; value < sizes[column]; ++value) {
        int gain = 0;
        for (std::size_t other = 0; other < columns; ++other) {
          if (other != column && row[other] >= 0 && !met[pair(column, value, other, row[other])]) {
            ++gain;
          }
        }
        const auto& times = taken[column];
        if (gain > best_gain || (gain == best_gain && times[static_cast<std::size_t>(value)] <
                                                          times[static_cast<std::size_t>(best)])) {
          best = value;
          best_gain = gain;
        }
      }
      row[column] = best;
    }
    for (std::size_t b = 0; b < columns; ++b) {
      ++taken[b][static_cast<std::size_t>(row[b])];
      for (std::size_t a = 0; a < b; ++a) met[pair(a, row[a], b, row[b])] = true;
    }
    rows.push_back(std::move(row));
  };
  for (std::size_t b = 0; b < columns; ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      for (int value = 0; value < sizes[a]; ++value) {
        for (int other = 0; other < sizes[b]; ++other) {
          if (met[pair(a, value, b, other)]) continue;
          std::vector<int> row(columns, -1);
          row[a] = value;
          row[b] = other;
          complete(std::move(row));
        }
      }
    }
  }
  return rows;
}

/// Pages of a size, 0 for a contiguous cache, and the table that names them.
struct AttentionPages {
  int page;
  char kind;  ///< plain, apart (rows), given (rows, and apart), list

  /// Returns what a problem of `batch` sequences with so many pages at most says of the table.
  std::string table(int batch, int columns) const {
    if (kind == 'l') return " table=list";
    if (kind == 'p') return "";
    const std::string rows =
        kind == 'g' ? concat(" table_rows=given table_sequences=", batch + 2) : "";
    return concat(rows, " ld_table=", columns + 3);
  }
};

/// The values that problems of attention are made of.
struct AttentionLists {
  std::vector<int> head_dims;  ///< of k; the head dims of v are around them
  std::vector<int> q_lengths;
  std::vector<int> kv_lengths;
  std::vector<const char*> dtypes;
  std::vector<const char*> descales;
  int vector;  ///< elements of 16 bytes
};

/// Returns problems in which any two of these meet: head dims of k, six relations of v's head dim
/// to it, lengths, groups, masks with windows around the tiles, pages smaller than tiles, and every
/// value of every flag and dtype. If a value has no meaning, such as unequal lengths with
/// lengths=full, the problem is as if it were not there.
inline std::vector<std::string> attention_problems_of(const AttentionLists& lists) {
  constexpr std::array<const char*, 8> masks{"none",
                                             "causal",
                                             "window window=1",
                                             "window window=17",
                                             "window window=64",
                                             "window window=65",
                                             "window window=128",
                                             "window window=300"};
  constexpr std::array<AttentionPages, 8> pages{
      {{0, 'p'}, {1, 'g'}, {1, 'l'}, {8, 'a'}, {16, 'p'}, {24, 'g'}, {64, 'l'}, {128, 'p'}}};
  constexpr std::array<int, 5> groups{1, 7, 8, 14, 16};
  enum Column {
    kHeadDim,
    kQueries,
    kKeys,
    kMask,
    kPage,
    kValues,
    kGroup,
    kKvHeads,
    kBatch,
    kLengths,
    kTotals,
    kPitches,
    kLse,
    kLayout,
    kDtype,
    kSoftcap,
    kBias,
    kSink,
    kInvariant,
    kSchedule,
    kDescale
  };
  const auto count = [](const auto& list) { return static_cast<int>(list.size()); };
  const std::vector<int> sizes{count(lists.head_dims),
                               count(lists.q_lengths),
                               count(lists.kv_lengths),
                               8,
                               8,
                               6,
                               5,
                               3,
                               3,
                               3,
                               3,
                               3,
                               3,
                               2,
                               count(lists.dtypes),
                               2,
                               2,
                               2,
                               2,
                               2,
                               count(lists.descales)};
  const int vector = lists.vector;

  std::vector<std::string> problems;
  for (const std::vector<int>& row : pairwise_rows(sizes)) {
    const auto index = [&](Column column) { return static_cast<std::size_t>(row[column]); };
    const int head_dim = lists.head_dims[index(kHeadDim)];
    const std::array<int, 6> values{head_dim,
                                    head_dim < 256 ? head_dim + vector : head_dim - vector,
                                    head_dim > 64 ? head_dim - vector : head_dim + 2 * vector,
                                    64,
                                    128,
                                    256};
    const int head_dim_v = values[index(kValues)];
    const int kv_heads = 1 + row[kKvHeads];
    const int heads = kv_heads * groups[index(kGroup)];
    const int batch = 1 + row[kBatch];
    const int q_len = lists.q_lengths[index(kQueries)];
    const int kv_len = lists.kv_lengths[index(kKeys)];
    const int page = pages[index(kPage)].page;
    constexpr std::array<std::string_view, 3> lengths{"full", "kv", "ragged"};
    constexpr std::array<std::string_view, 3> lse{"none", "natural", "base2"};

    std::string text = concat("attention batch=", batch, " heads=", heads, " kv_heads=", kv_heads,
                              " q_len=", q_len, " kv_len=", kv_len, " head_dim=", head_dim,
                              " head_dim_v=", head_dim_v);
    // All sequences alike, some longer than others, or one with nearly all tokens.
    const auto total = [&](int longest) {
      const int shares = row[kTotals] == 0 ? 2 * batch : row[kTotals] == 1 ? batch + 1 : 2;
      return longest * shares / 2;
    };
    if (row[kLengths] > 0) text += concat(" kv_total=", total(kv_len));
    if (row[kLengths] == 2) text += concat(" q_total=", total(q_len));
    if (page > 0) text += concat(" cache=paged page=", page);
    if (page > 0) {
      const int columns = (kv_len + page - 1) / page;
      if (row[kPitches] == 2) text += concat(" pages=", batch * columns + 5);
      text += pages[index(kPage)].table(batch, columns);
    }
    const bool scheduled = row[kSchedule] == 1 && row[kLengths] > 0;
    if (scheduled) text += concat(" slots=", 1 + 5 * row[kTotals] + row[kPitches]);
    const bool heads_inside = row[kLayout] == 0;
    const int q_width = heads_inside ? heads * head_dim : head_dim;
    const int k_width = heads_inside ? kv_heads * head_dim : head_dim;
    const int v_width = heads_inside ? kv_heads * head_dim_v : head_dim_v;
    if (row[kPitches] == 1) {
      text += concat(" ldq=", q_width + vector, " ldk=", k_width + 2 * vector,
                     " ldv=", v_width + 3 * vector,
                     " ldo=", (heads_inside ? heads * head_dim_v : head_dim_v) + 5 * vector);
    } else if (row[kPitches] == 2) {  // q, k and v of one product
      const int all = q_width + k_width + v_width;
      text += concat(" ldq=", all, " ldk=", all, " ldv=", all);
    }
    text +=
        concat(" dtype=", lists.dtypes[index(kDtype)], " descale=", lists.descales[index(kDescale)],
               " layout=", heads_inside ? "bshd" : "bhsd", " lengths=", lengths[index(kLengths)],
               " mask=", masks[index(kMask)], " softcap=", row[kSoftcap] == 0 ? "none" : "tanh",
               " bias=", row[kBias] == 0 ? "none" : "alibi",
               " sink=", row[kSink] == 0 ? "none" : "head", " lse=", lse[index(kLse)],
               " invariant=", row[kInvariant] == 0 || scheduled ? "none" : "batch",
               " schedule=", scheduled ? "given" : "none");
    problems.push_back(std::move(text));
  }
  return problems;
}

/// Returns the problems of 16 bits: 25 head dims and lengths around the tiles.
inline std::vector<std::string> attention_problems() {
  AttentionLists lists{{},
                       {1, 2, 3, 4, 9, 16, 17, 63, 64, 65, 127, 128, 129, 300},
                       {1, 15, 63, 64, 65, 127, 128, 129, 257, 300, 577, 1001, 1501, 2099},
                       {"bf16", "fp16"},
                       {"none"},
                       8};
  for (int head_dim = 64; head_dim <= 256; head_dim += 8) lists.head_dims.push_back(head_dim);
  return attention_problems_of(lists);
}

/// Returns the problems of fp8 keys and values: fewer, since what does not depend on the dtype is
/// tested above.
inline std::vector<std::string> attention_fp8_problems() {
  return attention_problems_of(
      {{64, 80, 96, 128, 144, 192, 256},
       {1, 2, 3, 9, 16, 65, 129, 300},
       {1, 15, 64, 129, 300, 1001, 2099},
       {"bf16 kv=fp8_e4m3", "fp16 kv=fp8_e4m3", "fp8_e4m3 out=bf16", "fp8_e4m3 out=fp16"},
       {"none", "tensor", "head"},
       16});
}

/// Returns the problems with a new token of each sequence, which only Hopper has a kernel for.
inline std::vector<std::string> attention_append_problems() {
  constexpr std::array<int, 7> head_dims{16, 64, 80, 96, 128, 192, 256};
  constexpr std::array<int, 6> kv_lengths{1, 17, 129, 544, 1001, 2099};
  constexpr std::array<int, 6> pages{0, 1, 16, 32, 64, 128};  // 0: contiguous
  constexpr std::array<int, 6> groups{1, 2, 4, 7, 8, 16};
  constexpr std::array<const char*, 3> masks{"none", "causal", "window window=65"};
  enum Column {
    kHeadDim,
    kKeys,
    kPage,
    kGroup,
    kAppend,
    kValues,
    kMask,
    kBatch,
    kTotals,
    kPitches,
    kLayout,
    kDtype,
    kSink,
    kInvariant
  };
  std::vector<std::string> problems;
  for (const std::vector<int>& row : pairwise_rows({7, 6, 6, 6, 4, 3, 3, 3, 2, 2, 2, 2, 2, 2})) {
    const auto index = [&](Column column) { return static_cast<std::size_t>(row[column]); };
    const int head_dim = head_dims[index(kHeadDim)];
    const int head_dim_v = row[kValues] == 0 ? head_dim : row[kValues] == 1 ? 64 : head_dim + 8;
    const int kv_heads = 1 + row[kLayout];
    const int heads = kv_heads * groups[index(kGroup)];
    const int batch = 1 + 2 * row[kBatch];
    const int kv_len = kv_lengths[index(kKeys)];
    const int total = row[kTotals] == 0 ? kv_len * batch : (kv_len * (batch + 1) + 1) / 2;
    const int page = pages[index(kPage)];
    const bool heads_inside = row[kLayout] == 0;
    std::string text = concat("attention batch=", batch, " heads=", heads, " kv_heads=", kv_heads,
                              " q_len=1 kv_len=", kv_len, " head_dim=", head_dim,
                              " head_dim_v=", std::min(head_dim_v, 256), " kv_total=", total);
    if (page > 0) text += concat(" cache=paged page=", page);
    if (page > 0 && row[kTotals] == 1) {
      text += AttentionPages{page, 'g'}.table(batch, (kv_len + page - 1) / page);
    }
    if (row[kPitches] == 1) {  // q, k and v of one product
      const int all = (heads + 2 * kv_heads) * (head_dim + head_dim_v);
      text += concat(" ldq=", all, " ldk_new=", all, " ldv_new=", all);
    }
    text += concat(
        " dtype=", row[kDtype] == 0 ? "bf16" : "fp16", " layout=", heads_inside ? "bshd" : "bhsd",
        " lengths=kv mask=", masks[index(kMask)], " sink=", row[kSink] == 0 ? "none" : "head",
        " invariant=", row[kInvariant] == 0 ? "none" : "batch",
        " append=", row[kAppend] % 2 == 0 ? "rope" : "norm_rope",
        " pairs=", row[kAppend] < 2 ? "halves" : "neighbours");
    problems.push_back(std::move(text));
  }
  return problems;
}

/// Returns the problems with masks and biases of any kind, whose tensors share entries and lie
/// anywhere.
inline std::vector<std::string> attention_bias_problems() {
  constexpr std::array<int, 6> head_dims{64, 80, 96, 128, 192, 256};
  constexpr std::array<int, 7> q_lengths{1, 2, 9, 64, 65, 129, 300};
  constexpr std::array<int, 7> kv_lengths{1, 17, 64, 129, 304, 577, 1001};
  constexpr std::array<const char*, 5> biases{"none", "alibi", "boolean", "additive",
                                              "additive bias_dtype=fp32"};
  constexpr std::array<const char*, 4> masks{"none", "causal", "causal_first", "window window=65"};
  constexpr std::array<const char*, 4> dtypes{"bf16", "fp16", "bf16 kv=fp8_e4m3",
                                              "fp8_e4m3 out=bf16"};
  constexpr std::array<AttentionPages, 4> pages{{{0, 'p'}, {1, 'g'}, {24, 'l'}, {64, 'p'}}};
  constexpr std::array<int, 3> groups{1, 4, 7};
  constexpr std::array<const char*, 3> lse{"none", "natural", "base2"};
  enum Column {
    kHeadDim,
    kQueries,
    kKeys,
    kBias,
    kMask,
    kDtype,
    kPage,
    kGroup,
    kLse,
    kGaps,
    kBatch,
    kSharedBatch,
    kSharedHeads,
    kSharedQueries,
    kLengths,
    kLayout,
    kSoftcap,
    kSink
  };
  std::vector<std::string> problems;
  for (const std::vector<int>& row :
       pairwise_rows({6, 7, 7, 5, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2})) {
    const auto index = [&](Column column) { return static_cast<std::size_t>(row[column]); };
    const int kv_heads = 1 + row[kLayout];
    const int heads = kv_heads * groups[index(kGroup)];
    const int batch = 1 + row[kBatch];
    const int kv_len = kv_lengths[index(kKeys)];
    const int page = pages[index(kPage)].page;
    std::string text = concat("attention batch=", batch, " heads=", heads, " kv_heads=", kv_heads,
                              " q_len=", q_lengths[index(kQueries)], " kv_len=", kv_len,
                              " head_dim=", head_dims[index(kHeadDim)]);
    if (row[kLengths] == 1) text += concat(" kv_total=", (kv_len * (batch + 1) + 1) / 2);
    if (page > 0) {
      text += concat(" cache=paged page=", page,
                     pages[index(kPage)].table(batch, (kv_len + page - 1) / page));
    }
    if (row[kBias] >= 2) {
      if (row[kSharedBatch] == 1) text += " bias_batch=1";
      if (row[kSharedHeads] == 1) text += " bias_heads=1";
      if (row[kSharedQueries] == 1) text += " bias_q=1";
      // Rows that begin at multiples of 16 bytes, or anywhere.
      if (row[kGaps] == 1) text += concat(" ldbias=", (kv_len + 31) / 16 * 16);
      if (row[kGaps] == 2) text += concat(" ldbias=", kv_len + 1);
    }
    std::string bias = biases[index(kBias)];
    if (row[kDtype] == 3 && bias == "additive") bias = biases.back();
    text +=
        concat(" dtype=", dtypes[index(kDtype)], " layout=", row[kLayout] == 0 ? "bshd" : "bhsd",
               " lengths=", row[kLengths] == 0 ? "full" : "kv", " mask=", masks[index(kMask)],
               " softcap=", row[kSoftcap] == 0 ? "none" : "tanh", " bias=", bias,
               " sink=", row[kSink] == 0 ? "none" : "head", " lse=", lse[index(kLse)]);
    problems.push_back(std::move(text));
  }
  return problems;
}

/// All of 16 bits, of fp8 and with biases, without new tokens.
inline std::vector<std::string> all_attention_problems() {
  std::vector<std::string> all = attention_problems();
  for (const auto& more : {attention_fp8_problems(), attention_bias_problems()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace kernwright
