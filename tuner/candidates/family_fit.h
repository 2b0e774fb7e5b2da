#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/records/family_record.h"
#include "model/candidate/choice.h"
#include "model/candidate/dispatch_table.h"
#include "model/operation/ranged_problem.h"

namespace kernwright {

/// Returns so many points of the unit cube of `dims` dims, spread evenly; both ends are among them
/// if there is one dim.
std::vector<std::vector<double>> spread_evenly(std::size_t dims, int count);

/// Returns the size at a place from 0 to 1 of a range, by the logarithm of the size.
std::int64_t size_at(const FreeDim& range, double place);

/// Returns the predicted time of a choice at sizes of the ranges, in microseconds, or 0 if it is
/// not valid there. Called by many threads at the same time.
using PredictAt = std::function<double(std::size_t choice, std::span<const std::int64_t> sizes)>;

/// Estimates times from those that were measured: a prediction, times how much longer than
/// predicted choices with nearly the same values took at sizes nearby.
class FamilyEstimate {
 public:
  /// `choices` are the rows'. All three outlive it.
  FamilyEstimate(std::span<const Choice> choices, const std::vector<FamilyRow>& rows,
                 const PredictAt& predict);

  /// The times at some sizes. The estimate and the sizes outlive it.
  class At {
   public:
    /// Returns the time of one of the choices, in microseconds, or 0 if it is not valid here.
    double us(std::size_t choice) const;
    /// Returns the same for any choice, by its prediction.
    double us(const Choice& choice, double predicted_us) const;

   private:
    friend class FamilyEstimate;
    At(const FamilyEstimate& of, std::span<const std::int64_t> sizes);
    double residual(const std::vector<double>& apart) const;

    const FamilyEstimate& of_;
    std::span<const std::int64_t> sizes_;
    std::vector<double> squares_;  ///< of the distances to the rows
    double of_all_ = 0;            ///< the residual near here, whatever the choice
  };
  At at(std::span<const std::int64_t> sizes) const { return {*this, sizes}; }

 private:
  struct Measured {
    std::size_t choice;
    std::size_t row;
    double residual;  ///< the logarithm of the time over the prediction
  };

  std::span<const Choice> choices_;
  const std::vector<FamilyRow>& rows_;
  const PredictAt& predict_;
  std::vector<Measured> measured_;
  std::vector<std::vector<double>> apart_;  ///< of each two choices
};

/// The choices of a family and the table that takes one of them.
struct FamilyChoice {
  std::vector<std::size_t> kernels;
  DispatchTable table;  ///< of the entries of `kernels`
};

/// Chooses, among the choices of the rows, at most `DispatchTable::kMostChoices` whose best is near
/// the best of all at every size. Between the sizes of the rows times are estimated (see
/// `FamilyEstimate`). So the steps of tiles and waves, which the predictions know, are where they
/// are. There is a row with a time.
FamilyChoice fit_family(std::span<const Choice> choices, const std::vector<FamilyRow>& rows,
                        const std::vector<FreeDim>& free, const PredictAt& predict);

/// Returns the choices behind the first `given` ones that bring the best of the given ones nearest
/// to the best of all, at most so many, the one that gains most first. `times_us[i][c]` is the time
/// of choice c at size i, or 0 if it is not valid there.
std::vector<std::size_t> best_additions(const std::vector<std::vector<double>>& times_us,
                                        std::size_t given, std::size_t most);

/// Returns how much slower the choice that the table takes is than the best of the row: 0.06 is
/// 6 %. It is infinite if none of the table's choices was measured there.
double regret_of(const FamilyChoice& family, const FamilyRow& row);

}  // namespace kernwright
