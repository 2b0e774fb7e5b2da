#include "tuner/check/examiner.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Checked = Runner::Checked;
using Step = Runner::Step;

/// The bytes that fill outputs and workspace before a run: NaN in every float format, or a large
/// finite number. A result that depends on them is wrong.
constexpr std::uint8_t kPoisons[] = {0xFF, 0x7B};
constexpr int kScreeningRuns = 3;
constexpr int kFinalistRuns = 50;
/// The number of runs between two waits, so that the deadline of a wait is not for all runs
/// together.
constexpr int kRunsPerWait = 10;

}  // namespace

LaunchArguments Examiner::arguments(const Subject& subject, int set) const {
  LaunchArguments arguments;
  arguments.tensors = sets_.addresses(set, subject.tensors);
  arguments.scalars = subject.scalars;
  arguments.workspace = workspace_.address();
  return arguments;
}

Result<Step> Examiner::failed(const Error& error) {
  if (error.code != ErrorCode::device && error.code != ErrorCode::timed_out &&
      error.code != ErrorCode::invalid_argument) {
    return error;
  }
  const Outcome outcome = device_.last_failure();
  Step step{outcome == Outcome::ok ? Outcome::launch_failed : outcome, error.message};
  if (!device_.lost()) {
    // The findings of work that was enqueued before the failure are dropped.
    if (auto rest = data_ops_.take_findings(); !rest && !device_.lost()) return rest.error();
  }
  return step;
}

Result<void> Examiner::enqueue_run(const Subject& subject, int set, std::uint8_t poison) {
  KW_TRY(sets_.poison(device_, data_ops_, set, poison));
  KW_TRY(workspace_.poison(device_, subject.workspace_bytes, poison));
  return device_.enqueue(*subject.program, arguments(subject, set));
}

Result<void> Examiner::enqueue_run_ahead(const Subject& subject, int set, std::uint8_t poison) {
  if (!subject.ahead) return enqueue_run(subject, set, poison);
  KW_TRY(sets_.poison(device_, data_ops_, set, poison));
  KW_TRY(workspace_.poison(device_, subject.workspace_bytes, poison));
  KW_TRY(device_.enqueue(disturber_, {}));
  return device_.enqueue(*subject.ahead, arguments(subject, set), true);
}

Result<void> Examiner::enqueue_repeats(const Subject& subject, int runs, Numbers& numbers) {
  for (int run = 0; run < runs; ++run) {
    // For finalists half of the runs are disturbed, and half find an empty L2, on two buffer sets.
    const bool disturbed = runs > kScreeningRuns && (run & 1) != 0;
    const bool emptied = runs > kScreeningRuns && (run & 2) != 0;
    const int set = (run & 4) != 0 || run == kScreeningRuns - 1 ? sets_.twin() : 0;
    if (emptied) {
      KW_TRY(device_.enqueue(disturber_, {}));
    }
    if (disturbed) {
      KW_TRY(device_.enqueue_beside(disturber_, {}));
    }
    const std::uint8_t poison = kPoisons[(run + 1) % 2];
    KW_TRY(run % 2 == 0 ? enqueue_run(subject, set, poison)
                        : enqueue_run_ahead(subject, set, poison));
    KW_TRY(enqueue_kept(subject, numbers));
    const std::vector<DevicePointer> addresses = sets_.addresses(set);
    if (run == 0) {
      KW_ASSIGN(numbers.realistic, checker_.enqueue(data_ops_, 0, addresses));
    }
    KW_ASSIGN(const auto hash, data_ops_.enqueue_hash(checker_.outputs(addresses)));
    numbers.hashes.push_back(hash);
    if (run % kRunsPerWait == kRunsPerWait - 1) {
      KW_TRY(device_.wait());
    }
  }
  return {};
}

Result<void> Examiner::enqueue_watch(const Subject& subject, Numbers& numbers) {
  std::vector<MemoryRegion> regions;
  for (const WatchedRegion& watched : sets_.watched()) regions.push_back(watched.region);
  KW_ASSIGN(numbers.watched, data_ops_.enqueue_hash(regions));
  KW_ASSIGN(numbers.zones_after, data_ops_.enqueue_hash(workspace_.zones(subject.workspace_bytes)));
  return {};
}

