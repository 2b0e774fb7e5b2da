#include "cache/layers/tiered_cache.h"
#include "service/report/report_page.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

/// Reports of records that the test puts into its cache.
class ReportProgramTest : public ProgramTest {
 protected:
  std::filesystem::path put(int m) {
    const TrialTable trials{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
    const auto file = TieredCache(cache()).put_record(sample_record(m), &trials);
    EXPECT_TRUE(file);
    return file ? *file : std::filesystem::path();
  }
  nlohmann::json data(const std::filesystem::path& page) const {
    const Result<std::string> text = report_data_of(content(page));
    EXPECT_TRUE(text);
    return text ? nlohmann::json::parse(*text) : nlohmann::json();
  }
  const std::filesystem::path page_ = dir_ / "page.html";
};

TEST_F(ReportProgramTest, WritesThePageAndNamesIt) {
  put(1);
  put(2);
  const Ran ran = kernwright({"report", "-o", page_.string()});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out.find(page_.string() + ": 2 records, "), 0U) << ran.out;
  EXPECT_EQ(data(page_)["problems"].size(), 2U);
  EXPECT_EQ(data(page_)["problems"][0]["trials"]["us"].size(), 1U);
}

TEST_F(ReportProgramTest, TakesARecordsFileAndAWorklist) {
  const std::filesystem::path record = put(1);
  put(2);
  const nlohmann::json one =
      kernwright({"report", record.string(), "-o", page_.string(), "--json"}).json();
  EXPECT_EQ(one["records"], 1);
  EXPECT_EQ(one["file"], page_.string());
  EXPECT_EQ(one["bytes"], std::filesystem::file_size(page_));
  const std::filesystem::path list =
      write("list.json", R"({"problems": ["matmul m=2 n=6144 k=4096 dtype=bf16",
        "matmul m=3 n=6144 k=4096 dtype=bf16"]})");
  const nlohmann::json two =
      kernwright({"report", list.string(), "-o", page_.string(), "--json"}).json();
  EXPECT_EQ(two["records"], 1);
  EXPECT_EQ(two["missing"], 1);
}

TEST_F(ReportProgramTest, ComparesWithAnotherCache) {
  put(1);
  const std::filesystem::path older = dir_ / "older";
  ASSERT_TRUE(TieredCache(older).put_record(sample_record(1)));
  const Ran ran = kernwright({"report", "-o", page_.string(), "--compare", older.string()});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(data(page_)["compare"]["rows"].size(), 1U);
  EXPECT_EQ(data(page_)["compare"]["name"], "older");
}

TEST_F(ReportProgramTest, WhatItCannotReportIsAnErrorThatNamesIt) {
  const Ran empty = kernwright({"report", "-o", page_.string()});
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_NE(empty.err.find("no record in cache"), std::string::npos) << empty.err;
  EXPECT_FALSE(std::filesystem::exists(page_));
  const Ran absent = kernwright({"report", (dir_ / "none.json").string()});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_NE(absent.err.find("none.json"), std::string::npos) << absent.err;
  const Ran sku = kernwright({"report", "--sku", "h300"});
  EXPECT_NE(sku.exit_code, 0);
  EXPECT_NE(sku.err.find("h300"), std::string::npos) << sku.err;
  put(1);
  const Ran nowhere = kernwright({"report", "-o", "/proc/none/page.html"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_NE(nowhere.err.find("/proc/none"), std::string::npos) << nowhere.err;
}

TEST_F(ReportProgramTest, ThereHasToBeSomethingToCompareWith) {
  put(1);
  for (const std::filesystem::path& nothing :
       {std::filesystem::path("/proc"), dir_.path() / "none", dir_.path()}) {
    const Ran ran = kernwright({"report", "-o", page_.string(), "--compare", nothing.string()});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_NE(ran.err.find(nothing.string()), std::string::npos) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(page_));
  }
  const std::filesystem::path older = dir_ / "older";
  ASSERT_TRUE(TieredCache(older).put_record(sample_record(2)));
  const Ran ran = kernwright({"report", "-o", page_.string(), "--compare", older.string()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("nothing to compare: of 1 record none"), std::string::npos) << ran.err;
}

TEST_F(ReportProgramTest, LinesOfALogThatCannotBeReadAreCounted) {
  put(1);
  const std::filesystem::path log = write("shapes.jsonl",
                                          "{\"problem\": \"matmul m=1 n=6144 k=4096 dtype=bf16\"}\n"
                                          "{\"problem\": \"matm\n[1]\n\n");
  const Ran ran = kernwright({"report", log.string(), "-o", page_.string()});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.err.find("shapes.jsonl: 2 lines left out"), std::string::npos) << ran.err;
  EXPECT_NE(kernwright({"sweep", log.string(), "--sku", "h200", "--dry-run"}).err.find("2 lines"),
            std::string::npos);
}

TEST_F(ReportProgramTest, AFileThatCannotBeReadIsAWarning) {
  put(1);
  ASSERT_TRUE(publish_file(put(2), "torn"));
  const Ran ran = kernwright({"report", "-o", page_.string()});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_NE(ran.err.find("warning: "), std::string::npos) << ran.err;
  EXPECT_EQ(data(page_)["defects"].size(), 1U);
}

}  // namespace
}  // namespace kernwright
