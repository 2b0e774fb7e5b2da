#include "compile/compile_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kClosed = "not started, the compile pool was closed";

std::shared_future<CompileResult> ended_with(CompileResult result) {
  std::promise<CompileResult> promise;
  promise.set_value(std::move(result));
  return promise.get_future().share();
}

/// Returns the error, with a user's files in place of the headers that were passed to the compiler.
Error with_user_files(Error error, const CompileRequest& request) {
  for (const auto& [header, file] : request.user_files) {
    const std::string line = concat(header, '(');
    for (std::size_t at = 0; (at = error.message.find(line, at)) != std::string::npos;) {
      error.message.replace(at, header.size(), file);
      at += file.size();
    }
  }
  return error;
}

/// Calls `find_or_compile`; an exception becomes an error of the request.
CompileResult run(const CompileRequest& request,
                  const std::function<CompileResult()>& find_or_compile) {
  try {
    return find_or_compile();
  } catch (const std::exception& failure) {
    return Error{ErrorCode::internal, concat(request.name, ": ", failure.what())};
  } catch (...) {
    return Error{ErrorCode::internal, concat(request.name, ": unknown exception")};
  }
}

int default_threads() {
  const int cores = available_cores();
  return std::max(std::min(cores, 2), cores - 2);
}

}  // namespace

/// The state of a pool. The runners share it, so that an abandoned compile that never ends keeps
/// only this alive and not the pool. A runner is a thread that compiles one job after another until
/// none is left.
///
/// Invariants, under the mutex: overrun <= runners <= threads, and overrun is the number of
/// running jobs past their deadline. No job in `by_digest` is answered.
struct CompilePool::State : std::enable_shared_from_this<State> {
  struct Job {
    CompileRequest request;
    std::string digest;
    std::promise<CompileResult> promise;
    std::shared_future<CompileResult> future;
    std::weak_ptr<const void> wanted;  ///< see `Build::wanted`
    Clock::time_point deadline;
    bool answered = false;
  };
  using JobPtr = std::shared_ptr<Job>;

  State(std::shared_ptr<Compiler> compiler_in, CompilePoolOptions options,
        std::shared_ptr<CompileCache> cache_in)
      : compiler(std::move(compiler_in)),
        cache(std::move(cache_in)),
        threads(options.threads > 0 ? options.threads : default_threads()),
        deadline(options.deadline) {}

  /// Makes a `Build` of the job.
  static Build build_of(Job& job) {
    std::shared_ptr<const void> wanted = job.wanted.lock();
    if (wanted == nullptr) job.wanted = wanted = std::make_shared<char>();
    return {.digest = job.digest, .kernel = job.future, .wanted = std::move(wanted)};
  }

  void answer(Job& job, CompileResult result) {
    if (job.answered) return;
    job.answered = true;
    by_digest.erase(job.digest);
    job.promise.set_value(std::move(result));
  }

  /// Answers all jobs that have not started.
  void drop_queue(ErrorCode code, std::string_view why) {
    for (const JobPtr& job : queue) {
      answer(*job, Error{code, concat(job->request.name, ": ", why)});
    }
    queue.clear();
  }

  /// Starts as many runners as the queue may have; fewer if no more threads can be started.
  void add_runners() {
    for (std::size_t waiting = queue.size(); waiting > 0 && runners < threads; --waiting) {
      Result<Thread> runner = Thread::start([self = shared_from_this()] { self->work(); });
      if (!runner) {
        if (runners == overrun) drop_queue(runner.error().code, runner.error().message);
        break;
      }
      runner->detach();  // an abandoned compile may outlive the pool
      ++runners;
    }
    if (overrun == threads) {
      drop_queue(ErrorCode::timed_out, "not started, every thread runs an abandoned compile");
    }
  }

  CompileResult compile(const CompileRequest& request) {
    const Clock::time_point start = Clock::now();
    Result<CompiledKernel> kernel = compiler->compile(request);
    compile_ns += std::chrono::nanoseconds(Clock::now() - start).count();
    ++compiled;
    if (!kernel) return with_user_files(std::move(kernel).error(), request);
    return std::make_shared<const CompiledKernel>(*std::move(kernel));
  }

