#include "bench/common/mutant_builds.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "compile/render.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kHeaderFolder = "kernwright/";
constexpr std::string_view kBarrierHeader = "kernwright/ptx/mbarrier.cuh";

/// The loop of mbarrier_wait, and one that gives up.
constexpr std::string_view kWait =
    R"(      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),)";
constexpr std::string_view kBoundedWait =
    R"(      "{ .reg .pred done, early;\n"
      ".reg .b64 begin, now;\n"
      ".reg .b32 given_up;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "mov.u64 begin, %%globaltimer;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "ld.volatile.global.u32 given_up, [kernwright_given_up];\n"
      "setp.ne.u32 done, given_up, 0;\n"
      "@done bra over;\n"
      "mov.u64 now, %%globaltimer;\n"
      "sub.u64 now, now, begin;\n"
      "setp.lt.u64 early, now, 10000000000;\n"
      "@early bra again;\n"
      "st.volatile.global.u32 [kernwright_given_up], 1;\n"
      "over: }" ::"r"(barrier),)";
constexpr std::string_view kGivenUp =
    "\nextern \"C\" __device__ __attribute__((used)) unsigned kernwright_given_up = 0;\n";

Result<void> bound_waits(std::string& header) {
  const std::size_t at = header.find(kWait);
  const std::size_t pragma = header.find('\n');
  if (at == header.npos) {
    return Error{ErrorCode::not_found,
                 concat(kBarrierHeader, " has another loop in mbarrier_wait")};
  }
  header.replace(at, kWait.size(), kBoundedWait);
  header.insert(pragma, kGivenUp);
  return {};
}

std::string mutated_name(const Mutant& mutant) {
  return concat(mutant.kernel_template, "_", mutant.name);
}

Result<Configuration> configuration(const KernelTemplate& made, const MutantCase& where) {
  auto values = made.default_configuration.values();
  for (const auto& [name, value] : where.changed) {
    const auto found = std::find_if(values.begin(), values.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == values.end()) {
      return Error{ErrorCode::invalid_argument,
                   concat("case ", where.name, ": ", made.name, " has no parameter ", name)};
    }
    found->second = value;
  }
  return Configuration(std::move(values));
}

/// Everything of a plan that a manifest decides.
std::string plan_text(const ExecutionPlan& plan) {
  std::string text;
  const auto extent = [&](const Extent3& e) { text += concat(e[0], ",", e[1], ",", e[2], " "); };
  for (const TensorMapPlan& map : plan.tensor_maps) {
    text += concat(map.tensor, " ", map.workspace, " ", map.swizzle, " ", map.l2_promotion, " ");
    for (const std::uint64_t stride : map.strides_bytes) text += concat(stride, ",");
    for (const std::uint32_t edge : map.box) text += concat(edge, ",");
  }
  for (const WorkspacePlan& workspace : plan.workspaces) {
    text += concat(workspace.bytes, workspace.zeroed ? "z " : workspace.kept_zero ? "k " : " ");
  }
  for (const LaunchPlan& launch : plan.launches) {
    extent(launch.grid);
    extent(launch.block);
    extent(launch.cluster);
    text += concat(launch.dynamic_smem, launch.cooperative ? "c" : "", " ");
    for (const ArgumentPlan& argument : launch.arguments) {
      text +=
          concat(static_cast<int>(argument.kind), ":", argument.index, ":", argument.value, " ");
    }
  }
  return text;
}

}  // namespace

MutantBuilds::~MutantBuilds() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<void> MutantBuilds::write_manifests(const Catalog& built_in) {
  std::string pattern = (fs::temp_directory_path() / "kernwright-mutants-XXXXXX").native();
  if (!mkdtemp(pattern.data())) {
    return Error{ErrorCode::io, concat("cannot make a folder like ", pattern)};
  }
  folder_ = pattern;
  for (const Mutant& mutant : list_.mutants) {
    if (mutant.file != kManifest) continue;
    const auto base = built_in.kernel_template(mutant.kernel_template);
    if (!base) return base.error();
    const Result<std::string> manifest = mutant.apply((*base)->manifest().text);
    if (!manifest) return manifest.error();
    // A change that an operator made may be none that a manifest can have: it is loaded alone
    // first.
    const fs::path alone = folder_ / "alone";
    const fs::path folder = (mutant.place ? alone : folder_) / mutated_name(mutant);
    if (auto done = publish_file(folder / kManifest, *manifest); !done) return done;
    if (auto done = publish_file(folder / (*base)->source_file, (*base)->source); !done) {
      return done;
    }
    for (const DeviceHeader& header : (*base)->headers) {
      if (auto done = publish_file(folder / header.name, header.text); !done) return done;
    }
    if (!mutant.place) continue;
    std::error_code failed;
    if (Catalog::load({alone})) {
      const fs::path kept = folder_ / mutated_name(mutant);
      fs::create_directories(kept.parent_path(), failed);
      if (!failed) fs::rename(folder, kept, failed);
    }
    if (!failed) fs::remove_all(alone, failed);
    if (failed) {
      return Error{ErrorCode::io, concat(folder.native(), ": ", failed.message())};
    }
  }
  return {};
}

