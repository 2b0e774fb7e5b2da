#include "service/check/check_templates.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "compile/compile_pool.h"
#include "compile/launch_fit.h"
#include "compile/process_compiler.h"
#include "compile/render.h"
#include "model/candidate/candidate_maker.h"
#include "model/catalog/unfused_form.h"
#include "support/names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

// The number of points of a space that are examined to find the samples.
constexpr int kLooks = 1000;
// The number of compiles that are kept, with text and cubin, before the first result is told.
constexpr std::size_t kMostPending = 256;

/// Returns one profile for each architecture, the newest last.
std::vector<DeviceProfile> sample_profiles() {
  std::vector<DeviceProfile> profiles;
  for (const char* id : {"a100_80", "a10g", "l40s", "h200"}) {
    profiles.push_back(*std::ranges::find(built_in_profiles(), id, &DeviceProfile::id));
  }
  return profiles;
}

/// Adds the problem, and the problem with each other dtype.
void add_dtypes(const Operation& operation, const Problem& problem, std::vector<Problem>& to) {
  to.push_back(problem);
  for (const TypeVariable& variable : operation.type_variables) {
    for (const DType dtype : variable.dtypes) {
      to.push_back(problem.with(variable.name, std::string(to_string(dtype))));
    }
  }
}

/// Returns the operation's example with size 1 for the dim `only`, or if that is empty for every
/// dim, as far as they are matched by bucket.
Problem smaller_example(const Operation& operation, std::string_view only = {}) {
  Problem::Dims dims = operation.example.dims();
  for (auto& [name, size] : dims) {
    if (!only.empty() && name != only) continue;
    if (find_named(operation.dims, name)->match == DimMatch::bucket) size = 1;
  }
  return Problem::make(operation.name, std::move(dims), operation.example.flags());
}

/// Binds the problem. If its dtype or flag needs another dtype or another value of another flag, it
/// gets the first that works. A dtype or a flag that differs from the operation's example was asked
/// for, and stays.
Result<BoundProblem> bind_one(const Operation& operation, const Problem& problem) {
  Result<BoundProblem> given = BoundProblem::bind(operation, problem);
  const auto is_asked = [&](const std::string& name) {
    const Problem::Flags& usual = operation.example.flags();
    return std::ranges::any_of(problem.flags(), [&](const auto& flag) {
      return flag.first == name && std::ranges::find(usual, flag) == usual.end();
    });
  };
  for (const Flag& flag : operation.flags) {
    if (is_asked(flag.name)) continue;
    for (std::size_t i = 0; !given && i < flag.values.size(); ++i) {
      given = BoundProblem::bind(operation, problem.with(flag.name, flag.values[i]));
    }
  }
  for (const TypeVariable& variable : operation.type_variables) {
    if (is_asked(variable.name)) continue;
    for (std::size_t i = 0; !given && i < variable.dtypes.size(); ++i) {
      const std::string dtype(to_string(variable.dtypes[i]));
      given = BoundProblem::bind(operation, problem.with(variable.name, dtype));
    }
  }
  return given;
}

/// Returns the problems that the operation accepts, each once.
std::vector<BoundProblem> bind_all(const Operation& operation,
                                   const std::vector<Problem>& problems) {
  std::vector<BoundProblem> bound;
  std::set<std::string> known;
  for (const Problem& problem : problems) {
    Result<BoundProblem> given = bind_one(operation, problem);
    if (given && known.insert(given->text()).second) bound.push_back(*std::move(given));
  }
  return bound;
}

/// Returns the problems for which a template must compile if it applies: the example, the example
/// with each other dtype and each other value of a flag, and the smallest example. `all`: the
/// problems for which whole spaces are compiled, the example and the smallest, in every dtype.
std::vector<BoundProblem> problems_to_try(const Operation& operation, const Problem& example,
                                          bool all) {
  std::vector<Problem> problems;
  add_dtypes(operation, example, problems);
  if (all) add_dtypes(operation, smaller_example(operation), problems);
  for (const Flag& flag : operation.flags) {
    if (all) break;
    for (const std::string& value : flag.values) problems.push_back(example.with(flag.name, value));
  }
  problems.push_back(smaller_example(operation));
  return bind_all(operation, problems);
}

