#include "tuner/candidates/candidate_list.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

class ShippedCandidatesTest : public ::testing::Test {
 protected:
  const Candidate& default_candidate(std::string_view text) {
    list_ = enumerate_candidates(*catalog_, catalog_->bind(Problem::parse(text).value()).value(),
                                 find_profile("h200").value())
                .value();
    return list_.candidates[list_.default_index];
  }

 private:
  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  CandidateList list_;
};

TEST_F(ShippedCandidatesTest, ATemplateStandsWithItsDefaultWhereThatIsValid) {
  const Candidate& candidate = default_candidate("matmul m=4096 n=6144 k=4096 dtype=bf16");
  EXPECT_EQ(candidate.kernel_template->name, "matmul/persistent_wave");
  EXPECT_EQ(candidate.configuration, candidate.kernel_template->default_configuration);
}

// Rows of d that TMA cannot store, and sums of fp8 that take twice the registers, each rule the
// default out; what remains of the templates is far slower than its neighbours.
TEST_F(ShippedCandidatesTest, ATemplateWhoseDefaultIsNotValidStandsWithItsNearest) {
  for (const std::string_view problem : {"matmul m=2047 n=6145 k=4095 dtype=bf16",
                                         "matmul m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=bf16"}) {
    const Candidate& candidate = default_candidate(problem);
    EXPECT_EQ(candidate.kernel_template->name, "matmul/persistent_wave") << problem;
    EXPECT_NE(candidate.configuration, candidate.kernel_template->default_configuration);
    EXPECT_GE(candidate.configuration.at("BM") * candidate.configuration.at("BN"), 128 * 128)
        << candidate.id();
  }
}

TEST(CandidateListTest, AGpuThatNoTemplateIsMadeForIsToldOf) {
  const auto catalog = Catalog::load({}).value();
  const auto told = [&](std::string_view text, const char* sku) {
    const auto list = must(enumerate_candidates(
        *catalog, catalog->bind(Problem::parse(text).value()).value(), find_profile(sku).value()));
    for (const std::string& note : list.notes) {
      if (note.find("is made for") != std::string::npos) return note;
    }
    return std::string();
  };
  const char* product = "matmul m=8 n=64 k=64 dtype=bf16";
  EXPECT_EQ(told(product, "b200"),
            "no template of matmul is made for sm_100; matmul/persistent_wave, matmul/skinny are "
            "for sm_90 alone, so what runs here is written for any GPU from sm_80 on, and slower "
            "than this one can be");
  for (const char* sku : {"h200", "a100_80", "l40s"}) EXPECT_EQ(told(product, sku), "") << sku;
  EXPECT_EQ(told("vector_add n=4096 dtype=bf16", "b200"), "") << "has none for one generation";
}

/// The candidates of `wide/one`, which has these parameters beside A.
class WideSpaceTest : public ::testing::Test {
 protected:
  const CandidateList& list(std::string_view parameters, std::string_view defaults) {
    const auto write = [this](std::string_view name, std::string_view text) {
      ASSERT_TRUE(publish_file(directory_ / name, text));
    };
    write("toy/operation.json", kToyOperation);
    write("toy/reference.cu", "reference");
    write("toy/wide/manifest.json",
          toy_manifest(concat(R"("A": [1, 2], )", parameters), concat(R"("A": 1, )", defaults),
                       "ceil_div(n, THREADS)", 0));
    write("toy/wide/kernel.cu", "wide");
    catalog_ = must(Catalog::load({directory_.path()}));
    const Operation& operation = *catalog_->operation("toy").value();
    list_ = must(enumerate_candidates(*catalog_,
                                      BoundProblem::bind(operation, operation.example).value(),
                                      find_profile("h200").value()));
    return list_;
  }

  ScopedTempDir directory_;
  std::shared_ptr<const Catalog> catalog_;
  CandidateList list_;
};

TEST_F(WideSpaceTest, OfThreeMillionConfigurationsAStatedNumberIsKept) {
  std::string values;
  for (int i = 1; i <= 500'000; ++i) values += concat(i == 1 ? "" : ",", i);
  list(concat(R"("C": [1, 2, 3], "B": [)", values, "]"), R"("C": 1, "B": 377777)");
  // Every candidate that is looked at obeys the rules; the default is added if it was not looked
  // at.
  EXPECT_LE(list_.candidates.size(), 20'001U);
  EXPECT_GE(list_.candidates.size(), 20'000U);
  EXPECT_EQ(list_.rejected, 0);
  EXPECT_EQ(list_.notes,
            (std::vector<std::string>{
                "toy/wide: looked at 2500000 of 3000000 configurations",
                "toy/wide: kept 20000 of 2500000 configurations that obey the rules"}));
  std::int64_t least = 500'000;
  std::int64_t most = 0;
  for (const Candidate& candidate : list_.candidates) {
    least = std::min(least, candidate.configuration.at("B"));
    most = std::max(most, candidate.configuration.at("B"));
  }
  EXPECT_LT(least, 1000) << "evenly spread";
  EXPECT_GT(most, 499'000);
  EXPECT_EQ(list_.candidates[list_.default_index].configuration.at("B"), 377'777);
}

TEST_F(WideSpaceTest, WhatCountsInChainsAloneKeepsItsDefault) {
  list(R"("B": [1, 2], "DEPTH": {"values": [0, 1, 2], "bind": "chain"})", R"("B": 1, "DEPTH": 1)");
  EXPECT_EQ(list_.candidates.size(), 4U);
  for (const Candidate& candidate : list_.candidates) {
    EXPECT_EQ(candidate.configuration.at("DEPTH"), 1) << candidate.id();
  }
}

TEST_F(WideSpaceTest, WhatIsNotSampledIsThinnedOutAllTheSame) {
  std::string values;
  for (int i = 1; i <= 30'000; ++i) values += concat(i == 1 ? "" : ", ", i);
  list(concat(R"("B": [)", values, "]"), R"("B": 2)");
  EXPECT_LE(list_.candidates.size(), 20'001U);
  EXPECT_EQ(list_.notes, std::vector<std::string>{
                             "toy/wide: kept 20000 of 60000 configurations that obey the rules"});
  EXPECT_EQ(list_.candidates[list_.default_index].configuration.at("B"), 2);
}

}  // namespace
}  // namespace kernwright
