#include "bench/boundaries/kernels.h"

#include <numeric>

#include "support/text.h"

namespace kernwright::boundaries {
namespace {

constexpr std::uint32_t kConsumedRows = 32;
constexpr std::uint32_t kConsumedColumns = 1024;

std::uint32_t mixed(std::uint32_t sum, std::uint32_t word, std::uint32_t step) {
  std::uint32_t bits = sum + word * 0x9e3779b9U + step * 0xc2b2ae35U;
  bits = (bits ^ (bits >> 15)) * 0x9e3779b1U;
  return bits ^ (bits >> 13);
}

std::uint32_t sum_of(std::span<const std::uint32_t> words) {
  return std::accumulate(words.begin(), words.end(), std::uint32_t{0});
}

const EmbeddedFile* find_text(std::string_view path) {
  for (const EmbeddedFile& text : embedded_boundaries()) {
    if (text.path == path) return &text;
  }
  return nullptr;
}

}  // namespace

Result<CompileRequest> kernel_request(std::string_view file, int sm_arch) {
  const EmbeddedFile* source = find_text(file);
  const EmbeddedFile* header = find_text("boundaries.cuh");
  if (!source || !header) return Error{ErrorCode::not_found, concat("no kernels in ", file)};
  CompileRequest request;
  request.name = concat("boundaries/", file);
  request.source = source->content;
  request.headers = {{"boundaries/boundaries.cuh", std::string(header->content)}};
  request.target = concat("sm_", sm_arch, sm_arch == 90 ? "a" : "");
  return request;
}

ExecutionPlan KernelShape::plan() const {
  ExecutionPlan result;
  LaunchPlan launch;
  launch.kernel = kernel;
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  launch.dynamic_smem = shared_bytes;
  launch.cooperative = cooperative;
  launch.programmatic = programmatic;
  launch.waits = programmatic;
  for (std::size_t i = 0; i < pointers; ++i) {
    TensorShape tensor;
    tensor.name = concat("pointer", i);
    tensor.extent = {1};
    result.tensors.push_back(std::move(tensor));
    launch.arguments.push_back({.kind = ArgumentKind::tensor, .index = i, .value = 0});
  }
  for (std::size_t i = 0; i < numbers; ++i) {
    Scalar scalar;
    scalar.name = concat("number", i);
    scalar.dtype = DType::int32;
    result.scalars.push_back(std::move(scalar));
    launch.arguments.push_back({.kind = ArgumentKind::scalar, .index = i, .value = 0});
  }
  result.launches = {std::move(launch)};
  return result;
}

std::uint32_t weights_sum(std::uint64_t first_slot, std::uint64_t slots) {
  constexpr std::uint64_t kWords = kSlotBytes / 4;
  const std::uint64_t first = first_slot * kWords;
  const std::uint64_t count = slots * kWords;
  return static_cast<std::uint32_t>(first * count + count * (count - 1) / 2);
}

std::vector<std::uint32_t> initial_words(std::uint32_t words) {
  std::vector<std::uint32_t> result(words);
  for (std::uint32_t i = 0; i < words; ++i) result[i] = mixed(0, i, ~0U);
  return result;
}

std::vector<std::uint32_t> passed_words(Reach reach, std::uint32_t words, std::uint32_t blocks,
                                        std::span<const StepWeights> steps) {
  const auto bound = [&](std::uint32_t block) {
    return static_cast<std::size_t>(std::uint64_t{words} * block / blocks);
  };
  const auto sum_of_share = [&](std::span<const std::uint32_t> all, std::uint32_t block) {
    return sum_of(all.subspan(bound(block), bound(block + 1) - bound(block)));
  };
  std::vector<std::uint32_t> in = initial_words(words);
  std::vector<std::uint32_t> out(words);
  for (std::uint32_t step = 0; step < steps.size(); ++step) {
    const std::uint32_t everything = reach == Reach::everybody ? sum_of(in) : 0;
    const auto [first_slot, slots] = steps[step];
    for (std::uint32_t block = 0; block < blocks; ++block) {
      std::uint32_t sum =
          everything + weights_sum(first_slot + std::uint64_t{block} * slots, slots);
      if (reach == Reach::neighbours) {
        sum += sum_of_share(in, (block + blocks - 1) % blocks) +
               sum_of_share(in, (block + 1) % blocks);
      }
      for (std::size_t i = bound(block); i < bound(block + 1); ++i) {
        out[i] = mixed(sum, static_cast<std::uint32_t>(i), step);
      }
    }
    std::swap(in, out);
  }
  return in;
}

std::vector<float> consumed_sums(std::uint32_t passes) {
  std::vector<float> result(kConsumedRows);
  for (std::uint32_t row = 0; row < kConsumedRows; ++row) {
    int sum = 0;
    for (std::uint32_t column = 0; column < kConsumedColumns; ++column) {
      const int weight = static_cast<int>((row * 7 + column * 3) % 5) - 2;
      const int input = static_cast<int>(column % 3) - 1;
      sum += weight * input;
    }
    result[row] = static_cast<float>(sum) * static_cast<float>(passes);
  }
  return result;
}

}  // namespace kernwright::boundaries