/// Returns why compiled code does not fit a candidate's launches; empty if it does.
std::string misfit_of(const Candidate& candidate, const CompiledKernel& compiled) {
  const std::optional<Misfit> misfit = find_misfit(candidate.plan, compiled);
  if (!misfit) return {};
  const KernelTemplate& kernel_template = *candidate.kernel_template;
  const auto spec =
      std::ranges::find(kernel_template.launches, misfit->launch->kernel, &LaunchSpec::kernel);
  return concat(spec->place.in(kernel_template.manifests), ": ", misfit->what, ", in ",
                kernel_template.source_file);
}

/// Finds the values of a template's parameters that no candidate for `problems` on any of
/// `profiles` can have. A value is left out if some of its candidates were not looked at.
class DeadValues {
 public:
  explicit DeadValues(const KernelTemplate& kernel_template) : template_(kernel_template) {
    for (const Parameter& parameter : kernel_template.space.parameters()) {
      values_.emplace_back(parameter.values.size());
      all_ += parameter.values.size();
    }
    left_ = all_;
  }

  void look_at(const BoundProblem& problem, const DeviceProfile& profile) {
    if (left_ == 0 || !applies(template_, problem, profile)) return;
    const CandidateMaker maker(template_, problem, profile);
    std::vector<std::int64_t> points;
    maker.add_obeying(0, template_.space.size(), points);
    int failures = 0;
    for (const std::int64_t point : points) {
      std::vector<Value*> unseen = unseen_of(point);
      if (unseen.empty()) continue;
      if (failures >= kLooks) {
        for (Value* value : unseen) value->unknown = true;
        continue;
      }
      const Result<Candidate> made = maker.make(point);
      if (!made) ++failures;
      for (Value* value : unseen) {
        if (made) {
          value->lives = true;
          --left_;
        } else if (value->why.empty()) {
          value->why = made.error().message;
        }
      }
    }
  }

  /// Returns each such value, "THREADS=2048", and why one candidate that obeys the rules does not
  /// run; that is empty if none obeys them.
  std::vector<std::pair<std::string, std::string>> all() const {
    std::vector<std::pair<std::string, std::string>> dead;
    if (left_ == all_) return dead;  // then the default is not valid either, which says why
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Parameter& parameter = template_.space.parameters()[i];
      for (std::size_t j = 0; j < values_[i].size(); ++j) {
        const Value& value = values_[i][j];
        if (value.lives || value.unknown) continue;
        dead.emplace_back(concat(parameter.name, "=", parameter.values[j]), value.why);
      }
    }
    return dead;
  }

 private:
  struct Value {
    bool lives = false;
    bool unknown = false;
    std::string why;
  };

  /// Returns the values of a point that no valid candidate had so far.
  std::vector<Value*> unseen_of(std::int64_t point) {
    std::vector<Value*> unseen;
    for (std::size_t i = values_.size(); i-- > 0;) {
      const auto count = static_cast<std::int64_t>(values_[i].size());
      Value& value = values_[i][static_cast<std::size_t>(point % count)];
      if (!value.lives) unseen.push_back(&value);
      point /= count;
    }
    return unseen;
  }

  const KernelTemplate& template_;
  std::vector<std::vector<Value>> values_;  ///< by parameter, by number
  std::size_t all_ = 0;
  std::size_t left_ = 0;  ///< that no valid candidate had
};

/// Compiles the candidates that are added, in parallel, and tells the results in their order.
class TemplateChecker {
 public:
  TemplateChecker(const Catalog& catalog, const CheckOptions& options, const TellOfCheck& tell)
      : catalog_(catalog),
        options_(options),
        tell_(tell),
        profiles_(options.profile ? std::vector{*options.profile}
                  : options.all   ? std::vector{samples_.back()}
                                  : samples_),
        pool_(std::shared_ptr<Compiler>(make_toolkit_compiler_in_processes()), {}) {}

