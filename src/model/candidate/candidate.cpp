#include "model/candidate/candidate.h"

#include <algorithm>
#include <mutex>

#include "model/candidate/candidate_maker.h"
#include "model/candidate/plan_builder.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

Error rejected(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

/// Returns a rejection that names `place` of the manifest or of what it extends.
Error rejected_at(const KernelTemplate& kernel_template, JsonPlace place,
                  std::string_view message) {
  return rejected(concat(place.in(kernel_template.manifests), ": ", message));
}

/// Returns whether a launch has the tensor, or a map of it, among its arguments. Templates of
/// recorded spaces have no launches, and nothing runs.
bool passes(const KernelTemplate& kernel_template, std::string_view tensor) {
  const auto is_map_of = [&](const TensorMapSpec& map) { return map.tensor == tensor; };
  const auto is_passed = [&](const ArgumentSpec& argument) {
    return argument.kind == ArgumentKind::tensor && argument.name == tensor;
  };
  return kernel_template.launches.empty() ||
         std::ranges::any_of(kernel_template.tensor_maps, is_map_of) ||
         std::ranges::any_of(kernel_template.launches, [&](const LaunchSpec& launch) {
           return std::ranges::any_of(launch.arguments, is_passed);
         });
}

/// Returns the launches without the properties of the first one that are decided by a chain.
std::vector<LaunchPlan> in_chain(std::vector<LaunchPlan> launches) {
  launches.front().programmatic = false;
  return launches;
}

std::vector<LaunchPlan> when_late(std::vector<LaunchPlan> launches) {
  for (ArgumentPlan& argument : launches.front().arguments) {
    if (depends_on_start(argument.kind)) argument.value = 0;
  }
  return in_chain(std::move(launches));
}

}  // namespace

std::int64_t ExecutionPlan::workspace_bytes() const { return workspace_offset(workspaces.size()); }

std::int64_t ExecutionPlan::workspace_offset(std::size_t index) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < index; ++i) total += workspace_room(workspaces[i].bytes);
  return total;
}

std::vector<WorkspacePart> ExecutionPlan::kept_zero() const {
  std::vector<WorkspacePart> parts;
  for (std::size_t i = 0; i < workspaces.size(); ++i) {
    const WorkspacePlan& workspace = workspaces[i];
    if (!workspace.kept_zero || workspace.bytes == 0) continue;
    parts.push_back({workspace.name, workspace_offset(i), workspace.bytes});
  }
  return parts;
}

namespace {

/// Returns the kind and the size of an argument, as it is passed.
std::pair<std::string_view, std::size_t> passed_as(const ExecutionPlan& plan,
                                                   const ArgumentPlan& argument) {
  switch (argument.kind) {
    case ArgumentKind::tensor_map:
      return {"tensor map", 128};
    case ArgumentKind::scalar: {
      const DType dtype = plan.scalars[argument.index].dtype;
      return {to_string(dtype), static_cast<std::size_t>(bytes_of(1, dtype))};
    }
    case ArgumentKind::int32:
    case ArgumentKind::early:
    case ArgumentKind::ahead:
      return {"int32", sizeof(std::int32_t)};
    case ArgumentKind::int64:
      return {"int64", sizeof(std::int64_t)};
    case ArgumentKind::tensor:
    case ArgumentKind::workspace:
    case ArgumentKind::reference:
    case ArgumentKind::magnitude:
      break;
  }
  return {"pointer", sizeof(std::uint64_t)};
}

}  // namespace

Result<void> check_parameters(const ExecutionPlan& plan, const LaunchPlan& launch,
                              std::span<const std::size_t> parameter_bytes) {
  const std::size_t given = launch.arguments.size();
  for (std::size_t i = 0; i < std::min(given, parameter_bytes.size()); ++i) {
    const auto [kind, bytes] = passed_as(plan, launch.arguments[i]);
    if (bytes == parameter_bytes[i]) continue;
    return rejected(concat("kernel ", launch.kernel, ": parameter ", i, " has ", parameter_bytes[i],
                           " bytes; the launch gives ", bytes, " (", kind, ")"));
  }
  if (given == parameter_bytes.size()) return {};
  return rejected(concat("kernel ", launch.kernel, " takes ", parameter_bytes.size(),
                         " parameters; the launch gives ", given));
}

