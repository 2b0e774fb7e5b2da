#pragma once

namespace kernwright {

/// How often something happened, and the interval that holds its probability with a confidence of
/// 95 % (Clopper and Pearson).
struct Proportion {
  int count = 0;
  int trials = 0;

  double share() const { return trials > 0 ? static_cast<double>(count) / trials : 0; }
  double low() const;
  double high() const;
};

}  // namespace kernwright
