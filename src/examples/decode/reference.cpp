#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace decode {
namespace {

using Rows = std::vector<float>;

/// Computes y[batch, n] = x[batch, k] * weight[n, k]^T, with the rows of the weight from `first`
/// on.
Rows product(const Rows& x, std::int64_t batch, const Tensor& weight, std::int64_t first,
             std::int64_t n, std::int64_t k) {
  Rows y(at(batch * n));
  parallel_for(n, (batch + 1) * k, [&](std::int64_t column) {
    std::vector<float> row(at(k));
    const std::uint16_t* bits = weight.data() + (first + column) * k;
    for (std::int64_t l = 0; l < k; ++l) row[at(l)] = to_float(bits[l]);
    for (std::int64_t i = 0; i < batch; ++i) {
      const float* values = x.data() + i * k;
      // Several sums, which the compiler can add side by side.
      constexpr std::int64_t kSums = 16;
      float sums[kSums] = {};
      std::int64_t l = 0;
      for (; l + kSums <= k; l += kSums) {
        for (std::int64_t s = 0; s < kSums; ++s) sums[s] += values[l + s] * row[at(l + s)];
      }
      for (; l < k; ++l) sums[0] += values[l] * row[at(l)];
      double sum = 0;
      for (const float part : sums) sum += static_cast<double>(part);
      y[at(i * n + column)] = static_cast<float>(sum);
    }
  });
  return y;
}

/// Returns the factor that gives the `columns` elements of a row a mean square of one.
double norm_factor(const float* row, std::int64_t columns, double epsilon) {
  double squares = 0;
  for (std::int64_t c = 0; c < columns; ++c) squares += static_cast<double>(row[c]) * row[c];
  return 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
}

/// Divides rows of `columns` elements by their root mean square and multiplies by `weight`.
void normalise(float* rows, std::int64_t count, std::int64_t columns, const Tensor& weight,
               double epsilon) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = rows + i * columns;
    const double factor = norm_factor(row, columns, epsilon);
    for (std::int64_t c = 0; c < columns; ++c) {
      row[c] = static_cast<float>(row[c] * factor) * to_float(weight[at(c)]);
    }
  }
}

/// Turns the pairs (j, j + head_dim / 2) of each head by the angles of the position.
void rotate(float* heads, std::int64_t count, std::int64_t head_dim, const RopeTable& rope,
            std::int64_t position) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t head = 0; head < count; ++head) {
    for (std::int64_t j = 0; j < half; ++j) {
      float& first = heads[head * head_dim + j];
      float& second = heads[head * head_dim + half + j];
      const float cosine = rope.cosine[at(position * half + j)];
      const float sine = rope.sine[at(position * half + j)];
      const float turned = first * cosine - second * sine;
      second = second * cosine + first * sine;
      first = turned;
    }
  }
}

