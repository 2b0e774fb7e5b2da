#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/expression/json_reader.h"
#include "model/operation/launch_spec.h"

namespace kernwright::detail {

/// The names that the arguments of a launch may refer to.
struct ArgumentNames {
  std::vector<std::string> tensors;
  std::vector<std::string> read;  ///< the tensors that are read, for `ahead`
  std::vector<std::string> tensor_maps;
  std::vector<std::string> workspaces;
  std::vector<std::string> scalars;
  std::vector<std::string> references;  ///< outputs, for `reference` and `magnitude`
};

/// Reads one launch, whose expressions may use `names`.
LaunchSpec read_launch(const JsonReader& json, std::span<const std::string> names,
                       const ArgumentNames& arguments);

/// Does the same without the kernel's name, for an object that has other fields too.
LaunchSpec read_geometry(const JsonReader& json, std::span<const std::string> names,
                         const ArgumentNames& arguments);

}  // namespace kernwright::detail
