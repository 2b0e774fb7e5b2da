#include "bench/boundaries/chains.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright::boundaries {
namespace {

constexpr std::uint64_t kBeyondL2Bytes = 400'000'000;
constexpr std::uint32_t kMostUnits = 8;
constexpr std::uint32_t kProducerThreads = 32;

/// Where the parts of a chain's memory lie.
class ChainMemory {
 public:
  ChainMemory(DevicePointer at, std::uint32_t words, std::uint32_t blocks)
      : words_(std::max(words, blocks)), blocks_(blocks), at_(at) {}

  DevicePointer fault() const { return at_; }
  DevicePointer sync() const { return at_ + kLine; }
  DevicePointer epochs() const {
    return sync() + (kWordsOffset + blocks_) * 4 / kLine * kLine + kLine;
  }
  DevicePointer streamed() const { return epochs() + blocks_ * 4 / kLine * kLine + kLine; }
  DevicePointer initial() const { return streamed() + blocks_ * 4 / kLine * kLine + kLine; }
  DevicePointer passed() const { return initial() + words_ * 4 / kLine * kLine + kLine; }
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(passed() - at_ + std::uint64_t{words_} * 16);
  }

 private:
  static constexpr std::uint64_t kLine = 256;

  std::uint64_t words_;
  std::uint64_t blocks_;
  DevicePointer at_;
};

Result<ChainMemory> make_memory(Lab& lab, Arm& arm, const Work& work) {
  KW_ASSIGN(arm.memory, lab.zeros(ChainMemory(0, work.words, lab.blocks()).bytes()));
  const ChainMemory memory(arm.memory->address(), work.words, lab.blocks());
  const std::vector<std::uint32_t> initial = initial_words(work.words);
  if (!initial.empty()) {
    KW_TRY(lab.device().upload(memory.initial(), std::as_bytes(std::span(initial))));
  }
  return memory;
}

/// An error where a kernel waited for too long.
Result<void> check_fault(Lab& lab, const ChainMemory& memory) {
  KW_ASSIGN(const std::vector<std::uint32_t> fault, lab.read<std::uint32_t>(memory.fault(), 1));
  if (fault[0] == 0) return {};
  return Error{ErrorCode::timed_out, concat("step ", fault[0] - 1, " waited for too long")};
}

Result<void> check_words(Lab& lab, DevicePointer from, const std::vector<std::uint32_t>& expected,
                         bool tagged) {
  const std::size_t per_word = tagged ? 2 : 1;
  KW_ASSIGN(const std::vector<std::uint32_t> words,
            lab.read<std::uint32_t>(from, expected.size() * per_word));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (words[i * per_word] != expected[i]) {
      return Error{ErrorCode::internal, concat("word ", i, " of ", expected.size(), " is ",
                                               words[i * per_word], ", not ", expected[i])};
    }
  }
  return {};
}

/// What the last unit leaves; where nothing is passed on, each block's sum of weights.
std::vector<std::uint32_t> expected_words(const Work& work, std::uint32_t blocks) {
  const std::vector<StepWeights>& steps = work.units.back();
  if (work.words > 0) return passed_words(work.reach, work.words, blocks, steps);
  std::vector<std::uint32_t> sums(blocks);
  for (const auto& [first_slot, slots] : steps) {
    for (std::uint32_t block = 0; block < blocks; ++block) {
      sums[block] += weights_sum(first_slot + std::uint64_t{block} * slots, slots);
    }
  }
  return sums;
}

/// A check that all blocks have made the steps of the same number of launches.
Result<void> check_epochs(Lab& lab, const ChainMemory& memory, std::uint32_t steps) {
  KW_ASSIGN(const std::vector<std::uint32_t> epochs,
            lab.read<std::uint32_t>(memory.epochs(), lab.blocks()));
  for (const std::uint32_t epoch : epochs) {
    if (epoch != epochs[0] || epoch == 0 || epoch % steps != 0) {
      return Error{ErrorCode::internal, concat("a block has made ", epoch, " steps, another ",
                                               epochs[0], "; a launch has ", steps)};
    }
  }
  return {};
}

Result<void> add_kernels(Lab& lab, Arm& arm, const Work& work, const StepKernels& kernels) {
  const bool early = !kernels.name.starts_with("none");
  const KernelShape shape{
      .kernel = concat("step_", kernels.name),
      .pointers = 4,
      .numbers = 5,
      .blocks = lab.blocks(),
      .threads = kernels.threads,
      .shared_bytes = kernels.name.ends_with("shared") ? kHeldSlots * kSlotBytes : 0,
      .programmatic = early};
  KW_ASSIGN(const PreparedProgram* program, lab.program(shape));
  KW_ASSIGN(const ChainMemory memory, make_memory(lab, arm, work));
  const auto passed = [&](std::uint32_t step) {
    return memory.passed() + std::uint64_t{step % 2} * work.words * 4;
  };
  for (const std::vector<StepWeights>& unit : work.units) {
    std::vector<SequenceStep>& launches = arm.units.emplace_back();
    for (std::uint32_t step = 0; step < unit.size(); ++step) {
      LaunchArguments arguments;
      arguments.tensors = {step == 0 ? memory.initial() : passed(step - 1), passed(step),
                           lab.weights() + unit[step].first_slot * kSlotBytes, memory.fault()};
      arguments.scalars = {static_cast<double>(work.words), static_cast<double>(work.reach),
                           static_cast<double>(unit[step].slots), static_cast<double>(step),
                           static_cast<double>(lab.delay_seed())};
      launches.push_back({program, std::move(arguments), early});
    }
  }
  arm.check = [&lab, memory, last = passed(work.steps() - 1),
               expected = passed_words(work.reach, work.words, lab.blocks(),
                                       work.units.back())]() -> Result<void> {
    KW_TRY(check_fault(lab, memory));
    return check_words(lab, last, expected, false);
  };
  return {};
}

