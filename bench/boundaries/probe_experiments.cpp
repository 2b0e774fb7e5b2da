#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/boundaries/board.h"
#include "bench/boundaries/chains.h"
#include "bench/boundaries/experiments.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::boundaries {
namespace {

constexpr std::uint32_t kCascadeKernels = 24;
constexpr std::uint32_t kCascadeHoldNs = 5000;
constexpr std::uint32_t kCascadeThreads = 256;
constexpr std::uint64_t kClockStepNs = 2000;  // by which %globaltimer may lag
constexpr std::uint32_t kConsumePasses = 2048;
constexpr std::uint32_t kConsumeBytes = 32 * (1024 + 8) * 2;  // 64 KB in padded rows
constexpr std::size_t kConsumeRows = 32;
constexpr int kMostStreamRounds = 11;

/// A block of a cascade's kernel, as it wrote it down.
struct LoggedBlock {
  std::uint64_t multiprocessor;
  std::uint64_t started;
  std::uint64_t ready;  ///< when its predecessor had ended
  std::uint64_t ended;
};
using LoggedKernel = std::vector<LoggedBlock>;

struct Interval {
  std::uint64_t begin;
  std::uint64_t end;
};

/// How many intervals hold the same moment, at most.
int most_at_once(const std::vector<Interval>& intervals) {
  std::vector<std::pair<std::uint64_t, int>> events;
  for (const Interval& interval : intervals) {
    events.emplace_back(interval.begin, 1);
    events.emplace_back(interval.end, -1);
  }
  std::ranges::sort(events);  // an end before a begin at the same time
  int now = 0;
  int most = 0;
  for (const auto& [time, change] : events) most = std::max(most, now += change);
  return most;
}

struct Spread {
  int kernels = 0;               ///< resident at once
  int blocks = 0;                ///< of all kernels on one multiprocessor at once
  int blocks_of_one_kernel = 0;  ///< on one multiprocessor
  int multiprocessors = 0;       ///< that the worst spread kernel uses
};

Spread spread_of(const std::vector<LoggedKernel>& kernels) {
  Spread spread;
  std::vector<Interval> lives;
  std::map<std::uint64_t, std::vector<Interval>> by_multiprocessor;
  for (const LoggedKernel& kernel : kernels) {
    Interval life{kernel.front().started, kernel.front().ended};
    std::map<std::uint64_t, int> blocks;
    for (const LoggedBlock& block : kernel) {
      life = {std::min(life.begin, block.started), std::max(life.end, block.ended)};
      by_multiprocessor[block.multiprocessor].push_back({block.started, block.ended});
      spread.blocks_of_one_kernel =
          std::max(spread.blocks_of_one_kernel, ++blocks[block.multiprocessor]);
    }
    const int used = static_cast<int>(blocks.size());
    spread.multiprocessors =
        spread.multiprocessors == 0 ? used : std::min(spread.multiprocessors, used);
    lives.push_back(life);
  }
  spread.kernels = most_at_once(lives);
  for (const auto& [multiprocessor, intervals] : by_multiprocessor) {
    spread.blocks = std::max(spread.blocks, most_at_once(intervals));
  }
  return spread;
}

Result<std::vector<LoggedKernel>> read_log(Lab& lab, const Arm& arm) {
  const std::size_t blocks = lab.blocks();
  KW_ASSIGN(const std::vector<std::uint64_t> words,
            lab.read<std::uint64_t>(arm.memory->address(), kCascadeKernels * blocks * 4));
  std::vector<LoggedKernel> kernels(kCascadeKernels);
  for (std::size_t i = 0; i < kCascadeKernels * blocks; ++i) {
    kernels[i / blocks].push_back(
        {words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]});
  }
  return kernels;
}

