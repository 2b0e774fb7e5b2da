// Fuzzes worklists and the configs of models, which may be any text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
#include "models/model_worklist.h"
#include "service/sweep/sizes.h"
#include "service/sweep/worklist.h"

using namespace kernwright;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Result<std::shared_ptr<const Catalog>> catalog = Catalog::load({});
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto sizes = parse_sizes(input)) {
    for (const std::int64_t value : *sizes) require(value >= 1);
  }
  if (const auto shard = parse_shard(input))
    require(shard->index >= 1 && shard->index <= shard->count);
  if (const auto entries = parse_worklist(input, "w.json")) {
    require(entries->size() <= kMostProblems);
    std::vector<Problem> problems;
    for (const WorklistEntry& entry : *entries) problems.push_back(entry.problem);
    // All shards together are the list.
    std::size_t covered = 0;
    for (std::size_t index = 1; index <= 3; ++index) {
      covered += shard_of(problems, {index, 3}).size();
    }
    require(covered == problems.size());
    constexpr std::size_t kRead = 1000;  // of a short text that stands for many more
    for (const Problem& problem : std::span(problems).first(std::min(kRead, problems.size()))) {
      if (const auto operation = (*catalog)->operation(problem.operation())) {
        const auto normalized = (*operation)->normalize(problem);
        if (!normalized) continue;
        const auto again = Problem::parse(normalized->text());
        require(again && (*operation)->normalize(*again)->text() == normalized->text());
      }
    }
  }
  static_cast<void>(
      model_worklist(input, "c.json",
                     {.tokens = {1, 16}, .contexts = {64, 4096}, .tensor_parallel = 2}, **catalog));
  return 0;
}
