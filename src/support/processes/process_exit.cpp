#include "support/processes/process_exit.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <pthread.h>
#include <thread>

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> exit_begun{false};

/// The work that has begun, in all threads and in one, by `BeforeExit::Wait`. A fork leaves the
/// other threads behind, so its child begins anew.
std::array<std::atomic<int>, 2> begun{};
thread_local std::array<int, 2> begun_here{};

constexpr std::array<std::chrono::seconds, 2> kLongest{std::chrono::seconds(1),
                                                       std::chrono::seconds(60)};

void wait_for_work() {
  exit_begun = true;
  static const Clock::time_point since = Clock::now();  // of the first handler
  for (std::size_t kind = 0; kind < begun.size(); ++kind) {
    while (begun[kind] > begun_here[kind] && Clock::now() < since + kLongest[kind]) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void forget_other_threads() {
  for (std::size_t kind = 0; kind < begun.size(); ++kind) begun[kind] = begun_here[kind];
}

}  // namespace

bool exiting() { return exit_begun; }

bool heed_exit() {
  static const int at_fork = ::pthread_atfork(nullptr, nullptr, forget_other_threads);
  return at_fork == 0 && std::atexit(wait_for_work) == 0;
}

BeforeExit::BeforeExit(Wait wait) : wait_(wait) {
  const auto kind = static_cast<std::size_t>(wait_);
  ++begun[kind];  // before it looks, so that the exit sees this or this sees the exit
  begun_ = !exiting();
  if (begun_) {
    ++begun_here[kind];
  } else {
    --begun[kind];
  }
}

BeforeExit::~BeforeExit() {
  if (!begun_) return;
  const auto kind = static_cast<std::size_t>(wait_);
  --begun_here[kind];
  --begun[kind];
}

}  // namespace kernwright
