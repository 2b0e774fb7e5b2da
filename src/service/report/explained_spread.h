#pragma once

#include <string>
#include <vector>

#include "cache/records/trial_table.h"

namespace kernwright {

/// The share of the spread of a search's times that one parameter explains by itself.
struct ExplainedSpread {
  std::string parameter;
  double share = 0;  ///< of the variance of log times; 0.4 is 40 %
  int values = 0;    ///< that were tried
};

/// Fewer trials than this explain nothing.
inline constexpr int kFewestExplained = 12;

/// Returns the shares of the parameters of `kernel_template`, over its trials that were measured,
/// the largest share first. If several templates were measured, there is also a share "template" of
/// the choice among them, over all trials. A share is epsilon squared, the share between the groups
/// of equal values less what groups of that number have by chance. A search tries what it hopes
/// for, so the groups differ in more than the parameter. Parameters that had one value are left
/// out.
std::vector<ExplainedSpread> explained_spread(const TrialTable& table,
                                              const std::string& kernel_template);

}  // namespace kernwright
