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

/// The work that has begun, in all threads and in one, by `BeforeExit::Late`. A fork leaves the
/// other threads behind, so its child begins anew.
std::array<std::atomic<int>, 3> begun{};
thread_local std::array<int, 3> begun_here{};

constexpr std::chrono::milliseconds kLongest{800};

bool runs_elsewhere(BeforeExit::Late late) {
  const auto kind = static_cast<std::size_t>(late);
  return begun[kind] > begun_here[kind];
}

/// Returns true if the process would crash if it went on now.
bool would_crash() {
  return runs_elsewhere(BeforeExit::Late::ends) || runs_elsewhere(BeforeExit::Late::loads);
}

template <typename Condition>
void wait_while(Clock::time_point since, const Condition& holds) {
  while (holds() && Clock::now() < since + kLongest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void wait_for_work(int status, void*) {
  exiting_thread = std::this_thread::get_id();
  exit_begun = true;
  static const Clock::time_point since = Clock::now();  // of the first handler
  wait_while(since, [] {
    // Handlers of a library that is being loaded have run, and freed what it uses.
    return !runs_elsewhere(BeforeExit::Late::loads) &&
           (would_crash() || runs_elsewhere(BeforeExit::Late::goes_on));
  });
  if (!would_crash()) return;
  std::fflush(nullptr);
  ::_exit(status);
}

/// Waits at the end of a thread while others load. If the thread exits the process, that comes
/// before all handlers, also before the handlers of the library that is being loaded.
struct AtThreadEnd {
  ~AtThreadEnd() {
    wait_while(Clock::now(), [] { return runs_elsewhere(BeforeExit::Late::loads); });
  }
};

/// Keeps our handler in front of the handlers that libraries register while they are loaded, which
/// would take a library down in the middle if a thread without `AtThreadEnd` exited.
void* stay_in_front(void*) {
  while (begun[static_cast<std::size_t>(BeforeExit::Late::loads)] > 0 && !exiting()) {
    heed_exit();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return nullptr;
}

void start_to_stay_in_front() {
  pthread_t thread{};  // none beyond a limit, and not of `Thread`, after which no fork may load
  if (::pthread_create(&thread, nullptr, stay_in_front, nullptr) == 0) ::pthread_detach(thread);
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
  [[maybe_unused]] thread_local const AtThreadEnd waits;
  // Before it looks, so that the exit sees this or this sees the exit.
  const bool first = begun[kind]++ == 0;
  begun_ = !exiting();
  if (begun_) {
    ++begun_here[kind];
    if (first && late_ == Late::loads) start_to_stay_in_front();
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
