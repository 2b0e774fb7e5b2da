#include "tuner/session/compile_ahead.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "compile/render.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Of a compiler's log in a trial.
constexpr std::size_t kMaxDetail = 2000;

Outcome outcome_of(ErrorCode code) {
  return code == ErrorCode::timed_out ? Outcome::timed_out : Outcome::compile_failed;
}

/// What the compiler says that speed is lost by.
std::string warnings_of(const CompiledKernel& kernel) {
  std::string text;
  for (const std::string& warning : kernel.warnings) {
    text += concat(text.empty() ? "" : "; ", warning);
  }
  return text.substr(0, kMaxDetail);
}

/// What a function that the problem brings along does to the code around it and must not; empty
/// where it does nothing of the kind. Spills are judged as everybody's.
std::string harm_of_function(const CompiledKernel& kernel) {
  if (!kernel.warnings.empty()) return warnings_of(kernel);
  for (const auto& [name, resources] : kernel.entries) {
    if (resources.stack_bytes > 0 && resources.spill_bytes() == 0) {
      return concat(resources.stack_bytes, " bytes of each thread's values lie in memory");
    }
  }
  return {};
}

}  // namespace

void CompileAhead::start(std::size_t candidate) {
  CompileRequest request = render(candidates_[candidate], catalog_, sm_arch_);
  const std::string digest = artifact_digest(request, compiler_, pool_.compiler()).hex();
  if (!compiles_.contains(digest)) {
    Compile compile;
    if (Lookup<CompiledKernel> stored = artifacts_.get(digest)) {
      std::promise<CompileResult> promise;
      promise.set_value(std::make_shared<const CompiledKernel>(*std::move(stored.value)));
      compile.future = promise.get_future().share();
      compile.stored = true;
    } else {
      compile.future = pool_.submit(std::move(request));
    }
    compiles_.emplace(digest, std::move(compile));
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
  using namespace std::chrono_literals;
  return compiles_.at(pending.digest).future.wait_for(0s) == std::future_status::ready;
}

bool CompileAhead::ended(std::size_t candidate) const {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.candidate == candidate;
  });
  return found != pending_.end() && has_ended(*found);
}

CompileAhead::Ready CompileAhead::finish(const std::deque<Pending>::iterator& pending) {
  Compile& compile = compiles_.at(pending->digest);
  Ready ready{pending->candidate, std::move(pending->digest), compile.future.get()};
  pending_.erase(pending);
  if (!std::exchange(compile.counted, true)) {
    ++compiled_;
    if (ready.kernel && !compile.stored) compile_seconds_ += ready.kernel.value()->seconds;
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

CompileVerdict judge(const Candidate& candidate, const CompileResult& compiled,
                     const DeviceProfile& profile) {
  if (!compiled) {
    return {outcome_of(compiled.error().code), compiled.error().message.substr(0, kMaxDetail)};
  }
  const CompiledKernel& kernel = *compiled.value();
  // The candidates of a recorded space have no operation.
  if (candidate.operation && candidate.operation->takes_function(candidate.problem)) {
    if (const std::string harm = harm_of_function(kernel); !harm.empty()) {
      return {Outcome::compile_failed, concat("with the problem's function, ", harm)};
    }
  }
  const Resources resources = kernel.resources();
  const std::int64_t allowed = candidate.kernel_template->allowed_spill_bytes;
  if (resources.spill_bytes() > std::min(allowed, kMostSpillBytes)) {
    const bool by_manifest = allowed <= kMostSpillBytes;
    return {Outcome::spilled,
            concat("spills ", resources.spill_bytes(), " bytes, ",
                   by_manifest ? "the manifest allows " : "more than the limit of ",
                   by_manifest ? allowed : kMostSpillBytes)};
  }
  for (const LaunchPlan& launch : candidate.plan.launches) {
    const auto entry = std::find_if(kernel.entries.begin(), kernel.entries.end(),
                                    [&](const KernelEntry& e) { return e.name == launch.kernel; });
    if (entry == kernel.entries.end()) continue;
    const std::int64_t smem =
        std::int64_t{entry->resources.static_smem_bytes} + launch.dynamic_smem;
    if (smem > profile.smem_per_block_optin) {
      return {Outcome::launch_failed,
              concat(launch.kernel, " needs ", smem, " bytes of shared memory, a block has ",
                     profile.smem_per_block_optin)};
    }
    // Registers are handed out in units of 8 per thread, to whole warps.
    const std::int64_t threads = std::int64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    const std::int64_t registers =
        (std::int64_t{entry->resources.registers} + 7) / 8 * 8 * ((threads + 31) / 32 * 32);
    if (registers > profile.registers_per_sm) {
      return {Outcome::launch_failed,
              concat(launch.kernel, " needs ", registers, " registers per block, an SM has ",
                     profile.registers_per_sm)};
    }
  }
  CompileVerdict verdict;
  verdict.detail = warnings_of(kernel);
  return verdict;
}

}  // namespace kernwright
