#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

/// The begins of a head's elements at a token, in a contiguous tensor of one of both layouts.
struct Order {
  bool heads_outside = false;

  std::size_t place(std::size_t entry, std::size_t token, std::size_t head, std::size_t tokens,
                    std::size_t heads, std::size_t size) const {
    return heads_outside ? ((entry * heads + head) * tokens + token) * size
                         : ((entry * tokens + token) * heads + head) * size;
  }
};

/// A query or new token of a sequence: its place among all of them and among those of its sequence,
/// and its position among the keys.
struct NewToken {
  std::size_t sequence, place, query;
  std::ptrdiff_t position;
  std::size_t keys;  ///< of the sequence
};

std::vector<NewToken> new_tokens(const Arrays& in, const Dims& d) {
  const auto whole = [&](const char* name, std::size_t i) {
    return static_cast<std::size_t>(in.at(name)[i]);
  };
  std::vector<NewToken> tokens;
  for (std::size_t s = 0; s < d.at("batch"); ++s) {
    const bool ragged = in.contains("q_offsets");
    const std::size_t first = ragged ? whole("q_offsets", s) : s * d.at("q_len");
    const std::size_t end = ragged ? whole("q_offsets", s + 1) : first + d.at("q_len");
    std::size_t keys = d.at("kv_len");
    if (in.contains("kv_lengths")) keys = whole("kv_lengths", s);
    if (in.contains("kv_offsets")) keys = whole("kv_offsets", s + 1) - whole("kv_offsets", s);
    for (std::size_t i = first; i < end; ++i) {
      tokens.push_back({s, i, i - first,
                        static_cast<std::ptrdiff_t>(keys) - static_cast<std::ptrdiff_t>(end - i),
                        keys});
    }
  }
  return tokens;
}

/// Returns a head divided by its root mean square and multiplied by weights, or as it is if there
/// are none of this name.
std::vector<double> normalised(const Arrays& in, const char* weights, const double* head,
                               std::size_t size) {
  constexpr double kEps = 0.5;  // as in checks
  std::vector<double> all(head, head + size);
  const auto found = in.find(weights);
  if (found == in.end()) return all;
  double squares = 0;
  for (const double x : all) squares += x * x;
  const double root = std::sqrt(squares / static_cast<double>(size) + kEps);
  for (std::size_t i = 0; i < size; ++i) all[i] *= found->second[i] / root;
  return all;
}

/// Element `i` of a head, rotated by the angles of a position.
std::pair<double, double> rotated(const Arrays& in, const std::vector<double>& head,
                                  std::size_t position, std::size_t i, bool neighbours) {
  const std::size_t half = head.size() / 2;
  const std::size_t pair = neighbours ? i / 2 : i % half;
  const bool is_first = neighbours ? i % 2 == 0 : i < half;
  const double x = head[neighbours ? 2 * pair : pair];
  const double y = head[neighbours ? 2 * pair + 1 : pair + half];
  const double own = (is_first ? x : y) * in.at("cosine")[position * half + pair];
  const double other = (is_first ? -y : x) * in.at("sine")[position * half + pair];
  return {own + other, std::fabs(own) + std::fabs(other)};
}

/// The number of a scalar or of a tensor of one for each sequence and head of k, as checks have
/// them.
double descale(const Arrays& in, const Problem& problem, const std::string& name, double checked,
               std::size_t place) {
  const std::string kind = flag(problem, "descale");
  if (kind == "tensor") return checked;
  const auto found = in.find(name + "_descale");
  return kind == "head" && found != in.end() ? found->second[place] : 1;
}

/// Returns page number `i` of a sequence, from a list or from a table of `columns`.
std::size_t page_of(const Arrays& in, std::size_t sequence, std::size_t i, std::size_t columns) {
  const auto whole = [&](const char* name, std::size_t at) {
    return static_cast<std::size_t>(in.at(name)[at]);
  };
  if (in.contains("page_list")) return whole("page_list", whole("page_offsets", sequence) + i);
  const std::size_t row = in.contains("table_rows") ? whole("table_rows", sequence) : sequence;
  return whole("page_table", row * columns + i);
}

