#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "model/result/evidence.h"
#include "tuner/runner.h"
#include "tuner/search/screening.h"
#include "tuner/session/family_matrix.h"
#include "tuner/session/family_session.h"
#include <kernwright/result.h>

namespace kernwright {

/// Measures the rows of a family's matrix, each in a runner of its own.
class FamilyRows {
 public:
  /// All of them outlive it.
  FamilyRows(const FamilyInput& input, const FamilySteps& steps, const FamilyOptions& options,
             FamilyMatrix& matrix, std::mt19937_64& random)
      : in_(input), steps_(steps), options_(options), matrix_(matrix), random_(random) {}

  /// Measures columns at a problem, and adds the row, or to the row that is there. The columns in
  /// `exam` are checked as finalists are. Errors: from `FamilySteps::open`; `device` if a kernel
  /// took the device along.
  Result<void> measure(const BoundProblem& problem, std::span<const std::size_t> columns,
                       FamilyMatrix::Use use, std::span<const std::size_t> exam = {});

  /// Returns the rows of all audits that were taken.
  const Audit& audit() const { return audit_; }

 private:
  /// A column at one problem.
  struct Entry {
    std::size_t column;
    Runner::Id id;
    std::vector<double> samples_us;
  };

  Result<std::optional<Entry>> visit(Runner& runner, Screening& screening,
                                     const BoundProblem& problem, std::size_t c,
                                     double hopeless_us);
  /// Samples those near the best in rounds, each in another order.
  Result<void> play_rounds(Screening& screening, std::vector<Entry>& entries, double best);
  /// Replaces the samples of the best few by samples of runs alone, at the scale of the rounds.
  Result<void> run_alone(Screening& screening, std::vector<Entry>& entries);

  const FamilyInput& in_;
  const FamilySteps& steps_;
  const FamilyOptions& options_;
  FamilyMatrix& matrix_;
  std::mt19937_64& random_;
  double next_audit_ = 0;
  Audit audit_;
};

}  // namespace kernwright
