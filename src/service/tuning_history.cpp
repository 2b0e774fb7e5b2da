#include "service/tuning_history.h"

#include <vector>

#include "tuner/evidence.h"
#include "tuner/seeds.h"

namespace kernwright {

void TuningHistory::add_to(TuningOptions& options, const Operation& operation,
                           std::span<const GradedRecord> known) const {
  for (const GradedRecord& found : known) {
    // A record of level C claims nothing that a new search would have to refute.
    if (found.record.grade != RecordGrade::measured || found.record.trust == Trust::c) continue;
    options.incumbent = {found.record.winner.kernel_template, found.record.winner.configuration,
                         false};
    break;
  }
  std::vector<TuningRecord> neighbours;
  for (RecordStore::Listed& listed : cache_.records().list()) {
    if (listed.record) neighbours.push_back(*std::move(listed.record.value));
  }
  options.seeds = find_seeds(operation, key_, neighbours);
  for (const Failure& failure :
       FailureStore(cache_.root()).active(key_.problem, scope({}), template_digest_)) {
    options.failures.push_back({failure.id(), failure.outcome});
  }
}

Result<void> TuningHistory::keep(const Trial& failed) const {
  if (!lasting_severity(failed.outcome)) return {};
  return FailureStore(cache_.root())
      .put({.problem = key_.problem,
            .kernel_template = failed.kernel_template,
            .configuration = failed.configuration,
            .scope = scope(template_digest_(failed.kernel_template)),
            .outcome = failed.outcome,
            .detail = failed.detail,
            .time = utc_now()});
}

FailureScope TuningHistory::scope(std::string template_digest) const {
  return {.sku = key_.sku,
          .target = key_.target,
          .driver = now_.driver,
          .compiler = now_.compiler,
          .template_digest = std::move(template_digest)};
}

}  // namespace kernwright
