#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "service/c/c_api_support.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

struct kw_service {
  kernwright::Service service;
};

struct kw_problem {
  kernwright::Problem problem;
};

struct kw_pattern {
  kernwright::BindingPattern pattern;
};

struct kw_text {
  std::string characters;
};

struct kw_baked {
  kernwright::BakedLaunch launch;
  kernwright::c_api::Counts counts;

  const kernwright::KernelSummary& summary() const { return launch.summary(); }
};

namespace {

using namespace kernwright;
using c_api::guarded;
using c_api::lacks;
using c_api::wrong;

thread_local std::string last_error;
thread_local int last_code = KW_OK;

// The same limit as a worklist has.
constexpr size_t kMostProblems = 100'000;

// More than all sizes and strides of a call.
constexpr size_t kMostNumbers = 1024;

// A caller's arrays of arguments.
struct Given {
  const void* const* tensors;
  size_t tensor_count;
  const double* scalars;
  size_t scalar_count;
};

// Calls `call` with the arguments as one array. Does not read arrays of other lengths than the
// kernel's. The thread keeps the memory, so that launching does not allocate.
template <typename Handle, typename Call>
Result<void> with_arguments(const Handle& handle, const c_api::Counts& counts, const Given& given,
                            const Call& call) {
  if (given.tensor_count != counts.tensors || given.scalar_count > counts.scalars) {
    return wrong(concat(handle.summary().problem, " takes ", counts.tensors, " tensors and up to ",
                        counts.scalars, " scalars; ", given.tensor_count, " and ",
                        given.scalar_count, " given"));
  }
  thread_local std::vector<Arg> arguments;
  arguments.clear();
  for (size_t i = 0; i < given.tensor_count; ++i) arguments.emplace_back(given.tensors[i]);
  for (size_t i = 0; i < given.scalar_count; ++i) arguments.emplace_back(given.scalars[i]);
  return call(arguments.data(), arguments.size());
}

// The same for a kernel or a baked one, guarded; `name` is that of its parameter.
template <typename Handle, typename Call>
int call_with(const char* function, const char* name, Handle* handle, const Given& given,
              const Call& call) {
  return guarded(function,
                 {{name, handle},
                  {"tensors", given.tensors, given.tensor_count > 0},
                  {"scalars", given.scalars, given.scalar_count > 0}},
                 [&] { return with_arguments(*handle, handle->counts, given, call); });
}

std::string describe(const Kernel& kernel) {
  const KernelSummary& summary = kernel.summary();
  nlohmann::ordered_json arguments = nlohmann::ordered_json::array();
  for (const ArgumentInfo& argument : kernel.arguments()) {
    arguments.push_back({{"name", argument.name},
                         {"scalar", argument.is_scalar},
                         {"output", argument.is_output},
                         {"in_place", argument.in_place},
                         {"dtype", to_string(argument.dtype)},
                         {"extent", argument.extent},
                         {"strides", argument.strides},
                         {"alignment", argument.alignment}});
  }
  nlohmann::ordered_json best_path;  // null if it is not known
  if (summary.best_path) best_path = to_string(*summary.best_path);
  const nlohmann::ordered_json json = {{"problem", summary.problem},
                                       {"template", summary.kernel_template},
                                       {"configuration", summary.configuration},
                                       {"artifact", summary.artifact},
                                       {"match", to_string(summary.match)},
                                       {"reason", to_string(summary.reason)},
                                       {"measured_us", summary.measured_us},
                                       {"predicted_us", summary.predicted_us},
                                       {"roofline_us", summary.roofline_us},
                                       {"best_path", std::move(best_path)},
                                       {"workspace_bytes", kernel.workspace_bytes()},
                                       {"arguments", std::move(arguments)}};
  return json.dump();
}

Result<GivenTensor> read_tensor(const kw_tensor& tensor) {
  if (tensor.name == nullptr) return wrong("name is null");
  if (tensor.ndim > 0 && tensor.extent == nullptr) return wrong("extent is null");
  GivenTensor read{tensor.name, tensor.argument == nullptr ? "" : tensor.argument};
  if (tensor.dtype != nullptr) {
    read.dtype = parse_dtype(tensor.dtype);
    if (!read.dtype) return wrong(concat(tensor.dtype, " is no dtype"));
  }
  read.extent.assign(tensor.extent, tensor.extent + tensor.ndim);
  if (tensor.strides != nullptr) {
    read.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  }
  for (size_t i = 0; tensor.order != nullptr && i < tensor.ndim; ++i) {
    if (tensor.order[i] >= tensor.ndim) {
      return wrong(concat("order has axis ", tensor.order[i], " of ", tensor.ndim));
    }
    read.order.push_back(tensor.order[i]);
  }
  return read;
}

// The arguments of a kw_bind.
struct BoundCall {
  Problem options;
  std::vector<GivenTensor> tensors;
  std::vector<std::string> scalars;
};

Result<BoundCall> read_call(std::string_view function, const char* options,
                            const kw_tensor* tensors, size_t tensor_count,
                            const char* const* scalars, size_t scalar_count) {
  BoundCall call;
  KW_ASSIGN(call.options, Problem::parse(options));
  for (size_t i = 0; i < tensor_count; ++i) {
    Result<GivenTensor> read = read_tensor(tensors[i]);
    if (!read) return wrong(concat(function, ": tensors[", i, "]: ", read.error().message));
    call.tensors.push_back(*std::move(read));
  }
  for (size_t i = 0; i < scalar_count; ++i) {
    if (scalars[i] == nullptr) return wrong(concat(function, ": scalars[", i, "] is null"));
    call.scalars.emplace_back(scalars[i]);
  }
  return call;
}

std::string describe(const TensorBinding& binding) {
  nlohmann::ordered_json made = nlohmann::ordered_json::array();
  for (const MadeTensor& one : binding.made) {
    nlohmann::ordered_json swapped;  // null if no axes are swapped
    if (one.swapped) swapped = {one.swapped->first, one.swapped->second};
    made.push_back({{"name", one.name},
                    {"dtype", to_string(one.dtype)},
                    {"extent", one.extent},
                    {"swapped", std::move(swapped)}});
  }
  nlohmann::ordered_json problem;
  if (binding.problem) problem = binding.problem->text();
  const nlohmann::ordered_json json = {{"problem", std::move(problem)},
                                       {"refusal", binding.refusal},
                                       {"made", std::move(made)},
                                       {"unwritten", binding.unwritten},
                                       {"scalars", binding.scalars}};
  return json.dump();
}

Result<void> give(const Result<Kernel>& kernel, kw_kernel** out) {
  if (!kernel) return kernel.error();
  *out = new kw_kernel(*kernel);
  return {};
}

Result<void> give(std::string characters, kw_text** out) {
  *out = new kw_text{std::move(characters)};
  return {};
}

}  // namespace