std::vector<MemoryRegion> Examiner::kept_zero(const Subject& subject) const {
  std::vector<MemoryRegion> regions;
  for (const WorkspacePart& part : subject.kept_zero) {
    regions.push_back({workspace_.address() + static_cast<DevicePointer>(part.offset), part.bytes});
  }
  return regions;
}

Result<void> Examiner::enqueue_zeros(const Subject& subject, Numbers& numbers) {
  const std::vector<MemoryRegion> regions = kept_zero(subject);
  for (const MemoryRegion& region : regions) {
    KW_TRY(device_.fill(region.address, 0, region.bytes));
  }
  KW_ASSIGN(numbers.zeros, data_ops_.enqueue_hash(regions));
  return {};
}

Result<void> Examiner::enqueue_kept(const Subject& subject, Numbers& numbers) {
  KW_ASSIGN(const auto first, data_ops_.enqueue_hash(kept_zero(subject)));
  numbers.kept.push_back(first);
  return {};
}

Result<Examiner::Numbers> Examiner::enqueue_examination(const Subject& subject, int runs) {
  Numbers numbers;
  KW_TRY(workspace_.guard(device_, subject.workspace_bytes));
  KW_ASSIGN(numbers.zones_before,
            data_ops_.enqueue_hash(workspace_.zones(subject.workspace_bytes)));
  KW_TRY(enqueue_zeros(subject, numbers));
  KW_TRY(enqueue_run(subject, first_set(), kPoisons[0]));
  KW_TRY(enqueue_kept(subject, numbers));
  KW_ASSIGN(numbers.first_run,
            checker_.enqueue(data_ops_, first_set(), sets_.addresses(first_set())));
  if (sets_.has_count_set()) {
    KW_TRY(enqueue_run(subject, BufferSets::kCountSet, kPoisons[1]));
    KW_TRY(enqueue_kept(subject, numbers));
    KW_ASSIGN(numbers.count, checker_.enqueue(data_ops_, BufferSets::kCountSet,
                                              sets_.addresses(BufferSets::kCountSet)));
  }
  KW_TRY(enqueue_repeats(subject, runs, numbers));
  if (sets_.has_nan_set()) {
    // Outputs are filled with numbers, because old NaNs could be taken for written ones.
    KW_TRY(enqueue_run(subject, BufferSets::kNanSet, kPoisons[1]));
    KW_TRY(enqueue_kept(subject, numbers));
    KW_ASSIGN(numbers.nan, checker_.enqueue(data_ops_, BufferSets::kNanSet,
                                            sets_.addresses(BufferSets::kNanSet)));
  }
  KW_TRY(enqueue_watch(subject, numbers));
  return numbers;
}

Result<Checked> Examiner::examine(Subject& subject, Runner::CheckDepth depth) {
  const bool finalist = depth == Runner::CheckDepth::finalist;
  const bool after_timing = subject.report.after_timing;
  subject.report = {};
  subject.report.after_timing = after_timing;
  const auto judge = [&]() -> Result<Step> {
    const auto numbers = enqueue_examination(subject, finalist ? kFinalistRuns : kScreeningRuns);
    if (!numbers) return failed(numbers.error());
    const auto findings = data_ops_.take_findings();
    if (!findings) return failed(findings.error());
    auto step = judge_examination(subject, numbers.value(), findings.value());
    if (!step || step.value().outcome != Outcome::ok || !finalist || !disposable_) return step;
    return run_fenced(subject);
  };
  KW_ASSIGN(auto step, judge());
  return Checked{std::move(step), subject.report};
}

