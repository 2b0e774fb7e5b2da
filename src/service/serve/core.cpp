#include "service/serve/core.h"

#include <chrono>
#include <future>
#include <utility>

#include "cache/entries/default_root.h"
#include "compile/render.h"
#include "service/serve/guarded.h"
#include "support/gigabytes.h"
#include "support/hash.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright {
namespace {

constexpr std::chrono::milliseconds kCompileDeadline{60'000};

/// Whether the problem's tensors fit in the GPU's memory: nothing of it could ever be launched
/// else.
Result<void> check_memory(const Operation& operation, const Problem& normalized,
                          const DeviceProfile& profile) {
  KW_ASSIGN(const std::vector<TensorShape> shapes, operation.tensor_shapes(normalized));
  double bytes = 0;
  for (const TensorShape& shape : shapes) bytes += static_cast<double>(shape.bytes());
  if (profile.memory_bytes == 0 || bytes <= static_cast<double>(profile.memory_bytes)) return {};
  return Error{ErrorCode::invalid_argument,
               concat("the tensors of ", normalized.text(), " take ", gigabytes(bytes), "; ",
                      profile.id, " has ", gigabytes(static_cast<double>(profile.memory_bytes)))};
}

std::string digest_of_template(const KernelTemplate& kernel_template, const Catalog& catalog) {
  Hasher hasher;
  for (const JsonFile& manifest : kernel_template.manifests) hasher.add("manifest", manifest.text);
  hasher.add("source", kernel_template.source);
  for (const auto* headers : {&catalog.headers(), &kernel_template.headers}) {
    for (const DeviceHeader& header : *headers) hasher.add(header.name, header.text);
  }
  return hasher.finish().hex();
}

}  // namespace

// One lookup that several callers wait for.
struct ServiceCore::Flight {
  std::promise<Result<const LoadedKernel*>> promise;
  std::shared_future<Result<const LoadedKernel*>> future{promise.get_future().share()};
};

ServiceCore::ServiceCore(ServiceOptions options, Surroundings surroundings,
                         std::shared_ptr<const Catalog> catalog)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      catalog_(std::move(catalog)),
      cache_(options_.cache.empty() ? default_cache_root() : std::filesystem::path(options_.cache),
             {options_.read_only_caches.begin(), options_.read_only_caches.end()}),
      compiler_(std::make_shared<SingleFlightCompiler>(surroundings_.make_compiler(), cache_.root(),
                                                       surroundings_.patience)) {}

ServiceCore::~ServiceCore() {
  if (check_not_forked()) return;
  // Their threads are in the parent, and so is the worker: there is nothing here to wait for.
  [[maybe_unused]] const auto* background = background_.release();
  [[maybe_unused]] const auto* worker = measuring_.release();
  [[maybe_unused]] const auto* pool = pool_.release();
}

Result<std::shared_ptr<ServiceCore>> ServiceCore::open(ServiceOptions options,
                                                       Surroundings surroundings) {
  KW_TRY(check_not_forked());
  KW_ASSIGN(std::shared_ptr<const Catalog> catalog,
            Catalog::load({options.template_dirs.begin(), options.template_dirs.end()},
                          {options.epilogues.begin(), options.epilogues.end()}));

  DeviceProfile profile;
  DeviceIdentity identity;
  const bool has_device = options.sku.empty();
  if (has_device) {
    Result<CudaDeviceInfo> info = surroundings.describe_device(options.device);
    if (!info) {
      return Error{info.error().code, concat("no GPU to work on (", info.error().message,
                                             "); name a sku, such as h200, to work without one")};
    }
    profile = info->profile;
    identity = info->identity;
  } else {
    Result<DeviceProfile> found = find_profile(options.sku);
    if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
    profile = *std::move(found);
  }

  std::shared_ptr<ServiceCore> core(
      new ServiceCore(std::move(options), std::move(surroundings), std::move(catalog)));
  core->profile_ = std::move(profile);
  core->identity_ = std::move(identity);
  core->has_device_ = has_device;
  if (has_device && core->may_compile() &&
      core->options_.on_miss == MissPolicy::tune_in_background) {
    core->tune_in_background();
  }
  return core;
}

void ServiceCore::log(LogLevel level, std::string_view message) const {
  if (options_.log) options_.log(level, message);
}

Result<ServiceCore::Named> ServiceCore::name(const Problem& problem) const {
  Result<const Operation*> found = catalog_->operation(problem.operation());
  if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
  KW_TRY(check_policy(policy(), **found));
  KW_ASSIGN(Problem normalized, (*found)->normalize(problem));
  KW_TRY(check_memory(**found, normalized, profile_));
  return Named{*found, std::move(normalized)};
}

CompilePool& ServiceCore::pool() {
  std::call_once(pool_once_, [this] {
    pool_ = std::make_unique<CompilePool>(
        compiler_,
        CompilePoolOptions{.threads = options_.compile_threads, .deadline = kCompileDeadline});
  });
  return *pool_;
}

Result<std::string> ServiceCore::load_compiler() {
  Result<std::string> identity = compiler_->identity();
  if (!identity) return identity;
  const std::lock_guard lock(compiler_mutex_);
  compiler_identity_ = *identity;
  return identity;
}

RecordKey ServiceCore::key(const Problem& normalized) const {
  return {.problem = normalized.text(),
          .target = concat("sm_", profile_.sm_arch),
          .sku = profile_.id,
          .policy = policy()};
}

std::string ServiceCore::template_digest(std::string_view kernel_template) const {
  const std::lock_guard lock(template_digests_mutex_);
  if (const auto known = template_digests_.find(kernel_template);
      known != template_digests_.end()) {
    return known->second;
  }
  const Result<const KernelTemplate*> found = catalog_->kernel_template(kernel_template);
  if (!found) return {};
  std::string digest = digest_of_template(**found, *catalog_);
  template_digests_.emplace(kernel_template, digest);
  return digest;
}

RecordEnvironment ServiceCore::environment() const {
  const std::lock_guard lock(compiler_mutex_);
  return {.template_digest = {},
          .compiler = compiler_identity_,
          .driver = identity_.driver_version,
          .kernwright = std::string(kernwright_version())};
}

Result<Kernel> ServiceCore::get_best_kernel(const Problem& problem) {
  if (const LoadedKernel* hot = hot_.find(problem)) return hot->handle();
  KW_TRY(check_not_forked());

  KW_ASSIGN(Named named, name(problem));

  const std::string text = named.problem.text();
  std::shared_ptr<Flight> flight;
  bool leads = false;
  {
    const std::lock_guard lock(flights_mutex_);
    std::shared_ptr<Flight>& slot = flights_[text];
    if (!slot) {
      slot = std::make_shared<Flight>();
      leads = true;
    }
    flight = slot;
  }
  if (leads) {
    // Another leader may have landed between our look at the hot map and now.
    const LoadedKernel* landed = hot_.find(named.problem);
    Result<const LoadedKernel*> resolved =
        landed ? Result<const LoadedKernel*>(landed) : guarded([&] { return resolve(named); });
    if (resolved) hot_.publish(named.problem, *resolved);
    {
      const std::lock_guard lock(flights_mutex_);
      flights_.erase(text);
    }
    flight->promise.set_value(std::move(resolved));
  }
  const Result<const LoadedKernel*>& result = flight->future.get();
  if (!result) return result.error();
  hot_.alias(problem, named.problem);
  return (*result)->handle();
}

Result<Candidate> ServiceCore::candidate(const Problem& problem, std::string_view kernel_template,
                                         const ParameterValues& parameters) const {
  KW_ASSIGN(Named named, name(problem));
  KW_ASSIGN(const KernelTemplate* found, catalog_->kernel_template(kernel_template));
  if (found->operation != named.operation->name) {
    return Error{ErrorCode::invalid_argument,
                 concat("template ", kernel_template, " implements ", found->operation,
                        ", the problem is of ", named.operation->name)};
  }
  KW_TRY(applies(*found, *named.operation, named.problem, profile_));
  std::vector<std::pair<std::string, std::int64_t>> values = found->default_configuration.values();
  for (const auto& [name, value] : parameters) {
    bool known = false;
    for (auto& entry : values) {
      if (entry.first != name) continue;
      entry.second = value;
      known = true;
    }
    if (!known) {
      return Error{ErrorCode::invalid_argument,
                   concat("template ", kernel_template, " has no parameter ", name, "; it has ",
                          found->default_configuration.text())};
    }
  }
  return make_candidate(*found, *named.operation, named.problem, Configuration(std::move(values)),
                        profile_);
}

Result<Artifact> ServiceCore::compile(const Candidate& candidate) {
  KW_TRY(check_not_forked());
  const CompileRequest request = render(candidate, *catalog_, profile_.sm_arch);
  KW_ASSIGN(std::string compiler, load_compiler());
  std::string digest = artifact_digest(request, compiler, *compiler_).hex();
  if (Lookup<CompiledKernel> stored = cache_.artifact(digest)) {
    return Artifact{.digest = std::move(digest),
                    .kernel = std::make_shared<const CompiledKernel>(*std::move(stored.value)),
                    .cached = true};
  }
  CompileResult compiled = pool().submit(request).get();
  if (!compiled) return std::move(compiled).error();
  if (Result<void> put = cache_.put_artifact(digest, **compiled); !put) {
    log(LogLevel::warning, concat("artifact not stored: ", put.error().message));
  }
  return Artifact{.digest = std::move(digest), .kernel = *std::move(compiled), .cached = false};
}

Result<ServiceCore::Recompiled> ServiceCore::recompile(const RecordHead& head) {
  const Result<Problem> problem = Problem::parse(head.key.problem);
  if (!problem) return Recompiled::other_code;
  const Result<Named> named = name(*problem);
  if (!named) return Recompiled::other_code;
  KW_ASSIGN(const std::string compiler, load_compiler());
  MissReason refused = MissReason::none;
  const Result<Candidate> candidate = candidate_of(*named, head.winner, refused);
  if (!candidate) return Recompiled::other_code;
  const CompileRequest request = render(*candidate, *catalog_, profile_.sm_arch);
  if (artifact_digest(request, compiler, *compiler_).hex() != head.winner.artifact) {
    return Recompiled::other_code;
  }
  const Lookup<CompiledKernel> stored = cache_.artifact(head.winner.artifact);
  if (!stored) return Error{ErrorCode::not_found, stored.detail};
  // Not the pool's compiler: that one gives what is stored.
  KW_ASSIGN(const CompiledKernel again, surroundings_.make_compiler()->compile(request));
  return again.bits == stored.value->bits ? Recompiled::same : Recompiled::differs;
}

}  // namespace kernwright