/// No block may be ready before all blocks of the kernel ahead have ended.
Result<void> check_order(const std::vector<LoggedKernel>& kernels) {
  std::uint64_t ended = 0;
  for (const LoggedKernel& kernel : kernels) {
    std::uint64_t last = 0;
    for (const LoggedBlock& block : kernel) {
      if (block.started == 0 || block.ready + kClockStepNs < ended) {
        return Error{ErrorCode::internal, concat("a block was ready at ", block.ready,
                                                 " ns, its predecessor ended at ", ended)};
      }
      last = std::max(last, block.ended);
    }
    ended = last;
  }
  return {};
}

Result<void> add_cascade(Lab& lab, Arm& arm, std::uint32_t shared_bytes) {
  const KernelShape shape{.kernel = "cascade",
                          .pointers = 1,
                          .numbers = 2,
                          .blocks = lab.blocks(),
                          .threads = kCascadeThreads,
                          .shared_bytes = shared_bytes,
                          .programmatic = true};
  KW_ASSIGN(const PreparedProgram* program, lab.program(shape));
  KW_ASSIGN(arm.memory, lab.zeros(std::int64_t{kCascadeKernels} * lab.blocks() * 32));
  std::vector<SequenceStep>& unit = arm.units.emplace_back();
  for (std::uint32_t i = 0; i < kCascadeKernels; ++i) {
    LaunchArguments arguments;
    arguments.tensors = {arm.memory->address()};
    arguments.scalars = {static_cast<double>(i), static_cast<double>(kCascadeHoldNs)};
    unit.push_back({program, std::move(arguments), true});
  }
  return {};
}

Result<void> add_consumer(Lab& lab, Arm& arm, const std::string& kernel, std::uint32_t warps) {
  const KernelShape shape{.kernel = kernel,
                          .pointers = 1,
                          .numbers = 1,
                          .blocks = lab.blocks(),
                          .threads = warps * 32,
                          .shared_bytes = kConsumeBytes};
  KW_ASSIGN(const PreparedProgram* program, lab.program(shape));
  const std::size_t values = lab.blocks() * kConsumeRows;
  KW_ASSIGN(arm.memory, lab.zeros(static_cast<std::int64_t>(values * sizeof(float))));
  LaunchArguments arguments;
  arguments.tensors = {arm.memory->address()};
  arguments.scalars = {static_cast<double>(kConsumePasses)};
  arm.units = {{{program, std::move(arguments), false}}};
  arm.check = [&lab, values, at = arm.memory->address(),
               expected = consumed_sums(kConsumePasses)]() -> Result<void> {
    KW_ASSIGN(const std::vector<float> sums, lab.read<float>(at, values));
    for (std::size_t i = 0; i < values; ++i) {
      if (sums[i] != expected[i % kConsumeRows]) {
        return Error{ErrorCode::internal,
                     concat("sum ", i, " is ", sums[i], ", not ", expected[i % kConsumeRows])};
      }
    }
    return {};
  };
  return {};
}

}  // namespace

