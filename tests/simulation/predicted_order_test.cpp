#include "bench/simulation/predicted_order.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "support/files.h"

namespace kernwright {
namespace {

const std::filesystem::path kResults = KERNWRIGHT_RESULTS;

/// The committed measurements of an H200. A copy of the program on another machine has none.
class PredictedOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kResults)) GTEST_SKIP() << "no " << kResults;
  }
  CandidateList enumerate(const std::string& text, std::string_view sku = "h200") const {
    return enumerate_candidates(*catalog_, catalog_->bind(Problem::parse(text).value()).value(),
                                find_profile(sku).value())
        .value();
  }
  /// Expects that the first 16 hold one within `margin` of the best, as it was screened and in the
  /// finals.
  void expect_good_first(const char* folder, double margin) const {
    const auto spaces = read_recorded_spaces(kResults / folder).value();
    for (const RecordedSpace& space : spaces) {
      const auto judged = in_predicted_order(space, enumerate(space.problem));
      EXPECT_GT(static_cast<double>(judged.size()),
                0.98 * static_cast<double>(space.configurations.size()))
          << space.problem << ": left out";
      for (const auto time : {&Judged::truth_us, &Judged::final_us}) {
        const double best_us = fastest(judged, judged.size(), time);
        EXPECT_LE(fastest(judged, 16, time), (1 + margin) * best_us) << space.problem;
      }
    }
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
};

TEST_F(PredictedOrderTest, TheFirst16HoldOneWithinHalfAPercentOfTheBest) {
  expect_good_first("trials", 0.005);
  expect_good_first("searches", 0.005);
}

TEST_F(PredictedOrderTest, TheFirstChoiceForRandomProductsIsNearTheBestThatWasMeasured) {
  const std::filesystem::path searches = kResults.parent_path() / "h100" / "searches.jsonl.gz";
  const auto spaces = read_recorded_spaces(searches).value();
  std::vector<double> slower;
  int looked_at = 0;
  for (const RecordedSpace& space : spaces) {
    if (space.configurations.size() < 60) continue;  // few say little
    if (looked_at++ % 4 != 0) continue;              // all take long
    const auto judged = in_predicted_order(space, enumerate(space.problem, "h100_sxm"));
    const auto first =
        std::find_if(judged.begin(), judged.end(), [](const Judged& one) { return one.compiles; });
    slower.push_back(first->truth_us / space.best_us());
  }
  ASSERT_GT(slower.size(), 20U);
  std::sort(slower.begin(), slower.end());
  EXPECT_LE(slower[slower.size() / 2], 1.07);
  EXPECT_LE(slower[slower.size() * 9 / 10], 1.21);
}

TEST_F(PredictedOrderTest, WinnersOfRowsTakeWhatWasPredictedWithinATenth) {
  const auto json = nlohmann::json::parse(read_file(kResults / "rows_vs_pytorch.json").value());
  std::map<std::string, double> measured;
  for (const auto& row : json.at("rows")) {
    const std::string problem = row.at("problem");
    const bool chosen = problem.find("rows=128 ") != std::string::npos ||
                        problem.find("columns=8192") != std::string::npos ||
                        problem.find("columns=131072") != std::string::npos ||
                        problem.starts_with("rope") || problem.starts_with("elementwise");
    if (chosen) measured[problem] = row.at("ours_us");
  }
  EXPECT_GT(measured.size(), 30U);
  for (const auto& [problem, us] : measured) {
    const CandidateList list = enumerate(problem);
    EXPECT_NEAR(*std::min_element(list.predicted_us.begin(), list.predicted_us.end()) / us, 1, 0.1)
        << problem;
  }
}

}  // namespace
}  // namespace kernwright
