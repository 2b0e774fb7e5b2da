#include "tuner/data/data_ops.h"

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

Result<CheckReport> DataOps::compare(DevicePointer actual, DType dtype, const Layout& layout,
                                     DevicePointer reference, DevicePointer magnitude,
                                     const ErrorBound& bound) {
  KW_ASSIGN(const auto number, enqueue_compare(actual, dtype, layout, reference, magnitude, bound));
  KW_ASSIGN(const auto findings, take_findings());
  const Finding& found = findings[number];
  CheckReport report;
  report.max_error = found.max_error;
  report.mismatches = found.mismatches;
  report.elements = layout.elements;
  if (found.mismatches != 0) report.first_mismatch = concat(found.first);
  return report;
}

}  // namespace kernwright