bool same_in_chain(const ExecutionPlan& a, const ExecutionPlan& b) {
  return a.tensor_maps == b.tensor_maps && a.workspaces == b.workspaces &&
         in_chain(a.launches) == in_chain(b.launches);
}

bool same_when_late(const ExecutionPlan& a, const ExecutionPlan& b) {
  return a.tensor_maps == b.tensor_maps && a.workspaces == b.workspaces &&
         when_late(a.launches) == when_late(b.launches);
}

bool reads_ahead(const ExecutionPlan& plan) {
  // Candidates of a recorded space have no launches.
  return !plan.launches.empty() && !plan.launches.front().ahead.empty();
}

std::string bits_key(const Candidate& candidate) {
  std::string key = candidate.id();
  const auto add = [&](const std::string& name) {
    key += concat(' ', name, '=', candidate.scope.find(name).value_or(0));
  };
  std::ranges::for_each(candidate.kernel_template->constant_dims, add);
  for (const Derived& derived : candidate.kernel_template->derived) {
    if (derived.bound) add(derived.name);
  }
  return key;
}

Configuration without_derived(const KernelTemplate& kernel_template,
                              const Configuration& configuration) {
  auto values = configuration.values();
  std::erase_if(values, [&](const auto& value) {
    const Derived* const derived = find_named(kernel_template.derived, value.first);
    return derived != nullptr && derived->bound;
  });
  return Configuration(std::move(values));
}

const Rule* broken_habit(const Candidate& candidate) {
  const std::vector<Rule>& habits = candidate.kernel_template->habits;
  const auto broken = std::ranges::find_if(
      habits, [&](const Rule& habit) { return !habit.failure(candidate.scope).empty(); });
  return broken == habits.end() ? nullptr : &*broken;
}

Result<void> applies(const KernelTemplate& kernel_template, const BoundProblem& problem,
                     const DeviceProfile& profile) {
  KW_TRY(detail::applies_in(kernel_template, problem.scope(), profile));
  for (const Tensor& tensor : problem.operation().tensors) {
    const auto is_this = [&](const TensorShape& one) { return one.name == tensor.name; };
    if (!tensor.when || tensor.hint || std::ranges::none_of(problem.shapes(), is_this) ||
        passes(kernel_template, tensor.name)) {
      continue;
    }
    return rejected(concat(kernel_template.name, " passes the tensor ", tensor.name,
                           " to no kernel, and the problem has it"));
  }
  return {};
}

CandidatePlaces::CandidatePlaces(const KernelTemplate& kernel_template, const Scope& scope)
    : row(scope) {
  for (const Parameter& parameter : kernel_template.space.parameters()) row.set(parameter.name, 0);
  first_derived = row.size();
  const auto place = [&](const Expression& one) {
    expressions.add(one, PlacedExpression(one, row));
  };
  for (const Derived& one : kernel_template.derived) {
    place(one.expression);
    row.set(one.name, 0);
  }
  for (const DemandSpec& spec : kernel_template.cost) place(spec.expression);
  detail::visit_launches(kernel_template, place);
}

CandidateMaker::CandidateMaker(const KernelTemplate& kernel_template, const BoundProblem& problem,
                               const DeviceProfile& profile)
    : kernel_template_(kernel_template),
      problem_(std::make_shared<const BoundProblem>(problem)),
      profile_(profile),
      scope_(problem.scope()),
      applies_(applies(kernel_template, problem, profile)),
      tensors_(detail::plan_tensors(problem)) {
  profile.add_to(scope_);
}

