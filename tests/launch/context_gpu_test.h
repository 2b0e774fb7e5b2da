#pragma once

#include <memory>
#include <optional>

#include "device/driver/handles.h"
#include "scripted_kernel.h"
#include "support/libraries/dynamic_library.h"
#include "tests/device/gpu_fixture.h"

namespace kernwright {

/// A caller's side: GPU 0's primary context current in the test's thread, and a stream in it.
class ContextGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    api_ = *load_driver();
    context_ = primary_context(*api_, 0).value();
    scope_.emplace(*api_, context_);
    stream_ = make_stream();
  }
  void TearDown() override {
    stream_.reset();
    scope_.reset();
  }

  StreamHandle make_stream() const {
    CUstream stream = nullptr;
    EXPECT_EQ(api_->stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return {*api_, stream};
  }
  void wait(CUstream stream) const { EXPECT_EQ(api_->stream_synchronize(stream), CUDA_SUCCESS); }

  std::shared_ptr<LoadedKernel> kernel_of(const ExecutionPlan& plan, const char* source) {
    auto launcher = Launcher::load(compile(source), plan);
    EXPECT_TRUE(launcher) << launcher.error().message;
    return make_kernel(plan, *std::move(launcher));
  }

  /// The two functions that only captures need.
  CUresult begin_capture(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) const {
    return reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode)>(
        library_->symbol("cuStreamBeginCapture_v2"))(stream_.get(), mode);
  }
  CUresult end_capture(CUgraph* graph) const {
    return reinterpret_cast<CUresult (*)(CUstream, CUgraph*)>(
        library_->symbol("cuStreamEndCapture"))(stream_.get(), graph);
  }
  /// Instantiates the graph and launches it `times` times.
  void replay(CUgraph graph, int times) const {
    CUgraphExec exec = nullptr;
    ASSERT_EQ(api_->graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    const GraphExecHandle owned(*api_, exec);
    for (int i = 0; i < times; ++i) {
      ASSERT_EQ(api_->graph_launch(exec, stream_.get()), CUDA_SUCCESS);
    }
    wait(stream_.get());
  }

  const DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  std::optional<ContextScope> scope_;
  StreamHandle stream_;
  Result<DynamicLibrary> library_ = DynamicLibrary::open({"libcuda.so.1"});
};

}  // namespace kernwright
