#include "bench/simulation/recorded_space.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <zlib.h>

#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

constexpr const char* kFirstLine =
    R"({"space": "s", "device": "d", "kernel": "k", "problem_size": [4, 5], )"
    R"("parameters": ["A", "B"], "values": {"A": [1, 2], "B": ["x", "y"]}, "unit": "ms", "more": 1})";

class RecordedSpaceTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text, const char* name = "s.jsonl") const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  Result<RecordedSpace> read(const std::string& lines) const {
    return read_recorded_space(write(concat(kFirstLine, "\n", lines)));
  }
  std::string defect(const std::string& lines) const {
    const auto space = read(lines);
    if (space) return "none";
    EXPECT_EQ(space.error().code, ErrorCode::corrupt);
    const std::string prefix = (folder_ / "s.jsonl").string() + ":";
    EXPECT_EQ(space.error().message.substr(0, prefix.size()), prefix);
    return space.error().message.substr(prefix.size());
  }

  ScopedTempDir directory_;
  std::filesystem::path folder_ = directory_.path();
};

TEST_F(RecordedSpaceTest, ReadsTimesInMicrosecondsAndTheSteadyHalf) {
  const auto space =
      must(read(R"({"c": [1, "x"], "ok": true, "compile_s": 0.5, "t": [9, 9, 1, 3, 2]})"
                "\n"
                R"({"c": [1, "y"], "ok": false, "compile_s": 2, "t": []})"
                "\n\n"
                R"({"c": [2, "x"], "ok": true, "t": [1.5, 0.5, 0.7, 0.9], "unknown": {}})"
                "\n"));
  EXPECT_EQ(space.name, "s");
  EXPECT_EQ(space.problem, "[4,5]");
  EXPECT_EQ(space.templates, std::vector<std::string>{"k"});
  EXPECT_EQ(space.default_index, 0U);
  ASSERT_EQ(space.configurations.size(), 3U);
  const auto& all = space.configurations;
  EXPECT_EQ(all[0].configuration.text(), "A=1 B=0") << "no number: its place in the list";
  EXPECT_EQ(all[0].samples_us, (std::vector<double>{9000, 9000, 1000, 3000, 2000}));
  EXPECT_EQ(all[0].truth_us, 2000);
  EXPECT_EQ(all[0].compile_seconds, 0.5);
  EXPECT_EQ(all[1].outcome, Outcome::launch_failed);
  EXPECT_EQ(all[1].truth_us, 0);
  EXPECT_NEAR(all[2].truth_us, 800, 1e-9);
  EXPECT_NEAR(space.best_us(), 800, 1e-9);
}

TEST_F(RecordedSpaceTest, ReadsSpacesOfSeveralTemplates) {
  const auto space = must(read_recorded_space(write(
      R"({"space": "s", "device": "d", "kernel": "matmul", "problem": "matmul m=1", "policy": "l2=cold",)"
      R"( "problem_size": 7, "parameters": ["template", "BM", "WARPS"], "templates": ["a", "b"],)"
      R"( "default": [1, 64, -1], "unit": "us"})"
      "\n"
      R"({"c": [0, 64, 2], "ok": true, "t": [3, 3], "mhz": [1900, 1800], "regs": 40, "spill": 8,)"
      R"( "smem": 1024, "predicted_us": 2.5})"
      "\n"
      R"({"c": [0, 64, 4], "ok": false, "outcome": "wrong_result"})"
      "\n"
      R"({"c": [1, 64, -1], "ok": true, "t": [4]})")));
  EXPECT_EQ(space.problem, "matmul m=1");
  EXPECT_EQ(space.policy, "l2=cold");
  EXPECT_EQ(space.default_index, 2U);
  const auto& all = space.configurations;
  EXPECT_EQ(all[0].sm_mhz, (std::vector<double>{1900, 1800}));
  EXPECT_EQ(all[0].registers, 40);
  EXPECT_EQ(all[0].spill_bytes, 8);
  EXPECT_EQ(all[0].smem_bytes, 1024);
  EXPECT_EQ(all[0].predicted_us, 2.5);
  EXPECT_EQ(all[1].outcome, Outcome::wrong_result);
  EXPECT_EQ(all[2].kernel_template, 1);
  EXPECT_EQ(all[2].configuration.text(), "BM=64") << "what its template lacks is not there";

  const SearchSpace search = make_search_space(space);
  EXPECT_EQ(search.template_of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(search.default_index, 2U);
}

TEST_F(RecordedSpaceTest, ReadsGzipWhateverTheName) {
  const std::string text =
      concat(kFirstLine, "\n", R"({"c": [1, "x"], "ok": true, "t": [1]})", "\n");
  const std::filesystem::path path = folder_ / "z.jsonl.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const auto space = must(read_recorded_space(path));
  EXPECT_EQ(space.configurations.size(), 1U);

  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 12);
  EXPECT_EQ(read_recorded_space(path).error().code, ErrorCode::corrupt);
}

