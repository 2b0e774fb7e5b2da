#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/kernel_template.h"
#include "model/catalog/fragment.h"
#include "model/files/device_header.h"
#include "model/files/template_folder.h"
#include "model/operation/bound_problem.h"
#include "model/operation/user_function.h"
#include <kernwright/result.h>

namespace kernwright {

/// All operations and templates, both built-in and from the user's folders. A folder has the layout
/// of `templates/`. A user's template may implement a built-in operation.
///
/// A built-in file is parsed when it is first needed, because a serving process needs few of them.
/// Parsed objects keep their address and do not change. Any thread may call any method.
class Catalog {
 public:
  /// Parses the user's folders. `function_files` define functions that problems may bring along.
  /// Errors: the error of the first file that does not parse; a name that is defined twice, with
  /// both places.
  static Result<std::shared_ptr<const Catalog>> load(
      const std::vector<std::filesystem::path>& template_dirs,
      const std::vector<std::filesystem::path>& function_files = {});

  /// Parses all built-in files that are not parsed yet. Errors: the error of the first file that
  /// does not parse.
  Result<void> parse_all() const;

  /// Returns all of them in catalog order, except built-in ones that do not parse (see
  /// `parse_all`).
  std::vector<std::reference_wrapper<const Operation>> operations() const;
  std::vector<std::reference_wrapper<const KernelTemplate>> templates() const;
  /// Returns the templates that implement `operation`.
  std::vector<const KernelTemplate*> templates_of(std::string_view operation) const;
  const std::vector<DeviceHeader>& headers() const { return headers_; }
  /// Returns the files in `models/` of all folders by their names there, such as "llama.json".
  const std::vector<Fragment>& models() const { return models_; }

  /// Finds an operation. Errors: `not_found` with the existing operations; the error of a built-in
  /// file that does not parse.
  Result<const Operation*> operation(std::string_view name) const;
  Result<const KernelTemplate*> kernel_template(std::string_view name) const;
  /// Binds the problem to its operation. Errors: see `operation` and `BoundProblem::bind`.
  Result<BoundProblem> bind(const Problem& problem) const;

 private:
  /// A file of a folder, and the object that it defines.
  template <typename Value>
  struct Entry {
    Entry(std::string named, const TemplateFolder& in, std::string_view at)
        : name(std::move(named)), folder(&in), path(at) {}

    std::string name;
    const TemplateFolder* folder;
    std::string_view path;
    mutable std::once_flag once;
    mutable std::optional<Result<Value>> value;  ///< set under `once`
  };

  Result<void> add_included(const TemplateFolder& folder);
  Result<void> add_models(const TemplateFolder& folder);
  Result<void> add_operations(const TemplateFolder& folder);
  Result<void> add_templates(const TemplateFolder& folder);
  bool is_built_in(const TemplateFolder& folder) const;

  /// Returns the files beside a source. Errors: a name that kernels already use for another header.
  Result<std::vector<DeviceHeader>> headers_beside(const TemplateFolder& folder,
                                                   std::string_view source,
                                                   const Operation& operation) const;
  Result<Operation> parse(const Entry<Operation>& entry) const;
  Result<KernelTemplate> parse(const Entry<KernelTemplate>& entry) const;
  template <typename Value>
  Result<const Value*> parsed(const Entry<Value>& entry) const;
  template <typename Value>
  std::vector<std::reference_wrapper<const Value>> all(
      const std::deque<Entry<Value>>& entries) const;

  std::deque<TemplateFolder> folders_;  ///< the built-in one first
  std::vector<DeviceHeader> headers_;
  std::vector<Fragment> fragments_;
  std::vector<Fragment> models_;
  std::vector<std::shared_ptr<const UserFunction>> functions_;
  std::deque<Entry<Operation>> operations_;
  std::deque<Entry<KernelTemplate>> templates_;
};

}  // namespace kernwright
