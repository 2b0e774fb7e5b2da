#include <cstdio>
#include <string>
#include <vector>

#include "bench/boundaries/board.h"
#include "bench/boundaries/chains.h"
#include "bench/boundaries/experiments.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::boundaries {
namespace {

constexpr std::uint32_t kSmallWords = 512;        // 2 KB: a row of 1024 elements
constexpr std::uint32_t kLargeWords = 2048;       // 8 KB: a row of 4096
constexpr std::uint32_t kNeighbourWords = 16384;  // 64 KB in all
constexpr std::uint32_t kChainSteps = 225;
constexpr std::uint32_t kBarrierSteps = 1000;
constexpr std::uint32_t kBarrierConsumers = 256;  // with the copying warp 288 threads
constexpr std::uint32_t kEarlySteps = 56;
constexpr std::uint32_t kEarlySlots[] = {4, 2};  // 8.65 and 4.33 MB on 132 multiprocessors

Work nothing() { return {.name = "nothing"}; }
Work to_all(std::uint32_t words) {
  return {.name = concat(words / 256, " KB"), .reach = Reach::everybody, .words = words};
}

/// What is crossed where nothing is passed on: data needs a word of each block.
Work for_data(Work work, std::uint32_t blocks) {
  if (work.words > 0) return work;
  work.reach = Reach::everybody;
  work.words = (blocks + 3) / 4 * 4;
  return work;
}

std::string megabytes(const Work& work, std::uint32_t blocks) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", work.bytes_per_unit(blocks) * 1e-6 / work.steps());
  return text;
}

std::vector<Arm> arms_of_steps(Lab& lab, const Work& work, bool has_weights) {
  std::vector<Arm> arms;
  const auto kernels = [&](const char* name, const char* kernel, bool in_graph = true) {
    arms.push_back(make_arm(lab, name, work, StepKernels{.name = kernel, .in_graph = in_graph}));
  };
  const Source after = has_weights ? Source::after : Source::none;
  const auto persistent = [&](std::string_view crossing, Source source, const char* suffix) {
    const Work crossed = crossing == "data" ? for_data(work, lab.blocks()) : work;
    arms.push_back(make_arm(lab, concat("persistent_", crossing, suffix), crossed,
                            PersistentKernel{.crossing = crossing, .source = source}));
  };
  kernels("stream", "none_nothing", false);
  kernels("graph", "none_nothing");
  kernels("programmatic_start", "start_nothing");
  kernels("programmatic_middle", "middle_nothing");
  if (has_weights) {
    kernels("programmatic_start_registers", "start_registers");
    kernels("programmatic_start_shared", "start_shared");
    kernels("programmatic_middle_registers", "middle_registers");
    kernels("programmatic_middle_shared", "middle_shared");
  }
  for (const char* crossing : {"add", "red", "words", "flags", "data"}) {
    persistent(crossing, after, "");
  }
  if (has_weights) {
    for (const char* crossing : {"red", "words", "flags", "data"}) {
      persistent(crossing, Source::ahead, "_ahead");
    }
    for (const char* crossing : {"red", "words", "flags", "data"}) {
      persistent(crossing, Source::ring, "_ring");
    }
  }
  return arms;
}

}  // namespace

Result<void> run_steps(Lab& lab, int rounds, BenchJson& json) {
  Work neighbours{.name = "64 KB near", .reach = Reach::neighbours, .words = kNeighbourWords};
  for (const std::uint32_t count : {1U, 29U, kChainSteps}) {
    Board board(concat("us a step, of ", count));
    for (const Work& passed : {nothing(), neighbours, to_all(kSmallWords), to_all(kLargeWords)}) {
      const Work work = with_steps(passed, count, 0, lab.blocks(), lab.region_slots());
      std::vector<Arm> arms = arms_of_steps(lab, work, false);
      KW_TRY(measure(lab, arms, rounds, concat("steps count=", count, " passes=", work.name),
                     work.name, board, json));
    }
    for (const std::uint32_t slots : {1U, 4U, 16U}) {
      if (count == 1) continue;
      const Work work =
          with_steps(to_all(kLargeWords), count, slots, lab.blocks(), lab.region_slots());
      const std::string weights = megabytes(work, lab.blocks());
      std::vector<Arm> arms = arms_of_steps(lab, work, true);
      KW_TRY(measure(lab, arms, rounds,
                     concat("steps count=", count, " passes=", work.name, " weights=", weights),
                     concat("8 KB, ", weights), board, json));
    }
    board.print();
  }
  return {};
}

