#pragma once

#include <optional>
#include <string>

#include "tuner/runner.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/worker.h"
#include <kernwright/result.h>

namespace kernwright::detail {

/// A problem in a worker. It is opened there, opened again in every process that replaces the one
/// before, and closed at the end. After each replacement a canary, the SM probe kernel, must run
/// about as fast as when the problem was first opened. If it does not, the device is at fault.
class OpenProblem {
 public:
  OpenProblem(Worker& worker, OpenRequest request)
      : worker_(worker), request_(std::move(request)) {}
  ~OpenProblem();
  OpenProblem(const OpenProblem&) = delete;
  OpenProblem& operator=(const OpenProblem&) = delete;

  /// Opens the problem for the first time. Errors: the worker's; the canary's.
  Result<void> start();

  /// Opens it again if the process is another, or has had another problem since. Errors as `start`.
  Result<void> ensure();
  bool is_open() const { return worker_.alive() && opened_ == worker_.opened(); }

  /// Replaces the process. Returns how the old one ended. Errors: why the device is at fault.
  Result<std::string> replace();

  /// Counts the times it was opened, from 0.
  int epoch() const { return epoch_; }
  /// Returns the seconds that this process took to open it.
  double seconds() const { return seconds_; }
  double sample_seconds() const { return request_.sample_ms * 1e-3; }

 private:
  Result<void> open();
  Result<double> canary_us(int samples, double limit_us);

  Worker& worker_;
  OpenRequest request_;
  int opened_ = -1;
  int epoch_ = -1;
  double seconds_ = 0;
  double canary_us_ = 0;  ///< when first opened
};

/// The failure in an answer that leaves no process to go on with.
std::optional<Runner::Step> failure_in(const Worker::Answer& answer);

/// The error in a reply that is not the one asked for.
Error unexpected(const AnyReply& reply);

}  // namespace kernwright::detail
