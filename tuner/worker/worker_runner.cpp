#include "tuner/worker/worker_runner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "cache/stores/artifact_store.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/cost/cost_model.h"
#include "tuner/worker/open_problem.h"

namespace kernwright {
namespace {

using namespace detail;

/// A deadline is this many times the expected time of the candidate.
constexpr double kPatienceFactor = 20;
/// Units of work for deadlines: the units of a check (poisoned runs, exact test and repeats), and
/// the units that build the graphs of a sample.
constexpr double kScreeningUnits = 32;
constexpr double kFinalistUnits = 512;
constexpr double kSampleUnits = 64;
/// For loading CUPTI, planning its passes and reading what they counted, half a second in all.
constexpr double kCountSeconds = 20;
/// Requests that allocate much memory or load code have this many times the least deadline.
constexpr double kSlowFloors = 5;

/// A process may die for another reason, so its candidate is tried again, alone.
constexpr int kDeathsAllowed = 1;
/// The number of failures that are accepted without a candidate that caused them.
constexpr int kOwnFailuresAllowed = 2;

class WorkerRunner final : public Runner {
 public:
  WorkerRunner(Worker& worker, OpenRequest open, const DeviceProfile& profile)
      : worker_(worker), profile_(profile), problem_(worker, std::move(open)) {}

  Result<void> start() { return problem_.start(); }

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override;
  Result<Checked> check(Id id, CheckDepth depth) override;
  Result<Checked> check_after_timing(Id id) override;
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override;
  Result<double> launch_gap_us(Id id) override;
  Result<LaunchTimes> launch_paths(Id id) override;
  Result<CounterSet> count(Id id, L2State cache) override;
  Result<Audit> audit() override;
  DeviceUse take_use() override { return worker_.take_use(); }
  void drop(Id id) override;
  int epoch() const override { return problem_.epoch(); }
  bool lost() const override { return worker_.lost(); }

 private:
  /// A candidate, with everything that a new process needs for it.
  struct Live {
    std::string name;
    PrepareRequest request;
    std::string artifact;
    double us = 0;                           ///< first the predicted time, later the measured one
    Id there = -1;                           ///< its id in the process
    int epoch = -1;                          ///< the epoch of `there`
    int deaths = 0;                          ///< processes that died with it
    std::optional<Step> condemned = {};      ///< why it is never run again
    std::optional<CheckDepth> checked = {};  ///< the deepest check so far, in any process
  };

  /// The result of a request about a candidate: a reply, or the step that ended the candidate.
  struct Asked {
    std::optional<AnyReply> reply;
    Step step;
  };
  using MakeRequest = std::function<Request(Id there)>;

  bool is_prepared(const Live& live) const { return problem_.is_open() && live.epoch == epoch(); }
  double floor_seconds() const { return worker_.options().floor_seconds; }
  double patience(const Live& live, double units) const {
    return std::max(floor_seconds(), kPatienceFactor * units * live.us * 1e-6);
  }

  /// Replaces the process after a failure of `live`, or, if that is null, of the runner itself.
  /// Returns the step that ends the candidate; nothing if it may be tried again.
  std::optional<Step> recover(Live* live, Step failure);

  /// Sends the request, if necessary to one process after another, until there is an answer.
  Result<Asked> ask(Live& live, const MakeRequest& request, double seconds);
  /// Loads the candidate into this process. If it was checked in another process it is checked
  /// again, because later checks need its results. Gives a reply or a step; or neither, and sets
  /// `failure`.
  Result<Asked> load(Live& live, std::optional<Step>& failure);
  Result<Checked> ask_check(Live& live, const MakeRequest& request, double seconds);
  /// Asks for a figure of a candidate. If the candidate ends that is an error, as there is no step.
  Result<AnyReply> ask_of(Live& live, const MakeRequest& request, double seconds);
  double check_seconds(const Live& live, CheckDepth depth) const;

  /// The samples of one process: of all of `order`, or of the entries before the one that failed.
  struct Round {
    std::vector<Sampled> samples;
    std::optional<Step> failure;
  };
  Result<Round> sample_round(std::span<const Id> order);