  /// Adds compiles for every profile: the default configuration for every problem, and `samples`
  /// that are spread evenly over the space. With `all` it adds the whole space, for fewer problems.
  void add_template(const KernelTemplate& kernel_template) {
    ++counts_.templates;
    const Operation& operation = **catalog_.operation(kernel_template.operation);
    const Problem example = example_for(kernel_template, operation);
    std::vector<BoundProblem> problems = problems_to_try(operation, example, false);
    add_dead_values(kernel_template, problems);
    if (options_.all) {
      std::vector<BoundProblem> plain = problems_to_try(operation, example, true);
      const bool takes_one = std::ranges::any_of(plain, [&](const BoundProblem& problem) {
        return applies(kernel_template, problem, profiles_.front()).has_value();
      });
      if (takes_one) problems = std::move(plain);  // else the template is only for a flag's value
    }
    std::string refusal;
    bool default_holds = false;
    bool runs = false;
    for (const DeviceProfile& profile : profiles_) {
      if (!kernel_template.runs_on(profile.sm_arch)) continue;
      runs = true;
      // Samples are for the first problem that the template applies to, the default is for all.
      int wanted = options_.samples;
      for (const BoundProblem& problem : problems) {
        if (Result<void> fits = applies(kernel_template, problem, profile); !fits) {
          if (refusal.empty()) refusal = fits.error().message;
          continue;
        }
        const Result<Candidate> default_candidate = make_candidate(
            kernel_template, problem, kernel_template.default_configuration, profile);
        if (default_candidate) {
          default_holds = true;
          add_compile(*default_candidate, profile, true);
        } else if (!default_holds) {
          refusal = default_candidate.error().message;
        }
        add_points(kernel_template, problem, profile,
                   default_candidate ? wanted : std::max(wanted, 1));
        wanted = 0;
      }
    }
    if (!runs && profiles_.size() > 1) {
      add_defect(kernel_template.name,
                 concat(kernel_template.manifest().place,
                        ": arch: no profile to check with has sm_", kernel_template.arch.min));
    } else if (runs && !default_holds) {
      add_defect(kernel_template.name,
                 concat("the default configuration holds for no problem tried: ", refusal));
    }
  }

  /// Adds the reference of an operation, and checks its unfused form.
  void add_operation(const Operation& operation) {
    // A reference runs on all architectures, so it is compiled only for the newest.
    const DeviceProfile& profile = samples_.back();
    for (const BoundProblem& problem : problems_to_try(operation, operation.example, false)) {
      const Result<UnfusedForm> form = unfused_form(catalog_, problem);
      if (!form && form.error().code != ErrorCode::not_found) {
        add_defect(operation.name, form.error().message);
      }
      std::vector<ExecutionPlan> plans;
      const auto add_plan = [&](Result<ExecutionPlan> plan) {
        if (plan) {
          plans.push_back(*std::move(plan));
        } else {
          add_defect(operation.name + "/reference.cu", plan.error().message, problem.text());
        }
      };
      const auto add_source = [&](std::string_view file, const LaunchSpec& launch,
                                  CompileRequest request) {
        add_request({.part = {.name = concat(operation.name, "/", file),
                              .target = concat("sm_", profile.sm_arch),
                              .problem = problem.text()},
                     .place = concat(operation.folder, "/operation.json:", launch.place.line),
                     .plans = std::exchange(plans, {})},
                    std::move(request));
      };
      add_plan(make_reference_plan(problem, profile));
      add_source("reference.cu", operation.reference,
                 render_reference(problem, catalog_, profile.sm_arch));
      if (!operation.input_kernels) continue;
      const InputKernels& inputs = *operation.input_kernels;
      for (const std::string* kernel :
           {&inputs.timing, &inputs.exact, &inputs.count, &inputs.nan}) {
        if (!kernel->empty()) add_plan(make_input_plan(problem, *kernel, profile));
      }
      add_source(inputs.source_file, inputs.launch,
                 render_input_kernels(problem, catalog_, profile.sm_arch));
    }
  }

