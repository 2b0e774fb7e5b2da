#include "tuner/worker/serve.h"

#include <chrono>
#include <exception>
#include <map>
#include <utility>
#include <variant>

#include "cache/stores/artifact_store.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/worker/remote_compiler.h"

namespace kernwright {
namespace {

using namespace detail;

/// The length of one piece of filler work. A request may have to wait for it.
constexpr double kFillerSeconds = 1e-4;
/// After this time without a request there is no more filler work.
constexpr double kForgottenSeconds = 0.2;

/// The state of the loop: the open problem and its runner.
class Server {
 public:
  Server(std::shared_ptr<SharedChannel> channel, RunnerFactory& factory)
      : channel_(std::move(channel)), factory_(factory) {}

  Result<void> run() {
    for (;;) {
      Result<Message> message = receive();
      if (!message) {
        const bool closed = message.error().code == ErrorCode::unavailable;
        return closed ? Result<void>() : message.error();
      }
      KW_ASSIGN(Request request, parse_request(message->text));
      file_ = std::move(message->file);
      const Result<void> answered = answer_safely(request);
      if (!answered || lost()) return answered;
    }
  }

 private:
  Result<Message> receive() {
    const MutexLock lock(channel_->mutex);
    if (runner_ != nullptr) fill_until_asked();
    return channel_->channel.receive();
  }
  void fill_until_asked() KW_REQUIRES(channel_->mutex) {
    const auto start = std::chrono::steady_clock::now();
    while (seconds_since(start) < kForgottenSeconds) {
      const auto asked = channel_->channel.readable(deadline_in(0));
      if (!asked || *asked) return;
      runner_->fill(kFillerSeconds);
    }
  }
  Result<void> reply(AnyReply content) {
    const DeviceUse use = runner_ != nullptr ? runner_->take_use() : DeviceUse{};
    const std::string text = encode(Reply{std::move(content), lost(), use});
    const MutexLock lock(channel_->mutex);
    return channel_->channel.send(text);
  }
  Result<void> fail(Error error) { return reply(ErrorReply{std::move(error)}); }

  bool lost() const { return runner_ != nullptr && runner_->lost(); }

  Result<void> answer_safely(const Request& request) {
    std::string what;
    try {
      return std::visit([this](const auto& r) { return answer(r); }, request);
    } catch (const std::exception& failure) {
      what = failure.what();
    } catch (...) {
      what = "unknown exception";
    }
    return fail({ErrorCode::internal, what});
  }

  /// Calls `call` with the open runner, and replies with the message that `wrap` makes of the
  /// result.
  template <typename Call, typename Wrap>
  Result<void> with_runner(Call call, Wrap wrap) {
    if (runner_ == nullptr) {
      return fail({ErrorCode::invalid_argument, "the worker has no problem open"});
    }
    auto result = call(*runner_);
    if (!result) return fail(result.error());
    return reply(wrap(std::move(result).value()));
  }

  Result<void> answer(const HelloRequest& r);
  Result<void> answer(const OpenRequest& r);
  Result<void> answer(const PrepareRequest& r);
  Result<void> answer(const SampleRequest& r);
  Result<void> answer(const CheckRequest& r) {
    return with_runner([&](Runner& runner) { return runner.check(r.id, r.depth); },
                       [](Runner::Checked checked) { return CheckReply{std::move(checked)}; });
  }
  Result<void> answer(const CheckAfterTimingRequest& r) {
    return with_runner([&](Runner& runner) { return runner.check_after_timing(r.id); },
                       [](Runner::Checked checked) { return CheckReply{std::move(checked)}; });
  }
  Result<void> answer(const LaunchGapRequest& r) {
    return with_runner([&](Runner& runner) { return runner.launch_gap_us(r.id); },
                       [](double us) { return LaunchGapReply{us}; });
  }
  Result<void> answer(const LaunchPathsRequest& r) {
    return with_runner([&](Runner& runner) { return runner.launch_paths(r.id); },
                       [](LaunchTimes paths) { return LaunchPathsReply{std::move(paths)}; });
  }
  Result<void> answer(const CountRequest& r) {
    return with_runner([&](Runner& runner) { return runner.count(r.id, r.cache); },
                       [](CounterSet counted) { return CountReply{std::move(counted)}; });
  }
  Result<void> answer(const AuditRequest&) {
    return with_runner([](Runner& runner) { return runner.audit(); },
                       [](Audit audit) { return AuditReply{std::move(audit)}; });
  }
  Result<void> answer(const DropRequest& r) {
    if (runner_ != nullptr) runner_->drop(r.id);
    return reply(DoneReply{});
  }
  Result<void> answer(const CloseRequest&) {
    runner_.reset();
    return reply(DoneReply{});
  }
  Result<void> answer(const CompiledRequest&) {
    return fail({ErrorCode::invalid_argument, "nobody asked for a compile"});
  }

