#include "service/answer/site.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/gigabytes.h"
#include "support/names.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/family_fit.h"

namespace kernwright {

Result<BoundProblem> Site::bind(const Problem& problem) const {
  Result<BoundProblem> bound = catalog->bind(problem);
  if (!bound) return Error{ErrorCode::invalid_argument, std::move(bound).error().message};
  KW_TRY(check_memory(*bound));
  return bound;
}

Result<RangedProblem> Site::bind_family(const Problem& problem) const {
  Result<const Operation*> operation = catalog->operation(problem.operation());
  if (!operation) return Error{ErrorCode::invalid_argument, std::move(operation).error().message};
  return RangedProblem::bind(**operation, problem);
}

Result<void> Site::check_memory(const BoundProblem& problem) const {
  // If a problem is larger than the memory, nothing of it can ever be launched.
  if (has_room_for(problem.bytes())) return {};
  return Error{ErrorCode::invalid_argument,
               concat("the tensors of ", problem.text(), " take ", gigabytes(problem.bytes()), "; ",
                      profile.id, " has ", gigabytes(static_cast<double>(profile.memory_bytes)))};
}

bool Site::has_room_for(double bytes) const {
  return profile.memory_bytes == 0 || bytes <= static_cast<double>(profile.memory_bytes);
}

RecordKey Site::key(std::string problem) const {
  return {.problem = std::move(problem),
          .target = concat("sm_", profile.sm_arch),
          .sku = profile.id,
          .policy = policy};
}

Result<Candidate> Site::candidate(const BoundProblem& problem, std::string_view kernel_template,
                                  const ParameterValues& parameters) const {
  KW_ASSIGN(const KernelTemplate* found, catalog->kernel_template(kernel_template));
  if (found->operation != problem.operation().name) {
    return Error{ErrorCode::invalid_argument,
                 concat("template ", kernel_template, " implements ", found->operation,
                        ", the problem is of ", problem.operation().name)};
  }
  KW_TRY(applies(*found, problem, profile));
  std::vector<std::pair<std::string, std::int64_t>> values = found->default_configuration.values();
  for (const auto& [parameter, value] : parameters) {
    const Derived* const derived = find_named(found->derived, parameter);
    bool known = derived != nullptr && derived->bound;  // as the kernels of a range name it
    if (known) values.emplace_back(parameter, value);
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
  return make_candidate(*found, problem, Configuration(std::move(values)), profile);
}

Result<Candidate> Site::candidate(const RangedProblem& family, std::string_view kernel_template,
                                  const ParameterValues& parameters) const {
  constexpr int kLooks = 256;
  Result<Candidate> of_last = candidate(family.last(), kernel_template, parameters);
  if (of_last) return of_last;
  std::vector<std::vector<double>> looks = spread_evenly(family.free().size(), kLooks);
  looks.emplace_back(family.free().size(), 0);
  for (const std::vector<double>& places : looks) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < places.size(); ++i) {
      sizes.push_back(size_at(family.free()[i], places[i]));
    }
    const Result<BoundProblem> problem = family.at(sizes);
    if (!problem) continue;
    if (auto made = candidate(*problem, kernel_template, parameters)) return made;
  }
  return Error{of_last.error().code, concat("none of the looked at sizes of ", family.text(),
                                            " takes it; the last: ", of_last.error().message)};
}

}  // namespace kernwright
