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

  void open(const CudaDeviceOptions& options) {
    Result<std::unique_ptr<Device>> device = open_cuda_device(0, options);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }
  bool hopper() const { return device_->profile().sm_arch >= 90; }

  std::string compile(const char* source) {
    CompileRequest request;
    request.name = "test.cu";
    request.source = source;
    request.target = concat("sm_", device_->profile().sm_arch);
    Result<CompiledKernel> kernel = compiler_->compile(request);
    EXPECT_TRUE(kernel) << kernel.error().message;
    return kernel ? kernel->bits : std::string();
  }
  std::shared_ptr<LoadedProgram> load(const ExecutionPlan& plan, const char* source = kGpuKernels) {
    Result<std::shared_ptr<LoadedProgram>> program = device_->load(compile(source), plan);
    EXPECT_TRUE(program) << program.error().message;
    return program ? *program : nullptr;
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
    Result<std::unique_ptr<DeviceBuffer>> buffer = device_->allocate(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    if (!buffer) return 0;
    EXPECT_TRUE(device_->fill((*buffer)->address(), 0xff, bytes));
    buffers_.push_back(std::move(*buffer));
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