/// Computes the attention of one head of one query over the old tokens and the new one. `old_rows`
/// has their rows of the cache; k_new and v_new are the head's new key and value.
void attend(const ModelConfig& config, const float* q, const Tensor& keys, const Tensor& values,
            const std::vector<std::int64_t>& old_rows, std::int64_t kv_head, const float* k_new,
            const float* v_new, float* o) {
  const std::int64_t dim = config.head_dim;
  const auto old_at = [&](std::size_t token) {
    return (old_rows[token] * config.kv_heads + kv_head) * dim;
  };
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  std::vector<double> weights(old_rows.size() + 1);
  for (std::size_t token = 0; token < weights.size(); ++token) {
    double sum = 0;
    for (std::int64_t c = 0; c < dim; ++c) {
      const float k = token < old_rows.size() ? to_float(keys[at(old_at(token) + c)]) : k_new[c];
      sum += static_cast<double>(q[c]) * k;
    }
    weights[token] = scale * sum;
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double all = 0;
  for (double& weight : weights) all += weight = std::exp(weight - largest);
  std::vector<double> sums(at(dim));
  for (std::size_t token = 0; token < weights.size(); ++token) {
    for (std::int64_t c = 0; c < dim; ++c) {
      const float v = token < old_rows.size() ? to_float(values[at(old_at(token) + c)]) : v_new[c];
      sums[at(c)] += weights[token] * v;
    }
  }
  for (std::int64_t c = 0; c < dim; ++c) o[c] = static_cast<float>(sums[at(c)] / all);
}

/// Returns the norm of the difference of a row of [batch, ..] over the norm of the reference's row,
/// for the worst row.
double worst_row(const Rows& result, const Rows& reference, std::size_t batch) {
  const std::size_t columns = reference.size() / batch;
  double worst = 0;
  for (std::size_t row = 0; row < batch; ++row) {
    double differences = 0, squares = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      differences += std::pow(static_cast<double>(result[i]) - reference[i], 2);
      squares += std::pow(reference[i], 2);
    }
    const double error = std::sqrt(differences / squares);
    if (error != error) return HUGE_VAL;  // a NaN is the largest error
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace

StepResult reference_step(const ModelConfig& config, const ModelWeights& weights,
                          const DecodeShape& shape, const Ints& page_table, const RopeTable& rope,
                          const StepState& state, bool rounded) {
  const auto batch = static_cast<std::int64_t>(state.tokens.size());
  const std::int64_t hidden = config.hidden;
  const std::int64_t dim = config.head_dim;
  StepResult result;
  Rows x;
  std::vector<std::vector<std::int64_t>> old_rows(state.tokens.size());
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::uint16_t* row = weights.embedding.data() + state.tokens[at(i)] * hidden;
    for (std::int64_t c = 0; c < hidden; ++c) x.push_back(to_float(row[c]));
    for (std::int64_t position = 0; position < state.lengths[at(i)]; ++position) {
      old_rows[at(i)].push_back(shape.cache_row(page_table, i, position));
    }
  }
  const auto round = [rounded](Rows& rows) {
    for (float& value : rows) value = rounded ? to_float(to_bf16(value)) : value;
  };
  const auto add_to_x = [&](const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    round(x);
  };
  // A kernel rounds an element times its weight. The factor that normalises a row is applied to its
  // products.
  const auto normal_of_x = [&](const Tensor& weight) {
    Rows normal = x;
    for (std::size_t i = 0; i < x.size(); ++i) normal[i] *= to_float(weight[i % at(hidden)]);
    round(normal);
    for (std::int64_t i = 0; i < batch * hidden; i += hidden) {
      const auto factor = static_cast<float>(norm_factor(&x[at(i)], hidden, config.norm_epsilon));
      for (std::int64_t c = 0; c < hidden; ++c) normal[at(i + c)] *= factor;
    }
    return normal;
  };
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const LayerWeights& layer = weights.layers[l];
    Rows normal = normal_of_x(layer.input_norm);
    Rows q = product(normal, batch, layer.qkv, 0, config.query_columns(), hidden);
    Rows k = product(normal, batch, layer.qkv, config.query_columns(), config.kv_columns(), hidden);
    Rows v = product(normal, batch, layer.qkv, config.query_columns() + config.kv_columns(),
                     config.kv_columns(), hidden);
    for (Rows* rows : {&q, &k, &v}) round(*rows);
    if (config.query_norm) {
      normalise(q.data(), batch * config.heads, dim, layer.query_norm, config.norm_epsilon);
      normalise(k.data(), batch * config.kv_heads, dim, layer.key_norm, config.norm_epsilon);
    }
    for (std::int64_t i = 0; i < batch; ++i) {
      rotate(q.data() + i * config.query_columns(), config.heads, dim, rope, state.lengths[at(i)]);
      rotate(k.data() + i * config.kv_columns(), config.kv_heads, dim, rope, state.lengths[at(i)]);
    }
    for (Rows* rows : {&q, &k}) round(*rows);
    Rows o(q.size());
    parallel_for(batch * config.heads, 4 * shape.capacity * dim, [&](std::int64_t index) {
      const std::int64_t i = index / config.heads;
      const std::int64_t kv_head = index % config.heads / (config.heads / config.kv_heads);
      const std::int64_t own = i * config.kv_columns() + kv_head * dim;
      attend(config, q.data() + index * dim, state.keys[l], state.values[l], old_rows[at(i)],
             kv_head, k.data() + own, v.data() + own, o.data() + index * dim);
    });
    round(o);
    result["keys"].push_back(std::move(k));
    result["values"].push_back(std::move(v));
    add_to_x(product(o, batch, layer.output, 0, hidden, config.query_columns()));
    normal = normal_of_x(layer.inner_norm);
    Rows inner = product(normal, batch, layer.gate_up, 0, config.intermediate, hidden);
    const Rows up =
        product(normal, batch, layer.gate_up, config.intermediate, config.intermediate, hidden);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];
    }
    round(inner);
    add_to_x(product(inner, batch, layer.down, 0, hidden, config.intermediate));
  }
  result["logits"] = {product(normal_of_x(weights.final_norm), batch, weights.head_or_embedding(),
                              0, config.vocabulary, hidden)};
  result["hidden"] = {std::move(x)};
  return result;
}

bool Errors::explained_by(const Errors& rounding) const {
  for (const auto& [part, error] : relative) {
    if (!(error <= kOverRounding * rounding.relative.at(part))) return false;
  }
  return wrong_tokens == 0 &&
         gap <= kGapOverLogits * kOverRounding * rounding.relative.at("logits");
}

void Errors::merge(const Errors& other) {
  for (const auto& [part, error] : other.relative) {
    relative[part] = std::max(relative[part], error);
  }
  wrong_tokens += other.wrong_tokens;
  other_tokens += other.other_tokens;
  gap = std::max(gap, other.gap);
}

Ints greedy_tokens(const StepResult& result, std::size_t batch) {
  const Rows& logits = result.at("logits").front();
  const std::size_t columns = logits.size() / batch;
  Ints tokens;
  for (const float* row = logits.data(); tokens.size() < batch; row += columns) {
    tokens.push_back(static_cast<std::int32_t>(std::max_element(row, row + columns) - row));
  }
  return tokens;
}

Errors compare(const StepResult& result, const Ints& tokens, const StepResult& reference) {
  const std::size_t batch = tokens.size();
  Errors errors;
  for (const auto& [part, layers] : reference) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      errors.relative[part] =
          std::max(errors.relative[part], worst_row(result.at(part)[l], layers[l], batch));
    }
  }
  const Ints own = greedy_tokens(result, batch);
  const Ints best = greedy_tokens(reference, batch);
  const Rows& logits = reference.at("logits").front();
  const std::size_t columns = logits.size() / batch;
  for (std::size_t i = 0; i < batch; ++i) {
    if (tokens[i] != own[i]) ++errors.wrong_tokens;
    if (tokens[i] != own[i] || tokens[i] == best[i]) continue;
    ++errors.other_tokens;
    const float* expected = logits.data() + i * columns;
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      squares += static_cast<double>(expected[c]) * expected[c];
    }
    errors.gap =
        std::max(errors.gap, (static_cast<double>(expected[best[i]]) - expected[tokens[i]]) /
                                 std::sqrt(squares / static_cast<double>(columns)));
  }
  return errors;
}

}  // namespace decode
