#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "cache/stores/artifact_store.h"
#include "cache/stores/record_store.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

using CacheTest = ProgramTest;

TEST_F(CacheTest, AnEmptyCacheIsInOrder) {
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("0 artifacts in " + cache().string()));
  const Ran verify = kernwright({"cache", "verify", "--json"});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_EQ(verify.json()["records"], 0);
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

/// A cache with one record, predicted.
class CacheToolkitTest : public ToolkitProgramTest {
 protected:
  void SetUp() override {
    ToolkitProgramTest::SetUp();
    if (IsSkipped()) return;
    const Ran ran =
        kernwright({"tune", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    winner_ = ran.json()["winner"]["artifact"];
  }

  std::filesystem::path find(const std::string& extension, const std::string& stem = {}) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache())) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == extension && (stem.empty() || path.stem() == stem)) return path;
    }
    ADD_FAILURE() << "no file " << stem << extension;
    return {};
  }

  /// Changes one byte in the middle of the file.
  static void damage(const std::filesystem::path& path) {
    std::string bytes = content(path);
    ASSERT_FALSE(bytes.empty());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string winner_;
};

TEST_F(CacheToolkitTest, ListNamesTheRecords) {
  const Ran text = kernwright({"cache", "list"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("vector_add n=4096 dtype=bf16"));
  const nlohmann::json list = kernwright({"cache", "list", "--json"}).json();
  EXPECT_EQ(list["root"], cache().string());
  ASSERT_EQ(list["records"].size(), 1U);
  EXPECT_EQ(list["records"][0]["winner"]["artifact"], winner_);
  EXPECT_GT(list["artifacts"], 0);
  EXPECT_EQ(kernwright({"cache", "verify"}).exit_code, 0);
}

TEST_F(CacheToolkitTest, ADamagedArtifactIsReportedWithTheRecordThatNeedsIt) {
  const std::filesystem::path path = find(".kwa", winner_);
  damage(path);
  const Ran text = kernwright({"cache", "verify"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr(path.string() + ": corrupt"));
  EXPECT_THAT(text.out, HasSubstr(find(".kwr").string() + ": its winner's artifact " + winner_));
  const nlohmann::json report = kernwright({"cache", "verify", "--json"}).json();
  EXPECT_EQ(report["defects"].size(), 2U);
}

TEST_F(CacheToolkitTest, ADamagedRecordIsReportedAndNoAnswer) {
  const std::filesystem::path path = find(".kwr");
  damage(path);
  const Ran verify = kernwright({"cache", "verify"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.out, HasSubstr(path.string() + ": corrupt"));
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 1) << "what is listed is not all";
  EXPECT_THAT(list.err, HasSubstr(path.string()));
  const Ran show = kernwright({"show", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200"});
  EXPECT_EQ(show.exit_code, 1);
  EXPECT_THAT(show.err, HasSubstr("corrupt"));
}

TEST_F(CacheTest, UnknownActionsAndBadArgumentsAreNamed) {
  const Ran unknown = kernwright({"cache", "tidy"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("unknown action \"tidy\""));
  EXPECT_EQ(kernwright({"cache", "merge"}).exit_code, 2);
  EXPECT_EQ(kernwright({"cache", "merge", "/nowhere"}).exit_code, 2);
  EXPECT_EQ(kernwright({"cache", "prune", "--max-gib", "-1"}).exit_code, 2);
  EXPECT_EQ(kernwright({"cache", "pin", "vector_add", "n=1", "--sku", "h200"}).exit_code, 2);
}

TEST_F(CacheTest, WhatTakesOneFileSaysHowManyWereGiven) {
  for (const auto& [action, what] :
       {std::pair{"export", "file to write"}, {"install", "bundle"}, {"keygen", "name of a key"}}) {
    const Ran none = kernwright({"cache", action});
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(none.err, HasSubstr(concat("takes one ", what, ", 0 were given")));
    const Ran two = kernwright({"cache", action, (dir_ / "a").string(), (dir_ / "b").string()});
    EXPECT_EQ(two.exit_code, 2);
    EXPECT_THAT(two.err, HasSubstr("2 were given"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "a"));
}

TEST_F(CacheTest, NothingIsPinnedWhereNothingIsServed) {
  const Ran pin =
      kernwright({"cache", "pin", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200"});
  EXPECT_EQ(pin.exit_code, 2);
  EXPECT_THAT(pin.err, HasSubstr("no record for vector_add n=4096 dtype=bf16 (absent): name the "
                                 "candidate with --template and --configuration"));
}

TEST_F(CacheTest, APinThatNoRecordKnowsIsSaidByShow) {
  const std::vector<std::string> problem = {"vector_add", "n=4096", "dtype=bf16", "--sku", "h200"};
  std::vector<std::string> pin = {"cache", "pin", "--template", "vector_add/vectorized"};
  pin.insert(pin.end(), problem.begin(), problem.end());
  ASSERT_EQ(kernwright(pin).exit_code, 0);
  std::vector<std::string> show = {"show"};
  show.insert(show.end(), problem.begin(), problem.end());
  const Ran shown = kernwright(show);
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.err, HasSubstr("vector_add/vectorized THREADS=256"));
  EXPECT_THAT(shown.err, HasSubstr("is pinned, and no record knows it"));
}

TEST_F(CacheTest, DecisionsAreListedAndATornOneIsADefect) {
  RecordStore store(cache());
  const Override ban{.key = sample_key(1),
                     .action = OverrideAction::ban,
                     .choice = {"matmul/tiled", Configuration({{"BM", 64}})},
                     .why = "too hot",
                     .created = "2026-11-20T10:00:00Z"};
  ASSERT_TRUE(store.put(ban));
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("ban matmul m=1 n=6144 k=4096 dtype=bf16  matmul/tiled BM=64  "
                                  "h200 2026-11-20T10:00:00Z: too hot"));
  const std::filesystem::path torn = must(store.put(ban));
  std::filesystem::resize_file(torn, 40);
  EXPECT_THAT(kernwright({"cache", "list"}).err, HasSubstr(torn.native()));
  const Ran verify = kernwright({"cache", "verify"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.out, HasSubstr(torn.native()));
}

/// A cache with one family and the bits of its kernels.
class FamilyCacheTest : public CacheTest {
 protected:
  void SetUp() override {
    CacheTest::SetUp();
    for (const char* name : {"winner", "second"}) {
      ASSERT_TRUE(ArtifactStore(cache()).put(digest_of(name).hex(), sample_kernel(name)));
    }
    family_ = must(RecordStore(cache()).put(sample_family(8192)));
  }
  std::filesystem::path family_;
};

TEST_F(FamilyCacheTest, FamiliesAreListed) {
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("matmul m=1..8192 n=6144 k=4096 dtype=bf16\n"
                                  "  2 kernels, 95 % of sizes within 30 % of the best found\n"
                                  "  (h200 2026-11-20T10:11:12Z)\n"));
  const nlohmann::json json = kernwright({"cache", "list", "--json"}).json();
  EXPECT_TRUE(json["records"].empty());
  ASSERT_EQ(json["families"].size(), 1U);
  EXPECT_EQ(json["families"][0]["kernels"][1]["artifact"], digest_of("second").hex());
  EXPECT_THAT(kernwright({"doctor"}).out, HasSubstr("0 records, 1 family, 2 artifacts\n"));
  std::filesystem::resize_file(family_, 50);
  const Ran torn = kernwright({"cache", "list"});
  EXPECT_EQ(torn.exit_code, 1);
  EXPECT_THAT(torn.err, HasSubstr("not listed: " + family_.native()));
}

/// A cache with one family, whose kernels are candidates of the templates of today.
class ShownFamilyTest : public CacheTest {
 protected:
  void SetUp() override {
    CacheTest::SetUp();
    FamilyRecord family = sample_family(8192);
    family.head.kernels[0].choice = {kWide, Configuration({{"BM", 128},
                                                           {"BN", 128},
                                                           {"BK", 32},
                                                           {"STAGES", 4},
                                                           {"WARPS_M", 2},
                                                           {"WARPS_N", 2},
                                                           {"WARPS_K", 1},
                                                           {"GROUP", 8}})};
    // It takes up to 8 rows, and names what is derived.
    family.head.kernels[1].choice = {kFew, Configuration({{"BM", 8},
                                                          {"BN", 16},
                                                          {"UNROLL", 4},
                                                          {"WARPS", 8},
                                                          {"SPLIT", 1},
                                                          {"PROGRAMMATIC", 0},
                                                          {"TRANSPOSED", 0}})};
    for (std::size_t i = 0; i < 2; ++i) family.tried[i] = family.head.kernels[i].choice;
    few_ = family.head.kernels[1].choice.configuration.text();
    ASSERT_TRUE(RecordStore(cache()).put(family));
  }

  Ran of_size(std::vector<std::string> words, const std::string& m,
              std::vector<std::string> further = {}) {
    for (const char* word : {"matmul", "n=6144", "k=4096", "dtype=bf16", "--sku", "h200"}) {
      words.emplace_back(word);
    }
    words.push_back("m=" + m);
    words.insert(words.end(), further.begin(), further.end());
    return kernwright(words);
  }
  Ran show(const std::string& m, std::vector<std::string> further = {}) {
    return of_size({"show"}, m, std::move(further));
  }
  Ran decide(const std::string& action, const std::string& m) {
    return of_size({"cache", action}, m, {"--template", kFew, "--configuration", few_});
  }

  static constexpr const char* kWide = "matmul/tiled";
  static constexpr const char* kFew = "matmul/direct";
  std::string few_;
};

TEST_F(ShownFamilyTest, ASizeIsShownWithTheKernelOfItsFamily) {
  const Ran few = show("8");
  EXPECT_EQ(few.exit_code, 0) << few.err;
  EXPECT_THAT(few.out, HasSubstr("family    matmul m=1..8192 n=6144 k=4096 dtype=bf16\n"));
  EXPECT_THAT(few.out, HasSubstr("kernel    matmul/direct BM=8 "));
  EXPECT_THAT(few.out, HasSubstr("; tune again to renew it")) << "its template is another";
  EXPECT_THAT(show("17").out, HasSubstr("kernel    matmul/tiled BM=128 "))
      << "the first of the table takes 8 rows";
  EXPECT_THAT(show("65", {"--json"}).json()["kernel"].get<std::string>(), HasSubstr(kWide));
  const Ran beyond = show("8193");
  EXPECT_EQ(beyond.exit_code, 1);
  EXPECT_THAT(beyond.err, HasSubstr("no record for matmul m=8193"));
}

TEST_F(ShownFamilyTest, ARangeWithinIsShownWithTheRecordThatAnswers) {
  const Ran within = show("5..700");
  EXPECT_EQ(within.exit_code, 0) << within.err;
  EXPECT_THAT(within.out, HasSubstr("sizes     matmul m=5..700 n=6144 k=4096 dtype=bf16\n"
                                    "  family    matmul m=1..8192 n=6144 k=4096 dtype=bf16\n"));
  EXPECT_EQ(show("5..8193").exit_code, 1);
}

TEST_F(ShownFamilyTest, ASizeHasAPageAndNoRace) {
  const std::string page = (dir_ / "page.html").string();
  EXPECT_EQ(show("8", {"--html", page}).exit_code, 0);
  EXPECT_THAT(content(page), HasSubstr("m=1..8192"));
  for (const char* m : {"8", "1..8192"}) {
    const std::string race = (dir_ / "race.svg").string();
    const Ran ran = show(m, {"--svg", race});
    EXPECT_EQ(ran.exit_code, 2) << m;
    EXPECT_THAT(ran.err, HasSubstr("no race for --svg"));
    EXPECT_FALSE(std::filesystem::exists(race));
  }
}

TEST_F(ShownFamilyTest, AKernelThatTakesFewSizesIsDecidedAboutByTheNameThatIsShown) {
  const Ran ban = decide("ban", "1..8192");
  ASSERT_EQ(ban.exit_code, 0) << ban.err;
  EXPECT_EQ(ban.err, "");
  EXPECT_THAT(show("8").out, HasSubstr(kWide));
  EXPECT_THAT(show("1..8192").out, HasSubstr("banned    matmul/direct BM=8 "));
  ASSERT_EQ(decide("lift", "1..8192").exit_code, 0);
  EXPECT_THAT(show("8").out, HasSubstr(kFew));
  const Ran nowhere = of_size({"cache", "ban"}, "17..8192", {"--template", kFew});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("none of the looked at sizes of matmul m=17..8192"));
}

TEST_F(ShownFamilyTest, ADecisionOnASizeCountsBeforeItsFamily) {
  const Ran ban = of_size({"cache", "ban"}, "8");
  ASSERT_EQ(ban.exit_code, 0) << ban.err;
  EXPECT_THAT(ban.out, HasSubstr("ban matmul/direct BM=8 ")) << "it is served now";
  const Ran shown = show("8");
  EXPECT_THAT(shown.out, HasSubstr(std::string("kernel    ") + kWide));
  EXPECT_THAT(shown.out, HasSubstr("banned    matmul/direct BM=8 "));
  EXPECT_THAT(show("7").out, HasSubstr(std::string("kernel    ") + kFew));
  ASSERT_EQ(decide("lift", "8").exit_code, 0);
  ASSERT_EQ(decide("pin", "8").exit_code, 0);
  const Ran pinned = show("8");
  EXPECT_EQ(pinned.exit_code, 1);
  EXPECT_THAT(pinned.err, HasSubstr("is pinned, and no record knows it"));
}

TEST_F(ShownFamilyTest, ADecisionOnARangeWithoutARecordSaysThatItHasNoEffectYet) {
  const Ran ban = decide("ban", "1..16");
  EXPECT_EQ(ban.exit_code, 0);
  EXPECT_THAT(ban.err, HasSubstr("no record of matmul m=1..16 n=6144 k=4096 dtype=bf16"));
}

TEST_F(FamilyCacheTest, VerifyReadsFamiliesWholeAndTheBitsOfTheirKernels) {
  const Ran whole = kernwright({"cache", "verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.out;
  EXPECT_EQ(whole.out, "0 records, 1 family, 2 artifacts, 0 defects\n");
  const std::string bytes = content(family_);
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  write("cache/" + family_.lexically_relative(cache()).native(), changed);
  const Ran torn = kernwright({"cache", "verify"});
  EXPECT_EQ(torn.exit_code, 1);
  EXPECT_THAT(torn.out, HasSubstr(family_.native() + ": corrupt: "));
  EXPECT_THAT(torn.out, HasSubstr("0 records, 2 artifacts, 1 defect\n"));
  write("cache/" + family_.lexically_relative(cache()).native(), bytes);
  std::filesystem::remove(ArtifactStore(cache()).path(digest_of("second").hex()));
  const nlohmann::json lacking = kernwright({"cache", "verify", "--json"}).json();
  EXPECT_EQ(lacking["families"], 1);
  ASSERT_EQ(lacking["defects"].size(), 1U);
  EXPECT_EQ(lacking["defects"][0]["path"], family_.native());
  EXPECT_THAT(lacking["defects"][0]["defect"].get<std::string>(),
              HasSubstr("matmul/tiled BM=64's artifact " + digest_of("second").hex() + ": absent"));
}

TEST_F(FamilyCacheTest, BundlesAndMergesSayHowManyFamiliesTheyHave) {
  const std::string bundle = (dir_ / "bundle").string();
  const std::string served = (dir_ / "served").string();
  const Ran exported = kernwright({"cache", "export", bundle});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("0 records, 1 family, 2 artifacts, 0 decisions, "));
  EXPECT_EQ(kernwright({"cache", "export", bundle, "--json"}).json()["families"], 1);
  ASSERT_EQ(
      kernwright({"cache", "install", bundle, "--cache", served, "--allow-unsigned"}).exit_code, 0);
  const Ran listed = kernwright({"cache", "list", "--cache", served});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("  in the bundle, 2 kernels, 95 % of sizes within 30 %"));
  EXPECT_THAT(listed.out, HasSubstr(", 0 records, 1 family, 2 artifacts\n"));
  environment_["KERNWRIGHT_CACHE"] = served;
  EXPECT_THAT(kernwright({"doctor"}).out,
              HasSubstr("and in its installed bundle: 0 records, 1 family\n"));
  environment_["KERNWRIGHT_CACHE"] = cache().string();
  const nlohmann::json verified =
      kernwright({"cache", "verify", "--cache", served, "--json"}).json();
  EXPECT_EQ(verified["bundle_holds"]["families"], 1);
  EXPECT_EQ(verified["families"], 0);

  const std::string merged = (dir_ / "merged").string();
  const Ran text = kernwright({"cache", "merge", cache().string(), "--cache", merged});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("0 records, 1 family, 2 artifacts, 0 decisions taken over"));
  EXPECT_EQ(kernwright({"cache", "merge", cache().string(), "--cache", merged, "--json"})
                .json()["merged"][0]["families"],
            0);
}

TEST_F(CacheTest, ABundleInUseThatIsNoLinkIsADefect) {
  write("cache/bundles/current", "no link");
  const Ran verify = kernwright({"cache", "verify"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.out, HasSubstr("it is no link to a bundle beside it"));
}

TEST_F(CacheTest, MergingTellsWhereWinnersDiffer) {
  TuningRecord record = sample_record(1);
  record.winner.in_blocks = false;
  record.rounds = {};
  record.winner.measurement = {{99.9, 100, 100.1}};
  ASSERT_TRUE(RecordStore(cache()).put(record));
  ASSERT_TRUE(ArtifactStore(cache()).put(record.winner.artifact, sample_kernel("winner")));
  record.winner.measurement = {{106.9, 107, 107.1}};
  record.winner.choice.configuration = Configuration({{"BM", 64}});
  ASSERT_TRUE(RecordStore(dir_ / "theirs").put(record));
  const Ran text = kernwright({"cache", "merge", (dir_ / "theirs").string()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("power=sustained: the winners differ by 7 %\n  ours   100.0 us "
                                  "matmul/persistent_wave STAGES=4"));
  EXPECT_THAT(text.out, HasSubstr("\n  theirs 107.0 us matmul/persistent_wave BM=64"));
  EXPECT_THAT(text.out,
              HasSubstr("1 record, 0 artifacts, 0 decisions taken over, 1 problem whose"));
  ASSERT_TRUE(RecordStore(dir_ / "theirs").put(record));
  const nlohmann::json json =
      kernwright({"cache", "merge", (dir_ / "theirs").string(), "--json"}).json();
  const nlohmann::json& merged = json["merged"][0];
  EXPECT_EQ(merged["records"], 1);
  ASSERT_EQ(merged["disagreements"].size(), 1U);
  EXPECT_EQ(merged["disagreements"][0]["ours"]["measured_us"], 100);
  EXPECT_EQ(merged["disagreements"][0]["theirs"]["configuration"], "BM=64");
}

TEST_F(CacheTest, ADirectoryIsAnOptionAndNoWord) {
  for (const char* action : {"list", "verify", "compact", "prune", "misses"}) {
    const Ran ran = kernwright({"cache", action, cache().string()});
    EXPECT_EQ(ran.exit_code, 2) << action;
    EXPECT_THAT(ran.err, HasSubstr("takes no \"" + cache().string() + "\"; --cache names"));
  }
}

TEST_F(CacheTest, AConfigurationWithoutItsTemplateIsRefused) {
  for (const char* action : {"pin", "ban", "lift"}) {
    const Ran ran = kernwright({"cache", action, "vector_add", "n=4096", "dtype=bf16", "--sku",
                                "h200", "--configuration", "THREADS=128"});
    EXPECT_EQ(ran.exit_code, 2) << action;
    EXPECT_THAT(ran.err, HasSubstr("no --template is given"));
  }
  EXPECT_TRUE(kernwright({"cache", "list", "--json"}).json()["overrides"].empty());
}

TEST_F(CacheTest, NoLimitIsTooLargeForAPrune) {
  const std::string digest(64, 'a');
  ASSERT_TRUE(ArtifactStore(cache()).put(digest, sample_kernel("loose")));
  for (const char* limit : {"1e10", "1e300", "inf"}) {
    const Ran pruned = kernwright({"cache", "prune", "--max-gib", limit, "--max-days", limit});
    EXPECT_EQ(pruned.out, "0 files removed, 0 bytes\n") << limit << pruned.err;
  }
  EXPECT_EQ(kernwright({"cache", "prune", "--max-gib", "nan"}).exit_code, 2);
  EXPECT_EQ(kernwright({"cache", "prune", "--max-gib", "0"}).out.rfind("1 file removed", 0), 0U);
}

TEST_F(CacheTest, PinsAndBansAreKeptListedAndLifted) {
  const auto decide = [&](const std::string& action, const std::string& configuration) {
    return kernwright({"cache", action, "vector_add", "n=4096", "dtype=bf16", "--sku", "h200",
                       "--template", "vector_add/vectorized", "--configuration", configuration,
                       "--why", "an experiment"});
  };
  const Ran ban = decide("ban", "THREADS=128");
  EXPECT_EQ(ban.exit_code, 0) << ban.err;
  EXPECT_THAT(ban.out, HasSubstr("ban vector_add/vectorized THREADS=128"));
  EXPECT_EQ(decide("pin", "THREADS=256").exit_code, 0);
  EXPECT_EQ(decide("pin", "THREADS=many").exit_code, 2);
  EXPECT_EQ(decide("pin", "WARPS=4").exit_code, 2);
  const nlohmann::json list = kernwright({"cache", "list", "--json"}).json();
  ASSERT_EQ(list["overrides"].size(), 2U);
  EXPECT_EQ(list["overrides"][0]["action"], "ban");
  EXPECT_EQ(list["overrides"][0]["why"], "an experiment");
  EXPECT_EQ(list["overrides"][1]["action"], "pin");
  EXPECT_EQ(kernwright({"cache", "verify"}).exit_code, 0);
}

TEST_F(CacheTest, ALiftTakesBackWhatWasDecidedAndFailsWhereNothingWas) {
  const std::vector<std::string> problem = {"vector_add", "n=4096", "dtype=bf16", "--sku", "h200"};
  const auto run = [&](const std::string& action, const std::string& configuration) {
    std::vector<std::string> words = {"cache", action};
    words.insert(words.end(), problem.begin(), problem.end());
    if (!configuration.empty()) {
      words.insert(words.end(), {"--template", "vector_add/vectorized", "--configuration",
                                 configuration, "--json"});
    }
    return kernwright(words);
  };
  const Ran nothing = run("lift", "");
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("nothing is pinned or banned for vector_add n=4096"));
  ASSERT_EQ(run("ban", "THREADS=128").exit_code, 0);
  ASSERT_EQ(run("ban", "THREADS=256").exit_code, 0);
  ASSERT_EQ(run("pin", "THREADS=512").exit_code, 0);
  const Ran other = run("lift", "THREADS=1024");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("is neither pinned nor banned"));
  EXPECT_EQ(run("lift", "THREADS=128").json()["lifted"].size(), 1U);
  const Ran all = run("lift", "");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("lift vector_add/vectorized THREADS=256"));
  EXPECT_THAT(all.out, HasSubstr("lift vector_add/vectorized THREADS=512"));
  EXPECT_THAT(all.out, ::testing::Not(HasSubstr("THREADS=128")));
  EXPECT_EQ(run("lift", "").exit_code, 1) << "all of it was lifted";
}

TEST_F(CacheToolkitTest, ShowSaysWhatIsServedAndWhatIsBanned) {
  const std::vector<std::string> problem = {"vector_add", "n=4096", "dtype=bf16", "--sku", "h200"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), problem.begin(), problem.end());
    return kernwright(words);
  };
  const nlohmann::json before = with({"show", "--json"}).json();
  ASSERT_EQ(with({"cache", "ban", "--why", "an experiment"}).exit_code, 0);
  const nlohmann::json after = with({"show", "--json"}).json();
  EXPECT_NE(after["winner"]["configuration"], before["winner"]["configuration"]);
  ASSERT_EQ(after["banned"].size(), 1U);
  EXPECT_EQ(after["banned"][0]["configuration"], before["winner"]["configuration"]);
  EXPECT_TRUE(after["pinned"].is_null());
  const Ran text = with({"show"});
  EXPECT_THAT(text.out, HasSubstr("instead of vector_add/vectorized"));
  EXPECT_THAT(text.out, HasSubstr("banned"));
  EXPECT_THAT(text.out, HasSubstr(": an experiment"));
  ASSERT_EQ(with({"cache", "lift"}).exit_code, 0);
  const nlohmann::json lifted = with({"show", "--json"}).json();
  EXPECT_EQ(lifted["winner"]["configuration"], before["winner"]["configuration"]);
  EXPECT_TRUE(lifted["banned"].empty());
}

TEST_F(CacheToolkitTest, WhatCannotBeReadIsADefectAndNothingIsPruned) {
  const std::size_t artifacts = kernwright({"cache", "list", "--json"}).json()["artifacts"];
  ASSERT_GT(artifacts, 1U);
  // Beside the standard streams one file may be open: enough to start, too few to read anything.
  const auto starved = [this](const std::string& action) {
    return shell("exec 3>&- 4>&- 5>&- 6>&- 7>&-; ulimit -n 4; exec kernwright cache " + action);
  };
  for (const char* action : {"list", "verify"}) {
    const Ran ran = starved(action);
    EXPECT_EQ(ran.exit_code, 1) << action;
    EXPECT_THAT(ran.out + ran.err, HasSubstr("v1/records")) << action;
    EXPECT_THAT(ran.out + ran.err, HasSubstr("v1/artifacts")) << action;
  }
  EXPECT_GE(starved("verify --json").json()["defects"].size(), 2U);
  const Ran pruned = starved("prune --max-gib 0");
  EXPECT_EQ(pruned.exit_code, 1);
  EXPECT_THAT(pruned.err, HasSubstr("nothing was pruned"));
  EXPECT_EQ(kernwright({"cache", "list", "--json"}).json()["artifacts"], artifacts);
}

TEST_F(CacheToolkitTest, OnlyRegularFilesAreReadOrWritten) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((dir_ / "pipe.cu").c_str(), 0600), 0);
  std::filesystem::create_directories(dir_ / "templates/vector_add/own");
  ASSERT_EQ(::mkfifo((dir_ / "templates/vector_add/own/kernel.cu").c_str(), 0600), 0);
  const std::string list =
      write("list.json", R"({"problems": ["vector_add n=4096 dtype=bf16"]})").string();
  ASSERT_EQ(kernwright({"cache", "export", (dir_ / "bundle").string()}).exit_code, 0);
  const std::string in = "cd " + dir_.path().string() + "; exec kernwright ";
  for (const std::string line : {
           "prewarm --sku h200 pipe",
           "prewarm --sku h200 /dev/zero",
           "worklist pipe",
           "prewarm --sku h200 list.json --epilogue pipe.cu",
           "prewarm --sku h200 list.json --templates templates",
           "cache install pipe --allow-unsigned",
           "cache install bundle --trusted-keys pipe",
           "cache export new --key pipe",
           "cache export pipe",
           "cache export /dev/full",
       }) {
    const Ran ran = shell(in + line);
    EXPECT_THAT(ran.exit_code, ::testing::AnyOf(1, 2)) << line << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("regular file")) << line;
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_TRUE(std::filesystem::is_fifo(dir_ / "pipe"));
  // A user may name a link.
  std::filesystem::create_symlink("list.json", dir_ / "link.json");
  EXPECT_EQ(shell(in + "prewarm --sku h200 link.json").exit_code, 0);
  std::filesystem::resize_file(list, 17 << 20);
  EXPECT_THAT(shell(in + "prewarm --sku h200 list.json").err,
              HasSubstr("17825792 bytes, the most of a worklist is 16777216"));
}

