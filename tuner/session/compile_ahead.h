#pragma once

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cache/stores/artifact_store.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include "tuner/search/compile_queue.h"
#include <kernwright/result.h>

namespace kernwright {

/// The queue on a compile pool. Requests that are equal, and those whose artifact is stored, are
/// compiled once or not at all.
class CompileAhead final : public CompileQueue {
 public:
  /// `candidates` outlives it. `compiler` is the identity that enters artifact digests.
  CompileAhead(std::span<const Candidate> candidates, const Catalog& catalog, int sm_arch,
               std::string compiler, CompilePool& pool, const ArtifactStore& artifacts)
      : candidates_(candidates),
        catalog_(catalog),
        sm_arch_(sm_arch),
        compiler_(std::move(compiler)),
        pool_(pool),
        artifacts_(artifacts) {}

  void start(std::size_t candidate) override;
  bool wants_more() const override;
  bool empty() const override { return pending_.empty(); }
  bool ended(std::size_t candidate) const override;
  std::optional<Ready> take() override;
  Ready wait_for(std::size_t candidate) override;
  int compiled() const override { return compiled_; }
  double compile_seconds() const override { return compile_seconds_; }
  int threads() const override { return pool_.threads(); }

 private:
  struct Compile {
    std::shared_future<CompileResult> future;
    bool stored = false;
    bool counted = false;
  };
  struct Pending {
    std::size_t candidate = 0;
    std::string digest;
  };

  Ready finish(const std::deque<Pending>::iterator& pending);
  bool has_ended(const Pending& pending) const;

  std::span<const Candidate> candidates_;
  const Catalog& catalog_;
  int sm_arch_;
  std::string compiler_;
  CompilePool& pool_;
  const ArtifactStore& artifacts_;
  std::map<std::string, Compile> compiles_;  ///< by digest
  std::deque<Pending> pending_;
  int compiled_ = 0;
  double compile_seconds_ = 0;
};

}  // namespace kernwright
