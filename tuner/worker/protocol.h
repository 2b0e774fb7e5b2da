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

/// What the tuning process and its measuring worker say to each other: JSON texts over a `Channel`.
/// The tuning process asks, the worker answers, one request at a time; while it works on one, the
/// worker may ask for compiles. Compiled bits travel as files beside the text.
namespace kernwright::detail {

/// Both sides come from one build; another number means that they do not.
inline constexpr int kProtocol = 4;

/// The first request: starts CUDA on the GPU. The rest is for the audit, see `AuditorOptions`.
struct HelloRequest {
  int protocol = kProtocol;
  int device = 0;
  std::string uuid;
  std::string cache_root;
  std::vector<int> own_pids;
};

/// Opens a problem in place of the one before.
struct OpenRequest {
  std::string problem;  ///< canonical text
  std::vector<std::string> template_dirs;
  std::vector<std::string> functions;  ///< files
  std::string catalog_digest;
  MeasurePolicy policy;
  std::uint64_t seed = 1;
  double sample_ms = 0;
};

/// Makes the candidate and loads the artifact that comes with the message.
struct PrepareRequest {
  std::string kernel_template;
  Configuration configuration;
};

struct CheckRequest {
  Runner::Id id = -1;
  Runner::CheckDepth depth = Runner::CheckDepth::screening;
};
struct CheckAfterTimingRequest {
  Runner::Id id = -1;
};
/// Answered by one `SampledReply` per entry, as they are taken: a worker that ends shows at which.
struct SampleRequest {
  std::vector<Runner::Id> order;
};
struct LaunchGapRequest {
  Runner::Id id = -1;
};
struct LaunchPathsRequest {
  Runner::Id id = -1;
};
struct AuditRequest {};
struct DropRequest {
  Runner::Id id = -1;
};
/// Frees the problem.
struct CloseRequest {};

/// The answer to a `CompileReply`; the artifact comes with it where `error` is empty.
struct CompiledRequest {
  ErrorCode code = ErrorCode::internal;
  std::string error;
};

using Request =
    std::variant<HelloRequest, OpenRequest, PrepareRequest, CheckRequest, CheckAfterTimingRequest,
                 SampleRequest, LaunchGapRequest, LaunchPathsRequest, AuditRequest, DropRequest,
                 CloseRequest, CompiledRequest>;

struct HelloReply {
  int protocol = kProtocol;
  double seconds = 0;  ///< that CUDA took to start
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
  LaunchPaths paths;
};
struct AuditReply {
  Audit audit;
};
struct DoneReply {};
/// A question instead of an answer: the worker has no compiler of its own and asks for a compile.
struct CompileReply {
  CompileRequest request;
};
/// The request failed, and not because of a candidate.
struct ErrorReply {
  Error error;
};

using AnyReply =
    std::variant<HelloReply, OpenReply, PrepareReply, CheckReply, SampledReply, LaunchGapReply,
                 LaunchPathsReply, AuditReply, DoneReply, CompileReply, ErrorReply>;

struct Reply {
  AnyReply content;
  bool lost = false;   ///< the device cannot be used any more by this process
  DeviceUse use = {};  ///< since the reply before
};

std::string encode(const Request& request);
std::string encode(const Reply& reply);

/// Errors: `corrupt` naming the field.
Result<Request> parse_request(std::string_view text);
Result<Reply> parse_reply(std::string_view text);

/// Digest of everything in a catalog that a measurement depends on, hex.
std::string digest_of(const Catalog& catalog);

}  // namespace kernwright::detail
