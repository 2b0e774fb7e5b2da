#include <bit>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/candidate/config_header.h"
#include "model/files/embedded_files.h"
#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/element.h"
#include "tuner/data/embedded_kernels.h"

namespace kernwright {
namespace {

// Same layout as in kernels/data_ops.cu.
struct DeviceFinding {
  std::uint64_t max_error;
  std::uint64_t mismatches;
  std::uint64_t first;  ///< complement
  std::uint64_t hash;
};
constexpr std::int64_t kFindingBytes = sizeof(DeviceFinding);
/// The number of regions that one launch hashes.
constexpr std::size_t kRegions = 8;

/// A plan of one launch whose arguments are `pointers` and then `scalars`.
ExecutionPlan plan_of(std::string kernel, std::size_t pointers, std::vector<DType> scalars,
                      std::uint32_t blocks) {
  ExecutionPlan plan;
  LaunchPlan launch;
  launch.kernel = std::move(kernel);
  launch.grid = {blocks, 1, 1};
  launch.block = {256, 1, 1};
  const auto refer = [&](ArgumentKind kind, std::size_t index) {
    ArgumentPlan argument;
    argument.kind = kind;
    argument.index = index;
    launch.arguments.push_back(argument);
  };
  for (std::size_t i = 0; i < pointers; ++i) {
    TensorShape shape;
    shape.name = concat("t", i);
    shape.extent = {1};
    shape.alignment = 1;
    plan.tensors.push_back(std::move(shape));
    refer(ArgumentKind::tensor, i);
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    Scalar scalar;
    scalar.name = concat("s", i);
    scalar.dtype = scalars[i];
    plan.scalars.push_back(std::move(scalar));
    refer(ArgumentKind::scalar, i);
  }
  plan.launches.push_back(std::move(launch));
  return plan;
}

/// The value of an int scalar that has these 32 bits.
double int_bits(std::uint64_t bits) {
  return static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(bits)));
}

/// The scalars that describe a layout, and then `scalars`. Levels that it does not have are of one
/// entry.
std::vector<double> laid_out(const Layout& layout, std::vector<double> scalars) {
  std::vector<double> all{static_cast<double>(layout.row), static_cast<double>(layout.level_count)};
  for (const Layout::Level& level : layout.levels) {
    all.push_back(static_cast<double>(level.count));
    all.push_back(static_cast<double>(level.pitch));
  }
  all.insert(all.end(), scalars.begin(), scalars.end());
  return all;
}

/// The dtypes of these scalars.
std::vector<DType> laid_out(std::vector<DType> scalars) {
  scalars.insert(scalars.begin(), 2 + 2 * Layout::kMaxLevels, DType::fp64);
  return scalars;
}

/// Runs our own kernels, which are compiled for each element type on first use. Their findings go
/// to numbered places of one small buffer.
class DeviceDataOps final : public DataOps {
 public:
  DeviceDataOps(Device& device, CompilePool& pool, std::unique_ptr<DeviceBuffer> findings)
      : device_(device), pool_(pool), findings_(std::move(findings)) {}

  Result<void> draw(DevicePointer to, DType dtype, const Layout& layout, const Draw& draw,
                    std::uint64_t seed) override {
    KW_ASSIGN(auto programs, programs_for(dtype));
    KW_TRY(launch(
        *programs->draw, {to},
        laid_out(layout, {static_cast<double>(layout.elements), static_cast<double>(layout.columns),
                          draw.from, draw.to, int_bits(seed), int_bits(seed >> 32),
                          static_cast<double>(draw.kind)})));
    return fill_gaps(to, dtype, layout);
  }

  Result<void> fill_gaps(DevicePointer to, DType dtype, const Layout& layout) override {
    if (layout.contiguous()) return {};
    KW_ASSIGN(auto programs, programs_for(dtype));
    return launch(*programs->fill_gaps, {to},
                  laid_out(layout, {static_cast<double>(layout.span())}));
  }

  Result<std::size_t> enqueue_compare(DevicePointer actual, DType dtype, const Layout& layout,
                                      DevicePointer reference, DevicePointer magnitude,
                                      const ErrorBound& bound) override {
    KW_ASSIGN(auto programs, programs_for(dtype));
    auto number = reserve(1);
    if (!number) return number;
    KW_TRY(launch(*programs->compare, {actual, reference, magnitude, place(number.value())},
                  laid_out(layout, {static_cast<double>(layout.span()), bound.accumulate_unit,
                                    bound.output_unit, error_floor(dtype) + bound.absolute,
                                    range_end(dtype), bound.exact ? 1.0 : 0.0,
                                    bound.nan ? 1.0 : 0.0, bound.infinite ? 1.0 : 0.0})));
    return number;
  }

  Result<std::size_t> enqueue_hash(std::span<const MemoryRegion> regions) override {
    // Any element type's program has the same hash.
    KW_ASSIGN(auto programs,
              programs_for(programs_.empty() ? DType::fp32 : programs_.begin()->first));
    auto first = reserve(regions.size());
    if (!first) return first;
    for (std::size_t i = 0; i < regions.size(); i += kRegions) {
      std::vector<DevicePointer> pointers(kRegions + 1);
      std::vector<double> bytes(kRegions);
      for (std::size_t j = 0; j < kRegions && i + j < regions.size(); ++j) {
        pointers[j] = regions[i + j].address;
        bytes[j] = static_cast<double>(regions[i + j].bytes);
      }
      pointers[kRegions] = place(first.value() + i);
      KW_TRY(launch(*programs->hash, std::move(pointers), std::move(bytes)));
    }
    return first;
  }

