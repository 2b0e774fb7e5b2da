#include <algorithm>
#include <map>

#include "cli/command.h"
#include "cli/output.h"
#include "compile/render.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

// Profiles that stand for their architectures when templates are checked without a GPU.
constexpr const char* kSampleProfiles[] = {"a100_80", "a10g", "l40s", "h200"};

class Check : public Command {
 public:
  Check()
      : Command("check", "Validate templates and compile samples of each for every architecture"),
        path_(llvm::cl::Positional, llvm::cl::Optional,
              llvm::cl::desc("[PATH of a folder with own templates]"), llvm::cl::sub(sub)),
        samples_("samples",
                 llvm::cl::desc("Configurations per template and architecture, default 4"),
                 llvm::cl::init(4), llvm::cl::sub(sub)) {}

  Status run() override {
    std::vector<std::filesystem::path> folders;
    if (!path_.empty()) folders.emplace_back(path_.getValue());
    Result<std::shared_ptr<const Catalog>> catalog = Catalog::load(folders);
    if (!catalog) return report(catalog.error());

    CompilePool pool(std::shared_ptr<Compiler>(make_toolkit_compiler()), {});
    Json rows = Json::array();
    int defects = 0;
    for (const KernelTemplate& kernel_template : (*catalog)->templates()) {
      for (const char* id : kSampleProfiles) {
        const DeviceProfile profile = *find_profile(id);
        if (!kernel_template.runs_on(profile.sm_arch)) continue;
        Result<int> bad = check_one(**catalog, kernel_template, profile, pool, rows);
        if (!bad) return report(bad.error());
        defects += *bad;
      }
    }
    if (json) {
      print_json(Json{
          {"templates", (*catalog)->templates().size()}, {"compiled", rows}, {"defects", defects}});
    } else {
      print(concat((*catalog)->templates().size(), " templates, ", rows.size(), " compiles, ",
                   defects, " defects"));
    }
    return defects == 0 ? Status::ok : Status::failed;
  }

 private:
  // The default configuration and evenly spread valid ones, for the operation's example.
  Result<int> check_one(const Catalog& catalog, const KernelTemplate& kernel_template,
                        const DeviceProfile& profile, CompilePool& pool, Json& rows) const {
    Result<const Operation*> operation = catalog.operation(kernel_template.operation);
    if (!operation) return std::move(operation).error();
    Result<Problem> problem = (*operation)->normalize((*operation)->example);
    if (!problem) return std::move(problem).error();

    int defects = 0;
    const auto add = [&](const std::string& configuration, const std::string& text,
                         const std::string& defect, Json row) {
      if (!defect.empty()) {
        ++defects;
        row["defect"] = defect;
      }
      row["template"] = kernel_template.name;
      row["target"] = kernel_template.target(profile.sm_arch);
      row["configuration"] = configuration;
      rows.push_back(std::move(row));
      if (!json) {
        print(concat(defect.empty() ? "ok    " : "DEFECT ", kernel_template.name, " ",
                     kernel_template.target(profile.sm_arch), " ", configuration, "  ", text,
                     defect.empty() ? "" : concat("\n  ", defect)));
      }
    };
    if (Result<void> fits = applies(kernel_template, **operation, *problem, profile); !fits) {
      add("", "", concat("does not apply to the operation's example: ", fits.error().message), {});
      return defects;
    }

    std::vector<Candidate> chosen;
    Result<Candidate> standard = make_candidate(kernel_template, **operation, *problem,
                                                kernel_template.default_configuration, profile);
    if (standard) chosen.push_back(*std::move(standard));
    // Another device than the default was written for may refuse it; some configuration must hold.
    const std::int64_t size = kernel_template.space.size();
    const std::int64_t step = std::max<std::int64_t>(1, size / (samples_ * 8L));
    std::string refusal = chosen.empty() ? standard.error().message : "";
    for (std::int64_t i = 0; i < size && static_cast<int>(chosen.size()) < samples_; i += step) {
      Result<Candidate> candidate = make_candidate(kernel_template, **operation, *problem,
                                                   kernel_template.space.at(i), profile);
      if (candidate) chosen.push_back(*std::move(candidate));
    }
    if (chosen.empty()) {
      add(kernel_template.default_configuration.text(), "",
          concat("no sampled configuration is valid on ", profile.id, "; the default: ", refusal),
          {});
      return defects;
    }

    std::vector<std::shared_future<CompileResult>> compiles;
    for (const Candidate& candidate : chosen) {
      compiles.push_back(pool.submit(render(candidate, catalog, profile.sm_arch)));
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const CompileResult& compiled = compiles[i].get();
      const std::string configuration = chosen[i].configuration.text();
      if (!compiled && compiled.error().code == ErrorCode::unavailable) return compiled.error();
      if (!compiled) {
        add(configuration, "", compiled.error().message, {});
        continue;
      }
      const Resources resources = (*compiled)->resources();
      std::string defect;
      if (resources.spill_bytes() > kernel_template.allowed_spill_bytes && i == 0 && standard) {
        defect = concat("the default configuration spills ", resources.spill_bytes(), " bytes; ",
                        kernel_template.allowed_spill_bytes, " allowed");
      }
      for (const std::string& warning : (*compiled)->warnings) defect += warning;
      add(configuration,
          concat(resources.registers, " registers, ", resources.spill_bytes(), " B spilled, ",
                 static_cast<int>((*compiled)->seconds * 1000), " ms"),
          defect,
          {{"registers", resources.registers},
           {"spill_bytes", resources.spill_bytes()},
           {"seconds", (*compiled)->seconds}});
    }
    return defects;
  }

  llvm::cl::opt<std::string> path_;
  llvm::cl::opt<int> samples_;
};

}  // namespace

std::unique_ptr<Command> make_check() { return std::make_unique<Check>(); }

}  // namespace kernwright::cli
