#include "device/timing/clock_stamps.h"

#include <atomic>
#include <cstring>

namespace kernwright {
namespace {

constexpr const char* kKernel = "kernwright_stamp";
/// One thread of each block writes {clock64, globaltimer} to the slot of its SM.
constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry kernwright_stamp(.param .u64 to, .param .u32 slots)
{
  .reg .pred %p;
  .reg .b32 %r<2>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [to];
  ld.param.u32 %r0, [slots];
  mov.u32 %r1, %smid;
  setp.ge.u32 %p, %r1, %r0;
  @%p bra $done;
  mul.wide.u32 %d1, %r1, 16;
  add.u64 %d0, %d0, %d1;
  mov.u64 %d2, %globaltimer;
  mov.u64 %d3, %clock64;
  st.global.u64 [%d0], %d3;
  st.global.u64 [%d0 + 8], %d2;
$done:
  ret;
}
)";

}  // namespace

std::unique_ptr<ClockStamps> ClockStamps::make(const std::shared_ptr<CudaContext>& context,
                                               int sm_count) {
  const DriverApi& api = context->api();
  CUlibrary library = nullptr;
  if (api.library_load_data(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
      CUDA_SUCCESS) {
    return nullptr;
  }
  ContextOwned<LibraryHandle> owned_library(context, LibraryHandle(api, library));
  CUkernel kernel = nullptr;
  if (api.library_get_kernel(&kernel, library, kKernel) != CUDA_SUCCESS) return nullptr;
  void* memory = nullptr;
  if (api.mem_host_alloc(&memory, 2 * kSlots * sizeof(Stamp), CU_MEMHOSTALLOC_DEVICEMAP) !=
      CUDA_SUCCESS) {
    return nullptr;
  }
  ContextOwned<HostMemoryHandle> owned_memory(context, HostMemoryHandle(api, memory));
  std::memset(memory, 0, 2 * kSlots * sizeof(Stamp));
  CUdeviceptr address = 0;
  if (api.mem_host_get_device_pointer(&address, memory, 0) != CUDA_SUCCESS) return nullptr;
  std::unique_ptr<ClockStamps> stamps(new ClockStamps(
      std::move(owned_library), std::move(owned_memory), kernel, address, sm_count));
  // The first launch loads the code, which must not wait behind a closed gate.
  if (!stamps->enqueue(Place::before) || !context->wait()) return nullptr;
  return stamps;
}

DriverStatus ClockStamps::enqueue(Place place) {
  const CudaContext& context = library_.context();
  CUdeviceptr to = address_;
  if (place == Place::after) {
    to += kSlots * sizeof(Stamp);
  } else {  // nothing runs: the last sample was waited for
    std::memset(memory_.handle().get(), 0, 2 * kSlots * sizeof(Stamp));
    std::atomic_thread_fence(std::memory_order_release);
  }
  unsigned int slots = kSlots;
  void* arguments[] = {&to, &slots};
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned int>(2 * sm_count_);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = context.stream();
  return {"cuLaunchKernelEx",
          context.api().launch_kernel_ex(&config, reinterpret_cast<CUfunction>(kernel_), arguments,
                                         nullptr)};
}

std::optional<ClockStamps::Span> ClockStamps::read() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* stamps = static_cast<const Stamp*>(memory_.handle().get());
  for (std::size_t sm = 0; sm < kSlots; ++sm) {
    const Stamp& before = stamps[sm];
    const Stamp& after = stamps[kSlots + sm];
    if (before.nanoseconds == 0 || after.nanoseconds <= before.nanoseconds) continue;
    if (after.clock <= before.clock) continue;
    const auto nanoseconds = static_cast<double>(after.nanoseconds - before.nanoseconds);
    return Span{static_cast<double>(after.clock - before.clock) / nanoseconds * 1e3,
                nanoseconds * 1e-3};
  }
  return std::nullopt;
}

}  // namespace kernwright
