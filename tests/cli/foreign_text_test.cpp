#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"
#include <kernwright/visible.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

// Characters that a terminal obeys: escapes, a bell, a control of C1, CR, a line of its own, the
// other direction of writing, invisible ones; and text that must stay as it is.
const std::string kHostile =
    "\x1b]0;title\x07\x1b[31m\u009b2J\rok\nkernwright: all is well\x7f\u202e\u200b\u2028 é日本";

/// Nothing of others that the tool prints moves the cursor, hides itself or begins a line.
class ForeignTextTest : public ProgramTest {
 protected:
  Ran tame(const std::vector<std::string>& words) {
    Ran ran = kernwright(words);
    for (const std::string& printed : {ran.out, ran.err}) {
      EXPECT_EQ(printed, visible_lines(printed)) << words.front();
      EXPECT_EQ(("\n" + printed).find("\nkernwright: all is well"), std::string::npos) << printed;
    }
    return ran;
  }
  TieredCache store() { return TieredCache(cache()); }
};

TEST_F(ForeignTextTest, OfRecordsIsMadeVisible) {
  TuningRecord record = sample_record(4096);
  record.device_name = record.device_uuid = record.created = kHostile;
  record.environment = {kHostile, kHostile, kHostile, kHostile};
  record.search.strategy = record.search.stop_reason = kHostile;
  record.audit.rows = {{kHostile, Trust::b, kHostile}};
  record.check.exact = true;
  record.winner.choice.kernel_template = "matmul/" + kHostile;
  record.winner.choice.configuration = Configuration({{kHostile, 4}});
  const auto put = store().put_record(record);
  ASSERT_TRUE(put) << put.error().message;
  ASSERT_TRUE(store().put_override(
      {.key = record.key, .choice = record.winner.choice, .why = kHostile, .created = kHostile}));
  const std::vector<std::string> problem = {"matmul",     "m=4096", "n=6144", "k=4096",
                                            "dtype=bf16", "--sku",  "h200"};
  for (const std::vector<std::string>& begin :
       std::vector<std::vector<std::string>>{{"show"}, {"show", "--verbose"}, {"show", "--json"}}) {
    std::vector<std::string> words = begin;
    words.insert(words.end(), problem.begin(), problem.end());
    tame(words);
  }
  const Ran list = tame({"cache", "list"});
  EXPECT_THAT(list.out, HasSubstr(R"(\x1b]0;title\x07\x1b[31m\u009b2J\x0dok\x0akernwright)"));
  EXPECT_THAT(list.out, HasSubstr("é日本"));
  const Ran json = tame({"cache", "list", "--json"});
  EXPECT_EQ(json.json()["overrides"][0]["why"], kHostile);
  tame({"cache", "verify"});
  tame({"cache", "verify", "--json"});
  tame({"cache", "export", (dir_ / "bundle").string()});
  tame({"report", "-o", (dir_ / "page.html").string()});
}

TEST_F(ForeignTextTest, OfWorklistsAndCommandLinesIsMadeVisible) {
  const std::string quoted = nlohmann::json(kHostile).dump();
  for (const std::string& text :
       {R"({"problems": [)" + quoted + "]}",
        R"({"problems": ["matmul m=1 )" + quoted.substr(1) + "]}",
        R"({"problems": [{"operation": )" + quoted + "}]}",
        R"({"problems": [{"operation": "matmul", "dims": {)" + quoted + R"(: )" + quoted + "}}]}",
        R"({"problem": )" + quoted + "}\n", "{" + quoted + ": 1}", kHostile}) {
    const std::string list = write("list.json", text).string();
    tame({"sweep", list, "--sku", "h200", "--dry-run"});
    tame({"prewarm", list, "--sku", "h200"});
    tame({"report", list, "-o", (dir_ / "page.html").string()});
    tame({"worklist", list});
    tame({"profile", list});
  }
  for (const std::string& word : {kHostile, "--" + kHostile, "n=" + kHostile}) {
    for (const char* command : {"tune", "show", "operations", "sweep", "report", "cache", "check",
                                "worklist", "doctor", "profile", "prewarm", "dispatch"}) {
      tame({command, word});
    }
    tame({word});
  }
  for (const char* option : {"--device", "--l2", "--seconds", "--sku", "--cache", "--templates",
                             "--epilogue", "--strategy", "--seed"}) {
    tame({"tune", "vector_add", "n=64", "dtype=fp32", option, kHostile});
    tame({"tune", "vector_add", "n=64", "dtype=fp32", concat(option, '=', kHostile)});
  }
}

TEST_F(ForeignTextTest, OfFileNamesIsMadeVisible) {
  std::string name = kHostile;
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string folder = (dir_ / (name + "\xff")).string();
  std::filesystem::create_directories(folder + "/v1/records/a.kwr");
  std::ofstream(folder + "/v1/records/" + name + ".kwr") << "no record";
  std::ofstream(folder + "/" + name) << "nothing";
  for (const char* action : {"list", "verify", "prune", "misses", "compact"}) {
    tame({"cache", action, "--cache", folder});
    const Ran ran = tame({"cache", action, "--json", "--cache", folder});
    if (!ran.out.empty()) ran.json();
  }
  tame({"cache", "merge", folder});
  tame({"cache", "export", folder + "/out", "--cache", folder});
  tame({"cache", "install", folder + "/" + name});
  tame({"cache", "install", folder + "/" + name, "--trusted-keys", folder + "/" + name});
  tame({"cache", "export", "out", "--key", folder + "/" + name});
  tame({"cache", "keygen", folder + "/none/" + name});
  tame({"report", folder, "-o", folder + "/page.html"});
  tame({"check", folder});
  tame({"operations", "--templates", folder});
  tame({"worklist", folder + "/" + name});
}

TEST_F(ForeignTextTest, AKeyInPlaceOfItsFileIsNotRepeated) {
  ASSERT_EQ(kernwright({"cache", "keygen", (dir_ / "k").string()}).exit_code, 0);
  const std::string key = content(dir_ / "k.key");
  const std::string base64 = "Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6+/==";
  for (const std::string& secret : {key, key.substr(0, key.size() - 1), base64}) {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"cache", "export", "out", "--key", secret},
             {"cache", "install", "out", "--trusted-keys", secret},
             {"cache", "install", secret}}) {
      const Ran ran = kernwright(words);
      EXPECT_NE(ran.exit_code, 0);
      EXPECT_EQ((ran.out + ran.err).find(secret.substr(0, 20)), std::string::npos) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("bytes that looks like a key"));
    }
  }
}

}  // namespace
}  // namespace kernwright
