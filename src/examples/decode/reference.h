#pragma once
// The same step in fp32 on the host, written as plainly as possible, for comparison.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config.h"
#include "model.h"
#include "step.h"

namespace decode {

/// The state that a step begins with.
struct StepState {
  Ints tokens;   ///< [batch]
  Ints lengths;  ///< [batch]: tokens of each sequence so far
  /// For each layer, [cache_rows, kv_heads, head_dim].
  std::vector<Tensor> keys, values;
};

/// The results of a step, in fp32: "logits" [batch, vocabulary], "hidden" [batch, hidden] in front
/// of the last norm, and the new rows of the cache, "keys" and "values" [batch, kv_heads,
/// head_dim], of each layer.
using StepResult = std::map<std::string, std::vector<std::vector<float>>>;

/// Computes a step. With `rounded` results are rounded to bf16 at each place in which the kernels
/// of a step round theirs.
StepResult reference_step(const ModelConfig& config, const ModelWeights& weights,
                          const DecodeShape& shape, const Ints& page_table, const RopeTable& rope,
                          const StepState& state, bool rounded = false);

/// Returns for each sequence the first token with the largest logit.
Ints greedy_tokens(const StepResult& result, std::size_t batch);

/// The distance of a step from the reference's.
struct Errors {
  /// For each part of the result the norm of the difference over the norm of the reference, in the
  /// worst sequence and layer.
  std::map<std::string, double> relative;
  int wrong_tokens = 0;  ///< tokens that are not the first with the largest of their own logits
  int other_tokens = 0;  ///< tokens that differ from the reference's
  /// The largest gap in the reference's logits between its token and another that was chosen, over
  /// the root mean square of the sequence's logits.
  double gap = 0;

  /// Rounding explains an error of up to so many times the error of rounding alone.
  static constexpr double kOverRounding = 3;
  /// A gap may be so many times that: each of two logits may be off by four times the average.
  static constexpr double kGapOverLogits = 8;

  /// Returns whether all errors are explained, and every token is right by its own logits.
  /// `rounding` are the errors of the same step, rounded.
  bool explained_by(const Errors& rounding) const;
  void merge(const Errors& other);
};
Errors compare(const StepResult& result, const Ints& tokens, const StepResult& reference);

}  // namespace decode
