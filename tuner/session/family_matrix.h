#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/records/family_record.h"
#include "compile/compile_pool.h"
#include "model/candidate/candidate.h"
#include "model/operation/ranged_problem.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/session/family_session.h"
#include <kernwright/result.h>

namespace kernwright {

/// The choices that a family's search measures, and their times at sizes of the family. It also
/// estimates what is worth measuring. Compiles go on in the input's pool.
class FamilyMatrix {
 public:
  struct Column {
    Choice choice;
    const KernelTemplate* kernel_template = nullptr;
    Build build;
    bool failed = false;   ///< did not compile, or was wrong at some size
    bool checked = false;  ///< was right as a finalist
  };
  /// The samples of a column at one problem, in microseconds.
  struct Samples {
    std::size_t column;
    std::vector<double> us;
  };
  /// The use of rows.
  enum class Use { fit, validation };

  /// The input outlives it.
  explicit FamilyMatrix(const FamilyInput& input);

  const std::vector<Column>& columns() const { return columns_; }
  /// Returns the rows for a use, each with a time for every column: 0 if it was not measured.
  const std::vector<FamilyRow>& rows(Use use) const {
    return use == Use::fit ? rows_ : validation_;
  }

  /// Has a choice compiled that is valid for `example`, to be measured where its bits are the same.
  void add(const Choice& added, const BoundProblem& example);
  /// Adds the choices that are estimated to bring the best of the columns nearest to the best of
  /// all choices at these problems, at most so many.
  void add_cover(std::span<const BoundProblem> problems, std::size_t most);
  /// Adds the choices that are estimated to be the best at a problem, at most so many, if they are
  /// near the best of the columns. Returns the columns that are new.
  std::vector<std::size_t> add_likely(const BoundProblem& problem, std::size_t most);
  /// Returns the columns to measure at a problem, the best first: those in `also`, and those that
  /// are estimated to be near the best and were not measured there, with the best that was.
  std::vector<std::size_t> worth_measuring(const BoundProblem& problem,
                                           std::span<const std::size_t> also);
  /// Returns a column's candidate at a problem. Errors: if it is not valid there, or its bits are
  /// others.
  Result<Candidate> candidate_at(std::size_t column, const BoundProblem& problem) const;

  /// From now on trusts a column at no size.
  void fail(std::size_t column) { columns_[column].failed = true; }
  void pass(std::size_t column) { columns_[column].checked = true; }
  /// Adds times to the problem's row, at the scale of what both openings measured.
  void keep(const BoundProblem& problem, std::span<const Samples> samples, Use use);
  /// Makes rows for the fit of those that validated.
  void take_validation();
  /// Chooses kernels and a table (see `fit_family`). There is a row with a time.
  FamilyChoice fit();

 private:
  /// A choice of the cost model for one problem.
  struct Listed {
    Choice choice;
    double predicted_us;
  };

  /// The predictions at some sizes.
  struct Predicted {
    std::mutex mutex;
    std::optional<Result<BoundProblem>> problem;
    std::vector<std::optional<double>> us;  ///< of the columns
  };

  const std::vector<FreeDim>& free() const { return in_.family.free(); }
  std::vector<std::int64_t> sizes_of(const BoundProblem& problem) const {
    return *in_.family.sizes_of(problem.problem());
  }
  const std::vector<Listed>& listed(const BoundProblem& problem);
  FamilyEstimate estimate();
  bool is_known_near(std::string_view kernel_template,
                     const std::vector<std::int64_t>& sizes) const;
  bool is_column(const Choice& choice) const;
  Result<Candidate> valid_at(const Choice& choice, const BoundProblem& problem) const;
  double predicted_us(std::size_t c, std::span<const std::int64_t> sizes);

  const FamilyInput& in_;
  std::vector<std::string> free_names_;
  std::vector<Column> columns_;
  std::vector<FamilyRow> rows_;
  std::vector<FamilyRow> validation_;
  std::vector<Choice> choices_;  ///< of the columns, while they are estimated
  std::map<std::vector<std::int64_t>, std::vector<Listed>> listed_;
  std::mutex mutex_;  ///< of the map below
  std::map<std::vector<std::int64_t>, Predicted> predicted_;
  const PredictAt predict_ = [this](std::size_t c, std::span<const std::int64_t> sizes) {
    return columns_[c].failed ? 0 : predicted_us(c, sizes);
  };
};

/// Returns how far sizes are apart, in doublings.
double distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

}  // namespace kernwright