  Result<void> load_catalog(const OpenRequest& r);

  std::shared_ptr<SharedChannel> channel_;
  RunnerFactory& factory_;
  bool started_ = false;
  FileDescriptor file_;  ///< the file that came with the request
  std::vector<std::string> template_dirs_, functions_;
  std::shared_ptr<const Catalog> catalog_;
  std::string catalog_digest_;
  std::optional<BoundProblem> problem_;  ///< of `runner_`
  std::unique_ptr<Runner> runner_;
};

Result<void> Server::answer(const HelloRequest& r) {
  if (r.protocol != kProtocol) {
    return fail({ErrorCode::unavailable, concat("the worker speaks protocol ", kProtocol,
                                                ", the tuning process ", r.protocol)});
  }
  const auto start = std::chrono::steady_clock::now();
  if (auto started = factory_.start(r, make_remote_compiler(channel_)); !started) {
    return fail(started.error());
  }
  started_ = true;
  return reply(HelloReply{kProtocol, seconds_since(start)});
}

Result<void> Server::load_catalog(const OpenRequest& r) {
  const bool known = catalog_ != nullptr && template_dirs_ == r.template_dirs &&
                     functions_ == r.functions && catalog_digest_ == r.catalog_digest;
  if (known) return {};
  KW_ASSIGN(auto catalog, Catalog::load({r.template_dirs.begin(), r.template_dirs.end()},
                                        {r.functions.begin(), r.functions.end()}));
  const std::string digest = detail::digest_of(*catalog);
  if (digest != r.catalog_digest) {
    return Error{ErrorCode::unavailable,
                 concat("the worker's templates are not those of the tuning process: digest ",
                        digest, " is not ", r.catalog_digest)};
  }
  catalog_ = std::move(catalog);
  template_dirs_ = r.template_dirs;
  functions_ = r.functions;
  catalog_digest_ = digest;
  return {};
}

Result<void> Server::answer(const OpenRequest& r) {
  const auto start = std::chrono::steady_clock::now();
  if (!started_) return fail({ErrorCode::invalid_argument, "the worker was not greeted"});
  runner_.reset();
  if (auto loaded = load_catalog(r); !loaded) return fail(loaded.error());
  Result<Problem> problem = Problem::parse(r.problem);
  if (!problem) return fail(problem.error());
  Result<BoundProblem> bound = catalog_->bind(*problem);
  if (!bound) return fail(bound.error());
  problem_ = *std::move(bound);
  DeviceRunnerOptions options;
  options.policy = r.policy;
  options.seed = r.seed;
  options.sample_ms = r.sample_ms;
  auto runner = factory_.open(*catalog_, *problem_, std::move(options));
  if (!runner) return fail(runner.error());
  runner_ = *std::move(runner);
  return reply(OpenReply{seconds_since(start)});
}

Result<void> Server::answer(const PrepareRequest& r) {
  if (runner_ == nullptr) {
    return fail({ErrorCode::invalid_argument, "the worker has no problem open"});
  }
  Result<const KernelTemplate*> found = catalog_->kernel_template(r.choice.kernel_template);
  if (!found) return fail(found.error());
  Result<Candidate> candidate =
      make_candidate(**found, *problem_, r.choice.configuration, factory_.profile());
  if (!candidate) return fail(candidate.error());
  Result<std::string> artifact = read_all(file_);
  if (!artifact) return fail(artifact.error());
  Result<CompiledKernel> kernel = decode_artifact(*artifact);
  if (!kernel) return fail(kernel.error());
  return with_runner([&](Runner& runner) { return runner.prepare(*candidate, *kernel); },
                     [](Runner::Prepared prepared) { return PrepareReply{std::move(prepared)}; });
}

Result<void> Server::answer(const SampleRequest& r) {
  std::map<Runner::Id, Runner::Step> failed;
  for (const Runner::Id id : r.order) {
    if (const auto known = failed.find(id); known != failed.end()) {
      KW_TRY(reply(SampledReply{{known->second, {}}}));
      continue;
    }
    bool goes_on = false;
    const Result<void> sent = with_runner([&](Runner& runner) { return runner.sample({&id, 1}); },
                                          [&](const std::vector<Runner::Sampled>& sampled) {
                                            goes_on = true;
                                            if (sampled.front().step.outcome != Outcome::ok)
                                              failed[id] = sampled.front().step;
                                            return SampledReply{sampled.front()};
                                          });
    if (!sent || !goes_on || lost()) return sent;
  }
  return {};
}

}  // namespace

Result<void> serve_runner(Channel channel, RunnerFactory& factory) {
  return Server(std::make_shared<SharedChannel>(std::move(channel)), factory).run();
}

}  // namespace kernwright
