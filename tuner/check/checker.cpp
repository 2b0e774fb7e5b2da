#include "tuner/check/checker.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "compile/render.h"
#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/data/alignment.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

constexpr double kErrorFactor = 8;
/// Terms that are rounded on the way are rounded once, and what they are made of may be too.
constexpr double kIntermediateFactor = 2;
/// The largest product of two elements of {-3..3}.
constexpr double kLargestProduct = 9;

/// The unit of rounding of the accumulation. With 16-bit and 8-bit inputs the adders of tensor
/// cores truncate, which loses two bits compared with fp32 arithmetic.
double accumulate_unit(DType accumulate, const std::vector<TensorShape>& shapes) {
  const bool narrow = std::any_of(shapes.begin(), shapes.end(), [](const TensorShape& shape) {
    return shape.role != TensorRole::out && dtype_bits(shape.dtype) < 32;
  });
  if (accumulate == DType::fp64) return 0x1p-53;
  if (accumulate == DType::fp32 && narrow) return 0x1p-22;
  return rounding_unit(accumulate);
}

/// The largest sum of small integers that is exact in the accumulator. Tensor cores keep about 14
/// bits of sums of fp8 products.
double exact_limit(DType accumulate, const std::vector<TensorShape>& shapes) {
  const bool fp8 = std::any_of(shapes.begin(), shapes.end(), [](const TensorShape& shape) {
    return shape.role != TensorRole::out && !is_integer(shape.dtype) &&
           dtype_bits(shape.dtype) == 8;
  });
  const double exact = exact_integers(accumulate);
  return fp8 ? std::min(exact, 0x1p13) : exact;
}

/// The number of terms that are summed for each output.
double reduction_terms(const BoundProblem& problem) {
  const std::optional<Expression>& reduction = problem.operation().tolerance.reduction;
  if (!reduction) return 1;
  const auto terms = reduction->evaluate(problem.scope());
  return terms ? std::max(1.0, static_cast<double>(terms.value())) : 1;
}

/// The name of an element, "d[3,17]", from its place in the tensor's span.
std::string position(const TensorShape& shape, std::int64_t place) {
  std::vector<std::int64_t> at(shape.extent.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const std::int64_t pitch = i + 1 == at.size() ? 1 : shape.pitch(i);
    at[i] = place / pitch;
    place %= pitch;
  }
  std::string text = concat(shape.name, "[");
  for (std::size_t i = 0; i < at.size(); ++i) text += concat(i == 0 ? "" : ",", at[i]);
  return text + "]";
}

Result<double> download_element(Device& device, DevicePointer array, DType dtype,
                                std::int64_t index) {
  std::array<std::byte, 8> bytes{};
  const std::int64_t size = bytes_of(1, dtype);
  const auto at = array + static_cast<DevicePointer>(bytes_of(index, dtype));
  KW_TRY(device.download(std::span(bytes).first(static_cast<std::size_t>(size)), at));
  return load_element(bytes.data(), dtype, 0);
}

/// An element as text; integers with all digits.
Result<std::string> download_text(Device& device, DevicePointer array, DType dtype,
                                  std::int64_t index) {
  if (dtype != DType::int64) {
    KW_ASSIGN(auto value, download_element(device, array, dtype, index));
    if (is_integer(dtype)) return concat(static_cast<std::int64_t>(value));
    return std::isnan(value) ? "nan" : concat(value);
  }
  std::int64_t value = 0;
  const auto at = array + static_cast<DevicePointer>(bytes_of(index, dtype));
  KW_TRY(device.download(std::as_writable_bytes(std::span(&value, 1)), at));
  return concat(value);
}

}  // namespace

ErrorBound error_bound(const BoundProblem& problem, const TensorShape& output) {
  const double unit = accumulate_unit(problem.operation().tolerance.accumulate, problem.shapes());
  const double terms = reduction_terms(problem);
  ErrorBound bound{kErrorFactor * std::sqrt(terms) * unit, rounding_unit(output.dtype)};
  if (output.intermediate) {
    bound.accumulate_unit += kIntermediateFactor * rounding_unit(*output.intermediate);
  }
  bound.infinite = output.infinite;
  return bound;
}

std::optional<DrawKind> exact_draw(const BoundProblem& problem) {
  const Operation& operation = problem.operation();
  const std::vector<TensorShape>& shapes = problem.shapes();
  const bool own = operation.input_kernels && !operation.input_kernels->exact.empty();
  if (!operation.exact_inputs && !own) return std::nullopt;
  if (operation.exact_when) {
    const auto holds = operation.exact_when->evaluate(problem.scope());
    if (!holds || holds.value() == 0) return std::nullopt;
  }
  if (own) return DrawKind::kernel;
  const bool real = std::any_of(shapes.begin(), shapes.end(), [](const TensorShape& shape) {
    return shape.always && shape.draw.kind == DrawKind::uniform && !is_integer(shape.dtype);
  });
  if (real) return std::nullopt;
  double limit = exact_limit(operation.tolerance.accumulate, shapes);
  for (const TensorShape& shape : shapes) {
    if (shape.role != TensorRole::in) limit = std::min(limit, largest(shape.dtype));
  }
  const double terms = reduction_terms(problem);
  if (terms * kLargestProduct <= limit) return DrawKind::small_integers;
  if (terms <= limit) return DrawKind::signs;
  return std::nullopt;
}