  /// Waits for all compiles and tells of them. Errors: `unavailable` without a compiler.
  Result<CheckCounts> finish() {
    while (!pending_.empty()) tell_first();
    if (no_compiler_) return *no_compiler_;
    return counts_;
  }

 private:
  struct Pending {
    CheckedPart part;
    std::string place{};                     ///< of a reference's launch or of input kernels
    std::vector<ExecutionPlan> plans{};      ///< the same
    std::optional<Candidate> candidate{};    ///< none for a reference
    const DeviceProfile* profile = nullptr;  ///< the default's
    std::optional<Build> compile{};
  };

  /// Returns the first of the examples that the template applies to, some of which have only few
  /// rows. If it applies to none, returns the operation's own example, or the first case that it
  /// applies to if it is not for a flag's value either.
  Problem example_for(const KernelTemplate& kernel_template, const Operation& operation) const {
    std::vector<Problem> examples{operation.example};
    for (const auto& [name, size] : operation.example.dims()) {
      examples.push_back(smaller_example(operation, name));
    }
    if (const auto found = first_for(kernel_template, bind_all(operation, examples))) return *found;
    if (first_for(kernel_template, problems_to_try(operation, operation.example, false))) {
      return operation.example;
    }
    std::vector<Problem> cases;
    for (const OperationCase& one : operation.cases) {
      for (const std::string& text : one.all()) {
        if (Result<Problem> problem = Problem::parse(text)) cases.push_back(*std::move(problem));
      }
    }
    return first_for(kernel_template, bind_all(operation, cases)).value_or(operation.example);
  }

  std::optional<Problem> first_for(const KernelTemplate& kernel_template,
                                   const std::vector<BoundProblem>& problems) const {
    for (const BoundProblem& problem : problems) {
      for (const DeviceProfile& profile : profiles_) {
        if (kernel_template.runs_on(profile.sm_arch) &&
            applies(kernel_template, problem, profile)) {
          return problem.problem();
        }
      }
    }
    return std::nullopt;
  }

  /// Adds `wanted` samples, or the whole space. It takes samples in steps of the golden section,
  /// which are spread evenly and in step with no parameter's list of values.
  void add_points(const KernelTemplate& kernel_template, const BoundProblem& problem,
                  const DeviceProfile& profile, int wanted) {
    const std::int64_t size = kernel_template.space.size();
    double at = 0;
    for (std::int64_t look = 0; options_.all ? look < size : look < kLooks && wanted > 0; ++look) {
      at = std::fmod(at + std::numbers::phi, 1.0);
      const auto sample = static_cast<std::int64_t>(at * static_cast<double>(size));
      Result<Candidate> candidate =
          make_candidate(kernel_template, problem,
                         kernel_template.space.at(options_.all ? look : sample), profile);
      if (candidate && add_compile(*candidate, profile, false)) --wanted;
    }
  }

  /// Adds the values of parameters that no candidate can have: as a defect if a limit of CUDA or of
  /// the device is the reason, and as a note if rules are, which may hold for other problems.
  void add_dead_values(const KernelTemplate& kernel_template,
                       const std::vector<BoundProblem>& problems) {
    DeadValues values(kernel_template);
    for (const DeviceProfile& profile : samples_) {
      for (const BoundProblem& problem : problems) values.look_at(problem, profile);
    }
    const std::string& place = kernel_template.manifest().place;
    std::string forbidden;
    for (const auto& [name, why] : values.all()) {
      if (why.empty()) {
        forbidden += concat(forbidden.empty() ? "" : ", ", name);
      } else {
        add_defect(kernel_template.name,
                   concat(place, ": parameters: no candidate with ", name, " can run: ", why));
      }
    }
    if (forbidden.empty()) return;
    pending_.push_back({{.name = kernel_template.name,
                         .note = concat(place,
                                        ": parameters: by the rules no problem that was tried "
                                        "has a candidate with ",
                                        forbidden)}});
  }

