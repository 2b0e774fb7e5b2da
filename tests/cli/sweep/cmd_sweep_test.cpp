#include <algorithm>
#include <fstream>
#include <map>

#include "cache/stores/record_store.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Sweeps and prewarms one worklist for a SKU, without a GPU.
class WorklistToolkitTest : public ToolkitProgramTest {
 protected:
  Ran run_list(const std::string& command, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {command, list_.string(), "--sku", "h200"});
    return kernwright(std::move(options));
  }

  /// Every file of the cache, but for reports, with the time of its last change.
  std::map<std::string, std::filesystem::file_time_type> files() const {
    std::map<std::string, std::filesystem::file_time_type> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache())) {
      if (!entry.is_regular_file() || entry.path().extension() == ".html") continue;
      found[entry.path().string()] = entry.last_write_time();
    }
    return found;
  }

  std::filesystem::path list_ = write("list.json", R"({"problems": [
    "vector_add n=4096 dtype=fp32",
    {"operation": "vector_add", "dims": {"n": 65536}, "flags": {"dtype": "bf16"}}
  ]})");
};

TEST_F(WorklistToolkitTest, ASecondSweepFindsEverythingAndWritesNothing) {
  const Ran first = run_list("sweep", {"--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const nlohmann::json report = first.json();
  EXPECT_EQ(report["sku"], "h200");
  EXPECT_EQ(report["grade"], "predicted");
  EXPECT_EQ(report["problems"], 2);
  EXPECT_EQ(report["failed"], 0);
  ASSERT_EQ(report["records"].size(), 2U);
  EXPECT_EQ(report["records"][1]["problem"], "vector_add n=65536 dtype=bf16");
  const auto before = files();

  const Ran second = run_list("sweep");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  std::size_t skipped = 0;
  const std::string told = flat(second.out);
  for (std::size_t at = 0; (at = told.find(" predicted cache ", at)) != std::string::npos; ++at) {
    ++skipped;
  }
  EXPECT_EQ(skipped, 2U) << second.out;
  EXPECT_EQ(run_list("sweep", {"--json"}).json()["records"], report["records"]);
  EXPECT_EQ(files(), before);
}

TEST_F(WorklistToolkitTest, AGateOverNoProblemFails) {
  for (const std::string text :
       {R"({"problems": []})", R"({"problem": ["vector_add n=4096 dtype=fp32"]})"}) {
    const std::string file = write("none.json", text).string();
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"sweep", file, "--sku", "h200"},
          {"sweep", file, "--sku", "h200", "--dry-run"},
          {"prewarm", file, "--sku", "h200", "--verify"},
          {"prewarm", file, "--sku", "h200"},
          {"report", file}}) {
      const Ran ran = kernwright(words);
      EXPECT_EQ(ran.exit_code, 1) << words[0] << ran.out;
      EXPECT_THAT(ran.err, HasSubstr(file));
    }
  }
  const Ran report = kernwright({"report", list_.string()});
  EXPECT_EQ(report.exit_code, 1) << report.out;
  EXPECT_THAT(report.err, HasSubstr("no record of 2 problems in "));
}

TEST_F(WorklistToolkitTest, ASweepEndsByNamingItsReport) {
  const std::filesystem::path page = cache() / "reports/list-h200.html";
  const Ran ran = run_list("sweep");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\n  report    " + page.string() + "\n"));
  const std::string text = content(page);
  EXPECT_THAT(text, HasSubstr("vector_add n=65536 dtype=bf16"));
  const Ran part = run_list("sweep", {"--json", "--shard", "1/2"});
  EXPECT_EQ(part.json()["report"], (cache() / "reports/list-h200-1-2.html").string()) << part.err;
}

TEST_F(WorklistToolkitTest, ASweepWhoseReportCannotBeWrittenIsDoneAllTheSame) {
  std::filesystem::create_directories(cache());
  std::ofstream(cache() / "reports") << "a file";
  const Ran ran = run_list("sweep");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("warning: no report: "));
  EXPECT_THAT(ran.out, Not(HasSubstr("  report ")));
}

TEST_F(WorklistToolkitTest, AnInterruptedSweepGoesOnWhereItStopped) {
  ASSERT_EQ(kernwright({"tune", "vector_add", "n=4096", "dtype=fp32", "--sku", "h200"}).exit_code,
            0);
  const Ran ran = run_list("sweep");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string told = flat(ran.out);
  EXPECT_THAT(told, HasSubstr(" predicted cache ")) << ran.out;
  EXPECT_EQ(told.find(" predicted cache "), told.rfind(" predicted cache "));
  EXPECT_THAT(ran.out, HasSubstr("2 of 2 problems have a record for h200, by prediction"));
}

