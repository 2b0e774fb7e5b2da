// Bundles that packages bring, as the tool's commands see them.

#include <filesystem>
#include <string>

#include "cache/layers/bundle.h"
#include "cache/stores/artifact_store.h"
#include "cache/stores/record_store.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

class SignedCachesTest : public ProgramTest {
 protected:
  /// A bundle with one record, unpacked.
  std::filesystem::path package() {
    const std::filesystem::path tuned = dir_ / "tuned";
    TuningRecord record = sample_record(4096);
    record.winner.artifact = std::string(64, 'a');
    EXPECT_TRUE(RecordStore(tuned).put(record));
    EXPECT_TRUE(ArtifactStore(tuned).put(record.winner.artifact, sample_kernel("winner")));
    const auto exported = export_bundle(TieredCache(tuned), dir_ / "bundle",
                                        {.sku = {}, .secret_key = {}, .serial = 1});
    EXPECT_TRUE(exported) << exported.error().message;
    EXPECT_TRUE(install_bundle(dir_ / "bundle", dir_ / "site",
                               {.trusted_keys = {}, .allow_unsigned = true}));
    return installed_bundle(dir_ / "site");
  }
  static inline const std::vector<std::string> kShow = {"show",   "matmul",     "m=4096", "n=6144",
                                                        "k=4096", "dtype=bf16", "--sku",  "h200"};
};

TEST_F(SignedCachesTest, WhatOthersMayWriteIsPassedOverByName) {
  const std::string folder = package().string();
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  const std::string passed_over =
      " is passed over: " + folder + "/: others than you and root may write to it";
  environment_["KERNWRIGHT_SIGNED_CACHES"] = folder + ":" + (dir_ / "none").string();

  EXPECT_NE(flat(kernwright({"doctor"}).out).find("data " + folder + passed_over),
            std::string::npos);
  const nlohmann::json told = kernwright({"doctor", "--json"}).json()["signed_caches"];
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0]["folder"], folder);
  EXPECT_EQ(told[0]["records"], 0);
  EXPECT_NE(told[1]["defect"].get<std::string>().find("manifest.json"), std::string::npos);

  const Ran shown = kernwright(kShow);
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_NE(shown.err.find(folder + passed_over), std::string::npos) << shown.err;
  const Ran reported = kernwright({"report", "-o", (dir_ / "page.html").string()});
  EXPECT_NE(reported.err.find(folder + passed_over), std::string::npos) << reported.err;
}

TEST_F(SignedCachesTest, ARecordOfAFurtherLayerIsShownWithItsPlace) {
  const std::string folder = package().string();
  std::vector<std::string> words = kShow;
  words.insert(words.end(), {"--read-only-cache", folder});
  EXPECT_NE(flat(kernwright(words).out).find("found in " + folder + ", which is only read"),
            std::string::npos);
  words.emplace_back("--json");
  EXPECT_EQ(kernwright(words).json()["layer"], folder);

  ASSERT_TRUE(RecordStore(cache()).put(sample_record(4096)));
  EXPECT_EQ(kernwright(kShow).out.find("found in"), std::string::npos);
}

}  // namespace
}  // namespace kernwright
