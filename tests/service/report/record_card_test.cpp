#include "service/report/record_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include <nlohmann/json.hpp>

#include "cache/stores/record_store.h"
#include "tests/results.h"
#include "tests/service/report/known_record.h"
#include "tests/temp_dir.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string card(const TuningRecord& record) {
  return record_card(record, report_row(record, nullptr, {}));
}

TEST(RecordCardTest, ItSaysWhatWonByHowMuchAndHowSure) {
  TuningRecord record = known_win();
  record.launch_paths = {.times = {{KernelPath::stream, 3, 12}, {KernelPath::graph, 1, 10}},
                         .best = KernelPath::graph};
  const std::string html = card(record);
  for (const char* const part :
       {"matmul m=16 n=4096 k=4096 dtype=bf16", "10.01\u00a0µs", "> win<", "> trust A<",
        "> supported<", "The default takes 1.50× its time", "matmul/skinny", "STAGES",
        "graph: the shortest", "<svg ", "<summary",
        "NVIDIA H200 (h200, sm_90), driver 580.1, 2026-11-20T10:00:00Z"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
}

TEST(RecordCardTest, NothingInItRunsIsAskedForOrReachesBeyondIt) {
  const std::string html = card(known_win());
  for (const char* const part : {"<script", "<style", "<link", "src=", "url(", "@import",
                                 " on"
                                 "click"}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
}

TEST(RecordCardTest, NamesOfStrangersAreText) {
  TuningRecord record = known_win();
  const std::string evil = "<img src=x onerror=\"alert(1)\">";
  record.key.problem = record.device_name = record.created = record.environment.driver = evil;
  record.key.sku = record.key.target = record.winner.choice.kernel_template = evil;
  record.winner.choice.configuration = Configuration({{evil, 1}});
  record.audit.rows = {{evil, Trust::b, evil}};
  record.trust = Trust::b;
  const std::string html = card(record);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;"));
}

TEST(RecordCardTest, APredictionHasNoVerdict) {
  TuningRecord record = known_win();
  record.grade = RecordGrade::predicted;
  record.winner.measurement = {};
  record.winner.predicted_us = 12;
  record.baseline.reset();
  const std::string html = card(record);
  EXPECT_THAT(html, HasSubstr("> predicted<"));
  EXPECT_THAT(html, Not(HasSubstr("trust")));
  EXPECT_THAT(html, HasSubstr("for NVIDIA H200"));
}

class RecordOfAServiceTest : public ::testing::Test {
 protected:
  Result<std::string> record(RecordForm form, const char* problem = kProblem) const {
    return service_.record(Problem::parse(problem).value(), form);
  }

  static constexpr const char* kProblem = "matmul m=16 n=4096 k=4096 dtype=bf16";
  const ScopedTempDir cache_;
  const RecordStore store_{cache_.path()};
  Service service_ = Service::open({.cache = cache_.path(), .sku = "h200"}).value();
};

TEST_F(RecordOfAServiceTest, ItIsGivenForToolsAndForPeople) {
  ASSERT_TRUE(store_.put(known_win()));
  const std::string json = must(record(RecordForm::json));
  const nlohmann::json data = nlohmann::json::parse(json);
  EXPECT_EQ(data["problem"], kProblem);
  EXPECT_EQ(data["verdict"], "win");
  EXPECT_EQ(data["finalists"][0]["template"], "matmul/skinny");
  EXPECT_EQ(data["samples"]["us"].size(), 64U);
  const std::string html = must(record(RecordForm::html));
  EXPECT_THAT(html, HasSubstr("The default takes 1.50×"));
  EXPECT_TRUE(service_.lookup_counts().empty()) << "looking at a record is no lookup";
}

TEST_F(RecordOfAServiceTest, WithoutOneTheProblemIsNamed) {
  EXPECT_THAT(
      record(RecordForm::json),
      Fails(ErrorCode::not_found, "no record for matmul m=16 n=4096 k=4096 dtype=bf16 on h200"));
  EXPECT_EQ(record(RecordForm::html, "matmul m=16 dtype=bf16").error().code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kernwright
