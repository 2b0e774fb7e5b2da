#include "tuner/session/tuning_input.h"

#include "compile/render.h"
#include "support/utc.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {

void complete(TuningRecord& record, const TuningInput& input) {
  record.key = input.key;
  record.environment = input.environment;
  if (const auto winner = input.catalog.kernel_template(record.winner.choice.kernel_template)) {
    record.environment.template_digest = template_digest(**winner, input.catalog);
  }
  record.device_name = input.profile.name;
  record.device_uuid = input.device_uuid;
  record.roofline_us = roofline_us(input.problem, input.profile);
  record.created = utc_now();
}

}  // namespace kernwright
