#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "compile/compile_pool.h"
#include "compile/launch_fit.h"
#include "compile/process_compiler.h"
#include "compile/render.h"
#include "model/candidate/candidate_maker.h"
#include "model/catalog/unfused_form.h"
#include "support/names.h"
#include "support/seconds_since.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

// One profile for each architecture, for checking templates without a GPU. A reference runs on all
// architectures, so it is compiled only for the newest.
constexpr const char* kSampleProfiles[] = {"a100_80", "a10g", "l40s", "h200"};
constexpr const char* kReferenceProfile = "h200";
// The number of points of a space that are examined to find the samples.
constexpr int kLooks = 1000;
// The number of compiles that are kept, with text and cubin, before the first result is printed.
constexpr std::size_t kMostPending = 256;

constexpr std::string_view kNotRun =
    "compiled only, nothing was run: `tune` compares results where a GPU is";

using Clock = std::chrono::steady_clock;

/// Returns the built-in profile `id`, which must exist.
const DeviceProfile& profile_of(std::string_view id) {
  return *std::ranges::find(built_in_profiles(), id, &DeviceProfile::id);
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

/// Returns the operation's example with size 1 for every dim that is matched by bucket.
Problem smallest_example(const Operation& operation) {
  Problem::Dims smallest = operation.example.dims();
  for (auto& [name, size] : smallest) {
    if (find_named(operation.dims, name)->match == DimMatch::bucket) size = 1;
  }
  return Problem::make(operation.name, std::move(smallest), operation.example.flags());
}

/// Returns the operation's example, and its variants with size 1 for one of the dims that are
/// matched by bucket.
std::vector<Problem> examples(const Operation& operation) {
  std::vector<Problem> problems = {operation.example};
  for (std::size_t i = 0; i < operation.example.dims().size(); ++i) {
    Problem::Dims dims = operation.example.dims();
    if (find_named(operation.dims, dims[i].first)->match != DimMatch::bucket) continue;
    dims[i].second = 1;
    problems.push_back(Problem::make(operation.name, std::move(dims), operation.example.flags()));
  }
  return problems;
}

/// Binds the problem. If its dtype or flag needs another dtype or another value of another flag, it
/// gets the first that works. A dtype that differs from the operation's example was asked for, and
/// stays.
Result<BoundProblem> bind_one(const Operation& operation, const Problem& problem) {
  Result<BoundProblem> given = BoundProblem::bind(operation, problem);
  const auto is_asked = [&](const std::string& name) {
    const Problem::Flags& usual = operation.example.flags();
    return std::ranges::any_of(problem.flags(), [&](const auto& flag) {
      return flag.first == name && std::ranges::find(usual, flag) == usual.end();
    });
  };
  for (const Flag& flag : operation.flags) {
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
/// with each other dtype and each other value of a flag, and the smallest example.
std::vector<BoundProblem> problems_to_try(const Operation& operation, const Problem& example) {
  std::vector<Problem> problems;
  add_dtypes(operation, example, problems);
  for (const Flag& flag : operation.flags) {
    for (const std::string& value : flag.values) problems.push_back(example.with(flag.name, value));
  }
  problems.push_back(smallest_example(operation));
  return bind_all(operation, problems);
}

/// Returns the problems for which whole spaces are compiled: the example and the smallest example,
/// in every dtype.
std::vector<BoundProblem> problems_of_all(const Operation& operation, const Problem& example) {
  std::vector<Problem> problems;
  add_dtypes(operation, example, problems);
  add_dtypes(operation, smallest_example(operation), problems);
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

/// A value of a parameter that no valid candidate has.
struct DeadValue {
  std::string name;  ///< "THREADS=2048"
  std::string why;   ///< of one candidate that obeys the rules; empty if none does
};

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

  std::vector<DeadValue> all() const {
    std::vector<DeadValue> dead;
    if (left_ == all_) return dead;  // then the default is not valid either, which says why
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Parameter& parameter = template_.space.parameters()[i];
      for (std::size_t j = 0; j < values_[i].size(); ++j) {
        const Value& value = values_[i][j];
        if (value.lives || value.unknown) continue;
        dead.push_back({concat(parameter.name, "=", parameter.values[j]), value.why});
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

struct CheckOptions {
  std::vector<std::string> profiles;  ///< to check templates for
  bool all = false;                   ///< every configuration instead of samples
  int samples = 0;
  bool quiet = false;    ///< prints nothing
  bool verbose = false;  ///< prints compiles without defects too
};

/// The defects that were found, with their numbers. Defects with the same message count as one,
/// whatever target the message names before the compiler's log.
class Defects {
 public:
  void add(std::string_view where, std::string_view what) {
    const std::size_t log = what.find('\n');
    std::string key(log == std::string_view::npos ? what : what.substr(log));
    Seen& seen = seen_[std::move(key)];
    if (++seen.count > 1) return;
    seen.text = concat("DEFECT", where, "\n  ", what);
    order_.push_back(&seen);
  }

  /// Prints each defect once, in the order in which they were found, and clears the list.
  void print_all() {
    for (const Seen* seen : order_) {
      const std::string_view text = trim(seen->text);
      print_lines(seen->count == 1 ? std::string(text)
                                   : concat(text, "\n  and ", seen->count - 1, " more"));
    }
    order_.clear();
    seen_.clear();
  }

 private:
  struct Seen {
    std::string text;
    int count = 0;
  };
  std::map<std::string, Seen> seen_;
  std::vector<const Seen*> order_;
};

/// Compiles the candidates that are added, in parallel, and prints the results in their order.
class TemplateChecker {
 public:
  TemplateChecker(const Catalog& catalog, CheckOptions options)
      : catalog_(catalog),
        options_(std::move(options)),
        pool_(std::shared_ptr<Compiler>(make_toolkit_compiler_in_processes()), {}) {}

  /// Adds compiles for every profile: the default configuration for every problem, and `samples`
  /// that are spread evenly over the space. With `all` it adds the whole space, for fewer problems.
  void add_template(const KernelTemplate& kernel_template) {
    const Operation& operation = **catalog_.operation(kernel_template.operation);
    const Problem example = example_for(kernel_template, operation);
    std::vector<BoundProblem> problems = problems_to_try(operation, example);
    add_dead_values(kernel_template, problems);
    if (options_.all) {
      std::vector<BoundProblem> plain = problems_of_all(operation, example);
      const DeviceProfile& profile = profile_of(options_.profiles.front());
      const bool takes_one = std::ranges::any_of(plain, [&](const BoundProblem& problem) {
        return applies(kernel_template, problem, profile).has_value();
      });
      if (takes_one) problems = std::move(plain);  // else the template is only for a flag's value
    }
    std::string refusal;
    bool default_holds = false;
    bool runs = false;
    for (const std::string& id : options_.profiles) {
      const DeviceProfile& profile = profile_of(id);
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
        if (options_.all) {
          add_all(kernel_template, problem, profile);
          continue;
        }
        add_samples(kernel_template, problem, profile,
                    default_candidate ? wanted : std::max(wanted, 1));
        wanted = 0;
      }
    }
    if (!runs && options_.profiles.size() > 1) {
      add_defect(kernel_template.name, concat(kernel_template.manifest().place,
                                              ": arch: no profile "
                                              "to check with has sm_",
                                              kernel_template.arch.min));
    } else if (runs && !default_holds) {
      add_defect(kernel_template.name,
                 concat("the default configuration holds for no problem tried: ", refusal));
    }
  }

  /// Adds the reference of an operation, and checks its unfused form.
  void add_operation(const Operation& operation) {
    const DeviceProfile& profile = profile_of(kReferenceProfile);
    for (const BoundProblem& problem : problems_to_try(operation, operation.example)) {
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
        add_request({.name = concat(operation.name, "/", file),
                     .target = concat("sm_", profile.sm_arch),
                     .problem = problem.text(),
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

  /// Waits for all compiles and prints their rows. Errors: `unavailable` without a compiler.
  Result<void> finish() {
    while (!pending_.empty()) tell_first();
    progress_.clear();
    found_.print_all();
    if (no_compiler_) return *no_compiler_;
    return {};
  }

  const Json& rows() const { return rows_; }
  int compiles() const { return compiles_; }
  int defects() const { return defects_; }

 private:
  struct Pending {
    std::string name;
    std::string target{};
    std::string problem{};
    std::string configuration{};
    std::string place{};                     ///< of a reference's launch or of input kernels
    std::vector<ExecutionPlan> plans{};      ///< the same
    std::optional<Candidate> candidate{};    ///< none for a reference
    const DeviceProfile* profile = nullptr;  ///< the default's
    std::optional<Build> compile{};
    std::string figures{};
    std::string defect{};
    std::string note{};  ///< about things that may be right
    Json json = Json::object();
  };

  /// Returns the first of the examples that the template applies to, some of which have only few
  /// rows. If it applies to none, returns the operation's own example.
  Problem example_for(const KernelTemplate& kernel_template, const Operation& operation) const {
    for (const BoundProblem& example : bind_all(operation, examples(operation))) {
      for (const std::string& id : options_.profiles) {
        const DeviceProfile& profile = profile_of(id);
        if (kernel_template.runs_on(profile.sm_arch) &&
            applies(kernel_template, example, profile)) {
          return example.problem();
        }
      }
    }
    return operation.example;
  }

  /// Adds samples. It walks the space in steps of the golden section, which are spread evenly and
  /// in step with no parameter's list of values.
  void add_samples(const KernelTemplate& kernel_template, const BoundProblem& problem,
                   const DeviceProfile& profile, int wanted) {
    const auto size = static_cast<double>(kernel_template.space.size());
    double at = 0;
    for (int look = 0; look < kLooks && wanted > 0; ++look) {
      at = std::fmod(at + std::numbers::phi, 1.0);
      Result<Candidate> candidate =
          make_candidate(kernel_template, problem,
                         kernel_template.space.at(static_cast<std::int64_t>(at * size)), profile);
      if (candidate && add_compile(*candidate, profile, false)) --wanted;
    }
  }

  void add_all(const KernelTemplate& kernel_template, const BoundProblem& problem,
               const DeviceProfile& profile) {
    for (std::int64_t i = 0; i < kernel_template.space.size(); ++i) {
      Result<Candidate> candidate =
          make_candidate(kernel_template, problem, kernel_template.space.at(i), profile);
      if (candidate) add_compile(*candidate, profile, false);
    }
  }

  /// Adds the values of parameters that no candidate can have: as a defect if a limit of CUDA or of
  /// the device is the reason, and as a note if rules are, which may hold for other problems.
  void add_dead_values(const KernelTemplate& kernel_template,
                       const std::vector<BoundProblem>& problems) {
    DeadValues values(kernel_template);
    for (const char* id : kSampleProfiles) {
      for (const BoundProblem& problem : problems) values.look_at(problem, profile_of(id));
    }
    const std::string& place = kernel_template.manifest().place;
    std::string forbidden;
    for (const DeadValue& dead : values.all()) {
      if (dead.why.empty()) {
        forbidden += concat(forbidden.empty() ? "" : ", ", dead.name);
      } else {
        add_defect(kernel_template.name, concat(place, ": parameters: no candidate with ",
                                                dead.name, " can run: ", dead.why));
      }
    }
    if (forbidden.empty()) return;
    pending_.push_back({.name = kernel_template.name,
                        .note = concat(place,
                                       ": parameters: by the rules no problem that was tried "
                                       "has a candidate with ",
                                       forbidden)});
  }

  /// Returns false if the same text is added already.
  bool add_compile(const Candidate& candidate, const DeviceProfile& profile, bool is_default) {
    const KernelTemplate& kernel_template = *candidate.kernel_template;
    return add_request({.name = kernel_template.name,
                        .target = kernel_template.target(profile.sm_arch),
                        .problem = candidate.problem->text(),
                        .configuration = candidate.configuration.text(),
                        .candidate = candidate,
                        .profile = is_default ? &profile : nullptr},
                       render(candidate, catalog_, profile.sm_arch));
  }

  bool add_request(Pending pending, CompileRequest request) {
    if (!seen_.insert(request.digest("").hex()).second) return false;
    pending.compile = pool_.submit(std::move(request));
    show_progress(pending.name);
    pending_.push_back(std::move(pending));
    if (pending_.size() > kMostPending) tell_first();
    return true;
  }

  void show_progress(std::string_view name) {
    if (options_.quiet) return;
    progress_.update(concat(compiles_, " compiled, ", pending_.size(), " under way, ",
                            counted(defects_, "defect"), ": ", name),
                     seconds_since(start_));
  }

  void add_defect(std::string name, std::string defect, std::string problem = {}) {
    pending_.push_back(
        {.name = std::move(name), .problem = std::move(problem), .defect = std::move(defect)});
  }

  void tell_first() {
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    if (no_compiler_) return;
    if (pending.compile) {
      const CompileResult compiled = pending.compile->get();
      if (!compiled && compiled.error().code == ErrorCode::unavailable) {
        no_compiler_ = compiled.error();
        return;
      }
      judge(pending, compiled);
    }
    tell(pending);
  }

  static void judge(Pending& pending, const CompileResult& compiled) {
    if (!compiled) {
      pending.defect = compiled.error().message;
      return;
    }
    const CompiledKernel& kernel = **compiled;
    const Resources resources = kernel.resources();
    if (pending.candidate) pending.defect = misfit_of(*pending.candidate, kernel);
    for (const ExecutionPlan& plan : pending.plans) {
      const std::optional<Misfit> misfit = find_misfit(plan, kernel);
      if (misfit && pending.defect.empty()) {
        pending.defect = concat(pending.place, ": ", misfit->what);
      }
    }
    // Tuning drops configurations that spill or need too much, but it needs the default.
    if (pending.profile && pending.defect.empty()) {
      const TrialStep step = check_compiled(*pending.candidate, compiled, *pending.profile);
      if (step.outcome != Outcome::ok) {
        pending.defect = concat("the default configuration: ", step.detail);
      }
    }
    for (const std::string& warning : kernel.warnings) pending.defect += warning;
    pending.figures = concat(resources.registers, " registers, ", resources.spill_bytes(),
                             " B spilled, ", static_cast<int>(kernel.seconds * 1000), " ms");
    pending.json = {{"registers", resources.registers},
                    {"spill_bytes", resources.spill_bytes()},
                    {"seconds", kernel.seconds}};
  }

  void tell(Pending& pending) {
    if (pending.compile) ++compiles_;
    if (!pending.defect.empty()) {
      ++defects_;
      pending.json["defect"] = pending.defect;
    }
    if (!pending.note.empty()) pending.json["note"] = pending.note;
    pending.json["template"] = pending.name;
    pending.json["target"] = pending.target;
    pending.json["problem"] = pending.problem;
    pending.json["configuration"] = pending.configuration;
    rows_.push_back(std::move(pending.json));
    if (options_.quiet) return;
    if (pending.name != told_) {
      progress_.clear();
      found_.print_all();
      told_ = pending.name;
    }
    show_progress(pending.name);
    std::string where;
    for (const std::string* part :
         {&pending.name, &pending.target, &pending.problem, &pending.configuration}) {
      if (!part->empty()) where += concat("  ", *part);
    }
    if (!pending.note.empty()) {
      progress_.clear();
      print_lines(concat("NOTE", where, "\n  ", pending.note));
      return;
    }
    if (!pending.figures.empty()) where += concat("  ", pending.figures);
    if (!pending.defect.empty()) {
      found_.add(where, pending.defect);
    } else if (options_.verbose) {
      progress_.clear();
      print(concat("ok    ", where));
    }
  }

  const Catalog& catalog_;
  CheckOptions options_;
  CompilePool pool_;
  std::set<std::string> seen_;
  std::deque<Pending> pending_;
  std::optional<Error> no_compiler_;
  Json rows_ = Json::array();
  std::string told_;  ///< the template or operation whose results are printed now
  Defects found_;     ///< of the template or operation that `told_` names
  ProgressLine progress_;
  const Clock::time_point start_ = Clock::now();
  int compiles_ = 0;
  int defects_ = 0;
};

class Check : public Command {
 public:
  Check()
      : Command("check", "Validate templates, compile samples per architecture"),
        path_(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("[PATH of own templates]"),
              llvm::cl::sub(sub)),
        samples_("samples",
                 llvm::cl::desc("Configurations per template and architecture beside\n"
                                "the default (default 4)"),
                 llvm::cl::value_desc("N"), llvm::cl::init(4), llvm::cl::sub(sub)),
        all_("all",
             llvm::cl::desc("Every configuration in place of samples, in every\n"
                            "dtype, for one SKU (default h200)"),
             llvm::cl::sub(sub)),
        verbose_("verbose", llvm::cl::desc("Print a line for each compile, not only for defects"),
                 llvm::cl::sub(sub)),
        sku_("sku", llvm::cl::desc("Check for this SKU alone, e.g. h200"),
             llvm::cl::value_desc("NAME"), llvm::cl::sub(sub)) {}

  Status run() override {
    if (samples_ < 0) {
      return report({ErrorCode::invalid_argument,
                     concat("--samples is ", samples_.getValue(), ", it must be 0 or more")});
    }
    if (all_ && samples_.getNumOccurrences() > 0) {
      return report({ErrorCode::invalid_argument, "--all leaves nothing to --samples"});
    }
    CheckOptions options{.profiles = {std::begin(kSampleProfiles), std::end(kSampleProfiles)},
                         .all = all_,
                         .samples = samples_,
                         .quiet = json,
                         .verbose = verbose_};
    if (all_ || !sku_.empty()) {
      options.profiles = {sku_.empty() ? kReferenceProfile : sku_.getValue()};
      Result<DeviceProfile> found = find_profile(options.profiles.front());
      if (!found) return report({ErrorCode::invalid_argument, found.error().message});
      options.profiles.front() = std::move(found->id);
    }
    std::vector<std::filesystem::path> folders;
    if (!path_.empty()) folders.emplace_back(path_.getValue());
    Result<std::shared_ptr<const Catalog>> loaded = Catalog::load(folders);
    const Result<void> parsed = loaded ? (*loaded)->parse_all() : loaded.error();
    if (!parsed) {
      report(parsed.error());
      if (json)
        print_json(Json{{"templates", 0}, {"defects", 1}, {"error", parsed.error().message}});
      return Status::failed;  // the checked files are defective, not the arguments
    }
    const Catalog& catalog = **loaded;
    if (path_.empty() && !json) {
      print(
          concat("no PATH given: checks the ", catalog.templates().size(), " built-in templates"));
    }

    TemplateChecker checker(catalog, std::move(options));
    int templates = 0;
    for (const Operation& operation : catalog.operations()) {
      if (is_checked(operation.folder)) checker.add_operation(operation);
    }
    for (const KernelTemplate& kernel_template : catalog.templates()) {
      if (!is_checked(kernel_template.manifest().place)) continue;
      checker.add_template(kernel_template);
      ++templates;
    }
    if (templates == 0) {
      return report({ErrorCode::not_found,
                     concat("no template in ", path_.getValue(), "; one is a file ",
                            path_.getValue(), "/<operation>/<template>/manifest.json")});
    }
    if (Result<void> done = checker.finish(); !done) return report(done.error());
    if (json) {
      print_json(Json{
          {"templates", templates}, {"compiled", checker.rows()}, {"defects", checker.defects()}});
    } else {
      print(concat(counted(templates, "template"), ", ", counted(checker.compiles(), "compile"),
                   ", ", counted(checker.defects(), "defect")));
      print(kNotRun);
    }
    return checker.defects() == 0 ? Status::ok : Status::failed;
  }

 private:
  /// Returns true if the file at `place` should be checked. With a PATH the built-in templates are
  /// loaded, because the user's templates may implement their operations, but not checked.
  bool is_checked(std::string_view place) const {
    return path_.empty() || place.starts_with(concat(path_.getValue(), "/"));
  }

  llvm::cl::opt<std::string> path_;
  llvm::cl::opt<int> samples_;
  llvm::cl::opt<bool> all_;
  llvm::cl::opt<bool> verbose_;
  llvm::cl::opt<std::string> sku_;
};

}  // namespace

std::unique_ptr<Command> make_check() { return std::make_unique<Check>(); }

}  // namespace kernwright::cli