int kernwright::c_api::fail(const Error& error) {
  static_assert(static_cast<int>(ErrorCode::invalid_argument) + 1 == KW_INVALID_ARGUMENT);
  static_assert(static_cast<int>(ErrorCode::internal) + 1 == KW_INTERNAL);
  last_error = visible_lines(error.message);
  last_code = static_cast<int>(error.code) + 1;
  return -1;
}

bool kernwright::c_api::lacks(const char* function, std::initializer_list<Needed> pointers) {
  for (const Needed& needed : pointers) {
    if (!needed.missing) continue;
    fail(wrong(concat(function, ": ", needed.parameter, " is null")));
    return true;
  }
  return false;
}

extern "C" {

KERNWRIGHT_API int kw_open(const kw_options* options, kw_service** service) {
  return guarded("kw_open", {{"service", service}}, [&]() -> Result<void> {
    KW_ASSIGN(ServiceOptions read, c_api::read_options(options));
    KW_ASSIGN(Service opened, Service::open(std::move(read)));
    *service = new kw_service{std::move(opened)};
    return {};
  });
}

KERNWRIGHT_API void kw_close(kw_service* service) { delete service; }

KERNWRIGHT_API int kw_get_best_kernel(kw_service* service, const char* problem,
                                      kw_kernel** kernel) {
  return guarded("kw_get_best_kernel",
                 {{"service", service}, {"problem", problem}, {"kernel", kernel}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const Problem parsed, Problem::parse(problem));
                   return give(service->service.get_best_kernel(parsed), kernel);
                 });
}