Result<void> add_kernel(Lab& lab, Arm& arm, const Work& work, const PersistentKernel& kernel) {
  const bool has_ring = kernel.source == Source::ring || kernel.source == Source::beside;
  const bool tagged = kernel.crossing == "data";
  const std::uint32_t slots = work.units.front().front().slots;
  const std::uint64_t row = std::uint64_t{lab.blocks()} * std::max(slots, 1U);
  const std::uint64_t wrap = std::max(work.region_slots / row, std::uint64_t{1});
  const KernelShape shape{.kernel = concat("chain_", kernel.crossing),
                          .pointers = 7,
                          .numbers = 8,
                          .blocks = lab.blocks(),
                          .threads = kernel.consumers + (has_ring ? kProducerThreads : 0),
                          .shared_bytes = has_ring ? kRingSlots * kSlotBytes : 0,
                          .cooperative = true};
  KW_ASSIGN(const PreparedProgram* program, lab.program(shape));
  KW_ASSIGN(const ChainMemory memory, make_memory(lab, arm, work));
  for (const std::vector<StepWeights>& unit : work.units) {
    LaunchArguments arguments;
    arguments.tensors = {memory.initial(), memory.passed(), memory.epochs(),  memory.sync(),
                         memory.fault(),   lab.weights(),   memory.streamed()};
    for (const std::uint64_t number :
         {std::uint64_t{work.words}, std::uint64_t{static_cast<std::uint32_t>(work.reach)},
          std::uint64_t{slots}, std::uint64_t{unit.size()}, unit.front().first_slot / row, wrap,
          std::uint64_t{static_cast<std::uint32_t>(kernel.source)},
          std::uint64_t{lab.delay_seed()}}) {
      arguments.scalars.push_back(static_cast<double>(number));
    }
    arm.units.push_back({{program, std::move(arguments), false}});
  }
  const std::uint64_t word_bytes = tagged ? 8 : 4;
  const DevicePointer last =
      memory.passed() +
      (work.words == 0 ? 0 : std::uint64_t{(work.steps() - 1) % 2} * work.words * word_bytes);
  // A ring that nobody reads leaves no sum.
  const bool leaves_words = work.words > 0 || (kernel.source != Source::beside && slots > 0);
  arm.check = [&lab, memory, last, tagged, steps = work.steps(),
               expected = leaves_words ? expected_words(work, lab.blocks())
                                       : std::vector<std::uint32_t>()]() -> Result<void> {
    KW_TRY(check_fault(lab, memory));
    KW_TRY(check_epochs(lab, memory, steps));
    return check_words(lab, last, expected, tagged);
  };
  return {};
}

Arm new_arm(const Lab& lab, std::string name, const Work& work, bool needs_hopper) {
  Arm arm{.name = std::move(name),
          .steps = static_cast<int>(work.steps()),
          .bytes = work.bytes_per_unit(lab.blocks())};
  if (needs_hopper && !lab.is_hopper()) {
    arm.skipped = concat("needs sm_90, the GPU is sm_", lab.profile().sm_arch);
  }
  return arm;
}

}  // namespace

double Work::bytes_per_unit(std::uint32_t blocks) const {
  std::uint64_t slots = 0;
  for (const StepWeights& step : units.front()) slots += step.slots;
  return static_cast<double>(slots * blocks * kSlotBytes);
}

Work with_steps(Work work, std::uint32_t steps, std::uint32_t slots, std::uint32_t blocks,
                std::uint64_t region_slots) {
  const std::uint64_t row = std::uint64_t{slots} * blocks;
  const std::uint64_t unit_bytes = row * kSlotBytes * steps;
  const std::uint64_t units =
      slots == 0 ? 1 : std::min(kBeyondL2Bytes / unit_bytes + 1, std::uint64_t{kMostUnits});
  work.region_slots = region_slots;
  work.units.assign(units, {});
  std::uint64_t number = 0;
  for (std::vector<StepWeights>& unit : work.units) {
    for (std::uint32_t step = 0; step < steps; ++step) {
      unit.push_back({slots == 0 ? 0 : number++ % (region_slots / row) * row, slots});
    }
  }
  return work;
}

Arm make_arm(Lab& lab, std::string name, const Work& work, const StepKernels& kernels) {
  Arm arm = new_arm(lab, std::move(name), work, !kernels.name.starts_with("none"));
  arm.in_graph = kernels.in_graph;
  if (!arm.skipped.empty()) return arm;
  if (const auto added = add_kernels(lab, arm, work, kernels); !added) {
    arm.error = added.error().message;
  }
  return arm;
}

Arm make_arm(Lab& lab, std::string name, const Work& work, const PersistentKernel& kernel) {
  Arm arm = new_arm(lab, std::move(name), work,
                    kernel.source == Source::ring || kernel.source == Source::beside);
  if (!arm.skipped.empty()) return arm;
  if (const auto added = add_kernel(lab, arm, work, kernel); !added) {
    arm.error = added.error().message;
  }
  return arm;
}

Result<std::uint64_t> streamed_slots(Lab& lab, const Arm& arm) {
  // The place does not depend on the words.
  const ChainMemory memory(arm.memory->address(), 0, lab.blocks());
  KW_ASSIGN(const std::vector<std::uint32_t> slots,
            lab.read<std::uint32_t>(memory.streamed(), lab.blocks()));
  std::uint64_t all = 0;
  for (const std::uint32_t block : slots) all += block;
  return all;
}

}  // namespace kernwright::boundaries
