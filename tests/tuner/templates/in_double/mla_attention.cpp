#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

/// The numbers of a tensor with fewer elements than 2^53 as places.
std::size_t whole(const Arrays& in, const char* name, std::size_t i) {
  return static_cast<std::size_t>(in.at(name)[i]);
}

/// A sequence: its queries among all of them, and its keys.
struct Tokens {
  std::size_t first, end, keys;
};

Tokens tokens_of(const Arrays& in, const Dims& d, std::size_t sequence) {
  Tokens of{sequence * d.at("q_len"), (sequence + 1) * d.at("q_len"), d.at("kv_len")};
  if (in.contains("q_offsets")) {
    of.first = whole(in, "q_offsets", sequence);
    of.end = whole(in, "q_offsets", sequence + 1);
  }
  if (in.contains("kv_lengths")) of.keys = whole(in, "kv_lengths", sequence);
  if (in.contains("kv_offsets")) {
    of.keys = whole(in, "kv_offsets", sequence + 1) - whole(in, "kv_offsets", sequence);
  }
  return of;
}

/// Returns the place of a key among the tokens of the cache.
std::size_t place_of(const Arrays& in, const Dims& d, std::size_t sequence, std::size_t key) {
  if (in.contains("page_table")) {
    const std::size_t page = d.at("page"), columns = (d.at("kv_len") + page - 1) / page;
    return whole(in, "page_table", sequence * columns + key / page) * page + key % page;
  }
  if (in.contains("kv_offsets")) return whole(in, "kv_offsets", sequence) + key;
  return sequence * d.at("kv_len") + key;
}

/// Adds the products of two rows to `sum`, and their magnitudes to `terms`.
void add_products(const double* x, const double* y, std::size_t size, double& sum, double& terms) {
  for (std::size_t i = 0; i < size; ++i) {
    sum += x[i] * y[i];
    terms += std::fabs(x[i] * y[i]);
  }
}

Outputs mla_attention_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const double scale = static_cast<float>(0.11);  // as in checks
  const std::size_t heads = d.at("heads"), latent = d.at("latent");
  const bool apart = in.contains("rope_cache"), split = in.contains("q_rope");
  const std::size_t rope = flag(problem, "rotary") == "none" ? 0 : d.at("rope");
  const std::size_t of_cache = latent + (apart ? 0 : rope), of_query = latent + (split ? 0 : rope);
  const bool ragged = in.contains("q_offsets");
  const std::size_t tokens = d.at(ragged ? "q_total" : "q_len");
  const std::size_t rows = heads * (ragged ? tokens : d.at("batch") * tokens);
  const std::string lse = flag(problem, "lse");
  Outputs out;
  Expected& o = out["o"];
  o.value.resize(rows * latent);
  o.magnitude.resize(rows * latent);
  if (!lse.empty()) {
    out["lse"].value.resize(rows);
    out["lse"].magnitude.resize(rows);
  }
  for (std::size_t sequence = 0; sequence < d.at("batch"); ++sequence) {
    const Tokens of = tokens_of(in, d, sequence);
    for (std::size_t row = of.first * heads; row < of.end * heads; ++row) {
      const std::size_t token = row / heads, head = row % heads;
      std::ptrdiff_t seen = static_cast<std::ptrdiff_t>(of.keys);
      if (flag(problem, "mask") != "none") {
        seen -= static_cast<std::ptrdiff_t>(of.end - 1 - token);
      }
      std::vector<std::tuple<const double*, double, double>> logits;  // latents, logit, its terms
      double most = in.contains("sinks") ? in.at("sinks")[head] : -HUGE_VAL;
      for (std::ptrdiff_t j = 0; j < seen; ++j) {
        const std::size_t place = place_of(in, d, sequence, static_cast<std::size_t>(j));
        const double* const latents = in.at("cache").data() + place * of_cache;
        const double* const q = in.at("q").data() + row * of_query;
        double dot = 0, terms = 0;
        add_products(q, latents, latent, dot, terms);
        add_products(split ? in.at("q_rope").data() + row * rope : q + latent,
                     apart ? in.at("rope_cache").data() + place * rope : latents + latent, rope,
                     dot, terms);
        logits.emplace_back(latents, scale * dot, scale * terms);
        most = std::max(most, scale * dot);
      }
      double sum = in.contains("sinks") ? std::exp(in.at("sinks")[head] - most) : 0;
      double exponents = 0;
      for (const auto& [latents, s, terms] : logits) {
        const double p = std::exp(s - most);
        sum += p;
        exponents += p * terms;
        for (std::size_t i = 0; i < latent; ++i) {
          o.value[row * latent + i] += p * latents[i];
          o.magnitude[row * latent + i] += p * std::fabs(latents[i]);
        }
      }
      const bool nothing = most == -HUGE_VAL;
      for (std::size_t i = row * latent; i < (row + 1) * latent; ++i) {
        o.value[i] = nothing ? 0 : o.value[i] / sum;
        o.magnitude[i] = nothing ? 0 : o.magnitude[i] / sum;
      }
      if (lse.empty()) continue;
      const double unit = lse == "base2" ? std::log(2.0) : 1;
      const std::size_t to = (token / tokens * heads + head) * tokens + token % tokens;
      out["lse"].value[to] = nothing ? most : (most + std::log(sum)) / unit;
      out["lse"].magnitude[to] = nothing ? 1 : (1 + std::fabs(most) + exponents / sum) / unit;
    }
  }
  return out;
}