TEST_F(RecordedSpaceTest, ReadsAFolderByName) {
  EXPECT_EQ(read_recorded_spaces(folder_).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_recorded_space(folder_ / "none.jsonl").error().code, ErrorCode::not_found);
  const std::string line = R"({"c": [1, "x"], "ok": true, "t": [1]})";
  write(concat(kFirstLine, "\n", line), "b.jsonl");
  write(concat(kFirstLine, "\n", line), "a.jsonl");
  write("neither", "README.md");
  EXPECT_EQ(read_recorded_spaces(folder_)->size(), 2U);
  write("{", "c.jsonl");
  EXPECT_EQ(read_recorded_spaces(folder_).error().code, ErrorCode::corrupt);
}

TEST_F(RecordedSpaceTest, ReadsEverySessionOfAFileOfLogs) {
  const auto session = [](int m) {
    return concat(R"({"session":{"problem":"matmul m=)", m,
                  R"( n=8 k=8 dtype=bf16","sku":"h100_sxm","policy":"l2=cold"}})", "\n",
                  R"({"template":"matmul/skinny","configuration":{"BM":)", m,
                  R"(},"outcome":"ok","median_us":9,"samples_us":[9,9]})", "\n");
  };
  write(session(1) + session(2), "logs.jsonl");
  const auto spaces = must(read_recorded_spaces(folder_ / "logs.jsonl"));
  ASSERT_EQ(spaces.size(), 2U);
  EXPECT_EQ(spaces.at(0).problem, "matmul m=1 n=8 k=8 dtype=bf16");
  EXPECT_EQ(spaces.at(1).problem, "matmul m=2 n=8 k=8 dtype=bf16");
}

TEST_F(RecordedSpaceTest, NamesFileLineAndDefect) {
  const std::string good = R"({"c": [1, "x"], "ok": true, "t": [1]})";
  EXPECT_EQ(defect("{"), "2: no JSON object");
  EXPECT_EQ(defect(good + "\n[1]"), "3: no JSON object");
  EXPECT_EQ(defect(R"({"ok": true, "t": [1]})"), "2: no configuration \"c\"");
  EXPECT_EQ(defect(R"({"c": [1], "ok": true, "t": [1]})"),
            "2: a configuration is a list of 2 values, not [1]");
  EXPECT_EQ(defect(R"({"c": [1, "z"], "ok": true, "t": [1]})"),
            "2: B = \"z\" is not in the header's values");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "t": [1]})"), "2: \"ok\" is true or false");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": []})"), "2: ok, but without samples");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": [0]})"), "2: takes 0 us");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": [-1]})"), "2: \"t\" holds -1");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": 5})"), "2: \"t\" is no list of numbers");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": [1], "mhz": [1, 2]})"),
            "2: 2 clocks for 1 samples");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "outcome": "lost", "t": [1]})"),
            "2: outcome \"lost\" is unknown");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "outcome": "timed_out", "t": [1]})"),
            "2: outcome \"timed_out\" and ok = true");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": true, "t": [1], "compile_s": "long"})"),
            "2: \"compile_s\" is \"long\"");
  EXPECT_EQ(defect(good + "\n" + good), "3: A=1 B=0 stands on line 2 already");
  EXPECT_EQ(defect(R"({"c": [1, "x"], "ok": false})"), "2: no configuration is ok");
}

TEST_F(RecordedSpaceTest, NamesWhatIsWrongWithAHeader) {
  const auto header = [this](const std::string& text) {
    const auto space = read_recorded_space(write(text, "h.jsonl"));
    const std::string prefix = (folder_ / "h.jsonl").string() + ":";
    return space ? "none" : space.error().message.substr(prefix.size());
  };
  EXPECT_EQ(header(""), "1: no header");
  EXPECT_EQ(header("{}"), "1: the header has no text \"space\"");
  const std::string start = R"({"space": "s", "device": "d", "kernel": "k", "unit": )";
  EXPECT_EQ(header(start + R"("min"})"), "1: unit \"min\" is none of ns, us, ms, s");
  EXPECT_EQ(header(start + R"("us"})"), "1: the header has no list \"parameters\"");
  EXPECT_EQ(header(start + R"("us", "parameters": ["A", "A"]})"),
            "1: two parameters have one name");
  EXPECT_EQ(header(start + R"("us", "parameters": ["A"], "templates": ["t"]})"),
            "1: \"templates\" is a list of names, for a first parameter \"template\"");
  EXPECT_EQ(header(start + R"("us", "parameters": ["A"], "default": [2]})" + "\n" +
                   R"({"c": [1], "ok": true, "t": [1]})"),
            "1: the default A=2 is not in the space");
}

}  // namespace
}  // namespace kernwright