Result<Step> Examiner::judge_examination(Subject& subject, const Numbers& numbers,
                                         std::span<const Finding> findings) {
  CheckReport& report = subject.report;
  auto step = judge_watched(subject, numbers, findings);
  if (!step || step.value().outcome != Outcome::ok) return step;
  report.guarded = true;
  if (Step kept = judge_kept(subject, numbers, findings); kept.outcome != Outcome::ok) return kept;

  const int first = first_set();
  step = judge_values(report, first, sets_.addresses(first), findings, numbers.first_run);
  if (!step || step.value().outcome != Outcome::ok) return step;
  report.exact = sets_.has_exact_set();

  step = judge_values(report, 0, sets_.addresses(0), findings, numbers.realistic);
  if (!step || step.value().outcome != Outcome::ok) return step;
  if (sets_.has_count_set()) {
    step = judge_values(report, BufferSets::kCountSet, sets_.addresses(BufferSets::kCountSet),
                        findings, numbers.count);
    if (!step || step.value().outcome != Outcome::ok) return step;
  }
  step = judge_repeats(subject, numbers, findings);
  if (!step || step.value().outcome != Outcome::ok || !sets_.has_nan_set()) return step;
  return judge_values(report, BufferSets::kNanSet, sets_.addresses(BufferSets::kNanSet), findings,
                      numbers.nan);
}

Result<Step> Examiner::judge_watched(const Subject& subject, const Numbers& numbers,
                                     std::span<const Finding> findings) {
  std::string damage;
  for (std::size_t i = 0; i < sets_.watched().size() && damage.empty(); ++i) {
    const WatchedRegion& watched = sets_.watched()[i];
    if (findings[numbers.watched + i].hash == watched.hash) continue;
    KW_ASSIGN(damage, find_damage(watched));
  }
  const std::vector<MemoryRegion> zones = workspace_.zones(subject.workspace_bytes);
  for (std::size_t i = 0; i < zones.size() && damage.empty(); ++i) {
    if (findings[numbers.zones_after + i].hash == findings[numbers.zones_before + i].hash) continue;
    WatchedRegion zone;
    zone.region = zones[i];
    (i == 0 ? zone.behind : zone.before) = "the workspace";
    KW_ASSIGN(damage, find_damage(zone));
  }
  if (damage.empty()) return Step{};
  KW_TRY(sets_.restore(device_, data_ops_));
  KW_TRY(device_.wait());
  return Step{Outcome::out_of_bounds, std::move(damage)};
}

Result<std::string> Examiner::find_damage(const WatchedRegion& watched) {
  if (watched.is_input) return watched.describe(0, 0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(watched.region.bytes));
  KW_TRY(device_.download(bytes, watched.region.address));
  const auto changed = [](std::byte byte) { return byte != std::byte{kRedZoneByte}; };
  const auto first = std::find_if(bytes.begin(), bytes.end(), changed);
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(), changed);
  return watched.describe(first - bytes.begin(), last - bytes.rbegin());
}

Step Examiner::judge_kept(const Subject& subject, const Numbers& numbers,
                          std::span<const Finding> findings) {
  for (const std::size_t first : numbers.kept) {
    for (std::size_t part = 0; part < subject.kept_zero.size(); ++part) {
      if (findings[first + part].hash == findings[numbers.zeros + part].hash) continue;
      return {Outcome::wrong_result, concat("did not leave workspace ",
                                            subject.kept_zero[part].name, " zero, as it is kept")};
    }
  }
  return {};
}

Result<Step> Examiner::judge_values(CheckReport& report, int set, Addresses addresses,
                                    std::span<const Finding> findings, std::size_t first) {
  KW_ASSIGN(const CheckReport values, checker_.report(device_, set, addresses, findings, first));
  // An exact result says nothing about how much of the bound is used.
  if (values.mismatches != 0 || set != BufferSets::kExactSet) {
    report.max_error = std::max(report.max_error, values.max_error);
  }
  report.mismatches = values.mismatches;
  report.elements = values.elements;
  report.first_mismatch = values.first_mismatch;
  if (values.mismatches == 0) return Step{};
  const bool exact = set == BufferSets::kExactSet;
  const bool nan = set == BufferSets::kNanSet;
  const bool count = set == BufferSets::kCountSet;
  return Step{Outcome::wrong_result,
              concat(nan     ? "with NaN among the inputs: "
                     : count ? "on inputs that count: "
                             : "",
                     values.mismatches, " of ", values.elements, " elements ",
                     exact ? "are not exact, " : "beyond their bound, ", values.first_mismatch)};
}

