#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "cache/entries/default_root.h"
#include "cache/layers/bundle.h"
#include "cache/layers/tiered_cache.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compile/compile_pool.h"
#include "compile/process_compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/driver/cupti.h"
#include "service/tune/measuring.h"
#include "support/text.h"
#include "support/version.h"

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

/// Says whether `profile` may read counters, and if not, what would help.
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

/// Returns the steps that a person can take so that more works here, or is trusted more, the most
/// urgent first.
Json next_steps(const Json& report) {
  Json steps = Json::array();
  const auto add = [&](const std::string& step) {
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) steps.push_back(step);
  };
  if (report["compiler"].is_null()) {
    add("install NVRTC and nvJitLink of CUDA 12 or 13, or set KERNWRIGHT_CUDA_PATH");
  }
  for (const Json& device : report["devices"]) {
    for (const Json& row : device["audit"]["rows"]) {
      const std::string step(remedy(row["check"].get<std::string>()));
      if (row["trust"] != "A" && !step.empty()) add(step);
    }
  }
  if (!steps.empty()) return steps;
  if (report["devices"].empty()) {
    add("predict for a GPU: kernwright tune PROBLEM --sku h200");
  } else {
    add("tune: kernwright tune PROBLEM, or kernwright sweep WORKLIST");
  }
  return steps;
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
      device["audit"] = audit_json(audit_now(&info->identity, root, pool));
      driver = info->identity.driver_version;
      devices.push_back(std::move(device));
    }

    const Result<std::string> compiler = pool.compiler().identity();
    const Result<void> compile_process = try_compile_process();
    const TieredCache cache(root);
    Json bundle;
    if (cache.roots().size() > 1) {
      const RecordStore records(cache.roots().back());
      bundle = {{"records", records.list().size()}, {"families", records.list_families().size()}};
    }
    Json packages = Json::array();
    for (const std::string& folder : signed_cache_roots()) {
      const Result<void> checked = check_packaged_bundle(folder);
      const RecordStore records(folder);
      packages.push_back({{"folder", folder},
                          {"records", checked ? records.list().size() : 0},
                          {"families", checked ? records.list_families().size() : 0},
                          {"defect", checked ? std::string() : checked.error().message}});
    }

    Json report = {{"kernwright", std::string(kernwright_version())},
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
                     {"families", cache.records().list_families().size()},
                     {"artifacts", cache.artifacts().list().size()}}},
                   {"bundle", bundle},
                   {"signed_caches", packages},
                   {"counters", counters_text(counter_access())},
                   {"cores", std::thread::hardware_concurrency()},
                   {"audit", devices.empty() ? audit_json(audit_now(nullptr, root, pool))
                                             : devices.front()["audit"]}};
    report["next"] = next_steps(report);
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
    const auto stored = [](const Json& json) {
      return counted_records(json["records"].get<int>(), json["families"].get<int>());
    };
    page.print(
        concat("kernwright ", word(report["kernwright"]), " (", word(report["commit"]), ")"));
    const bool no_device = report["devices"].empty();
    for (const Json& device : report["devices"]) {
      page.print(concat("GPU ", device["ordinal"].get<int>()),
                 concat(word(device["name"]), " (", word(device["profile"]), ", ",
                        word(device["arch"]), "), ", device["sm_count"].get<int>(), " SMs",
                        page.verbose() ? concat(", ", word(device["uuid"])) : std::string()));
      print_audit(page, device["audit"], Trust::b);
    }
    if (no_device) {
      page.print("GPU", concat("none: ", word(report["no_device"])));
      // Most rows are about a GPU. A row that makes all figures worthless is worth a word all the
      // same.
      print_audit(page, report["audit"], Trust::c);
    } else {
      page.print("driver", word(report["driver"]));
    }
    page.print("compiler", report["compiler"].is_null()
                               ? concat("none: ", word(report["no_compiler"]))
                               : short_compiler(page, word(report["compiler"])));
    const std::string no_processes = word(report["no_compile_processes"]);
    if (!no_processes.empty()) {
      page.print("", concat("compiles run on threads of one process: ", no_processes));
    } else if (page.verbose()) {
      page.print("", "compiles run in processes of their own");
    }
    if (!no_device) page.print("counters", word(report["counters"]));
    const Json& cache = report["cache"];
    page.print("cache", concat(word(cache["root"]), ": ", stored(cache), ", ",
                               counted(cache["artifacts"].get<int>(), "artifact")));
    if (!report["bundle"].is_null()) {
      page.print("", concat("and in its installed bundle: ", stored(report["bundle"])));
    }
    for (const Json& package : report["signed_caches"]) {
      const std::string folder = word(package["folder"]);
      const std::string defect = word(package["defect"]);
      page.print("data", defect.empty() ? concat(folder, ": ", stored(package))
                                        : concat(folder, " is passed over: ", defect));
    }
    std::string_view label = "next";
    for (const Json& step : report["next"]) {
      page.print(label, word(step));
      label = "";
    }
  }

  /// Without the digest of its files, unless verbose.
  static std::string short_compiler(const Page& page, const std::string& identity) {
    return page.verbose() ? identity : identity.substr(0, identity.rfind(' '));
  }

  /// Prints the trust, and each check that allows no more than `worst`; a verbose page has all
  /// checks.
  static void print_audit(const Page& page, const Json& audit, Trust worst) {
    const std::string overall = audit["trust"].get<std::string>();
    if (page.verbose() || worst != Trust::c || overall == "C") {
      page.print("", concat("trust ", overall, overall == "A" ? ": nothing disturbs timing" : ""));
    }
    for (const Json& row : audit["rows"]) {
      const std::string trust = row["trust"].get<std::string>();
      if (!page.verbose() && parse_as<Trust>(trust).value_or(Trust::c) < worst) continue;
      page.print("", concat(trust, " for ", row["check"].get<std::string>(), ": ",
                            row["detail"].get<std::string>()));
    }
  }

  VerboseFlag verbose_;
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace kernwright::cli
