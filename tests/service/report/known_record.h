#pragma once

#include <cmath>

#include "cache/records/record.h"
#include "support/text.h"

namespace kernwright {

/// A record of which everything is known: a win on a quiet machine, with a runner-up and a default.
inline TuningRecord known_win(int m = 16) {
  TuningRecord record;
  record.key = {concat("matmul m=", m, " n=4096 k=4096 dtype=bf16"), "sm_90", "h200", {}};
  record.environment = {"digest", "nvrtc 13.0 abcdef", "580.1", "0.1.0"};
  record.winner.choice = {"matmul/skinny", Configuration({{"BM", 16}, {"STAGES", 4}})};
  for (int i = 0; i < 64; ++i) {
    record.winner.measurement.samples_us.push_back(10 + 0.01 * (i % 3));
    record.winner.measurement.sm_mhz.push_back(1700 + i);
  }
  record.runners_up.resize(1);
  record.runners_up[0].choice = {"matmul/skinny", Configuration({{"BM", 8}, {"STAGES", 4}})};
  record.runners_up[0].slowdown = {0.02, 0.01, 0.03};
  record.baseline.emplace();
  record.baseline->choice = {"matmul/tiled", Configuration({{"BM", 64}})};
  record.baseline->slowdown = {std::log(1.5), std::log(1.4), std::log(1.6)};
  for (const double us : record.winner.measurement.samples_us) {
    record.baseline->measurement.samples_us.push_back(1.5 * us);
  }
  record.trust = Trust::a;
  record.verdict = Verdict::win;
  record.rounds.dropped = {9};
  record.search = {.strategy = "portfolio", .failed = 1, .stop_reason = "exhausted"};
  record.candidates = 40;
  record.measured = 39;
  record.device_name = "NVIDIA H200";
  record.created = "2026-11-20T10:00:00Z";
  record.roofline_us = 7;
  return record;
}

}  // namespace kernwright