Result<Step> Examiner::judge_repeats(Subject& subject, const Numbers& numbers,
                                     std::span<const Finding> findings) const {
  CheckReport& report = subject.report;
  const std::size_t outputs = checker_.outputs(sets_.addresses(0)).size();
  const auto hash = [&](std::size_t run, std::size_t output) {
    return findings[numbers.hashes[run] + output].hash;
  };
  subject.output_hashes.clear();
  for (std::size_t output = 0; output < outputs; ++output) {
    subject.output_hashes.push_back(hash(0, output));
  }
  std::size_t different = 0;
  for (std::size_t run = 1; run < numbers.hashes.size(); ++run) {
    for (std::size_t output = 0; output < outputs; ++output) {
      if (hash(run, output) != hash(0, output)) {
        ++different;
        break;
      }
    }
  }
  report.repeats = static_cast<int>(numbers.hashes.size());
  report.deterministic = different == 0;
  if (report.deterministic) return Step{};
  return Step{Outcome::nondeterministic,
              concat(different, " of ", report.repeats - 1,
                     " repeats on equal inputs gave other bits than the first run")};
}

Result<Checked> Examiner::examine_once(Subject& subject) {
  const auto judge = [&]() -> Result<Step> {
    if (auto done = enqueue_run(subject, 0, kPoisons[0]); !done) return failed(done.error());
    const std::vector<DevicePointer> addresses = sets_.addresses(0);
    const auto number = checker_.enqueue(data_ops_, 0, addresses);
    if (!number) return failed(number.error());
    const auto findings = data_ops_.take_findings();
    if (!findings) return failed(findings.error());
    return judge_values(subject.report, 0, addresses, findings.value(), number.value());
  };
  KW_ASSIGN(auto step, judge());
  subject.report.after_timing = step.outcome == Outcome::ok;
  return Checked{std::move(step), subject.report};
}

Result<Checked> Examiner::examine_replay(Subject& subject, bool with_twin,
                                         const std::function<Step()>& replay) {
  std::vector<int> sets{0};
  if (with_twin && sets_.twin() != 0) sets.push_back(sets_.twin());
  subject.report.after_timing = false;
  const auto judge = [&]() -> Result<Step> {
    Numbers numbers;
    KW_TRY(workspace_.guard(device_, subject.workspace_bytes));
    KW_ASSIGN(numbers.zones_before,
              data_ops_.enqueue_hash(workspace_.zones(subject.workspace_bytes)));
    KW_TRY(enqueue_zeros(subject, numbers));
    for (const int set : sets) {
      KW_TRY(sets_.poison(device_, data_ops_, set, kPoisons[0]));
    }
    if (Step step = replay(); step.outcome != Outcome::ok) {
      if (!device_.lost()) (void)data_ops_.take_findings();
      return step;
    }
    KW_TRY(enqueue_kept(subject, numbers));
    std::vector<std::size_t> values;
    for (const int set : sets) {
      const std::vector<DevicePointer> addresses = sets_.addresses(set);
      const auto number = checker_.enqueue(data_ops_, 0, addresses);
      if (!number) return failed(number.error());
      values.push_back(number.value());
      const auto hash = data_ops_.enqueue_hash(checker_.outputs(addresses));
      if (!hash) return failed(hash.error());
      numbers.hashes.push_back(hash.value());
    }
    if (auto done = enqueue_watch(subject, numbers); !done) return failed(done.error());
    const auto findings = data_ops_.take_findings();
    if (!findings) return failed(findings.error());
    auto step = judge_watched(subject, numbers, findings.value());
    if (step && step.value().outcome == Outcome::ok) {
      step = judge_kept(subject, numbers, findings.value());
    }
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (!step || step.value().outcome != Outcome::ok) return step;
      step = judge_values(subject.report, 0, sets_.addresses(sets[i]), findings.value(), values[i]);
    }
    if (!step || step.value().outcome != Outcome::ok) return step;
    for (const std::size_t first : numbers.hashes) {
      for (std::size_t output = 0; output < subject.output_hashes.size(); ++output) {
        if (findings.value()[first + output].hash == subject.output_hashes[output]) continue;
        subject.report.deterministic = false;
        return Step{Outcome::nondeterministic, "other bits than before it was timed"};
      }
    }
    return Step{};
  };
  KW_ASSIGN(auto step, judge());
  Checked checked{std::move(step), {}};
  if (checked.step.outcome == Outcome::ok) {
    subject.report.after_timing = true;
  } else {
    checked.step.detail = concat("after timing: ", checked.step.detail);
  }
  checked.report = subject.report;
  return checked;
}