Result<void> run_cascade(Lab& lab, int rounds, BenchJson& json) {
  Board board(concat("cascade of ", kCascadeKernels));
  std::vector<Arm> arms;
  std::vector<std::pair<const char*, std::uint32_t>> shares{
      {"quarter", 4}, {"third", 3}, {"half", 2}, {"whole", 1}};
  for (const auto& [name, parts] : shares) {
    Arm arm{.name = name, .steps = kCascadeKernels};
    if (!lab.is_hopper()) {
      arm.skipped = concat("needs sm_90, the GPU is sm_", lab.profile().sm_arch);
    } else {
      // Each block has 1 KB more than it asks for.
      const auto bytes = static_cast<std::uint32_t>(lab.profile().smem_per_sm / parts - 1024);
      const auto added = add_cascade(lab, arm, bytes / 128 * 128);
      if (!added) arm.error = added.error().message;
    }
    arms.push_back(std::move(arm));
  }
  for (Arm& arm : arms) {
    if (!arm.skipped.empty() || !arm.error.empty()) continue;
    arm.check = [&lab, &arm]() -> Result<void> {
      KW_ASSIGN(const std::vector<LoggedKernel> kernels, read_log(lab, arm));
      return check_order(kernels);
    };
  }
  lab.sample(arms, rounds);
  for (Arm& arm : arms) {
    if (arm.has_times()) {
      KW_ASSIGN(const std::vector<LoggedKernel> kernels, read_log(lab, arm));
      const Spread spread = spread_of(kernels);
      arm.more = {{"kernels_at_once", spread.kernels},
                  {"blocks_at_once_on_a_multiprocessor", spread.blocks},
                  {"blocks_of_a_kernel_on_a_multiprocessor", spread.blocks_of_one_kernel},
                  {"multiprocessors_of_a_kernel", spread.multiprocessors},
                  {"hold_us", kCascadeHoldNs * 1e-3}};
      board.set(arm.name, "kernels at once", concat(spread.kernels));
      board.set(arm.name, "blocks an SM", concat(spread.blocks));
      board.set(arm.name, "of one kernel", concat(spread.blocks_of_one_kernel));
      board.set(arm.name, "fewest SMs", concat(spread.multiprocessors));
    }
    KW_TRY(json.add(row_of(concat("cascade kernels=", kCascadeKernels), arm)));
    board.set("us a kernel", arm);
  }
  board.print();
  return {};
}

Result<void> run_stream(Lab& lab, int rounds, BenchJson& json) {
  Board board("TB/s without boundaries");
  const std::uint64_t row = std::uint64_t{kRingSlots} * lab.blocks();
  std::vector<std::uint64_t> sizes{lab.region_slots()};
  if (lab.weights_slots() > lab.region_slots()) {
    sizes.push_back(lab.weights_slots());
  } else {
    board.note("too little memory is free for 15.1 GB");
  }
  for (const std::uint64_t slots : sizes) {
    Work work{.name = "nothing", .region_slots = slots};
    std::vector<StepWeights>& unit = work.units.emplace_back();
    for (std::uint64_t i = 0; i < slots / row; ++i) unit.push_back({i * row, kRingSlots});
    std::vector<Arm> arms;
    for (const auto& [name, source, consumers] :
         {std::tuple{"ring, nobody reads", Source::beside, 256U},
          {"ring, read by 8 warps", Source::ring, 256U},
          {"ring, read by 16 warps", Source::ring, 512U},
          {"loads by 16 warps", Source::after, 512U}}) {
      arms.push_back(
          make_arm(lab, name, work,
                   PersistentKernel{.crossing = "none", .source = source, .consumers = consumers}));
    }
    lab.sample(arms, std::min(rounds, kMostStreamRounds));
    char column[32];
    std::snprintf(column, sizeof(column), "%.2f GB", arms.front().bytes * 1e-9);
    for (const Arm& arm : arms) {
      KW_TRY(json.add(row_of(concat("stream bytes=", column), arm)));
      if (arm.has_times()) {
        char text[32];
        std::snprintf(text, sizeof(text), "%.3f",
                      arm.bytes / (arm.us_per_step() * arm.steps) * 1e-6);
        board.set(arm.name, column, text);
      } else {
        board.set(column, arm);
      }
    }
  }
  board.print();
  return {};
}

Result<void> run_consume(Lab& lab, int rounds, BenchJson& json) {
  Board board("us for 64 KB of shared memory");
  for (const std::uint32_t warps : {8U, 16U}) {
    std::vector<Arm> arms;
    for (const char* engine : {"mma", "fma"}) {
      Arm arm{.name = engine, .steps = kConsumePasses};
      const auto added = add_consumer(lab, arm, concat("consume_", engine, "_", warps), warps);
      if (!added) arm.error = added.error().message;
      arms.push_back(std::move(arm));
    }
    lab.sample(arms, rounds);
    for (const Arm& arm : arms) {
      KW_TRY(json.add(row_of(concat("consume bytes=65536 warps=", warps), arm)));
      board.set(concat(warps, " warps"), arm, 3);
    }
  }
  board.print();
  return {};
}

}  // namespace kernwright::boundaries
