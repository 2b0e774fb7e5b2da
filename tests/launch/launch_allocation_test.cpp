#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

#include "scripted_kernel.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"
#include <kernwright/baked_launch.h>

namespace {

thread_local int allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kernwright {
namespace {

TEST(LaunchAllocationTest, NoLaunchPathTouchesTheHeap) {
  FakeDriver driver;
  driver.current = reinterpret_cast<CUcontext>(0xcc);
  const ExecutionPlan plan = mapped_plan();
  driver.kernels["scale"] = parameter_sizes(plan, plan.launches[0]);
  // The fake records what it is asked on the heap; what is called below does not.
  DriverApi api = driver.api();
  auto launcher = must(load_launcher(api, FakeDriver::cubin(), plan, 0));
  const auto loaded = make_kernel(plan, std::move(launcher));
  const Kernel kernel = loaded->handle();
  BakedLaunch baked = must(kernel.bake({0x1000ULL, 0x2000ULL}));
  api.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_SUCCESS;
  };
  api.graph_launch = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  api.graph_exec_kernel_node_set_params =
      [](CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) { return CUDA_SUCCESS; };

  const auto workspace = reinterpret_cast<void*>(std::uint64_t{0x40000});
  bool succeeded = true;
  const int before = allocations;
  for (unsigned long long i = 0; i < 100; ++i) {
    const Arg arguments[] = {0x1000ULL + i * 16, 0x2000ULL, 3.0};
    succeeded = succeeded && kernel.launch(nullptr, arguments, 3, workspace) &&
                kernel.launch_checked(nullptr, arguments, 3, workspace) &&
                baked.rebind(arguments, 3) && baked.launch(nullptr);
  }
  const int after = allocations;
  EXPECT_TRUE(succeeded);
  EXPECT_EQ(after, before);
  EXPECT_FALSE(kernel.launch(nullptr, nullptr, 0, workspace));
  EXPECT_GT(allocations, after) << "an error has to be worded: the count works";
}

}  // namespace
}  // namespace kernwright