  Worker& worker_;
  const DeviceProfile& profile_;
  OpenProblem problem_;
  int own_failures_ = 0;
  int checked_epoch_ = -1;  ///< the latest epoch in which a candidate was checked
  std::map<Id, Live> live_;
  Id next_id_ = 0;
};

std::optional<Runner::Step> WorkerRunner::recover(Live* live, Step failure) {
  const auto start = std::chrono::steady_clock::now();
  const std::string who = live != nullptr ? live->name : "the runner's own work";
  if (worker_.options().stopped()) {
    worker_.give_up();
    return Step{Outcome::device_lost, "the worker was told to stop"};
  }
  const auto at_fault = [&](std::string_view why) {
    worker_.give_up();
    Step step{Outcome::device_lost,
              concat("the device is at fault: ", why, "; after ", to_string(failure.outcome),
                     " of ", who, ": ", failure.detail)};
    worker_.log(concat("worker: ", step.detail));
    return step;
  };
  if (live == nullptr && ++own_failures_ > kOwnFailuresAllowed) {
    return at_fault("work of no candidate failed again");
  }
  const Result<std::string> end = problem_.replace();
  if (!end) return at_fault(end.error().message);
  if (failure.outcome == Outcome::worker_died) {
    failure.detail = concat("the worker ended with ", *end, " (", failure.detail, ')');
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  worker_.log(concat("worker: ", to_string(failure.outcome), " of ", who, ": ", failure.detail,
                     "; measuring again after ", seconds, " s, of which ", problem_.seconds(),
                     " s to open the problem"));
  if (live == nullptr) return std::nullopt;
  if (failure.outcome == Outcome::worker_died && live->deaths++ < kDeathsAllowed) {
    return std::nullopt;
  }
  live->condemned = failure;
  return failure;
}

Result<WorkerRunner::Asked> WorkerRunner::load(Live& live, std::optional<Step>& failure) {
  Worker::Answer answer = worker_.ask(live.request, floor_seconds() * kSlowFloors, live.artifact);
  failure = failure_in(answer);
  if (failure) return Asked{};
  const auto* prepared = std::get_if<PrepareReply>(&answer.reply->content);
  if (prepared == nullptr) return unexpected(answer.reply->content);
  if (prepared->prepared.step.outcome != Outcome::ok) {
    return Asked{std::nullopt, prepared->prepared.step};
  }
  live.there = prepared->prepared.id;
  live.epoch = epoch();
  if (!live.checked) return Asked{DoneReply{}, {}};
  answer = worker_.ask(CheckRequest{live.there, *live.checked}, check_seconds(live, *live.checked));
  failure = failure_in(answer);
  if (failure) return Asked{};
  const auto* checked = std::get_if<CheckReply>(&answer.reply->content);
  if (checked == nullptr) return unexpected(answer.reply->content);
  if (checked->checked.step.outcome != Outcome::ok) {
    return Asked{std::nullopt, checked->checked.step};
  }
  checked_epoch_ = epoch();
  return Asked{DoneReply{}, {}};
}

Result<WorkerRunner::Asked> WorkerRunner::ask(Live& live, const MakeRequest& request,
                                              double seconds) {
  for (;;) {
    KW_TRY(problem_.ensure());
    if (live.condemned) return Asked{std::nullopt, *live.condemned};
    std::optional<Step> failure;
    Result<Asked> asked = Asked{DoneReply{}, {}};
    if (!is_prepared(live)) {
      asked = load(live, failure);
      if (!failure && (!asked || !asked->reply)) return asked;
    }
    if (!failure && request) {
      Worker::Answer answer = worker_.ask(request(live.there), seconds);
      failure = failure_in(answer);
      if (!failure) {
        if (std::holds_alternative<ErrorReply>(answer.reply->content)) {
          return unexpected(answer.reply->content);
        }
        asked = Asked{std::move(answer.reply->content), {}};
      }
    }
    if (!failure) return asked;
    if (auto ended = recover(&live, *std::move(failure))) return Asked{std::nullopt, *ended};
  }
}

Result<Runner::Prepared> WorkerRunner::prepare(const Candidate& candidate,
                                               const CompiledKernel& kernel) {
  Live live;
  live.name = candidate.id();
  live.request = {candidate.choice()};
  live.artifact = encode_artifact(kernel);
  live.us = predict_us(candidate, profile_);
  KW_ASSIGN(Asked asked, ask(live, nullptr, 0));
  if (!asked.reply) return Prepared{-1, asked.step};
  const Id id = next_id_++;
  live_.emplace(id, std::move(live));
  return Prepared{id, {}};
}

double WorkerRunner::check_seconds(const Live& live, CheckDepth depth) const {
  const double seconds = depth == CheckDepth::finalist
                             ? kSlowFloors * patience(live, kFinalistUnits)
                             : patience(live, kScreeningUnits);
  // In its first check a process may also compute the references.
  return checked_epoch_ == epoch() ? seconds : seconds + 2 * problem_.seconds();
}

Result<Runner::Checked> WorkerRunner::ask_check(Live& live, const MakeRequest& request,
                                                double seconds) {
  KW_ASSIGN(Asked asked, ask(live, request, seconds));
  if (!asked.reply) return Checked{asked.step, {}};
  auto* checked = std::get_if<CheckReply>(&*asked.reply);
  if (checked == nullptr) return unexpected(*asked.reply);
  checked_epoch_ = epoch();
  return std::move(checked->checked);
}

Result<Runner::Checked> WorkerRunner::check(Id id, CheckDepth depth) {
  Live& live = live_.at(id);
  Result<Checked> checked = ask_check(
      live, [depth](Id there) { return CheckRequest{there, depth}; }, check_seconds(live, depth));
  if (checked && checked->step.outcome == Outcome::ok) live.checked = depth;
  return checked;
}

Result<Runner::Checked> WorkerRunner::check_after_timing(Id id) {
  Live& live = live_.at(id);
  return ask_check(
      live, [](Id there) { return CheckAfterTimingRequest{there}; }, patience(live, kSampleUnits));
}

Result<WorkerRunner::Round> WorkerRunner::sample_round(std::span<const Id> order) {
  Round round;
  SampleRequest request;
  for (const Id id : order) request.order.push_back(id < 0 ? id : live_.at(id).there);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double usual = kPatienceFactor * 3 * problem_.sample_seconds();
    const double seconds =
        order[i] < 0 ? floor_seconds() + usual : usual + patience(live_.at(order[i]), kSampleUnits);
    Worker::Answer answer = i == 0 ? worker_.ask(request, seconds) : worker_.next(seconds);
    round.failure = failure_in(answer);
    if (round.failure) return round;
    auto* sampled = std::get_if<SampledReply>(&answer.reply->content);
    if (sampled == nullptr) return unexpected(answer.reply->content);
    round.samples.push_back(std::move(sampled->sampled));
  }
  return round;
}

Result<std::vector<Runner::Sampled>> WorkerRunner::sample(std::span<const Id> order) {
  std::optional<Id> suspect;  // it is sampled alone first, then with all
  for (;;) {
    KW_TRY(problem_.ensure());
    const int epoch_before = epoch();
    std::vector<Id> wanted(order.begin(), order.end());
    if (suspect) wanted = {*suspect};
    std::map<Id, Step> failed;
    std::vector<Id> sampled;
    for (const Id id : wanted) {
      if (id >= 0 && !is_prepared(live_.at(id)) && !failed.contains(id)) {
        KW_ASSIGN(Asked asked, ask(live_.at(id), nullptr, 0));
        if (lost()) return std::vector<Sampled>(order.size(), Sampled{asked.step, {}});
        if (!asked.reply) failed[id] = asked.step;
      }
      if (id >= 0 && live_.at(id).condemned) failed[id] = *live_.at(id).condemned;
      if (!failed.contains(id)) sampled.push_back(id);
    }
    if (epoch() != epoch_before) continue;  // loading ended the process, so all are loaded again
    Round round;
    if (!sampled.empty()) {
      KW_ASSIGN(round, sample_round(sampled));
    }
    if (round.failure) {
      const Id id = sampled[round.samples.size()];
      const auto ended = recover(id < 0 ? nullptr : &live_.at(id), *round.failure);
      if (lost()) return std::vector<Sampled>(order.size(), Sampled{*ended, {}});
      suspect = ended || id < 0 ? std::nullopt : std::optional(id);
      continue;
    }
    if (std::exchange(suspect, std::nullopt)) continue;
    std::vector<Sampled> result;
    auto next = round.samples.begin();
    for (const Id id : order) {
      const auto failure = failed.find(id);
      result.push_back(failure != failed.end() ? Sampled{failure->second, {}} : std::move(*next++));
      if (id >= 0 && result.back().step.outcome == Outcome::ok) {
        live_.at(id).us = result.back().sample.us;
      }
    }
    return result;
  }
}

Result<AnyReply> WorkerRunner::ask_of(Live& live, const MakeRequest& request, double seconds) {
  KW_ASSIGN(Asked asked, ask(live, request, seconds));
  if (!asked.reply) {
    return Error{ErrorCode::device,
                 concat(live.name, ": ", to_string(asked.step.outcome), ' ', asked.step.detail)};
  }
  return *std::move(asked.reply);
}

Result<double> WorkerRunner::launch_gap_us(Id id) {
  KW_ASSIGN(const AnyReply reply,
            ask_of(
                live_.at(id), [](Id there) { return LaunchGapRequest{there}; },
                kSlowFloors * floor_seconds()));
  const auto* gap = std::get_if<LaunchGapReply>(&reply);
  if (gap == nullptr) return unexpected(reply);
  return gap->us;
}

Result<LaunchTimes> WorkerRunner::launch_paths(Id id) {
  Live& live = live_.at(id);
  KW_ASSIGN(AnyReply reply, ask_of(
                                live, [](Id there) { return LaunchPathsRequest{there}; },
                                kSlowFloors * patience(live, kSampleUnits)));
  auto* paths = std::get_if<LaunchPathsReply>(&reply);
  if (paths == nullptr) return unexpected(reply);
  return std::move(paths->paths);
}

Result<CounterSet> WorkerRunner::count(Id id, L2State cache) {
  Live& live = live_.at(id);
  KW_ASSIGN(AnyReply reply, ask_of(
                                live, [cache](Id there) { return CountRequest{there, cache}; },
                                kCountSeconds + patience(live, kSampleUnits)));
  auto* counted = std::get_if<CountReply>(&reply);
  if (counted == nullptr) return unexpected(reply);
  return std::move(counted->counted);
}

Result<Audit> WorkerRunner::audit() {
  for (;;) {
    KW_TRY(problem_.ensure());
    Worker::Answer answer = worker_.ask(AuditRequest{}, kSlowFloors * floor_seconds());
    if (auto failure = failure_in(answer)) {
      recover(nullptr, *std::move(failure));
      continue;
    }
    auto* audit = std::get_if<AuditReply>(&answer.reply->content);
    if (audit == nullptr) return unexpected(answer.reply->content);
    return std::move(audit->audit);
  }
}

void WorkerRunner::drop(Id id) {
  const Live& live = live_.at(id);
  if (!lost() && is_prepared(live)) {
    const auto failure =
        failure_in(worker_.ask(DropRequest{live.there}, kSlowFloors * floor_seconds()));
    if (failure) recover(nullptr, *failure);
  }
  live_.erase(id);
}

}  // namespace

Result<std::unique_ptr<Runner>> open_worker_runner(Worker& worker, const WorkerProblem& problem,
                                                   const DeviceRunnerOptions& options) {
  OpenRequest open;
  open.problem = problem.problem.text();
  for (const std::filesystem::path& folder : problem.template_dirs) {
    open.template_dirs.push_back(std::filesystem::absolute(folder).native());
  }
  for (const auto& function : problem.problem.operation().functions) {
    open.functions.push_back(std::filesystem::absolute(function->file).native());
  }
  open.catalog_digest = digest_of(problem.catalog);
  open.policy = options.policy;
  open.seed = options.seed;
  open.sample_ms = options.sample_ms;
  auto runner = std::make_unique<WorkerRunner>(worker, std::move(open), problem.profile);
  KW_TRY(runner->start());
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace kernwright
