#include "tuner/audit/launch_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cache/fields/json_fields.h"
#include "cache/fields/tree_writer.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/data/embedded_kernels.h"

namespace kernwright {
namespace {

constexpr int kNodes = 256;
constexpr int kLaunches = 256;  // less than a stream's queue holds, so the host never waits
constexpr int kBlock = 9;
constexpr int kMinBlocks = 4;  // together longer than the time slices of contexts
constexpr int kMaxBlocks = 16;
constexpr double kSteadyBlock = 0.02;
constexpr double kInterrupted = 1.5;  // times the median of the block
constexpr int kStreamRuns = 9;
constexpr double kRecoveryUs = 0.5e6;  // for a clock that was held down by the power limit

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ExecutionPlan plan_of(int launches) {
  LaunchPlan launch;
  launch.kernel = "empty";
  ExecutionPlan plan;
  plan.launches.assign(static_cast<std::size_t>(launches), launch);
  return plan;
}

/// Returns the root of the cache with a baseline, <root>/probe/<name>. No links are followed below
/// it.
std::filesystem::path cache_root_of(const std::filesystem::path& baseline) {
  return baseline.parent_path().parent_path();
}

}  // namespace

void describe(auto& visitor, MaybeConst<LaunchCost> auto& cost) {
  visitor.field("graph_node_us", cost.graph_node_us);
  visitor.field("stream_launch_us", cost.stream_launch_us);
  visitor.field("event_pair_us", cost.event_pair_us);
  visitor.field("sm_mhz", cost.sm_mhz);
}

LaunchCost launch_cost_of(const DeviceProfile& profile) {
  return {profile.graph_node_us, profile.stream_launch_us, 0, 0, 0};
}

CompileRequest launch_probe_request(int sm_arch) {
  CompileRequest request;
  request.name = "tuner/data/kernels/empty.cu";
  request.target = concat("sm_", sm_arch);
  for (const EmbeddedFile& file : embedded_tuner_kernels()) {
    if (file.path == "empty.cu") request.source = file.content;
  }
  return request;
}

Result<LaunchProbe> LaunchProbe::make(Device& device, CompilePool& pool, Clock clock) {
  KW_ASSIGN(const auto compiled, pool.submit(launch_probe_request(device.profile().sm_arch)).get());
  LaunchProbe probe(device, std::move(clock));
  const std::pair<std::shared_ptr<LoadedProgram>*, int> programs[] = {{&probe.kernel_, 1},
                                                                      {&probe.nothing_, 0}};
  for (const auto& [program, launches] : programs) {
    KW_ASSIGN(auto loaded, device.load(compiled->bits, plan_of(launches)));
    *program = std::move(loaded);
  }
  const LaunchArguments none;
  KW_ASSIGN(auto chain, device.prepare_timing(*probe.kernel_, {&none, 1}, kNodes));
  KW_ASSIGN(auto empty, device.prepare_timing(*probe.nothing_, {&none, 1}, 1));
  probe.chain_ = std::move(chain);
  probe.empty_ = std::move(empty);
  return probe;
}

Result<LaunchProbe::Block> LaunchProbe::block(Device::TimedUnits& units) {
  std::vector<double> times;
  std::vector<double> clocks;
  for (int i = 0; i < kBlock; ++i) {
    KW_ASSIGN(auto sample, device_.sample(units));
    times.push_back(sample.us);
    clocks.push_back(sample.sm_mhz);
  }
  const double us = upper_median(times);
  const auto interrupted = std::count_if(times.begin(), times.end(),
                                         [us](double time) { return time > kInterrupted * us; });
  return Block{us, static_cast<double>(interrupted), upper_median(clocks)};
}

Result<void> LaunchProbe::recover(double usual_sm_mhz) {
  const double begin = clock_();
  while (clock_() - begin < kRecoveryUs) {
    KW_ASSIGN(auto now, block(*chain_));
    if (now.sm_mhz <= 0 || now.sm_mhz >= kFullClock * usual_sm_mhz) break;
  }
  return {};
}

Result<LaunchProbe::Steady> LaunchProbe::steady(Device::TimedUnits& units) {
  Steady result;
  double interrupted = 0;
  for (int i = 0; i < kMaxBlocks; ++i) {
    KW_ASSIGN(auto now, block(units));
    const bool steady = std::abs(now.us - result.us) <= kSteadyBlock * now.us;
    interrupted += now.interrupted;
    result = {now.us, interrupted / (kBlock * (i + 1)), now.sm_mhz};
    if (steady && i + 1 >= kMinBlocks) break;
  }
  return result;
}

Result<double> LaunchProbe::stream_launch_us() {
  // A hook slows every launch down, a busy host only some, so the best run counts.
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kStreamRuns; ++run) {
    const double begin = clock_();
    for (int i = 0; i < kLaunches; ++i) {
      KW_TRY(device_.enqueue(*kernel_, {}));
    }
    const double end = clock_();
    KW_TRY(device_.wait());
    best = std::min(best, (end - begin) / kLaunches);
  }
  return best;
}

Result<LaunchCost> LaunchProbe::measure(double usual_sm_mhz) {
  LaunchCost cost;
  KW_TRY(recover(usual_sm_mhz));
  // The chain comes first. It is the longest, and wakes the GPU for the others.
  KW_ASSIGN(auto chain, steady(*chain_));
  cost.graph_node_us = chain.us;
  cost.interrupted_share = chain.interrupted_share;
  cost.sm_mhz = chain.sm_mhz;
  KW_ASSIGN(auto empty, steady(*empty_));
  cost.event_pair_us = empty.us;
  KW_ASSIGN(cost.stream_launch_us, stream_launch_us());
  return cost;
}

LaunchBaseline::LaunchBaseline(const std::filesystem::path& cache_root,
                               const DeviceIdentity& device) {
  std::string name = concat(device.uuid, '-', device.driver_version);
  // A version such as "CUDA 12.4" must become part of a path.
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  path_ = cache_root / "probe" / concat(name, ".json");
}

std::optional<LaunchCost> LaunchBaseline::load() const {
  const Result<std::string> text = read_file(path_, {"baseline", 4096}, cache_root_of(path_));
  if (!text) return std::nullopt;
  const Result<LaunchCost> cost = read_fields<LaunchCost>(*text, "baseline");
  return cost ? std::optional(*cost) : std::nullopt;
}

Result<void> LaunchBaseline::store(const LaunchCost& cost) const {
  return publish_file(path_, dump(tree_of(cost)), cache_root_of(path_));
}

}  // namespace kernwright
