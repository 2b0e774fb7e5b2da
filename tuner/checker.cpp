#include "tuner/checker.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "compile/render.h"
#include "support/text.h"
#include "tuner/element.h"

namespace kernwright {
namespace {

constexpr double kErrorFactor = 8;
constexpr std::int64_t kAlignment = 256;

/// Unit of the accumulation. With 16-bit and 8-bit inputs the tensor cores' adders truncate, which
/// costs two bits against fp32 arithmetic.
double accumulate_unit(DType accumulate, const std::vector<TensorShape>& shapes) {
  const bool narrow = std::any_of(shapes.begin(), shapes.end(), [](const TensorShape& shape) {
    return shape.role != TensorRole::out && byte_size(shape.dtype) < 4;
  });
  switch (accumulate) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return narrow ? 0x1p-22 : 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::fp8_e4m3:
      return 0x1p-4;
    case DType::int8:
    case DType::int32:
      return 0;
  }
  return 0;
}

/// Rounding of one stored output. The reference is fp32, so no format counts as finer.
double output_unit(DType dtype) {
  switch (dtype) {
    case DType::fp64:
    case DType::fp32:
      return 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::fp8_e4m3:
      return 0x1p-4;
    case DType::int8:
    case DType::int32:
      return 0;
  }
  return 0;
}

/// "d[3,17]" for flat index `index`.
std::string position(const TensorShape& shape, std::int64_t index) {
  std::vector<std::int64_t> at(shape.extent.size());
  for (std::size_t i = at.size(); i-- > 0;) {
    at[i] = index % shape.extent[i];
    index /= shape.extent[i];
  }
  std::string text = concat(shape.name, "[");
  for (std::size_t i = 0; i < at.size(); ++i) text += concat(i == 0 ? "" : ",", at[i]);
  return text + "]";
}

Result<double> download_element(Device& device, DevicePointer array, DType dtype,
                                std::int64_t index) {
  std::array<std::byte, 8> bytes{};
  const std::int64_t size = byte_size(dtype);
  const auto at = array + static_cast<DevicePointer>(index * size);
  if (auto done = device.download(std::span(bytes).first(static_cast<std::size_t>(size)), at);
      !done) {
    return done.error();
  }
  return load_element(bytes.data(), dtype, 0);
}

}  // namespace

ErrorBound error_bound(const Operation& operation, const Problem& normalized,
                       const std::vector<TensorShape>& shapes, const TensorShape& output) {
  double reduction = 1;
  if (operation.tolerance.reduction) {
    const auto terms = operation.tolerance.reduction->evaluate(operation.scope(normalized));
    if (terms) reduction = std::max(1.0, static_cast<double>(terms.value()));
  }
  const double unit = accumulate_unit(operation.tolerance.accumulate, shapes);
  return {kErrorFactor * std::sqrt(reduction) * unit, output_unit(output.dtype)};
}