TEST_F(WorklistToolkitTest, PrewarmCompilesWhatVerifyMisses) {
  const Ran cold = run_list("prewarm", {"--verify"});
  EXPECT_EQ(cold.exit_code, 1);
  EXPECT_THAT(cold.out, HasSubstr("missing   vector_add n=4096 dtype=fp32  none (absent)"));
  EXPECT_THAT(cold.out, HasSubstr("missing   vector_add n=65536 dtype=bf16"));
  expect_width(cold.out, 80);
  EXPECT_THAT(cold.out, HasSubstr("2 of 2 problems are missing"));
  EXPECT_FALSE(std::filesystem::exists(cache()));

  const Ran warm = run_list("prewarm");
  EXPECT_EQ(warm.exit_code, 0) << warm.out << warm.err;
  const auto before = files();
  const Ran verified = run_list("prewarm", {"--verify", "--json"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  const nlohmann::json report = verified.json();
  EXPECT_EQ(report["missing"], 0);
  EXPECT_EQ(report["coverage"][0]["match"], "predicted");
  EXPECT_EQ(run_list("prewarm").exit_code, 0);
  EXPECT_EQ(files(), before);
}

TEST_F(WorklistToolkitTest, LostBitsAreMissingAndCompiledAgain) {
  ASSERT_EQ(run_list("prewarm").exit_code, 0);
  std::filesystem::remove_all(cache() / "v1" / "artifacts");
  const Ran lost = run_list("prewarm", {"--verify"});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_THAT(lost.out, HasSubstr("artifact_missing"));
  EXPECT_EQ(run_list("prewarm").exit_code, 0);
  EXPECT_EQ(run_list("prewarm", {"--verify"}).exit_code, 0);
}

TEST_F(WorklistToolkitTest, ADryRunSaysWhatWouldBeDoneAndDoesNothing) {
  const Ran plan = run_list("sweep", {"--dry-run", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const nlohmann::json json = plan.json();
  EXPECT_EQ(json["due"], 2);
  EXPECT_GT(json["plan"][0]["candidates"], json["plan"][0]["compiles"]);
  EXPECT_GT(json["compiles"], 0);
  const Ran seen = on_terminal({"sweep", list_.string(), "--sku", "h200", "--dry-run"}, 100);
  EXPECT_THAT(seen.out, HasSubstr("1 of 2 problems planned"));
  EXPECT_EQ(run_list("sweep", {"--dry-run"}).err, "") << "no terminal, no progress";
  EXPECT_FALSE(std::filesystem::exists(cache()));
  ASSERT_EQ(run_list("sweep", {"--shard", "1/2"}).exit_code, 0);
  EXPECT_EQ(run_list("sweep", {"--dry-run", "--json"}).json()["due"], 1);
}

TEST_F(WorklistToolkitTest, ADryRunCountsRangesAndSaysThatTheyTakeAGpu) {
  write("list.json", R"({"problems": ["rmsnorm rows=1..64 columns=64 dtype=bf16",
                                     "softmax rows=1..64 columns=64 dtype=bf16"]})");
  const Ran plan = run_list("sweep", {"--dry-run"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(
      plan.out,
      HasSubstr("2 of 2 ranges are due for h200, which only a GPU can measure; at most about"));
  EXPECT_THAT(plan.out, Not(HasSubstr("0 of 0")));
  const Ran swept = run_list("sweep");
  EXPECT_EQ(swept.exit_code, 1);
  EXPECT_THAT(swept.out, HasSubstr("for the sku h200 without one prewarm predicts"));
}

TEST_F(WorklistToolkitTest, WhatNoTemplateRunsIsNamedAndTheOthersAreDone) {
  const std::string impossible = "softmax rows=1 columns=3000000000 dtype=bf16";
  write("list.json",
        "{\"problems\": [\n\"" + impossible + "\", \"vector_add n=4096 dtype=fp32\"]}");
  const nlohmann::json plan = run_list("sweep", {"--dry-run", "--json"}).json();
  EXPECT_EQ(plan["due"], 1);
  EXPECT_EQ(plan["impossible"], 1);
  EXPECT_THAT(plan["plan"][0]["error"].get<std::string>(), HasSubstr("no template runs"));
  EXPECT_EQ(plan["plan"][0]["place"], list_.string() + ":2");
  const Ran dry = run_list("sweep", {"--dry-run"});
  EXPECT_EQ(dry.exit_code, 1);
  EXPECT_THAT(flat(dry.out),
              HasSubstr("impossible " + list_.string() + ":2: no template runs \"" + impossible))
      << dry.out;
  EXPECT_THAT(dry.out, HasSubstr("1 of 2 problems is due"));
  const Ran swept = run_list("sweep");
  EXPECT_EQ(swept.exit_code, 1);
  EXPECT_THAT(flat(swept.out),
              HasSubstr("failed " + list_.string() + ":2: " + impossible + ": no template"))
      << swept.out;
  EXPECT_THAT(swept.out, HasSubstr("1 of 2 problems has a record"));
}

TEST_F(WorklistToolkitTest, AnEntryThatNoOperationAcceptsIsNamedWithItsPlace) {
  write("list.json",
        "{\"problems\": [\n\"vector_add n=4096 dtype=fp32\",\n"
        "\"vector_add n=4096 dtype=fp99\"]}");
  for (const char* command : {"sweep", "prewarm"}) {
    const Ran ran = run_list(command);
    EXPECT_EQ(ran.exit_code, 2) << command;
    EXPECT_THAT(ran.err, HasSubstr(list_.string() + ":3: vector_add: "));
    EXPECT_THAT(ran.err, HasSubstr("fp99"));
  }
  EXPECT_FALSE(std::filesystem::exists(cache())) << "a mistake shows before the first is tuned";
}

TEST_F(WorklistToolkitTest, RecordsThatCannotBeWrittenAreNotCounted) {
  // No file may be larger than 0 bytes; what the shell collects is a pipe.
  const Ran full =
      shell("trap '' XFSZ; out=$( (ulimit -f 0; exec kernwright sweep " + list_.string() +
            " --sku h200) 2>&1 ); code=$?; echo \"$out\"; exit $code");
  EXPECT_EQ(full.exit_code, 1) << full.out;
  EXPECT_THAT(full.out, HasSubstr("0 of 2 problems have a record"));
  EXPECT_THAT(flat(full.out), HasSubstr("record not stored: cannot write")) << full.out;
  EXPECT_EQ(run_list("prewarm", {"--verify"}).exit_code, 1);
  const Ran room = run_list("sweep");
  EXPECT_EQ(room.exit_code, 0) << room.err;
  EXPECT_THAT(room.out, HasSubstr("2 of 2 problems have a record"));
}

TEST_F(WorklistToolkitTest, RecordsThatAnotherProcessCannotWriteAreNotCountedEither) {
  write("cache/v1/records", "where a folder should be");
  const Ran ran = run_list("sweep", {"--devices", "0,1", "--json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const nlohmann::json report = ran.json();
  EXPECT_EQ(report["failed"], 2);
  EXPECT_EQ(report["records"][0]["error"].get<std::string>().rfind("not stored: ", 0), 0U);
  EXPECT_EQ(report["records"][0]["problem"], "vector_add n=4096 dtype=fp32");
}

TEST_F(WorklistToolkitTest, TheShardsOfAWorklistMakeTheWhole) {
  for (const char* shard : {"1/2", "2/2"}) {
    const Ran part = run_list("sweep", {"--shard", shard, "--json"});
    ASSERT_EQ(part.exit_code, 0) << part.err;
    EXPECT_EQ(part.json()["problems"], 1);
  }
  EXPECT_EQ(run_list("prewarm", {"--verify"}).exit_code, 0);
  EXPECT_EQ(run_list("sweep", {"--shard", "3/2"}).exit_code, 2);
}

TEST_F(WorklistToolkitTest, TheReportJudgesEveryRecord) {
  const nlohmann::json record = run_list("sweep", {"--json"}).json()["records"][0];
  EXPECT_EQ(record["support"], "caveated");
  EXPECT_EQ(record["next_evidence"], "tune on the device: nothing was measured");
  EXPECT_TRUE(record["speedups"].empty());
  EXPECT_TRUE(record.contains("bound"));
  EXPECT_TRUE(record.contains("margin"));
  const Ran text = run_list("sweep");
  EXPECT_TRUE(
      text.out.starts_with("  done      time  speed-up  sure          from    problem\n   1/2  "))
      << text.out;
  EXPECT_THAT(text.out, HasSubstr("2 of 2 problems have a record for h200, by prediction: no GPU "
                                  "was used\n"
                                  "  sure      2 caveated\n"
                                  "  next      2 problems: tune on the device\n"
                                  "  report    "));
  expect_width(text.out, 80);
  EXPECT_THAT(run_list("sweep", {"--verbose"}).out, HasSubstr("; caveated; bound by the launch; "));
  expect_width(run_list("sweep", {"--dry-run"}).out, 80);
}

TEST_F(WorklistToolkitTest, MeasuredRecordsAreSummedUpBesideTheirDefaults) {
  const nlohmann::json predicted = run_list("sweep", {"--json"}).json()["records"];
  for (int i = 0; i < 2; ++i) {
    const nlohmann::json& made = predicted[static_cast<std::size_t>(i)];
    TuningRecord record = sample_record(4096);
    record.key.problem = made["problem"];
    record.environment.template_digest = made["environment"]["template_digest"];
    record.environment.compiler = made["environment"]["compiler"];
    record.winner.choice.kernel_template = "vector_add/vectorized";
    record.winner.choice.configuration = Configuration({{"THREADS", 128},
                                                        {"VECTORS", 1},
                                                        {"NO_ALLOCATE", 0},
                                                        {"STREAMING", 0},
                                                        {"BLOCKS_PER_SM", 0},
                                                        {"PROGRAMMATIC", 1}});
    record.winner.in_blocks = false;
    record.winner.measurement = {std::vector<double>(40, 2.0)};
    record.runners_up.clear();
    // One is half as fast as its winner, of the other nobody can say.
    record.baseline->measurement = {std::vector<double>(40, 4.0)};
    for (int round = 0; i == 1 && round < 40; round += 2) {
      record.baseline->measurement.samples_us[static_cast<std::size_t>(round)] = 1.0;
    }
    record.rounds = {};
    record.rounds.sm_probe_us = std::vector<double>(40, 1.0);
    record.trust = Trust::b;
    must(RecordStore(cache()).put(record));
  }
  const Ran text = run_list("sweep");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("   1/2   2.00 us      2.00  tie B         cache   vector_add n=4096"));
  EXPECT_THAT(text.out, HasSubstr("   2/2   2.00 us     level  tie B"));
  EXPECT_THAT(text.out, HasSubstr("the geometric mean; 1 of 2 is clearly"));
  EXPECT_THAT(text.out, HasSubstr("  sure      2 measured\n"));
  EXPECT_THAT(flat(text.out), HasSubstr("next 2 problems: restore the default power limit"))
      << text.out;
}

TEST_F(WorklistToolkitTest, SeveralDevicesAreSweptByOneProcessEach) {
  const Ran both = run_list("sweep", {"--devices", "0,1", "--l2", "warm", "--json"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const nlohmann::json report = both.json();
  ASSERT_EQ(report["records"].size(), 2U);
  EXPECT_EQ(report["records"][0]["problem"], "vector_add n=4096 dtype=fp32");
  EXPECT_EQ(report["records"][1]["problem"], "vector_add n=65536 dtype=bf16");
  const auto before = files();

  // One device's sweep, in the process itself, finds and judges what the others' left.
  const Ran one = run_list("sweep", {"--l2", "warm", "--json"});
  EXPECT_EQ(one.json(), report) << one.err;
  const Ran again = run_list("sweep", {"--devices", "0,1", "--l2", "warm"});
  const std::string told = flat(again.out);
  EXPECT_NE(told.find(" predicted cache "), told.rfind(" predicted cache "));
  EXPECT_EQ(files(), before);
}

/// Two devices, and processes that are killed.
class KilledSweepToolkitTest : public WorklistToolkitTest {
 protected:
  /// Starts a sweep of eight problems, `$sweep`, and runs `lines` once its `$children` are there.
  Ran sweep_and(const std::string& lines) {
    write("list.json", R"({"problems": [{"operation": "vector_add",
      "dims": {"n": "1024:8192:1024"}, "flags": {"dtype": "fp32"}}]})");
    return shell("kernwright sweep " + list_.string() + " --sku h200 --devices 0,1 & sweep=$!\n" +
                 R"(for i in $(seq 1000); do
                      children=$(grep -ls "^PPid:.$sweep\$" /proc/[0-9]*/status | cut -d/ -f3)
                      [ $(echo $children | wc -w) = 2 ] && break
                      sleep 0.01
                    done
                    )" +
                 lines);
  }
};

TEST_F(KilledSweepToolkitTest, NoProcessIsLeft) {
  const Ran ran = sweep_and(R"(kill -9 $sweep
    for i in $(seq 1000); do
      left=$(for child in $children; do readlink /proc/$child/exe; done)
      [ -z "$left" ] && break
      sleep 0.01
    done
    echo "killed $children, left: $left.")");
  EXPECT_THAT(ran.out, HasSubstr(", left: .")) << ran.out << ran.err;
  EXPECT_THAT(ran.out, Not(HasSubstr("killed ,"))) << ran.out << ran.err;
  const Ran resumed = run_list("sweep", {"--devices", "0,1"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("8 of 8 problems have a record"));
}

TEST_F(KilledSweepToolkitTest, AKilledChildCostsItsProblemAlone) {
  const Ran ran = sweep_and("set -- $children; kill -9 $1; wait $sweep");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(flat(ran.out), HasSubstr("its process ended (signal 9 (SIGKILL))"))
      << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("7 of 8 problems have a record"));
  EXPECT_EQ(run_list("sweep", {"--devices", "0,1"}).exit_code, 0);
}

TEST_F(ProgramTest, AModelsConfigBecomesAWorklist) {
  const std::string config = write("config.json", R"({"model_type": "llama", "hidden_size": 4096,
    "hidden_act": "silu", "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "vocab_size": 128256})")
                                 .string();
  const Ran ran =
      kernwright({"worklist", config, "--tokens", "1, 8:16:x2", "--tensor-parallel", "2"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json problems = ran.json()["problems"];
  const std::string table = "hidden=4096 vocabulary=128256 dtype=bf16";
  EXPECT_EQ(problems[0], "embedding tokens=1 " + table + " lengths=advance");
  EXPECT_EQ(problems[3], "embedding tokens=16 " + table);
  EXPECT_EQ(problems[5], "matmul m=1 n=3072 k=4096 dtype=bf16");
  EXPECT_EQ(problems[7], "matmul m=16 n=3072 k=4096 dtype=bf16");
  const auto attention = [](const nlohmann::json& listed) {
    return std::count_if(listed.begin(), listed.end(), [](const nlohmann::json& problem) {
      return problem.get<std::string>().starts_with("attention ");
    });
  };
  // Of 8 and 16 tokens a prompt; two caches of three contexts for three decodes and two chunks, and
  // for the three decodes with the append in the same kernel, there also with PyTorch's cache.
  EXPECT_EQ(attention(problems), 2 + 2 * 3 * (5 + 3) + 3 * 3);
  const Ran near = kernwright({"worklist", config, "--tokens", "1, 64", "--contexts", "16:64:x2"});
  ASSERT_EQ(near.exit_code, 0) << near.err;
  EXPECT_EQ(attention(near.json()["problems"]), 1 + 2 * 3 * (2 + 2) + 3 * 2);
  const Ran half = kernwright({"worklist", config, "--tokens", "1", "--dtype", "float16"});
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_EQ(half.json()["problems"][1], "matmul m=1 n=6144 k=4096 dtype=fp16");
  EXPECT_EQ(kernwright({"worklist", config, "--dtype", "float17"}).exit_code, 2);
  EXPECT_EQ(kernwright({"worklist", config, "--tensor-parallel", "3"}).exit_code, 2);
  EXPECT_EQ(kernwright({"worklist", config, "--tokens", "0"}).exit_code, 2);
  EXPECT_EQ(kernwright({"worklist", config, "--contexts", "0"}).exit_code, 2);
  EXPECT_THAT(kernwright({"worklist", config, "--contexts", "1073741825"}).err,
              HasSubstr("a context of 1073741825 tokens: from 1 to 1073741824 are possible"));
  EXPECT_EQ(kernwright({"worklist"}).exit_code, 2);
  EXPECT_THAT(kernwright({"worklist", "meta-llama/Llama-3.1-70B"}).err,
              HasSubstr("; a model is given by its config.json"));
  const Ran values = kernwright({"worklist", config, "--values", "type,kv_heads,epsilon"});
  ASSERT_EQ(values.exit_code, 0) << values.err;
  EXPECT_EQ(values.json(), (nlohmann::json{{"type", "llama"}, {"kv_heads", 8}, {"epsilon", 1e-5}}));
  EXPECT_EQ(kernwright({"worklist", config, "--values", "depth"}).exit_code, 2);
}

}  // namespace
}  // namespace kernwright
