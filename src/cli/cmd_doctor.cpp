#include <filesystem>
#include <thread>
#include <utility>

#include "cache/entries/default_root.h"
#include "cache/layers/tiered_cache.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compile/compile_pool.h"
#include "compile/process_compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/driver/cupti.h"
#include "support/text.h"
#include "support/version.h"
#include "tuner/audit/auditor.h"

namespace kernwright::cli {
namespace {

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

Json audit_json(const Audit& audit) {
  Json rows = Json::array();
  for (const AuditRow& row : audit.rows) {
    rows.push_back({{"check", row.check}, {"trust", to_string(row.trust)}, {"detail", row.detail}});
  }
  return {{"trust", to_string(audit.trust())}, {"rows", std::move(rows)}};
}

/// Whether `profile` may read counters, and if not, what would help.
std::string counters_text(CounterAccess access) {
  switch (access) {
    case CounterAccess::everyone:
      return "every user may read them";
    case CounterAccess::administrators:
      return concat("only administrators may read them; for others ", kCounterAccessRemedy);
    case CounterAccess::unknown:
      return "not known who may read them: /proc/driver/nvidia/params does not say";
  }
  return {};
}

/// The audit that tuning would make now, of GPU and host, or of the host alone where `info` is
/// null.
Audit audit_of(const CudaDeviceInfo* info, const std::filesystem::path& cache_root,
               CompilePool& pool) {
  AuditorOptions options;
  options.cache_root = cache_root;
  Auditor auditor(info ? info->identity.uuid : "", std::move(options));
  Result<std::unique_ptr<Device>> device = Error{ErrorCode::unavailable, "no GPU"};
  if (info) device = open_cuda_device(info->identity.ordinal);
  if (device) auditor.watch(**device, pool);
  return auditor.look();
}

class Doctor : public Command {
 public:
  Doctor()
      : Command("doctor", "Show GPUs, toolkit, cache and how far timing is trusted"),
        verbose_(sub) {}

  Status run() override {
    const std::filesystem::path root = default_cache_root();
    CompilePool pool(make_toolkit_compiler(), {.threads = 1});
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
      device["audit"] = audit_json(audit_of(&*info, root, pool));
      driver = info->identity.driver_version;
      devices.push_back(std::move(device));
    }

    const Result<std::string> compiler = pool.compiler().identity();
    const Result<void> compile_process = try_compile_process();
    const TieredCache cache(root);

    const Json report = {
        {"kernwright", std::string(kernwright_version())},
        {"commit", std::string(kernwright_commit())},
        {"device", devices.empty() ? Json() : devices.front()},
        {"devices", devices},
        {"no_device", no_device},
        {"driver", driver},
        {"compiler", compiler ? Json(*compiler) : Json()},
        {"no_compiler", compiler ? "" : compiler.error().message},
        {"no_compile_processes", compile_process ? "" : compile_process.error().message},
        {"cache",
         {{"root", root.string()},
          {"records", cache.records().list().size()},
          {"artifacts", cache.artifacts().list().size()}}},
        {"counters", counters_text(counter_access())},
        {"cores", std::thread::hardware_concurrency()},
        {"audit",
         devices.empty() ? audit_json(audit_of(nullptr, root, pool)) : devices.front()["audit"]}};
    if (json) {
      print_json(report);
    } else {
      print_text(verbose_.page(), report);
    }
    return Status::ok;
  }

 private:
  static void print_text(const Page& page, const Json& report) {
    const auto word = [](const Json& json) { return json.get<std::string>(); };
    page.print(
        concat("kernwright ", word(report["kernwright"]), " (", word(report["commit"]), ")"));
    for (const Json& device : report["devices"]) {
      page.print(concat("GPU ", device["ordinal"].get<int>(), ": ", word(device["name"]),
                        ", profile ", word(device["profile"]), ", ", word(device["arch"]), ", ",
                        device["sm_count"].get<int>(), " SMs, ", word(device["uuid"])),
                 2);
    }
    if (report["devices"].empty()) {
      page.print(concat("no GPU: ", word(report["no_device"])), 2);
      page.print("  everything but measuring works with --sku");
    } else {
      page.print(concat("driver ", word(report["driver"])));
    }
    page.print(report["compiler"].is_null()
                   ? concat("no compiler: ", word(report["no_compiler"]))
                   : concat("compiler ", page.abridged(word(report["compiler"]))),
               2);
    const std::string no_processes = word(report["no_compile_processes"]);
    page.print(no_processes.empty()
                   ? "compiles run in processes of their own"
                   : concat("compiles run on threads of one process: ", no_processes),
               2);
    if (!report["devices"].empty()) {
      page.print(concat("hardware counters: ", word(report["counters"])), 2);
    }
    const Json& cache = report["cache"];
    page.print(concat("cache ", word(cache["root"]), ": ", cache["records"].get<int>(),
                      " records, ", cache["artifacts"].get<int>(), " artifacts"),
               2);
    if (report["devices"].empty()) print_audit(page, report["audit"], "");
    for (const Json& device : report["devices"]) {
      print_audit(page, device["audit"], concat(" of GPU ", device["ordinal"].get<int>()));
    }
  }

  static void print_audit(const Page& page, const Json& audit, const std::string& whose) {
    page.print(concat("audit", whose, ": trust ", audit["trust"].get<std::string>()));
    for (const Json& row : audit["rows"]) {
      page.print(concat("  ", row["trust"].get<std::string>(), "  ",
                        row["check"].get<std::string>(), ": ", row["detail"].get<std::string>()),
                 5);
    }
  }

  VerboseFlag verbose_;
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace kernwright::cli
