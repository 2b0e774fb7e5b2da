#include "launch/loaded_kernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "launch/device_values.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

std::vector<std::int64_t> strides_of(const TensorShape& tensor) {
  std::vector<std::int64_t> strides;
  for (std::size_t dim = 0; dim + 1 < tensor.extent.size(); ++dim) {
    strides.push_back(tensor.pitch(dim));
  }
  if (!tensor.extent.empty()) strides.push_back(1);
  return strides;
}

std::vector<ArgumentInfo> describe_arguments(const ExecutionPlan& plan) {
  std::vector<ArgumentInfo> arguments;
  for (const TensorShape& tensor : plan.tensors) {
    arguments.push_back({.name = tensor.name,
                         .is_scalar = false,
                         .is_output = tensor.role != TensorRole::in,
                         .in_place = tensor.in_place,
                         .dtype = tensor.dtype,
                         .extent = tensor.extent,
                         .strides = strides_of(tensor),
                         .alignment = tensor.alignment});
  }
  for (const Scalar& scalar : plan.scalars) {
    arguments.push_back({.name = scalar.name,
                         .is_scalar = true,
                         .is_output = false,
                         .in_place = {},
                         .dtype = scalar.dtype,
                         .extent = {},
                         .strides = {},
                         .alignment = 0});
  }
  return arguments;
}

/// Returns whether the GPU of the current context can access the first and the last of the bytes.
bool reachable(const DriverApi& api, DevicePointer first, std::int64_t bytes) {
  for (const DevicePointer address : {first, first + static_cast<DevicePointer>(bytes) - 1}) {
    CUdeviceptr seen = 0;
    if (api.pointer_get_attribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) !=
        CUDA_SUCCESS) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::shared_ptr<const LoadedKernel> LoadedKernel::of(const BorrowedKernel& kernel) {
  return kernel.loaded().shared_from_this();
}

LoadedKernel::LoadedKernel(KernelSummary summary, std::shared_ptr<const CompactPlan> plan,
                           std::unique_ptr<Launcher> launcher, Error why_not, bool check_launches)
    : summary_(std::move(summary)),
      plan_(std::move(plan)),
      why_not_(std::move(why_not)),
      workspace_bytes_(plan_->workspace_bytes()),
      crooked_bits_(plan_->form()->crooked_bits),
      default_scalars_(plan_->form()->default_scalars),
      program_(launcher ? &launcher->program() : nullptr),
      check_launches_(check_launches),
      launcher_(std::move(launcher)) {}

const std::vector<ArgumentInfo>& LoadedKernel::arguments() const {
  std::call_once(described_, [this] { arguments_ = describe_arguments(plan()); });
  return arguments_;
}

Error LoadedKernel::bad_argument(std::size_t position, std::string_view problem) const {
  return {ErrorCode::invalid_argument, concat("argument ", position, " of ", summary().problem,
                                              " (", arguments()[position].name, "): ", problem)};
}

Error LoadedKernel::bad_count(std::size_t count) const {
  return {ErrorCode::invalid_argument,
          concat(summary().problem, " takes ", plan().tensors.size(), " tensors and up to ",
                 plan().scalars.size(), " scalars; ", count, " arguments given")};
}

Error LoadedKernel::bad_tensor(std::size_t position, const Arg& given) const {
  if (given.is_scalar()) {
    return bad_argument(position, "a device pointer expected, a scalar given");
  }
  if (!given.pointer()) return bad_argument(position, "null pointer");
  return bad_argument(
      position, concat("must be aligned to ", crooked_bits_[position] + 1, " bytes, is at ...",
                       reinterpret_cast<DevicePointer>(given.pointer()) % 256, " modulo 256"));
}

[[gnu::hot]] Result<void> LoadedKernel::bind(const Arg* arguments, std::size_t count,
                                             BoundArguments& bound) const {
  if (!program_) [[unlikely]] {
    return why_not_;
  }
  const std::size_t tensors = crooked_bits_.size();
  const std::size_t scalars = default_scalars_.size();
  if (count < tensors || count > tensors + scalars || tensors > BoundArguments::kMaxTensors ||
      scalars > BoundArguments::kMaxScalars) [[unlikely]] {
    return bad_count(count);
  }
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto address = reinterpret_cast<DevicePointer>(arguments[i].pointer());
    if (address == 0 || (address & crooked_bits_[i]) != 0) [[unlikely]] {
      return bad_tensor(i, arguments[i]);
    }
    bound.tensors_[i] = address;
  }
  for (std::size_t i = 0; i < scalars; ++i) {
    const std::size_t position = tensors + i;
    if (position >= count) {
      bound.scalars_[i] = default_scalars_[i];
      continue;
    }
    if (!arguments[position].is_scalar()) [[unlikely]] {
      return bad_argument(position, "a scalar expected, a pointer given");
    }
    bound.scalars_[i] = arguments[position].scalar();
  }
  bound.tensor_count_ = tensors;
  bound.scalar_count_ = scalars;
  return {};
}