Outputs attention_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const double scale = static_cast<float>(0.11), cap = 3;  // as in checks
  const Order order{flag(problem, "layout") == "bhsd"};
  const std::string mask = flag(problem, "mask"), lse = flag(problem, "lse");
  const bool ragged = in.contains("q_offsets");
  const bool paged = in.contains("page_table") || in.contains("page_list");
  const bool narrow = flag(problem, "dtype") == "fp8_e4m3";
  const std::size_t heads = d.at("heads"), kv_heads = d.at("kv_heads"), page = d.at("page");
  const std::size_t size = d.at("head_dim"), size_v = d.at("head_dim_v");
  const std::size_t columns = (d.at("kv_len") + page - 1) / page;
  const std::size_t tokens = d.at(ragged ? "q_total" : "q_len");
  const std::size_t kv_tokens = paged ? page : d.at(ragged ? "kv_total" : "kv_len");
  const std::size_t rows = heads * (ragged ? tokens : d.at("batch") * tokens);
  Outputs out;
  Expected& o = out["o"];
  o.value.resize(rows * size_v);
  o.magnitude.resize(rows * size_v);
  if (!lse.empty()) {
    out["lse"].value.resize(rows);
    out["lse"].magnitude.resize(rows);
  }
  for (const NewToken& token : new_tokens(in, d)) {
    const std::size_t entry = ragged ? 0 : token.sequence, at = token.place % tokens;
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t kv_head = head / (heads / kv_heads);
      const std::size_t of_scale = token.sequence * kv_heads + kv_head;
      const auto place = [&](std::size_t j, std::size_t own) {
        const std::size_t first =
            ragged && !paged ? static_cast<std::size_t>(in.at("kv_offsets")[token.sequence]) : 0;
        const std::size_t outer = paged ? page_of(in, token.sequence, j / page, columns) : entry;
        return order.place(outer, paged ? j % page : first + j, head / (heads / kv_heads),
                           kv_tokens, kv_heads, own);
      };
      const double unit = scale * (narrow ? descale(in, problem, "q", 0.5, of_scale) : 1) *
                          descale(in, problem, "k", 2, of_scale);
      const double unit_v = descale(in, problem, "v", 0.25, of_scale);
      const double* const q = in.at("q").data() + order.place(entry, at, head, tokens, heads, size);
      const std::ptrdiff_t position =
          mask == "causal_first" ? static_cast<std::ptrdiff_t>(token.query) : token.position;
      const auto bias_place = [&](std::size_t j) {
        const auto own = [&](const char* dim, std::size_t i) { return d.at(dim) == 1 ? 0 : i; };
        const std::size_t of_head =
            own("bias_batch", token.sequence) * d.at("bias_heads") + own("bias_heads", head);
        return (of_head * d.at("bias_q") + own("bias_q", token.query)) * d.at("kv_len") + j;
      };
      std::vector<std::tuple<std::size_t, double, double>> logits;  // key, logit, its terms
      double most = in.contains("sinks") ? in.at("sinks")[head] : -HUGE_VAL;
      double of_keys = -HUGE_VAL;
      for (std::size_t j = 0; j < token.keys; ++j) {
        const std::ptrdiff_t behind = position - static_cast<std::ptrdiff_t>(j);
        if (!mask.empty() && behind < 0) continue;
        if (mask == "window" && behind >= static_cast<std::ptrdiff_t>(d.at("window"))) continue;
        if (in.contains("seen") && in.at("seen")[bias_place(j)] == 0) continue;
        const double* const k = in.at("k").data() + place(j, size);
        double dot = 0, terms = 0;
        for (std::size_t i = 0; i < size; ++i) {
          dot += q[i] * k[i];
          terms += std::fabs(q[i] * k[i]);
        }
        double s = unit * dot;
        if (flag(problem, "softcap") == "tanh") s = cap * std::tanh(s / cap);
        if (in.contains("slopes")) {
          s -= in.at("slopes")[head] * std::fabs(static_cast<double>(behind));
        }
        terms *= std::fabs(unit);
        if (in.contains("bias")) {
          s += in.at("bias")[bias_place(j)];
          terms += std::fabs(in.at("bias")[bias_place(j)]);
        }
        logits.emplace_back(j, s, terms);
        of_keys = std::max(of_keys, s);
      }
      most = std::max(most, of_keys);
      // Weights in fp8 may vanish, and those in fp16 lose digits.
      const double least = narrow ? 0x1p-15 : flag(problem, "kv") == "fp8_e4m3" ? 0x1p-17 : 0;
      const double floor = least * std::exp(of_keys - most);
      double sum = in.contains("sinks") ? std::exp(in.at("sinks")[head] - most) : 0;
      double exponents = 0;
      std::vector<double> value(size_v), magnitude(size_v);
      for (const auto& [j, s, terms] : logits) {
        const double p = std::exp(s - most);
        sum += p;
        exponents += p * terms;
        const double* const v = in.at("v").data() + place(j, size_v);
        for (std::size_t i = 0; i < size_v; ++i) {
          value[i] += p * unit_v * v[i];
          magnitude[i] += (p + floor) * std::fabs(unit_v * v[i]);
        }
      }
      const std::size_t to = order.place(entry, at, head, tokens, heads, size_v);
      const bool nothing = most == -HUGE_VAL;
      for (std::size_t i = 0; i < size_v; ++i) {
        o.value[to + i] = nothing ? 0 : value[i] / sum;
        o.magnitude[to + i] = nothing ? 0 : magnitude[i] / sum;
      }
      if (lse.empty()) continue;
      const double out_unit = lse == "base2" ? std::log(2.0) : 1;
      const std::size_t row = (entry * heads + head) * tokens + at;
      out["lse"].value[row] = nothing ? most : (most + std::log(sum)) / out_unit;
      out["lse"].magnitude[row] = nothing ? 1 : (1 + std::fabs(most) + exponents / sum) / out_unit;
    }
  }
  return out;
}

