#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "support/text.h"
#include "tuner/data_ops.h"
#include "tuner/draw.h"
#include "tuner/element.h"

namespace kernwright {
namespace {

/// Work on memory of this process, addressed as a fake device does. The formulas are those of
/// kernels/data_ops.cu.
class HostDataOps final : public DataOps {
 public:
  Result<void> draw(DevicePointer to, DType dtype, std::int64_t elements,
                    InputDistribution distribution, std::uint64_t seed) override {
    void* data = at(to);
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::uint64_t bits = hash_at(seed, static_cast<std::uint64_t>(i));
      double value = 0;
      if (distribution == InputDistribution::small_integers || is_integer(dtype)) {
        value = static_cast<double>(((bits >> 32) * 7) >> 32) - 3;
      } else {
        const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24F;
        const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24F;
        const double angle = 2 * std::numbers::pi * static_cast<double>(v);
        value = std::sqrt(-2 * std::log(u)) * static_cast<float>(std::cos(angle));
      }
      store_element(data, dtype, i, value);
    }
    return {};
  }

  Result<CheckReport> compare(DevicePointer actual, DType dtype, std::int64_t elements,
                              DevicePointer reference, DevicePointer magnitude,
                              const ErrorBound& bound) override {
    const double floor = error_floor(dtype);
    CheckReport report;
    report.elements = elements;
    for (std::int64_t i = 0; i < elements; ++i) {
      const double r = load_element(at(reference), DType::fp32, i);
      const double terms = load_element(at(magnitude), DType::fp32, i);
      const double error = std::fabs(load_element(at(actual), dtype, i) - r);
      const double limit = bound.accumulate_unit * terms + bound.output_unit * std::fabs(r) + floor;
      if (error != 0) {
        const double ratio = error / limit;
        report.max_error = std::max(report.max_error, ratio < kWorstError ? ratio : kWorstError);
      }
      if (!(error <= limit)) {
        if (report.mismatches++ == 0) report.first_mismatch = concat(i);
      }
    }
    return report;
  }

 private:
  static void* at(DevicePointer address) { return reinterpret_cast<void*>(address); }
};

}  // namespace

std::unique_ptr<DataOps> make_host_data_ops() { return std::make_unique<HostDataOps>(); }

}  // namespace kernwright
