#pragma once

#include <string>

#include "model/candidate/parameter_space.h"

namespace kernwright {

/// A template and a point of its space, both by name: the unit that is tried, kept and served. A
/// `Candidate` is a choice that was proven valid for one problem.
struct Choice {
  std::string kernel_template;
  Configuration configuration;

  /// Returns "matmul/tiled BM=128 BN=128": unique within a problem.
  std::string id() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

}  // namespace kernwright
