#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "bench/simulation/bare_candidates.h"
#include "bench/simulation/recorded_space.h"
#include "bench/simulation/virtual_clock.h"
#include "tuner/search/compile_queue.h"

namespace kernwright {

/// A compile queue on a virtual clock. A compile takes the recorded seconds and returns a kernel
/// without code, with the recorded resources. Candidates that are recorded as failed to compile, or
/// as spilling, do so here too.
class VirtualCompileQueue final : public CompileQueue {
 public:
  /// All of them outlive it; `threads` is at least 1.
  VirtualCompileQueue(const RecordedSpace& space, const BareCandidates& candidates,
                      VirtualClock& clock, int threads);

  void start(std::size_t candidate) override;
  bool wants_more() const override;
  bool empty() const override { return pending_.empty(); }
  bool ended(std::size_t candidate) const override;
  std::optional<Ready> take() override;
  Ready wait_for(std::size_t candidate) override;
  int compiled() const override { return compiled_; }
  double compile_seconds() const override { return compile_seconds_; }
  int threads() const override { return static_cast<int>(free_at_.size()); }

 private:
  struct Pending {
    std::size_t candidate = 0;
    double ends_at = 0;
  };
  using Place = std::deque<Pending>::iterator;

  Place find(std::size_t candidate);
  Ready finish(const Place& pending);

  const RecordedSpace& space_;
  const BareCandidates& candidates_;
  VirtualClock& clock_;
  std::vector<double> free_at_;  ///< of each compiler
  std::deque<Pending> pending_;  ///< in the order of the starts
  int compiled_ = 0;
  double compile_seconds_ = 0;
};

}  // namespace kernwright