Result<Checker> Checker::make(Device& device, DataOps& data_ops, const BoundProblem& problem,
                              const Catalog& catalog, CompilePool& pool, const BufferSets& sets) {
  const auto failed = [&](const Error& error) {
    return Error{error.code,
                 concat("the reference of ", problem.operation().name, ": ", error.message)};
  };
  const DeviceProfile& profile = device.profile();
  auto future = pool.submit(render_reference(problem, catalog, profile.sm_arch));
  auto planned = make_reference_plan(problem, profile);
  if (!planned) return failed(planned.error());
  const ExecutionPlan& plan = planned.value();

  Checker checker;
  const std::int64_t bytes = checker.place_outputs(sets);
  auto buffer = device.allocate(std::max(bytes, kAlignment));
  if (!buffer) return failed(buffer.error());
  checker.buffer_ = std::move(buffer).value();
  for (Output& output : checker.outputs_) {
    output.bound = error_bound(problem, sets.shapes()[output.tensor]);
    for (Expected* expected : {&output.realistic, &output.exact, &output.nan, &output.count}) {
      expected->value += checker.buffer_->address();
      expected->magnitude += checker.buffer_->address();
    }
  }
  // Filled with NaN, so that an element that the reference does not write is found below.
  if (auto done = device.fill(checker.buffer_->address(), 0xFF, checker.buffer_->bytes()); !done) {
    return failed(done.error());
  }

  const CompileResult& compiled = future.get();
  if (!compiled) return failed(compiled.error());
  auto program = device.load(compiled.value()->bits, plan);
  if (!program) return failed(program.error());
  // The exact set and set 0 share the buffer of the magnitude, so set 0 comes last.
  for (const int set : {BufferSets::kExactSet, BufferSets::kNanSet, BufferSets::kCountSet, 0}) {
    if (set == BufferSets::kExactSet && !sets.has_exact_set()) continue;
    if (set == BufferSets::kNanSet && !sets.has_nan_set()) continue;
    if (set == BufferSets::kCountSet && !sets.has_count_set()) continue;
    if (auto done = checker.run_reference(device, *program.value(), plan, sets, set); !done) {
      return failed(done.error());
    }
  }
  if (auto done = checker.expect_finite(data_ops); !done) {
    return failed(done.error());
  }
  return checker;
}

/// Lists the outputs, with offsets in place of addresses. Returns the bytes of all.
std::int64_t Checker::place_outputs(const BufferSets& sets) {
  shapes_ = sets.shapes();
  has_exact_ = sets.has_exact_set();
  has_count_ = sets.has_count_set();
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].role == TensorRole::in) continue;
    const auto next = [&](DType dtype) {
      const std::int64_t size = bytes_of(shapes_[i].elements(), dtype);
      const auto place = static_cast<DevicePointer>(bytes);
      bytes += aligned(size);
      return place;
    };
    const DType dtype = reference_dtype(shapes_[i].dtype);
    Output output;
    output.tensor = i;
    output.realistic = {next(dtype), next(DType::fp32)};
    output.is_exact = shapes_[i].exact;
    if (has_exact_) {
      output.exact.value = next(dtype);
      output.exact.magnitude = output.is_exact ? output.realistic.magnitude : next(DType::fp32);
    }
    if (sets.has_nan_set()) output.nan = {next(dtype), next(DType::fp32)};
    if (has_count_) output.count = {next(dtype), next(DType::fp32)};
    outputs_.push_back(output);
  }
  return bytes;
}

Result<void> Checker::run_reference(Device& device, const LoadedProgram& program,
                                    const ExecutionPlan& plan, const BufferSets& sets,
                                    int set) const {
  LaunchArguments arguments;
  arguments.tensors = sets.addresses(set, plan.tensors);
  arguments.references.resize(plan.tensors.size());
  arguments.magnitudes.resize(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    for (const Output& output : outputs_) {
      if (plan.tensors[i].name != shapes_[output.tensor].name) continue;
      arguments.references[i] = output.of(set).value;
      arguments.magnitudes[i] = output.of(set).magnitude;
    }
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.checked_value);
  return device.run(program, arguments);
}

