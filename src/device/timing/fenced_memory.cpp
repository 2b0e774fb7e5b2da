#include "device/timing/fenced_memory.h"

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

Result<std::unique_ptr<DeviceBuffer>> FencedMemory::make(
    const std::shared_ptr<CudaContext>& context, std::int64_t bytes) {
  std::unique_ptr<FencedMemory> memory(new FencedMemory(context));
  if (Result<void> mapped = memory->map(bytes); !mapped) {
    return Error{mapped.error().code,
                 concat("mapping ", bytes, " fenced bytes: ", mapped.error().message)};
  }
  return std::unique_ptr<DeviceBuffer>(std::move(memory));
}

Result<void> FencedMemory::map(std::int64_t bytes) {
  const DriverApi& api = context_->api();
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context_->device()};
  KW_TRY(context_->check(
      {"cuMemGetAllocationGranularity",
       api.mem_get_allocation_granularity(&page_, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM)}));
  bytes_ = (static_cast<std::size_t>(bytes) + page_ - 1) / page_ * page_;
  KW_TRY(context_->check({"cuMemCreate", api.mem_create(&pages_, bytes_, &kind, 0)}));
  created_ = true;
  KW_TRY(context_->check(
      {"cuMemAddressReserve", api.mem_address_reserve(&reserved_, bytes_ + 2 * page_, 0, 0, 0)}));
  KW_TRY(context_->check({"cuMemMap", api.mem_map(address(), bytes_, 0, pages_, 0)}));
  mapped_ = true;
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return context_->check({"cuMemSetAccess", api.mem_set_access(address(), bytes_, &access, 1)});
}

FencedMemory::~FencedMemory() {
  if (context_->lost()) return;
  const DriverApi& api = context_->api();
  const ContextScope scope(api, context_->context());
  if (!scope.status()) return;
  if (mapped_) api.mem_unmap(address(), bytes_);
  if (reserved_ != 0) api.mem_address_free(reserved_, bytes_ + 2 * page_);
  if (created_) api.mem_release(pages_);
}

}  // namespace kernwright
