#include "service/tune/stoppable_runner.h"

namespace kernwright {
namespace {

Error stopped() { return {ErrorCode::unavailable, "tuning was stopped"}; }

}  // namespace

Result<Runner::Prepared> StoppableRunner::prepare(const Candidate& candidate,
                                                  const CompiledKernel& kernel) {
  if (stopped_()) return stopped();
  return runner_.prepare(candidate, kernel);
}

Result<Runner::Checked> StoppableRunner::check(Id id, CheckDepth depth) {
  if (stopped_()) return stopped();
  return runner_.check(id, depth);
}

Result<Runner::Checked> StoppableRunner::check_after_timing(Id id) {
  if (stopped_()) return stopped();
  return runner_.check_after_timing(id);
}

Result<std::vector<Runner::Sampled>> StoppableRunner::sample(std::span<const Id> order) {
  if (stopped_()) return stopped();
  return runner_.sample(order);
}

Result<double> StoppableRunner::launch_gap_us(Id id) {
  if (stopped_()) return stopped();
  return runner_.launch_gap_us(id);
}

Result<LaunchTimes> StoppableRunner::launch_paths(Id id) {
  if (stopped_()) return stopped();
  return runner_.launch_paths(id);
}

Result<Audit> StoppableRunner::audit() {
  if (stopped_()) return stopped();
  return runner_.audit();
}

void StoppableRunner::fill(double seconds) {
  if (!stopped_()) runner_.fill(seconds);
}

}  // namespace kernwright