Result<MutantTry> MutantBuilds::make_try(const Mutant* mutant, std::size_t where,
                                         const DeviceProfile& profile) const {
  MutantTry made;
  made.mutant = mutant;
  made.where = &list_.cases[where];
  made.control = where;
  const bool manifest = mutant && mutant->file == kManifest;
  const auto kernel_template =
      catalog_->kernel_template(manifest ? mutated_name(*mutant) : made.where->kernel_template);
  if (!kernel_template) return kernel_template.error();
  const auto operation = catalog_->operation((*kernel_template)->operation);
  if (!operation) return operation.error();
  const Result<BoundProblem> bound = BoundProblem::bind(**operation, made.where->problem);
  if (!bound) return bound.error();
  const auto values = configuration(**kernel_template, *made.where);
  if (!values) return values.error();
  Result<Candidate> candidate = make_candidate(**kernel_template, *bound, *values, profile);
  if (!candidate) {
    Error error = candidate.error();
    error.message = concat(made.label(), ": ", error.message);
    return error;
  }
  made.candidate = *std::move(candidate);
  made.request = render(made.candidate, *catalog_, profile.sm_arch);
  const auto change = [&](std::string& text) -> Result<void> {
    Result<std::string> changed = mutant->apply(text);
    if (!changed) return std::move(changed).error();
    text = *std::move(changed);
    return {};
  };
  if (mutant && mutant->file == (*kernel_template)->source_file) {
    if (auto done = change(made.request.source); !done) return done.error();
  } else if (mutant && !manifest) {
    auto& headers = made.request.headers;
    const auto named = [&](const std::string& name) {
      return std::find_if(headers.begin(), headers.end(),
                          [&](const auto& header) { return header.first == name; });
    };
    auto found = named(mutant->file);
    if (found == headers.end()) found = named(concat(kHeaderFolder, mutant->file));
    if (found == headers.end()) {
      return Error{ErrorCode::not_found,
                   concat("mutant ", mutant->name, ": no file ", mutant->file)};
    }
    if (auto done = change(found->second); !done) return done.error();
  }
  for (auto& [name, text] : made.request.headers) {
    if (name != kBarrierHeader) continue;
    if (auto done = bound_waits(text); !done) return done.error();
  }
  return made;
}

Result<std::unique_ptr<MutantBuilds>> MutantBuilds::make(const MutantList& list,
                                                         const DeviceProfile& profile) {
  std::unique_ptr<MutantBuilds> builds(new MutantBuilds(list));
  const auto built_in = Catalog::load({});
  if (!built_in) return built_in.error();
  if (auto done = builds->write_manifests(**built_in); !done) return done.error();
  auto catalog = Catalog::load({builds->folder_});
  if (!catalog) return catalog.error();
  builds->catalog_ = *std::move(catalog);
  std::string failures;
  const auto add = [&](const Mutant* mutant, std::size_t where) {
    Result<MutantTry> made = builds->make_try(mutant, where, profile);
    if (made) {
      builds->tries_.push_back(*std::move(made));
    } else if (!mutant || !mutant->place) {
      failures += concat(failures.empty() ? "" : "\n", made.error().message);
    }
  };
  for (std::size_t where = 0; where < list.cases.size(); ++where) add(nullptr, where);
  for (const Mutant& mutant : list.mutants) {
    for (const std::size_t where : mutant.cases) add(&mutant, where);
  }
  if (!failures.empty()) return Error{ErrorCode::invalid_argument, std::move(failures)};
  return builds;
}

std::string MutantTry::label() const {
  return concat(mutant ? mutant->name : "control", " on ", where->kernel_template, ", ",
                where->name);
}

std::vector<Change> changes_of(const std::vector<const MutantTry*>& tries,
                               const std::vector<Build>& compiled) {
  std::vector<Change> changes;
  std::map<std::size_t, std::size_t> controls;  // of a case: index into `tries`
  for (std::size_t i = 0; i < tries.size(); ++i) {
    const MutantTry& made = *tries[i];
    const CompileResult& kernel = compiled[i].get();
    Change change = kernel ? Change::code : Change::no_code;
    if (kernel && !made.mutant) {
      controls.emplace(made.control, i);
    } else if (const auto found = controls.find(made.control); kernel && found != controls.end()) {
      const std::size_t control = found->second;
      if ((*kernel)->bits == (*compiled[control].get())->bits &&
          plan_text(made.candidate.plan) == plan_text(tries[control]->candidate.plan)) {
        change = Change::none;
      }
    }
    changes.push_back(change);
  }
  return changes;
}

std::vector<std::string> find_defects(const std::vector<const MutantTry*>& tries,
                                      const std::vector<Build>& compiled,
                                      const std::vector<Change>& changes) {
  std::vector<std::string> defects;
  for (std::size_t i = 0; i < tries.size(); ++i) {
    const MutantTry& made = *tries[i];
    if (made.mutant && made.mutant->place) continue;
    if (changes[i] == Change::no_code) {
      defects.push_back(
          concat(made.label(), " does not compile: ", compiled[i].get().error().message));
    } else if (changes[i] == Change::none) {
      defects.push_back(concat(made.label(), " is what its control is"));
    }
  }
  return defects;
}

}  // namespace kernwright
