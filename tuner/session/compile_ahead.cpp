#include "tuner/session/compile_ahead.h"

#include <algorithm>
#include <utility>

#include "compile/render.h"

namespace kernwright {

void CompileAhead::start(std::size_t candidate) {
  CompileRequest request = render(candidates_[candidate], catalog_, sm_arch_);
  const Result<std::string> known = pool_.digest(request);
  // Without a compiler there is no digest, and all requests fail alike.
  const std::string digest = known ? *known : std::string();
  if (!compiles_.contains(digest)) {
    compiles_[digest].build =
        known ? pool_.submit(std::move(request), digest) : pool_.submit(std::move(request));
  }
  pending_.push_back({candidate, digest});
}

bool CompileAhead::wants_more() const {
  const auto threads = static_cast<std::size_t>(pool_.threads());
  const auto unfinished = static_cast<std::size_t>(std::count_if(
      pending_.begin(), pending_.end(), [this](const Pending& p) { return !has_ended(p); }));
  return unfinished < 2 * threads && pending_.size() < 8 * threads;
}

bool CompileAhead::has_ended(const Pending& pending) const {
  return compiles_.at(pending.digest).build.ended();
}

bool CompileAhead::ended(std::size_t candidate) const {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.candidate == candidate;
  });
  return found != pending_.end() && has_ended(*found);
}

CompileAhead::Ready CompileAhead::finish(const std::deque<Pending>::iterator& pending) {
  Compile& compile = compiles_.at(pending->digest);
  Ready ready{pending->candidate, std::move(pending->digest), compile.build.get()};
  pending_.erase(pending);
  if (!std::exchange(compile.counted, true)) {
    ++compiled_;
    if (ready.kernel && !compile.build.stored) compile_seconds_ += ready.kernel.value()->seconds;
  }
  return ready;
}

std::optional<CompileAhead::Ready> CompileAhead::take() {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [this](const Pending& pending) { return has_ended(pending); });
  if (found == pending_.end()) return std::nullopt;
  return finish(found);
}

CompileAhead::Ready CompileAhead::wait_for(std::size_t candidate) {
  return finish(std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.candidate == candidate;
  }));
}

}  // namespace kernwright
