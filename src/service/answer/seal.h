#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include <kernwright/result.h>
#include <kernwright/service.h>

namespace kernwright {

/// Decides whether a service may still compile. Thread-safe.
class Seal {
 public:
  /// `log` may be empty.
  explicit Seal(std::function<void(LogLevel, std::string_view)> log) : log_(std::move(log)) {}

  void close(SealMode mode) { state_ = mode == SealMode::error ? State::refusing : State::warning; }
  bool closed() const { return state_ != State::open; }
  /// Returns true if `admit` refuses.
  bool refuses() const { return state_ == State::refusing; }

  /// Must be asked before something is compiled for `problem`; `why` says in a few words what for.
  /// Once the seal is closed, each request is counted, and depending on the mode refused or written
  /// to the log. Errors: `refused`.
  Result<void> admit(std::string_view problem, std::string_view why);
  /// Returns the number of requests since the seal was closed.
  std::uint64_t counted() const { return counted_.load(std::memory_order_relaxed); }

 private:
  enum class State : std::uint8_t { open, warning, refusing };

  const std::function<void(LogLevel, std::string_view)> log_;
  std::atomic<State> state_{State::open};
  std::atomic<std::uint64_t> counted_{0};
};

}  // namespace kernwright
