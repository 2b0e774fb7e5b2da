#pragma once

#include <string>

#include "model/candidate/parameter_space.h"
#include "support/names.h"

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

void describe(auto& visitor, MaybeConst<Choice> auto& choice) {
  visitor.field("template", choice.kernel_template);
  visitor.field("configuration", choice.configuration);
}

}  // namespace kernwright
