// Bundles that packages bring.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/bundle.h"
#include "support/libraries/signing.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class SignedCacheTest : public ServiceCoreTest {
 protected:
  /// A service of an empty cache with the bundle in `folder` as its further layer.
  std::shared_ptr<ServiceCore> open_with(const std::filesystem::path& folder,
                                         const std::string& key) {
    ServiceOptions options;
    options.cache = user_.path();
    options.signed_caches = {folder};
    options.on_miss = MissPolicy::fail;
    options.log = [this](LogLevel, std::string_view line) { said_.emplace_back(line); };
    Surroundings surroundings = fake_surroundings(world_);
    surroundings.trusted_keys = {key};
    return *ServiceCore::open(std::move(options), std::move(surroundings));
  }

  const ScopedTempDir user_;
  const ScopedTempDir package_;
  std::vector<std::string> said_;
};

TEST_F(SignedCacheTest, ItServesWhereATrustedKeySignedItAndIsPassedOverElsewhere) {
  const KeyPair keys = *make_key_pair();
  const auto tuned = open()->tune(problem_, few_trials());
  ASSERT_TRUE(tuned) << tuned.error().message;
  const std::filesystem::path file = package_ / "bundle";
  ASSERT_TRUE(export_bundle(TieredCache(cache_.path()), file,
                            {.sku = "h200", .secret_key = keys.secret_key, .serial = 1}));
  ASSERT_TRUE(install_bundle(file, package_.path(), {.trusted_keys = {keys.public_key}}));
  const std::filesystem::path folder = installed_bundle(package_.path());

  world_.compiles = 0;
  const auto core = open_with(folder, keys.public_key);
  const Result<Kernel> kernel = core->get_best_kernel(problem_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->match(), Match::exact);
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(core->metrics().bundles, std::vector<std::string>{folder.filename()});
  EXPECT_TRUE(said_.empty());

  const auto distrustful = open_with(folder, std::string(kProjectKey));
  EXPECT_FALSE(distrustful->get_best_kernel(problem_));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_EQ(said_[0],
            folder.string() + " is passed over: the bundle is signed by none of 1 trusted key");

  std::filesystem::remove_all(folder / "v1" / "artifacts");
  EXPECT_FALSE(open_with(folder, keys.public_key)->get_best_kernel(problem_));
  EXPECT_EQ(said_.size(), 2U) << "it is not whole";
}

}  // namespace
}  // namespace kernwright
