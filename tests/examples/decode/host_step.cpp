#include "tests/examples/decode/host_step.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "examples/decode/numbers.h"

namespace decode {
namespace {

/// One kernel: its dims, flags and arguments by name.
class HostKernel {
 public:
  explicit HostKernel(const StepKernel& kernel) : kernel_(kernel) {}

  void run() {
    const std::string& operation = kernel_.problem.operation();
    if (operation == "embedding") return embedding();
    if (operation == "matmul") return matmul();
    if (operation == "attention") return attention();
    if (operation == "argmax") return argmax();
    ADD_FAILURE() << operation;
  }

 private:
  std::int64_t dim(const std::string& name, std::int64_t left_out = 0) const {
    for (const auto& [own, value] : kernel_.problem.dims()) {
      if (own == name) return value;
    }
    return left_out;
  }
  bool has(const std::string& flag, const std::string& value) const {
    for (const auto& [own, set] : kernel_.problem.flags()) {
      if (own == flag) return set == value;
    }
    return false;
  }
  const kw::Arg& argument(const std::string& name) const {
    for (const auto& [own, value] : kernel_.arguments) {
      if (own == name) return value.fixed();
    }
    ADD_FAILURE() << kernel_.problem.text() << " has no argument " << name;
    return kernel_.arguments.front().second.fixed();
  }
  template <typename T>
  T* tensor(const std::string& name) const {
    return static_cast<T*>(const_cast<void*>(argument(name).pointer()));
  }
  std::uint16_t* bf16(const std::string& name) const { return tensor<std::uint16_t>(name); }

  void embedding() const {
    const std::int64_t hidden = dim("hidden");
    for (std::int64_t i = 0; i < dim("tokens"); ++i) {
      tensor<std::int32_t>("lengths_out")[i] = tensor<std::int32_t>("lengths")[i] + 1;
      for (std::int64_t c = 0; c < hidden; ++c) {
        bf16("x")[i * hidden + c] = bf16("table")[tensor<std::int32_t>("tokens")[i] * hidden + c];
      }
    }
  }

  static double factor(const std::uint16_t* row, std::int64_t columns, double epsilon) {
    double squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) squares += std::pow(to_float(row[c]), 2);
    return 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
  }

  void matmul() const {
    const std::int64_t n = dim("n"), k = dim("k");
    const bool norm = has("norm", "rms");
    const auto sum = [&](std::int64_t i, std::int64_t row) {
      double all = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        float a = to_float(bf16("a")[i * k + l]);
        if (norm) a = to_float(to_bf16(a * to_float(bf16("norm_weight")[l])));
        all += static_cast<double>(a) * to_float(bf16("b")[row * k + l]);
      }
      return norm ? all * factor(bf16("a") + i * k, k, argument("eps").scalar()) : all;
    };
    const std::int64_t n_kv = has("split", "qkv") ? dim("n_kv") : 0, n_d = n - 2 * n_kv;
    for (std::int64_t i = 0; i < dim("m"); ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double value = sum(i, j);
        if (has("activation", "silu")) value /= 1 + std::exp(-value);
        if (has("gate", "stacked")) value *= sum(i, n + j);
        if (has("residual", "add")) value += to_float(bf16("residual")[i * n + j]);
        if (has("out", "fp32")) {
          tensor<float>("d")[i * n + j] = static_cast<float>(value);
        } else if (j < n_d) {
          bf16("d")[i * n_d + j] = to_bf16(static_cast<float>(value));
        } else {
          const std::int64_t column = j - n_d;
          bf16(column < n_kv ? "d_k" : "d_v")[i * n_kv + column % n_kv] =
              to_bf16(static_cast<float>(value));
        }
      }
    }
  }

  /// Where a cache has a token's element.
  std::int64_t place(std::int64_t i, std::int64_t position, std::int64_t head) const {
    std::int64_t row = i * dim("kv_len") + position;
    if (has("cache", "paged")) {
      const std::int64_t page = dim("page");
      const std::int64_t columns = (dim("kv_len") + page - 1) / page;
      row = tensor<std::int32_t>("page_table")[i * columns + position / page] * page +
            position % page;
    }
    return (row * dim("kv_heads") + head) * dim("head_dim");
  }

  /// A head of the last token, rotated by its position, and normalised where the step says so.
  void append_head(const std::uint16_t* row, const char* weight, std::int64_t position,
                   std::uint16_t* to) const {
    const std::int64_t columns = dim("head_dim"), half = columns / 2;
    const bool norm = has("append", "norm_rope");
    const double by = norm ? factor(row, columns, argument("eps").scalar()) : 1;
    const auto value = [&](std::int64_t c) {
      return to_float(row[c]) * by * (norm ? to_float(bf16(weight)[c]) : 1);
    };
    for (std::int64_t c = 0; c < half; ++c) {
      const double cosine = tensor<float>("cosine")[position * half + c];
      const double sine = tensor<float>("sine")[position * half + c];
      to[c] = to_bf16(static_cast<float>(value(c) * cosine - value(c + half) * sine));
      to[c + half] = to_bf16(static_cast<float>(value(c + half) * cosine + value(c) * sine));
    }
  }

  void attention() const {
    const std::int64_t columns = dim("head_dim"), heads = dim("heads"), kv_heads = dim("kv_heads");
    for (std::int64_t i = 0; i < dim("batch"); ++i) {
      const std::int64_t length = tensor<std::int32_t>("kv_lengths")[i];
      for (std::int64_t head = 0; head < kv_heads; ++head) {
        const std::int64_t own = (i * kv_heads + head) * columns;
        const std::int64_t to = place(i, length - 1, head);
        append_head(bf16("k_new") + own, "k_norm", length - 1, bf16("k") + to);
        std::copy_n(bf16("v_new") + own, columns, bf16("v") + to);
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t own = (i * heads + head) * columns;
        std::vector<std::uint16_t> q(static_cast<std::size_t>(columns));
        append_head(bf16("q") + own, "q_norm", length - 1, q.data());
        attend(i, length, head * kv_heads / heads, q, bf16("o") + own);
      }
    }
  }

  /// One head of a query over all tokens of its sequence.
  void attend(std::int64_t i, std::int64_t length, std::int64_t kv_head,
              const std::vector<std::uint16_t>& q, std::uint16_t* o) const {
    std::vector<double> sums(q.size());
    double all = 0;
    for (std::int64_t token = 0; token < length; ++token) {
      const std::int64_t at = place(i, token, kv_head);
      const std::uint16_t *k = bf16("k") + at, *v = bf16("v") + at;
      double logit = 0;
      for (std::size_t c = 0; c < q.size(); ++c) {
        logit += static_cast<double>(to_float(q[c])) * to_float(k[c]);
      }
      const double weight = std::exp(logit * argument("scale").scalar());
      all += weight;
      for (std::size_t c = 0; c < q.size(); ++c) sums[c] += weight * to_float(v[c]);
    }
    for (std::size_t c = 0; c < q.size(); ++c) {
      o[c] = to_bf16(static_cast<float>(sums[c] / all));
    }
  }

  void argmax() const {
    const std::int64_t columns = dim("columns");
    for (std::int64_t i = 0; i < dim("rows"); ++i) {
      const float* row = tensor<float>("x") + i * columns;
      tensor<std::int32_t>("index")[i] =
          static_cast<std::int32_t>(std::max_element(row, row + columns) - row);
    }
  }

  const StepKernel& kernel_;
};

}  // namespace

void run_on_host(const std::vector<StepKernel>& step) {
  for (const StepKernel& kernel : step) HostKernel(kernel).run();
}

}  // namespace decode
