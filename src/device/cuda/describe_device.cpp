#include "device/cuda/describe_device.h"

#include <array>
#include <string>

#include "device/driver/nvml.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Reads attributes of one GPU and remembers the first failure.
class AttributeReader {
 public:
  AttributeReader(const DriverApi& api, CUdevice device) : api_(api), device_(device) {}

  int operator()(CUdevice_attribute id) {
    int value = 0;
    if (status_) {
      status_ = {"cuDeviceGetAttribute", api_.device_get_attribute(&value, id, device_)};
    }
    return value;
  }
  const DriverStatus& status() const { return status_; }

 private:
  const DriverApi& api_;
  CUdevice device_;
  DriverStatus status_;
};

/// Returns the UUID as nvidia-smi prints it: "GPU-" and 8-4-4-4-12 hexadecimal digits.
std::string uuid_text(const CUuuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string driver_version(const DriverApi& api) {
  std::string version = module_version();
  if (version.empty()) {
    if (const Result<const NvmlApi*> nvml = load_nvml()) version = nvml_driver_version(**nvml);
  }
  int number = 0;
  if (version.empty() && api.driver_get_version(&number) == CUDA_SUCCESS) {
    version = concat("CUDA ", number / 1000, ".", number % 1000 / 10);
  }
  return version;
}

}  // namespace

Result<CudaDeviceInfo> describe_device(const DriverApi& api, int ordinal) {
  CUdevice device = 0;
  std::array<char, 256> name{};
  std::size_t memory = 0;
  CUuuid uuid{};
  DriverStatus status{"cuDeviceGet", api.device_get(&device, ordinal)};
  if (!status) {
    return Error{ErrorCode::unavailable,
                 concat("GPU ", ordinal, ": ", driver_error(api, status).message)};
  }
  status = {"cuDeviceGetName",
            api.device_get_name(name.data(), static_cast<int>(name.size()), device)};
  if (status) status = {"cuDeviceTotalMem", api.device_total_mem(&memory, device)};
  if (status) status = {"cuDeviceGetUuid", api.device_get_uuid(&uuid, device)};
  if (!status) return driver_error(api, status);

  AttributeReader read(api, device);
  DeviceProfile measured;
  measured.name = name.data();
  measured.sm_arch = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                     read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  measured.sm_count = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  measured.smem_per_block_optin = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  measured.smem_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  measured.registers_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  measured.max_threads_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  measured.max_blocks_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  measured.l2_bytes = read(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  measured.memory_bytes = static_cast<std::int64_t>(memory);
  measured.sm_clock_mhz = read(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e3;
  // Two transfers in a clock; the product is in kHz times bits.
  measured.dram_gbps = 2.0 * read(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                       read(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8 / 1e6;
  if (!read.status()) return driver_error(api, read.status());

  return CudaDeviceInfo{
      identify_profile(measured),
      {.uuid = uuid_text(uuid), .driver_version = driver_version(api), .ordinal = ordinal}};
}

std::string module_version(const std::filesystem::path& file) {
  const Result<std::string> text = read_file(file, {"version", 4096});
  if (!text) return {};
  const std::string_view version = trim(*text);
  const bool is_one = version.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_one ? std::string(version) : std::string();
}

}  // namespace kernwright
