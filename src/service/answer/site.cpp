#include "service/answer/site.h"

#include <string>
#include <utility>
#include <vector>

#include "support/gigabytes.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Whether the problem's tensors fit in the GPU's memory: nothing of it could ever be launched
/// else.
Result<void> check_memory(const Operation& operation, const Problem& normalized,
                          const DeviceProfile& profile) {
  KW_ASSIGN(const std::vector<TensorShape> shapes, operation.tensor_shapes(normalized));
  double bytes = 0;
  for (const TensorShape& shape : shapes) bytes += static_cast<double>(shape.bytes());
  if (profile.memory_bytes == 0 || bytes <= static_cast<double>(profile.memory_bytes)) return {};
  return Error{ErrorCode::invalid_argument,
               concat("the tensors of ", normalized.text(), " take ", gigabytes(bytes), "; ",
                      profile.id, " has ", gigabytes(static_cast<double>(profile.memory_bytes)))};
}

}  // namespace

Result<Named> Site::name(const Problem& problem) const {
  Result<const Operation*> found = catalog->operation(problem.operation());
  if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
  KW_ASSIGN(Problem normalized, (*found)->normalize(problem));
  KW_TRY(check_memory(**found, normalized, profile));
  return Named{*found, std::move(normalized)};
}

RecordKey Site::key(const Problem& normalized) const {
  return {.problem = normalized.text(),
          .target = concat("sm_", profile.sm_arch),
          .sku = profile.id,
          .policy = policy};
}

Result<Candidate> Site::candidate(const Problem& problem, std::string_view kernel_template,
                                  const ParameterValues& parameters) const {
  KW_ASSIGN(const Named named, name(problem));
  KW_ASSIGN(const KernelTemplate* found, catalog->kernel_template(kernel_template));
  if (found->operation != named.operation->name) {
    return Error{ErrorCode::invalid_argument,
                 concat("template ", kernel_template, " implements ", found->operation,
                        ", the problem is of ", named.operation->name)};
  }
  KW_TRY(applies(*found, *named.operation, named.problem, profile));
  std::vector<std::pair<std::string, std::int64_t>> values = found->default_configuration.values();
  for (const auto& [parameter, value] : parameters) {
    bool known = false;
    for (auto& entry : values) {
      if (entry.first != parameter) continue;
      entry.second = value;
      known = true;
    }
    if (!known) {
      return Error{ErrorCode::invalid_argument,
                   concat("template ", kernel_template, " has no parameter ", parameter,
                          "; it has ", found->default_configuration.text())};
    }
  }
  return make_candidate(*found, *named.operation, named.problem, Configuration(std::move(values)),
                        profile);
}

}  // namespace kernwright
