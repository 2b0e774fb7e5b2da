#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "compile/compile_pool.h"
#include "support/processes/process_exit.h"
#include "support/processes/subprocess.h"
#include "tuner/runner.h"
#include "tuner/worker/protocol.h"
#include <kernwright/result.h>

namespace kernwright {

struct WorkerOptions {
  std::filesystem::path program;  ///< see `find_tool`
  std::vector<std::string> arguments = {"worker"};
  int device = 0;
  std::string uuid = {};                  ///< of the device, for the audit
  std::filesystem::path cache_root = {};  ///< for the audit's baseline; may be empty
  double start_seconds = 60;              ///< for starting CUDA
  double floor_seconds = 2;               ///< least deadline of a request, see `WorkerRunner`
  /// Gets one line per failure and restart. May be empty.
  std::function<void(std::string_view)> log = {};
  /// Gets one line per process that runs. May be empty.
  std::function<void(std::string_view)> inform = {};
  /// Returns true if the process must end soon, and with it the request that it works on.
  std::function<bool()> stopped = exiting;
};

/// Starts, asks and replaces the measuring process of one GPU. The process is kept across problems,
/// so that CUDA starts once, and at most one problem is open in it. Used by one thread at a time.
/// Invariant: there is at most one process, and it is gone when this object is.
class Worker {
 public:
  /// `pool` compiles what the process asks for, and outlives this. Errors: the program cannot be
  /// started, speaks another protocol, or finds no GPU.
  static Result<std::unique_ptr<Worker>> start(WorkerOptions options, CompilePool& pool);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// An answer, or how the process ended instead of answering.
  struct Answer {
    std::optional<detail::Reply> reply;
    /// `timed_out` or `worker_died`, if there is no reply; the process is killed by then.
    Runner::Step ended;
  };

  /// Sends the request, with the artifact if there is one, and waits for the first reply.
  Answer ask(const detail::Request& request, double seconds, std::string_view artifact = {});
  /// The next reply to the same request.
  Answer next(double seconds);

  /// When the device had work of its processes since the last call.
  DeviceUse take_use() { return std::exchange(use_, {}); }

  /// Ends the process, whatever it does, and starts another. Returns how the old one ended, such as
  /// "signal 6 (SIGABRT): the end of its stderr". Errors: the errors of `start`; `device` if the
  /// old process cannot be ended, because the device is still at work.
  Result<std::string> restart();

  pid_t pid() const { return process_ ? process_->pid() : -1; }
  /// False after an answer without a reply, until `restart`.
  bool alive() const { return alive_; }

  /// Returns the number of problems that were opened. A runner that has another number must open
  /// its problem again.
  int opened() const { return opened_; }
  void count_opened() { ++opened_; }

  /// Ends the use of the device, because it is at fault.
  void give_up() { lost_ = true; }
  /// True after `give_up`, and once no process could be started any more.
  bool lost() const { return lost_; }
  const WorkerOptions& options() const { return options_; }
  void log(std::string_view line) const {
    if (options_.log) options_.log(line);
  }

 private:
  Worker(WorkerOptions options, CompilePool& pool) : options_(std::move(options)), pool_(pool) {}

  Result<void> spawn();
  Result<void> greet();
  Result<void> compile(const CompileRequest& request);
  Answer ended(Outcome outcome, std::string detail);

  WorkerOptions options_;
  CompilePool& pool_;
  std::optional<Subprocess> process_;
  /// All processes so far, for the audit: a killed process may still hold memory on the GPU.
  std::vector<int> own_pids_{::getpid()};
  std::map<Digest, std::shared_ptr<const CompiledKernel>> compiled_;
  DeviceUse use_;
  int opened_ = 0;
  bool alive_ = false;
  bool lost_ = false;
};

}  // namespace kernwright
