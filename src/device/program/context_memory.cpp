#include "device/program/context_memory.h"

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

Result<CUcontext> current_context(const DriverApi& api) {
  CUcontext context = nullptr;
  const DriverStatus status{"cuCtxGetCurrent", api.context_get_current(&context)};
  if (!status) return driver_error(api, status);
  if (!context) {
    return Error{ErrorCode::invalid_argument, std::string(kNoContext)};
  }
  return context;
}

Result<ContextMemory> ContextMemory::allocate(const DriverApi& api, std::int64_t bytes) {
  if (bytes == 0) return ContextMemory();
  KW_ASSIGN(const CUcontext context, current_context(api));
  CUdeviceptr address = 0;
  const OutsideOfCaptures allocates(api);
  const DriverStatus status{"cuMemAlloc", api.mem_alloc(&address, static_cast<std::size_t>(bytes))};
  if (!status) {
    return Error{ErrorCode::device, concat(bytes, " bytes: ", driver_error(api, status).message)};
  }
  return ContextMemory(api, context, MemoryHandle(api, address));
}

ContextMemory::~ContextMemory() {
  if (!api_) return;
  const ContextScope scope(*api_, context_);
  memory_.reset();
}

}  // namespace kernwright