Result<Checker> Checker::make(Device& device, DataOps& data_ops, const Operation& operation,
                              const Problem& normalized, const Catalog& catalog, CompilePool& pool,
                              const BufferSets& sets) {
  const auto failed = [&](const Error& error) {
    return Error{error.code, concat("the reference of ", operation.name, ": ", error.message)};
  };
  const DeviceProfile& profile = device.profile();
  auto future = pool.submit(render_reference(operation, normalized, catalog, profile.sm_arch));
  auto planned = make_reference_plan(operation, normalized, profile);
  if (!planned) return failed(planned.error());
  const ExecutionPlan& plan = planned.value();

  Checker checker;
  std::int64_t bytes = 0;
  const std::vector<TensorShape>& shapes = sets.shapes();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].role == TensorRole::in) continue;
    const std::int64_t size = (shapes[i].elements() * 4 + kAlignment - 1) / kAlignment * kAlignment;
    Output output;
    output.tensor = i;
    output.bound = error_bound(operation, normalized, shapes, shapes[i]);
    output.value = static_cast<DevicePointer>(bytes);
    output.magnitude = static_cast<DevicePointer>(bytes + size);
    checker.outputs_.push_back(output);
    bytes += 2 * size;
  }
  auto buffer = device.allocate(std::max(bytes, kAlignment));
  if (!buffer) return failed(buffer.error());
  checker.buffer_ = std::move(buffer).value();
  for (Output& output : checker.outputs_) {
    output.value += checker.buffer_->address();
    output.magnitude += checker.buffer_->address();
  }
  // NaN everywhere: an element that the reference leaves out is then found below.
  if (auto done = device.fill(checker.buffer_->address(), 0xFF, checker.buffer_->bytes()); !done) {
    return failed(done.error());
  }

  const CompileResult& compiled = future.get();
  if (!compiled) return failed(compiled.error());
  auto program = device.load(compiled.value()->bits, plan);
  if (!program) return failed(program.error());
  LaunchArguments arguments;
  arguments.tensors = sets.addresses(0, plan.tensors);
  arguments.references.resize(plan.tensors.size());
  arguments.magnitudes.resize(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    for (const Output& output : checker.outputs_) {
      if (plan.tensors[i].name != shapes[output.tensor].name) continue;
      arguments.references[i] = output.value;
      arguments.magnitudes[i] = output.magnitude;
    }
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.default_value);
  if (auto done = device.run(*program.value(), arguments); !done) return failed(done.error());

  for (const Output& output : checker.outputs_) {
    const std::int64_t elements = shapes[output.tensor].elements();
    for (const DevicePointer array : {output.value, output.magnitude}) {
      // inf - inf is NaN, so only a finite array equals itself.
      auto self = data_ops.compare(array, DType::fp32, elements, array, array, {});
      if (!self) return failed(self.error());
      if (self.value().mismatches != 0) {
        return failed({ErrorCode::internal,
                       concat(self.value().mismatches, " of ", elements, " elements of ",
                              shapes[output.tensor].name, " are not finite, the first is number ",
                              self.value().first_mismatch)});
      }
    }
  }
  return checker;
}

Result<CheckReport> Checker::compare(Device& device, DataOps& data_ops,
                                     const BufferSets& sets) const {
  CheckReport total;
  for (const Output& output : outputs_) {
    const TensorShape& shape = sets.shapes()[output.tensor];
    auto report = data_ops.compare(sets.address(0, output.tensor), shape.dtype, shape.elements(),
                                   output.value, output.magnitude, output.bound);
    if (!report) return report.error();
    const CheckReport& found = report.value();
    if (found.mismatches != 0 && total.mismatches == 0) {
      std::int64_t index = 0;
      std::from_chars(found.first_mismatch.data(),
                      found.first_mismatch.data() + found.first_mismatch.size(), index);
      auto text = describe(device, sets, output, index);
      if (!text) return text.error();
      total.first_mismatch = std::move(text).value();
    }
    total.max_error = std::max(total.max_error, found.max_error);
    total.mismatches += found.mismatches;
    total.elements += found.elements;
  }
  return total;
}

Result<std::string> Checker::describe(Device& device, const BufferSets& sets, const Output& output,
                                      std::int64_t index) const {
  const TensorShape& shape = sets.shapes()[output.tensor];
  auto actual = download_element(device, sets.address(0, output.tensor), shape.dtype, index);
  auto reference = download_element(device, output.value, DType::fp32, index);
  auto magnitude = download_element(device, output.magnitude, DType::fp32, index);
  if (!actual) return actual.error();
  if (!reference) return reference.error();
  if (!magnitude) return magnitude.error();
  const double bound = output.bound.accumulate_unit * magnitude.value() +
                       output.bound.output_unit * std::fabs(reference.value()) +
                       error_floor(shape.dtype);
  return concat(position(shape, index), ": ", actual.value(), " != ", reference.value(), " (bound ",
                bound, ")");
}

}  // namespace kernwright
