// Bundles that packages bring.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entries/entry_file.h"
#include "cache/layers/bundle.h"
#include "support/files.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class SignedCacheTest : public ServiceCoreTest {
 protected:
  /// A service of an empty cache with the bundle in `folder` as its further layer.
  std::shared_ptr<ServiceCore> open_with(const std::filesystem::path& folder) {
    return *ServiceCore::open(
        {.cache = user_.path(),
         .signed_caches = {folder},
         .min_match = Match::recheck,  // nothing is compiled in place of what is refused
         .log = [this](LogLevel, std::string_view line) { said_.emplace_back(line); }},
        fake_surroundings(world_));
  }

  /// A bundle of the tuned problem, unpacked.
  std::filesystem::path package() {
    const auto tuned = open()->tune(problem_, few_trials());
    EXPECT_TRUE(tuned) << tuned.error().message;
    const std::filesystem::path file = package_ / "bundle";
    EXPECT_TRUE(export_bundle(TieredCache(cache_.path()), file,
                              {.sku = "h200", .secret_key = {}, .serial = 1}));
    EXPECT_TRUE(
        install_bundle(file, package_.path(), {.trusted_keys = {}, .allow_unsigned = true}));
    return installed_bundle(package_.path());
  }

  const ScopedTempDir user_;
  const ScopedTempDir package_;
  std::vector<std::string> said_;
};

TEST_F(SignedCacheTest, ItServesUnlessOthersMayWriteToItOrItIsNotWhole) {
  const std::filesystem::path folder = package();
  world_.compiles = 0;
  const auto core = open_with(folder);
  const Result<Kernel> kernel = core->get_best_kernel(problem_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->match(), Match::exact);
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(core->metrics().bundles, std::vector<std::string>{folder.filename()});
  EXPECT_TRUE(said_.empty());

  std::filesystem::permissions(folder, std::filesystem::perms::all);
  EXPECT_FALSE(open_with(folder)->get_best_kernel(problem_));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_EQ(said_[0], folder.string() + " is passed over: " + folder.string() +
                          "/: others than you and root may write to it");

  std::filesystem::permissions(folder, std::filesystem::perms(0755));
  std::filesystem::remove_all(folder / "v1" / "artifacts");
  EXPECT_FALSE(open_with(folder)->get_best_kernel(problem_));
  EXPECT_EQ(said_.size(), 2U) << "it is not whole";
}

TEST_F(SignedCacheTest, FilesThatAreReplacedAfterTheOpeningAreNotServed) {
  const std::filesystem::path folder = package();
  // Each kind of file by itself, with content that its own digest fits.
  for (const std::string_view kind : {"artifacts", "records"}) {
    const auto core = open_with(folder);
    std::map<std::filesystem::path, std::string> before;
    for (const std::filesystem::path& file : files_below(folder / "v1" / kind, folder).files) {
      before[file] = *read_file(file);
      EntryFile entry = *decode_entry(before[file], kind.substr(0, kind.size() - 1)).value;
      (kind == "artifacts" ? entry.payload : entry.body) += ' ';
      ASSERT_TRUE(publish_file(file, encode_entry(entry)));
    }
    ASSERT_FALSE(before.empty());
    EXPECT_FALSE(core->get_best_kernel(problem_)) << kind;
    for (const auto& [file, bytes] : before) ASSERT_TRUE(publish_file(file, bytes));
    EXPECT_TRUE(open_with(folder)->get_best_kernel(problem_)) << kind;
  }
}

}  // namespace
}  // namespace kernwright