Result<void> Checker::expect_finite(DataOps& data_ops) const {
  for (const Output& output : outputs_) {
    const std::int64_t elements = shapes_[output.tensor].elements();
    if (reference_dtype(shapes_[output.tensor].dtype) != DType::fp32) continue;
    std::vector<DevicePointer> values{output.realistic.value};
    std::vector<DevicePointer> magnitudes{output.realistic.magnitude};
    if (has_exact_) values.push_back(output.exact.value);
    if (has_exact_ && !output.is_exact) magnitudes.push_back(output.exact.magnitude);
    if (has_count_) {
      values.push_back(output.count.value);
      magnitudes.push_back(output.count.magnitude);
    }
    const auto expect = [&](DevicePointer array, bool infinite) -> Result<void> {
      // inf - inf is NaN, so that only a finite array equals itself.
      KW_ASSIGN(auto self, data_ops.compare(array, DType::fp32, elements, array, array,
                                            {.infinite = infinite}));
      if (self.mismatches != 0) {
        return Error{ErrorCode::internal, concat(self.mismatches, " of ", elements, " elements of ",
                                                 shapes_[output.tensor].name, " are not ",
                                                 infinite ? "numbers" : "finite",
                                                 ", the first is number ", self.first_mismatch)};
      }
      return {};
    };
    for (const DevicePointer array : values) KW_TRY(expect(array, output.bound.infinite));
    for (const DevicePointer array : magnitudes) KW_TRY(expect(array, false));
  }
  return {};
}

Result<std::size_t> Checker::enqueue(DataOps& data_ops, int set,
                                     std::span<const DevicePointer> addresses) const {
  std::size_t first = 0;
  for (const Output& output : outputs_) {
    const TensorShape& shape = shapes_[output.tensor];
    const Expected& expected = output.of(set);
    const auto number =
        data_ops.enqueue_compare(addresses[output.tensor], shape.dtype, shape.layout(),
                                 expected.value, expected.magnitude, output.bound_of(set));
    if (!number) return number;
    if (&output == &outputs_.front()) first = number.value();
  }
  return first;
}

Result<CheckReport> Checker::report(Device& device, int set,
                                    std::span<const DevicePointer> addresses,
                                    std::span<const Finding> findings, std::size_t first) const {
  CheckReport total;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    const Finding& found = findings[first + i];
    if (found.mismatches != 0 && total.mismatches == 0) {
      KW_ASSIGN(total.first_mismatch,
                describe(device, set, addresses[output.tensor], output, found.first));
    }
    total.max_error = std::max(total.max_error, found.max_error);
    total.mismatches += found.mismatches;
    total.elements += shapes_[output.tensor].elements();
  }
  return total;
}

Result<CheckReport> Checker::compare(Device& device, DataOps& data_ops,
                                     const BufferSets& sets) const {
  const std::vector<DevicePointer> addresses = sets.addresses(0);
  KW_ASSIGN(const auto first, enqueue(data_ops, 0, addresses));
  KW_ASSIGN(const auto findings, data_ops.take_findings());
  return report(device, 0, addresses, findings, first);
}

ErrorBound Checker::Output::bound_of(int set) const {
  ErrorBound of_set = bound;
  if (set == BufferSets::kExactSet && is_exact) {
    of_set = {.exact = true};
    of_set.infinite = bound.infinite;
  }
  of_set.nan = set == BufferSets::kNanSet;
  return of_set;
}

void Checker::widen(double units, double absolute) {
  for (Output& output : outputs_) {
    output.bound.accumulate_unit += units;
    output.bound.absolute += absolute;
  }
}

std::vector<MemoryRegion> Checker::outputs(std::span<const DevicePointer> addresses) const {
  std::vector<MemoryRegion> regions;
  for (const Output& output : outputs_) {
    regions.push_back({addresses[output.tensor], shapes_[output.tensor].bytes()});
  }
  return regions;
}

Result<std::string> Checker::describe(Device& device, int set, DevicePointer actual,
                                      const Output& output, std::int64_t place) const {
  const TensorShape& shape = shapes_[output.tensor];
  const std::optional<std::int64_t> element = shape.layout().element_at(place);
  if (!element) {
    return concat(position(shape, place), ": written, behind the ", shape.columns(),
                  " elements of a row");
  }
  const std::int64_t index = *element;
  const Expected& expected = output.of(set);
  const DType dtype = reference_dtype(shape.dtype);
  KW_ASSIGN(const auto value, download_text(device, actual, shape.dtype, place));
  KW_ASSIGN(const auto known, download_text(device, expected.value, dtype, index));
  const std::string text = concat(position(shape, place), ": ", value, " != ", known);
  const bool exact = set == BufferSets::kExactSet && output.is_exact;
  if (exact || dtype == DType::int64) return concat(text, " (exact)");
  KW_ASSIGN(const double reference, download_element(device, expected.value, dtype, index));
  KW_ASSIGN(const double magnitude,
            download_element(device, expected.magnitude, DType::fp32, index));
  if (!std::isfinite(reference)) return text;
  const double bound = output.bound.accumulate_unit * magnitude +
                       output.bound.output_unit * std::fabs(reference) + output.bound.absolute +
                       error_floor(shape.dtype);
  return concat(text, " (bound ", bound, ")");
}

}  // namespace kernwright
