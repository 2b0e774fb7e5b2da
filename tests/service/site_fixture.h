#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "service/answer/builder.h"
#include "service/answer/site.h"
#include "tests/service/fake_surroundings.h"
#include "tests/temp_dir.h"

namespace kernwright {

/// A site whose GPU and toolkit exist in `world_` alone, with a cache of its own.
class SiteFixture : public ::testing::Test {
 protected:
  explicit SiteFixture(const std::vector<std::filesystem::path>& template_dirs = {}) {
    site_.catalog = *Catalog::load(template_dirs);
  }

  std::unique_ptr<Builder> builder() {
    return std::make_unique<Builder>(*site_.catalog, site_.profile.sm_arch, site_.cache,
                                     std::make_unique<FakeCompiler>(world_), Builder::Options{});
  }
  /// Returns whether a line of the log holds the text.
  bool said(std::string_view text) const {
    for (const std::string& line : log_) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }

  FakeWorld world_;
  std::vector<std::string> log_;
  const ScopedTempDir dir_;
  Site site_{.catalog = {},
             .profile = *find_profile("h200"),
             .identity = {.uuid = "GPU-fake", .driver_version = "580.1"},
             .has_device = true,
             .policy = {},
             .cache = TieredCache(dir_.path()),
             .log = [this](LogLevel, std::string_view line) { log_.emplace_back(line); }};
};

}  // namespace kernwright