  /// Returns false if the same text is added already.
  bool add_compile(const Candidate& candidate, const DeviceProfile& profile, bool is_default) {
    const KernelTemplate& kernel_template = *candidate.kernel_template;
    return add_request({.part = {.name = kernel_template.name,
                                 .target = kernel_template.target(profile.sm_arch),
                                 .problem = candidate.problem->text(),
                                 .configuration = candidate.configuration.text()},
                        .candidate = candidate,
                        .profile = is_default ? &profile : nullptr},
                       render(candidate, catalog_, profile.sm_arch));
  }

  bool add_request(Pending pending, CompileRequest request) {
    if (!seen_.insert(request.digest("").hex()).second) return false;
    pending.compile = pool_.submit(std::move(request));
    pending_.push_back(std::move(pending));
    if (pending_.size() > kMostPending) tell_first();
    return true;
  }

  void add_defect(std::string name, std::string defect, std::string problem = {}) {
    pending_.push_back(
        {{.name = std::move(name), .problem = std::move(problem), .defect = std::move(defect)}});
  }

  void tell_first() {
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    if (no_compiler_) return;
    CheckedPart& part = pending.part;
    if (pending.compile) {
      const CompileResult compiled = pending.compile->get();
      if (!compiled && compiled.error().code == ErrorCode::unavailable) {
        no_compiler_ = compiled.error();
        return;
      }
      ++counts_.compiles;
      if (compiled) part.kernel = *compiled;
      part.defect = defect_of(pending, compiled);
    }
    if (!part.defect.empty()) ++counts_.defects;
    counts_.under_way = static_cast<int>(pending_.size());
    tell_(part, counts_);
  }

  static std::string defect_of(const Pending& pending, const CompileResult& compiled) {
    if (!compiled) return compiled.error().message;
    std::string defect;
    if (pending.candidate) defect = misfit_of(*pending.candidate, **compiled);
    for (const ExecutionPlan& plan : pending.plans) {
      const std::optional<Misfit> misfit = find_misfit(plan, **compiled);
      if (misfit && defect.empty()) defect = concat(pending.place, ": ", misfit->what);
    }
    // Tuning drops configurations that spill or need too much, but it needs the default.
    if (pending.profile && defect.empty()) {
      const TrialStep step = check_compiled(*pending.candidate, compiled, *pending.profile);
      if (step.outcome != Outcome::ok) defect = concat("the default configuration: ", step.detail);
    }
    for (const std::string& warning : (*compiled)->warnings) defect += warning;
    return defect;
  }

  const Catalog& catalog_;
  const CheckOptions& options_;
  const TellOfCheck& tell_;
  const std::vector<DeviceProfile> samples_ = sample_profiles();
  const std::vector<DeviceProfile> profiles_;  ///< to check templates for
  CompilePool pool_;
  std::set<std::string> seen_;
  std::deque<Pending> pending_;
  std::optional<Error> no_compiler_;
  CheckCounts counts_;
};

}  // namespace

Result<CheckCounts> check_templates(const Catalog& catalog, const CheckOptions& options,
                                    const TellOfCheck& tell) {
  // The user's templates may implement built-in operations, which are loaded but not checked.
  const auto is_checked = [&](std::string_view place) {
    return options.path.empty() || place.starts_with(concat(options.path, "/"));
  };
  TemplateChecker checker(catalog, options, tell);
  for (const Operation& operation : catalog.operations()) {
    if (is_checked(operation.folder)) checker.add_operation(operation);
  }
  for (const KernelTemplate& kernel_template : catalog.templates()) {
    if (is_checked(kernel_template.manifest().place)) checker.add_template(kernel_template);
  }
  KW_ASSIGN(const CheckCounts counts, checker.finish());
  if (counts.templates > 0) return counts;
  return Error{ErrorCode::not_found, concat("no template in ", options.path, "; one is a file ",
                                            options.path, "/<operation>/<template>/manifest.json")};
}

}  // namespace kernwright
