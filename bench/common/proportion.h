#pragma once

namespace kernwright {

/// The frequency of an event, with the 95 % confidence interval of its probability (Clopper and
/// Pearson).
struct Proportion {
  int count = 0;
  int trials = 0;

  double share() const { return trials > 0 ? static_cast<double>(count) / trials : 0; }
  double low() const;
  double high() const;
};

}  // namespace kernwright