Result<Step> Examiner::run_fenced(Subject& subject) {
  std::vector<std::unique_ptr<DeviceBuffer>> fences;  // the tensors' fences, then the workspace's
  for (std::size_t i = 0; i <= sets_.shapes().size(); ++i) {
    const std::int64_t bytes =
        i < sets_.shapes().size() ? sets_.shapes()[i].bytes() : subject.workspace_bytes;
    if (bytes == 0) continue;
    auto fence = device_.allocate_fenced(bytes);
    if (!fence) {  // with too little memory only this check is left out
      return device_.lost() ? failed(fence.error()) : Result<Step>(Step{});
    }
    fences.push_back(std::move(fence).value());
  }
  for (const bool at_end : {true, false}) {
    auto step = run_fenced_at(subject, at_end, fences);
    if (!step || step.value().outcome != Outcome::ok) return step;
  }
  subject.report.unmapped = true;
  return Step{};
}

Result<Step> Examiner::run_fenced_at(Subject& subject, bool at_end,
                                     std::span<const std::unique_ptr<DeviceBuffer>> fences) {
  const int set = first_set();
  const auto place = [&](std::size_t fence, std::int64_t bytes, std::int64_t alignment) {
    const DeviceBuffer& buffer = *fences[fence];
    if (!at_end) return buffer.address();
    const std::int64_t offset = (buffer.bytes() - bytes) / alignment * alignment;
    return buffer.address() + static_cast<DevicePointer>(offset);
  };
  const auto run = [&]() -> Result<Step> {
    std::vector<DevicePointer> addresses;
    for (std::size_t i = 0; i < sets_.shapes().size(); ++i) {
      const TensorShape& shape = sets_.shapes()[i];
      addresses.push_back(place(i, shape.bytes(), shape.alignment));
      auto done = shape.role == TensorRole::out
                      ? sets_.poison_output(device_, data_ops_, i, addresses[i], kPoisons[0])
                      : sets_.draw(device_, data_ops_, set, i, addresses[i]);
      if (!done) return failed(done.error());
    }
    LaunchArguments launch = arguments(subject, set);
    for (std::size_t i = 0; i < subject.tensors.size(); ++i) {
      for (std::size_t j = 0; j < addresses.size(); ++j) {
        if (subject.tensors[i].name == sets_.shapes()[j].name) launch.tensors[i] = addresses[j];
      }
    }
    if (subject.workspace_bytes > 0) {
      launch.workspace = place(addresses.size(), subject.workspace_bytes, 256);
      if (auto done = device_.fill(launch.workspace, kPoisons[0], subject.workspace_bytes); !done) {
        return failed(done.error());
      }
    }
    if (auto done = device_.enqueue(*subject.program, launch); !done) return failed(done.error());
    const auto number = checker_.enqueue(data_ops_, set, addresses);
    if (!number) return failed(number.error());
    const auto findings = data_ops_.take_findings();
    if (!findings) return failed(findings.error());
    return judge_values(subject.report, set, addresses, findings.value(), number.value());
  };
  auto step = run();
  if (step && step.value().outcome != Outcome::ok) {
    Step told = std::move(step).value();
    told.detail = concat("with the ", at_end ? "ends" : "starts",
                         " of all tensors at unmapped pages: ", told.detail);
    return told;
  }
  return step;
}

}  // namespace kernwright
