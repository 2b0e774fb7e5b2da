#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "service/c/c_api_support.h"
#include "support/text.h"
#include "support/try.h"

struct kw_chain_builder {
  kernwright::ChainBuilder builder;
};

struct kw_chain {
  kernwright::Chain chain;
  std::vector<kernwright::ChainTime> times;
  std::string description;
};

namespace {

using namespace kernwright;
using c_api::guarded;
using c_api::wrong;

Result<ChainArg> read(const kw_chain_arg& given) {
  const ChainSlot slot{.is_buffer = given.kind == KW_BUFFER,
                       .index = given.slot,
                       .offset_bytes = given.offset_bytes};
  switch (given.kind) {
    case KW_POINTER:
      return ChainArg(given.pointer);
    case KW_SCALAR:
      return ChainArg(given.scalar);
    case KW_PARAMETER:
    case KW_BUFFER:
      return ChainArg(slot);
    default:
      return wrong(concat("kw_chain_arg.kind is ", given.kind,
                          "; it must be KW_POINTER, KW_SCALAR, KW_PARAMETER or KW_BUFFER"));
  }
}

// Far more than are ever found of one problem.
constexpr size_t kMostAlternatives = 1024;

// Arrays that are longer than any kernel's arguments are not read.
Result<void> add(kw_chain_builder& builder, const std::vector<Kernel>& kernels,
                 const kw_chain_arg* arguments, size_t count) {
  size_t most = 0;
  for (const Kernel& kernel : kernels) most = std::max(most, kernel.arguments().size());
  if (count > most) {
    return wrong(concat(count, " arguments; a kernel of the step takes up to ", most));
  }
  std::vector<ChainArg> read_arguments;
  for (size_t i = 0; i < count; ++i) {
    KW_ASSIGN(const ChainArg argument, read(arguments[i]));
    read_arguments.push_back(argument);
  }
  builder.builder.add(kernels, read_arguments.data(), read_arguments.size());
  return {};
}

void describe(kw_chain& chain) {
  nlohmann::ordered_json paths = nlohmann::ordered_json::array();
  for (const ChainPath path : chain.chain.paths()) {
    nlohmann::ordered_json row = {{"path", to_string(path)}};
    for (const ChainTime& time : chain.times) {
      if (time.path != path) continue;
      row["host_us"] = time.host_us;
      row["period_us"] = time.period_us;
    }
    paths.push_back(std::move(row));
  }
  nlohmann::ordered_json chosen = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < chain.chain.kernels(); ++i) {
    const KernelSummary& summary = chain.chain.summary(i);
    chosen.push_back(
        {{"template", summary.kernel_template}, {"configuration", summary.configuration}});
  }
  const nlohmann::ordered_json json = {{"kernels", chain.chain.kernels()},
                                       {"memory_bytes", chain.chain.memory_bytes()},
                                       {"early_kernels", chain.chain.early_kernels()},
                                       {"chosen", std::move(chosen)},
                                       {"path", to_string(chain.chain.path())},
                                       {"paths", std::move(paths)}};
  chain.description = json.dump();
}

}  // namespace

