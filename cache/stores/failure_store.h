#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/parameter_space.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// What a failure was seen with. It holds while all of it is the same; with any other driver, say,
/// the candidate gets its chance again.
struct FailureScope {
  std::string sku;     ///< profile id, "h200"
  std::string target;  ///< "sm_90"
  std::string driver;
  std::string compiler;
  std::string template_digest;

  friend bool operator==(const FailureScope&, const FailureScope&) = default;
};

/// `fatal`: it ended the process or hung; `unsafe`: it ran, and wrote what or where it must not.
enum class FailureSeverity { fatal, unsafe };

std::string_view to_string(FailureSeverity severity);

/// The severity of an outcome that says something of the candidate itself. Nothing for success, for
/// what a compile shows again at once, and for conditions: no memory left, a lost device.
std::optional<FailureSeverity> lasting_severity(Outcome outcome);

/// A candidate that must not be run again.
struct Failure {
  std::string problem;  ///< canonical text
  std::string kernel_template;
  Configuration configuration;
  FailureScope scope;
  Outcome outcome = Outcome::worker_died;
  std::string detail;
  std::string time;  ///< UTC, ISO 8601

  /// As `Candidate::id`.
  std::string id() const { return kernel_template + " " + configuration.text(); }
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// The failures that outlast a session: a file per operation, a line per failure, only appended.
/// Safe against other processes on the same directory. Lines that cannot be read are no failures.
class FailureStore {
 public:
  explicit FailureStore(std::filesystem::path root) : root_(std::move(root)) {}

  /// Appends the failure. Errors: `invalid_argument` where its outcome does not last, or the
  /// problem names no operation; `io`.
  Result<void> put(const Failure& failure) const;

  /// The failures of a problem whose scope is `now`, with the present digest of each one's template
  /// by `template_digest`; the latest of each candidate.
  std::vector<Failure> active(
      std::string_view problem, const FailureScope& now,
      const std::function<std::string(std::string_view kernel_template)>& template_digest) const;

 private:
  std::filesystem::path path(std::string_view problem) const;

  std::filesystem::path root_;
};

}  // namespace kernwright