Outputs attention_merge_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const double ln2 = std::log(2.0);
  const double unit = flag(problem, "lse_parts") == "base2" ? ln2 : 1;
  const double out_unit = flag(problem, "lse") == "base2" ? ln2 : 1;
  const Order order{flag(problem, "layout") == "bhsd"};
  const std::size_t parts = d.at("parts"), batch = d.at("batch"), heads = d.at("heads");
  const std::size_t tokens = d.at("q_len"), size = d.at("head_dim_v");
  const std::size_t rows = batch * heads * tokens;
  Outputs out;
  out["o"].value.resize(rows * size);
  out["o"].magnitude.resize(rows * size);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t token = row % tokens, head = row / tokens % heads;
    const std::size_t sequence = row / tokens / heads;
    double most = -HUGE_VAL;
    for (std::size_t p = 0; p < parts; ++p) {
      most = std::max(most, unit * in.at("lse_parts")[p * rows + row]);
    }
    double sum = 0;
    std::vector<double> value(size), terms(size);
    for (std::size_t p = 0; p < parts; ++p) {
      const double weight = std::exp(unit * in.at("lse_parts")[p * rows + row] - most);
      const std::size_t from = order.place(p * batch + sequence, token, head, tokens, heads, size);
      sum += weight;
      for (std::size_t i = 0; i < size; ++i) {
        value[i] += weight * in.at("o_parts")[from + i];
        terms[i] += weight * std::fabs(in.at("o_parts")[from + i]);
      }
    }
    const std::size_t to = order.place(sequence, token, head, tokens, heads, size);
    for (std::size_t i = 0; i < size; ++i) {
      out["o"].value[to + i] = value[i] / sum;
      out["o"].magnitude[to + i] = terms[i] / sum;
    }
    if (flag(problem, "lse").empty()) continue;
    out["lse"].add((most + std::log(sum)) / out_unit, (1 + std::fabs(most)) / out_unit);
  }
  return out;
}

