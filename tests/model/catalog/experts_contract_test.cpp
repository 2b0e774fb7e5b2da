// The contracts of choose_experts, order_experts and combine_experts.

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ExpertsContractTest : public ::testing::Test {
 protected:
  static Result<BoundProblem> bind(const std::string& text) {
    return catalog().bind(Problem::parse(text).value());
  }
  static std::vector<std::string> names(const std::string& text) {
    std::vector<std::string> all;
    const BoundProblem problem = bind(text).value();
    for (const TensorShape& shape : problem.shapes()) all.push_back(shape.name);
    return all;
  }
  static std::vector<Candidate> candidates(const std::string& name, const std::string& text) {
    return valid_candidates(**catalog().kernel_template(name), bind(text).value(), h200());
  }
};

TEST_F(ExpertsContractTest, ABiasAndPaddingAreTensorsOnlyWithTheirFlags) {
  const std::string text = "choose_experts tokens=5 experts=160 top=6 dtype=bf16";
  EXPECT_THAT(names(text), ElementsAre("logits", "ids", "weights"));
  EXPECT_THAT(names(text + " bias=choice bias_dtype=fp32 padding=behind"),
              ElementsAre("logits", "bias", "real", "ids", "weights"));
  const BoundProblem problem = bind(text + " bias=choice bias_dtype=fp32").value();
  EXPECT_EQ(problem.shapes()[1].dtype, DType::fp32);
  EXPECT_THAT(problem.shapes()[2].extent, ElementsAre(5, 6));
  EXPECT_EQ(problem.operation().bytes.evaluate(problem.scope()).value(),
            5 * (320 + 8 * 6) + 160 * 4);
}

TEST_F(ExpertsContractTest, WhatNoChoiceCanBeIsRefusedWithTheReason) {
  const auto refuses = [](const std::string& flags, const char* reason) {
    EXPECT_THAT(bind("choose_experts tokens=5 dtype=bf16 " + flags),
                Fails(ErrorCode::invalid_argument, HasSubstr(reason)))
        << flags;
  };
  refuses("experts=1025 top=8", "the lanes of a warp keep the scores");
  refuses("experts=64 top=33", "a lane keeps one of the chosen experts");
  refuses("experts=4 top=5", "as many experts as are chosen");
  refuses("experts=100 top=8 expert_groups=8", "as many experts each");
  refuses("experts=64 top=8 expert_groups=16 kept_groups=1", "as many experts as are chosen");
  refuses("experts=64 top=8 expert_groups=8 kept_groups=9", "as many experts as are chosen");
  refuses("experts=8 top=2 expert_groups=8", "the sum of its two best");
  refuses("experts=8 top=2 group_score=best", "only several groups have scores");
  refuses("experts=8 top=2 score=sigmoid softmax_at=after", "only a softmax");
  refuses("experts=8 top=2 softmax_at=after renormalise=sum", "has the sum 1");
}

TEST_F(ExpertsContractTest, EveryNumberOfExpertsHasCandidates) {
  for (int experts = 1; experts <= 1024; ++experts) {
    const std::string text = concat("choose_experts tokens=7 top=1 experts=", experts);
    for (const char* const dtype : {" dtype=bf16", " dtype=fp32"}) {
      EXPECT_FALSE(candidates("choose_experts/row", text + dtype).empty()) << experts << dtype;
    }
  }
  for (int groups = 1; groups <= 32; ++groups) {
    const std::string text = concat(
        "choose_experts tokens=7 top=2 dtype=bf16 expert_groups=", groups, " experts=", groups * 5);
    EXPECT_FALSE(candidates("choose_experts/row", text).empty()) << groups;
  }
}

TEST_F(ExpertsContractTest, TheBlocksOfAnOrderHaveAllExpertsAndThoseThatAreNotHere) {
  const std::string text = "order_experts tokens=100 top=8 experts=256";
  EXPECT_THAT(names(text), ElementsAre("ids", "ends", "row_of", "place"));
  int checked = 0;
  for (const Candidate& candidate : candidates("order_experts/scan", text)) {
    const std::int64_t blocks = candidate.plan.launches.front().grid[0];
    EXPECT_GE(blocks * candidate.configuration.at("EXPERTS"), 257) << candidate.id();
    ++checked;
  }
  EXPECT_GT(checked, 8);
  EXPECT_THAT(bind("order_experts tokens=100 top=8 experts=1025"),
              Fails(ErrorCode::invalid_argument, HasSubstr("at most so many")));
}

TEST_F(ExpertsContractTest, ASumMayHaveMoreRowsThanPairs) {
  const std::string text = "combine_experts tokens=5 top=3 columns=64 dtype=bf16";
  EXPECT_THAT(bind(text).value().shapes().front().extent, ElementsAre(15, 64));
  EXPECT_THAT(bind(text + " rows=100").value().shapes().front().extent, ElementsAre(100, 64));
  EXPECT_THAT(names(text + " weights=none residual=add"),
              ElementsAre("y", "place", "residual", "out"));
  EXPECT_THAT(bind("combine_experts tokens=5 top=65 columns=64 dtype=bf16"),
              Fails(ErrorCode::invalid_argument, HasSubstr("in registers")));
}

}  // namespace
}  // namespace kernwright
