#include "model/candidate/sized_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/candidate/plan_builder.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

SizedPlan::SizedPlan(const Candidate& valid, std::span<const std::string> free)
    : kernel_template_(*valid.kernel_template),
      problem_(valid.problem),
      configuration_(valid.configuration),
      scope_(valid.scope) {
  const std::size_t of_problem = problem_->scope().size();
  const SizedValues values(valid, free);
  for (const std::string& dim : free) free_.push_back(values.find(dim, of_problem));
  steps_ = values.steps();
  for (const DemandSpec& spec : kernel_template_.cost) {
    PlacedExpression left = values.fold(spec.expression, scope_.size());
    if (!left.constant()) demands_.push_back(std::move(left));
  }
  problem_->operation().visit_shapes(
      [&](const Expression& one) { expressions_.add(one, values.fold(one, of_problem)); });
  detail::visit_launches(kernel_template_, [&](const Expression& one) {
    expressions_.add(one, values.fold(one, scope_.size()));
  });
}

Problem SizedPlan::problem(std::span<const std::int64_t> sizes) const {
  const Problem& like = problem_->problem();
  Problem::Dims dims = like.dims();
  for (std::size_t i = 0; i < free_.size(); ++i) {
    for (auto& [name, size] : dims) {
      if (name == scope_.name(free_[i])) size = sizes[i];
    }
  }
  return Problem::make(like.operation(), std::move(dims), like.flags());
}

Result<Candidate> SizedPlan::candidate(std::span<const std::int64_t> sizes,
                                       const DeviceProfile& profile) const {
  KW_ASSIGN(const BoundProblem problem, problem_->resized(this->problem(sizes).dims()));
  return make_candidate(kernel_template_, problem, configuration_, profile);
}

Result<ExecutionPlan> SizedPlan::at(std::span<const std::int64_t> sizes,
                                    const DeviceProfile& profile) const {
  std::vector<std::int64_t> row(scope_.values().begin(), scope_.values().end());
  for (std::size_t i = 0; i < free_.size(); ++i) row[free_[i]] = sizes[i];
  for (const SizedValues::Step& step : steps_) {
    const std::optional<std::int64_t> value = step.expression.evaluate(row);
    if (!value && !step.zero_if_none) {
      return Error{ErrorCode::invalid_argument,
                   concat(kernel_template_.name, ": derived value ", scope_.name(step.place),
                          " has no value at these sizes")};
    }
    row[step.place] = value.value_or(0);
  }
  for (const PlacedExpression& demand : demands_) {
    if (demand.evaluate(row).value_or(-1) < 0) {
      return Error{ErrorCode::invalid_argument,
                   concat(kernel_template_.name, ": a demand has no value at these sizes")};
    }
  }
  const Operation& operation = problem_->operation();
  const Scope all = scope_.with(row);
  const Scope of_problem = all.first(problem_->scope().size());
  KW_ASSIGN(ExecutionPlan tensors,
            detail::plan_tensors(operation, ValueSource(of_problem, &expressions_)));
  return detail::make_plan(kernel_template_, operation, std::move(tensors),
                           ValueSource(all, &expressions_), profile);
}

}  // namespace kernwright
