#pragma once

#include <string>

#include "model/candidate/choice.h"
#include "model/result/measurement.h"

namespace kernwright {

/// The resources of one compiled kernel, read from the compiler's log and the cubin.
struct Resources {
  int registers = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int stack_bytes = 0;
  int static_smem_bytes = 0;
  int barriers = 0;

  int spill_bytes() const { return spill_store_bytes + spill_load_bytes; }
  friend bool operator==(const Resources&, const Resources&) = default;
};

void describe(auto& visitor, MaybeConst<Resources> auto& resources) {
  visitor.field("registers", resources.registers);
  visitor.field("spill_store_bytes", resources.spill_store_bytes);
  visitor.field("spill_load_bytes", resources.spill_load_bytes);
  visitor.field("stack_bytes", resources.stack_bytes);
  visitor.field("static_smem_bytes", resources.static_smem_bytes);
  visitor.field("barriers", resources.barriers);
}

/// The result of one step of a trial.
struct TrialStep {
  Outcome outcome = Outcome::ok;
  std::string detail;
};

void describe(auto& visitor, MaybeConst<TrialStep> auto& step) {
  visitor.field("outcome", step.outcome);
  visitor.field("detail", step.detail);
}

/// A candidate that was tried: its outcome, and the measurement if there is one.
struct Trial {
  Choice choice;
  Outcome outcome = Outcome::rejected;
  std::string detail;  ///< the reason, if the outcome is not ok
  Measurement measurement;
  CheckReport check;
  Resources resources;
  double predicted_us = 0;  ///< 0: no prediction
  double compile_seconds = 0;
  double at_seconds = 0;  ///< when it was first tried, since the search's budget began to run
};

}  // namespace kernwright
