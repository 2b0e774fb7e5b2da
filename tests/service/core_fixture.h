#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/results.h"
#include "tests/service/fake_surroundings.h"
#include "tests/temp_dir.h"

namespace kernwright {

/// A service on a GPU that exists in `world_` alone, with a cache of its own.
class ServiceCoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<ServiceCore> open(MissPolicy policy = MissPolicy::predict, std::string sku = {}) {
    ServiceOptions options{.cache = cache_.path(),
                           .template_dirs = template_dirs_,
                           .sku = std::move(sku),
                           .l2 = l2_,
                           .on_miss = policy,
                           .tune_seconds = tune_seconds_,
                           .background_seconds = background_seconds_,
                           .min_match = min_match_,
                           .measure_in_process = true};
    Surroundings surroundings = fake_surroundings(world_);
    surroundings.shortlists = shortlists_;
    return must(ServiceCore::open(std::move(options), std::move(surroundings)));
  }

  static TuningOptions few_trials() { return {.budget = {.trials = 20}}; }

  ScopedTempDir cache_;
  std::vector<std::string> template_dirs_;
  FakeWorld world_;
  L2State l2_ = L2State::cold;
  Match min_match_ = Match::none;
  bool shortlists_ = false;
  double tune_seconds_ = 5;
  double background_seconds_ = 600;
  Problem problem_ = vector_add(4096, DType::bf16);
};

}  // namespace kernwright
