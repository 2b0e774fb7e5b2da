#include "bench/common/mutant_examiner.h"

#include <chrono>
#include <memory>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "compile/compile_pool.h"
#include "device/cuda/cuda_device.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tuner/measure/device_runner.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

/// A kernel that takes longer hangs.
constexpr std::chrono::milliseconds kDeviceDeadline{3'000};
/// Seconds of one examination, the start of CUDA included.
constexpr double kReplySeconds = 40;
/// The least deadlines of the measuring worker for each depth; it kills candidates that take
/// longer.
constexpr double kScreeningSeconds = 2;
constexpr double kFinalistSeconds = 10;

Json to_json(const Examination& made, bool lost) {
  return {{"lost", lost},
          {"ran", made.ran},
          {"outcome", to_string(made.outcome)},
          {"found_by", made.found_by},
          {"detail", made.detail},
          {"max_error", made.report.max_error},
          {"exact", made.report.exact},
          {"guarded", made.report.guarded},
          {"unmapped", made.report.unmapped},
          {"repeats", made.report.repeats}};
}

Examination from_json(const Json& json) {
  Examination made;
  made.ran = json.at("ran").get<bool>();
  made.outcome =
      parse_as<Outcome>(json.at("outcome").get<std::string>()).value_or(Outcome::worker_died);
  made.found_by = json.at("found_by").get<std::string>();
  made.detail = json.at("detail").get<std::string>();
  made.report.max_error = json.at("max_error").get<double>();
  made.report.exact = json.at("exact").get<bool>();
  made.report.guarded = json.at("guarded").get<bool>();
  made.report.unmapped = json.at("unmapped").get<bool>();
  made.report.repeats = json.at("repeats").get<int>();
  return made;
}

/// The process's side: one device, one problem open at a time.
class Laboratory {
 public:
  Examination examine(const Json& request, const CompiledKernel& kernel) {
    Examination made;
    if (auto done = examine(request, kernel, made); !done) made.detail = done.error().message;
    return made;
  }
  bool lost() const { return device_ && device_->lost(); }

 private:
  Result<void> examine(const Json& request, const CompiledKernel& kernel, Examination& made) {
    if (auto ready = start(request); !ready) return ready;
    const auto kernel_template =
        catalog_->kernel_template(request.at("template").get<std::string>());
    if (!kernel_template) return kernel_template.error();
    const auto operation = catalog_->operation((*kernel_template)->operation);
    if (!operation) return operation.error();
    const auto parsed = Problem::parse(request.at("problem").get<std::string>());
    if (!parsed) return parsed.error();
    const auto problem = BoundProblem::bind(**operation, *parsed);
    if (!problem) return problem.error();
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (const Json& value : request.at("configuration")) {
      values.emplace_back(value.at(0).get<std::string>(), value.at(1).get<std::int64_t>());
    }
    const auto candidate = make_candidate(**kernel_template, *problem,
                                          Configuration(std::move(values)), device_->profile());
    if (!candidate) return candidate.error();
    if (auto ready = open(*problem, request); !ready) return ready;
    made.ran = true;
    run_checks(*candidate, kernel, made);
    return {};
  }

  Result<void> start(const Json& request) {
    if (data_ops_) return {};
    auto catalog = Catalog::load({request.at("template_dir").get<std::string>()});
    if (!catalog) return catalog.error();
    catalog_ = *std::move(catalog);
    pool_ = std::make_unique<CompilePool>(std::shared_ptr<Compiler>(make_toolkit_compiler()),
                                          CompilePoolOptions{.threads = 2});
    auto device = open_cuda_device(0, {.deadline = kDeviceDeadline});
    if (!device) return device.error();
    device_ = *std::move(device);
    auto data_ops = make_device_data_ops(*device_, *pool_);
    if (!data_ops) return data_ops.error();
    data_ops_ = *std::move(data_ops);
    return {};
  }

  Result<void> open(const BoundProblem& problem, const Json& request) {
    if (runner_ && problem_ == problem.problem()) return {};
    runner_.reset();
    DeviceRunnerOptions options;
    options.policy.l2 = L2State::warm;
    options.seed = request.at("seed").get<std::uint64_t>();
    options.disposable = true;
    auto runner = open_device_runner(*device_, *data_ops_, problem, *catalog_, *pool_, options);
    if (!runner) return runner.error();
    runner_ = *std::move(runner);
    problem_ = problem.problem();
    return {};
  }

  void run_checks(const Candidate& candidate, const CompiledKernel& kernel, Examination& made) {
    const auto found = [&](const char* by, const Runner::Step& step) {
      made.outcome = step.outcome;
      made.detail = step.detail;
      if (step.outcome != Outcome::ok) made.found_by = by;
      return step.outcome != Outcome::ok;
    };
    const auto broke = [&](const char* by, const Error& error) {
      found(by, {Outcome::device_lost, error.message});
    };
    const auto prepared = runner_->prepare(candidate, kernel);
    if (!prepared) return broke("prepare", prepared.error());
    if (found("prepare", prepared->step)) return;
    constexpr struct {
      Runner::CheckDepth depth;
      const char* by;
      double seconds;
    } kDepths[] = {{Runner::CheckDepth::screening, "screening", kScreeningSeconds},
                   {Runner::CheckDepth::finalist, "finalist", kFinalistSeconds}};
    for (const auto& [depth, by, seconds] : kDepths) {
      const auto start = std::chrono::steady_clock::now();
      const auto checked = runner_->check(prepared->id, depth);
      if (!checked) return broke(by, checked.error());
      made.report = checked->report;
      if (found(by, checked->step)) break;
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (taken.count() > seconds) {
        found(by, {Outcome::timed_out, concat("right after ", taken.count(), " s")});
        break;
      }
    }
    if (!runner_->lost()) runner_->drop(prepared->id);
  }

  std::shared_ptr<const Catalog> catalog_;
  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DataOps> data_ops_;
  std::unique_ptr<Runner> runner_;
  Problem problem_;
};

}  // namespace

