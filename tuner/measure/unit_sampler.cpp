#include "tuner/measure/unit_sampler.h"

#include <utility>

#include "support/try.h"
#include "tuner/measure/sample_length.h"

namespace kernwright {
namespace {

/// Launches of the first, rough timing that the length of a sample is derived from.
constexpr int kProbeUnits = 4;
/// Time of the probe kernel that fills idle time, bound by the SMs.
constexpr double kProbeSeconds = 1e-4;
/// The time that the host needs to build a graph: a constant, and for each unit. It is estimated
/// low, because a sample must wait for the filler.
constexpr double kGraphSeconds = 2e-4;
constexpr double kGraphUnitSeconds = 3e-6;

}  // namespace

UnitSampler::UnitSampler(Device& device, DataOps& data_ops, const BufferSets& sets,
                         const ProbeKernels& probes, L2State l2, double sample_us)
    : device_(device),
      data_ops_(data_ops),
      sets_(sets),
      probes_(probes),
      sample_us_(sample_us),
      flushes_(l2 != L2State::warm && !sets.passes_l2()) {}

void UnitSampler::fill(double seconds) {
  const int launches = static_cast<int>(seconds / kProbeSeconds);
  for (int i = 0; i < launches; ++i) {
    if (!device_.enqueue(*probes_.sm(), {})) return;
  }
}

Result<std::unique_ptr<Device::TimedUnits>> UnitSampler::build_graph(const TimedWork& work,
                                                                     int units) {
  fill(kGraphSeconds + units * kGraphUnitSeconds);
  return device_.prepare_timing(work.sets, units);
}

Result<void> UnitSampler::build_units(TimedWork& work, bool once) {
  KW_ASSIGN(auto probe, build_graph(work, kProbeUnits));
  KW_ASSIGN(const auto unit, device_.sample(*probe));
  const SampleLength length =
      sample_length(unit.us, sample_us_, static_cast<int>(work.sets.size()), once);
  KW_ASSIGN(auto units, build_graph(work, length.units));
  units->replays = length.replays;
  work.length = length.units;
  // The first replay is slow, because it loads the code.
  KW_TRY(device_.sample(*units));
  work.units = std::move(units);
  return {};
}

Result<void> UnitSampler::build(TimedWork& work) {
  return work.units == nullptr ? build_units(work, flushes_) : Result<void>();
}

Result<Sample> UnitSampler::sample(TimedWork& work) {
  KW_TRY(build(work));
  if (flushes_) {
    KW_TRY(device_.enqueue(*probes_.dram(), {}));
  }
  KW_TRY(sets_.produce_warm(data_ops_));
  return device_.sample(*work.units);
}

Result<Sample> UnitSampler::sample_bare(TimedWork& work) {
  if (work.units == nullptr) {
    KW_TRY(build_units(work, false));
  }
  return device_.sample(*work.units);
}

}  // namespace kernwright