/// Adds a row divided by its root mean square and multiplied by weights.
void put_normalised(Expected& to, std::size_t place, const double* x,
                    const std::vector<double>& weights, double eps) {
  double squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) squares += x[i] * x[i];
  const double root = std::sqrt(squares / static_cast<double>(weights.size()) + eps);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    to.value[place + i] = x[i] / root * weights[i];
    to.magnitude[place + i] = std::fabs(to.value[place + i]);
  }
}

Outputs mla_append_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::size_t latent = d.at("latent"), rope = d.at("rope"), half = rope / 2;
  const bool norms = in.contains("q_norm"), apart = in.contains("rope_cache");
  const bool halves = flag(problem, "pairs") == "halves";
  const std::size_t q_rank = norms ? d.at("q_rank") : 0, width = q_rank + latent + rope;
  const std::size_t of_cache = latent + (apart ? 0 : rope);
  Outputs out;
  for (const char* name : {"cache", "rope_cache"}) {
    if (!in.contains(name)) continue;
    for (const double kept : in.at(name)) out[name].add(kept, 0);
  }
  if (norms) {
    out["q_out"].value.resize(d.at("tokens") * q_rank);
    out["q_out"].magnitude.resize(d.at("tokens") * q_rank);
  }
  for (std::size_t token = 0; token < d.at("tokens"); ++token) {
    const double* const x = in.at("x").data() + token * width;
    if (norms) put_normalised(out["q_out"], token * q_rank, x, in.at("q_norm"), 0.25);
    if (in.at("slots")[token] < 0) continue;
    const std::size_t slot = whole(in, "slots", token), turn = whole(in, "positions", token) * half;
    put_normalised(out["cache"], slot * of_cache, x + q_rank, in.at("kv_norm"), 0.5);
    Expected& to = out[apart ? "rope_cache" : "cache"];
    const std::size_t place = apart ? slot * rope : slot * of_cache + latent;
    const double* const plain = x + q_rank + latent;
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t first = halves ? i : 2 * i, second = halves ? i + half : 2 * i + 1;
      const double c = in.at("cosine")[turn + i], s = in.at("sine")[turn + i];
      to.value[place + first] = plain[first] * c - plain[second] * s;
      to.value[place + second] = plain[second] * c + plain[first] * s;
      to.magnitude[place + first] = std::fabs(plain[first] * c) + std::fabs(plain[second] * s);
      to.magnitude[place + second] = std::fabs(plain[second] * c) + std::fabs(plain[first] * s);
    }
  }
  return out;
}

const InDouble kMlaAppend("mla_append", mla_append_in_double);
const InDouble kMlaAttention("mla_attention", mla_attention_in_double);

}  // namespace
}  // namespace kernwright