  Result<std::vector<Finding>> take_findings() override {
    const std::size_t count = std::exchange(used_, 0);
    std::vector<DeviceFinding> raw(count);
    clean_ = false;
    if (count == 0) {
      KW_TRY(device_.wait());
    } else if (auto done = device_.download(std::as_writable_bytes(std::span(raw)), place(0));
               !done) {
      return done.error();
    }
    std::vector<Finding> findings;
    findings.reserve(count);
    for (const DeviceFinding& found : raw) {
      findings.push_back(
          {std::bit_cast<double>(found.max_error), static_cast<std::int64_t>(found.mismatches),
           found.mismatches == 0 ? -1 : static_cast<std::int64_t>(~found.first), found.hash});
    }
    return findings;
  }

 private:
  struct Programs {
    std::shared_ptr<LoadedProgram> draw;
    std::shared_ptr<LoadedProgram> fill_gaps;
    std::shared_ptr<LoadedProgram> compare;
    std::shared_ptr<LoadedProgram> hash;
  };

  Result<void> launch(const LoadedProgram& program, std::vector<DevicePointer> pointers,
                      std::vector<double> scalars) {
    LaunchArguments arguments;
    arguments.tensors = std::move(pointers);
    arguments.scalars = std::move(scalars);
    return device_.enqueue(program, arguments);
  }

  DevicePointer place(std::size_t number) const {
    return findings_->address() + static_cast<DevicePointer>(number) * kFindingBytes;
  }

  Result<std::size_t> reserve(std::size_t count) {
    if (used_ + count > kMaxFindings) {
      return Error{ErrorCode::internal, concat(used_ + count, " findings are outstanding; at most ",
                                               kMaxFindings, " have a place")};
    }
    if (!clean_) {
      KW_TRY(device_.fill(findings_->address(), 0, findings_->bytes()));
      clean_ = true;
    }
    return std::exchange(used_, used_ + count);
  }

  Result<const Programs*> programs_for(DType dtype) {
    if (const auto known = programs_.find(dtype); known != programs_.end()) return &known->second;
    const DeviceProfile& profile = device_.profile();
    KW_ASSIGN(auto request, data_ops_request(dtype, profile.sm_arch));
    KW_ASSIGN(const auto compiled, pool_.submit(std::move(request)).get());
    const auto blocks = static_cast<std::uint32_t>(profile.sm_count * 8);
    constexpr DType kF = DType::fp64;
    constexpr DType kI = DType::int32;
    Programs programs;
    for (auto& [plan, program] :
         {std::pair{plan_of("kernwright_draw", 1, laid_out({kF, kF, kF, kF, kI, kI, kI}), blocks),
                    &programs.draw},
          std::pair{plan_of("kernwright_fill_gaps", 1, laid_out({kF}), blocks),
                    &programs.fill_gaps},
          std::pair{
              plan_of("kernwright_compare", 4, laid_out({kF, kF, kF, kF, kF, kI, kI, kI}), blocks),
              &programs.compare},
          std::pair{
              plan_of("kernwright_hash", kRegions + 1, std::vector<DType>(kRegions, kF), blocks),
              &programs.hash}}) {
      KW_ASSIGN(auto loaded, device_.load(compiled->bits, plan));
      *program = std::move(loaded);
    }
    return &programs_.emplace(dtype, std::move(programs)).first->second;
  }

  Device& device_;
  CompilePool& pool_;
  std::unique_ptr<DeviceBuffer> findings_;
  std::size_t used_ = 0;
  bool clean_ = false;  ///< the unused places are zeros
  std::map<DType, Programs> programs_;
};

}  // namespace

Result<CompileRequest> data_ops_request(DType dtype, int sm_arch) {
  CompileRequest request;
  request.name = "tuner/data/kernels/data_ops.cu";
  request.target = concat("sm_", sm_arch);
  request.options.push_back(concat("-DELEMENT=", dtype_format(dtype).cuda_type));
  for (const EmbeddedFile& file : embedded_tuner_kernels()) {
    if (file.path == "data_ops.cu") request.source = file.content;
  }
  for (const EmbeddedFile& file : embedded_templates()) {
    if (file.path == "include/kernwright/math/types.cuh") {
      request.headers.emplace_back("kernwright/math/types.cuh", file.content);
    }
  }
  if (request.source.empty() || request.headers.empty()) {
    return Error{ErrorCode::internal, "the embedded sources of the data kernels are missing"};
  }
  return request;
}

Result<std::unique_ptr<DataOps>> make_device_data_ops(Device& device, CompilePool& pool) {
  KW_ASSIGN(
      auto findings,
      device.allocate(static_cast<std::int64_t>(DataOps::kMaxFindings + kRegions) * kFindingBytes));
  return std::unique_ptr<DataOps>(
      std::make_unique<DeviceDataOps>(device, pool, std::move(findings)));
}

}  // namespace kernwright
