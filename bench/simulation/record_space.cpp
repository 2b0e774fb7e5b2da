#include "bench/simulation/record_space.h"

#include <algorithm>
#include <utility>

#include "compile/launch_fit.h"
#include "support/random.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/search/screening.h"

namespace kernwright {
namespace {

/// Samples between two looks at a probe.
constexpr int kStretch = 8;

class Recording {
 public:
  Recording(std::span<const Candidate> candidates, std::span<const double> predicted_us,
            const DeviceProfile& profile, Runner& runner, LandscapeFile& file,
            const RecordingOptions& options)
      : candidates_(candidates),
        predicted_us_(predicted_us),
        profile_(profile),
        runner_(runner),
        file_(file),
        options_(options) {}

  Result<void> measure(CompileQueue::Ready ready);
  Result<void> keep_busy() {
    const Runner::Id probes[] = {Runner::kSmProbe, Runner::kDramProbe};
    KW_TRY(runner_.sample(probes));
    return {};
  }

 private:
  Result<void> sample(Runner::Id id, LandscapeEntry& entry);
  Result<void> visit(std::size_t candidate, const CompiledKernel& kernel, LandscapeEntry& entry);

  std::span<const Candidate> candidates_;
  std::span<const double> predicted_us_;
  const DeviceProfile& profile_;
  Runner& runner_;
  LandscapeFile& file_;
  const RecordingOptions& options_;
};

Result<void> Recording::sample(Runner::Id id, LandscapeEntry& entry) {
  std::vector<Runner::Id> order;
  for (int i = 0; i < options_.samples; ++i) {
    if (i % kStretch == 0) {
      order.push_back(i / kStretch % 2 == 0 ? Runner::kSmProbe : Runner::kDramProbe);
    }
    order.push_back(id);
  }
  KW_ASSIGN(auto sampled, runner_.sample(order));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [step, sample] = sampled[i];
    if (step.outcome != Outcome::ok) {
      entry.outcome = step.outcome;
      entry.detail = step.detail;
      return {};
    }
    (order[i] == id                 ? entry.samples
     : order[i] == Runner::kSmProbe ? entry.sm_probe
                                    : entry.dram_probe)
        .push_back(sample);
  }
  return {};
}

Result<void> Recording::visit(std::size_t candidate, const CompiledKernel& kernel,
                              LandscapeEntry& entry) {
  const auto take = [&entry](const Runner::Step& step) {
    entry.outcome = step.outcome;
    entry.detail = step.detail;
    return step.outcome == Outcome::ok;
  };
  KW_ASSIGN(auto prepared, runner_.prepare(candidates_[candidate], kernel));
  if (!take(prepared.step)) return {};
  KW_ASSIGN(auto checked, runner_.check(prepared.id, Runner::CheckDepth::screening));
  if (take(checked.step)) {
    if (auto done = sample(prepared.id, entry); !done) return done;
  }
  runner_.drop(prepared.id);
  return {};
}

Result<void> Recording::measure(CompileQueue::Ready ready) {
  const std::size_t candidate = ready.candidate;
  if (!ready.kernel && ready.kernel.error().code == ErrorCode::unavailable) {
    return ready.kernel.error();
  }
  LandscapeEntry entry;
  entry.predicted_us = predicted_us_[candidate];
  Runner::Step step = check_compiled(candidates_[candidate], ready.kernel, profile_);
  entry.outcome = step.outcome;
  entry.detail = std::move(step.detail);
  if (ready.kernel) {
    entry.resources = ready.kernel.value()->resources();
    entry.compile_seconds = ready.kernel.value()->seconds;
  }
  if (entry.outcome == Outcome::ok) {
    KW_TRY(file_.begin(candidate));
    if (auto done = visit(candidate, *ready.kernel.value(), entry); !done) return done;
  }
  if (entry.outcome != Outcome::ok) entry.samples.clear();
  KW_TRY(file_.add(candidate, entry));
  if (options_.progress) options_.progress(candidate, entry);
  if (!runner_.lost()) return {};
  return Error{ErrorCode::device,
               concat("the device was lost to ", candidates_[candidate].id(), " (",
                      to_string(entry.outcome), "); start again to go on")};
}

}  // namespace

Result<std::size_t> record_space(std::span<const Candidate> candidates,
                                 std::span<const double> predicted_us, std::size_t default_index,
                                 const DeviceProfile& profile, CompileQueue& queue, Runner& runner,
                                 LandscapeFile& file, const RecordingOptions& options) {
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!file.has(i)) left.push_back(i);
  }
  const auto rank = [default_index](std::size_t i) {
    return std::pair(i != default_index, hash_at(1, i));
  };
  std::sort(left.begin(), left.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  const std::size_t wanted = options.limit - std::min(options.limit, file.recorded());
  left.resize(std::min(left.size(), wanted));

  Recording recording(candidates, predicted_us, profile, runner, file, options);
  const double start = options.clock_seconds();
  std::size_t started = 0;
  std::size_t done = 0;
  const auto fill = [&] {
    while (started < left.size() && queue.wants_more()) queue.start(left[started++]);
  };
  fill();
  Screening screening(runner, options.clock_seconds);
  KW_TRY(screening.settle());
  while (done < left.size() && options.clock_seconds() - start < options.seconds) {
    fill();
    if (auto ready = queue.take()) {
      KW_TRY(recording.measure(std::move(*ready)));
      ++done;
    } else if (auto busy = recording.keep_busy(); !busy) {
      return busy.error();
    }
  }
  return left.size() - done;
}

}  // namespace kernwright
