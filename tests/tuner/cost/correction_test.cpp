#include "tuner/cost/correction.h"

#include <gtest/gtest.h>

#include "tuner/cost/cost_model.h"
#include "tuner/cost/embedded_correction.h"

namespace kernwright {
namespace {

constexpr const char* kTwoTrees = R"({
  "sku": "h100_sxm",
  "terms": ["us", "waves"],
  "trees": [
    [[1, 2, 1, 2], [0.25], [0, 3.5, 3, 4], [-0.5], [0.125]],
    [[1]]
  ]
})";

TEST(CorrectionTest, AddsWhatEveryTreeSays) {
  const Correction correction = Correction::parse(kTwoTrees, "two.json").value();
  EXPECT_EQ(correction.sku(), "h100_sxm");
  EXPECT_DOUBLE_EQ(correction.log_ratio(std::vector{9.0, 2.0}), 1.25);
  EXPECT_DOUBLE_EQ(correction.log_ratio(std::vector{3.5, 2.1}), 0.5);
  EXPECT_DOUBLE_EQ(correction.log_ratio(std::vector{3.6, 2.1}), 1.125);
}

TEST(CorrectionTest, ItsTextReadsBackAsTheSame) {
  const Correction correction = Correction::parse(kTwoTrees, "two.json").value();
  const std::string text = correction.text();
  EXPECT_EQ(Correction::parse(text, "again.json").value().text(), text);
  EXPECT_DOUBLE_EQ(Correction::parse(text, "again.json").value().log_ratio(std::vector{3.6, 2.1}),
                   1.125);
}

TEST(CorrectionTest, ADefectNamesFileAndLine) {
  const auto message = [](std::string_view text) {
    const auto read = Correction::parse(text, "bad.json");
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(message(R"({"terms": [], "trees": []})"), "bad.json:1: no \"sku\"");
  EXPECT_EQ(message("{\"sku\": \"h100_sxm\", \"terms\": [\"us\"],\n\"trees\": [[[1, 0, 1, 2]]]}"),
            "bad.json:2: term 1 of 1");
  EXPECT_EQ(
      message("{\"sku\": \"h100_sxm\", \"terms\": [\"us\"],\n\"trees\": [[[0, 0, 1, 0], [1]]]}"),
      "bad.json:2: node 0 of 2 goes on at 0");
  EXPECT_EQ(message("{\"sku\": \"h100_sxm\", \"terms\": [\"us\"],\n\"trees\": [[[0, 0]]]}"),
            "bad.json:2: a node has 1 or 4 numbers, not 2");
  EXPECT_EQ(message("{\"sku\": \"h100_sxm\", \"terms\": [],\n\"trees\": [[]]}"),
            "bad.json:2: a tree is no list of nodes");
}

TEST(CorrectionTest, TheBuiltInOneLooksAtTheTermsOfTheCostModel) {
  ASSERT_EQ(embedded_correction().size(), 1u);
  const auto read = Correction::parse(embedded_correction().front().content, "correction.json");
  ASSERT_TRUE(read) << read.error().message;
  const auto terms = prediction_terms();
  EXPECT_EQ(read->terms(), std::vector<std::string>(terms.begin(), terms.end()));
  EXPECT_FALSE(read->trees().empty());
  EXPECT_EQ(Correction::built_in().text(), read->text());
}

}  // namespace
}  // namespace kernwright