KERNWRIGHT_API int kw_get_best_kernel_on(kw_service* service, const char* problem, void* stream,
                                         kw_kernel** kernel) {
  return guarded("kw_get_best_kernel_on",
                 {{"service", service}, {"problem", problem}, {"kernel", kernel}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const Problem parsed, Problem::parse(problem));
                   return give(service->service.get_best_kernel(parsed, stream), kernel);
                 });
}

KERNWRIGHT_API int kw_parse_problem(const char* text, kw_problem** problem) {
  return guarded("kw_parse_problem", {{"text", text}, {"problem", problem}}, [&]() -> Result<void> {
    KW_ASSIGN(Problem parsed, Problem::parse(text));
    *problem = new kw_problem{std::move(parsed)};
    return {};
  });
}

KERNWRIGHT_API void kw_release_problem(kw_problem* problem) { delete problem; }

KERNWRIGHT_API int kw_find_kernel(kw_service* service, const kw_problem* problem, void* stream,
                                  kw_kernel** kernel) {
  return guarded(
      "kw_find_kernel", {{"service", service}, {"problem", problem}, {"kernel", kernel}},
      [&] { return give(service->service.get_best_kernel(problem->problem, stream), kernel); });
}

KERNWRIGHT_API int kw_find_and_launch(kw_service* service, const kw_problem* problem, void* stream,
                                      const void* const* tensors, size_t tensor_count,
                                      const double* scalars, size_t scalar_count, void* workspace) {
  return guarded("kw_find_and_launch",
                 {{"service", service},
                  {"problem", problem},
                  {"tensors", tensors, tensor_count > 0},
                  {"scalars", scalars, scalar_count > 0}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const BorrowedKernel kernel,
                             service->service.borrow_best_kernel(problem->problem, stream));
                   return with_arguments(kernel, c_api::Counts(kernel.arguments()),
                                         {tensors, tensor_count, scalars, scalar_count},
                                         [&](const Arg* arguments, size_t count) {
                                           return kernel.launch(stream, arguments, count,
                                                                workspace);
                                         });
                 });
}

KERNWRIGHT_API int kw_get_best_kernels(kw_service* service, const char* problem,
                                       kw_kernel** kernels, size_t count, size_t* found) {
  return guarded("kw_get_best_kernels",
                 {{"service", service},
                  {"problem", problem},
                  {"kernels", kernels, count > 0},
                  {"found", found}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const Problem parsed, Problem::parse(problem));
                   KW_ASSIGN(const std::vector<Kernel> best,
                             service->service.get_best_kernels(parsed, count));
                   std::vector<std::unique_ptr<kw_kernel>> given;
                   for (const Kernel& kernel : best) {
                     given.push_back(std::make_unique<kw_kernel>(kernel));
                   }
                   for (size_t i = 0; i < given.size(); ++i) kernels[i] = given[i].release();
                   *found = given.size();
                   return {};
                 });
}

