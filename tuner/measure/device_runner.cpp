#include "tuner/measure/device_runner.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "support/text.h"
#include "support/try.h"
#include "tuner/check/checker.h"
#include "tuner/check/examiner.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/probe_kernels.h"
#include "tuner/data/workspace.h"
#include "tuner/measure/unit_sampler.h"

namespace kernwright {
namespace {

/// The length of filler work for an audit, which reads facts for some tens of milliseconds.
constexpr double kAuditSeconds = 0.04;
/// The time and the buffer sets for a winner's launch paths. Two sets, as in an engine that swaps
/// two buffers.
constexpr double kPathSeconds = 0.1;
constexpr std::size_t kPathSets = 2;
/// The length of filler work before that, while graphs of one launch are built.
constexpr double kPathGraphSeconds = 0.003;
/// Unloading takes the host 0.4 ms, during which the device idles. So up to this many dropped
/// candidates are kept, and mostly unloaded after the last sample.
constexpr std::size_t kKeptDropped = 256;
/// A single disagreement of the timers may be an accident; a greater share of samples is not.
constexpr double kTimerShare = 0.02;
/// How many times the L2 is read to clean it: its replacement is not strictly by age.
constexpr std::int64_t kCleaningPasses = 4;
/// Launches that bring a kernel's tensors into the L2.
constexpr int kWarmingRuns = 2;

/// In this order, so that the graph is destroyed before the program.
struct Loaded {
  Subject subject;
  TimedWork timed;
  ExecutionPlan launches;  ///< the plan's launches alone
};

/// The candidate with the largest values of the parameters that count in chains alone.
Result<Candidate> reading_most_ahead(const Candidate& candidate, const DeviceProfile& profile) {
  auto values = candidate.configuration.values();
  const std::vector<Parameter>& parameters = candidate.kernel_template->space.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].binding == Binding::chain) {
      values[i].second = std::ranges::max(parameters[i].values);
    }
  }
  return make_candidate(*candidate.kernel_template, *candidate.problem,
                        Configuration(std::move(values)), profile);
}

class DeviceRunner final : public Runner {
 public:
  DeviceRunner(Device& device, DataOps& data_ops, BufferSets sets, Checker checker,
               ProbeKernels probes, const DeviceRunnerOptions& options)
      : device_(device),
        data_ops_(data_ops),
        sets_(std::move(sets)),
        checker_(std::move(checker)),
        probes_(std::move(probes)),
        workspace_(red_zone_bytes(sets_.shapes())),
        examiner_(device, data_ops, sets_, checker_, workspace_, *probes_.dram(),
                  options.disposable),
        sampler_(device, data_ops, sets_, probes_, options.policy.l2, options.sample_ms * 1000),
        audit_(options.audit) {
    for (const TensorShape& shape : sets_.shapes()) {
      in_place_ = in_place_ || shape.role == TensorRole::inout;
    }
    sm_probe_.sets = {{{probes_.sm().get(), {}}}};
    dram_probe_.sets = {{{probes_.dram().get(), {}}}};
  }

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override;
  Result<Checked> check(Id id, CheckDepth depth) override {
    return examiner_.examine(loaded_.at(id).subject, depth);
  }
  Result<Checked> check_after_timing(Id id) override;
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override;
  Result<double> launch_gap_us(Id id) override;
  Result<LaunchTimes> launch_paths(Id id) override;
  Result<CounterSet> count(Id id, L2State cache) override;
  Result<Audit> audit() override;
  DeviceUse take_use() override { return device_.take_use(); }
  void fill(double seconds) override {
    sampler_.fill(seconds);
    static_cast<void>(device_.wait());
  }
  void drop(Id id) override;
  bool lost() const override { return device_.lost(); }

 private:
  /// The step for the candidate that made the last failed call of the device.
  Step failure(const Error& error) const {
    const Outcome outcome = device_.last_failure();
    return {outcome == Outcome::ok ? Outcome::launch_failed : outcome, error.message};
  }
  Sampled sample_of(Id id);

  /// Reads other memory until the L2 holds nothing else, and no dirty line: a kernel would need to
  /// write it back, and be charged with the bytes.
  Result<void> clean_l2();

