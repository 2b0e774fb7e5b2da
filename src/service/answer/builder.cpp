#include "service/answer/builder.h"

#include <optional>
#include <utility>

#include "compile/launch_fit.h"
#include "compile/render.h"
#include "support/try.h"

namespace kernwright {

Builder::Builder(const Catalog& catalog, int sm_arch, const TieredCache& cache,
                 std::unique_ptr<Compiler> compiler, Options options)
    : catalog_(catalog),
      sm_arch_(sm_arch),
      cache_(cache),
      artifacts_(std::make_shared<ArtifactCache>(cache, options.patience)),
      pool_(new CompilePool(std::move(compiler), {.threads = options.threads}, artifacts_)),
      seal_(std::move(options.log)) {}

Result<Artifact> Builder::build(const Candidate& candidate) {
  KW_TRY(check_not_forked());
  KW_TRY(load_compiler());
  CompileRequest request = render(candidate, catalog_, sm_arch_);
  KW_ASSIGN(std::string digest, pool_->digest(request));
  if (seal_.closed() && !artifacts_->find(digest)) {
    KW_TRY(seal_.admit(candidate.problem->text(), "its bits are not stored"));
  }
  Build build = pool_->submit(std::move(request), std::move(digest));
  KW_ASSIGN(std::shared_ptr<const CompiledKernel> kernel, build.get());
  if (std::optional<Misfit> misfit = find_misfit(candidate.plan, *kernel)) {
    return Error{ErrorCode::invalid_argument, std::move(misfit->what)};
  }
  return Artifact{
      .digest = std::move(build.digest), .kernel = std::move(kernel), .cached = build.stored};
}

Result<Builder::Recompiled> Builder::recompile(const Candidate& candidate,
                                               const std::string& digest) {
  KW_TRY(load_compiler());
  const CompileRequest request = render(candidate, catalog_, sm_arch_);
  KW_ASSIGN(const std::string today, pool_->digest(request));
  if (today != digest) return Recompiled::other_code;
  const Lookup<CompiledKernel> stored = cache_.artifact(digest);
  if (!stored) return Error{ErrorCode::not_found, stored.detail};
  KW_ASSIGN(const CompiledKernel again, pool_->compiler().compile(request));
  return again.bits == stored.value->bits ? Recompiled::same : Recompiled::differs;
}

Result<void> Builder::load_compiler() {
  KW_ASSIGN(std::string identity, pool_->compiler().identity());
  const MutexLock lock(mutex_);
  compiler_ = std::move(identity);
  return {};
}

std::string Builder::compiler() const {
  const MutexLock lock(mutex_);
  return compiler_;
}

}  // namespace kernwright
