#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The findings of measured candidates about predictions: the logarithm of measured over predicted
/// time, as the sum of regression trees over the terms of a prediction. It is data, fitted by
/// bench/fit_correction to logs of trials. Immutable.
class Correction {
 public:
  /// A node of one tree. An inner node goes on at `below` if its term is at most `threshold`, else
  /// at `above`, which are places in the tree behind its own. A leaf has neither, and a value.
  struct Node {
    int term = kLeaf;
    double threshold = 0;
    int below = 0;
    int above = 0;
    double value = 0;
    static constexpr int kLeaf = -1;
  };
  using Tree = std::vector<Node>;

  /// For the device profile `sku`; `terms` are the names of the terms that the trees look at, in
  /// the order of their numbers.
  Correction(std::string sku, std::vector<std::string> terms, std::vector<Tree> trees)
      : sku_(std::move(sku)), terms_(std::move(terms)), trees_(std::move(trees)) {}

  /// Reads what `text` returned. Errors: `invalid_argument` naming `file`, line and defect.
  static Result<Correction> parse(std::string_view text, std::string_view file);
  std::string text() const;

  /// Returns the correction of tuner/cost/correction.json, which is read once. Its terms are the
  /// cost model's.
  static const Correction& built_in();

  const std::string& sku() const { return sku_; }
  const std::vector<std::string>& terms() const { return terms_; }
  const std::vector<Tree>& trees() const { return trees_; }

  /// Returns the logarithm of measured over predicted time. `terms` has a value for each of
  /// `terms()`.
  double log_ratio(std::span<const double> terms) const;

 private:
  std::string sku_;
  std::vector<std::string> terms_;
  std::vector<Tree> trees_;
};

/// Returns the value of one tree.
double value_of(const Correction::Tree& tree, std::span<const double> terms);

}  // namespace kernwright
