#include "tuner/worker/protocol.h"

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

constexpr auto names_of(Runner::CheckDepth) {
  return std::to_array<std::string_view>({"screening", "finalist"});
}
constexpr auto names_of(ErrorCode) {
  return std::to_array<std::string_view>({"invalid_argument", "not_found", "unavailable", "io",
                                          "corrupt", "compile", "device", "timed_out", "refused",
                                          "internal"});
}

void describe(auto& visitor, MaybeConst<DeviceUse> auto& use) {
  visitor.field("begin_seconds", use.begin_seconds);
  visitor.field("end_seconds", use.end_seconds);
  visitor.field("busy_seconds", use.busy_seconds);
  visitor.field("longest_idle_seconds", use.longest_idle_seconds);
}

/// Describes a header of a compile.
void describe(auto& visitor, MaybeConst<std::pair<std::string, std::string>> auto& header) {
  visitor.field("name", header.first);
  visitor.field("text", header.second);
}

void describe(auto& visitor, MaybeConst<LinkedInput> auto& input) {
  visitor.field("name", input.name);
  std::vector<int> bytes(input.lto_ir.begin(), input.lto_ir.end());  // they need not be text
  visitor.field("lto_ir", bytes);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(input)>>) {
    input.lto_ir.assign(bytes.begin(), bytes.end());
  }
}

}  // namespace kernwright

