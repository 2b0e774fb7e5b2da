#pragma once

#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "model/catalog/catalog.h"
#include "tests/results.h"
#include "tuner/data/data_ops.h"
#include "tuner/measure/device_runner.h"

namespace kernwright {

/// A GPU with a toolkit, the built-in catalog, and data kernels; skips with the reason if there is
/// none. The device is opened per test, so that a lost one costs one test.
class GpuWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = open_cuda_device(0);
    if (!device) GTEST_SKIP() << device.error().message;
    std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
    if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
    device_ = std::move(device).value();
    pool_ = std::make_unique<CompilePool>(std::move(compiler), CompilePoolOptions{});
    load_catalog({});
    ops_ = must(make_device_data_ops(*device_, *pool_));
  }

  void load_catalog(const std::vector<std::filesystem::path>& template_dirs) {
    catalog_ = must(Catalog::load(template_dirs));
  }

  const Operation& operation(std::string_view name) const {
    return *catalog_->operation(name).value();
  }
  BoundProblem bound(std::string_view text) const {
    return catalog_->bind(Problem::parse(text).value()).value();
  }

  /// One warm buffer set: for checking, not for timing.
  Result<std::unique_ptr<Runner>> open_runner(const BoundProblem& problem, std::uint64_t seed = 1,
                                              bool disposable = false) {
    DeviceRunnerOptions options;
    options.policy.l2 = L2State::warm;
    options.seed = seed;
    options.disposable = disposable;
    return open_device_runner(*device_, *ops_, problem, *catalog_, *pool_, options);
  }

  template <typename T>
  std::vector<T> download(DevicePointer from, std::int64_t count) {
    std::vector<T> host(static_cast<std::size_t>(count));
    const auto done = device_->download(std::as_writable_bytes(std::span(host)), from);
    EXPECT_TRUE(done) << done.error().message;
    return host;
  }

  std::shared_ptr<const Catalog> catalog_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<DataOps> ops_;
};

}  // namespace kernwright
