#include <bit>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "model/config_header.h"
#include "model/embedded_files.h"
#include "support/text.h"
#include "tuner/data_ops.h"
#include "tuner/element.h"
#include "tuner/embedded_kernels.h"

namespace kernwright {
namespace {

// Layouts of kernels/data_ops.cu.
struct DrawParameters {
  std::uint64_t seed;
  std::int64_t elements;
  std::int64_t small_integers;
};
struct CompareParameters {
  std::int64_t elements;
  double accumulate_unit;
  double output_unit;
  double floor;
};
struct CompareResult {
  std::uint64_t max_error;
  std::uint64_t mismatches;
  std::uint64_t first;
};
constexpr std::int64_t kResultOffset = 256;
constexpr std::int64_t kScratchBytes = 512;

Result<CompileRequest> request_for(DType dtype, int sm_arch) {
  CompileRequest request;
  request.name = "tuner/kernels/data_ops.cu";
  request.target = concat("sm_", sm_arch);
  request.options.push_back(concat("-DELEMENT=", cuda_type(dtype)));
  for (const EmbeddedFile& file : embedded_tuner_kernels()) {
    if (file.path == "data_ops.cu") request.source = file.content;
  }
  for (const EmbeddedFile& file : embedded_templates()) {
    if (file.path == "include/kernwright/types.cuh") {
      request.headers.emplace_back("kernwright/types.cuh", file.content);
    }
  }
  if (request.source.empty() || request.headers.empty()) {
    return Error{ErrorCode::internal, "the embedded sources of the data kernels are missing"};
  }
  return request;
}

/// A plan of one launch whose arguments are `tensors` pointers.
ExecutionPlan pointer_plan(std::string kernel, std::size_t tensors, std::uint32_t blocks) {
  ExecutionPlan plan;
  LaunchPlan launch;
  launch.kernel = std::move(kernel);
  launch.grid = {blocks, 1, 1};
  launch.block = {256, 1, 1};
  for (std::size_t i = 0; i < tensors; ++i) {
    TensorShape shape;
    shape.name = concat("t", i);
    shape.extent = {1};
    plan.tensors.push_back(std::move(shape));
    ArgumentPlan argument;
    argument.kind = ArgumentKind::tensor;
    argument.index = i;
    launch.arguments.push_back(argument);
  }
  plan.launches.push_back(std::move(launch));
  return plan;
}

LaunchArguments pointers(std::vector<DevicePointer> tensors) {
  LaunchArguments arguments;
  arguments.tensors = std::move(tensors);
  return arguments;
}

/// Kernels of our own, compiled per element type on first use. Their numbers travel through a small
/// buffer, so that one loaded program serves every tensor of the type.
class DeviceDataOps final : public DataOps {
 public:
  DeviceDataOps(Device& device, CompilePool& pool, std::unique_ptr<DeviceBuffer> scratch)
      : device_(device), pool_(pool), scratch_(std::move(scratch)) {}

  Result<void> draw(DevicePointer to, DType dtype, std::int64_t elements,
                    InputDistribution distribution, std::uint64_t seed) override {
    auto programs = programs_for(dtype);
    if (!programs) return programs.error();
    const bool small = distribution == InputDistribution::small_integers || is_integer(dtype);
    const DrawParameters parameters{seed, elements, small ? 1 : 0};
    if (auto done = put(parameters, 0); !done) return done;
    return device_.run(*programs.value()->draw, pointers({to, scratch_->address()}));
  }

  Result<CheckReport> compare(DevicePointer actual, DType dtype, std::int64_t elements,
                              DevicePointer reference, DevicePointer magnitude,
                              const ErrorBound& bound) override {
    auto programs = programs_for(dtype);
    if (!programs) return programs.error();
    const CompareParameters parameters{elements, bound.accumulate_unit, bound.output_unit,
                                       error_floor(dtype)};
    CompareResult result{0, 0, ~std::uint64_t{0}};
    if (auto done = put(parameters, 0); !done) return done.error();
    if (auto done = put(result, kResultOffset); !done) return done.error();
    const DevicePointer result_at = scratch_->address() + kResultOffset;
    const LaunchArguments arguments =
        pointers({actual, reference, magnitude, scratch_->address(), result_at});
    if (auto done = device_.run(*programs.value()->compare, arguments); !done) {
      return done.error();
    }
    if (auto done = device_.download(std::as_writable_bytes(std::span(&result, 1)), result_at);
        !done) {
      return done.error();
    }
    CheckReport report;
    report.max_error = std::bit_cast<double>(result.max_error);
    report.mismatches = static_cast<std::int64_t>(result.mismatches);
    report.elements = elements;
    if (result.mismatches != 0) report.first_mismatch = concat(result.first);
    return report;
  }

 private:
  struct Programs {
    std::shared_ptr<LoadedProgram> draw;
    std::shared_ptr<LoadedProgram> compare;
  };

  template <typename T>
  Result<void> put(const T& value, std::int64_t offset) {
    return device_.upload(scratch_->address() + static_cast<DevicePointer>(offset),
                          std::as_bytes(std::span(&value, 1)));
  }

  Result<const Programs*> programs_for(DType dtype) {
    if (const auto known = programs_.find(dtype); known != programs_.end()) return &known->second;
    const DeviceProfile& profile = device_.profile();
    auto request = request_for(dtype, profile.sm_arch);
    if (!request) return request.error();
    const CompileResult compiled = pool_.submit(std::move(request).value()).get();
    if (!compiled) return compiled.error();
    const auto blocks = static_cast<std::uint32_t>(profile.sm_count * 8);
    Programs programs;
    for (auto [kernel, tensors, program] :
         {std::tuple{"kernwright_draw", std::size_t{2}, &programs.draw},
          std::tuple{"kernwright_compare", std::size_t{5}, &programs.compare}}) {
      auto loaded = device_.load(compiled.value()->bits, pointer_plan(kernel, tensors, blocks));
      if (!loaded) return loaded.error();
      *program = std::move(loaded).value();
    }
    return &programs_.emplace(dtype, std::move(programs)).first->second;
  }

  Device& device_;
  CompilePool& pool_;
  std::unique_ptr<DeviceBuffer> scratch_;
  std::map<DType, Programs> programs_;
};

}  // namespace

Result<std::unique_ptr<DataOps>> make_device_data_ops(Device& device, CompilePool& pool) {
  auto scratch = device.allocate(kScratchBytes);
  if (!scratch) return scratch.error();
  return std::unique_ptr<DataOps>(
      std::make_unique<DeviceDataOps>(device, pool, std::move(scratch).value()));
}

}  // namespace kernwright
