#include "bench/simulation/virtual_compile_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "support/hash.h"

namespace kernwright {

VirtualCompileQueue::VirtualCompileQueue(const RecordedSpace& space,
                                         const BareCandidates& candidates, VirtualClock& clock,
                                         int threads)
    : space_(space),
      candidates_(candidates),
      clock_(clock),
      free_at_(static_cast<std::size_t>(threads), 0.0) {}

void VirtualCompileQueue::start(std::size_t candidate) {
  const auto compiler = std::min_element(free_at_.begin(), free_at_.end());
  *compiler =
      std::max(*compiler, clock_.seconds()) + space_.configurations[candidate].compile_seconds;
  pending_.push_back({candidate, *compiler});
}

bool VirtualCompileQueue::wants_more() const {
  const auto unfinished = std::count_if(pending_.begin(), pending_.end(), [this](const Pending& p) {
    return p.ends_at > clock_.seconds();
  });
  return static_cast<std::size_t>(unfinished) < 2 * free_at_.size() &&
         pending_.size() < 8 * free_at_.size();
}

VirtualCompileQueue::Place VirtualCompileQueue::find(std::size_t candidate) {
  return std::find_if(pending_.begin(), pending_.end(),
                      [candidate](const Pending& p) { return p.candidate == candidate; });
}

bool VirtualCompileQueue::ended(std::size_t candidate) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) {
    return p.candidate == candidate && p.ends_at <= clock_.seconds();
  });
}

CompileQueue::Ready VirtualCompileQueue::finish(const Place& pending) {
  const std::size_t candidate = pending->candidate;
  pending_.erase(pending);
  ++compiled_;
  const RecordedConfiguration& recorded = space_.configurations[candidate];
  compile_seconds_ += recorded.compile_seconds;
  const std::string id = candidates_[candidate].id();
  if (recorded.outcome == Outcome::compile_failed || recorded.outcome == Outcome::link_failed) {
    return {candidate, digest_of(id).hex(),
            Error{ErrorCode::compile, "simulated: it does not compile"}};
  }
  auto kernel = std::make_shared<CompiledKernel>();
  KernelEntry entry;
  entry.resources.registers = recorded.registers;
  entry.resources.spill_store_bytes = recorded.spill_bytes;
  if (recorded.outcome == Outcome::spilled) {
    const std::int64_t allowed = candidates_[candidate].kernel_template->allowed_spill_bytes;
    entry.resources.spill_store_bytes =
        std::max(recorded.spill_bytes, static_cast<int>(allowed) + 1);
  }
  kernel->entries.push_back(std::move(entry));
  kernel->seconds = recorded.compile_seconds;
  return {candidate, digest_of(id).hex(), CompileResult(std::move(kernel))};
}

std::optional<CompileQueue::Ready> VirtualCompileQueue::take() {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [this](const Pending& p) {
    return p.ends_at <= clock_.seconds();
  });
  if (found == pending_.end()) return std::nullopt;
  return finish(found);
}

CompileQueue::Ready VirtualCompileQueue::wait_for(std::size_t candidate) {
  const Place pending = find(candidate);
  clock_.advance_to(pending->ends_at);
  return finish(pending);
}

}  // namespace kernwright
