#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/choice.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// The conditions in which a failure was seen. The failure holds while all of them are the same.
/// With another driver, for example, the candidate gets its chance again.
struct FailureScope {
  std::string sku;     ///< profile id, "h200"
  std::string target;  ///< "sm_90"
  std::string driver;
  std::string compiler;
  std::string template_digest;

  friend bool operator==(const FailureScope&, const FailureScope&) = default;
};

void describe(auto& visitor, MaybeConst<FailureScope> auto& scope) {
  visitor.field("sku", scope.sku);
  visitor.field("target", scope.target);
  visitor.field("driver", scope.driver);
  visitor.field("compiler", scope.compiler);
  visitor.field("template_digest", scope.template_digest);
}

/// `fatal`: it ended the process or hung; `unsafe`: it ran, and wrote a value or a place that it
/// must not write.
enum class FailureSeverity { fatal, unsafe };

constexpr auto names_of(FailureSeverity) {
  return std::to_array<std::string_view>({"fatal", "unsafe"});
}

/// Returns the severity of an outcome that says something about the candidate itself. Returns
/// nullopt for success, for failures that a compile shows again at once, and for conditions such as
/// no memory or a lost device.
std::optional<FailureSeverity> lasting_severity(Outcome outcome);

/// A candidate that must not be run again.
struct Failure {
  std::string problem;  ///< canonical text
  Choice choice;
  FailureScope scope;
  Outcome outcome = Outcome::worker_died;
  std::string detail;
  std::string time;  ///< UTC, ISO 8601

  friend bool operator==(const Failure&, const Failure&) = default;
};

void describe(auto& visitor, MaybeConst<Failure> auto& failure) {
  visitor.field("problem", failure.problem);
  describe(visitor, failure.choice);
  visitor.field("scope", failure.scope);
  visitor.field("outcome", failure.outcome);
  std::optional<FailureSeverity> severity = lasting_severity(failure.outcome);
  visitor.field("severity", severity);  // it follows from the outcome
  visitor.field("detail", failure.detail);
  visitor.field("time", failure.time);
}

/// Keeps the failures that outlast a session. There is one file per operation and one line per
/// failure, and lines are only appended. Safe against other processes on the same directory. Lines
/// that cannot be read are ignored.
class FailureStore {
 public:
  explicit FailureStore(std::filesystem::path root) : root_(std::move(root)) {}

  /// Appends the failure. Errors: `invalid_argument` if its outcome does not last, or the problem
  /// names no operation; `io`.
  Result<void> put(const Failure& failure) const;

  /// Returns the failures of a problem that hold in the scope `now`, the latest one of each
  /// candidate. `template_digest` returns the present digest of each failure's template.
  std::vector<Failure> active(
      std::string_view problem, const FailureScope& now,
      const std::function<std::string(std::string_view kernel_template)>& template_digest) const;

 private:
  std::filesystem::path path(std::string_view problem) const;

  std::filesystem::path root_;
};

}  // namespace kernwright
