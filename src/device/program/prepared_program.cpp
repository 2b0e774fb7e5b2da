#include "device/program/prepared_program.h"

#include <algorithm>

#include "device/program/tensor_map.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// An address for encoding everything else before the real one is known. It is never dereferenced.
constexpr CUdeviceptr kPlaceholderAddress = CUdeviceptr{1} << 32;

}  // namespace

Result<std::unique_ptr<PreparedProgram>> PreparedProgram::load(
    const DriverApi& api, CUdevice device, std::shared_ptr<LoadedLibrary> library,
    std::shared_ptr<const CompactPlan> plan, DriverStatus& status) {
  KW_ASSIGN(auto form, PreparedForm::make(api, device, std::move(library), plan->form(), status));
  std::unique_ptr<PreparedProgram> program(new PreparedProgram(std::move(form), std::move(plan)));
  KW_TRY(program->encode_maps(nullptr, status));
  return program;
}

Result<std::unique_ptr<PreparedProgram>> PreparedProgram::with(
    std::shared_ptr<const CompactPlan> plan, DriverStatus& status) const {
  std::shared_ptr<const PreparedForm> form = form_;
  if (plan->form() != form->plan) {
    KW_ASSIGN(form,
              PreparedForm::make(form_->api, form_->device, form_->library, plan->form(), status));
  }
  std::unique_ptr<PreparedProgram> program(new PreparedProgram(std::move(form), std::move(plan)));
  KW_TRY(program->allow_shared_memory(status));
  KW_TRY(program->encode_maps(this, status));
  return program;
}

bool PreparedProgram::asks_for(const CompactPlan& plan) const {
  if (plan.form() != form_->plan) return true;
  for (std::size_t i = 0; i < form_->launches.size(); ++i) {
    if (form_->asks_for_more(i, plan.numbers())) return true;
  }
  for (std::size_t i = 0; i < tensor_maps_.size(); ++i) {
    if (known_map(plan, i) == nullptr) return true;
  }
  return false;
}

const PreparedProgram::PreparedTensorMap* PreparedProgram::known_map(const CompactPlan& plan,
                                                                     std::size_t map) const {
  if (map >= tensor_maps_.size()) return nullptr;
  const bool is_same =
      plan.form() == plan_->form()
          ? std::ranges::equal(plan.numbers_of_map(map), plan_->numbers_of_map(map))
          : plan.whole().tensor_maps[map] == plan_->whole().tensor_maps[map];
  return is_same ? &tensor_maps_[map] : nullptr;
}

Result<void> PreparedProgram::allow_shared_memory(DriverStatus& status) const {
  for (std::size_t i = 0; i < form_->launches.size(); ++i) {
    if (!form_->asks_for_more(i, numbers_)) continue;
    const PreparedForm::Launch& launch = form_->launches[i];
    const std::int64_t bytes = numbers_[launch.grid + PlanForm::kDynamicSmem];
    status = form_->library->raise(launch.kernel, form_->device,
                                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(bytes));
    if (!status) {
      return Error{ErrorCode::device, concat("kernel ", form_->plan->plan.launches[i].kernel,
                                             " with ", bytes, " dynamic bytes of shared memory: ",
                                             driver_error(form_->api, status).message)};
    }
  }
  return {};
}

Result<void> PreparedProgram::encode_maps(const PreparedProgram* like, DriverStatus& status) {
  const std::vector<TensorMapPlan>& plans = form_->plan->plan.tensor_maps;
  tensor_maps_.reserve(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (const auto* const known = like != nullptr ? like->known_map(*plan_, i) : nullptr) {
      tensor_maps_.push_back(*known);
      continue;
    }
    PreparedTensorMap& prepared = tensor_maps_.emplace_back();
    prepared.tensor = plans[i].tensor;
    prepared.workspace = plans[i].workspace;
    status = encode_tensor_map(form_->api, plans[i], plan_->numbers_of_map(i), kPlaceholderAddress,
                               prepared.encoded);
    if (!status) {
      return Error{ErrorCode::device, concat("tensor map ", plans[i].name, ": ",
                                             driver_error(form_->api, status).message)};
    }
    const std::optional<std::size_t> word = like != nullptr && i < like->tensor_maps_.size()
                                                ? like->tensor_maps_[i].address_word
                                                : std::nullopt;
    prepared.address_word = word && prepared.encoded.opaque[*word] == kPlaceholderAddress
                                ? word
                                : find_address_word(form_->api, prepared.encoded);
  }
  return {};
}

BlockDemand PreparedProgram::demand(std::size_t launch) const {
  const auto attribute = [&](CUfunction_attribute id) {
    int value = 0;
    static_cast<void>(
        form_->api.kernel_get_attribute(&value, id, form_->launches[launch].kernel, form_->device));
    return value;
  };
  const LaunchPlan& plan = form_->plan->plan.launches[launch];
  const std::span<const std::int64_t> grid = numbers_.subspan(form_->launches[launch].grid);
  return {
      .blocks = grid[0] * grid[1] * grid[2],
      .threads = static_cast<std::int64_t>(volume(plan.block)),
      .registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS),
      .smem_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + grid[PlanForm::kDynamicSmem]};
}

Multiprocessors PreparedProgram::multiprocessors() const {
  const auto attribute = [&](CUdevice_attribute id) {
    int value = 0;
    static_cast<void>(form_->api.device_get_attribute(&value, id, form_->device));
    return value;
  };
  return {.count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
          .blocks = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
          .threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
          .registers = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
          .smem_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
          .reserved_smem_bytes = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)};
}

}  // namespace kernwright