Result<void> LoadedKernel::check_tensor(std::size_t tensor, DevicePointer address) const {
  if ((address & crooked_bits_[tensor]) != 0) return bad_tensor(tensor, Arg(address));
  return check_launches_ ? check_memory_of(tensor, address) : Result<void>();
}

Result<void> LoadedKernel::check_memory_of(std::size_t tensor, DevicePointer address) const {
  const std::int64_t bytes = plan().tensors[tensor].bytes();
  if (bytes == 0 || reachable(launcher_->api(), address, bytes)) return {};
  return bad_argument(tensor,
                      concat("the GPU cannot reach all of its ", bytes, " bytes at ", address));
}

Result<void> LoadedKernel::check_memory(const BoundArguments& bound,
                                        DevicePointer workspace) const {
  for (std::size_t i = 0; i < bound.tensor_count_; ++i) {
    KW_TRY(check_memory_of(i, bound.tensors_[i]));
  }
  if (workspace != 0 && workspace_bytes_ > 0 &&
      !reachable(launcher_->api(), workspace, workspace_bytes_)) {
    return Error{ErrorCode::invalid_argument,
                 concat(summary().problem, ": the GPU cannot reach all of the workspace's ",
                        workspace_bytes_, " bytes at ", workspace)};
  }
  return {};
}

Result<std::vector<std::int64_t>> LoadedKernel::read_integers(CUstream stream, std::size_t tensor,
                                                              DevicePointer address) const {
  const TensorShape& shape = plan().tensors[tensor];
  const auto copy = [&](auto& values) -> Result<std::vector<std::int64_t>> {
    const Layout layout = shape.layout();
    values.resize(static_cast<std::size_t>(layout.span()));
    const DriverApi& api = launcher_->api();
    const OutsideOfCaptures waits(api);
    for (const DriverStatus status :
         {DriverStatus{"cuMemcpyDtoHAsync",
                       api.memcpy_dtoh_async(values.data(), address,
                                             values.size() * sizeof(values[0]), stream)},
          DriverStatus{"cuStreamSynchronize", api.stream_synchronize(stream)}}) {
      if (!status) return driver_error(api, status);
    }
    std::vector<std::int64_t> elements(static_cast<std::size_t>(layout.elements));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      elements[i] = values[static_cast<std::size_t>(layout.place(static_cast<std::int64_t>(i)))];
    }
    return elements;
  };
  std::vector<std::int32_t> narrow;
  std::vector<std::int64_t> wide;
  return shape.dtype == DType::int32 ? copy(narrow) : copy(wide);
}

Result<void> LoadedKernel::check_device_values(CUstream stream, const BoundArguments& bound) const {
  const auto needs = [](const TensorShape& shape) { return shape.values.has_value(); };
  if (std::none_of(plan().tensors.begin(), plan().tensors.end(), needs)) return {};
  KW_ASSIGN(const bool capturing, in_capture(launcher_->api(), stream));
  if (capturing) return {};
  std::map<std::string, std::vector<std::int64_t>, std::less<>> known;
  for (std::size_t i = 0; i < bound.tensor_count_; ++i) {
    const TensorShape& shape = plan().tensors[i];
    if (!shape.values) continue;
    KW_ASSIGN(known[shape.name], read_integers(stream, i, bound.tensors_[i]));
    const auto values_of = [&](const std::string& name) {
      const auto found = known.find(name);
      return found == known.end() ? std::span<const std::int64_t>() : std::span(found->second);
    };
    const Result<void> checked =
        check_values(shape, known[shape.name], values_of(shape.values->counted_by),
                     values_of(shape.values->rows));
    if (!checked) return bad_argument(i, checked.error().message);
  }
  return {};
}

[[gnu::hot]] Result<void> LoadedKernel::enqueue(void* stream, const BoundArguments& bound,
                                                void* workspace) const {
  const auto handle = static_cast<CUstream>(stream);
  if (workspace_bytes_ > 0 && workspace == nullptr) [[unlikely]] {
    return enqueue_with_pool(handle, bound);
  }
  return enqueue_at(handle, bound, reinterpret_cast<DevicePointer>(workspace));
}

