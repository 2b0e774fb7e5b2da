#include "compile/process_compiler.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "compile/compile_messages.h"
#include "support/processes/find_tool.h"
#include "support/processes/process_exit.h"
#include "support/processes/subprocess.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using namespace detail;

constexpr double kIdleSeconds = 60;
/// The time that a process that closed its channel may take to end.
constexpr double kReapSeconds = 1;

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// One compile process. It is told the first request before it has greeted, which saves a wait.
class CompileProcess {
 public:
  static Result<CompileProcess> start(const CompileProcesses& options,
                                      std::function<bool()> stopped = exiting) {
    KW_ASSIGN(Subprocess process, Subprocess::spawn({options.program, options.arguments, {}}));
    process.channel().give_up_when(std::move(stopped));
    return CompileProcess(std::move(process));
  }

  /// Waits for the greeting, once. Errors: `unavailable` if the program is not of this build.
  Result<void> greet(Deadline deadline) {
    if (greeted_) return {};
    const Result<Message> first = process_.channel().receive(deadline);
    if (!first) return Error{ErrorCode::unavailable, concat("it did not start: ", end())};
    if (first->text != compile_greeting()) {
      return Error{ErrorCode::unavailable, concat("it is not of this build, ", compile_greeting())};
    }
    greeted_ = true;
    return {};
  }

  /// Sends an order. Errors: `timed_out`; others if the process has ended.
  Result<void> tell(std::string_view order, Deadline deadline) {
    return process_.channel().send(order, -1, deadline);
  }
  Result<std::string> answer(Deadline deadline) {
    KW_ASSIGN(Message message, process_.channel().receive(deadline));
    return std::move(message.text);
  }

  /// Returns how it ended, once its channel is closed.
  std::string end() {
    process_.kill();  // if it has ended already, its status stays
    const std::optional<ExitStatus> status = process_.wait(deadline_in(kReapSeconds));
    const std::string words = process_.last_words();
    return concat(status ? status->text() : "it cannot be killed", words.empty() ? "" : ": ",
                  words);
  }
  void kill() { process_.kill(); }
  bool has_ended() { return process_.wait(deadline_in(0)).has_value(); }

 private:
  explicit CompileProcess(Subprocess process) : process_(std::move(process)) {}

  Subprocess process_;
  bool greeted_ = false;
};

class ProcessCompiler final : public Compiler {
 public:
  ProcessCompiler(std::unique_ptr<Compiler> here, CompileProcesses processes)
      : here_(std::move(here)), options_(std::move(processes)) {}
  ~ProcessCompiler() override {
    for (CompileProcess& process : idle_) process.kill();  // all at once, and then each is reaped
  }
  ProcessCompiler(const ProcessCompiler&) = delete;
  ProcessCompiler& operator=(const ProcessCompiler&) = delete;