TEST_F(CacheToolkitTest, ALogOfMissesThatIsAPipeCostsTheLogAlone) {
  std::filesystem::remove(cache() / "v1/misses.jsonl");
  ASSERT_EQ(::mkfifo((cache() / "v1/misses.jsonl").c_str(), 0600), 0);
  write("list.json", R"({"problems": ["vector_add n=4096 dtype=bf16"]})");
  const Ran ran = shell("kernwright prewarm --sku h200 " + (dir_ / "list.json").string());
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const Ran misses = shell("kernwright cache misses");
  EXPECT_EQ(misses.exit_code, 1);
  EXPECT_THAT(misses.err, HasSubstr("not a regular file"));
}

TEST_F(CacheTest, KeysAreNeverShownNorReplaced) {
  const std::string key = (dir_ / "fleet.key").string();
  const Ran made = kernwright({"cache", "keygen", key});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string secret = content(key);
  ASSERT_EQ(secret.size(), 129U) << "fleet.key names the pair as fleet does";
  const std::string shared = content(dir_ / "fleet.pub");
  EXPECT_EQ(shared.size(), 65U);
  const Ran trusting =
      kernwright({"cache", "install", (dir_ / "none").string(), "--trusted-keys", key});
  EXPECT_EQ(trusting.exit_code, 2);
  EXPECT_THAT(trusting.err, HasSubstr("this is a secret key; the public one is"));
  EXPECT_THAT(trusting.err, HasSubstr("fleet.pub"));
  EXPECT_THAT(trusting.err, ::testing::Not(HasSubstr(secret.substr(0, 8))));
  std::filesystem::remove(key);
  EXPECT_EQ(kernwright({"cache", "keygen", key}).exit_code, 1) << "fleet.pub is there";
  EXPECT_FALSE(std::filesystem::exists(key));
  EXPECT_EQ(content(dir_ / "fleet.pub"), shared);
}