Outputs kv_append_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const Order order{flag(problem, "layout") == "bhsd"};
  const std::string rope = flag(problem, "rope");
  const bool neighbours = flag(problem, "pairs") == "neighbours";
  const bool ragged = in.contains("q_offsets");
  const bool paged = in.contains("page_table"), placed = in.contains("places");
  const bool narrow = flag(problem, "kv") == "fp8_e4m3";
  const std::size_t kv_heads = d.at("kv_heads"), size = d.at("head_dim"), page = d.at("page");
  const std::size_t columns = (d.at("kv_len") + page - 1) / page;
  const std::size_t tokens = d.at(ragged ? "q_total" : "q_len");
  const std::size_t cache_tokens = paged ? page : d.at(ragged ? "kv_total" : "kv_len");
  Outputs out;
  for (const char* name : {"k_cache", "v_cache"}) {
    for (const double kept : in.at(name)) out[name].add(kept, 0);
  }
  if (in.contains("q")) {
    out["q_out"].value.resize(in.at("q").size());
    out["q_out"].magnitude.resize(in.at("q").size());
  }
  for (const NewToken& token : new_tokens(in, d)) {
    const std::size_t entry = ragged ? 0 : token.sequence;
    const std::size_t at = token.place % tokens;
    const std::size_t angles =
        static_cast<std::size_t>(std::max<std::ptrdiff_t>(token.position, 0));
    for (std::size_t head = 0; in.contains("q") && head < d.at("heads"); ++head) {
      const std::size_t from = order.place(entry, at, head, tokens, d.at("heads"), size);
      const std::vector<double> query = normalised(in, "q_norm", in.at("q").data() + from, size);
      for (std::size_t i = 0; i < size; ++i) {
        std::tie(out["q_out"].value[from + i], out["q_out"].magnitude[from + i]) =
            rotated(in, query, angles, i, neighbours);
      }
    }
    if (placed ? in.at("places")[token.place] < 0 : token.position < 0) continue;
    std::size_t to_entry = entry;
    std::size_t to_token = angles;
    if (placed) {
      to_token = static_cast<std::size_t>(in.at("places")[token.place]);
    } else if (paged) {
      to_entry =
          static_cast<std::size_t>(in.at("page_table")[token.sequence * columns + angles / page]);
      to_token = angles % page;
    } else if (ragged) {
      to_token += static_cast<std::size_t>(in.at("kv_offsets")[token.sequence]);
    }
    for (const char* name : {"k", "v"}) {
      const bool is_key = name == std::string_view("k");
      const std::size_t own = is_key ? size : d.at("head_dim_v");
      const double scale = !narrow ? 1 : is_key ? 0.5 : 0.25;  // as in checks
      Expected& cache = out[std::string(name) + "_cache"];
      for (std::size_t head = 0; head < kv_heads; ++head) {
        const double* const from =
            in.at(name).data() + order.place(entry, at, head, tokens, kv_heads, own);
        const std::size_t to = order.place(to_entry, to_token, head, cache_tokens, kv_heads, own);
        const std::vector<double> key = normalised(in, is_key ? "k_norm" : "", from, own);
        for (std::size_t i = 0; i < own; ++i) {
          std::pair<double, double> result{from[i], std::fabs(from[i])};
          if (is_key && !rope.empty()) {
            result = rotated(in, key, angles, i, neighbours);
          }
          cache.value[to + i] = result.first / scale;
          cache.magnitude[to + i] = result.second / scale;
        }
      }
    }
  }
  return out;
}

