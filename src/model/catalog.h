#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/kernel_template.h"
#include "model/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// A device header offered to kernels, `kernwright/mma.cuh`.
struct DeviceHeader {
  std::string name;
  std::string text;
};

/// Every operation and template known: the built-in ones and those of the folders given. A folder
/// has the layout of `templates/`; a user's template may implement a built-in operation. Immutable
/// once loaded.
class Catalog {
 public:
  /// `function_files` hold functions that problems may bring along. Errors: the first file that
  /// does not parse; a name defined twice, with both places.
  static Result<std::shared_ptr<const Catalog>> load(
      const std::vector<std::filesystem::path>& template_dirs,
      const std::vector<std::filesystem::path>& function_files = {});

  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<KernelTemplate>& templates() const { return templates_; }
  const std::vector<DeviceHeader>& headers() const { return headers_; }

  /// Errors: `not_found` listing the operations there are.
  Result<const Operation*> operation(std::string_view name) const;
  Result<const KernelTemplate*> kernel_template(std::string_view name) const;
  /// The templates that implement `operation`, in catalog order.
  std::vector<const KernelTemplate*> templates_of(std::string_view operation) const;

 private:
  std::vector<Operation> operations_;
  std::vector<KernelTemplate> templates_;
  std::vector<DeviceHeader> headers_;
};

}  // namespace kernwright
