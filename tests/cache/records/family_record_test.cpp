#include "cache/records/family_record.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cache/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

/// Returns the error of the sample with `edit(json)` applied to it.
template <typename Edit>
std::string family_error_after(const Edit& edit) {
  ordered_json json = ordered_json::parse(to_json(sample_family(8192)));
  edit(json);
  const Result<FamilyRecord> family = parse_family(json.dump());
  return family ? "no error" : family.error().message;
}

TEST(FamilyRecordTest, WhatWasWrittenIsRead) {
  const FamilyRecord family = sample_family(8192);
  const std::string text = to_json(family);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const FamilyRecord back = must(parse_family(text));
  EXPECT_EQ(back, family);
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(must(parse_family_head(to_json(family.head))), family.head);
  EXPECT_EQ(must(parse_family_head(text)), family.head) << "it is the head with more fields";
}

TEST(FamilyRecordTest, TimesComeBackBitByBit) {
  std::mt19937_64 random(20261129);
  FamilyRecord family = sample_family(8192);
  std::vector<double> drawn = {0.0, -0.0, 5e-324};
  while (drawn.size() < 3000) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) drawn.push_back(value);
  }
  family.matrix.clear();
  for (std::size_t i = 0; i < drawn.size(); i += 3) {
    family.matrix.push_back({{1}, {drawn[i], drawn[i + 1], drawn[i + 2]}, drawn[i]});
  }
  const FamilyRecord back = must(parse_family(to_json(family)));
  ASSERT_EQ(back.matrix.size(), family.matrix.size());
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.matrix[i / 3].times_us[i % 3]),
              std::bit_cast<std::uint64_t>(drawn[i]));
  }
}

TEST(FamilyRecordTest, AFieldThatIsMissingIsNamed) {
  const ordered_json whole = ordered_json::parse(to_json(sample_family(8192)));
  for (const auto& [name, value] : whole.items()) {
    EXPECT_THAT(family_error_after([&](ordered_json& json) { json.erase(name); }),
                HasSubstr("family: " + name + ": missing"));
  }
  for (const char* name : {"template", "configuration", "template_digest", "artifact"}) {
    EXPECT_THAT(family_error_after([&](ordered_json& json) { json["kernels"][1].erase(name); }),
                HasSubstr(concat("family: kernels[1].", name)));
  }
  for (const char* name : {"dims", "at_most", "next", "orders"}) {
    EXPECT_THAT(family_error_after([&](ordered_json& json) { json["table"].erase(name); }),
                HasSubstr(concat("family: table.", name)));
  }
  EXPECT_THAT(family_error_after([](ordered_json& json) { json["matrix"][0].erase("spread"); }),
              HasSubstr("family: matrix[0].spread"));
}

TEST(FamilyRecordTest, ATableThatLeadsNowhereIsCorrupt) {
  const auto with = [](const char* part, std::vector<int> numbers) {
    return family_error_after([&](ordered_json& json) { json["table"][part] = numbers; });
  };
  EXPECT_EQ(with("dims", {1, -1, -1}), "a dispatch table whose node 0 leads nowhere")
      << "there is one range";
  EXPECT_EQ(with("next", {0, 0, 1}), "a dispatch table whose node 0 leads nowhere");
  EXPECT_EQ(with("next", {2, 0, 2}), "a dispatch table whose node 2 leads nowhere");
  EXPECT_EQ(with("dims", {0, -1}), "a dispatch table whose nodes are not whole");
  EXPECT_EQ(with("orders", {1, 0, 0}), "a dispatch table whose leaves are not whole");
  EXPECT_EQ(with("orders", {1, 0, 0, 2}), "a dispatch table with choice 2 of 2 where none belongs");
  EXPECT_EQ(with("orders", {1, 0, 0, 0}), "a dispatch table with choice 0 of 2 where none belongs");
  EXPECT_THAT(family_error_after([](ordered_json& json) { json["kernels"].clear(); }),
              HasSubstr("a dispatch table whose leaves are not whole"));
}

TEST(FamilyRecordTest, WhatWasTriedBeginsWithTheKernels) {
  const std::string error = "family: tried does not begin with the kernels";
  EXPECT_EQ(
      family_error_after([](ordered_json& json) { std::swap(json["tried"][0], json["tried"][1]); }),
      error);
  EXPECT_EQ(family_error_after([](ordered_json& json) {
              json["tried"].erase(2);
              json["tried"].erase(1);
            }),
            error);
}

TEST(FamilyRecordTest, ARowHasTheRangesAndTheChoicesOfItsFamily) {
  const std::string error = "family: a row has other sizes or choices than the family";
  for (const char* rows : {"matrix", "validation"}) {
    EXPECT_EQ(family_error_after([&](ordered_json& json) { json[rows][0]["sizes"] = {1, 2}; }),
              error);
    EXPECT_EQ(
        family_error_after([&](ordered_json& json) { json[rows][0]["times_us"] = {1.5, 2.5}; }),
        error);
  }
}

TEST(FamilyRecordTest, EveryRangeOfTheProblemIsADimOfTheTable) {
  FamilyRecord family = sample_family(8192);
  family.head.key.problem = "matmul m=1..8192 n=1..6144 k=4096 dtype=bf16";
  family.head.table.dims.front() = 1;
  family.matrix = {{{1, 2}, {1, 2, 3}, 0}};
  family.validation.clear();
  EXPECT_EQ(must(parse_family(to_json(family))), family);
  family.head.table.dims.front() = 2;
  EXPECT_THAT(parse_family(to_json(family)), Fails(HasSubstr("node 0 leads nowhere")));
  EXPECT_THAT(parse_family_head(to_json(family.head)), Fails(HasSubstr("node 0 leads nowhere")));
}

}  // namespace
}  // namespace kernwright
