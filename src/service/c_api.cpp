#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/version.h"
#include <kernwright/c.h>
#include <kernwright/kernwright.h>

struct kw_service {
  kernwright::Service service;
};

struct kw_kernel {
  kernwright::Kernel kernel;
  std::string description;
};

namespace {

using namespace kernwright;

thread_local std::string last_error;

int fail(std::string message) {
  last_error = std::move(message);
  return -1;
}

// Runs `body`, which gives an empty string for success; nothing is thrown across the C boundary.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    std::string message = body();
    return message.empty() ? 0 : fail(std::move(message));
  } catch (const std::exception& e) {
    return fail(std::string("unexpected exception: ") + e.what());
  }
}

std::string describe(const Kernel& kernel) {
  const KernelSummary& summary = kernel.summary();
  nlohmann::ordered_json arguments = nlohmann::ordered_json::array();
  for (const ArgumentInfo& argument : kernel.arguments()) {
    arguments.push_back({{"name", argument.name},
                         {"scalar", argument.is_scalar},
                         {"output", argument.is_output},
                         {"dtype", to_string(argument.dtype)},
                         {"extent", argument.extent},
                         {"alignment", argument.alignment}});
  }
  const nlohmann::ordered_json json = {{"problem", summary.problem},
                                       {"template", summary.kernel_template},
                                       {"configuration", summary.configuration},
                                       {"artifact", summary.artifact},
                                       {"match", to_string(summary.match)},
                                       {"reason", to_string(summary.reason)},
                                       {"measured_us", summary.measured_us},
                                       {"predicted_us", summary.predicted_us},
                                       {"roofline_us", summary.roofline_us},
                                       {"workspace_bytes", kernel.workspace_bytes()},
                                       {"arguments", std::move(arguments)}};
  return json.dump();
}

// Gives out `kernel`, pinned so that it outlives the service.
std::string give(const Result<Kernel>& kernel, kw_kernel** out) {
  if (!kernel) return kernel.error().message;
  *out = new kw_kernel{kernel->pin(), describe(*kernel)};
  return {};
}

std::string read_options(const kw_options& given, ServiceOptions& options) {
  kw_options o{};
  std::memcpy(&o, &given, std::min(sizeof o, given.struct_size));
  if (given.struct_size < offsetof(kw_options, cache) + sizeof o.cache) {
    return "kw_options.struct_size is " + std::to_string(given.struct_size) +
           "; set it to sizeof(kw_options), " + std::to_string(sizeof o);
  }
  if (o.cache) options.cache = o.cache;
  if (o.template_dir) options.template_dirs.emplace_back(o.template_dir);
  if (o.sku) options.sku = o.sku;
  options.device = o.device;
  if (o.tune_seconds > 0) options.tune_seconds = o.tune_seconds;
  if (o.l2) {
    const std::optional<L2State> l2 = parse_l2_state(o.l2);
    if (!l2) {
      return "kw_options.l2 is \"" + std::string(o.l2) + "\"; it must be cold, warm or mixed";
    }
    options.l2 = *l2;
  }
  if (o.worker) options.worker = o.worker;
  options.measure_in_process = o.measure_in_process != 0;
  const std::string_view on_miss = o.on_miss ? o.on_miss : "predict";
  if (on_miss == "predict") {
    options.on_miss = MissPolicy::predict;
  } else if (on_miss == "tune_now") {
    options.on_miss = MissPolicy::tune_now;
  } else if (on_miss == "fail") {
    options.on_miss = MissPolicy::fail;
  } else {
    return "kw_options.on_miss is \"" + std::string(on_miss) +
           "\"; it must be predict, tune_now or fail";
  }
  return {};
}

}  // namespace

extern "C" {

KERNWRIGHT_API int kw_open(const kw_options* options, kw_service** service) {
  return guarded([&]() -> std::string {
    ServiceOptions read;
    if (options != nullptr) {
      if (std::string message = read_options(*options, read); !message.empty()) return message;
    }
    Result<Service> opened = Service::open(std::move(read));
    if (!opened) return opened.error().message;
    *service = new kw_service{*std::move(opened)};
    return {};
  });
}

KERNWRIGHT_API void kw_close(kw_service* service) { delete service; }

KERNWRIGHT_API int kw_get_best_kernel(kw_service* service, const char* problem,
                                      kw_kernel** kernel) {
  return guarded([&]() -> std::string {
    Result<Problem> parsed = Problem::parse(problem);
    if (!parsed) return parsed.error().message;
    return give(service->service.get_best_kernel(*parsed), kernel);
  });
}

KERNWRIGHT_API int kw_tune(kw_service* service, const char* problem, double seconds,
                           kw_kernel** kernel) {
  return guarded([&]() -> std::string {
    Result<Problem> parsed = Problem::parse(problem);
    if (!parsed) return parsed.error().message;
    return give(service->service.tune(*parsed, seconds), kernel);
  });
}

KERNWRIGHT_API void kw_release(kw_kernel* kernel) { delete kernel; }

KERNWRIGHT_API size_t kw_workspace_bytes(const kw_kernel* kernel) {
  return static_cast<size_t>(kernel->kernel.workspace_bytes());
}

KERNWRIGHT_API const char* kw_describe(const kw_kernel* kernel) {
  return kernel->description.c_str();
}

KERNWRIGHT_API int kw_launch(const kw_kernel* kernel, void* stream, const void* const* tensors,
                             size_t tensor_count, const double* scalars, size_t scalar_count,
                             void* workspace) {
  return guarded([&]() -> std::string {
    std::vector<Arg> arguments;
    arguments.reserve(tensor_count + scalar_count);
    for (size_t i = 0; i < tensor_count; ++i) arguments.emplace_back(tensors[i]);
    for (size_t i = 0; i < scalar_count; ++i) arguments.emplace_back(scalars[i]);
    Result<void> launched =
        kernel->kernel.launch(stream, arguments.data(), arguments.size(), workspace);
    return launched ? std::string() : launched.error().message;
  });
}

KERNWRIGHT_API const char* kw_last_error(void) { return last_error.c_str(); }

KERNWRIGHT_API const char* kw_version(void) {
  static const std::string version(kernwright_version());
  return version.c_str();
}

}  // extern "C"
