#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "service/check/check_templates.h"
#include "support/steady_seconds.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

constexpr std::string_view kNotRun =
    "compiled only, nothing was run: `tune` compares results where a GPU is";

/// Prints the parts of a check as they come. Defects of a template or operation with the same
/// message count as one, whatever target the message names before the compiler's log.
class CheckPrinter {
 public:
  explicit CheckPrinter(bool verbose) : verbose_(verbose) {}

  void print_part(const CheckedPart& part, const CheckCounts& counts) {
    if (part.name != printed_) print_defects();
    printed_ = part.name;
    std::string where;
    for (const std::string* word : {&part.name, &part.target, &part.problem, &part.configuration}) {
      if (!word->empty()) where += concat("  ", *word);
    }
    if (part.kernel) {
      const Resources resources = part.kernel->resources();
      where += concat("  ", resources.registers, " registers, ", resources.spill_bytes(),
                      " B spilled, ", static_cast<int>(part.kernel->seconds * 1000), " ms");
    }
    if (!part.note.empty()) {
      line_.clear();
      print_lines(concat("NOTE", where, "\n  ", part.note));
    } else if (!part.defect.empty()) {
      add(where, part.defect);
    } else if (verbose_) {
      line_.clear();
      print(concat("ok    ", where));
    }
    line_.update(concat(counts.compiles, " compiled, ", counts.under_way, " under way, ",
                        counted(counts.defects, "defect"), ": ", part.name),
                 seconds_since(start_));
  }

  /// Prints each defect since the last call once, in the order in which they were found.
  void print_defects() {
    line_.clear();
    for (const Defect& defect : defects_) {
      const std::string_view text = trim(defect.text);
      print_lines(defect.count == 1 ? std::string(text)
                                    : concat(text, "\n  and ", defect.count - 1, " more"));
    }
    defects_.clear();
  }

 private:
  struct Defect {
    std::string key;
    std::string text;
    int count = 1;
  };

  void add(std::string_view where, std::string_view what) {
    const std::size_t log = what.find('\n');
    const std::string_view key = log == std::string_view::npos ? what : what.substr(log);
    const auto known = std::ranges::find(defects_, key, &Defect::key);
    if (known != defects_.end()) {
      ++known->count;
    } else {
      defects_.push_back({std::string(key), concat("DEFECT", where, "\n  ", what)});
    }
  }

  bool verbose_;
  std::string printed_;  ///< the name of the last part
  std::vector<Defect> defects_;
  ProgressLine line_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Json to_json(const CheckedPart& part) {
  Json json = Json::object();
  if (part.kernel) {
    const Resources resources = part.kernel->resources();
    json = {{"registers", resources.registers},
            {"spill_bytes", resources.spill_bytes()},
            {"seconds", part.kernel->seconds}};
  }
  if (!part.defect.empty()) json["defect"] = part.defect;
  if (!part.note.empty()) json["note"] = part.note;
  json["template"] = part.name;
  json["target"] = part.target;
  json["problem"] = part.problem;
  json["configuration"] = part.configuration;
  return json;
}

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
    CheckOptions options{.path = path_, .all = all_, .samples = samples_};
    if (!sku_.empty()) {
      Result<DeviceProfile> found = find_profile(sku_);
      if (!found) return report({ErrorCode::invalid_argument, found.error().message});
      options.profile = *std::move(found);
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

    Json rows = Json::array();
    CheckPrinter printer(verbose_);
    const Result<CheckCounts> done =
        check_templates(catalog, options, [&](const CheckedPart& part, const CheckCounts& counts) {
          if (!json) return printer.print_part(part, counts);
          rows.push_back(to_json(part));
        });
    printer.print_defects();
    if (!done) return report(done.error());
    if (json) {
      print_json(
          Json{{"templates", done->templates}, {"compiled", rows}, {"defects", done->defects}});
    } else {
      print(concat(counted(done->templates, "template"), ", ", counted(done->compiles, "compile"),
                   ", ", counted(done->defects, "defect")));
      print(kNotRun);
    }
    return done->defects == 0 ? Status::ok : Status::failed;
  }

 private:
  llvm::cl::opt<std::string> path_;
  llvm::cl::opt<int> samples_;
  llvm::cl::opt<bool> all_;
  llvm::cl::opt<bool> verbose_;
  llvm::cl::opt<std::string> sku_;
};

}  // namespace

std::unique_ptr<Command> make_check() { return std::make_unique<Check>(); }

}  // namespace kernwright::cli
