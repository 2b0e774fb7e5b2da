#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/files/embedded_files.h"
#include <kernwright/result.h>

namespace kernwright::boundaries {

/// What `boundaries.cuh` and `persistent.cu` say too.
inline constexpr std::uint32_t kSlotBytes = 16384;
inline constexpr std::uint32_t kRingSlots = 12;
inline constexpr std::uint32_t kHeldSlots = 4;     ///< of a step kernel's early shared memory
inline constexpr std::uint32_t kWordsOffset = 64;  ///< of the blocks' words, behind the counter

/// Whom the words of a step go to.
enum class Reach : std::uint32_t { nobody, everybody, neighbours };
/// Where the weights of a persistent kernel's step come from.
enum class Source : std::uint32_t { none, after, ahead, ring, beside };

/// The device's kernels by their files: steps.cu, persistent.cu, probes.cu.
inline constexpr std::string_view kKernelFiles[] = {"steps.cu", "persistent.cu", "probes.cu"};

/// The request for a file of kernels. Errors: `not_found` for another name.
Result<CompileRequest> kernel_request(std::string_view file, int sm_arch);

/// One launch of a kernel whose parameters are first pointers, then 32-bit numbers.
struct KernelShape {
  std::string kernel;
  std::size_t pointers = 0;
  std::size_t numbers = 0;
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  bool cooperative = false;
  bool programmatic = false;

  ExecutionPlan plan() const;
};

/// The weights that a step reads: block b has the `slots` slots from `first_slot` + b * `slots` on.
/// Each 32-bit word of the weights is its own number.
struct StepWeights {
  std::uint64_t first_slot = 0;
  std::uint32_t slots = 0;
};

/// The sum of the words of `slots` slots, modulo 2^32.
std::uint32_t weights_sum(std::uint64_t first_slot, std::uint64_t slots);

/// What the first step of a chain reads.
std::vector<std::uint32_t> initial_words(std::uint32_t words);

/// What the last step of a chain of `blocks` blocks passes on; there are at least three blocks.
std::vector<std::uint32_t> passed_words(Reach reach, std::uint32_t words, std::uint32_t blocks,
                                        std::span<const StepWeights> steps);

/// One block's row of results of the kernels that consume 64 KB `passes` times.
std::vector<float> consumed_sums(std::uint32_t passes);

}  // namespace kernwright::boundaries

namespace kernwright {

/// bench/boundaries/: the kernels' texts.
std::span<const EmbeddedFile> embedded_boundaries();

}  // namespace kernwright