KERNWRIGHT_API int kw_bind(const kw_service* service, const char* options, const kw_tensor* tensors,
                           size_t tensor_count, const char* const* scalars, size_t scalar_count,
                           kw_text** binding) {
  return guarded("kw_bind",
                 {{"options", options},
                  {"tensors", tensors, tensor_count > 0},
                  {"scalars", scalars, scalar_count > 0},
                  {"binding", binding}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const BoundCall call, read_call("kw_bind", options, tensors,
                                                             tensor_count, scalars, scalar_count));
                   KW_ASSIGN(const TensorBinding bound,
                             service == nullptr
                                 ? kernwright::bind(call.options, call.tensors, call.scalars)
                                 : service->service.bind(call.options, call.tensors, call.scalars));
                   return give(describe(bound), binding);
                 });
}

KERNWRIGHT_API int kw_make_pattern(const kw_service* service, const char* options,
                                   const kw_tensor* tensors, size_t tensor_count,
                                   const char* const* scalars, size_t scalar_count,
                                   kw_pattern** pattern) {
  return guarded("kw_make_pattern",
                 {{"service", service},
                  {"options", options},
                  {"tensors", tensors, tensor_count > 0},
                  {"scalars", scalars, scalar_count > 0},
                  {"pattern", pattern}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const BoundCall call, read_call("kw_make_pattern", options, tensors,
                                                             tensor_count, scalars, scalar_count));
                   KW_ASSIGN(const std::optional<BindingPattern> made,
                             service->service.pattern(call.options, call.tensors, call.scalars));
                   *pattern = made ? new kw_pattern{*made} : nullptr;
                   return {};
                 });
}

KERNWRIGHT_API void kw_release_pattern(kw_pattern* pattern) { delete pattern; }

KERNWRIGHT_API int kw_find_by_pattern(kw_service* service, const kw_pattern* pattern,
                                      const long long* numbers, size_t count, long long* made,
                                      size_t made_count, int* follows, kw_kernel** kernel) {
  return guarded("kw_find_by_pattern",
                 {{"service", service},
                  {"pattern", pattern},
                  {"numbers", numbers, count > 0},
                  {"made", made, made_count > 0},
                  {"follows", follows},
                  {"kernel", kernel}},
                 [&]() -> Result<void> {
                   thread_local std::vector<std::int64_t> given;
                   thread_local std::vector<std::int64_t> sizes;
                   std::optional<Problem> problem;
                   if (count <= kMostNumbers) {
                     given.assign(numbers, numbers + count);
                     problem = pattern->pattern.problem(given.data(), count, sizes);
                   }
                   if (problem && sizes.size() != made_count) {
                     return wrong(concat("kw_find_by_pattern: made_count is ", made_count, ", and ",
                                         sizes.size(), " expected"));
                   }
                   std::optional<Kernel> found;
                   if (problem) found = service->service.find_in_memory(*problem);
                   auto given_kernel = found ? std::make_unique<kw_kernel>(*found) : nullptr;
                   // One that could not be loaded has no arguments.
                   if (given_kernel && given_kernel->counts.tensors == 0) given_kernel = nullptr;
                   if (problem) std::copy(sizes.begin(), sizes.end(), made);
                   *follows = problem ? 1 : 0;
                   *kernel = given_kernel.release();
                   return {};
                 });
}

KERNWRIGHT_API int kw_describe_operation(const char* operation, kw_text** description) {
  return guarded("kw_describe_operation", {{"operation", operation}, {"description", description}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(std::string found, describe_operation(operation));
                   return give(std::move(found), description);
                 });
}

KERNWRIGHT_API int kw_tune(kw_service* service, const char* problem, const kw_tune_options* options,
                           kw_kernel** kernel) {
  return guarded("kw_tune", {{"service", service}, {"problem", problem}, {"kernel", kernel}},
                 [&]() -> Result<void> {
                   KW_ASSIGN(const TuneOptions read, c_api::read_options(options));
                   KW_ASSIGN(const Problem parsed, Problem::parse(problem));
                   return give(service->service.tune(parsed, read), kernel);
                 });
}

