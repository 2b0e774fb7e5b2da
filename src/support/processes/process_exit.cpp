#include "support/processes/process_exit.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> exit_begun{false};
std::atomic<std::thread::id> exiting_thread;  // written before

/// How much has begun, of all threads and of one, by `BeforeExit::Late`. A fork leaves the threads
/// of others behind, so its child begins anew.
std::array<std::atomic<int>, 2> begun{};
thread_local std::array<int, 2> begun_here{};

constexpr std::chrono::milliseconds kLongest{800};

bool runs_elsewhere(BeforeExit::Late late) {
  const auto kind = static_cast<std::size_t>(late);
  return begun[kind] > begun_here[kind];
}

void wait_for_work(int status, void*) {
  exiting_thread = std::this_thread::get_id();
  exit_begun = true;
  static const Clock::time_point since = Clock::now();  // of the first handler
  while ((runs_elsewhere(BeforeExit::Late::goes_on) || runs_elsewhere(BeforeExit::Late::ends)) &&
         Clock::now() < since + kLongest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!runs_elsewhere(BeforeExit::Late::ends)) return;
  std::fflush(nullptr);
  ::_exit(status);
}

void forget_other_threads() {
  for (std::size_t kind = 0; kind < begun.size(); ++kind) begun[kind] = begun_here[kind];
}

}  // namespace

bool exiting() { return exit_begun; }

bool heed_exit() {
  static const int at_fork = ::pthread_atfork(nullptr, nullptr, forget_other_threads);
  return at_fork == 0 && ::on_exit(wait_for_work, nullptr) == 0;
}

BeforeExit::BeforeExit(Late late) : late_(late) {
  const auto kind = static_cast<std::size_t>(late_);
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
  const auto kind = static_cast<std::size_t>(late_);
  --begun_here[kind];
  --begun[kind];
}

void linger_while_exiting() {
  if (exiting() && exiting_thread.load() != std::this_thread::get_id()) {
    std::this_thread::sleep_for(kLongest);
  }
}

}  // namespace kernwright
