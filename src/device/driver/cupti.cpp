#include "device/driver/cupti.h"

#include <type_traits>
#include <vector>

#include "support/files.h"
#include "support/libraries/dynamic_library.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Binds every function. Returns the name of one that is missing, or null.
const char* bind_all(const DynamicLibrary& library, CuptiApi& api) {
  const char* missing = nullptr;
  const auto bind = [&](const char* name, auto& function) {
    void* symbol = library.symbol(name);
    if (symbol == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  bind("cuptiGetVersion", api.get_version);
  bind("cuptiGetResultString", api.get_result_string);
  bind("cuptiProfilerInitialize", api.profiler_initialize);
  bind("cuptiDeviceGetChipName", api.device_get_chip_name);
  bind("cuptiProfilerGetCounterAvailability", api.get_counter_availability);
  bind("cuptiProfilerHostInitialize", api.host_initialize);
  bind("cuptiProfilerHostDeinitialize", api.host_deinitialize);
  bind("cuptiProfilerHostConfigAddMetrics", api.host_add_metrics);
  bind("cuptiProfilerHostGetConfigImageSize", api.host_get_config_image_size);
  bind("cuptiProfilerHostGetConfigImage", api.host_get_config_image);
  bind("cuptiProfilerHostGetNumOfPasses", api.host_get_passes);
  bind("cuptiProfilerHostEvaluateToGpuValues", api.host_evaluate);
  bind("cuptiRangeProfilerEnable", api.range_enable);
  bind("cuptiRangeProfilerDisable", api.range_disable);
  bind("cuptiRangeProfilerStart", api.range_start);
  bind("cuptiRangeProfilerStop", api.range_stop);
  bind("cuptiRangeProfilerSetConfig", api.range_set_config);
  bind("cuptiRangeProfilerDecodeData", api.range_decode);
  bind("cuptiRangeProfilerGetCounterDataSize", api.range_data_size);
  bind("cuptiRangeProfilerCounterDataImageInitialize", api.range_data_initialize);
  bind("cuptiRangeProfilerGetCounterDataInfo", api.range_data_info);
  return missing;
}

/// Returns the names to try. Kernels do not depend on which CUPTI counts, so the loader's search
/// and the usual folder are tried too if the chosen toolkit has no CUPTI.
std::vector<std::string> library_names() {
  std::vector<std::string> names = toolkit_library_names("libcupti.so", {"13"});
  names.emplace_back("libcupti.so.13");
  names.emplace_back("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13");
  names.emplace_back("/usr/local/cuda/lib64/libcupti.so.13");
  return names;
}

Result<CuptiApi> open_cupti() {
  Result<DynamicLibrary> library = DynamicLibrary::open(library_names());
  if (!library) {
    return Error{
        ErrorCode::unavailable,
        concat("no CUPTI of CUDA 13, which the toolkit and PyPI's nvidia-cuda-cupti have: ",
               library.error().message)};
  }
  CuptiApi api;
  if (const char* missing = bind_all(*library, api)) {
    return Error{ErrorCode::unavailable,
                 concat(library->name(), " has no ", missing, ": it is older than CUDA 13.0's")};
  }
  return api;
}

}  // namespace

Result<const CuptiApi*> load_cupti() {
  static const auto& cupti = *new Result<CuptiApi>(open_cupti());
  if (!cupti) return cupti.error();
  return &*cupti;
}

std::string cupti_version(const CuptiApi& api) {
  std::uint32_t version = 0;
  if (api.get_version(&version) != kCuptiSuccess) return {};
  // 130001 is the first interface of CUDA 13.0, and 130501 the first of 13.5.
  return concat(version / 10000, ".", version / 100 % 100);
}

Error cupti_error(const CuptiApi& api, std::string_view function, int status) {
  const char* text = nullptr;
  if (api.get_result_string(status, &text) != kCuptiSuccess || text == nullptr) text = "no name";
  std::string message = concat(function, ": ", text, " (", status, ")");
  switch (status) {
    case kCuptiHardwareBusy:
      return {ErrorCode::unavailable,
              concat(message,
                     ": another profiler has the counters of this GPU, such as ncu, nsys, "
                     "DCGM or a second kernwright profile; end it and try again")};
    case kCuptiMultipleSubscribers:
      return {ErrorCode::unavailable,
              concat(message, ": this process runs under ncu or nsys; start it without them")};
    case kCuptiInsufficientPrivileges:
      return {ErrorCode::unavailable,
              concat(message,
                     ": this user may not read the GPU's counters (ncu says "
                     "ERR_NVGPUCTRPERM); ",
                     kCounterAccessRemedy)};
    case kCuptiInvalidParameter:
      return {ErrorCode::device, concat(message, ": CUPTI ", cupti_version(api),
                                        " does not take what CUDA 13.0's takes")};
    case kCuptiNotInitialized:
      return {ErrorCode::unavailable,
              concat(message,
                     ": libnvperf_host.so and libnvperf_target.so must be beside "
                     "libcupti.so.13")};
    default:
      return {ErrorCode::device, std::move(message)};
  }
}

CounterAccess counter_access(std::string_view params) {
  for (const std::string_view line : split(params, '\n')) {
    constexpr std::string_view kName = "RmProfilingAdminOnly:";
    if (!line.starts_with(kName)) continue;
    return trim(line.substr(kName.size())) == "0" ? CounterAccess::everyone
                                                  : CounterAccess::administrators;
  }
  return CounterAccess::unknown;
}

CounterAccess counter_access() {
  const Result<std::string> params = read_file("/proc/driver/nvidia/params");
  return params ? counter_access(*params) : CounterAccess::unknown;
}

}  // namespace kernwright