KERNWRIGHT_API int kw_stop_tuning(kw_service* service) {
  return guarded("kw_stop_tuning", {{"service", service}}, [&]() -> Result<void> {
    service->service.stop_tuning();
    return {};
  });
}

KERNWRIGHT_API void kw_release(kw_kernel* kernel) { delete kernel; }

KERNWRIGHT_API int kw_prewarm(kw_service* service, const char* const* problems, size_t count) {
  return guarded(
      "kw_prewarm", {{"service", service}, {"problems", problems, count > 0}},
      [&]() -> Result<void> {
        if (count > kMostProblems) {
          return wrong(concat("kw_prewarm: count is ", count, "; it may be ", kMostProblems));
        }
        std::vector<Problem> parsed;
        for (size_t i = 0; i < count; ++i) {
          if (problems[i] == nullptr) {
            return wrong(concat("kw_prewarm: problems[", i, "] is null"));
          }
          KW_ASSIGN(Problem problem, Problem::parse(problems[i]));
          parsed.push_back(std::move(problem));
        }
        return service->service.prewarm(parsed);
      });
}

KERNWRIGHT_API int kw_prewarm_worklist(kw_service* service, const char* file) {
  return guarded("kw_prewarm_worklist", {{"service", service}, {"file", file}},
                 [&] { return service->service.prewarm_worklist(file); });
}

KERNWRIGHT_API int kw_record_shapes(kw_service* service, const char* file) {
  return guarded("kw_record_shapes", {{"service", service}},
                 [&] { return service->service.record_shapes(file == nullptr ? "" : file); });
}

KERNWRIGHT_API int kw_autotune(kw_service* service, double seconds) {
  return guarded("kw_autotune", {{"service", service}}, [&]() -> Result<void> {
    if (!(seconds >= 0)) return wrong("kw_autotune: seconds must be 0 or more");
    service->service.autotune(seconds);
    return {};
  });
}

KERNWRIGHT_API int kw_seal(kw_service* service, const char* mode) {
  return guarded("kw_seal", {{"service", service}}, [&]() -> Result<void> {
    const std::string_view name = mode == nullptr ? "error" : mode;
    if (name != "error" && name != "warning") {
      return wrong(concat("kw_seal: mode is \"", name, "\"; it must be error or warning"));
    }
    service->service.seal(name == "error" ? SealMode::error : SealMode::warning);
    return {};
  });
}

KERNWRIGHT_API int kw_metrics(const kw_service* service, kw_text** metrics) {
  return guarded("kw_metrics", {{"service", service}, {"metrics", metrics}},
                 [&] { return give(service->service.metrics(), metrics); });
}

KERNWRIGHT_API int kw_lookup_counts(const kw_service* service, kw_text** counts) {
  return guarded("kw_lookup_counts", {{"service", service}, {"counts", counts}}, [&] {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& [match, reason, count] : service->service.lookup_counts()) {
      rows.push_back(
          {{"match", to_string(match)}, {"reason", to_string(reason)}, {"count", count}});
    }
    return give(rows.dump(), counts);
  });
}

KERNWRIGHT_API int kw_record(const kw_service* service, const char* problem, const char* form,
                             kw_text** record) {
  return guarded(
      "kw_record", {{"service", service}, {"problem", problem}, {"record", record}},
      [&]() -> Result<void> {
        const std::string_view name = form == nullptr ? "json" : form;
        if (name != "json" && name != "html") {
          return wrong(concat("kw_record: form is \"", name, "\"; it must be json or html"));
        }
        KW_ASSIGN(const Problem parsed, Problem::parse(problem));
        KW_ASSIGN(
            std::string text,
            service->service.record(parsed, name == "json" ? RecordForm::json : RecordForm::html));
        return give(std::move(text), record);
      });
}

KERNWRIGHT_API const char* kw_characters(const kw_text* text) {
  if (lacks("kw_characters", {{"text", text}})) return nullptr;
  return text->characters.c_str();
}

