#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "compile/compile_request.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

struct CheckOptions {
  std::string path = {};  ///< a folder; operations and templates in it are checked; empty: all are
  /// Checks for this profile alone. Nullopt: for one of each architecture, or with `all` the
  /// newest.
  std::optional<DeviceProfile> profile = std::nullopt;
  bool all = false;  ///< every configuration instead of samples
  int samples = 4;   ///< configurations per template and architecture beside the default
};

/// One compile of a check, or a defect or note that needed none.
struct CheckedPart {
  std::string name;  ///< "matmul/tiled" or "matmul/reference.cu"
  std::string target{};
  std::string problem{};
  std::string configuration{};
  std::shared_ptr<const CompiledKernel> kernel{};  ///< null if nothing was compiled
  std::string defect{};                            ///< empty: there is none
  std::string note{};                              ///< about things that may be right
};

/// How far a check is.
struct CheckCounts {
  int templates = 0;
  int compiles = 0;
  int under_way = 0;
  int defects = 0;
};

/// Hears of each part, in order, and how far the check is then.
using TellOfCheck = std::function<void(const CheckedPart&, const CheckCounts&)>;

/// Compiles samples of the catalog's templates, and references and input kernels of its operations,
/// in parallel. No GPU is needed, and nothing is run. Errors: `not_found` if there is no template
/// in the path; `unavailable` without a compiler.
Result<CheckCounts> check_templates(const Catalog& catalog, const CheckOptions& options,
                                    const TellOfCheck& tell);

}  // namespace kernwright
