#include "tuner/worker/protocol.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "cache/fields/counter_fields.h"
#include "cache/fields/json_fields.h"
#include "support/hash.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::detail {
namespace {

using Json = FieldReader::Json;

// The names of the alternatives, in the order of the variants.
constexpr std::array<std::string_view, std::variant_size_v<Request>> kRequests = {
    "hello", "open", "prepare", "check",   "check_after_timing", "sample", "gap", "paths", "count",
    "audit", "drop", "close",   "compiled"};
constexpr std::array<std::string_view, std::variant_size_v<AnyReply>> kReplies = {
    "hello", "open",  "prepare", "check", "sampled", "gap",
    "paths", "count", "audit",   "done",  "compile", "error"};

template <typename Enum>
Enum read_enum(FieldReader& fields, std::string_view name, Enum last) {
  int value = 0;
  fields.read(name, value);
  if (value < 0 || value > static_cast<int>(last)) {
    fields.fail(name, concat(value, " is not in 0..", static_cast<int>(last)));
    return last;
  }
  return static_cast<Enum>(value);
}

// --- Parts ---------------------------------------------------------------------------------------

Json json_of(const Configuration& configuration) {
  Json json = Json::object();
  for (const auto& [name, value] : configuration.values()) json[name] = value;
  return json;
}

Json json_of(const Runner::Step& step) {
  return {{"outcome", to_string(step.outcome)}, {"detail", step.detail}};
}
void read_step(FieldReader& fields, Runner::Step& step) {
  fields.object("step", [&](FieldReader& nested) {
    std::string outcome;
    nested.read("outcome", outcome);
    nested.read("detail", step.detail);
    if (const auto parsed = parse_outcome(outcome)) {
      step.outcome = *parsed;
    } else {
      nested.fail("outcome", concat('"', outcome, "\" is no outcome"));
    }
  });
}

Json json_of(const CheckReport& report) {
  return {{"max_error", report.max_error},
          {"mismatches", report.mismatches},
          {"elements", report.elements},
          {"first_mismatch", report.first_mismatch},
          {"exact", report.exact},
          {"guarded", report.guarded},
          {"unmapped", report.unmapped},
          {"repeats", report.repeats},
          {"deterministic", report.deterministic},
          {"after_timing", report.after_timing}};
}
void read_report(FieldReader& fields, CheckReport& report) {
  fields.object("report", [&](FieldReader& nested) {
    nested.read("max_error", report.max_error);
    nested.read("mismatches", report.mismatches);
    nested.read("elements", report.elements);
    nested.read("first_mismatch", report.first_mismatch);
    nested.read("exact", report.exact);
    nested.read("guarded", report.guarded);
    nested.read("unmapped", report.unmapped);
    nested.read("repeats", report.repeats);
    nested.read("deterministic", report.deterministic);
    nested.read("after_timing", report.after_timing);
  });
}

Json json_of(const Audit& audit) {
  Json rows = Json::array();
  for (const AuditRow& row : audit.rows) {
    rows.push_back({{"check", row.check}, {"trust", to_string(row.trust)}, {"detail", row.detail}});
  }
  return rows;
}
void read_audit(FieldReader& fields, Audit& audit) {
  fields.each_object("rows", [&](FieldReader& item) {
    AuditRow& row = audit.rows.emplace_back();
    std::string trust;
    item.read("check", row.check);
    item.read("trust", trust);
    item.read("detail", row.detail);
    if (const auto parsed = parse_trust(trust)) {
      row.trust = *parsed;
    } else {
      item.fail("trust", concat('"', trust, "\" is no trust level"));
    }
  });
}

void read_policy(FieldReader& fields, MeasurePolicy& policy) {
  std::string text;
  fields.read("policy", text);
  if (const auto parsed = parse_policy(text)) {
    policy = *parsed;
  } else {
    fields.fail("policy", concat('"', text, "\" is no measure policy"));
  }
}

Json json_of(const CompileRequest& request) {
  Json headers = Json::array();
  for (const auto& [name, text] : request.headers)
    headers.push_back({{"name", name}, {"text", text}});
  Json linked = Json::array();
  for (const LinkedInput& input : request.linked) {  // bytes need not be text
    linked.push_back({{"name", input.name},
                      {"lto_ir", std::vector<int>(input.lto_ir.begin(), input.lto_ir.end())}});
  }
  return {{"name", request.name},          {"source", request.source},
          {"headers", std::move(headers)}, {"options", request.options},
          {"target", request.target},      {"output", static_cast<int>(request.output)},
          {"linked", std::move(linked)}};
}
void read_compile(FieldReader& fields, CompileRequest& request) {
  fields.read("name", request.name);
  fields.read("source", request.source);
  fields.each_object("headers", [&](FieldReader& item) {
    auto& [name, text] = request.headers.emplace_back();
    item.read("name", name);
    item.read("text", text);
  });
  fields.read("options", request.options);
  fields.read("target", request.target);
  request.output = read_enum(fields, "output", OutputKind::lto_ir);
  fields.each_object("linked", [&](FieldReader& item) {
    LinkedInput& input = request.linked.emplace_back();
    std::vector<int> bytes;
    item.read("name", input.name);
    item.read("lto_ir", bytes);
    input.lto_ir.assign(bytes.begin(), bytes.end());
  });
}

Json json_of(const LaunchTimes& paths) {
  Json times = Json::array();
  for (const PathTime& time : paths.times) {
    times.push_back(
        {{"path", to_string(time.path)}, {"host_us", time.host_us}, {"period_us", time.period_us}});
  }
  return {{"times", std::move(times)}, {"best", paths.best ? to_string(*paths.best) : ""}};
}
void read_paths(FieldReader& fields, LaunchTimes& paths) {
  const auto path = [](FieldReader& from, std::string_view name) {
    std::string text;
    from.read(name, text);
    const auto parsed = parse_kernel_path(text);
    if (!parsed && !text.empty()) from.fail(name, concat('"', text, "\" is no launch path"));
    return parsed;
  };
  fields.each_object("times", [&](FieldReader& item) {
    PathTime& time = paths.times.emplace_back();
    time.path = path(item, "path").value_or(KernelPath::stream);
    item.read("host_us", time.host_us);
    item.read("period_us", time.period_us);
  });
  paths.best = path(fields, "best");
}

Json json_of(const DeviceUse& use) {
  return {{"begin_seconds", use.begin_seconds},
          {"end_seconds", use.end_seconds},
          {"busy_seconds", use.busy_seconds},
          {"longest_idle_seconds", use.longest_idle_seconds}};
}
void read_use(FieldReader& fields, DeviceUse& use) {
  fields.object("use", [&](FieldReader& nested) {
    nested.read("begin_seconds", use.begin_seconds);
    nested.read("end_seconds", use.end_seconds);
    nested.read("busy_seconds", use.busy_seconds);
    nested.read("longest_idle_seconds", use.longest_idle_seconds);
  });
}

// --- Requests ------------------------------------------------------------------------------------

Json fields_of(const HelloRequest& r) {
  return {{"protocol", r.protocol},
          {"device", r.device},
          {"uuid", r.uuid},
          {"cache_root", r.cache_root},
          {"own_pids", r.own_pids}};
}
Json fields_of(const OpenRequest& r) {
  return {{"problem", r.problem},      {"template_dirs", r.template_dirs},
          {"functions", r.functions},  {"catalog", r.catalog_digest},
          {"policy", r.policy.text()}, {"seed", r.seed},
          {"sample_ms", r.sample_ms}};
}
Json fields_of(const PrepareRequest& r) {
  return {{"template", r.choice.kernel_template},
          {"configuration", json_of(r.choice.configuration)}};
}
Json fields_of(const CheckRequest& r) {
  return {{"id", r.id}, {"depth", static_cast<int>(r.depth)}};
}
Json fields_of(const CheckAfterTimingRequest& r) { return {{"id", r.id}}; }
Json fields_of(const SampleRequest& r) { return {{"order", r.order}}; }
Json fields_of(const LaunchGapRequest& r) { return {{"id", r.id}}; }
Json fields_of(const LaunchPathsRequest& r) { return {{"id", r.id}}; }
Json fields_of(const CountRequest& r) { return {{"id", r.id}, {"cache", to_string(r.cache)}}; }
Json fields_of(const AuditRequest&) { return Json::object(); }
Json fields_of(const DropRequest& r) { return {{"id", r.id}}; }
Json fields_of(const CloseRequest&) { return Json::object(); }
Json fields_of(const CompiledRequest& r) {
  return {{"code", static_cast<int>(r.code)}, {"error", r.error}};
}

void read(FieldReader& fields, HelloRequest& r) {
  fields.read("protocol", r.protocol);
  // Another protocol may have other fields.
  if (r.protocol != kProtocol) return;
  fields.read("device", r.device);
  fields.read("uuid", r.uuid);
  fields.read("cache_root", r.cache_root);
  fields.read("own_pids", r.own_pids);
}
void read(FieldReader& fields, OpenRequest& r) {
  fields.read("problem", r.problem);
  fields.read("template_dirs", r.template_dirs);
  fields.read("functions", r.functions);
  fields.read("catalog", r.catalog_digest);
  read_policy(fields, r.policy);
  fields.read("seed", r.seed);
  fields.read("sample_ms", r.sample_ms);
}
void read(FieldReader& fields, PrepareRequest& r) {
  fields.read("template", r.choice.kernel_template);
  fields.read("configuration", r.choice.configuration);
}
void read(FieldReader& fields, CheckRequest& r) {
  fields.read("id", r.id);
  r.depth = read_enum(fields, "depth", Runner::CheckDepth::finalist);
}
void read(FieldReader& fields, CheckAfterTimingRequest& r) { fields.read("id", r.id); }
void read(FieldReader& fields, SampleRequest& r) { fields.read("order", r.order); }
void read(FieldReader& fields, LaunchGapRequest& r) { fields.read("id", r.id); }
void read(FieldReader& fields, LaunchPathsRequest& r) { fields.read("id", r.id); }
void read(FieldReader& fields, CountRequest& r) {
  fields.read("id", r.id);
  std::string cache;
  fields.read("cache", cache);
  if (const auto parsed = parse_l2_state(cache)) {
    r.cache = *parsed;
  } else {
    fields.fail("cache", concat('"', cache, "\" is no state of the L2"));
  }
}
void read(FieldReader&, AuditRequest&) {}
void read(FieldReader& fields, DropRequest& r) { fields.read("id", r.id); }
void read(FieldReader&, CloseRequest&) {}
void read(FieldReader& fields, CompiledRequest& r) {
  r.code = read_enum(fields, "code", ErrorCode::internal);
  fields.read("error", r.error);
}

// --- Replies -------------------------------------------------------------------------------------

Json fields_of(const HelloReply& r) { return {{"protocol", r.protocol}, {"seconds", r.seconds}}; }
Json fields_of(const OpenReply& r) { return {{"seconds", r.seconds}}; }
Json fields_of(const PrepareReply& r) {
  return {{"id", r.prepared.id}, {"step", json_of(r.prepared.step)}};
}
Json fields_of(const CheckReply& r) {
  return {{"step", json_of(r.checked.step)}, {"report", json_of(r.checked.report)}};
}
Json fields_of(const SampledReply& r) {
  return {{"step", json_of(r.sampled.step)},
          {"us", r.sampled.sample.us},
          {"sm_mhz", r.sampled.sample.sm_mhz},
          {"at_seconds", r.sampled.sample.at_seconds}};
}
Json fields_of(const LaunchGapReply& r) { return {{"us", r.us}}; }
Json fields_of(const LaunchPathsReply& r) { return json_of(r.paths); }
Json fields_of(const CountReply& r) {
  FieldWriter json;
  write_counters(json, {r.counted});
  return parse_value(json.text());
}
Json fields_of(const AuditReply& r) { return {{"rows", json_of(r.audit)}}; }
Json fields_of(const DoneReply&) { return Json::object(); }
Json fields_of(const CompileReply& r) { return json_of(r.request); }
Json fields_of(const ErrorReply& r) {
  return {{"code", static_cast<int>(r.error.code)}, {"error", r.error.message}};
}

void read(FieldReader& fields, HelloReply& r) {
  fields.read("protocol", r.protocol);
  if (r.protocol == kProtocol) fields.read("seconds", r.seconds);
}
void read(FieldReader& fields, OpenReply& r) { fields.read("seconds", r.seconds); }
void read(FieldReader& fields, PrepareReply& r) {
  fields.read("id", r.prepared.id);
  read_step(fields, r.prepared.step);
}
void read(FieldReader& fields, CheckReply& r) {
  read_step(fields, r.checked.step);
  read_report(fields, r.checked.report);
}
void read(FieldReader& fields, SampledReply& r) {
  read_step(fields, r.sampled.step);
  fields.read("us", r.sampled.sample.us);
  fields.read("sm_mhz", r.sampled.sample.sm_mhz);
  fields.read("at_seconds", r.sampled.sample.at_seconds);
}
void read(FieldReader& fields, LaunchGapReply& r) { fields.read("us", r.us); }
void read(FieldReader& fields, LaunchPathsReply& r) { read_paths(fields, r.paths); }
void read(FieldReader& fields, CountReply& r) {
  std::vector<CounterSet> sets;
  read_counters(fields, sets);
  if (sets.size() == 1) {
    r.counted = std::move(sets.front());
  } else {
    fields.fail("counters", concat(sets.size(), " sets, 1 expected"));
  }
}
void read(FieldReader& fields, AuditReply& r) { read_audit(fields, r.audit); }
void read(FieldReader&, DoneReply&) {}
void read(FieldReader& fields, CompileReply& r) { read_compile(fields, r.request); }
void read(FieldReader& fields, ErrorReply& r) {
  r.error.code = read_enum(fields, "code", ErrorCode::internal);
  fields.read("error", r.error.message);
}

// --- Variants ------------------------------------------------------------------------------------

/// Sets `message` to the alternative with the name `kind`, and reads its fields.
template <typename Variant, std::size_t... Indices>
void read_variant(FieldReader& fields, std::string_view kind,
                  const std::array<std::string_view, sizeof...(Indices)>& names, Variant& message,
                  std::index_sequence<Indices...>) {
  std::string name;
  fields.read(kind, name);
  const auto read_as = [&]<std::size_t Index>() {
    if (names[Index] != name) return false;
    read(fields, message.template emplace<Index>());
    return true;
  };
  if (!(read_as.template operator()<Indices>() || ...)) {
    fields.fail(kind, concat('"', name, "\" is unknown"));
  }
}

}  // namespace

std::string encode(const Request& request) {
  Json json = std::visit([](const auto& r) { return fields_of(r); }, request);
  json["request"] = kRequests.at(request.index());
  return dump(json);
}

std::string encode(const Reply& reply) {
  Json json = std::visit([](const auto& r) { return fields_of(r); }, reply.content);
  json["reply"] = kReplies.at(reply.content.index());
  json["lost"] = reply.lost;
  json["use"] = json_of(reply.use);
  return dump(json);
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
    fields.read("lost", reply.lost);
    read_use(fields, reply.use);
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
