#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include "tuner/search/compile_queue.h"
#include <kernwright/result.h>

namespace kernwright {

/// The queue on a compile pool. Equal requests are one compile.
class CompileAhead final : public CompileQueue {
 public:
  /// The arguments outlive it.
  CompileAhead(std::span<const Candidate> candidates, const Catalog& catalog, int sm_arch,
               CompilePool& pool)
      : candidates_(candidates), catalog_(catalog), sm_arch_(sm_arch), pool_(pool) {}

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
    Build build;
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
  CompilePool& pool_;
  std::map<std::string, Compile> compiles_;  ///< by digest
  std::deque<Pending> pending_;
  int compiled_ = 0;
  double compile_seconds_ = 0;
};

}  // namespace kernwright
