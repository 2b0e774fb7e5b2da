#pragma once

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "gpu_kernels.h"
#include "plans.h"
#include "support/text.h"
#include "tests/results.h"

namespace kernwright {

/// GPU 0, opened, and cubins for it; skips with the reason if there is no GPU or no NVRTC.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda_device_count(); !count) {
      GTEST_SKIP() << count.error().message;
    }
    if (const Result<std::string> toolkit = compiler_->identity(); !toolkit) {
      GTEST_SKIP() << toolkit.error().message;
    }
    open({});
  }

  void open(const CudaDeviceOptions& options) { device_ = must(open_cuda_device(0, options)); }
  bool hopper() const { return device_->profile().sm_arch >= 90; }

  std::string compile(const char* source) {
    CompileRequest request;
    request.name = "test.cu";
    request.source = source;
    request.target = concat("sm_", device_->profile().sm_arch);
    return must(compiler_->compile(request)).bits;
  }
  std::shared_ptr<LoadedProgram> load(const ExecutionPlan& plan, const char* source = kGpuKernels) {
    return must(device_->load(compile(source), plan));
  }
  /// Loads and runs; returns true if both succeeded.
  bool run(const ExecutionPlan& plan, const LaunchArguments& arguments,
           const char* source = kGpuKernels) {
    const auto program = load(plan, source);
    if (!program) return false;
    const Result<void> ran = device_->run(*program, arguments);
    EXPECT_TRUE(ran) << ran.error().message;
    return ran.has_value();
  }

  /// Device memory of `bytes`, every byte 0xff.
  DevicePointer allocate(std::int64_t bytes) {
    std::unique_ptr<DeviceBuffer> buffer = must(device_->allocate(bytes));
    EXPECT_TRUE(device_->fill(buffer->address(), 0xff, bytes));
    buffers_.push_back(std::move(buffer));
    return buffers_.back()->address();
  }
  template <typename T>
  void upload(DevicePointer to, const std::vector<T>& values) {
    const Result<void> done = device_->upload(to, std::as_bytes(std::span(values)));
    EXPECT_TRUE(done) << done.error().message;
  }
  template <typename T>
  std::vector<T> download(DevicePointer from, std::size_t count) {
    std::vector<T> values(count);
    const Result<void> done = device_->download(std::as_writable_bytes(std::span(values)), from);
    EXPECT_TRUE(done) << done.error().message;
    return values;
  }

  std::unique_ptr<Compiler> compiler_ = make_toolkit_compiler();
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace kernwright
