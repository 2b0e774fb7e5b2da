#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/result/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// A trial as it is kept for reports: without its samples, its check and what its code needs beside
/// registers.
struct TrialRow {
  Choice choice = {};
  Outcome outcome = Outcome::ok;
  std::string detail = {};  ///< the reason if the outcome is not ok, cut to `kLongestDetail`
  double us = 0;            ///< median of its samples; 0: it has none
  int samples = 0;          ///< behind the median: few of a screening, many of finals
  double predicted_us = 0;  ///< 0: no prediction
  double at_seconds = 0;    ///< when it was tried, see `Trial`
  int registers = 0;
  int spill_bytes = 0;

  friend bool operator==(const TrialRow&, const TrialRow&) = default;
};

/// All trials of one search in the order in which they ended. It is beside the search's record,
/// for people who want to see the search; no lookup reads it.
struct TrialTable {
  double finals_seconds = 0;  ///< when the finals began, on the clock of `TrialRow::at_seconds`
  double wall_seconds = 0;    ///< when the search ended
  std::vector<TrialRow> rows;

  friend bool operator==(const TrialTable&, const TrialTable&) = default;
};

inline constexpr std::size_t kLongestDetail = 160;

/// The rows of `trials`. Times are rounded to four significant digits, and dates to a millisecond,
/// which is far below their noise.
TrialTable trial_table(std::span<const Trial> trials, double finals_seconds, double wall_seconds);

/// Returns JSON text, one object on one line. It has a column for each field. If values repeat, a
/// column is its `values`, each once, and the `places` of the rows among them: digits of base 64 (A
/// to Z, a to z, 0 to 9, - and _), as many for each row as tell the values apart.
/// `parse_trial_table(to_json(t))` returns t.
std::string to_json(const TrialTable& table);

/// Fields that it does not know are ignored. Errors: `corrupt` naming the field.
Result<TrialTable> parse_trial_table(std::string_view json);

}  // namespace kernwright
