#include "model/candidate/compact_plan.h"

namespace kernwright {
namespace {

/// Calls `visit` with each number of a plan, in their order, and notes the places in `places`, if
/// it is given.
template <typename Plan, typename Visit>
void visit_numbers(Plan& plan, const Visit& visit, PlanForm* places = nullptr) {
  std::size_t count = 0;
  const auto next = [&](auto& number) {
    visit(number);
    ++count;
  };
  for (auto& workspace : plan.workspaces) next(workspace.bytes);
  for (auto& map : plan.tensor_maps) {
    if (places != nullptr) places->maps.push_back(count);
    for (auto& dim : map.dims) next(dim);
    for (auto& stride : map.strides_bytes) next(stride);
  }
  for (auto& launch : plan.launches) {
    if (places != nullptr) places->launches.push_back(count);
    for (auto& extent : launch.grid) next(extent);
    next(launch.dynamic_smem);
    for (auto& argument : launch.arguments) {
      if (carries_value(argument)) next(argument.value);
    }
  }
  if (places != nullptr) places->tensors = count;
  for (auto& tensor : plan.tensors) {
    if (tensor.written) next(*tensor.written);
    for (auto& extent : tensor.extent) next(extent);
    for (auto& pitch : tensor.pitches) next(pitch);
    if (!tensor.values) continue;
    next(tensor.values->least);
    next(tensor.values->most);
    if (tensor.values->rise) next(*tensor.values->rise);
    if (tensor.values->per) next(*tensor.values->per);
  }
}

}  // namespace

PlanForm::PlanForm(ExecutionPlan whole) : plan(std::move(whole)) {
  visit_numbers(
      plan, [this](auto number) { numbers.push_back(static_cast<std::int64_t>(number)); }, this);
  for (const TensorShape& tensor : plan.tensors) {
    crooked_bits.push_back(static_cast<std::uint64_t>(tensor.alignment) - 1);
  }
  for (const Scalar& scalar : plan.scalars) default_scalars.push_back(scalar.default_value);
}

std::int64_t CompactPlan::workspace_bytes() const {
  std::int64_t total = 0;
  for (const std::int64_t bytes : numbers().first(form_->plan.workspaces.size())) {
    total += workspace_room(bytes);
  }
  return total;
}

const ExecutionPlan& CompactPlan::whole() const {
  if (own_.empty()) return form_->plan;
  std::call_once(once_, [this] {
    auto plan = std::make_unique<ExecutionPlan>(form_->plan);
    const std::int64_t* next = own_.data();
    visit_numbers(*plan, [&next](auto& number) {
      number = static_cast<std::remove_reference_t<decltype(number)>>(*next++);
    });
    made_ = std::move(plan);
  });
  return *made_;
}

}  // namespace kernwright
