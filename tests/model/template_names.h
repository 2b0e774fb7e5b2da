#pragma once
// The built-in templates and operations as values of parametrised tests.

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/model/built_in_catalog.h"

namespace kernwright {

inline std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const KernelTemplate& made : catalog().templates()) names.push_back(made.name);
  return names;
}

inline std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const Operation& operation : catalog().operations()) names.push_back(operation.name);
  return names;
}

/// Returns the name of a template as the name of a test.
inline std::string template_test_name(const ::testing::TestParamInfo<std::string>& named) {
  std::string name = named.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace kernwright