Result<void> run_barrier(Lab& lab, int rounds, BenchJson& json) {
  Board board(concat("us a barrier, of ", kBarrierSteps));
  for (const Work& passed : {nothing(), to_all(kSmallWords)}) {
    for (const Source source : {Source::none, Source::beside}) {
      const bool streams = source == Source::beside;
      std::vector<Arm> arms;
      for (const char* crossing : {"add", "red", "words", "flags", "data"}) {
        const bool is_data = std::string_view(crossing) == "data";
        const Work work = with_steps(is_data ? for_data(passed, lab.blocks()) : passed,
                                     kBarrierSteps, 0, lab.blocks(), lab.region_slots());
        arms.push_back(
            make_arm(lab, crossing, work,
                     PersistentKernel{
                         .crossing = crossing, .source = source, .consumers = kBarrierConsumers}));
      }
      const std::string column = concat(passed.name, streams ? ", streaming" : ", alone");
      lab.sample(arms, rounds);
      for (Arm& arm : arms) {
        if (streams && arm.has_times()) {
          KW_ASSIGN(const std::uint64_t slots, streamed_slots(lab, arm));
          const double tbps = static_cast<double>(slots) * kSlotBytes / arm.us.back() * 1e-6;
          arm.more["beside_tbps"] = tbps;
          char text[32];
          std::snprintf(text, sizeof(text), "%.2f", tbps);
          board.set(concat(arm.name, ": TB/s beside it"), column, text);
        }
        KW_TRY(json.add(row_of(
            concat("barrier passes=", passed.name, streams ? " beside=stream" : " beside=nothing"),
            arm)));
        board.set(column, arm, 3);
      }
    }
  }
  board.print();
  return {};
}

Result<void> run_period(Lab& lab, int rounds, BenchJson& json) {
  Board board(concat("us a kernel, of ", kChainSteps));
  for (const std::uint32_t threads : {128U, 256U, 512U}) {
    for (const Work& passed : {nothing(), to_all(kSmallWords)}) {
      const Work work = with_steps(passed, kChainSteps, 0, lab.blocks(), lab.region_slots());
      std::vector<Arm> arms;
      for (const auto& [name, kernel] : {std::pair{"graph", "none_nothing"},
                                         {"programmatic_start", "start_nothing"},
                                         {"programmatic_middle", "middle_nothing"}}) {
        arms.push_back(make_arm(lab, name, work, StepKernels{.name = kernel, .threads = threads}));
      }
      KW_TRY(measure(lab, arms, rounds, concat("period threads=", threads, " passes=", work.name),
                     concat(threads, " threads, ", work.name), board, json));
    }
  }
  board.print();
  return {};
}

Result<void> run_early(Lab& lab, int rounds, BenchJson& json) {
  Board board("us a step");
  for (const std::uint32_t count : {2U, kEarlySteps}) {
    // Single pairs are cold, because the arms of one round read different weights.
    std::vector<Arm> arms;
    std::uint64_t next_slot = 0;
    for (const char* kernel :
         {"none_nothing", "start_nothing", "start_l2", "start_registers", "start_shared",
          "middle_nothing", "middle_l2", "middle_registers", "middle_shared"}) {
      Work work = with_steps(to_all(kSmallWords), count, 0, lab.blocks(), lab.region_slots());
      for (std::uint32_t step = 0; step < count; ++step) {
        const std::uint32_t slots = kEarlySlots[step % 2];
        work.units.front()[step] = {next_slot, slots};
        next_slot += std::uint64_t{slots} * lab.blocks();
      }
      if (count == kEarlySteps) next_slot = 0;
      arms.push_back(make_arm(lab, kernel, work, StepKernels{.name = kernel}));
    }
    KW_TRY(measure(lab, arms, rounds, concat("early count=", count, " passes=2 KB slots=4,2"),
                   count == 2 ? "a pair" : concat("a chain of ", count), board, json));
  }
  board.print();
  return {};
}

}  // namespace kernwright::boundaries