const CandidateMaker::ForPoints& CandidateMaker::for_points() const {
  std::call_once(placing_, [this] {
    for_points_.emplace(
        ForPoints{RuleTree(kernel_template_, scope_), CandidatePlaces(kernel_template_, scope_)});
  });
  return *for_points_;
}

/// Checks that the configuration has the names of the space, in its order, with values from its
/// lists.
Result<void> CandidateMaker::check_place(const Configuration& configuration) const {
  const auto& values = configuration.values();
  const std::vector<Parameter>& parameters = kernel_template_.space.parameters();
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
  }
  return {};
}

bool CandidateMaker::obeys_rules(const Configuration& configuration) const {
  const std::optional<std::int64_t> point = kernel_template_.space.index_of(configuration);
  if (!point) return false;
  std::vector<std::int64_t> obeying;
  for_points().rules.collect(*point, *point + 1, kernel_template_.habits.size(), obeying);
  return !obeying.empty();
}

Result<Candidate> CandidateMaker::make(const Configuration& configuration) const {
  if (!applies_) return applies_.error();
  Configuration own = without_derived(kernel_template_, configuration);
  KW_TRY(check_place(own));
  Result<Candidate> made = make_valid(std::move(own), nullptr);
  if (!made) return made;
  for (const auto& [name, value] : configuration.values()) {
    if (made->scope.find(name) != value) {
      return rejected(concat("configuration \"", configuration.text(), "\" has ", name, "=", value,
                             ", which is derived and not that"));
    }
  }
  return made;
}

Result<Candidate> CandidateMaker::make(std::int64_t point) const {
  if (!applies_) return applies_.error();
  return make_valid(kernel_template_.space.at(point), &for_points().places);
}

Result<Candidate> CandidateMaker::make_valid(Configuration configuration,
                                             const CandidatePlaces* places) const {
  Candidate candidate;
  candidate.kernel_template = &kernel_template_;
  candidate.problem = problem_;
  Scope& all = candidate.scope;
  all = places == nullptr ? scope_ : places->row.with(scope_.values());
  for (const auto& [name, value] : configuration.values()) all.set(name, value);
  if (places != nullptr && all.size() != places->first_derived) {
    return Error{ErrorCode::internal, concat(kernel_template_.name, " has places for ",
                                             places->first_derived, " values, not ", all.size())};
  }
  const ValueSource values(all, places == nullptr ? nullptr : &places->expressions);
  for (const Derived& derived : kernel_template_.derived) {
    const Result<std::int64_t> value = values.evaluate(derived.expression);
    if (!value) {
      return rejected_at(
          kernel_template_, derived.place,
          concat("derived value ", derived.name, " failed: ", value.error().message));
    }
    all.set(derived.name, *value);
  }
  for (const Rule& rule : kernel_template_.rules) {
    if (places != nullptr) break;
    const std::string failure = rule.failure(all);
    if (!failure.empty()) return rejected_at(kernel_template_, rule.place, failure);
  }
  for (const DemandSpec& spec : kernel_template_.cost) {
    const Result<std::int64_t> value = values.evaluate(spec.expression);
    if (!value || *value < 0) {
      return rejected_at(kernel_template_, spec.place,
                         concat("demand ", spec.name.name, " failed: ",
                                value ? concat(*value, " < 0") : value.error().message));
    }
    candidate.demands.*spec.name.demand = *value;
  }
  KW_ASSIGN(candidate.plan,
            detail::make_plan(kernel_template_, problem_->operation(), tensors_, values, profile_));
  candidate.configuration = std::move(configuration);
  return candidate;
}

Result<Candidate> make_candidate(const KernelTemplate& kernel_template, const BoundProblem& problem,
                                 const Configuration& configuration, const DeviceProfile& profile) {
  return CandidateMaker(kernel_template, problem, profile).make(configuration);
}

}  // namespace kernwright
