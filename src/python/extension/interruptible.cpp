#include "python/extension/interruptible.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "python/extension/python.h"

namespace kernwright::python {
namespace {

/// The time that a signal may wait for its handler.
constexpr std::chrono::milliseconds kBetweenLooks{50};

/// Returns false with a Python error set.
bool hand_on(const ServiceState& service) {
  return service.log == nullptr || service.log->hand_on();
}

}  // namespace

bool run_interruptibly(const ServiceState& service, const std::function<void()>& work,
                       const std::function<bool()>& meanwhile) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread worker;
  try {
    worker = std::thread([&] {
      work();
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    });
  } catch (const std::system_error&) {  // no more threads: it runs here, and signals wait
    const WithoutGil released;
    work();
  }
  if (!worker.joinable()) {
    return hand_on(service);
  }
  bool interrupted = false;
  for (bool ended = false; !ended;) {
    {
      const WithoutGil released;
      std::unique_lock lock(mutex);
      ended = changed.wait_for(lock, kBetweenLooks, [&] { return done; });
    }
    if (interrupted || (hand_on(service) && (ended || PyErr_CheckSignals() == 0) &&
                        (ended || !meanwhile || meanwhile()))) {
      continue;
    }
    interrupted = true;
    if (!ended) kw_stop_tuning(service.handle);
  }
  worker.join();
  return !interrupted;
}

}  // namespace kernwright::python