KERNWRIGHT_API void kw_release_text(kw_text* text) { delete text; }

KERNWRIGHT_API size_t kw_workspace_bytes(const kw_kernel* kernel) {
  if (lacks("kw_workspace_bytes", {{"kernel", kernel}})) return static_cast<size_t>(-1);
  return static_cast<size_t>(kernel->kernel.workspace_bytes());
}

KERNWRIGHT_API const char* kw_problem_of(const kw_kernel* kernel) {
  if (lacks("kw_problem_of", {{"kernel", kernel}})) return nullptr;
  return kernel->kernel.summary().problem.c_str();
}

KERNWRIGHT_API const char* kw_describe(const kw_kernel* kernel) {
  const int status = guarded("kw_describe", {{"kernel", kernel}}, [&]() -> Result<void> {
    std::call_once(kernel->described, [&] { kernel->description = describe(kernel->kernel); });
    return {};
  });
  return status == 0 ? kernel->description.c_str() : nullptr;
}

KERNWRIGHT_API int kw_launch(const kw_kernel* kernel, void* stream, const void* const* tensors,
                             size_t tensor_count, const double* scalars, size_t scalar_count,
                             void* workspace) {
  return call_with("kw_launch", "kernel", kernel, {tensors, tensor_count, scalars, scalar_count},
                   [&](const Arg* arguments, size_t count) {
                     return kernel->kernel.launch(stream, arguments, count, workspace);
                   });
}

KERNWRIGHT_API int kw_launch_checked(const kw_kernel* kernel, void* stream,
                                     const void* const* tensors, size_t tensor_count,
                                     const double* scalars, size_t scalar_count, void* workspace) {
  return call_with("kw_launch_checked", "kernel", kernel,
                   {tensors, tensor_count, scalars, scalar_count},
                   [&](const Arg* arguments, size_t count) {
                     return kernel->kernel.launch_checked(stream, arguments, count, workspace);
                   });
}

KERNWRIGHT_API int kw_bake(const kw_kernel* kernel, const void* const* tensors, size_t tensor_count,
                           const double* scalars, size_t scalar_count, kw_baked** baked) {
  if (lacks("kw_bake", {{"baked", baked}})) return -1;
  return call_with("kw_bake", "kernel", kernel, {tensors, tensor_count, scalars, scalar_count},
                   [&](const Arg* arguments, size_t count) -> Result<void> {
                     KW_ASSIGN(BakedLaunch made, kernel->kernel.bake(arguments, count));
                     *baked = new kw_baked{std::move(made), kernel->counts};
                     return {};
                   });
}

KERNWRIGHT_API int kw_launch_baked(kw_baked* baked, void* stream) {
  return guarded("kw_launch_baked", {{"baked", baked}},
                 [&] { return baked->launch.launch(stream); });
}

KERNWRIGHT_API int kw_rebind(kw_baked* baked, const void* const* tensors, size_t tensor_count,
                             const double* scalars, size_t scalar_count) {
  return call_with(
      "kw_rebind", "baked", baked, {tensors, tensor_count, scalars, scalar_count},
      [&](const Arg* arguments, size_t count) { return baked->launch.rebind(arguments, count); });
}

KERNWRIGHT_API int kw_add_to_capture(const kw_baked* baked, void* stream) {
  return guarded("kw_add_to_capture", {{"baked", baked}},
                 [&] { return baked->launch.add_to_capture(stream); });
}

KERNWRIGHT_API void kw_release_baked(kw_baked* baked) { delete baked; }

KERNWRIGHT_API const char* kw_last_error(void) { return last_error.c_str(); }

KERNWRIGHT_API int kw_last_error_code(void) { return last_code; }

KERNWRIGHT_API const char* kw_version(void) {
  static const auto& version = *new std::string(kernwright_version());
  return version.c_str();
}

}  // extern "C"
