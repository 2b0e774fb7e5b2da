#include <cstdlib>
#include <fstream>
#include <thread>

#include "cache/tiered_cache.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compile/compiler.h"
#include "device/cuda_device.h"
#include "support/text.h"
#include "support/version.h"

namespace kernwright::cli {
namespace {

// Variables that put another party's code into every CUDA process and so distort timing.
constexpr const char* kInjectionVariables[] = {"CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING",
                                               "NVTX_INJECTION64_PATH", "LD_PRELOAD"};

Json profile_json(const DeviceProfile& profile) {
  return {{"profile", profile.id},
          {"name", profile.name},
          {"arch", concat("sm_", profile.sm_arch)},
          {"sm_count", profile.sm_count},
          {"smem_per_block_optin", profile.smem_per_block_optin},
          {"l2_bytes", profile.l2_bytes},
          {"memory_bytes", profile.memory_bytes},
          {"dram_gbps", profile.dram_gbps},
          {"dense_16bit_tflops", profile.dense_16bit_tflops}};
}

class Doctor : public Command {
 public:
  Doctor() : Command("doctor", "Show driver, GPUs, toolkit, cache and what would distort timing") {}

  Status run() override {
    Json devices = Json::array();
    std::string no_device;
    std::string driver;
    Result<int> count = cuda_device_count();
    if (!count) no_device = count.error().message;
    for (int ordinal = 0; count && ordinal < *count; ++ordinal) {
      Result<CudaDeviceInfo> info = describe_cuda_device(ordinal);
      if (!info) {
        no_device = info.error().message;
        continue;
      }
      Json device = profile_json(info->profile);
      device["ordinal"] = ordinal;
      device["uuid"] = info->identity.uuid;
      driver = info->identity.driver_version;
      devices.push_back(std::move(device));
    }

    const Result<std::string> compiler = make_toolkit_compiler()->identity();
    const std::filesystem::path root = default_cache_root();
    const TieredCache cache(root);

    Json distortions = Json::array();
    for (const char* name : kInjectionVariables) {
      if (const char* value = std::getenv(name)) distortions.push_back(concat(name, "=", value));
    }
    double load = 0;
    std::ifstream("/proc/loadavg") >> load;
    const unsigned cores = std::thread::hardware_concurrency();
    if (load > cores / 2.0) {
      distortions.push_back(concat("host load ", load, " on ", cores, " cores"));
    }

    const Json report = {{"kernwright", std::string(kernwright_version())},
                         {"commit", std::string(kernwright_commit())},
                         {"device", devices.empty() ? Json() : devices.front()},
                         {"devices", devices},
                         {"no_device", no_device},
                         {"driver", driver},
                         {"compiler", compiler ? Json(*compiler) : Json()},
                         {"no_compiler", compiler ? "" : compiler.error().message},
                         {"cache",
                          {{"root", root.string()},
                           {"records", cache.records().list().size()},
                           {"artifacts", cache.artifacts().list().size()}}},
                         {"cores", cores},
                         {"distortions", distortions}};
    if (json) {
      print_json(report);
    } else {
      print_text(report);
    }
    return Status::ok;
  }

 private:
  static void print_text(const Json& report) {
    print(concat("kernwright ", report["kernwright"].get<std::string>(), " (",
                 report["commit"].get<std::string>(), ")"));
    for (const Json& device : report["devices"]) {
      print(concat("GPU ", device["ordinal"].get<int>(), ": ", device["name"].get<std::string>(),
                   ", profile ", device["profile"].get<std::string>(), ", ",
                   device["arch"].get<std::string>(), ", ", device["sm_count"].get<int>(), " SMs, ",
                   device["uuid"].get<std::string>()));
    }
    if (report["devices"].empty()) {
      print(concat("no GPU: ", report["no_device"].get<std::string>(),
                   "\n  everything but measuring works with --sku"));
    } else {
      print(concat("driver ", report["driver"].get<std::string>()));
    }
    print(report["compiler"].is_null()
              ? concat("no compiler: ", report["no_compiler"].get<std::string>())
              : concat("compiler ", report["compiler"].get<std::string>()));
    const Json& cache = report["cache"];
    print(concat("cache ", cache["root"].get<std::string>(), ": ", cache["records"].get<int>(),
                 " records, ", cache["artifacts"].get<int>(), " artifacts"));
    if (report["distortions"].empty()) print("nothing found that would distort timing");
    for (const Json& what : report["distortions"]) {
      print(concat("would distort timing: ", what.get<std::string>()));
    }
  }
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace kernwright::cli
