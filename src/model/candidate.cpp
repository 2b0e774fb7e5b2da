#include "model/candidate.h"

#include <algorithm>
#include <limits>

#include "model/plan_builder.h"
#include "support/text.h"

namespace kernwright {
namespace {

Error rejected(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

/// A rejection by what stands at `line` of the manifest.
Error rejected_at(const KernelTemplate& kernel_template, int line, std::string_view message) {
  return rejected(concat(kernel_template.manifest_file, ":", line, ": ", message));
}

/// Enters the configuration's values; they must be those of the space's lists, in its order.
Result<void> bind_parameters(const ParameterSpace& space, const Configuration& configuration,
                             Scope& scope) {
  const auto& values = configuration.values();
  const std::vector<Parameter>& parameters = space.parameters();
  if (values.size() != parameters.size()) {
    return rejected(concat("configuration \"", configuration.text(), "\" has ", values.size(),
                           " values for ", parameters.size(), " parameters"));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& [name, value] = values[i];
    const Parameter& parameter = parameters[i];
    if (name != parameter.name) {
      return rejected(concat("configuration \"", configuration.text(), "\" has ", name,
                             " in the place of parameter ", parameter.name));
    }
    if (std::find(parameter.values.begin(), parameter.values.end(), value) ==
        parameter.values.end()) {
      return rejected(concat("parameter ", name, ": ", value, " is not in its list of values"));
    }
    scope.set(name, value);
  }
  return {};
}

Result<void> check_rules(const KernelTemplate& kernel_template, const Scope& scope) {
  for (const Rule& rule : kernel_template.rules) {
    const std::string failure = rule.failure(scope);
    if (!failure.empty()) return rejected_at(kernel_template, rule.line, failure);
  }
  return {};
}

}  // namespace

std::int64_t ExecutionPlan::workspace_bytes() const {
  constexpr std::int64_t kAlignment = 256;
  std::int64_t total = 0;
  for (const WorkspacePlan& workspace : workspaces) {
    total += (workspace.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return total;
}

std::string Candidate::id() const {
  const std::string values = configuration.text();
  return kernel_template->name + (values.empty() ? "" : " ") + values;
}

Result<void> applies(const KernelTemplate& kernel_template, const Operation& operation,
                     const Problem& normalized, const DeviceProfile& profile) {
  return detail::applies_in(kernel_template, operation.scope(normalized), profile);
}

Result<Candidate> make_candidate(const KernelTemplate& kernel_template, const Operation& operation,
                                 const Problem& normalized, const Configuration& configuration,
                                 const DeviceProfile& profile) {
  Candidate candidate;
  candidate.kernel_template = &kernel_template;
  candidate.operation = &operation;
  Scope& scope = candidate.scope;
  scope = operation.scope(normalized);
  if (Result<void> applied = detail::applies_in(kernel_template, scope, profile); !applied) {
    return std::move(applied).error();
  }
  profile.add_to(scope);
  if (Result<void> bound = bind_parameters(kernel_template.space, configuration, scope); !bound) {
    return std::move(bound).error();
  }
  for (const Derived& derived : kernel_template.derived) {
    const Result<std::int64_t> value = derived.expression.evaluate(scope);
    if (!value) {
      return rejected_at(
          kernel_template, derived.line,
          concat("derived value ", derived.name, " failed: ", value.error().message));
    }
    scope.set(derived.name, *value);
  }
  if (Result<void> checked = check_rules(kernel_template, scope); !checked) {
    return std::move(checked).error();
  }
  Result<ExecutionPlan> plan =
      detail::make_plan(kernel_template, operation, normalized, scope, profile);
  if (!plan) return std::move(plan).error();
  candidate.plan = *std::move(plan);
  candidate.problem = normalized;
  candidate.configuration = configuration;
  return candidate;
}

}  // namespace kernwright