TEST_F(CacheToolkitTest, MissesBecomeAWorklistAndCompileToTheSameBytesAgain) {
  const std::filesystem::path asked = write("list.json", R"({"problems": [
    "vector_add n=65536 dtype=bf16",
    {"operation": "elementwise", "dims": {"n": 4096},
     "flags": {"dtype": "bf16", "formula": ["a * x + y", "-max(x, -2.5) + 1", "2"]}}]})");
  EXPECT_EQ(kernwright({"prewarm", asked.string(), "--sku", "h200"}).exit_code, 0);
  const nlohmann::json misses = kernwright({"cache", "misses", "--json"}).json();
  ASSERT_EQ(misses["misses"].size(), 4U) << misses;
  EXPECT_EQ(misses["misses"][0]["reason"], "absent");
  const Ran list = kernwright({"cache", "misses", "--worklist"});
  EXPECT_EQ(list.json()["problems"],
            nlohmann::json({"elementwise n=4096 dtype=bf16 formula=-max(x,-2.5)+1",
                            "elementwise n=4096 dtype=bf16 formula=2.0",
                            "elementwise n=4096 dtype=bf16 formula=a*x+y",
                            "vector_add n=65536 dtype=bf16"}));
  const Ran covered =
      kernwright({"prewarm", "--verify", write("misses.json", list.out).string(), "--sku", "h200"});
  EXPECT_EQ(covered.exit_code, 0) << covered.out << covered.err;

  const Ran same = kernwright({"cache", "verify", "--recompile", "--json"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_EQ(same.json()["recompiled"], 5);
  EXPECT_EQ(same.json()["not_comparable"], 0);
}

TEST_F(CacheToolkitTest, AFormulaOfDigitsAloneIsNoDim) {
  const std::filesystem::path list =
      write("list.json", R"({"problems": ["elementwise n=64 dtype=fp32 formula=2"]})");
  const Ran ran = kernwright({"prewarm", list.string(), "--sku", "h200"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("formula=2.0"));
  const Ran unknown =
      kernwright({"tune", "elementwise", "m=64", "dtype=fp32", "formula=x", "--sku", "h200"});
  EXPECT_THAT(unknown.err, HasSubstr("no dim m=64, dims are n"));
}

TEST_F(CacheToolkitTest, TidyingKeepsWhatIsServed) {
  ASSERT_EQ(kernwright({"tune", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200"}).exit_code,
            0);
  EXPECT_EQ(kernwright({"cache", "compact", "--json"}).json()["removed_files"], 1);
  EXPECT_GT(kernwright({"cache", "prune", "--max-gib", "0", "--json"}).json()["removed_files"], 0);
  EXPECT_EQ(kernwright({"cache", "verify"}).exit_code, 0);
  const nlohmann::json list = kernwright({"cache", "list", "--json"}).json();
  EXPECT_EQ(list["records"].size(), 1U);
  EXPECT_EQ(list["artifacts"], 1);
}

TEST_F(CacheToolkitTest, AMergedCacheServesTheSame) {
  const Ran merged = kernwright(
      {"cache", "merge", cache().string(), "--cache", (dir_ / "other").string(), "--json"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(merged.json()["merged"][0]["records"], 1);
  EXPECT_EQ(kernwright({"show", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200", "--cache",
                        (dir_ / "other").string()})
                .exit_code,
            0);
}

TEST_F(CacheToolkitTest, AnExportWarnsOfWhatIsPinnedWithoutBits) {
  ASSERT_EQ(kernwright({"cache", "pin", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200",
                        "--template", "vector_add/vectorized", "--configuration",
                        "THREADS=512 VECTORS=8 NO_ALLOCATE=0 STREAMING=0 BLOCKS_PER_SM=0 "
                        "PROGRAMMATIC=0"})
                .exit_code,
            0);
  const Ran exported = kernwright({"cache", "export", (dir_ / "bundle").string(), "--json"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("warning: vector_add n=4096 dtype=bf16"));
  EXPECT_THAT(exported.json()["without_bits"][0].get<std::string>(),
              HasSubstr("is pinned and has no bits in the bundle; sweep the problem again"));
}

TEST_F(CacheToolkitTest, ASignedBundleIsInstalledByThoseWhoTrustItAndCoversItsProblems) {
  const auto in = [this](const char* name) { return (dir_ / name).string(); };
  const Ran keys = kernwright({"cache", "keygen", in("fleet")});
  ASSERT_EQ(keys.exit_code, 0) << keys.err;
  const nlohmann::json more = kernwright({"cache", "keygen", in("more"), "--json"}).json();
  EXPECT_EQ(more["secret_key"], in("more.key"));
  EXPECT_EQ(content(in("more.pub")), more["key"].get<std::string>() + "\n");
  EXPECT_EQ(kernwright({"cache", "keygen", in("fleet")}).exit_code, 1) << "nothing is overwritten";
  const Ran exported =
      kernwright({"cache", "export", in("bundle"), "--key", in("fleet.key"), "--json"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.json()["records"], 1);
  const std::vector<std::string> install = {"cache", "install", in("bundle"), "--cache",
                                            in("served")};
  const Ran untrusted = kernwright(install);
  EXPECT_EQ(untrusted.exit_code, 1) << "the command line is right, and nobody trusts the bundle";
  EXPECT_THAT(untrusted.err, HasSubstr("--allow-unsigned"));
  std::vector<std::string> trusting = install;
  trusting.insert(trusting.end(), {"--trusted-keys", in("fleet.pub")});
  const Ran installed = kernwright(trusting);
  ASSERT_EQ(installed.exit_code, 0) << installed.err;
  const Ran whole = kernwright({"cache", "verify", "--cache", in("served"), "--json"});
  EXPECT_EQ(whole.exit_code, 0) << whole.out;
  const std::filesystem::path bundle = whole.json()["bundle"].get<std::string>();
  EXPECT_EQ(whole.json()["bundle_holds"]["records"], 1);
  EXPECT_EQ(whole.json()["bundle_holds"]["artifacts"], 1);
  const Ran listed = kernwright({"cache", "list", "--cache", in("served")});
  EXPECT_THAT(listed.out, HasSubstr("in the bundle, "));
  EXPECT_THAT(listed.out, HasSubstr(", 1 record, 1 artifact\n"));
  EXPECT_THAT(kernwright({"cache", "verify", "--cache", in("served")}).out,
              HasSubstr(", 1 record, 1 artifact\n"));
  for (const char* action : {"list", "verify", "misses", "prune"}) {
    const Ran none = kernwright({"cache", action, "--cache", in("nosuch")});
    EXPECT_EQ(none.exit_code, 1) << action;
    EXPECT_THAT(none.err, HasSubstr("there is no cache " + in("nosuch")));
  }
  std::ofstream(bundle / "v1/more") << "x";
  const Ran changed = kernwright({"cache", "verify", "--cache", in("served")});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.out, HasSubstr("v1/more: it is not in the bundle's manifest"));
  ASSERT_EQ(kernwright({"cache", "export", in("older"), "--key", in("fleet.key"), "--serial", "17"})
                .exit_code,
            0);
  trusting[2] = in("older");
  const Ran older = kernwright(trusting);
  EXPECT_EQ(older.exit_code, 1);
  EXPECT_THAT(older.err, HasSubstr("the bundle's serial is 17, older than"));
  EXPECT_THAT(older.err, HasSubstr("--allow-older"));
  trusting.insert(trusting.end(), {"--allow-older", "--json"});
  const nlohmann::json replaced = kernwright(trusting).json();
  EXPECT_EQ(replaced["serial"], 17);
  EXPECT_EQ(replaced["root"], in("served"));
  EXPECT_EQ(replaced["signer"].get<std::string>() + "\n", content(in("fleet.pub")));
  const Ran ahead = kernwright({"cache", "export", in("ahead"), "--key", in("fleet.key"),
                                "--serial", "9223372036854775807"});
  EXPECT_THAT(ahead.err, HasSubstr("warning: the bundle's serial, 9223372036854775807, is "));
  EXPECT_THAT(ahead.err, HasSubstr("--allow-older"));
  EXPECT_EQ(exported.err + installed.err, "") << "one by the clock is no cause to warn";
  trusting[2] = in("ahead");
  EXPECT_THAT(kernwright(trusting).err, HasSubstr("days ahead of this machine's clock"));
  trusting[2] = in("older");
  kernwright(trusting);
  const std::string list = write("list.json", R"({"problems": [
    "vector_add n=4096 dtype=bf16"]})")
                               .string();
  const Ran verified = kernwright({"prewarm", list, "--verify", "--sku", "h200", "--cache",
                                   in("served"), "--min-match", "predicted"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_EQ(kernwright({"prewarm", list, "--verify", "--sku", "h200", "--cache", in("served"),
                        "--min-match", "recheck"})
                .exit_code,
            1)
      << "it was only predicted";
}

}  // namespace
}  // namespace kernwright
