#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright {

/// The functions of libcupti.so.13 that kernwright calls: its host and range profiler API. CUPTI's
/// headers are proprietary and come with no package of Debian, so prototypes and structures are
/// declared here after its API reference. The structures are from CUPTI 13.0. Later versions take
/// them, and 13.0 refuses larger ones. A plain table, so that tests can replace CUPTI.
struct CuptiApi {
  /// Every structure begins with its own size and a null pointer. The size counts the members that
  /// CUPTI 13.0 knows, without padding at the end.
  struct Head {
    std::size_t size = 0;
    void* reserved = nullptr;
  };
  struct ChipName : Head {
    std::size_t device = 0;
    const char* name = nullptr;
  };
  struct CounterAvailability : Head {
    void* context = nullptr;
    std::size_t image_bytes = 0;
    std::uint8_t* image = nullptr;  ///< null: asks for the number of bytes
  };
  struct HostInitialize : Head {
    int profiler = 0;  ///< kRangeProfiler
    const char* chip = nullptr;
    const std::uint8_t* availability = nullptr;
    void* host = nullptr;
  };
  struct HostDeinitialize : Head {
    void* host = nullptr;
  };
  struct AddMetrics : Head {
    void* host = nullptr;
    const char** names = nullptr;
    std::size_t count = 0;
  };
  struct ConfigImageSize : Head {
    void* host = nullptr;
    std::size_t bytes = 0;
  };
  struct ConfigImage : Head {
    void* host = nullptr;
    std::size_t bytes = 0;
    std::uint8_t* image = nullptr;
  };
  struct Passes : Head {
    std::size_t config_bytes = 0;
    std::uint8_t* config = nullptr;
    std::size_t passes = 0;
  };
  struct Evaluate : Head {
    void* host = nullptr;
    const std::uint8_t* data = nullptr;
    std::size_t data_bytes = 0;
    std::size_t range = 0;
    const char** names = nullptr;
    std::size_t count = 0;
    double* values = nullptr;
  };
  struct Enable : Head {
    void* context = nullptr;
    void* profiler = nullptr;
  };
  /// For the calls that take nothing but the profiler: disable, start.
  struct Profiler : Head {
    void* profiler = nullptr;
  };
  struct Stop : Head {
    void* profiler = nullptr;
    std::size_t pass = 0;
    std::size_t nesting_level = 0;
    std::uint8_t all_passes_done = 0;
  };
  struct SetConfig : Head {
    void* profiler = nullptr;
    std::size_t config_bytes = 0;
    const std::uint8_t* config = nullptr;
    std::size_t data_bytes = 0;
    std::uint8_t* data = nullptr;
    int range = 0;   ///< kAutoRange
    int replay = 0;  ///< kUserReplay
    std::size_t ranges_per_pass = 0;
    std::uint16_t nesting_levels = 0;
    std::uint16_t least_nesting_level = 0;
    std::size_t pass = 0;
    std::uint16_t nesting_level = 0;
  };
  struct Decode : Head {
    void* profiler = nullptr;
    std::size_t dropped_ranges = 0;
  };
  struct DataSize : Head {
    void* profiler = nullptr;
    const char** names = nullptr;
    std::size_t count = 0;
    std::size_t ranges = 0;
    std::uint32_t tree_nodes = 0;
    std::size_t bytes = 0;
  };
  struct DataInitialize : Head {
    void* profiler = nullptr;
    std::size_t bytes = 0;
    std::uint8_t* data = nullptr;
  };
  struct DataInfo : Head {
    const std::uint8_t* data = nullptr;
    std::size_t bytes = 0;
    std::size_t ranges = 0;
  };

  static constexpr int kRangeProfiler = 0;
  static constexpr int kAutoRange = 1;
  static constexpr int kUserReplay = 3;

  int (*get_version)(std::uint32_t*) = nullptr;
  int (*get_result_string)(int, const char**) = nullptr;
  int (*profiler_initialize)(Head*) = nullptr;
  int (*device_get_chip_name)(ChipName*) = nullptr;
  int (*get_counter_availability)(CounterAvailability*) = nullptr;
  int (*host_initialize)(HostInitialize*) = nullptr;
  int (*host_deinitialize)(HostDeinitialize*) = nullptr;
  int (*host_add_metrics)(AddMetrics*) = nullptr;
  int (*host_get_config_image_size)(ConfigImageSize*) = nullptr;
  int (*host_get_config_image)(ConfigImage*) = nullptr;
  int (*host_get_passes)(Passes*) = nullptr;
  int (*host_evaluate)(Evaluate*) = nullptr;
  int (*range_enable)(Enable*) = nullptr;
  int (*range_disable)(Profiler*) = nullptr;
  int (*range_start)(Profiler*) = nullptr;
  int (*range_stop)(Stop*) = nullptr;
  int (*range_set_config)(SetConfig*) = nullptr;
  int (*range_decode)(Decode*) = nullptr;
  int (*range_data_size)(DataSize*) = nullptr;
  int (*range_data_initialize)(DataInitialize*) = nullptr;
  int (*range_data_info)(DataInfo*) = nullptr;
};

/// CUPTI's status codes that are told apart.
inline constexpr int kCuptiSuccess = 0;
inline constexpr int kCuptiInvalidParameter = 1;
inline constexpr int kCuptiNotInitialized = 15;
inline constexpr int kCuptiHardwareBusy = 26;
inline constexpr int kCuptiInsufficientPrivileges = 35;
inline constexpr int kCuptiMultipleSubscribers = 39;

/// Returns the structure as CUPTI expects it: zero, with the size up to and including the member
/// `last`.
template <typename Structure, typename Member>
Structure cupti_structure(Member Structure::* last) {
  Structure made;
  const auto* begin = reinterpret_cast<const std::byte*>(&made);
  const auto* end = reinterpret_cast<const std::byte*>(&(made.*last)) + sizeof(Member);
  made.size = static_cast<std::size_t>(end - begin);
  return made;
}

/// Returns CUPTI of this process. It is loaded on the first call and never unloaded: from the CUDA
/// toolkit that the library works with, or wherever the loader finds it. From then on the audit of
/// this process says C, since a profiler may change times. Errors: `unavailable` with the remedy.
Result<const CuptiApi*> load_cupti();

/// Returns the version, "13.0"; empty if CUPTI does not report it.
std::string cupti_version(const CuptiApi& api);

/// Returns the error of a call that did not succeed, with the remedy if one is known: `unavailable`
/// if another profiler is at work or this user may not count, else `device`.
Error cupti_error(const CuptiApi& api, std::string_view function, int status);

/// Who may read counters, from the text of /proc/driver/nvidia/params.
enum class CounterAccess { everyone, administrators, unknown };
CounterAccess counter_access(std::string_view params);
/// Returns the same for this machine.
CounterAccess counter_access();

/// The ways to get access to the counters.
inline constexpr std::string_view kCounterAccessRemedy =
    "load the driver's module with NVreg_RestrictProfilingToAdminUsers=0, give the container "
    "CAP_SYS_ADMIN, or run as root";

}  // namespace kernwright
