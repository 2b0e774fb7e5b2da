#include "support/processes/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/processes/process_exit.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kStackBytes = std::size_t{8} << 20;

/// Returns the process that started the first thread; 0 if none was started.
std::atomic<pid_t>& first_starter() {
  static std::atomic<pid_t> starter{0};
  return starter;
}

void* run(void* given) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(given));
  (*work)();
  return nullptr;
}

}  // namespace

std::string limit_of_threads() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return " (the container's limit of processes, pids.max, may be reached)";
  }
  return concat(
      " (user ", ::getuid(), " may have ", limit.rlim_cur,
      " processes and threads, RLIMIT_NPROC; a container may have a limit too, pids.max)");
}

Result<void> check_not_forked() {
  const pid_t starter = first_starter().load();
  if (starter == 0 || starter == ::getpid()) return {};
  return Error{ErrorCode::unavailable,
               concat("process ", ::getpid(), " was forked from process ", starter,
                      " after kernwright had started threads there, which a fork leaves behind; "
                      "start a new process, or fork before kernwright is used")};
}

Result<Thread> Thread::start(std::function<void()> work) {
  pid_t starter = 0;
  if (!first_starter().compare_exchange_strong(starter, ::getpid())) {
    KW_TRY(check_not_forked());
  }
  [[maybe_unused]] static const bool heeded = heed_exit();
  auto kept = std::make_unique<std::function<void()>>(std::move(work));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const int code = ::pthread_create(&thread, &attributes, run, kept.get());
  ::pthread_attr_destroy(&attributes);
  if (code != 0) {
    return Error{ErrorCode::unavailable,
                 concat("cannot start a thread: ", std::generic_category().message(code),
                        limit_of_threads())};
  }
  [[maybe_unused]] const auto* given_to_the_thread = kept.release();
  return Thread(thread);
}

Thread::Thread(Thread&& other) noexcept
    : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  std::swap(thread_, other.thread_);
  std::swap(joinable_, other.joinable_);
  return *this;
}

void Thread::join() {
  if (std::exchange(joinable_, false)) ::pthread_join(thread_, nullptr);
}

void Thread::detach() {
  if (std::exchange(joinable_, false)) ::pthread_detach(thread_);
}

int available_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // beyond 1024
}

void parallel_for(std::size_t count, const std::function<void(std::size_t)>& call) {
  // All cores work on the outer calls, and each thread that starts costs a lock of the process.
  thread_local bool is_inside = false;
  if (is_inside) {
    for (std::size_t i = 0; i < count; ++i) call(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::once_flag first;
  std::exception_ptr thrown;
  const auto work = [&] {
    is_inside = true;
    try {
      for (std::size_t i = next++; i < count; i = next++) call(i);
    } catch (...) {
      next = count;
      std::call_once(first, [&] { thrown = std::current_exception(); });
    }
    is_inside = false;
  };
  {
    std::vector<Thread> others;
    const std::size_t wanted = std::min(count, static_cast<std::size_t>(available_cores()));
    while (others.size() + 1 < wanted) {
      Result<Thread> other = Thread::start(work);
      if (!other) break;
      others.push_back(*std::move(other));
    }
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace kernwright
