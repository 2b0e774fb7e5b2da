#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>

#include "service/c/c_api_support.h"
#include "tests/doubles/fake_driver.h"
#include "tests/launch/scripted_kernel.h"

namespace kernwright {

/// A kernel of the C ABI, over a driver that runs nothing.
class CKernelFixture : public ::testing::Test {
 protected:
  CKernelFixture() {
    driver_.current = reinterpret_cast<CUcontext>(0xcc);
    const ExecutionPlan plan = mapped_plan();
    driver_.kernels["scale"] = parameter_sizes(plan, plan.launches[0]);
    auto launcher = load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0);
    EXPECT_TRUE(launcher) << launcher.error().message;
    loaded_ = make_kernel(plan, *std::move(launcher));
    kernel_ = new kw_kernel(loaded_->handle());
  }
  ~CKernelFixture() override { kw_release(kernel_); }

  static constexpr std::uint64_t kX = 0x10000;
  static constexpr std::uint64_t kY = 0x20000;
  inline static const void* const kTensors[2] = {reinterpret_cast<const void*>(kX),
                                                 reinterpret_cast<const void*>(kY)};
  FakeDriver driver_;
  std::shared_ptr<LoadedKernel> loaded_;
  kw_kernel* kernel_ = nullptr;
};

}  // namespace kernwright