  Device& device_;
  DataOps& data_ops_;
  BufferSets sets_;
  Checker checker_;
  ProbeKernels probes_;
  Workspace workspace_;
  Examiner examiner_;
  UnitSampler sampler_;
  std::function<Audit(const std::function<void()>&)> audit_;
  bool in_place_ = false;
  TimedWork sm_probe_;
  TimedWork dram_probe_;
  std::unique_ptr<DeviceBuffer> other_memory_;  ///< of `clean_l2`
  std::map<Id, Loaded> loaded_;
  std::deque<Loaded> dropped_;
  std::map<std::string, double> launch_gaps_us_;  ///< by launch shape
  Id next_id_ = 0;
};

Result<Runner::Prepared> DeviceRunner::prepare(const Candidate& candidate,
                                               const CompiledKernel& kernel) {
  Prepared prepared;
  Loaded loaded;
  Subject& subject = loaded.subject;
  subject.workspace_bytes = candidate.plan.workspace_bytes();
  subject.kept_zero = candidate.plan.kept_zero();
  const auto moved = workspace_.reserve(device_, subject.workspace_bytes);
  if (!moved) {
    prepared.step = {Outcome::out_of_memory, moved.error().message};
    return prepared;
  }
  if (moved.value()) {  // older graphs have the old address
    for (auto& [id, other] : loaded_) {
      other.timed.units.reset();
      for (WorkUnit& set : other.timed.sets) {
        set.front().arguments.workspace = workspace_.address();
      }
    }
  }
  auto program = device_.load(kernel.bits, candidate.plan);
  if (!program) {
    prepared.step = failure(program.error());
    return prepared;
  }
  subject.program = std::move(program).value();
  if (reads_ahead(candidate.plan)) {
    subject.ahead = subject.program;
    const auto most = reading_most_ahead(candidate, device_.profile());
    if (most && !same_in_chain(most->plan, candidate.plan)) {
      KW_ASSIGN(subject.ahead, device_.load(kernel.bits, most->plan));
    }
  }
  subject.tensors = candidate.plan.tensors;
  for (const Scalar& scalar : candidate.plan.scalars) {
    subject.scalars.push_back(scalar.checked_value);
  }
  for (int set = 0; set < sets_.count(); ++set) {
    loaded.timed.sets.push_back({{subject.program.get(), examiner_.arguments(subject, set)}});
  }
  loaded.launches.launches = candidate.plan.launches;
  prepared.id = next_id_++;
  loaded_.emplace(prepared.id, std::move(loaded));
  return prepared;
}

Runner::Sampled DeviceRunner::sample_of(Id id) {
  const auto sample = id == kSmProbe     ? sampler_.sample_bare(sm_probe_)
                      : id == kDramProbe ? sampler_.sample_bare(dram_probe_)
                                         : sampler_.sample(loaded_.at(id).timed);
  if (!sample) return {failure(sample.error()), {}};
  return {{}, sample.value()};
}

void DeviceRunner::drop(Id id) {
  auto node = loaded_.extract(id);
  if (node.empty()) return;
  dropped_.push_back(std::move(node.mapped()));
  if (dropped_.size() > kKeptDropped) dropped_.pop_front();
}

Result<Runner::Checked> DeviceRunner::check_after_timing(Id id) {
  Loaded& loaded = loaded_.at(id);
  if (in_place_) return examiner_.examine_once(loaded.subject);
  if (auto done = sampler_.build(loaded.timed); !done) {
    return Checked{failure(done.error()), loaded.subject.report};
  }
  const bool all_sets = loaded.timed.length >= sets_.count();
  return examiner_.examine_replay(loaded.subject, all_sets, [&] { return sample_of(id).step; });
}

Result<std::vector<Runner::Sampled>> DeviceRunner::sample(std::span<const Id> order) {
  std::vector<Sampled> result;
  result.reserve(order.size());
  std::map<Id, Step> failed;
  for (const Id id : order) {
    if (const auto known = failed.find(id); known != failed.end()) {
      result.push_back({known->second, {}});
      continue;
    }
    result.push_back(sample_of(id));
    if (result.back().step.outcome != Outcome::ok) failed.emplace(id, result.back().step);
  }
  return result;
}

Result<double> DeviceRunner::launch_gap_us(Id id) {
  const ExecutionPlan& plan = loaded_.at(id).launches;
  const std::string shape = ProbeKernels::launch_shape(plan);
  if (const auto known = launch_gaps_us_.find(shape); known != launch_gaps_us_.end()) {
    return known->second;
  }
  KW_ASSIGN(auto program, probes_.empty(device_, plan));
  TimedWork empty;
  empty.sets = {{{program.get(), {}}}};
  KW_ASSIGN(const auto sample, sampler_.sample_bare(empty));
  return launch_gaps_us_.emplace(shape, sample.us).first->second;
}

