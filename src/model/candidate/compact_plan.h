#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"

namespace kernwright {

/// The plan of one size, with all that plans of other sizes have in common with it. They differ in
/// their numbers alone, which are listed in one order: the bytes of each workspace; the dims and
/// the strides of each tensor map; of each launch the grid, the dynamic shared memory and the
/// arguments that carry a value; and what describes the tensors.
struct PlanForm {
  /// The places of a launch's numbers behind its first one, which the grid has.
  static constexpr std::size_t kDynamicSmem = 3;
  static constexpr std::size_t kArguments = 4;

  explicit PlanForm(ExecutionPlan whole);

  ExecutionPlan plan;
  std::vector<std::int64_t> numbers;  ///< of the plan
  std::vector<std::size_t> maps;      ///< the place of each map's first number
  std::vector<std::size_t> launches;  ///< the same of each launch
  std::size_t tensors = 0;            ///< the same of the first tensor
  /// For each tensor the bits below its alignment, which must be 0 in an address.
  std::vector<std::uint64_t> crooked_bits;
  std::vector<double> default_scalars;
};

/// A plan by its form and its numbers. A launch needs no more, so that the whole plan is made when
/// it is first asked for. Immutable; any thread may use it.
class CompactPlan {
 public:
  explicit CompactPlan(ExecutionPlan whole)
      : CompactPlan(std::make_shared<const PlanForm>(std::move(whole))) {}
  /// The form's own plan.
  explicit CompactPlan(std::shared_ptr<const PlanForm> form) : form_(std::move(form)) {}
  /// `numbers` are as many as the form's, and `bytes` is the size of all tensors together.
  CompactPlan(std::shared_ptr<const PlanForm> form, std::vector<std::int64_t> numbers, double bytes)
      : form_(std::move(form)), own_(std::move(numbers)), own_bytes_(bytes) {}

  const std::shared_ptr<const PlanForm>& form() const { return form_; }
  std::span<const std::int64_t> numbers() const { return own_.empty() ? form_->numbers : own_; }
  /// Returns the numbers of a tensor map.
  std::span<const std::int64_t> numbers_of_map(std::size_t map) const {
    const TensorMapPlan& like = form_->plan.tensor_maps[map];
    return numbers().subspan(form_->maps[map], like.dims.size() + like.strides_bytes.size());
  }
  std::int64_t workspace_bytes() const;
  /// Returns the bytes of all tensors together.
  double bytes() const { return own_.empty() ? total_bytes(form_->plan.tensors) : own_bytes_; }
  const ExecutionPlan& whole() const;

 private:
  std::shared_ptr<const PlanForm> form_;
  std::vector<std::int64_t> own_;  ///< empty: the form's
  double own_bytes_ = 0;
  mutable std::once_flag once_;
  mutable std::unique_ptr<const ExecutionPlan> made_;
};

}  // namespace kernwright