extern "C" {

KERNWRIGHT_API int kw_chain_begin(kw_chain_builder** builder) {
  return guarded("kw_chain_begin", {{"builder", builder}}, [&]() -> Result<void> {
    *builder = new kw_chain_builder;
    return {};
  });
}

KERNWRIGHT_API int kw_chain_parameter(kw_chain_builder* builder, const void* address,
                                      size_t* slot) {
  return guarded("kw_chain_parameter", {{"builder", builder}, {"slot", slot}},
                 [&]() -> Result<void> {
                   *slot = builder->builder.parameter(address).index;
                   return {};
                 });
}

KERNWRIGHT_API int kw_chain_buffer(kw_chain_builder* builder, size_t bytes, size_t* slot) {
  return guarded("kw_chain_buffer", {{"builder", builder}, {"slot", slot}}, [&]() -> Result<void> {
    *slot = builder->builder.buffer(static_cast<std::int64_t>(bytes)).index;
    return {};
  });
}

KERNWRIGHT_API int kw_chain_add(kw_chain_builder* builder, const kw_kernel* kernel,
                                const kw_chain_arg* arguments, size_t count) {
  return guarded("kw_chain_add",
                 {{"builder", builder}, {"kernel", kernel}, {"arguments", arguments, count > 0}},
                 [&] { return add(*builder, {kernel->kernel}, arguments, count); });
}

KERNWRIGHT_API int kw_chain_add_alternatives(kw_chain_builder* builder, kw_kernel* const* kernels,
                                             size_t kernel_count, const kw_chain_arg* arguments,
                                             size_t count) {
  return guarded("kw_chain_add_alternatives",
                 {{"builder", builder},
                  {"kernels", kernels, kernel_count > 0},
                  {"arguments", arguments, count > 0}},
                 [&]() -> Result<void> {
                   if (kernel_count > kMostAlternatives) {
                     return wrong(concat("kw_chain_add_alternatives: kernel_count is ",
                                         kernel_count, "; it may be ", kMostAlternatives));
                   }
                   std::vector<Kernel> alternatives;
                   for (size_t i = 0; i < kernel_count; ++i) {
                     if (kernels[i] == nullptr) return wrong(concat("kernels[", i, "] is null"));
                     alternatives.push_back(kernels[i]->kernel);
                   }
                   return add(*builder, alternatives, arguments, count);
                 });
}

KERNWRIGHT_API int kw_chain_build(const kw_chain_builder* builder, kw_chain** chain) {
  return guarded("kw_chain_build", {{"builder", builder}, {"chain", chain}}, [&]() -> Result<void> {
    KW_ASSIGN(Chain built, builder->builder.build());
    *chain = new kw_chain{std::move(built), {}, {}};
    describe(**chain);
    return {};
  });
}

KERNWRIGHT_API void kw_chain_end(kw_chain_builder* builder) { delete builder; }

KERNWRIGHT_API int kw_launch_chain(kw_chain* chain, void* stream) {
  return guarded("kw_launch_chain", {{"chain", chain}},
                 [&] { return chain->chain.launch(stream); });
}

KERNWRIGHT_API int kw_rebind_chain(kw_chain* chain, const void* const* parameters, size_t count) {
  return guarded("kw_rebind_chain", {{"chain", chain}, {"parameters", parameters, count > 0}},
                 [&] { return chain->chain.rebind(parameters, count); });
}

KERNWRIGHT_API int kw_add_chain_to_capture(const kw_chain* chain, void* stream) {
  return guarded("kw_add_chain_to_capture", {{"chain", chain}},
                 [&] { return chain->chain.add_to_capture(stream); });
}

KERNWRIGHT_API int kw_set_chain_path(kw_chain* chain, const char* path) {
  return guarded("kw_set_chain_path", {{"chain", chain}, {"path", path}}, [&]() -> Result<void> {
    std::string known;
    for (const ChainPath candidate : chain->chain.paths()) {
      if (to_string(candidate) == path) {
        KW_TRY(chain->chain.set_path(candidate));
        describe(*chain);
        return {};
      }
      known.append(known.empty() ? "" : ", ").append(to_string(candidate));
    }
    return wrong(concat("the chain has no path \"", path, "\"; it has ", known));
  });
}

KERNWRIGHT_API int kw_tune_chain(kw_chain* chain, void* stream) {
  return guarded("kw_tune_chain", {{"chain", chain}}, [&]() -> Result<void> {
    KW_ASSIGN(chain->times, chain->chain.tune(stream));
    describe(*chain);
    return {};
  });
}

KERNWRIGHT_API const char* kw_describe_chain(const kw_chain* chain) {
  if (c_api::lacks("kw_describe_chain", {{"chain", chain}})) return nullptr;
  return chain->description.c_str();
}

KERNWRIGHT_API void kw_release_chain(kw_chain* chain) { delete chain; }

}  // extern "C"
