#include "tuner/worker/worker.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include "cache/stores/artifact_store.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/audit/audit.h"

namespace kernwright {
namespace {

using namespace detail;

/// How long a killed process may take to end; after that it hangs in the driver.
constexpr double kKillSeconds = 10;
/// Compiles that are kept for the next process: the tuner's own kernels, and the kernels of a few
/// problems.
constexpr std::size_t kMaxCompiled = 64;

Error stopped() { return {ErrorCode::unavailable, "the worker was told to stop"}; }

/// Says how a process ended, with the end of its stderr.
std::string text_of(const ExitStatus& status, const Subprocess& process) {
  const std::string words = process.last_words();
  return words.empty() ? status.text() : concat(status.text(), ": ", words);
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(WorkerOptions options, CompilePool& pool) {
  std::unique_ptr<Worker> worker(new Worker(std::move(options), pool));
  KW_TRY(worker->spawn());
  KW_TRY(worker->greet());
  return worker;
}

Worker::~Worker() = default;

Result<void> Worker::spawn() {
  KW_ASSIGN(process_,
            Subprocess::spawn({options_.program, options_.arguments, injection_variables()}));
  process_->channel().give_up_when(options_.stopped);
  alive_ = true;
  own_pids_.push_back(process_->pid());
  const HelloRequest hello{.device = options_.device,
                           .uuid = options_.uuid,
                           .cache_root = options_.cache_root.native(),
                           .own_pids = own_pids_};
  // A failure shows as a missing answer, and the exit status then follows from the process.
  static_cast<void>(process_->channel().send(encode(Request{hello})));
  return {};
}

Result<void> Worker::greet() {
  const Answer answer = next(options_.start_seconds);
  if (!answer.reply) {
    if (options_.stopped()) return stopped();
    const std::optional<ExitStatus> status = process_->wait(deadline_in(kKillSeconds));
    return Error{
        ErrorCode::unavailable,
        concat("the worker ", options_.program.native(), " did not start: ", answer.ended.detail,
               ", ", status ? text_of(*status, *process_) : "it cannot be killed")};
  }
  if (const auto* error = std::get_if<ErrorReply>(&answer.reply->content)) return error->error;
  const auto* hello = std::get_if<HelloReply>(&answer.reply->content);
  if (hello == nullptr || hello->protocol != kProtocol) {
    return Error{ErrorCode::unavailable,
                 concat("the worker ", options_.program.native(), " speaks protocol ",
                        hello != nullptr ? hello->protocol : 0, ", not ", kProtocol)};
  }
  if (options_.inform) options_.inform(concat("worker: CUDA started in ", hello->seconds, " s"));
  return {};
}

Result<std::string> Worker::restart() {
  if (options_.stopped()) {
    lost_ = true;
    return stopped();
  }
  const auto start = std::chrono::steady_clock::now();
  lost_ = true;
  // The new process starts while the driver still destroys the old one's context.
  std::optional<Subprocess> old = std::exchange(process_, std::nullopt);
  if (old) old->kill();
  KW_TRY(spawn());
  std::string end;
  if (old) {
    const std::optional<ExitStatus> status = old->wait(deadline_in(kKillSeconds));
    if (!status) {
      return Error{ErrorCode::device, concat("GPU ", options_.device,
                                             " holds a killed process for ", kKillSeconds, " s")};
    }
    end = text_of(*status, *old);
  }
  const double stopped = seconds_since(start);
  KW_TRY(greet());
  lost_ = false;
  log(concat("worker: replaced in ", seconds_since(start), " s, of which ", stopped,
             " s until the old process was gone"));
  return end;
}

Worker::Answer Worker::ask(const Request& request, double seconds, std::string_view artifact) {
  if (!alive_) return {std::nullopt, {Outcome::worker_died, "there is no worker"}};
  FileDescriptor file;
  if (!artifact.empty()) {
    Result<FileDescriptor> made = memory_file("artifact", artifact);
    if (!made) return ended(Outcome::worker_died, made.error().message);
    file = *std::move(made);
  }
  const Result<void> sent =
      process_->channel().send(encode(request), file.get(), deadline_in(seconds));
  if (!sent && sent.error().code == ErrorCode::timed_out) {
    return ended(Outcome::timed_out, concat("the request was not read within ", seconds, " s"));
  }
  // The last reply of a process that ended may still be there to read.
  return next(seconds);
}

Worker::Answer Worker::next(double seconds) {
  if (!alive_) return {std::nullopt, {Outcome::worker_died, "there is no worker"}};
  for (;;) {
    Result<Message> message = process_->channel().receive(deadline_in(seconds));
    if (!message) {
      if (message.error().code == ErrorCode::timed_out) {
        return ended(Outcome::timed_out, concat("no answer within ", seconds, " s"));
      }
      return ended(Outcome::worker_died, message.error().message);
    }
    Result<Reply> reply = parse_reply(message->text);
    if (!reply) return ended(Outcome::worker_died, reply.error().message);
    use_.append(reply->use);
    const auto* wanted = std::get_if<CompileReply>(&reply->content);
    if (wanted == nullptr) return {*std::move(reply), {}};
    // The request's deadline starts again, because it is for the worker and not for the compiler.
    if (auto sent = compile(wanted->request); !sent) {
      return ended(Outcome::worker_died, sent.error().message);
    }
  }
}

Result<void> Worker::compile(const CompileRequest& request) {
  std::shared_ptr<const CompiledKernel>& kernel = compiled_[request.digest({})];
  Channel& channel = process_->channel();
  if (kernel == nullptr) {
    const CompileResult result = pool_.submit(request).get();
    if (!result) {
      return channel.send(
          encode(Request{CompiledRequest{result.error().code, result.error().message}}));
    }
    kernel = *result;
  }
  KW_ASSIGN(FileDescriptor file, memory_file("artifact", encode_artifact(*kernel)));
  KW_TRY(channel.send(encode(Request{CompiledRequest{}}), file.get()));
  if (compiled_.size() > kMaxCompiled) compiled_.clear();
  return {};
}

Worker::Answer Worker::ended(Outcome outcome, std::string detail) {
  alive_ = false;
  process_->kill();  // if it has ended already, its status stays
  return {std::nullopt, {outcome, std::move(detail)}};
}

}  // namespace kernwright
