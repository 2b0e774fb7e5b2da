#include "service/serve/served_kernel.h"

namespace kernwright {

KernelSummary summarize(const Problem& normalized, const GradedRecord& record,
                        std::string artifact) {
  const RecordHead& head = record.head;
  return {.problem = normalized.text(),
          .kernel_template = head.winner.choice.kernel_template,
          .configuration = head.winner.choice.configuration.text(),
          .artifact = std::move(artifact),
          .match = record.match,
          .reason = record.reason,
          .measured_us = head.winner.measured_us,
          .predicted_us = head.winner.predicted_us,
          .roofline_us = head.roofline_us,
          .best_path = head.winner.best_path};
}

}  // namespace kernwright