namespace kernwright::detail {
namespace {

// The names of the alternatives, in the order of the variants.
constexpr std::array<std::string_view, std::variant_size_v<Request>> kRequests = {
    "hello", "open", "prepare", "check",   "check_after_timing", "sample", "gap", "paths", "count",
    "audit", "drop", "close",   "compiled"};
constexpr std::array<std::string_view, std::variant_size_v<AnyReply>> kReplies = {
    "hello", "open",  "prepare", "check", "sampled", "gap",
    "paths", "count", "audit",   "done",  "compile", "error"};

// --- Requests ------------------------------------------------------------------------------------

void describe(auto& visitor, MaybeConst<HelloRequest> auto& hello) {
  visitor.field("protocol", hello.protocol);
  // Another protocol may have other fields.
  if (hello.protocol != kProtocol) return;
  visitor.field("device", hello.device);
  visitor.field("uuid", hello.uuid);
  visitor.field("cache_root", hello.cache_root);
  visitor.field("own_pids", hello.own_pids);
}
void describe(auto& visitor, MaybeConst<OpenRequest> auto& open) {
  visitor.field("problem", open.problem);
  visitor.field("template_dirs", open.template_dirs);
  visitor.field("functions", open.functions);
  visitor.field("catalog", open.catalog_digest);
  visitor.field("policy", open.policy);
  visitor.field("seed", open.seed);
  visitor.field("sample_ms", open.sample_ms);
}
void describe(auto& visitor, MaybeConst<PrepareRequest> auto& prepare) {
  describe(visitor, prepare.choice);
}
void describe(auto& visitor, MaybeConst<CheckRequest> auto& check) {
  visitor.field("id", check.id);
  visitor.field("depth", check.depth);
}
void describe(auto& visitor, MaybeConst<SampleRequest> auto& sample) {
  visitor.field("order", sample.order);
}
void describe(auto& visitor, MaybeConst<CountRequest> auto& count) {
  visitor.field("id", count.id);
  visitor.field("cache", count.cache);
}
void describe(auto& visitor, MaybeConst<CheckAfterTimingRequest, LaunchGapRequest,
                                        LaunchPathsRequest, DropRequest> auto& request) {
  visitor.field("id", request.id);
}
void describe(auto& visitor, MaybeConst<CompiledRequest> auto& compiled) {
  visitor.field("code", compiled.code);
  visitor.field("error", compiled.error);
}
void describe(auto& /*visitor*/,
              MaybeConst<AuditRequest, CloseRequest, DoneReply> auto& /*empty*/) {}

// --- Replies -------------------------------------------------------------------------------------

void describe(auto& visitor, MaybeConst<HelloReply> auto& hello) {
  visitor.field("protocol", hello.protocol);
  if (hello.protocol == kProtocol) visitor.field("seconds", hello.seconds);
}
void describe(auto& visitor, MaybeConst<OpenReply> auto& open) {
  visitor.field("seconds", open.seconds);
}
void describe(auto& visitor, MaybeConst<PrepareReply> auto& reply) {
  visitor.field("id", reply.prepared.id);
  visitor.field("step", reply.prepared.step);
}
void describe(auto& visitor, MaybeConst<CheckReply> auto& reply) {
  visitor.field("step", reply.checked.step);
  visitor.field("report", reply.checked.report);
}
void describe(auto& visitor, MaybeConst<SampledReply> auto& reply) {
  visitor.field("step", reply.sampled.step);
  describe(visitor, reply.sampled.sample);
}
void describe(auto& visitor, MaybeConst<LaunchGapReply> auto& gap) { visitor.field("us", gap.us); }
void describe(auto& visitor, MaybeConst<LaunchPathsReply> auto& reply) {
  describe(visitor, reply.paths);
}
void describe(auto& visitor, MaybeConst<CountReply> auto& reply) {
  describe(visitor, reply.counted);
}
void describe(auto& visitor, MaybeConst<AuditReply> auto& reply) {
  visitor.field("rows", reply.audit.rows);
}
void describe(auto& visitor, MaybeConst<CompileReply> auto& reply) {
  auto& request = reply.request;
  visitor.field("name", request.name);
  visitor.field("source", request.source);
  visitor.field("headers", request.headers);
  visitor.field("options", request.options);
  visitor.field("target", request.target);
  visitor.field("output", request.output);
  visitor.field("linked", request.linked);
}
void describe(auto& visitor, MaybeConst<ErrorReply> auto& reply) {
  visitor.field("code", reply.error.code);
  visitor.field("error", reply.error.message);
}

/// Describes what goes with every reply.
void describe_state(auto& visitor, MaybeConst<Reply> auto& reply) {
  visitor.field("lost", reply.lost);
  visitor.field("use", reply.use);
}

// --- Variants ------------------------------------------------------------------------------------

template <typename Variant>
void write_variant(FieldWriter& json, std::string_view kind, const auto& names,
                   const Variant& message) {
  json.field(kind, names.at(message.index()));
  std::visit([&](const auto& content) { describe(json, content); }, message);
}

/// Sets `message` to the alternative with the name `kind`, and reads its fields.
template <typename Variant, std::size_t... Indices>
void read_variant(FieldReader& fields, std::string_view kind,
                  const std::array<std::string_view, sizeof...(Indices)>& names, Variant& message,
                  std::index_sequence<Indices...>) {
  std::string name;
  fields.field(kind, name);
  const auto read_as = [&]<std::size_t Index>() {
    if (names[Index] != name) return false;
    describe(fields, message.template emplace<Index>());
    return true;
  };
  if (!(read_as.template operator()<Indices>() || ...)) {
    fields.fail(kind, concat('"', name, "\" is unknown"));
  }
}

}  // namespace

std::string encode(const Request& request) {
  FieldWriter json;
  write_variant(json, "request", kRequests, request);
  return json.text();
}

std::string encode(const Reply& reply) {
  FieldWriter json;
  write_variant(json, "reply", kReplies, reply.content);
  describe_state(json, reply);
  return json.text();
}

Result<Request> parse_request(std::string_view text) {
  Request request;
  KW_TRY(parse_fields(text, "request", [&](FieldReader& fields) {
    read_variant(fields, "request", kRequests, request,
                 std::make_index_sequence<kRequests.size()>());
  }));
  return request;
}

Result<Reply> parse_reply(std::string_view text) {
  Reply reply;
  KW_TRY(parse_fields(text, "reply", [&](FieldReader& fields) {
    read_variant(fields, "reply", kReplies, reply.content,
                 std::make_index_sequence<kReplies.size()>());
    describe_state(fields, reply);
  }));
  return reply;
}

std::string digest_of(const Catalog& catalog) {
  Hasher hasher;
  for (const DeviceHeader& header : catalog.headers()) hasher.add(header.name, header.text);
  for (const Operation& operation : catalog.operations()) {
    hasher.add(operation.name, operation.reference_source);
    for (const DeviceHeader& header : operation.reference_headers) {
      hasher.add(header.name, header.text);
    }
    if (operation.input_kernels) {
      hasher.add(operation.input_kernels->source_file, operation.input_kernels->source);
      for (const DeviceHeader& header : operation.input_kernels->headers) {
        hasher.add(header.name, header.text);
      }
    }
    hasher.add("example", operation.example.text());
    for (const Tensor& tensor : operation.tensors) {
      hasher.add(tensor.name, tensor.warm ? "warm" : "cold");
    }
  }
  for (const KernelTemplate& kernel_template : catalog.templates()) {
    for (const JsonFile& manifest : kernel_template.manifests) {
      hasher.add(kernel_template.name, manifest.text);
    }
    hasher.add("source", kernel_template.source);
    for (const DeviceHeader& header : kernel_template.headers) hasher.add(header.name, header.text);
  }
  return hasher.finish().hex();
}

}  // namespace kernwright::detail
