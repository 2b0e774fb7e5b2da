#include "model/result/counters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr std::string_view kStallPrefix = "smsp__average_warps_issue_stalled_";
constexpr std::string_view kStallSuffix = "_per_issue_active.ratio";
constexpr double kFull = 100;

// The metrics were chosen on a GH100, where they fit two passes, and the first seven one.
// sm__throughput, l1tex__throughput and lts__throughput need 4 to 8 passes and are left out, and of
// the tensor pipe's counters sm__inst_executed_pipe_tensor* counts instructions, 3 to 6 % while the
// pipe is 90 % busy.
constexpr Counter kCounters[] = {
    {kTimeCounter, "ns", "time from the kernel's begin to its end", kEndless},
    {kDramShareCounter, "%", "how busy the device memory was", kFull},
    {kDramReadCounter, "byte", "read from device memory", kEndless},
    {kDramWriteCounter, "byte", "written to device memory", kEndless},
    {kTensorShareCounter, "%", "how busy the tensor cores were", kFull},
    {kOccupancyCounter, "%", "warps that an SM held, of those it can hold", kFull},
    {kIssueCounter, "%", "cycles in which a scheduler issued an instruction", kFull},
    {kL2HitCounter, "%", "sectors that the L2 had when they were asked for", kFull},
    {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "warps",
     "warps waiting for memory beyond the L1", kEndless},
    {"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "warps",
     "warps waiting for other warps at a barrier", kEndless},
    {"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", "warps",
     "warps waiting for an arithmetic pipe", kEndless},
    {"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", "warps",
     "warps waiting for asynchronous tensor core work", kEndless},
};

}  // namespace

std::span<const Counter> counters() { return kCounters; }

std::string_view stall_reason(std::string_view counter) {
  if (!counter.starts_with(kStallPrefix) || !counter.ends_with(kStallSuffix)) return {};
  counter.remove_prefix(kStallPrefix.size());
  counter.remove_suffix(kStallSuffix.size());
  return counter;
}

CounterValue judged(std::string_view counter, double value) {
  if (!std::isfinite(value)) return {std::string(counter), std::nullopt, "no number was counted"};
  const auto known = std::ranges::find(kCounters, counter, &Counter::name);
  const double highest = known == std::end(kCounters) ? kEndless : known->highest;
  CounterValue judged{std::string(counter), value, {}};
  if (value < 0 || value > highest) {
    judged.reason = concat(significant(value, 4), " is not in 0 to ", highest,
                           ": too little was counted, or the passes differed");
  }
  return judged;
}

std::optional<double> CountedKernel::value(std::string_view counter) const {
  const auto found = std::ranges::find(values, counter, &CounterValue::name);
  return found == values.end() ? std::nullopt : found->value;
}

std::optional<double> CounterSet::sum(std::string_view counter) const {
  if (kernels.empty()) return std::nullopt;
  double total = 0;
  for (const CountedKernel& kernel : kernels) {
    const std::optional<double> value = kernel.value(counter);
    if (!value) return std::nullopt;
    total += *value;
  }
  return total;
}

std::optional<double> CounterSet::mean(std::string_view counter) const {
  // The one kernel that most launches have needs no weight.
  if (kernels.size() == 1) return kernels.front().value(counter);
  double total = 0;
  double weights = 0;
  for (const CountedKernel& kernel : kernels) {
    const std::optional<double> value = kernel.value(counter);
    const std::optional<double> weight = kernel.value(kTimeCounter);
    if (!value || !weight) return std::nullopt;
    total += *value * *weight;
    weights += *weight;
  }
  if (!(weights > 0)) return std::nullopt;
  return total / weights;
}

std::optional<double> CounterSet::time_us() const {
  const std::optional<double> ns = sum(kTimeCounter);
  return ns ? std::optional(*ns * 1e-3) : std::nullopt;
}

}  // namespace kernwright