Result<LaunchTimes> DeviceRunner::launch_paths(Id id) {
  const Loaded& loaded = loaded_.at(id);
  std::vector<LaunchArguments> sets;
  for (const WorkUnit& set : loaded.timed.sets) {
    if (sets.size() < kPathSets) sets.push_back(set.front().arguments);
  }
  sampler_.fill(kPathGraphSeconds);
  return device_.time_launch_paths(*loaded.subject.program, sets, kPathSeconds);
}

Result<void> DeviceRunner::clean_l2() {
  if (other_memory_ == nullptr) {
    const std::int64_t bytes = kCleaningPasses * device_.profile().l2_bytes;
    KW_ASSIGN(other_memory_, device_.allocate(bytes));
    KW_TRY(device_.fill(other_memory_->address(), 0, bytes));
  }
  const MemoryRegion region{other_memory_->address(), other_memory_->bytes()};
  KW_TRY(data_ops_.enqueue_hash({&region, 1}));
  KW_TRY(data_ops_.take_findings());
  return {};
}

Result<CounterSet> DeviceRunner::count(Id id, L2State cache) {
  const Loaded& loaded = loaded_.at(id);
  const LoadedProgram& program = *loaded.subject.program;
  const LaunchArguments& arguments = loaded.timed.sets.front().front().arguments;
  KW_ASSIGN(CounterSet counted, device_.count(program, arguments, [&]() -> Result<void> {
    if (cache == L2State::cold) return clean_l2();
    for (int run = 0; run < kWarmingRuns; ++run) {
      KW_TRY(device_.enqueue(program, arguments));
    }
    return device_.wait();
  }));
  counted.cache = cache;
  return counted;
}

Result<Audit> DeviceRunner::audit() {
  Audit audit = audit_ ? audit_([this] { sampler_.fill(kAuditSeconds); }) : Audit{};
  KW_TRY(device_.wait());
  const TimerCheck check = device_.take_timer_check();
  AuditRow row{"event_timer", Trust::a,
               concat("events and global timer agree in ", check.samples - check.disagreed, " of ",
                      check.samples, " samples")};
  if (check.disagreed != 0) {
    row.detail += concat("; in one they said ", check.event_us, " us and ", check.timer_us, " us");
  }
  if (check.disagreed > 1 && check.disagreed > kTimerShare * check.samples) row.trust = Trust::c;
  audit.rows.push_back(std::move(row));
  return audit;
}

}  // namespace

Result<void> check_policy(const MeasurePolicy& policy, const Operation& operation) {
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::invalid_argument,
                 concat("the policy \"", policy.text(), "\" cannot be measured: ", why)};
  };
  const bool marked = std::any_of(operation.tensors.begin(), operation.tensors.end(),
                                  [](const Tensor& tensor) { return tensor.warm; });
  if (policy.l2 == L2State::mixed && !marked) {
    return refuse(concat("l2=mixed needs tensors marked \"l2\": \"warm\", and operation ",
                         operation.name, " marks none"));
  }
  return {};
}

Result<std::unique_ptr<Runner>> open_device_runner(Device& device, DataOps& data_ops,
                                                   const BoundProblem& problem,
                                                   const Catalog& catalog, CompilePool& pool,
                                                   const DeviceRunnerOptions& options) {
  KW_TRY(check_policy(options.policy, problem.operation()));
  // Compiled while the buffers are drawn and the reference runs.
  const auto probe_bits = pool.submit(ProbeKernels::request(device.profile().sm_arch));
  KW_ASSIGN(auto drawer, InputDrawer::make(device, pool, problem, catalog));
  KW_ASSIGN(const std::int64_t moved, problem.operation().bytes.evaluate(problem.scope()));
  KW_ASSIGN(auto sets,
            BufferSets::make(device, data_ops, problem.shapes(), options.policy.l2, options.seed,
                             {.exact = exact_draw(problem),
                              .nan = true,
                              .count = true,
                              .drawer = std::move(drawer),
                              .moved_bytes = moved}));
  KW_ASSIGN(auto checker, Checker::make(device, data_ops, problem, catalog, pool, sets));
  KW_ASSIGN(auto probes, ProbeKernels::make(device, probe_bits.get()));
  return std::unique_ptr<Runner>(std::make_unique<DeviceRunner>(
      device, data_ops, std::move(sets), std::move(checker), std::move(probes), options));
}

}  // namespace kernwright