  Result<std::string> identity() override { return here_->identity(); }
  std::string headers_identity(const CompileRequest& request) override {
    return here_->headers_identity(request);
  }
  std::string linker_identity() override { return here_->linker_identity(); }
  ToolkitFiles files(const CompileRequest& request) override { return here_->files(request); }
  Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                              const std::string& target) override {
    return here_->link(lto_ir, target);
  }

  void stop() override { stop_ = true; }

  Result<CompiledKernel> compile(const CompileRequest& request) override {
    std::optional<CompileProcess> process = take_idle();
    const std::string order = encode(CompileOrder{here_->files(request), request});
    std::string ended;
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (!process) process = start();
      if (stopped()) break;
      if (!process) return here_->compile(request);
      const Deadline deadline = deadline_in(seconds_of(options_.deadline));
      const Result<void> told = process->tell(order, deadline);
      if (const Result<void> greeted = process->greet(deadline); !greeted) {
        if (stopped()) break;
        stop_starting(greeted.error().message);
        return here_->compile(request);
      }
      const Result<std::string> answer =
          told ? process->answer(deadline) : Result<std::string>(told.error());
      if (answer) {
        keep(*std::move(process));
        return decode_answer(*answer);
      }
      if (answer.error().code == ErrorCode::timed_out) {
        return Error{ErrorCode::timed_out,
                     concat(request.name, ": compile for ", request.target, " ended after ",
                            options_.deadline.count(), " ms; ", more_compile_time())};
      }
      ended = process->end();
      process.reset();
    }
    if (stopped()) {
      return Error{ErrorCode::unavailable, concat(request.name, ": the compile was stopped")};
    }
    return Error{ErrorCode::compile,
                 concat(request.name, ": the compile process ended, ", ended, ", twice")};
  }

 private:
  bool stopped() const { return stop_ || exiting(); }

  /// Takes the process that was used last, whose memory is warm.
  std::optional<CompileProcess> take_idle() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::nullopt;
    std::optional<CompileProcess> process = std::move(idle_.back());
    idle_.pop_back();
    return process;
  }

  void keep(CompileProcess process) {
    const std::lock_guard lock(mutex_);
    std::erase_if(idle_, [](CompileProcess& one) { return one.has_ended(); });
    idle_.push_back(std::move(process));
  }

  /// Returns nullopt if no process can be started.
  std::optional<CompileProcess> start() {
    {
      const std::lock_guard lock(mutex_);
      if (!may_start_) return std::nullopt;
    }
    Result<CompileProcess> started = CompileProcess::start(options_, [this] { return stopped(); });
    if (started) return *std::move(started);
    stop_starting(started.error().message);
    return std::nullopt;
  }

  void stop_starting(std::string_view why) {
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(may_start_, false)) return;
    }
    if (options_.log) options_.log(concat("compiles run on threads of this process: ", why));
  }

  const std::unique_ptr<Compiler> here_;
  const CompileProcesses options_;
  std::mutex mutex_;
  std::vector<CompileProcess> idle_;
  bool may_start_ = true;
  std::atomic<bool> stop_{false};
};

}  // namespace

std::unique_ptr<Compiler> make_process_compiler(std::unique_ptr<Compiler> here,
                                                CompileProcesses processes) {
  return std::make_unique<ProcessCompiler>(std::move(here), std::move(processes));
}

std::unique_ptr<Compiler> make_toolkit_compiler_in_processes(
    const std::filesystem::path& tool, std::function<void(std::string_view)> log) {
  Result<std::filesystem::path> program = find_tool(tool);
  if (!program) return make_toolkit_compiler();
  CompileProcesses processes;
  processes.program = *std::move(program);
  processes.log = std::move(log);
  return make_process_compiler(make_toolkit_compiler(), std::move(processes));
}

Result<void> try_compile_process(const std::filesystem::path& tool) {
  CompileProcesses processes;
  KW_ASSIGN(processes.program, find_tool(tool));
  KW_ASSIGN(CompileProcess process, CompileProcess::start(processes));
  return process.greet(deadline_in(seconds_of(processes.deadline)));
}

Result<void> serve_compiles(Channel channel,
                            const std::function<std::unique_ptr<Compiler>(ToolkitFiles)>& make) {
  KW_TRY(channel.send(compile_greeting()));
  std::unique_ptr<Compiler> compiler;
  ToolkitFiles files;
  for (;;) {
    const Result<bool> asked = channel.readable(deadline_in(kIdleSeconds));
    if (!asked || !*asked) return asked ? Result<void>() : Result<void>(asked.error());
    const Result<Message> message = channel.receive();
    if (!message) {
      const bool closed = message.error().code == ErrorCode::unavailable;
      return closed ? Result<void>() : message.error();
    }
    KW_ASSIGN(CompileOrder order, decode_order(message->text));
    if (compiler == nullptr || order.files != files) {
      files = order.files;
      compiler = make(files);
    }
    Result<CompiledKernel> answer = Error{ErrorCode::internal, ""};
    try {
      answer = compiler->compile(order.request);
    } catch (const std::exception& failure) {
      answer = Error{ErrorCode::internal, concat(order.request.name, ": ", failure.what())};
    }
    KW_TRY(channel.send(encode(answer)));
  }
}

}  // namespace kernwright
