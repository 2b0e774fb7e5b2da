#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compile/compile_request.h"
#include "model/catalog/catalog.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

/// The protocol between the tuning process and its measuring worker: JSON texts over a `Channel`.
/// The tuning process sends one request at a time, and the worker replies. While it works on a
/// request the worker may ask for compiles. Compiled code is sent as a file with the text.
namespace kernwright::detail {

/// Both sides must come from one build; another number means that they do not.
inline constexpr int kProtocol = 6;

/// The first request, which starts CUDA on the GPU. The other fields are for the audit, see
/// `AuditorOptions`.
struct HelloRequest {
  int protocol = kProtocol;
  int device = 0;
  std::string uuid;
  std::string cache_root;
  std::vector<int> own_pids;
};

/// Opens a problem in place of the previous one.
struct OpenRequest {
  std::string problem;  ///< canonical text
  std::vector<std::string> template_dirs;
  std::vector<std::string> functions;  ///< files
  std::string catalog_digest;
  MeasurePolicy policy;
  std::uint64_t seed = 1;
  double sample_ms = 0;
};

/// Makes the candidate, and loads the artifact that comes with the message.
struct PrepareRequest {
  Choice choice;
};

struct CheckRequest {
  Runner::Id id = -1;
  Runner::CheckDepth depth = Runner::CheckDepth::screening;
};
struct CheckAfterTimingRequest {
  Runner::Id id = -1;
};
/// The worker answers by one `SampledReply` for each entry when it is taken, so that it is known at
/// which entry a worker ended.
struct SampleRequest {
  std::vector<Runner::Id> order;
};
struct LaunchGapRequest {
  Runner::Id id = -1;
};
struct LaunchPathsRequest {
  Runner::Id id = -1;
};
struct CountRequest {
  Runner::Id id = -1;
  L2State cache = L2State::cold;
};
struct AuditRequest {};
struct DropRequest {
  Runner::Id id = -1;
};
/// Closes the problem.
struct CloseRequest {};

/// The answer to a `CompileReply`. The artifact comes with it if `error` is empty.
struct CompiledRequest {
  ErrorCode code = ErrorCode::internal;
  std::string error;
};

using Request =
    std::variant<HelloRequest, OpenRequest, PrepareRequest, CheckRequest, CheckAfterTimingRequest,
                 SampleRequest, LaunchGapRequest, LaunchPathsRequest, CountRequest, AuditRequest,
                 DropRequest, CloseRequest, CompiledRequest>;

struct HelloReply {
  int protocol = kProtocol;
  double seconds = 0;  ///< the time that starting CUDA took
};
struct OpenReply {
  double seconds = 0;
};
struct PrepareReply {
  Runner::Prepared prepared;
};
struct CheckReply {
  Runner::Checked checked;
};
struct SampledReply {
  Runner::Sampled sampled;
};
struct LaunchGapReply {
  double us = 0;
};
struct LaunchPathsReply {
  LaunchTimes paths;
};
struct CountReply {
  CounterSet counted;
};
struct AuditReply {
  Audit audit;
};
struct DoneReply {};
/// Asks for a compile, before the answer to the request: the worker has no compiler of its own.
struct CompileReply {
  CompileRequest request;
};
/// The request failed for another reason than a candidate.
struct ErrorReply {
  Error error;
};

using AnyReply =
    std::variant<HelloReply, OpenReply, PrepareReply, CheckReply, SampledReply, LaunchGapReply,
                 LaunchPathsReply, CountReply, AuditReply, DoneReply, CompileReply, ErrorReply>;

struct Reply {
  AnyReply content;
  bool lost = false;   ///< this process cannot use the device any more
  DeviceUse use = {};  ///< since the previous reply
};

std::string encode(const Request& request);
std::string encode(const Reply& reply);

/// Errors: `corrupt` naming the field.
Result<Request> parse_request(std::string_view text);
Result<Reply> parse_reply(std::string_view text);

/// The digest, in hex, of everything in a catalog that a measurement depends on.
std::string digest_of(const Catalog& catalog);

}  // namespace kernwright::detail