Result<void> LoadedKernel::enqueue_with_pool(CUstream stream, const BoundArguments& bound) const {
  const WorkspacePool& pool = *launcher_->workspaces();
  const Result<DevicePointer> workspace = pool.take(stream, workspace_bytes_);
  if (!workspace) {
    return Error{workspace.error().code,
                 concat(summary().problem, " needs a workspace of ", workspace_bytes_,
                        " bytes, and none was given; from the pool: ", workspace.error().message)};
  }
  Result<void> launched = enqueue_at(stream, bound, *workspace);
  const DriverStatus given_back = pool.give_back(stream, *workspace);
  if (launched && !given_back) return driver_error(launcher_->api(), given_back);
  return launched;
}

[[gnu::hot]] Result<void> LoadedKernel::enqueue_at(CUstream stream, const BoundArguments& bound,
                                                   DevicePointer workspace) const {
  const std::size_t kept = program_->kept_zero_bytes();
  const DevicePointer zeros = kept > 0 ? launcher_->workspaces()->zeros(stream, kept) : 0;
  const DriverStatus status =
      program_->enqueue(stream, bound.view(workspace, zeros), program_->starts_early());
  if (!status) [[unlikely]] {
    return driver_error(launcher_->api(), status);
  }
  return {};
}

[[gnu::hot]] Result<void> LoadedKernel::launch(void* stream, const Arg* arguments,
                                               std::size_t count, void* workspace) const {
  if (check_launches_) return launch_checked(stream, arguments, count, workspace);
  BoundArguments bound;
  KW_TRY(bind(arguments, count, bound));
  return enqueue(stream, bound, workspace);
}

Result<void> LoadedKernel::launch_checked(void* stream, const Arg* arguments, std::size_t count,
                                          void* workspace) const {
  BoundArguments bound;
  KW_TRY(bind(arguments, count, bound));
  Result<void> reachable = check_memory(bound, reinterpret_cast<DevicePointer>(workspace));
  if (!reachable) return reachable;
  KW_TRY(check_device_values(static_cast<CUstream>(stream), bound));
  return enqueue(stream, bound, workspace);
}

BorrowedKernel LazyKernel::borrowed() const {
  BorrowedKernel borrowed(nullptr);
  borrowed.lazy_ = this;
  borrowed.kept_ = shared_from_this();
  return borrowed;
}

const LoadedKernel& LazyKernel::load_once() const {
  std::call_once(once_, [this] {
    kept_ = load();
    ready_.store(kept_.get(), std::memory_order_release);
  });
  return *kept_;
}

[[gnu::hot]] const LoadedKernel& BorrowedKernel::loaded() const {
  return loaded_ != nullptr ? *loaded_ : lazy_->loaded();
}

[[gnu::hot]] Result<void> BorrowedKernel::launch(void* stream, std::initializer_list<Arg> arguments,
                                                 void* workspace) const {
  return loaded().launch(stream, arguments.begin(), arguments.size(), workspace);
}

[[gnu::hot]] Result<void> BorrowedKernel::launch(void* stream, const Arg* arguments,
                                                 std::size_t count, void* workspace) const {
  return loaded().launch(stream, arguments, count, workspace);
}

Result<void> BorrowedKernel::launch_checked(void* stream, std::initializer_list<Arg> arguments,
                                            void* workspace) const {
  return loaded().launch_checked(stream, arguments.begin(), arguments.size(), workspace);
}

Result<void> BorrowedKernel::launch_checked(void* stream, const Arg* arguments, std::size_t count,
                                            void* workspace) const {
  return loaded().launch_checked(stream, arguments, count, workspace);
}

Result<BakedLaunch> BorrowedKernel::bake(std::initializer_list<Arg> arguments) const {
  return loaded().bake(arguments.begin(), arguments.size());
}

Result<BakedLaunch> BorrowedKernel::bake(const Arg* arguments, std::size_t count) const {
  return loaded().bake(arguments, count);
}

std::int64_t BorrowedKernel::workspace_bytes() const { return loaded().workspace_bytes(); }

const std::vector<ArgumentInfo>& BorrowedKernel::arguments() const { return loaded().arguments(); }

const KernelSummary& BorrowedKernel::summary() const { return loaded().summary(); }

Kernel::Kernel(const BorrowedKernel& borrowed) : BorrowedKernel(borrowed) {
  if (kept_ == nullptr) kept_ = loaded_->shared_from_this();
}

}  // namespace kernwright
