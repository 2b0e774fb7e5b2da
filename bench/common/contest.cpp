#include "bench/common/contest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr double kReplayUs = 3000;
constexpr int kMaxUnits = 1024;
constexpr std::uint64_t kSeed = 7;  // not the tuner's
constexpr std::uint8_t kNotANumber = 0xFF;
constexpr std::chrono::milliseconds kDeadline{10'000};

}  // namespace

Result<BenchDevice> BenchDevice::open(CompilePool& pool) {
  const Result<const DriverApi*> api = load_driver();
  if (!api) return api.error();
  BenchDevice bench;
  auto context = CudaContext::open(**api, 0, kDeadline);
  if (!context) return context.error();
  bench.context = *std::move(context);
  const ContextScope scope(**api, bench.context->context());
  if (auto current = bench.context->check(scope.status()); !current) return current.error();
  auto gate = StreamGate::make(bench.context);
  if (!gate) return gate.error();
  bench.gate = *std::move(gate);
  auto device = open_cuda_device(0);
  if (!device) return device.error();
  bench.device = *std::move(device);
  auto data_ops = make_device_data_ops(*bench.device, pool);
  if (!data_ops) return data_ops.error();
  bench.data_ops = *std::move(data_ops);
  return bench;
}

Result<Contest> Contest::make(ServiceCore& core, BenchDevice& bench, const BoundProblem& problem) {
  auto drawer = InputDrawer::make(*bench.device, core.builder().pool(), problem, core.catalog());
  if (!drawer) return drawer.error();
  auto sets = BufferSets::make(*bench.device, *bench.data_ops, problem.shapes(), L2State::cold,
                               kSeed, {.drawer = *std::move(drawer)});
  if (!sets) return sets.error();
  auto checker = Checker::make(*bench.device, *bench.data_ops, problem, core.catalog(),
                               core.builder().pool(), *sets);
  if (!checker) return checker.error();
  return Contest(bench, *std::move(sets), *std::move(checker));
}

Result<CheckReport> Contest::check(const Competitor& competitor) const {
  if (auto done = sets_.poison(*bench_.device, *bench_.data_ops, 0, kNotANumber); !done) {
    return done.error();
  }
  if (auto done = bench_.device->wait(); !done) return done.error();  // it has a stream of its own
  if (auto done = competitor.launch(bench_.context->stream(), 0); !done) return done.error();
  if (auto done = bench_.context->wait(); !done) return done.error();
  auto report = checker_.compare(*bench_.device, *bench_.data_ops, sets_);
  if (report && report->mismatches != 0) {
    return Error{ErrorCode::internal,
                 concat(competitor.name, " is wrong: ", report->mismatches, " of ",
                        report->elements, " elements, the first ", report->first_mismatch)};
  }
  return report;
}

Result<void> Contest::prepare(Competitor& competitor, double expected_us) const {
  const int sets = sets_.count();
  const double wanted = std::min<double>(kReplayUs / expected_us, kMaxUnits);
  const int units = sets * std::max(1, static_cast<int>(std::ceil(wanted / sets)));
  auto graph = CapturedGraph::make(bench_.context, units, [&](CUstream stream, int unit) {
    return competitor.launch(stream, unit % sets);
  });
  if (!graph) return graph.error();
  competitor.graph.emplace(*std::move(graph));
  if (auto first = competitor.graph->sample_us(*bench_.gate); !first) return first.error();
  return {};
}

Result<void> Contest::sample(std::span<Competitor* const> competitors, int rounds) const {
  for (Competitor* competitor : competitors) competitor->samples_us.clear();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < competitors.size(); ++i) {
      Competitor& competitor =
          *competitors[(i + static_cast<std::size_t>(round)) % competitors.size()];
      auto us = competitor.graph->sample_us(*bench_.gate);
      if (!us) return us.error();
      competitor.samples_us.push_back(*us);
    }
  }
  return {};
}

}  // namespace kernwright
