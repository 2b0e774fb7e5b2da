#pragma once

#include <string>
#include <vector>

#include "cache/records/trial_table.h"

namespace kernwright {

/// How much of the spread of a search's times one parameter explains by itself.
struct ExplainedSpread {
  std::string parameter;
  double share = 0;  ///< of the variance of log times; 0.4 is 40 %
  int values = 0;    ///< that were tried
};

/// Fewer trials than this explain nothing.
inline constexpr int kFewestExplained = 12;

/// For each parameter of `kernel_template`, of its trials that were measured, the largest share
/// first; and, as "template", which of the templates it was, of all trials, where several were
/// measured. A share is epsilon squared, the share between the groups of equal values less what
/// groups of that number have by chance; a search tries what it hopes for, so the groups differ in
/// more than the parameter. Parameters that had one value are left out.
std::vector<ExplainedSpread> explained_spread(const TrialTable& table,
                                              const std::string& kernel_template);

}  // namespace kernwright