Examination MutantExaminer::examine(const Candidate& candidate, const CompiledKernel& kernel) {
  const auto start = std::chrono::steady_clock::now();
  Examination made;
  const auto cannot = [&](const Error& error) {
    process_.reset();
    made.detail = error.message;
    return made;
  };
  if (!process_) {
    auto spawned = Subprocess::spawn({"/proc/self/exe", {kExaminerOption}, {}});
    if (!spawned) return cannot(spawned.error());
    process_ = *std::move(spawned);
    ++seed_;
  }
  const Json request = {{"template_dir", template_dir_.native()},
                        {"template", candidate.kernel_template->name},
                        {"problem", candidate.problem->text()},
                        {"configuration", candidate.configuration.values()},
                        {"seed", seed_},
                        {"target", kernel.target}};
  const auto bits = memory_file("cubin", kernel.bits);
  if (!bits) return cannot(bits.error());
  if (auto sent = process_->channel().send(request.dump(), bits->get()); !sent) {
    return cannot(sent.error());
  }
  const Result<Message> reply = process_->channel().receive(deadline_in(kReplySeconds));
  bool lost = true;
  if (reply) {
    const Json json = Json::parse(reply->text);
    made = from_json(json);
    lost = json.at("lost").get<bool>();
  } else {
    made.ran = true;
    made.found_by = "process";
    made.outcome =
        reply.error().code == ErrorCode::timed_out ? Outcome::timed_out : Outcome::worker_died;
    made.detail = concat(reply.error().message, "; ", process_->last_words());
  }
  if (lost) process_.reset();
  made.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return made;
}

int serve_examinations() {
  Result<Channel> channel = inherited_channel();
  if (!channel) return 2;
  Laboratory laboratory;
  while (true) {
    const Result<Message> message = channel->receive();
    if (!message) _exit(0);  // a lost context must not be torn down in order
    CompiledKernel kernel;
    Result<std::string> bits = read_all(message->file);
    if (!bits) _exit(3);
    kernel.bits = *std::move(bits);
    const Json request = Json::parse(message->text);
    kernel.target = request.at("target").get<std::string>();
    const Examination made = laboratory.examine(request, kernel);
    // Output of a kernel may not be text: it never gets here unescaped.
    const std::string reply =
        to_json(made, laboratory.lost()).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (auto sent = channel->send(reply); !sent) _exit(0);
  }
}

}  // namespace kernwright