// Tile by tile: the queries of a sequence and each 128 of its keys are a unit, and a tile is in the
// slot of its unit. Sequences without queries are beside the piece before them.
Outputs attention_schedule_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  constexpr std::ptrdiff_t kTile = 128;
  const auto slots = static_cast<std::ptrdiff_t>(d.at("slots"));
  const bool window = flag(problem, "mask") == "window";
  struct Asked {
    std::ptrdiff_t queries, begin, end, tiles;
  };
  std::vector<Asked> asked;
  std::ptrdiff_t all = 0;
  for (std::size_t s = 0; s < d.at("batch"); ++s) {
    const auto difference = [&](const char* name) {
      return static_cast<std::ptrdiff_t>(in.at(name)[s + 1] - in.at(name)[s]);
    };
    const std::ptrdiff_t queries = in.contains("q_offsets")
                                       ? difference("q_offsets")
                                       : static_cast<std::ptrdiff_t>(d.at("q_len"));
    const std::ptrdiff_t keys = in.contains("kv_offsets")
                                    ? difference("kv_offsets")
                                    : static_cast<std::ptrdiff_t>(in.at("kv_lengths")[s]);
    const std::ptrdiff_t first = keys - queries - static_cast<std::ptrdiff_t>(d.at("window")) + 1;
    const std::ptrdiff_t begin = window && first > 0 ? first / kTile * kTile : 0;
    asked.push_back({queries, begin, keys, (keys - begin + kTile - 1) / kTile});
    if (queries > 0) all += 1 + asked.back().tiles;
  }
  const std::ptrdiff_t share = std::max<std::ptrdiff_t>(1, (all + slots - 1) / slots);

  std::vector<double> entries(static_cast<std::size_t>(slots) * 8, -1);
  std::ptrdiff_t unit = 0, latest = -1;
  for (std::size_t s = 0; s < asked.size(); ++s) {
    const Asked& one = asked[s];
    const auto entry = [&](std::ptrdiff_t slot) {
      return &entries[8 * static_cast<std::size_t>(slot)];
    };
    const auto end_at = [&](std::ptrdiff_t slot, std::ptrdiff_t key, std::ptrdiff_t ends) {
      entry(slot)[2] = static_cast<double>(s);
      entry(slot)[3] = static_cast<double>(key);
      entry(slot)[6] = static_cast<double>(ends);
    };
    if (one.queries == 0) {
      if (latest >= 0) end_at(latest, 0, latest);
      continue;
    }
    const std::ptrdiff_t begins = (unit + (one.tiles > 0 ? 1 : 0)) / share;
    const std::ptrdiff_t ends = (unit + one.tiles) / share;
    for (std::ptrdiff_t tile = 0; tile < std::max<std::ptrdiff_t>(1, one.tiles); ++tile) {
      latest = one.tiles > 0 ? (unit + 1 + tile) / share : begins;
      if (entry(latest)[0] < 0) {
        entry(latest)[0] = static_cast<double>(s);
        entry(latest)[1] = static_cast<double>(one.begin + tile * kTile);
        entry(latest)[4] = static_cast<double>(begins);
        entry(latest)[5] = static_cast<double>(ends);
      }
      end_at(latest, std::min(one.end, one.begin + (tile + 1) * kTile), ends);
    }
    unit += 1 + one.tiles;
  }
  Outputs out;
  for (const double value : entries) out["work"].add(value, 0);
  return out;
}

const InDouble kAttentionMergeForm("attention_merge", attention_merge_in_double);
const InDouble kKvAppendForm("kv_append", kv_append_in_double);
const InDouble kAttentionScheduleForm("attention_schedule", attention_schedule_in_double);

/// Every query must see a key, except that a bias may hide all. Nothing is appended.
const InDouble kAttentionForm("attention", attention_in_double, [](const Problem& problem) {
  if (!flag(problem, "append").empty() || !flag(problem, "schedule").empty()) return false;
  const bool masked = !flag(problem, "mask").empty();
  if (flag(problem, "lengths").empty()) {
    return !masked || flag(problem, "mask") == "causal_first" ||
           dim(problem, "q_len") <= dim(problem, "kv_len");
  }
  const std::int64_t most = dim(problem, "batch") * dim(problem, "kv_len");
  const std::int64_t total = dim(problem, "kv_total");  // 0: each sequence has the most
  return !masked && (total == 0 || 2 * total >= most);
});

}  // namespace
}  // namespace kernwright