  CompileResult find_or_compile(const Job& job) {
    const auto compile_it = [&] { return compile(job.request); };
    return cache ? cache->find_or_compile(job.digest, compile_it) : compile_it();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!queue.empty()) {
      const JobPtr job = queue.front();
      queue.pop_front();
      if (job->wanted.expired()) {
        answer(*job, Error{ErrorCode::unavailable,
                           concat(job->request.name, ": not started, nobody waits for it")});
        continue;
      }
      job->deadline = Clock::now() + deadline;
      running.push_back(job);
      changed.notify_all();
      lock.unlock();
      CompileResult result = run(job->request, [&] { return find_or_compile(*job); });
      lock.lock();
      running.erase(std::find(running.begin(), running.end(), job));
      if (job->answered) --overrun;
      answer(*job, std::move(result));
    }
    --runners;
    changed.notify_all();
  }

  /// Answers requests that have not begun, and later ones, with an error.
  void close() {
    const std::lock_guard lock(mutex);
    stopped = true;
    drop_queue(ErrorCode::unavailable, kClosed);
  }

  /// Waits for the compiles that have begun. A compile that is abandoned meanwhile is waited for no
  /// longer.
  void drain() {
    std::unique_lock lock(mutex);
    // The watchdog still runs, so a compile that does not end in time becomes overrun.
    changed.wait(lock, [this] { return runners == overrun; });
  }

  /// Abandons compiles at their deadline, until the pool closes.
  void watch() {
    std::unique_lock lock(mutex);
    while (!finished) {
      std::optional<Clock::time_point> next;
      for (const JobPtr& job : running) {
        if (job->answered) continue;
        if (job->deadline <= Clock::now()) {
          ++overrun;
          answer(*job, Error{ErrorCode::timed_out,
                             concat(job->request.name, ": compile for ", job->request.target,
                                    " abandoned after ", deadline.count(), " ms; ",
                                    more_compile_time())});
          changed.notify_all();
        } else if (!next || job->deadline < *next) {
          next = job->deadline;
        }
      }
      add_runners();
      if (next) {
        changed.wait_until(lock, *next);
      } else {
        changed.wait(lock);
      }
    }
  }

  const std::shared_ptr<Compiler> compiler;
  const std::shared_ptr<CompileCache> cache;
  const int threads;
  const std::chrono::milliseconds deadline;
  std::atomic<int> compiled{0};
  std::atomic<std::int64_t> compile_ns{0};

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<JobPtr> queue;
  std::vector<JobPtr> running;
  std::map<std::string, JobPtr> by_digest;
  int runners = 0;
  int overrun = 0;
  bool stopped = false;
  bool finished = false;
  bool watched = false;
  Thread watchdog;
};

bool Build::ended() const {
  return kernel.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CompilePool::CompilePool(std::shared_ptr<Compiler> compiler, CompilePoolOptions options,
                         std::shared_ptr<CompileCache> cache)
    : state_(std::make_shared<State>(std::move(compiler), options, std::move(cache))) {}

void CompilePool::stop() {
  state_->close();
  if (state_->cache) state_->cache->stop();
  state_->compiler->stop();
}

CompilePool::~CompilePool() {
  state_->close();
  state_->drain();
  {
    const std::lock_guard lock(state_->mutex);
    state_->finished = true;
    state_->changed.notify_all();
  }
  state_->watchdog.join();
}

Result<std::string> CompilePool::digest(const CompileRequest& request) {
  KW_ASSIGN(const std::string identity, state_->compiler->identity());
  return artifact_digest(request, identity, *state_->compiler).hex();
}

bool CompilePool::keeps(const std::string& digest) const {
  return state_->cache && state_->cache->find(digest);
}

Build CompilePool::submit(CompileRequest request) {
  Result<std::string> digest_of_it = digest(request);
  if (!digest_of_it) {
    return {.digest = {}, .kernel = ended_with(std::move(digest_of_it).error()), .wanted = {}};
  }
  return submit(std::move(request), *std::move(digest_of_it));
}

Build CompilePool::submit(CompileRequest request, std::string digest) {
  if (state_->cache) {
    if (auto kept = state_->cache->find(digest)) {
      return {.digest = std::move(digest),
              .kernel = ended_with(std::move(kept)),
              .stored = true,
              .wanted = {}};
    }
  }
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->by_digest.find(digest); found != state_->by_digest.end()) {
    return State::build_of(*found->second);
  }
  if (state_->stopped) {
    return {
        .digest = std::move(digest),
        .kernel = ended_with(Error{ErrorCode::unavailable, concat(request.name, ": ", kClosed)}),
        .wanted = {}};
  }
  auto job = std::make_shared<State::Job>();
  job->request = std::move(request);
  job->digest = std::move(digest);
  job->future = job->promise.get_future().share();
  Build build = State::build_of(*job);
  state_->by_digest.emplace(job->digest, job);
  state_->queue.push_back(job);
  if (!state_->watched) {
    Result<Thread> watchdog = Thread::start([state = state_.get()] { state->watch(); });
    if (!watchdog) {
      state_->drop_queue(watchdog.error().code, watchdog.error().message);
      return build;
    }
    state_->watchdog = *std::move(watchdog);
    state_->watched = true;
  }
  state_->add_runners();
  return build;
}

int CompilePool::threads() const { return state_->threads; }

int CompilePool::compiled() const { return state_->compiled; }

std::chrono::nanoseconds CompilePool::compile_time() const {
  return std::chrono::nanoseconds(state_->compile_ns);
}

Compiler& CompilePool::compiler() { return *state_->compiler; }

}  // namespace kernwright
